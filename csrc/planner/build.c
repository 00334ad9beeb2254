/* From watched steps to a plan. */
#include "base/clock.h"
#include "base/rounding.h"
#include "planner/instance.h"
#include "planner/plan.h"

#include <stdlib.h>

#define LIFE_UNKNOWN UINT64_MAX

typedef struct plan_builder {
    const gml_profile *profile;
    const gml_planner_options *options;
    gml_plan *plan;
    uint32_t *lanes; /* of each request of `last` */
    uint64_t *ends; /* of each request of `last`, in events since the step began; may lie in a later
                       repetition of it, or be LIFE_UNKNOWN */
    char *reason;
    size_t reason_bytes;
} plan_builder;

/* Size as planned. */
static uint64_t size_of(const gml_step_request *request) {
    return gml_round_up(request->size_bytes, GML_PLAN_UNIT);
}

/* ---- whether a profile can be true --------------------------------------------------------------
 *
 * Profiles come from programs, by way of Python, so they are checked before they are believed.
 * Everything that the rest indexes with or adds is in range afterwards.
 */

typedef struct watched_step {
    const gml_step *step;
    const char *name;
    char *reason;
    size_t reason_bytes;
} watched_step;

#define REFUSE(subject, ...)                                                                       \
    gml_refuse(GML_INVALID_ARGUMENT, (subject)->reason, (subject)->reason_bytes, __VA_ARGS__)

static bool ends_in_time(const gml_step *step, const gml_step_request *request) {
    if (request->death == GML_STILL_LIVE) {
        return true;
    }
    if (request->death_serial != step->serial) {
        return request->death_serial > step->serial && request->death <= GML_PLAN_MOST_EVENTS;
    }
    return request->death > request->birth && request->death <= step->event_count;
}

static gml_status check_requests(const watched_step *subject) {
    const gml_step *step = subject->step;
    uint64_t sum = 0;
    for (size_t i = 0; i < step->request_count; i++) {
        const gml_step_request *request = &step->requests[i];
        if (request->size_bytes == 0 || request->size_bytes > GML_PLAN_MOST_SIZE) {
            return REFUSE(subject, "request %zu of the %s step asks for %llu B", i, subject->name,
                          (unsigned long long)request->size_bytes);
        }
        if (request->birth >= step->event_count ||
            (i > 0 && request->birth <= step->requests[i - 1].birth)) {
            return REFUSE(subject, "request %zu of the %s step is event %llu: out of order", i,
                          subject->name, (unsigned long long)request->birth);
        }
        if (!ends_in_time(step, request)) {
            return REFUSE(subject, "request %zu of the %s step is freed before it is made, or late",
                          i, subject->name);
        }
        sum += size_of(request);
        if (sum > GML_PLAN_MOST_BYTES / GML_PLAN_MOST_STEPS) {
            return REFUSE(subject, "the requests of the %s step have too many bytes in all",
                          subject->name);
        }
    }
    return GML_OK;
}

static gml_status check_step(const watched_step *subject) {
    const gml_step *step = subject->step;
    if (step->event_count > GML_PLAN_MOST_EVENTS || step->request_count > GML_PLAN_MOST_ENTRIES) {
        return REFUSE(subject, "the %s step has too many events or requests", subject->name);
    }
    return check_requests(subject);
}

static gml_status check_profile(const gml_profile *profile, char *reason, size_t reason_bytes) {
    const watched_step last = {&profile->last, "last", reason, reason_bytes};
    const watched_step previous = {&profile->previous, "previous", reason, reason_bytes};
    if (profile->last.request_count == 0) {
        return REFUSE(&last, "the step to plan for has no requests");
    }
    gml_status status = check_step(&last);
    if (status == GML_OK && profile->previous.request_count > 0) {
        status = profile->previous.serial < profile->last.serial
                     ? check_step(&previous)
                     : REFUSE(&previous, "the previous step is not older than the last");
    }
    return status;
}

/* ---- when each request ends ---------------------------------------------------------------------
 *
 * A request freed within the watched step has a known end. A request still live at its end lives as
 * long as its twin in the previous step did, if that was freed: steps are matched from both ends up
 * to where they differ. Ends are given in the time of the step, continued periodically: an end at
 * period + t is an end at t, one repetition later.
 */

/* The end of a request made in `step`, or LIFE_UNKNOWN. A step in which it was freed may be
 * longer than the one planned for. */
static uint64_t end_in(const gml_step *step, const gml_step_request *request, uint64_t period) {
    if (request->death == GML_STILL_LIVE) {
        return LIFE_UNKNOWN;
    }
    uint64_t later = request->death_serial - step->serial;
    if (later > GML_PLAN_MOST_STEPS) {
        return LIFE_UNKNOWN;
    }
    return later * period + (request->death < period ? request->death : period);
}

/* A twin freed within its own step says nothing about a request that outlived its step, except a
 * twin freed at the very end: the last step ended before the program reached its free. */
static uint64_t end_of_twin(const gml_profile *profile, const gml_step_request *twin) {
    uint64_t period = profile->last.event_count;
    if (twin->death_serial == profile->previous.serial) {
        return twin->death == profile->previous.event_count ? period : LIFE_UNKNOWN;
    }
    return end_in(&profile->previous, twin, period);
}

static bool are_twins(const gml_step_request *one, const gml_step_request *other) {
    return one->size_bytes == other->size_bytes && one->stream == other->stream;
}

static void ask_twin(plan_builder *builder, size_t index, const gml_step_request *twin) {
    if (builder->profile->last.requests[index].death == GML_STILL_LIVE &&
        twin->death != GML_STILL_LIVE) {
        builder->ends[index] = end_of_twin(builder->profile, twin);
    }
}

static void ask_twins(plan_builder *builder) {
    const gml_step *last = &builder->profile->last, *previous = &builder->profile->previous;
    size_t from = 0, to = last->request_count, twin = previous->request_count;
    while (from < to && from < twin &&
           are_twins(&last->requests[from], &previous->requests[from])) {
        ask_twin(builder, from, &previous->requests[from]);
        from++;
    }
    while (to > from && twin > from &&
           are_twins(&last->requests[to - 1], &previous->requests[twin - 1])) {
        to--;
        twin--;
        ask_twin(builder, to, &previous->requests[twin]);
    }
}

static gml_status find_ends(plan_builder *builder) {
    const gml_step *last = &builder->profile->last;
    bool are_known = true;
    for (size_t i = 0; i < last->request_count; i++) {
        builder->ends[i] = end_in(last, &last->requests[i], last->event_count);
        are_known &= last->requests[i].death != GML_STILL_LIVE;
    }
    if (!are_known && builder->profile->previous.request_count) {
        ask_twins(builder);
    }
    return GML_OK;
}

/* ---- how many steps -------------------------------------------------------------------------- */

/* 0: not known. */
static uint64_t life_of(const plan_builder *builder, size_t index) {
    uint64_t end = builder->ends[index];
    return end == LIFE_UNKNOWN ? 0 : end - builder->profile->last.requests[index].birth;
}

/* The largest live sum of a repeating step. A request that lives through n whole repetitions counts
 * n times at every moment, and once more for the rest of its life. */
static gml_status measure_peak(const plan_builder *builder, uint64_t *peak_bytes) {
    const gml_step *last = &builder->profile->last;
    gml_lifetime *lifetimes = gml_plan_array(last->request_count, sizeof *lifetimes);
    uint32_t *members = gml_plan_array(last->request_count, sizeof *members);
    gml_problem problem = {
        .lifetimes = lifetimes, .period = last->event_count, .alignment_bytes = GML_PLAN_UNIT};
    gml_instance instance = {0};
    uint64_t constant = 0;
    for (size_t i = 0; lifetimes && members && i < last->request_count; i++) {
        uint64_t birth = last->requests[i].birth, size = size_of(&last->requests[i]);
        uint64_t life = life_of(builder, i);
        constant += life / problem.period * size;
        if (life % problem.period) {
            members[problem.count] = (uint32_t)problem.count;
            lifetimes[problem.count++] = (gml_lifetime){
                .size_bytes = size, .start = birth, .end = birth + life % problem.period};
        }
    }
    gml_status status = lifetimes && members
                            ? gml_instance_open(&instance, &problem, members, problem.count, NULL)
                            : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        *peak_bytes = constant + gml_instance_most_live(&instance);
        gml_instance_close(&instance);
    }
    free(lifetimes);
    free(members);
    return status;
}

/* Two where requests that live longer than one are worth it. */
static gml_status choose_steps(plan_builder *builder) {
    const gml_step *last = &builder->profile->last;
    uint64_t period = last->event_count, long_bytes = 0, peak = 0;
    for (size_t i = 0; i < last->request_count; i++) {
        uint64_t life = life_of(builder, i);
        if (life > period && life <= GML_PLAN_MOST_STEPS * period) {
            long_bytes += size_of(&last->requests[i]);
        }
    }
    gml_status status = long_bytes ? measure_peak(builder, &peak) : GML_OK;
    builder->plan->steps = long_bytes > peak / 1000 ? 2 : 1;
    return status;
}

/* ---- lanes: numbered by their first request -------------------------------------------------- */

static gml_status lane_of(plan_builder *builder, gml_stream stream, uint32_t *out) {
    gml_plan *plan = builder->plan;
    for (size_t i = 0; i < plan->lane_count; i++) {
        if (plan->lanes[i].stream == stream) {
            *out = (uint32_t)i;
            return GML_OK;
        }
    }
    if (plan->lane_count == GML_PLAN_MOST_LANES) {
        return gml_refuse(GML_INVALID_ARGUMENT, builder->reason, builder->reason_bytes,
                          "a step on more than %d streams", (int)GML_PLAN_MOST_LANES);
    }
    *out = (uint32_t)plan->lane_count;
    plan->lanes[plan->lane_count++] = (gml_plan_lane){.stream = stream};
    return GML_OK;
}

static gml_status find_lanes(plan_builder *builder) {
    const gml_step *last = &builder->profile->last;
    builder->plan->lanes = gml_plan_array(GML_PLAN_MOST_LANES, sizeof(gml_plan_lane));
    gml_status status = builder->plan->lanes ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t i = 0; i < last->request_count && status == GML_OK; i++) {
        status = lane_of(builder, last->requests[i].stream, &builder->lanes[i]);
    }
    return status;
}

/* ---- entries --------------------------------------------------------------------------------- */

static void lay_out_entry(plan_builder *builder, size_t request_index, uint64_t step_begin) {
    gml_plan *plan = builder->plan;
    const gml_step_request *request = &builder->profile->last.requests[request_index];
    uint64_t end = builder->ends[request_index], latest = request->birth + plan->period;
    bool is_placed = end <= latest;
    plan->entries[plan->entry_count++] = (gml_plan_entry){
        .size_bytes = size_of(request),
        .offset = is_placed ? 0 : GML_NO_OFFSET,
        .start = step_begin + request->birth,
        .end = step_begin + (is_placed ? end : latest),
        .lane = builder->lanes[request_index],
    };
    plan->placed_count += is_placed;
}

static void lay_out_step(plan_builder *builder, unsigned step) {
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    for (size_t i = 0; i < last->request_count; i++) {
        lay_out_entry(builder, i, plan->step_time[step]);
    }
    plan->step_time[step + 1] = plan->step_time[step] + last->event_count;
    plan->step_entry[step + 1] = plan->entry_count;
}

static gml_status lay_out(plan_builder *builder) {
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    plan->period = plan->steps * last->event_count;
    plan->entries = gml_plan_array(last->request_count * plan->steps, sizeof(gml_plan_entry));
    if (!plan->entries) {
        return GML_NO_HOST_MEMORY;
    }
    for (unsigned step = 0; step < plan->steps; step++) {
        lay_out_step(builder, step);
    }
    return GML_OK;
}

/* ---- placing --------------------------------------------------------------------------------- */

/* A lane's share of the time to search, and the capacity if there is only one lane: how several
 * lanes should share it is unknown. */
static gml_planner_options lane_options(const plan_builder *builder, size_t lane_placed) {
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

static gml_status place_lane(const plan_builder *builder, gml_lane_problems *problems,
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

static gml_status place_lanes(plan_builder *builder) {
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

static gml_status fingerprint_and_check(plan_builder *builder) {
    builder->plan->fingerprint = gml_plan_fingerprint(builder->plan);
    return gml_plan_check(builder->plan, builder->reason, builder->reason_bytes);
}

static gml_status build(plan_builder *builder) {
    static gml_status (*const stages[])(plan_builder *) = {
        find_lanes, find_ends, choose_steps, lay_out, place_lanes, fingerprint_and_check,
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
    return status;
}

gml_status gml_plan_build(const gml_profile *profile, const gml_planner_options *options,
                          gml_plan **out, char *reason, size_t reason_bytes) {
    uint64_t begin = gml_clock_ns();
    plan_builder builder = {
        .profile = profile, .options = options, .reason = reason, .reason_bytes = reason_bytes};
    gml_status status = check_profile(profile, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    status = build(&builder);
    free(builder.lanes);
    free(builder.ends);
    if (status != GML_OK) {
        gml_plan_free(builder.plan);
        return status == GML_NO_HOST_MEMORY
                   ? gml_refuse(status, reason, reason_bytes, "no host memory")
                   : status;
    }
    builder.plan->time_ns = gml_clock_ns() - begin;
    *out = builder.plan;
    return GML_OK;
}
