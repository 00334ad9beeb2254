/* Lifetimes of requests.
 *
 * A request freed within the watched step has a known end. A request still live at its end lives as
 * long as its twin in the previous step did, if that was freed: steps are matched from both ends up
 * to where they differ. Ends are given in the time of the step, continued periodically: an end at
 * period + t is an end at t, one repetition later.
 */
#include "planner/build.h"
#include "planner/instance.h"

#include <stdlib.h>

/* The end of a request made in `step`, or GML_LIFE_UNKNOWN. A step in which it was freed may be
 * longer than the one planned for. */
static uint64_t end_in(const gml_step *step, const gml_step_request *request, uint64_t period) {
    if (request->death == GML_STILL_LIVE) {
        return GML_LIFE_UNKNOWN;
    }
    uint64_t later = request->death_serial - step->serial;
    if (later > GML_PLAN_MOST_STEPS) {
        return GML_LIFE_UNKNOWN;
    }
    return later * period + (request->death < period ? request->death : period);
}

/* A twin freed within its own step says nothing about a request that outlived its step, except a
 * twin freed at the very end: the last step ended before the program reached its free. */
static uint64_t end_of_twin(const gml_profile *profile, const gml_step_request *twin) {
    uint64_t period = profile->last.event_count;
    if (twin->death_serial == profile->previous.serial) {
        return twin->death == profile->previous.event_count ? period : GML_LIFE_UNKNOWN;
    }
    return end_in(&profile->previous, twin, period);
}

static bool are_twins(const gml_step_request *one, const gml_step_request *other) {
    return one->size_bytes == other->size_bytes && one->stream == other->stream;
}

static void ask_twin(gml_builder *builder, size_t index, const gml_step_request *twin) {
    if (builder->profile->last.requests[index].death == GML_STILL_LIVE &&
        twin->death != GML_STILL_LIVE) {
        builder->ends[index] = end_of_twin(builder->profile, twin);
    }
}

static void ask_twins(gml_builder *builder) {
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

gml_status gml_build_find_ends(gml_builder *builder) {
    const gml_step *last = &builder->profile->last;
    bool are_known = true;
    for (size_t i = 0; i < last->request_count; i++) {
        builder->ends[i] = end_in(last, &last->requests[i], last->event_count);
        are_known &= last->requests[i].death != GML_STILL_LIVE;
    }
    bool is_alone = builder->profile->previous.request_count == 0;
    if (!are_known && !is_alone) {
        ask_twins(builder);
    }
    return GML_OK;
}

/* ---- how many steps -------------------------------------------------------------------------- */

static bool is_counted(const gml_builder *builder, size_t index) {
    return builder->ends[index] != GML_LIFE_UNKNOWN;
}

/* The largest live sum of a repeating step. A request that lives through n whole repetitions counts
 * n times at every moment, and once more for the rest of its life. */
static gml_status measure_peak(const gml_builder *builder, uint64_t *peak_bytes) {
    const gml_step *last = &builder->profile->last;
    gml_lifetime *lifetimes = gml_plan_array(last->request_count, sizeof *lifetimes);
    uint32_t *members = gml_plan_array(last->request_count, sizeof *members);
    gml_problem problem = {
        .lifetimes = lifetimes, .period = last->event_count, .alignment_bytes = GML_PLAN_UNIT};
    gml_instance instance = {0};
    uint64_t constant = 0;
    for (size_t i = 0; lifetimes && members && i < last->request_count; i++) {
        uint64_t birth = last->requests[i].birth, size = gml_build_size(&last->requests[i]);
        uint64_t life = is_counted(builder, i) ? builder->ends[i] - birth : 0;
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

gml_status gml_build_choose_steps(const gml_builder *builder, unsigned *steps) {
    const gml_step *last = &builder->profile->last;
    uint64_t period = last->event_count, long_bytes = 0, peak = 0;
    *steps = 1;
    for (size_t i = 0; i < last->request_count; i++) {
        uint64_t life = is_counted(builder, i) ? builder->ends[i] - last->requests[i].birth : 0;
        if (life > period && life <= GML_PLAN_MOST_STEPS * period) {
            long_bytes += gml_build_size(&last->requests[i]);
        }
    }
    if (long_bytes == 0) {
        return GML_OK;
    }
    gml_status status = measure_peak(builder, &peak);
    *steps = status == GML_OK && long_bytes > peak / 1000 ? 2 : 1;
    return status;
}
