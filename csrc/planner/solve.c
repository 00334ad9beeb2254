/* A problem from end to end: streams into lanes, a placement for each, and the check. */
#include "base/clock.h"
#include "base/rounding.h"
#include "planner/instance.h"
#include "planner/methods.h"
#include "planner/streams.h"

#include <stdlib.h>
#include <string.h>

enum {
    SMALL_COUNT = GML_EXACT_MOST_ITEMS,
    SMALL_BUDGET_MS = 1000,
    LARGE_BUDGET_MS = 350, /* at least, for more than SMALL_COUNT */
    LIFETIMES_PER_MS = 220,
    MOST_MERGED_GROUPS = 64,
    ALL_METHODS = (1 << GML_METHOD_COUNT) - 1
};

/* One call of gml_planner_solve(). */
typedef struct solve_state {
    const gml_problem *problem;
    uint64_t budget_ms, capacity_bytes;
    uint32_t methods;  /* that may place, a bit each */
    uint32_t *members; /* by stream */
    size_t member_count;
    gml_stream_group *groups;
    size_t group_count;
    uint64_t *ends; /* room for one each */
    uint64_t *offsets, *other_offsets;
    uint64_t lower_bound;
} solve_state;

/* What was placed, in one lane or several. */
typedef struct placed_lanes {
    gml_placing placing; /* the method is that of the largest lane */
    uint64_t largest_peak;
    uint32_t methods; /* that had a part in it, a bit each */
} placed_lanes;

/* ---- lanes ----------------------------------------------------------------------------------- */

/* What is taken, seen from `base`; NULL without memory. */
static gml_span *
spans_from(const gml_problem *problem, uint64_t base, size_t *count)
{
    gml_span *spans = calloc(problem->taken_count + 1, sizeof *spans);
    *count = 0;
    for (size_t i = 0; spans && i < problem->taken_count; i++) {
        gml_span span = problem->taken[i];
        if (span.offset >= base) { /* what begins below ends there: base is the end of a lifetime */
            spans[(*count)++] = (gml_span){span.offset - base, span.size_bytes};
        }
    }
    return spans;
}

static gml_status
place_instance(const solve_state *solving, const gml_instance *instance, uint64_t capacity_bytes,
               uint64_t base, gml_budget *budget, uint64_t *offsets, gml_placing *out)
{
    uint64_t *found = calloc(instance->count + 1, sizeof *found);
    if (!found) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status =
        gml_portfolio_place(instance, solving->methods, capacity_bytes, budget, found, out);
    for (size_t i = 0; status == GML_OK && i < instance->count; i++) {
        offsets[instance->lifetime[i]] = base + found[i];
    }
    free(found);
    return status;
}

/* What lives through a whole period lies below all else, which loses nothing: it divides whatever
 * is live into what is below it and what is above. Moves it to the front; how many, and their size.
 */
static size_t
put_constant_first(const gml_problem *problem, uint32_t *members, size_t count, uint64_t *bytes)
{
    size_t constant = 0;
    *bytes = 0;
    for (size_t i = 0; i < count && problem->period; i++) {
        uint32_t index = members[i];
        const gml_lifetime *lifetime = &problem->lifetimes[index];
        if (lifetime->end - lifetime->start == problem->period) {
            *bytes += gml_round_up(lifetime->size_bytes, gml_problem_alignment(problem));
            members[i] = members[constant];
            members[constant++] = index;
        }
    }
    return constant;
}

static void
place_constant(const gml_problem *problem, const uint32_t *members, size_t count, uint64_t base,
               uint64_t *offsets)
{
    for (size_t i = 0; i < count; i++) {
        offsets[members[i]] = base;
        base +=
            gml_round_up(problem->lifetimes[members[i]].size_bytes, gml_problem_alignment(problem));
    }
}

/* What is left of a capacity; 0: there is none. The last lane alone may stop short of its best. */
static uint64_t
capacity_above(uint64_t capacity_bytes, uint64_t base)
{
    return capacity_bytes > base ? capacity_bytes - base : 0;
}

static gml_status
place_changing(const solve_state *solving, const uint32_t *members, size_t count,
               const uint64_t *ends, uint64_t base, gml_budget *budget, uint64_t *offsets,
               gml_placing *out)
{
    gml_problem problem = *solving->problem;
    gml_span *taken = spans_from(solving->problem, base, &problem.taken_count);
    if (!taken) {
        return GML_NO_HOST_MEMORY;
    }
    problem.taken = taken;
    bool is_last = members + count == solving->members + solving->member_count;
    uint64_t capacity_bytes = is_last ? capacity_above(solving->capacity_bytes, base) : 0;
    gml_instance instance;
    gml_status status = gml_instance_open(&instance, &problem, members, count, ends);
    if (status == GML_OK) {
        status = place_instance(solving, &instance, capacity_bytes, base, budget, offsets, out);
        gml_instance_close(&instance);
    }
    free(taken);
    return status;
}

/* Places members [first, first + count) from `base` on. */
static gml_status
place_lane(const solve_state *solving, size_t first, size_t count, const uint64_t *ends,
           uint64_t base, gml_budget *budget, uint64_t *offsets, gml_placing *out)
{
    uint32_t *members = solving->members + first;
    uint64_t bytes = 0;
    size_t constant = 0;
    if (!solving->problem->taken_count) {
        constant = put_constant_first(solving->problem, members, count, &bytes);
        place_constant(solving->problem, members, constant, base, offsets);
    }
    *out = (gml_placing){.method = GML_METHOD_FIRST_FIT_SIZE, .is_proven = true};
    gml_status status = GML_OK;
    if (constant < count) {
        status = place_changing(solving, members + constant, count - constant, ends, base + bytes,
                                budget, offsets, out);
    }
    out->peak_bytes += bytes;
    return status;
}

static void
placed_add(placed_lanes *placed, const gml_placing *lane, uint64_t base)
{
    if (lane->peak_bytes > placed->largest_peak || !placed->methods) {
        placed->largest_peak = lane->peak_bytes;
        placed->placing.method = lane->method;
    }
    placed->placing.peak_bytes = base + lane->peak_bytes;
    placed->placing.is_proven &= lane->is_proven;
    placed->methods |= UINT32_C(1) << lane->method;
}

/* A lane for every stream, one above the other. */
static gml_status
place_stacked(const solve_state *solving, gml_budget *budget, uint64_t *offsets, placed_lanes *out)
{
    *out = (placed_lanes){.placing.is_proven = true};
    size_t left = solving->member_count;
    gml_status status = GML_OK;
    for (size_t g = 0; g < solving->group_count && status == GML_OK; g++) {
        const gml_stream_group *group = &solving->groups[g];
        gml_budget part;
        gml_placing lane;
        uint64_t base = out->placing.peak_bytes;
        gml_budget_open(&part, budget, group->count, left);
        status = place_lane(solving, group->first, group->count, NULL, base, &part, offsets, &lane);
        gml_budget_close(&part, budget);
        left -= group->count;
        if (status == GML_OK) {
            placed_add(out, &lane, base);
        }
    }
    return status;
}

/* One lane for all streams, where each lifetime lasts until every other stream is ordered behind
 * its free. */
static gml_status
place_merged(const solve_state *solving, gml_budget *budget, uint64_t *offsets, placed_lanes *out)
{
    *out = (placed_lanes){.placing.is_proven = true};
    gml_placing lane;
    gml_status status = gml_lengthen_ends(solving->problem, solving->members, solving->groups,
                                          solving->group_count, solving->ends);
    if (status == GML_OK) {
        status =
            place_lane(solving, 0, solving->member_count, solving->ends, 0, budget, offsets, &lane);
    }
    if (status == GML_OK) {
        placed_add(out, &lane, 0);
        out->placing.is_proven = false; /* for the longer lives only */
    }
    return status;
}

static bool
may_merge(const solve_state *solving)
{
    return solving->group_count > 1 && solving->group_count <= MOST_MERGED_GROUPS &&
           solving->problem->ordering_count > 0;
}

/* The better of the two, in solving->offsets. */
static gml_status
place(solve_state *solving, placed_lanes *out)
{
    gml_budget budget, first_part;
    gml_budget_begin(&budget, solving->budget_ms);
    gml_budget_slow_down(&budget, solving->member_count);
    gml_budget_open(&first_part, &budget, 1, may_merge(solving) ? 2 : 1);
    gml_status status = place_stacked(solving, &first_part, solving->offsets, out);
    gml_budget_close(&first_part, &budget);
    if (status == GML_OK && may_merge(solving)) {
        placed_lanes merged;
        status = place_merged(solving, &budget, solving->other_offsets, &merged);
        if (status == GML_OK && merged.placing.peak_bytes < out->placing.peak_bytes) {
            uint64_t *offsets = solving->offsets;
            solving->offsets = solving->other_offsets;
            solving->other_offsets = offsets;
            *out = merged;
        }
    }
    bool is_bound_exact = solving->group_count <= 1 ||
                          (!solving->problem->ordering_count && !solving->problem->taken_count);
    out->placing.is_proven = (out->placing.is_proven && is_bound_exact) ||
                             out->placing.peak_bytes == solving->lower_bound;
    return status;
}

/* ---- the bound ------------------------------------------------------------------------------- */

static gml_status
add_most_live(const solve_state *solving, const gml_stream_group *group, uint64_t *bytes)
{
    gml_instance instance;
    gml_status status = gml_instance_open(&instance, solving->problem,
                                          solving->members + group->first, group->count, NULL);
    if (status == GML_OK) {
        *bytes += gml_instance_most_live(&instance);
        gml_instance_close(&instance);
    }
    return status;
}

/* Streams that nothing orders share no address, so that their bounds add up. */
static gml_status
find_bound(solve_state *solving)
{
    gml_instance whole;
    gml_status status =
        gml_instance_open(&whole, solving->problem, solving->members, solving->member_count, NULL);
    if (status != GML_OK) {
        return status;
    }
    solving->lower_bound = whole.lower_bound;
    if (solving->group_count > 1 && !solving->problem->ordering_count) {
        uint64_t bytes = 0;
        for (size_t g = 0; g < solving->group_count && status == GML_OK; g++) {
            status = add_most_live(solving, &solving->groups[g], &bytes);
        }
        solving->lower_bound = gml_instance_least_end(&whole, bytes);
    }
    gml_instance_close(&whole);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint64_t
default_budget_ms(size_t count)
{
    if (count <= SMALL_COUNT) {
        return SMALL_BUDGET_MS;
    }
    uint64_t budget = count / LIFETIMES_PER_MS;
    return budget > LARGE_BUDGET_MS ? budget : LARGE_BUDGET_MS;
}

static gml_status
solving_open(solve_state *solving, const gml_problem *problem, const gml_planner_options *options)
{
    size_t count = problem->count + 1;
    *solving = (struct solve_state){
        .problem = problem,
        .members = calloc(count, sizeof *solving->members),
        .groups = calloc(count, sizeof *solving->groups),
        .ends = calloc(count, sizeof *solving->ends),
        .offsets = calloc(count, sizeof *solving->offsets),
        .other_offsets = calloc(count, sizeof *solving->other_offsets),
    };
    if (!solving->members || !solving->groups || !solving->ends || !solving->offsets ||
        !solving->other_offsets) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = gml_group_by_stream(problem, solving->members, &solving->member_count,
                                            solving->groups, &solving->group_count);
    solving->methods = ALL_METHODS;
    solving->capacity_bytes = options ? options->capacity_bytes : 0;
    solving->budget_ms = options && options->budget_ms ? options->budget_ms
                                                       : default_budget_ms(solving->member_count);
    return status == GML_OK ? find_bound(solving) : status;
}

static void
solving_close(solve_state *solving)
{
    free(solving->members);
    free(solving->groups);
    free(solving->ends);
    free(solving->offsets);
    free(solving->other_offsets);
}

/* Places until the result passes the check, each time without the methods that failed it. */
static gml_status
place_checked(solve_state *solving, placed_lanes *out, char *reason, size_t reason_bytes)
{
    for (int tries = 0; tries < GML_METHOD_COUNT; tries++) {
        for (size_t i = 0; i < solving->problem->count; i++) {
            solving->offsets[i] = GML_NO_OFFSET;
            solving->other_offsets[i] = GML_NO_OFFSET;
        }
        gml_status status = place(solving, out);
        if (status != GML_OK) {
            return status;
        }
        status = out->placing.peak_bytes < solving->lower_bound
                     ? GML_CORRUPT
                     : gml_planner_check(solving->problem, solving->offsets,
                                         out->placing.peak_bytes, reason, reason_bytes);
        if (status != GML_CORRUPT) {
            return status;
        }
        solving->methods &= ~out->methods;
    }
    return GML_CORRUPT;
}

gml_status
gml_planner_solve(const gml_problem *problem, const gml_planner_options *options, uint64_t *offsets,
                  gml_solution *out, char *reason, size_t reason_bytes)
{
    uint64_t begin_ns = gml_clock_ns();
    gml_status status = gml_problem_check(problem, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    solve_state solving;
    placed_lanes placed;
    status = solving_open(&solving, problem, options);
    if (status == GML_OK) {
        status = place_checked(&solving, &placed, reason, reason_bytes);
    }
    if (status == GML_OK) {
        if (problem->count) {
            memcpy(offsets, solving.offsets, problem->count * sizeof *offsets);
        }
        *out = (gml_solution){
            .peak_bytes = placed.placing.peak_bytes,
            .lower_bound_bytes = solving.lower_bound,
            .method = gml_method_name(placed.placing.method),
            .time_ns = gml_clock_ns() - begin_ns,
            .is_proven = placed.placing.is_proven,
        };
    }
    solving_close(&solving);
    return status;
}
