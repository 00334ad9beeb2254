/* The lowest segment of the skyline takes the best item that fits between its ends; when none does,
 * it is raised to its lower neighbour. After Sekiyama et al., "Profile-guided memory optimization
 * for deep neural networks" (arXiv 1804.10001), with any rank in place of the longest life. */
#include "planner/candidates.h"
#include "planner/methods.h"
#include "planner/skyline.h"
#include "planner/tops.h"

#include <stdlib.h>
#include <string.h>

enum { WORK_PER_VISIT = 2 }; /* a node has eight children */

struct gml_lowest {
    const gml_instance *instance;
    uint32_t *stack; /* wrapped items, lowest first: placed before all others */
    uint64_t *floor; /* by slot: the top of the stack */
    uint64_t *tops;  /* by slot: the floor, with the sum of what else is live */
    gml_candidates candidates;
    gml_skyline skyline;
    uint32_t *rank;
    /* of the run under way: */
    gml_tops rising;
    uint64_t *offsets;
    uint64_t peak, limit;
    size_t placed;
    uint64_t visits;
};

/* ---- what is wrapped ----------------------------------------------------------------------------
 *
 * Wrapped items overlap each other in time, so they are stacked. Everything else live with an item
 * of the stack lies above its top, so the highest address is at least the top of each item plus the
 * most that is live above it. Descending order by that maximum minimises the largest sum: Jackson's
 * rule for jobs with delivery times.
 */

typedef struct stacked {
    uint64_t above; /* the most that is live in its life, the stack left out */
    uint32_t life;  /* in slots; longer ones lie lower, so that less hangs over */
    uint32_t item;
} stacked;

static int compare(const void *left, const void *right) {
    const stacked *a = left, *b = right;
    if (a->above != b->above) {
        return a->above > b->above ? -1 : 1;
    }
    if (a->life != b->life) {
        return a->life > b->life ? -1 : 1;
    }
    return a->item < b->item ? -1 : a->item > b->item;
}

static bool is_wrapped(const gml_instance *instance, size_t item) {
    return instance->begin[item] >= instance->end[item];
}

/* `up_to` and `from` become the most of `live` up to each slot and from it on. */
static void sweep_most(const uint64_t *live, uint32_t slots, uint64_t *up_to, uint64_t *from) {
    uint64_t most = 0;
    for (uint32_t slot = 0; slot < slots; slot++) {
        most = live[slot] > most ? live[slot] : most;
        up_to[slot] = most;
    }
    most = 0;
    for (uint32_t slot = slots; slot-- > 0;) {
        most = live[slot] > most ? live[slot] : most;
        from[slot] = most;
    }
}

/* pre: lowest->tops holds the live sums beside the stack. */
static gml_status sort_stack(gml_lowest *lowest) {
    const gml_instance *instance = lowest->instance;
    uint64_t *up_to = lowest->floor;
    uint64_t *from = malloc(((size_t)instance->slots + 1) * sizeof *from);
    stacked *stack = malloc((instance->wrapped_count + 1) * sizeof *stack);
    size_t count = 0;
    if (from && stack) {
        sweep_most(lowest->tops, instance->slots, up_to, from);
        for (uint32_t i = 0; i < instance->count; i++) {
            if (is_wrapped(instance, i)) {
                uint32_t begin = instance->begin[i], end = instance->end[i];
                uint64_t first = up_to[end - 1], last = from[begin];
                stack[count++] = (stacked){.above = first > last ? first : last,
                                           .life = instance->slots - (begin - end),
                                           .item = i};
            }
        }
        qsort(stack, count, sizeof *stack, compare);
        for (size_t i = 0; i < count; i++) {
            lowest->stack[i] = stack[i].item;
        }
    }
    bool is_done = from && stack;
    free(from);
    free(stack);
    return is_done ? GML_OK : GML_NO_HOST_MEMORY;
}

/* From the highest of the stack down: slots below `left` and from `right` on have their height. */
static void find_floor(gml_lowest *lowest) {
    const gml_instance *instance = lowest->instance;
    uint64_t top = 0;
    for (size_t i = 0; i < instance->wrapped_count; i++) {
        top += instance->sizes[lowest->stack[i]];
    }
    memset(lowest->floor, 0, instance->slots * sizeof *lowest->floor);
    uint32_t left = 0, right = instance->slots;
    for (size_t i = instance->wrapped_count; i-- > 0;) {
        uint32_t item = lowest->stack[i];
        while (left < right && left < instance->end[item]) {
            lowest->floor[left++] = top;
        }
        while (left < right && right > instance->begin[item]) {
            lowest->floor[--right] = top;
        }
        top -= instance->sizes[item];
    }
}

/* ---- what does not depend on the order ------------------------------------------------------- */

static gml_status measure_slots(gml_lowest *lowest) {
    const gml_instance *instance = lowest->instance;
    uint64_t *tops = lowest->tops;
    for (size_t i = 0; i < instance->count; i++) {
        if (!is_wrapped(instance, i)) {
            tops[instance->begin[i]] += instance->sizes[i];
            tops[instance->end[i]] -= instance->sizes[i];
        }
    }
    for (uint32_t slot = 1; slot < instance->slots; slot++) {
        tops[slot] += tops[slot - 1];
    }
    gml_status status = instance->wrapped_count ? sort_stack(lowest) : GML_OK;
    if (status == GML_OK) {
        find_floor(lowest);
    }
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        tops[slot] += lowest->floor[slot];
    }
    return status;
}

static gml_status open(gml_lowest *lowest) {
    const gml_instance *instance = lowest->instance;
    size_t count = instance->count, slots = instance->slots;
    lowest->rank = malloc((count + 1) * sizeof *lowest->rank);
    lowest->offsets = malloc((count + 1) * sizeof *lowest->offsets);
    lowest->stack = malloc((instance->wrapped_count + 1) * sizeof *lowest->stack);
    lowest->floor = malloc((slots + 1) * sizeof *lowest->floor);
    lowest->tops = calloc(slots + 1, sizeof *lowest->tops);
    if (!lowest->rank || !lowest->offsets || !lowest->stack || !lowest->floor || !lowest->tops) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status =
        gml_candidates_open(&lowest->candidates, count, instance->slots, instance->begin);
    if (status == GML_OK) {
        status = gml_skyline_open(&lowest->skyline, instance->slots);
    }
    if (status == GML_OK) {
        status = gml_tops_open(&lowest->rising, instance->slots);
    }
    return status == GML_OK ? measure_slots(lowest) : status;
}

gml_status gml_lowest_open(const gml_instance *instance, gml_lowest **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) {
        return GML_NO_HOST_MEMORY;
    }
    (*out)->instance = instance;
    gml_status status = open(*out);
    if (status != GML_OK) {
        gml_lowest_close(*out);
        *out = NULL;
    }
    return status;
}

void gml_lowest_close(gml_lowest *lowest) {
    if (lowest) {
        gml_candidates_close(&lowest->candidates);
        gml_skyline_close(&lowest->skyline);
        gml_tops_close(&lowest->rising);
        free(lowest->rank);
        free(lowest->offsets);
        free(lowest->stack);
        free(lowest->floor);
        free(lowest->tops);
        free(lowest);
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Places the wrapped items, and prepares all others to be placed above them. */
static gml_status begin_run(gml_lowest *lowest, const uint32_t *order, uint64_t limit_bytes) {
    const gml_instance *instance = lowest->instance;
    uint64_t top = 0;
    for (size_t i = 0; i < instance->wrapped_count; i++) {
        lowest->offsets[lowest->stack[i]] = top;
        top += instance->sizes[lowest->stack[i]];
    }
    lowest->peak = top;
    lowest->limit = limit_bytes;
    lowest->placed = instance->wrapped_count;
    for (size_t i = 0; i < instance->count; i++) {
        lowest->rank[order[i]] = (uint32_t)i;
    }
    gml_candidates_fill(&lowest->candidates, lowest->rank, instance->begin, instance->end);
    if (limit_bytes != UINT64_MAX) {
        gml_tops_reset(&lowest->rising, lowest->tops);
    }
    return gml_skyline_reset(&lowest->skyline, lowest->floor);
}

/* Leaves the space between segment `at` and its lower neighbour empty. GML_NOT_READY if the items
 * of one of its slots no longer fit within the limit. */
static gml_status lift(gml_lowest *lowest, uint32_t at) {
    uint32_t end = lowest->skyline.segments[at].next;
    uint64_t depth = gml_skyline_depth(&lowest->skyline, at);
    if (lowest->limit != UINT64_MAX) {
        lowest->visits += (end - at) / GML_TOPS_BLOCK;
        if (gml_tops_raise(&lowest->rising, at, end, depth, lowest->limit)) {
            return GML_NOT_READY;
        }
    }
    return gml_skyline_lift(&lowest->skyline, at);
}

/* Places all that goes on top of segment `at` at its height, best first. */
static gml_status fill_segment(gml_lowest *lowest, uint32_t at, const uint32_t *order) {
    const gml_instance *instance = lowest->instance;
    gml_skyline *skyline = &lowest->skyline;
    for (;;) {
        uint64_t height = skyline->segments[at].height;
        uint32_t best = gml_candidates_best(&lowest->candidates, at, skyline->segments[at].next,
                                            &lowest->visits);
        if (best == GML_NO_CANDIDATE) {
            return lift(lowest, at);
        }
        uint32_t item = order[best];
        uint64_t top = height + instance->sizes[item];
        lowest->offsets[item] = height;
        lowest->peak = top > lowest->peak ? top : lowest->peak;
        lowest->placed++;
        gml_candidates_remove(&lowest->candidates, item, &lowest->visits);
        gml_status status = gml_skyline_raise(skyline, at, instance->begin[item],
                                              instance->end[item], instance->sizes[item], &at);
        if (status != GML_OK || at == GML_NO_SEGMENT) {
            return status;
        }
    }
}

gml_status gml_lowest_run(gml_lowest *lowest, const uint32_t *order, uint64_t limit_bytes,
                          gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes) {
    size_t count = lowest->instance->count;
    gml_status status = begin_run(lowest, order, limit_bytes);
    while (status == GML_OK && lowest->placed < count) {
        lowest->visits = 0;
        status = fill_segment(lowest, gml_skyline_take(&lowest->skyline), order);
        bool is_over = gml_budget_spend(budget, lowest->visits * WORK_PER_VISIT);
        if (status == GML_OK && (is_over || lowest->peak > limit_bytes)) {
            return GML_NOT_READY;
        }
    }
    if (status == GML_OK && lowest->peak > limit_bytes) {
        return GML_NOT_READY;
    }
    if (status == GML_OK) {
        *peak_bytes = lowest->peak;
        memcpy(offsets, lowest->offsets, count * sizeof *offsets);
    }
    return status;
}
