/* The lowest segment of the skyline takes the best item that fits between its ends; when none does,
 * it is raised to its lower neighbour. After Sekiyama et al., "Profile-guided memory optimization
 * for deep neural networks" (arXiv 1804.10001), with any rank in place of the longest life. */
#include "planner/candidates.h"
#include "planner/circle.h"
#include "planner/methods.h"
#include "planner/skyline.h"
#include "planner/tops.h"

#include <stdlib.h>
#include <string.h>

enum { WORK_PER_VISIT = 2 }; /* a node has eight children */

struct gml_lowest {
    const gml_instance *instance;
    gml_circle circle;           /* empty if nothing is wrapped */
    const uint32_t *begin, *end; /* the circle's, or the instance's */
    gml_candidates candidates;
    gml_skyline skyline;
    uint32_t *rank;
    uint64_t *bare_tops; /* by slot: the sum of what is live, with what lies empty in the stack */
    /* of the run under way: */
    gml_tops tops;
    uint64_t *offsets;
    uint64_t peak, limit;
    size_t placed;
    uint64_t visits;
};

static void
sum_tops(gml_lowest *lowest)
{
    const gml_instance *instance = lowest->instance;
    const uint64_t *stack = lowest->circle.heights;
    uint64_t *tops = lowest->bare_tops;
    for (size_t i = 0; i < instance->count; i++) {
        if (lowest->begin[i] < lowest->end[i]) {
            tops[lowest->begin[i]] += instance->sizes[i];
            tops[lowest->end[i]] -= instance->sizes[i];
        }
    }
    uint64_t live = 0;
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        live += tops[slot];
        tops[slot] = live + (stack ? stack[slot] : 0);
    }
}

gml_status
gml_lowest_open(const gml_instance *instance, gml_lowest **out)
{
    gml_lowest *lowest = calloc(1, sizeof *lowest);
    if (!lowest) {
        return GML_NO_HOST_MEMORY;
    }
    lowest->instance = instance;
    lowest->begin = instance->begin;
    lowest->end = instance->end;
    lowest->rank = malloc((instance->count + 1) * sizeof *lowest->rank);
    lowest->offsets = malloc((instance->count + 1) * sizeof *lowest->offsets);
    lowest->bare_tops = calloc((size_t)instance->slots + 1, sizeof *lowest->bare_tops);
    bool is_whole = lowest->rank && lowest->offsets && lowest->bare_tops;
    gml_status status = is_whole ? GML_OK : GML_NO_HOST_MEMORY;
    if (status == GML_OK && instance->wrapped_count > 0) {
        status = gml_circle_open(&lowest->circle, instance);
        lowest->begin = lowest->circle.begin;
        lowest->end = lowest->circle.end;
    }
    if (status == GML_OK) {
        status = gml_candidates_open(&lowest->candidates, instance->count, instance->slots,
                                     lowest->begin, lowest->end);
    }
    if (status == GML_OK) {
        status = gml_skyline_open(&lowest->skyline, instance->slots);
    }
    if (status == GML_OK) {
        status = gml_tops_open(&lowest->tops, instance->slots);
    }
    if (status == GML_OK) {
        sum_tops(lowest);
    } else {
        gml_lowest_close(lowest);
        lowest = NULL;
    }
    *out = lowest;
    return status;
}

void
gml_lowest_close(gml_lowest *lowest)
{
    if (lowest) {
        gml_circle_close(&lowest->circle);
        gml_candidates_close(&lowest->candidates);
        gml_skyline_close(&lowest->skyline);
        free(lowest->rank);
        free(lowest->offsets);
        free(lowest->bare_tops);
        gml_tops_close(&lowest->tops);
        free(lowest);
    }
}

/* What is wrapped, and everything else ready to be placed above it. */
static gml_status
begin_run(gml_lowest *lowest, const uint32_t *order, uint64_t limit_bytes)
{
    const gml_instance *instance = lowest->instance;
    uint64_t top = 0;
    for (size_t i = 0; i < lowest->circle.stack_count; i++) {
        uint32_t item = lowest->circle.stack[i];
        lowest->offsets[item] = top;
        top += instance->sizes[item];
    }
    lowest->peak = top;
    lowest->limit = limit_bytes;
    lowest->placed = lowest->circle.stack_count;
    for (size_t i = 0; i < instance->count; i++) {
        lowest->rank[order[i]] = (uint32_t)i;
    }
    gml_candidates_fill(&lowest->candidates, lowest->rank, lowest->end);
    if (limit_bytes != UINT64_MAX) {
        gml_tops_reset(&lowest->tops, lowest->bare_tops);
    }
    return gml_skyline_reset(&lowest->skyline, lowest->circle.heights);
}

/* Leaves the space between segment `at` and its lower neighbour empty. GML_NOT_READY if what is
 * live in one of its slots cannot end within the limit any more. */
static gml_status
lift(gml_lowest *lowest, uint32_t at)
{
    uint32_t end = lowest->skyline.segments[at].next;
    uint64_t depth = gml_skyline_depth(&lowest->skyline, at);
    if (lowest->limit != UINT64_MAX) {
        lowest->visits += (end - at) / GML_TOPS_BLOCK;
        if (gml_tops_raise(&lowest->tops, at, end, depth, lowest->limit)) {
            return GML_NOT_READY;
        }
    }
    return gml_skyline_lift(&lowest->skyline, at);
}

/* Places all that goes on top of segment `at` at its height, best first. */
static gml_status
fill_segment(gml_lowest *lowest, uint32_t at, const uint32_t *order)
{
    gml_skyline *skyline = &lowest->skyline;
    for (;;) {
        uint64_t height = skyline->segments[at].height;
        uint32_t best = gml_candidates_best(&lowest->candidates, at, skyline->segments[at].next,
                                            &lowest->visits);
        if (best == GML_NO_CANDIDATE) {
            return lift(lowest, at);
        }
        uint32_t item = order[best];
        uint64_t top = height + lowest->instance->sizes[item];
        lowest->offsets[item] = height;
        lowest->peak = top > lowest->peak ? top : lowest->peak;
        lowest->placed++;
        gml_candidates_remove(&lowest->candidates, item, &lowest->visits);
        gml_status status = gml_skyline_raise(skyline, at, lowest->begin[item], lowest->end[item],
                                              lowest->instance->sizes[item], &at);
        if (status != GML_OK || at == GML_NO_SEGMENT) {
            return status;
        }
    }
}

gml_status
gml_lowest_run(gml_lowest *lowest, const uint32_t *order, uint64_t limit_bytes, gml_budget *budget,
               uint64_t *offsets, uint64_t *peak_bytes)
{
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
