/* From a problem to an instance: ranges checked, times compressed to slots. */
#include "planner/instance.h"

#include "base/reason.h"
#include "base/rounding.h"
#include "base/sort.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- whether a problem is in range ----------------------------------------------------------- */

static const uint64_t MOST_BYTES = UINT64_C(1) << 48;
static const uint64_t MOST_SUM = UINT64_C(1) << 62;

/* The error in the lifetime; NULL: valid. */
static const char *lifetime_fault(const gml_lifetime *lifetime, uint64_t period) {
    if (!lifetime->size_bytes || lifetime->size_bytes > MOST_BYTES) {
        return "a size outside 1 to 2^48";
    }
    if (lifetime->start >= lifetime->end) {
        return "an end that is not after its start";
    }
    if (period && lifetime->start >= period) {
        return "a start that is not within the period";
    }
    if (period && lifetime->end - lifetime->start > period) {
        return "a life longer than the period";
    }
    return NULL;
}

static gml_status check_lifetimes(const gml_problem *problem, char *reason, size_t reason_bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < problem->count; i++) {
        const char *fault = lifetime_fault(&problem->lifetimes[i], problem->period);
        if (fault) {
            return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "lifetime %zu has %s", i,
                              fault);
        }
        sum += gml_round_up(problem->lifetimes[i].size_bytes, gml_problem_alignment(problem));
        if (sum > MOST_SUM) {
            return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                              "the sizes add up to more than 2^62");
        }
    }
    return GML_OK;
}

gml_status gml_problem_check(const gml_problem *problem, char *reason, size_t reason_bytes) {
    uint64_t alignment = gml_problem_alignment(problem);
    if (alignment & (alignment - 1) || alignment > MOST_BYTES) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "an alignment of %" PRIu64 " is not a power of two up to 2^48",
                          alignment);
    }
    if (problem->count > INT32_MAX) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "more than 2^31 lifetimes");
    }
    if ((problem->count && !problem->lifetimes) ||
        (problem->ordering_count && !problem->orderings)) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes, "an array is missing");
    }
    if (problem->period && problem->ordering_count) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "orderings together with a period");
    }
    return check_lifetimes(problem, reason, reason_bytes);
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { WIDE_ARRAYS = 5, NARROW_ARRAYS = 4 };

static gml_status reserve(gml_instance *instance) {
    size_t each = instance->count + 2; /* at most one slot per item */
    uint64_t *wide = calloc(each, WIDE_ARRAYS * sizeof *wide + NARROW_ARRAYS * sizeof(uint32_t));
    instance->memory = wide;
    if (!wide) {
        return GML_NO_HOST_MEMORY;
    }
    instance->sizes = wide;
    instance->life = wide + each;
    instance->start = wide + 2 * each;
    instance->contention = wide + 3 * each;
    instance->live = wide + 4 * each;
    uint32_t *narrow = (uint32_t *)(wide + WIDE_ARRAYS * each);
    instance->begin = narrow;
    instance->end = narrow + each;
    instance->lifetime = narrow + 2 * each;
    instance->by_end = narrow + 3 * each;
    return GML_OK;
}

void gml_instance_close(gml_instance *instance) {
    free(instance->memory);
    *instance = (gml_instance){0};
}

/* ---- where a period begins ------------------------------------------------------------------- */

/* Events of the members on the circle, at the raw time of the key: member i ends (index i) or
 * starts (index count + i). Ends come first. */
static size_t list_turns(const gml_problem *problem, const uint32_t *members, size_t count,
                         gml_keyed *turns) {
    for (size_t i = 0; i < count; i++) {
        const gml_lifetime *lifetime = &problem->lifetimes[members[i]];
        turns[i] = (gml_keyed){lifetime->end % problem->period, i};
        turns[count + i] = (gml_keyed){lifetime->start, count + i};
    }
    return 2 * count;
}

/* The moment behind an end at which the least is live. */
static uint64_t least_live_time(const gml_problem *problem, const uint32_t *members, size_t count,
                                const gml_keyed *turns) {
    uint64_t live = 0, least = UINT64_MAX, time = 0;
    for (size_t i = 0; i < count; i++) {
        const gml_lifetime *lifetime = &problem->lifetimes[members[i]];
        live += lifetime->end >= problem->period ? lifetime->size_bytes : 0;
    }
    for (size_t i = 0; i < 2 * count; i++) {
        size_t member = (size_t)turns[i].index;
        bool is_end = member < count;
        uint64_t size = problem->lifetimes[members[is_end ? member : member - count]].size_bytes;
        live = is_end ? live - size : live + size;
        if (live < least) { /* which is right after an end */
            least = live;
            time = turns[i].key;
        }
    }
    return time;
}

static gml_status find_origin(const gml_problem *problem, const uint32_t *members, size_t count,
                              uint64_t *origin) {
    *origin = 0;
    if (!problem->period) {
        return GML_OK;
    }
    gml_keyed *turns = calloc(4 * count + 1, sizeof *turns);
    if (!turns) {
        return GML_NO_HOST_MEMORY;
    }
    size_t turn_count = list_turns(problem, members, count, turns);
    gml_sort_keyed(turns, turns + turn_count, turn_count);
    *origin = least_live_time(problem, members, count, turns);
    free(turns);
    return GML_OK;
}

/* ---- items in the order of their starts ------------------------------------------------------ */

static uint64_t start_time(const gml_problem *problem, uint32_t index, uint64_t origin) {
    uint64_t start = problem->lifetimes[index].start;
    return start >= origin ? start - origin : start + (problem->period - origin);
}

/* `events` and `scratch` have room for every item. */
static void take_items(gml_instance *instance, const gml_problem *problem, const uint32_t *members,
                       const uint64_t *ends, gml_keyed *events, gml_keyed *scratch) {
    for (size_t i = 0; i < instance->count; i++) {
        events[i] = (gml_keyed){start_time(problem, members[i], instance->origin), i};
    }
    gml_sort_keyed(events, scratch, instance->count);
    for (size_t item = 0; item < instance->count; item++) {
        size_t member = (size_t)events[item].index;
        const gml_lifetime *lifetime = &problem->lifetimes[members[member]];
        instance->lifetime[item] = members[member];
        instance->sizes[item] = gml_round_up(lifetime->size_bytes, gml_problem_alignment(problem));
        instance->start[item] = events[item].key;
        instance->life[item] = (ends ? ends[member] : lifetime->end) - lifetime->start;
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

static bool wraps(const gml_instance *instance, size_t item, uint64_t period) {
    return period && instance->life[item] > period - instance->start[item];
}

/* When the item ends, on the circle where there is a period. */
static uint64_t end_time(const gml_instance *instance, size_t item, uint64_t period) {
    uint64_t end = instance->start[item] + instance->life[item];
    return wraps(instance, item, period) ? end - period : end;
}

/* Gives every item its slots, and every slot its live sum. `ends` holds items by the time of their
 * end, ascending; ends come before starts at the same time. */
static void assign_slots(gml_instance *instance, const gml_keyed *ends, uint64_t live_at_first) {
    uint32_t slot = 0;
    uint64_t live = live_at_first;
    bool has_ended = false;
    size_t ended = 0;
    for (size_t item = 0; item < instance->count; item++) {
        for (; ended < instance->count && ends[ended].key <= instance->start[item]; ended++) {
            if (!has_ended) {
                instance->live[slot] = live;
                has_ended = true;
            }
            instance->end[ends[ended].index] = slot + 1;
            live -= instance->sizes[ends[ended].index];
        }
        slot += has_ended;
        has_ended = false;
        instance->begin[item] = slot;
        live += instance->sizes[item];
    }
    instance->live[slot] = live;
    for (; ended < instance->count; ended++) {
        instance->end[ends[ended].index] = slot + 1;
    }
    instance->slots = instance->count ? slot + 1 : 0;
}

static uint64_t wrapped_bytes(gml_instance *instance, uint64_t period) {
    uint64_t bytes = 0;
    for (size_t item = 0; item < instance->count; item++) {
        if (wraps(instance, item, period)) {
            instance->wrapped_count++;
            bytes += instance->sizes[item];
        }
    }
    return bytes;
}

/* ---- contention ------------------------------------------------------------------------------ */

/* The largest live sum in slots [begin, end), by a tree of largest sums. */
static uint64_t most_within(const uint64_t *tree, size_t slots, size_t begin, size_t end) {
    uint64_t most = 0;
    for (begin += slots, end += slots; begin < end; begin /= 2, end /= 2) {
        if (begin & 1) {
            most = tree[begin] > most ? tree[begin] : most;
            begin++;
        }
        if (end & 1) {
            end--;
            most = tree[end] > most ? tree[end] : most;
        }
    }
    return most;
}

static gml_status measure_contention(gml_instance *instance) {
    size_t slots = instance->slots;
    uint64_t *tree = malloc((2 * slots + 1) * sizeof *tree);
    if (!tree) {
        return GML_NO_HOST_MEMORY;
    }
    memcpy(tree + slots, instance->live, slots * sizeof *tree);
    for (size_t i = slots; i-- > 1;) {
        tree[i] = tree[2 * i] > tree[2 * i + 1] ? tree[2 * i] : tree[2 * i + 1];
    }
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t begin = instance->begin[i], end = instance->end[i];
        bool is_wrapped = begin >= end;
        uint64_t most = most_within(tree, slots, begin, is_wrapped ? slots : end);
        uint64_t rest = is_wrapped ? most_within(tree, slots, 0, end) : 0;
        instance->contention[i] = rest > most ? rest : most;
    }
    free(tree);
    return GML_OK;
}

uint64_t gml_instance_most_live(const gml_instance *instance) {
    uint64_t largest = 0;
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        largest = instance->live[slot] > largest ? instance->live[slot] : largest;
    }
    return largest;
}

uint64_t gml_instance_peak(const gml_instance *instance, const uint64_t *offsets) {
    uint64_t peak = 0;
    for (size_t i = 0; i < instance->count; i++) {
        uint64_t end = offsets[i] + instance->sizes[i];
        peak = end > peak ? end : peak;
    }
    return peak;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* `events` has room for twice the items. */
static gml_status fill(gml_instance *instance, const gml_problem *problem, const uint32_t *members,
                       const uint64_t *ends, gml_keyed *events) {
    gml_keyed *scratch = events + instance->count;
    gml_status status = find_origin(problem, members, instance->count, &instance->origin);
    if (status != GML_OK) {
        return status;
    }
    take_items(instance, problem, members, ends, events, scratch);
    for (size_t item = 0; item < instance->count; item++) {
        events[item] = (gml_keyed){end_time(instance, item, problem->period), item};
    }
    gml_sort_keyed(events, scratch, instance->count);
    for (size_t i = 0; i < instance->count; i++) {
        instance->by_end[i] = (uint32_t)events[i].index;
    }
    assign_slots(instance, events, wrapped_bytes(instance, problem->period));
    instance->lower_bound = gml_instance_most_live(instance);
    return measure_contention(instance);
}

gml_status gml_instance_open(gml_instance *instance, const gml_problem *problem,
                             const uint32_t *members, size_t member_count, const uint64_t *ends) {
    *instance = (gml_instance){.count = member_count};
    gml_keyed *events = calloc(2 * member_count + 1, sizeof *events);
    gml_status status = events ? reserve(instance) : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        status = fill(instance, problem, members, ends, events);
    }
    free(events);
    if (status != GML_OK) {
        gml_instance_close(instance);
    }
    return status;
}
