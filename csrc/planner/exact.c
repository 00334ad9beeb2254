/* Exact search: strategies in turn, one independent range of time after the other, and the lowest
 * peak by halving.
 */
#include "planner/exact.h"

#include <stdlib.h>
#include <string.h>

/* In turn, each with a limit that doubles with every round: how long one takes differs between
 * instances by factors of thousands. Each of them decides one of the hard instances of docs/plan.md
 * that the others do not, or take many times as long for. */
static const gml_exact_strategy strategies[] = {
    {GML_EXACT_BY_LOW_SLACK, {GML_EXACT_LIFE, GML_EXACT_AREA, GML_EXACT_CONTENTION}},
    {GML_EXACT_BY_OPTIONS, {GML_EXACT_CONTENTION, GML_EXACT_LIFE, GML_EXACT_AREA}},
    {GML_EXACT_BY_REMAINING, {GML_EXACT_LIFE, GML_EXACT_AREA, GML_EXACT_CONTENTION}},
    {GML_EXACT_BY_LOW_OPTIONS, {GML_EXACT_CONTENTION, GML_EXACT_AREA, GML_EXACT_LIFE}},
    {GML_EXACT_BY_OPTIONS, {GML_EXACT_SIZE, GML_EXACT_CONTENTION, GML_EXACT_AREA}},
};

enum { FIRST_LIMIT_PER_ITEM = 2, BOUND_PARTS = 4, CAPPED_BOUND_PARTS = 16, FIRST_ROUND_PARTS = 8 };

/* ---- decision -------------------------------------------------------------------------------- */

static gml_status search_component(gml_exact_space *space, const uint32_t *items, uint32_t count,
                                   gml_budget *budget, gml_exact_outcome *out) {
    const size_t strategy_count = sizeof strategies / sizeof *strategies;
    gml_status status = GML_OK;
    *out = GML_EXACT_UNDECIDED;
    for (size_t i = 0;
         status == GML_OK && *out == GML_EXACT_UNDECIDED && !gml_budget_is_over(budget); i++) {
        uint64_t limit = FIRST_LIMIT_PER_ITEM * (uint64_t)count << i / strategy_count;
        status =
            gml_exact_run(space, &strategies[i % strategy_count], items, count, limit, budget, out);
    }
    return status;
}

/* One after the other of the ranges of time that no item crosses the ends of. */
static gml_status search_components(gml_exact_space *space, gml_budget *budget,
                                    gml_exact_outcome *out) {
    uint32_t *members = calloc(space->count + 1, sizeof *members);
    gml_status status = members ? GML_OK : GML_NO_HOST_MEMORY;
    *out = GML_EXACT_FOUND;
    for (uint32_t i = 0; status == GML_OK && *out == GML_EXACT_FOUND && i < space->count;) {
        uint32_t count = 0, end = space->items[i].end;
        for (; i < space->count && (!count || space->items[i].begin < end); i++) {
            end = space->items[i].end > end ? space->items[i].end : end;
            members[count++] = i;
        }
        status = search_component(space, members, count, budget, out);
    }
    free(members);
    return status;
}

gml_status gml_exact_search(const gml_instance *instance, uint64_t capacity_bytes,
                            gml_budget *budget, uint64_t *offsets, gml_exact_outcome *out) {
    *out = GML_EXACT_UNDECIDED;
    if (gml_instance_most_live(instance) > capacity_bytes) {
        *out = GML_EXACT_IMPOSSIBLE;
        return GML_OK;
    }
    gml_exact_space space;
    gml_status status = gml_exact_space_open(&space, instance, capacity_bytes);
    if (status == GML_OK) {
        status = search_components(&space, budget, out);
    }
    for (uint32_t i = 0; status == GML_OK && *out == GML_EXACT_FOUND && i < space.count; i++) {
        offsets[space.items[i].original] = space.items[i].offset * space.unit_bytes;
    }
    gml_exact_space_close(&space);
    return status == GML_UNSUPPORTED ? GML_OK : status;
}

/* ---- the lowest peak ------------------------------------------------------------------------- */

/* Peaks are multiples of `unit`. No placement is below `proven`; a search for `tried` or less (0:
 * none yet) ended without a result; a placement of `peak` exists. */
typedef struct descent_state {
    const gml_instance *instance;
    gml_budget *budget;
    uint64_t *offsets, *found;
    uint64_t capacity_bytes, unit, proven, tried, peak;
} descent_state;

/* Searches for a peak of at most `target` with a part of the remaining budget. */
static gml_status attempt(descent_state *descent, uint64_t target, uint64_t parts) {
    size_t count = descent->instance->count;
    gml_budget part = gml_budget_part(descent->budget, 1, parts);
    gml_exact_outcome outcome;
    gml_status status =
        gml_exact_search(descent->instance, target, &part, descent->found, &outcome);
    (void)gml_budget_spend(descent->budget, part.work + count + 1); /* of the setup */
    if (status != GML_OK) {
        return status;
    }
    if (outcome == GML_EXACT_FOUND) {
        descent->peak = gml_instance_peak(descent->instance, descent->found);
        memcpy(descent->offsets, descent->found, count * sizeof *descent->found);
    } else if (outcome == GML_EXACT_IMPOSSIBLE) {
        descent->proven = target + descent->unit;
    } else {
        descent->tried = target;
    }
    return GML_OK;
}

static bool is_decided(const descent_state *descent) {
    return descent->peak <= descent->proven || descent->peak <= descent->capacity_bytes ||
           gml_budget_is_over(descent->budget);
}

/* Bisects between the highest target known to be too low, or not found, and the best, in rounds
 * with twice the effort each; a round ends when no target is left between. */
static gml_status halve(descent_state *descent) {
    gml_status status = GML_OK;
    uint64_t parts = FIRST_ROUND_PARTS;
    while (status == GML_OK && !is_decided(descent)) {
        uint64_t next = descent->tried + descent->unit;
        uint64_t low = next > descent->proven ? next : descent->proven;
        if (low < descent->peak) {
            uint64_t half = (descent->peak - low) / descent->unit / 2 * descent->unit;
            status = attempt(descent, low + half, parts);
        } else {
            descent->tried = 0;
            parts = parts > 2 ? parts / 2 : parts;
        }
    }
    return status;
}

/* The bound first, which many instances reach at once. Where a capacity is enough it comes next,
 * and most of the work is kept for it. */
static gml_status descend(descent_state *descent) {
    bool is_capped = descent->capacity_bytes > descent->proven;
    gml_status status = GML_OK;
    if (!is_decided(descent)) {
        status = attempt(descent, descent->proven, is_capped ? CAPPED_BOUND_PARTS : BOUND_PARTS);
    }
    if (status == GML_OK && is_capped && !is_decided(descent)) {
        status = attempt(descent, descent->capacity_bytes, 2);
        descent->tried = 0;
    }
    return status == GML_OK ? halve(descent) : status;
}

gml_status gml_exact_improve(const gml_instance *instance, uint64_t capacity_bytes,
                             gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes,
                             bool *is_proven) {
    descent_state descent = {
        .instance = instance,
        .budget = budget,
        .offsets = offsets,
        .capacity_bytes = capacity_bytes,
        .found = calloc(instance->count + 1, sizeof *descent.found),
        .unit = gml_exact_unit(instance),
        .proven = gml_instance_most_live(instance),
        .peak = *peak_bytes,
    };
    if (!descent.found) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = descend(&descent);
    free(descent.found);
    *peak_bytes = descent.peak;
    *is_proven = descent.peak <= descent.proven;
    return status;
}
