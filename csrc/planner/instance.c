#include "planner/instance.h"

#include "base/rounding.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static void *
array_of(size_t count, size_t each)
{
    return calloc(count ? count : 1, each);
}

static gml_status
reserve(gml_instance *instance, size_t count, size_t taken_count)
{
    instance->sizes = array_of(count, sizeof *instance->sizes);
    instance->begin = array_of(count, sizeof *instance->begin);
    instance->end = array_of(count, sizeof *instance->end);
    instance->life = array_of(count, sizeof *instance->life);
    instance->start = array_of(count, sizeof *instance->start);
    instance->contention = array_of(count, sizeof *instance->contention);
    instance->lifetime = array_of(count, sizeof *instance->lifetime);
    instance->live = calloc(count + 2, sizeof *instance->live);
    instance->taken = array_of(taken_count, sizeof *instance->taken);
    bool is_whole = instance->sizes && instance->begin && instance->end && instance->life &&
                    instance->start && instance->contention && instance->lifetime &&
                    instance->live && instance->taken;
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

void
gml_instance_close(gml_instance *instance)
{
    free(instance->sizes);
    free(instance->begin);
    free(instance->end);
    free(instance->life);
    free(instance->start);
    free(instance->contention);
    free(instance->lifetime);
    free(instance->live);
    free(instance->taken);
    *instance = (gml_instance){0};
}

/* ---- where a period begins ------------------------------------------------------------------- */

/* What the members do on the circle, at the raw time of the key: member i ends (index i) or starts
 * (index count + i). Ends come first. */
static size_t
list_turns(const gml_problem *problem, const uint32_t *members, size_t count, gml_keyed *turns)
{
    for (size_t i = 0; i < count; i++) {
        const gml_lifetime *lifetime = &problem->lifetimes[members[i]];
        turns[i] = (gml_keyed){lifetime->end % problem->period, i};
        turns[count + i] = (gml_keyed){lifetime->start, count + i};
    }
    return 2 * count;
}

/* The moment behind an end at which the least is live. */
static uint64_t
least_live_time(const gml_problem *problem, const uint32_t *members, size_t count,
                const gml_keyed *turns)
{
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

static gml_status
find_origin(const gml_problem *problem, const uint32_t *members, size_t count, uint64_t *origin)
{
    *origin = 0;
    if (!problem->period) {
        return GML_OK;
    }
    gml_keyed *turns = array_of(count, 4 * sizeof *turns);
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

static uint64_t
start_time(const gml_problem *problem, uint32_t index, uint64_t origin)
{
    uint64_t start = problem->lifetimes[index].start;
    return start >= origin ? start - origin : start + (problem->period - origin);
}

/* `events` and `scratch` have room for every item. */
static void
take_items(gml_instance *instance, const gml_problem *problem, const uint32_t *members,
           const uint64_t *ends, gml_keyed *events, gml_keyed *scratch)
{
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

static bool
wraps(const gml_instance *instance, size_t item, uint64_t period)
{
    return period && instance->life[item] > period - instance->start[item];
}

/* When the item ends, on the circle where there is a period. */
static uint64_t
end_time(const gml_instance *instance, size_t item, uint64_t period)
{
    uint64_t end = instance->start[item] + instance->life[item];
    return wraps(instance, item, period) ? end - period : end;
}

/* Gives every item its slots, and every slot its live sum. `ends` holds items by the time of their
 * end, ascending; ends come before starts at the same time. */
static void
assign_slots(gml_instance *instance, const gml_keyed *ends, uint64_t live_at_first)
{
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

static uint64_t
wrapped_bytes(gml_instance *instance, uint64_t period)
{
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

/* Slots whose live sum is above that of every later one seen so far: where the sum is largest from
 * a slot on, is the first of them at or behind it. */
typedef struct slot_ridge {
    uint32_t *slots;
    size_t count;
} slot_ridge;

static void
ridge_add(slot_ridge *ridge, const uint64_t *live, uint32_t slot)
{
    while (ridge->count && live[ridge->slots[ridge->count - 1]] <= live[slot]) {
        ridge->count--;
    }
    ridge->slots[ridge->count++] = slot;
}

/* The largest live sum from `slot` to the one added last. */
static uint64_t
ridge_height(const slot_ridge *ridge, const uint64_t *live, uint32_t slot)
{
    size_t low = 0, high = ridge->count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ridge->slots[middle] >= slot) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return live[ridge->slots[low]];
}

/* `ends` as for assign_slots(). */
static gml_status
measure_contention(gml_instance *instance, const gml_keyed *ends)
{
    slot_ridge seen = {.slots = array_of(instance->slots, sizeof *seen.slots)};
    if (!seen.slots) {
        return GML_NO_HOST_MEMORY;
    }
    uint32_t slot = 0;
    for (size_t i = 0; i < instance->count; i++) {
        size_t item = (size_t)ends[i].index;
        while (slot < instance->slots && slot < instance->end[item]) {
            ridge_add(&seen, instance->live, slot++);
        }
        bool is_wrapped = instance->begin[item] >= instance->end[item];
        instance->contention[item] =
            ridge_height(&seen, instance->live, is_wrapped ? 0 : instance->begin[item]);
    }
    for (; slot < instance->slots; slot++) {
        ridge_add(&seen, instance->live, slot);
    }
    for (size_t i = 0; instance->wrapped_count && i < instance->count; i++) {
        if (instance->begin[i] >= instance->end[i]) {
            uint64_t behind = ridge_height(&seen, instance->live, instance->begin[i]);
            instance->contention[i] =
                behind > instance->contention[i] ? behind : instance->contention[i];
        }
    }
    free(seen.slots);
    return GML_OK;
}

/* ---- what is taken --------------------------------------------------------------------------- */

static gml_status
take_spans(gml_instance *instance, const gml_problem *problem)
{
    size_t count = problem->taken_count;
    gml_keyed *spans = array_of(count, 2 * sizeof *spans);
    if (!spans) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        spans[i] = (gml_keyed){problem->taken[i].offset, i};
    }
    gml_sort_keyed(spans, spans + count, count);
    for (size_t i = 0; i < count; i++) {
        gml_span span = problem->taken[spans[i].index];
        gml_span *last = instance->taken_count ? &instance->taken[instance->taken_count - 1] : NULL;
        uint64_t end = span.offset + span.size_bytes;
        if (!span.size_bytes) {
            continue;
        }
        if (!last || last->offset + last->size_bytes < span.offset) {
            instance->taken[instance->taken_count++] = span;
        } else if (end > last->offset + last->size_bytes) {
            last->size_bytes = end - last->offset;
        }
    }
    free(spans);
    return GML_OK;
}

uint64_t
gml_instance_least_end(const gml_instance *instance, uint64_t bytes)
{
    uint64_t end = bytes;
    for (size_t i = 0; bytes && i < instance->taken_count; i++) {
        if (end <= instance->taken[i].offset) {
            break;
        }
        end += instance->taken[i].size_bytes;
    }
    return end;
}

uint64_t
gml_instance_most_live(const gml_instance *instance)
{
    uint64_t largest = 0;
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        largest = instance->live[slot] > largest ? instance->live[slot] : largest;
    }
    return largest;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* `events` has room for twice the items. */
static gml_status
fill(gml_instance *instance, const gml_problem *problem, const uint32_t *members,
     const uint64_t *ends, gml_keyed *events)
{
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
    assign_slots(instance, events, wrapped_bytes(instance, problem->period));
    status = measure_contention(instance, events);
    if (status == GML_OK) {
        status = take_spans(instance, problem);
    }
    instance->lower_bound = gml_instance_least_end(instance, gml_instance_most_live(instance));
    return status;
}

gml_status
gml_instance_open(gml_instance *instance, const gml_problem *problem, const uint32_t *members,
                  size_t member_count, const uint64_t *ends)
{
    *instance = (gml_instance){.count = member_count};
    gml_keyed *events = array_of(member_count, 2 * sizeof *events);
    gml_status status =
        events ? reserve(instance, member_count, problem->taken_count) : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        status = fill(instance, problem, members, ends, events);
    }
    free(events);
    if (status != GML_OK) {
        gml_instance_close(instance);
    }
    return status;
}
