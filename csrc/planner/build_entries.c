/* The entries of a plan: lanes, order, two steps where the period has two. */
#include "planner/build.h"

/* ---- lanes: numbered by their first request -------------------------------------------------- */

static gml_status lane_of(gml_builder *builder, gml_stream stream, uint32_t *out) {
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

gml_status gml_build_find_lanes(gml_builder *builder) {
    const gml_step *last = &builder->profile->last;
    builder->plan->lanes = gml_plan_array(GML_PLAN_MOST_LANES, sizeof(gml_plan_lane));
    gml_status status = builder->plan->lanes ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t i = 0; i < last->request_count && status == GML_OK; i++) {
        status = lane_of(builder, last->requests[i].stream, &builder->lanes[i]);
    }
    return status;
}

/* ---- entries --------------------------------------------------------------------------------- */

static void lay_out_entry(gml_builder *builder, size_t request_index, uint64_t step_begin) {
    gml_plan *plan = builder->plan;
    const gml_step_request *request = &builder->profile->last.requests[request_index];
    uint64_t end = builder->ends[request_index], latest = request->birth + plan->period;
    bool is_placed = end <= latest;
    plan->entries[plan->entry_count++] = (gml_plan_entry){
        .size_bytes = gml_build_size(request),
        .offset = is_placed ? 0 : GML_NO_OFFSET,
        .start = step_begin + request->birth,
        .end = step_begin + (is_placed ? end : latest),
        .lane = builder->lanes[request_index],
    };
    plan->placed_count += is_placed;
}

static void lay_out_step(gml_builder *builder, unsigned step) {
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    for (size_t i = 0; i < last->request_count; i++) {
        lay_out_entry(builder, i, plan->step_time[step]);
    }
    plan->step_time[step + 1] = plan->step_time[step] + last->event_count;
    plan->step_entry[step + 1] = plan->entry_count;
}

gml_status gml_build_lay_out(gml_builder *builder) {
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    plan->period = plan->steps * last->event_count;
    plan->entries = gml_plan_array(last->request_count * plan->steps, sizeof(gml_plan_entry));
    if (!plan->entries) {
        return GML_NO_HOST_MEMORY;
    }
    for (unsigned step = 0; step < plan->steps && step < GML_PLAN_MOST_STEPS; step++) {
        lay_out_step(builder, step);
    }
    return GML_OK;
}
