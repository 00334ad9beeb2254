/* From watched steps to a plan. */
#include "planner/build.h"

#include "base/clock.h"

#include <stdlib.h>

/* ---- placing --------------------------------------------------------------------------------- */

/* A lane's share of the time to search, and the capacity if there is only one lane: how several
 * lanes should share it is unknown. */
static gml_planner_options lane_options(const gml_builder *builder, size_t lane_placed) {
    gml_planner_options options = {.budget_ms = 0};
    if (builder->options) {
        options = *builder->options;
    }
    if (builder->plan->lane_count > 1) {
        options.capacity_bytes = 0;
        double share = (double)lane_placed / (double)builder->plan->placed_count;
        uint64_t budget = (uint64_t)((double)options.budget_ms * share);
        options.budget_ms = options.budget_ms > 0 && budget == 0 ? 1 : budget;
    }
    return options;
}

static gml_status place_lane(const gml_builder *builder, gml_lane_problems *problems,
                             size_t index) {
    gml_plan *plan = builder->plan;
    gml_plan_lane *lane = &plan->lanes[index];
    gml_problem problem = gml_lane_problem(problems, plan, index);
    gml_planner_options options = lane_options(builder, problem.count);
    uint64_t *offsets = problems->offsets + problems->first[index];
    gml_solution solution;
    gml_status status = gml_planner_solve(&problem, &options, offsets, &solution, builder->reason,
                                          builder->reason_bytes);
    if (status == GML_OK) {
        lane->peak_bytes = solution.peak_bytes;
        lane->lower_bound_bytes = solution.lower_bound_bytes;
        lane->method = gml_method_named(solution.method);
    }
    return status;
}

static gml_status place_lanes(const gml_builder *builder) {
    gml_plan *plan = builder->plan;
    gml_lane_problems problems = {.lifetimes = NULL};
    gml_status status = gml_lane_problems_open(&problems, plan);
    for (size_t lane = 0; lane < plan->lane_count && status == GML_OK; lane++) {
        if (problems.first[lane] < problems.first[lane + 1]) {
            status = place_lane(builder, &problems, lane);
        }
    }
    for (size_t i = 0; i < plan->placed_count && status == GML_OK; i++) {
        plan->entries[problems.entries[i]].offset = problems.offsets[i];
    }
    gml_lane_problems_close(&problems);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static gml_status fingerprint_and_check(gml_builder *builder) {
    builder->plan->fingerprint = gml_plan_fingerprint(builder->plan);
    return gml_plan_check(builder->plan, builder->reason, builder->reason_bytes);
}

static gml_status choose_steps(gml_builder *builder) {
    return gml_build_choose_steps(builder, &builder->plan->steps);
}

static gml_status build(gml_builder *builder) {
    static gml_status (*const stages[])(gml_builder *) = {
        gml_build_find_lanes,
        gml_build_find_ends,
        choose_steps,
        gml_build_lay_out,
    };
    size_t count = builder->profile->last.request_count;
    builder->plan = gml_plan_new();
    builder->lanes = gml_plan_array(count, sizeof(uint32_t));
    builder->ends = gml_plan_array(count, sizeof(uint64_t));
    gml_status status =
        builder->plan && builder->lanes && builder->ends ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t i = 0; i < sizeof stages / sizeof stages[0] && status == GML_OK; i++) {
        status = stages[i](builder);
    }
    status = status == GML_OK ? place_lanes(builder) : status;
    return status == GML_OK ? fingerprint_and_check(builder) : status;
}

gml_status gml_plan_build(const gml_profile *profile, const gml_planner_options *options,
                          gml_plan **out, char *reason, size_t reason_bytes) {
    uint64_t begin = gml_clock_ns();
    gml_builder builder = {
        .profile = profile, .options = options, .reason = reason, .reason_bytes = reason_bytes};
    gml_status status = gml_profile_check(profile, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    status = build(&builder);
    free(builder.lanes);
    free(builder.ends);
    if (status != GML_OK) {
        gml_plan_release(builder.plan);
        return status == GML_NO_HOST_MEMORY
                   ? gml_refuse(status, reason, reason_bytes, "no host memory")
                   : status;
    }
    builder.plan->time_ns = gml_clock_ns() - begin;
    *out = builder.plan;
    return GML_OK;
}
