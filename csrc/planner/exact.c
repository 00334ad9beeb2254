/* Exact search: strategies in turn, one independent range of time after the other, and the lowest
 * peak by halving.
 */
#include "planner/exact_search.h"

#include <stdlib.h>

/* In turn, each with a limit that doubles with every round: how long one takes differs between
 * instances by factors of thousands. */
static const gml_exact_strategy strategies[] = {
    {GML_EXACT_BY_LOW_SLACK, {GML_EXACT_LIFE, GML_EXACT_AREA, GML_EXACT_CONTENTION}},
    {GML_EXACT_BY_OPTIONS, {GML_EXACT_CONTENTION, GML_EXACT_LIFE, GML_EXACT_AREA}},
    {GML_EXACT_BY_REMAINING, {GML_EXACT_LIFE, GML_EXACT_AREA, GML_EXACT_CONTENTION}},
    {GML_EXACT_BY_FAILURES, {GML_EXACT_CONTENTION, GML_EXACT_LIFE, GML_EXACT_AREA}},
    {GML_EXACT_BY_LOW_OPTIONS, {GML_EXACT_CONTENTION, GML_EXACT_AREA, GML_EXACT_LIFE}},
    {GML_EXACT_BY_SLACK_FAILURES, {GML_EXACT_AREA, GML_EXACT_CONTENTION, GML_EXACT_LIFE}},
    {GML_EXACT_BY_OPTIONS, {GML_EXACT_SIZE, GML_EXACT_CONTENTION, GML_EXACT_AREA}},
    {GML_EXACT_BY_LOW_SLACK, {GML_EXACT_CONTENTION, GML_EXACT_AREA, GML_EXACT_LIFE}},
    {GML_EXACT_BY_FAILURES, {GML_EXACT_LIFE, GML_EXACT_AREA, GML_EXACT_CONTENTION}},
    {GML_EXACT_BY_SLACK_FAILURES, {GML_EXACT_LIFE, GML_EXACT_AREA, GML_EXACT_CONTENTION}},
    {GML_EXACT_BY_REMAINING, {GML_EXACT_CONTENTION, GML_EXACT_SIZE, GML_EXACT_LIFE}},
    {GML_EXACT_BY_LOW_OPTIONS, {GML_EXACT_AREA, GML_EXACT_CONTENTION, GML_EXACT_LIFE}},
};

enum { FIRST_LIMIT_PER_ITEM = 2, FIRST_ROUND_PART = 8 };

/* ---- decision -------------------------------------------------------------------------------- */

static gml_status
search_component(gml_exact_space *space, uint32_t *items, uint32_t count, gml_budget *budget,
                 gml_exact_outcome *out)
{
    gml_status status = GML_OK;
    uint64_t limit = FIRST_LIMIT_PER_ITEM * (uint64_t)count;
    *out = GML_EXACT_UNDECIDED;
    while (status == GML_OK && *out == GML_EXACT_UNDECIDED && !budget->is_over) {
        for (size_t i = 0; i < sizeof strategies / sizeof *strategies && status == GML_OK &&
                           *out == GML_EXACT_UNDECIDED && !budget->is_over;
             i++) {
            status = gml_exact_run(space, &strategies[i], items, count, limit, budget, out);
        }
        limit *= 2;
    }
    return status;
}

/* The items of one after the other of the ranges of time that no item crosses the ends of. */
static uint32_t
next_component(const gml_exact_items *items, uint32_t first, uint32_t *members)
{
    uint32_t end = 0, i = first;
    for (; i < items->count && (i == first || items->begin[i] < end); i++) {
        end = items->end[i] > end ? items->end[i] : end;
        members[i - first] = i;
    }
    return i - first;
}

static gml_status
search_components(gml_exact_space *space, gml_budget *budget, gml_exact_outcome *out)
{
    uint32_t *members = calloc(space->items.count + 1, sizeof *members);
    if (!members) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = GML_OK;
    *out = GML_EXACT_FOUND;
    for (uint32_t first = 0;
         first < space->items.count && status == GML_OK && *out == GML_EXACT_FOUND;) {
        uint32_t count = next_component(&space->items, first, members);
        status = search_component(space, members, count, budget, out);
        first += count;
    }
    free(members);
    return status;
}

static uint64_t
largest_live_sum(const gml_instance *instance)
{
    uint64_t largest = 0;
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        largest = instance->live[slot] > largest ? instance->live[slot] : largest;
    }
    return largest;
}

static void
give_offsets(const gml_exact_items *items, uint64_t *offsets)
{
    for (uint32_t i = 0; i < items->count; i++) {
        offsets[items->original[i]] = items->offset[i] * items->unit_bytes;
    }
}

gml_status
gml_exact_search(const gml_instance *instance, uint64_t capacity_bytes, gml_budget *budget,
                 uint64_t *offsets, gml_exact_outcome *out)
{
    *out = GML_EXACT_UNDECIDED;
    if (largest_live_sum(instance) > capacity_bytes) {
        *out = GML_EXACT_IMPOSSIBLE;
        return GML_OK;
    }
    gml_exact_space space;
    gml_status status = gml_exact_space_open(&space, instance, capacity_bytes);
    if (status == GML_OK) {
        status = search_components(&space, budget, out);
    }
    if (status == GML_OK && *out == GML_EXACT_FOUND) {
        give_offsets(&space.items, offsets);
    }
    gml_exact_space_close(&space);
    return status == GML_UNSUPPORTED ? GML_OK : status;
}

/* ---- the lowest peak ------------------------------------------------------------------------- */

/* Peaks are multiples of `unit`. Nothing is below `proven`; a search for `tried` or less has come
 * to no end; there is a placement of `peak`. */
typedef struct descent_state {
    const gml_instance *instance;
    gml_budget *budget;
    uint64_t *offsets, *found;
    uint64_t unit, proven, tried, peak;
    bool has_tried;
} descent_state;

static uint64_t
peak_of(const gml_instance *instance, const uint64_t *offsets)
{
    uint64_t peak = 0;
    for (size_t i = 0; i < instance->count; i++) {
        uint64_t top = offsets[i] + instance->sizes[i];
        peak = top > peak ? top : peak;
    }
    return peak;
}

static void
take_found(descent_state *descent)
{
    descent->peak = peak_of(descent->instance, descent->found);
    for (size_t i = 0; i < descent->instance->count; i++) {
        descent->offsets[i] = descent->found[i];
    }
}

/* Looks for a peak of at most `target` with a share of what is left of the budget. */
static gml_status
attempt(descent_state *descent, uint64_t target, uint64_t share, uint64_t of)
{
    gml_budget part;
    gml_exact_outcome outcome;
    gml_budget_open(&part, descent->budget, share, of);
    gml_status status =
        gml_exact_search(descent->instance, target, &part, descent->found, &outcome);
    gml_budget_close(&part, descent->budget);
    (void)gml_budget_spend(descent->budget, descent->instance->count + 1); /* for what is set up */
    if (status != GML_OK) {
        return status;
    }
    if (outcome == GML_EXACT_FOUND) {
        take_found(descent);
    } else if (outcome == GML_EXACT_IMPOSSIBLE) {
        descent->proven = target + descent->unit;
    } else {
        descent->tried = target;
        descent->has_tried = true;
    }
    return GML_OK;
}

static bool
is_settled(const descent_state *descent, uint64_t capacity_bytes)
{
    return descent->peak <= descent->proven || descent->peak <= capacity_bytes ||
           gml_budget_look(descent->budget);
}

/* Half way between what is known to be too low, or was not found, and the best. */
static uint64_t
middle(const descent_state *descent)
{
    uint64_t low = descent->proven;
    if (descent->has_tried && descent->tried >= low) {
        low = descent->tried + descent->unit;
    }
    return low < descent->peak ? low + (descent->peak - low) / descent->unit / 2 * descent->unit
                               : descent->peak;
}

/* Rounds of halving, each with twice the effort; one ends where no target is left between. */
static gml_status
halve(descent_state *descent, uint64_t capacity_bytes)
{
    gml_status status = GML_OK;
    uint64_t of = FIRST_ROUND_PART;
    while (status == GML_OK && !is_settled(descent, capacity_bytes)) {
        uint64_t target = middle(descent);
        if (target < descent->peak) {
            status = attempt(descent, target, 1, of);
        } else {
            descent->has_tried = false;
            of = of > 2 ? of / 2 : of;
        }
    }
    return status;
}

static gml_status
descend(descent_state *descent, uint64_t capacity_bytes)
{
    gml_status status = GML_OK;
    if (!is_settled(descent, capacity_bytes)) {
        status = attempt(descent, descent->proven, 1, 4);
    }
    if (status == GML_OK && capacity_bytes > descent->proven &&
        !is_settled(descent, capacity_bytes)) {
        status = attempt(descent, capacity_bytes, 1, 2);
        descent->has_tried = false;
    }
    return status == GML_OK ? halve(descent, capacity_bytes) : status;
}

gml_status
gml_exact_improve(const gml_instance *instance, uint64_t capacity_bytes, gml_budget *budget,
                  uint64_t *offsets, uint64_t *peak_bytes, bool *is_proven)
{
    uint64_t bound = largest_live_sum(instance);
    descent_state descent = {
        .instance = instance,
        .budget = budget,
        .offsets = offsets,
        .found = calloc(instance->count + 1, sizeof *descent.found),
        .unit = gml_exact_unit(instance),
        .proven = bound,
        .peak = *peak_bytes,
    };
    if (!descent.found) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = descend(&descent, capacity_bytes);
    free(descent.found);
    *peak_bytes = descent.peak;
    *is_proven = descent.peak <= descent.proven;
    return status;
}
