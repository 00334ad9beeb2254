/* A problem from end to end: streams into lanes, a placement for each, and the check. */
#include "base/clock.h"
#include "base/reason.h"
#include "base/rounding.h"
#include "planner/instance.h"
#include "planner/methods.h"
#include "planner/stream_order.h"
#include "planner/together.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_COUNT = GML_EXACT_MOST_ITEMS,
    SMALL_BUDGET_MS = 1000,
    LARGE_BUDGET_MS = 350, /* at least, for more than SMALL_COUNT */
    LIFETIMES_PER_MS = 220,
    MOST_MERGED_GROUPS = 64
};

/* One call of gml_planner_solve(). */
typedef struct solve_state {
    const gml_problem *problem;
    uint64_t capacity_bytes;
    uint32_t *members; /* by stream */
    gml_stream_group *groups;
    size_t group_count;
    uint64_t *all, *any; /* lengthened lives, by member; set where orderings are */
    uint64_t lower_bound;
} solve_state;

/* The placed items, in one lane or several. */
typedef struct placed_lanes {
    uint64_t *offsets;
    gml_placing placing; /* the method is that of the largest lane */
    uint64_t largest_peak;
    uint64_t most_live_bytes; /* summed over lanes */
} placed_lanes;

/* ---- lanes ----------------------------------------------------------------------------------- */

static gml_status place_instance(const gml_instance *instance, uint64_t capacity_bytes,
                                 uint64_t base, gml_budget *budget, uint64_t *offsets,
                                 gml_placing *out) {
    uint64_t *found = calloc(instance->count + 1, sizeof *found);
    if (!found) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = gml_portfolio_place(instance, capacity_bytes, budget, found, out);
    for (size_t i = 0; status == GML_OK && i < instance->count; i++) {
        offsets[instance->lifetime[i]] = base + found[i];
    }
    free(found);
    return status;
}

/* Items that live through a whole period lie below all others, at no loss: such an item separates
 * the live items below it from those above. It also lies at the same place in every plan that has
 * it. Moves them to the front of `members`; returns their number, and where the rest begins. */
static size_t place_constant(const gml_problem *problem, uint32_t *members, size_t count,
                             uint64_t *base, uint64_t *offsets) {
    size_t constant = 0;
    for (size_t i = 0; i < count && problem->period; i++) {
        uint32_t index = members[i];
        const gml_lifetime *lifetime = &problem->lifetimes[index];
        if (lifetime->end - lifetime->start == problem->period) {
            offsets[index] = *base;
            *base += gml_round_up(lifetime->size_bytes, gml_problem_alignment(problem));
            members[i] = members[constant];
            members[constant++] = index;
        }
    }
    return constant;
}

/* Places members [first, first + count) above what `out` has so far. Only the last lane may stop
 * short of its best, where a capacity is left for it. */
static gml_status place_lane(const solve_state *solving, size_t first, size_t count,
                             const uint64_t *ends, gml_budget *budget, placed_lanes *out) {
    uint32_t *members = solving->members + first;
    uint64_t begin = out->placing.peak_bytes, base = begin;
    bool is_last = first + count == solving->problem->count;
    const gml_problem *problem = solving->problem;
    size_t constant = place_constant(problem, members, count, &base, out->offsets);
    gml_placing lane = {.method = GML_METHOD_FIRST_FIT_LIFE, .is_proven = true};
    gml_status status = GML_OK;
    if (constant < count) {
        gml_instance instance;
        status = gml_instance_open(&instance, problem, members + constant, count - constant, ends);
        if (status == GML_OK) {
            bool may_stop = is_last && solving->capacity_bytes > base;
            status = place_instance(&instance, may_stop ? solving->capacity_bytes - base : 0, base,
                                    budget, out->offsets, &lane);
            out->most_live_bytes += gml_instance_most_live(&instance);
            gml_instance_close(&instance);
        }
    }
    out->most_live_bytes += base - begin;
    uint64_t end = base + lane.peak_bytes;
    if (end - begin >= out->largest_peak) {
        out->largest_peak = end - begin;
        out->placing.method = lane.method;
    }
    out->placing.peak_bytes = end;
    out->placing.is_proven &= lane.is_proven;
    return status;
}

/* A lane for every stream, one above the other. */
static gml_status place_stacked(const solve_state *solving, gml_budget *budget, placed_lanes *out) {
    size_t left = solving->problem->count;
    gml_status status = GML_OK;
    for (size_t g = 0; g < solving->group_count && status == GML_OK; g++) {
        const gml_stream_group *group = &solving->groups[g];
        gml_budget part = gml_budget_part(budget, group->count, left);
        status = place_lane(solving, group->first, group->count, NULL, &part, out);
        (void)gml_budget_spend(budget, part.work);
        left -= group->count;
    }
    return status;
}

/* One lane for all streams, where each lifetime lasts until every other stream is ordered behind
 * its free. */
static gml_status place_merged(const solve_state *solving, gml_budget *budget, placed_lanes *out) {
    gml_status status = place_lane(solving, 0, solving->problem->count, solving->all, budget, out);
    out->placing.is_proven = false; /* for the longer lives only */
    return status;
}

/* ---- the bound ------------------------------------------------------------------------------- */

static bool has_orderings(const solve_state *solving) {
    return solving->group_count > 1 && solving->problem->ordering_count > 0;
}

/* Unordered streams share no address, so that their bounds add up. pre: `placed` by
 * place_stacked(). */
static gml_status find_bound(solve_state *solving, const placed_lanes *placed) {
    if (!has_orderings(solving)) {
        solving->lower_bound = placed->most_live_bytes;
        return GML_OK;
    }
    gml_status status = gml_lengthen_ends(solving->problem, solving->members, solving->groups,
                                          solving->group_count, solving->all, solving->any);
    return status == GML_OK
               ? gml_unordered_bound(solving->problem, solving->members, solving->groups,
                                     solving->group_count, solving->any, &solving->lower_bound)
               : status;
}

/* ---- lanes of their own, or one for all ------------------------------------------------------ */

/* The better of the two, in `out`; `other` is room. */
static gml_status merge(const solve_state *solving, gml_budget *budget, placed_lanes *out,
                        placed_lanes *other) {
    gml_budget part = gml_budget_part(budget, 1, 7);
    gml_status status = place_merged(solving, &part, other);
    (void)gml_budget_spend(budget, part.work);
    if (status == GML_OK && other->placing.peak_bytes < out->placing.peak_bytes) {
        placed_lanes worse = *out;
        *out = *other;
        *other = worse;
    }
    return status;
}

/* From the better of the two on. */
static gml_status place_together(const solve_state *solving, gml_budget *budget,
                                 placed_lanes *out) {
    uint64_t enough_bytes = solving->capacity_bytes > solving->lower_bound ? solving->capacity_bytes
                                                                           : solving->lower_bound;
    bool is_better = false;
    gml_status status =
        out->placing.peak_bytes > enough_bytes
            ? gml_place_together(solving->problem, solving->members, solving->groups,
                                 solving->group_count, solving->all, enough_bytes, budget,
                                 out->offsets, &out->placing.peak_bytes, &is_better)
            : GML_OK;
    if (is_better) {
        out->placing.method = GML_METHOD_ORDERS;
    }
    return status;
}

static gml_status place(solve_state *solving, gml_budget *budget, placed_lanes *out,
                        placed_lanes *other) {
    bool is_shared = has_orderings(solving) && solving->group_count <= MOST_MERGED_GROUPS;
    gml_budget first_part = gml_budget_part(budget, 1, is_shared ? 8 : 1);
    gml_status status = place_stacked(solving, &first_part, out);
    (void)gml_budget_spend(budget, first_part.work);
    if (status == GML_OK) {
        status = find_bound(solving, out);
    }
    if (status == GML_OK && is_shared) {
        status = merge(solving, budget, out, other);
    }
    if (status == GML_OK && is_shared) {
        status = place_together(solving, budget, out);
    }
    out->placing.is_proven = (out->placing.is_proven && !has_orderings(solving)) ||
                             out->placing.peak_bytes == solving->lower_bound;
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint64_t default_budget_ms(size_t count) {
    if (count <= SMALL_COUNT) {
        return SMALL_BUDGET_MS;
    }
    uint64_t budget = count / LIFETIMES_PER_MS;
    return budget > LARGE_BUDGET_MS ? budget : LARGE_BUDGET_MS;
}

static gml_status solving_open(solve_state *solving, const gml_problem *problem) {
    size_t count = problem->count + 1;
    *solving = (struct solve_state){
        .problem = problem,
        .members = calloc(count, sizeof *solving->members),
        .groups = calloc(count, sizeof *solving->groups),
        .all = calloc(count, 2 * sizeof *solving->all),
    };
    if (!solving->members || !solving->groups || !solving->all) {
        return GML_NO_HOST_MEMORY;
    }
    solving->any = solving->all + count;
    return gml_group_by_stream(problem, solving->members, solving->groups, &solving->group_count);
}

static void solving_close(solve_state *solving) {
    free(solving->members);
    free(solving->groups);
    free(solving->all);
}

static bool open_offsets(size_t count, placed_lanes *out) {
    *out = (placed_lanes){.placing = {.method = GML_METHOD_FIRST_FIT_LIFE, .is_proven = true}};
    out->offsets = malloc((count + 1) * sizeof *out->offsets);
    for (size_t i = 0; out->offsets && i < count; i++) {
        out->offsets[i] = GML_NO_OFFSET;
    }
    return out->offsets;
}

/* An invalid placement is a bug in a method: no plan serves then. */
static gml_status place_checked(solve_state *solving, uint64_t budget_ms, placed_lanes *out,
                                placed_lanes *other, char *reason, size_t reason_bytes) {
    size_t count = solving->problem->count;
    gml_budget budget =
        gml_budget_of(budget_ms ? budget_ms : default_budget_ms(solving->problem->count),
                      solving->problem->count);
    bool has_room = open_offsets(count, out);
    has_room &= open_offsets(count, other);
    gml_status status = has_room ? place(solving, &budget, out, other) : GML_NO_HOST_MEMORY;
    if (status == GML_OK && out->placing.peak_bytes < solving->lower_bound) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "a peak below the lower bound");
    }
    return status == GML_OK ? gml_planner_check(solving->problem, out->offsets,
                                                out->placing.peak_bytes, reason, reason_bytes)
                            : status;
}

gml_status gml_planner_solve(const gml_problem *problem, const gml_planner_options *options,
                             uint64_t *offsets, gml_solution *out, char *reason,
                             size_t reason_bytes) {
    uint64_t begin_ns = gml_clock_ns();
    gml_status status = gml_problem_check(problem, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    solve_state solving;
    placed_lanes placed = {0}, other = {0};
    status = solving_open(&solving, problem);
    if (status == GML_OK) {
        solving.capacity_bytes = options ? options->capacity_bytes : 0;
        status = place_checked(&solving, options ? options->budget_ms : 0, &placed, &other, reason,
                               reason_bytes);
    }
    if (status == GML_OK) {
        if (problem->count) {
            memcpy(offsets, placed.offsets, problem->count * sizeof *offsets);
        }
        *out = (gml_solution){
            .peak_bytes = placed.placing.peak_bytes,
            .lower_bound_bytes = solving.lower_bound,
            .method = gml_method_name(placed.placing.method),
            .time_ns = gml_clock_ns() - begin_ns,
            .is_proven = placed.placing.is_proven,
        };
    }
    free(placed.offsets);
    free(other.offsets);
    solving_close(&solving);
    return status;
}
