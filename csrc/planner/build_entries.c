/* The entries of a plan: lanes, order, two steps where the period has two. */
#include "planner/build.h"

/* ---- lanes --------------------------------------------------------------------------------------
 *
 * Lanes are numbered by the first request that gets an entry; streams with dynamic requests only
 * come after those.
 */

static gml_status
lane_of(gml_builder *builder, gml_stream stream, uint32_t *out)
{
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

static gml_status
enter_lanes(gml_builder *builder, bool is_dynamic)
{
    const gml_step *last = &builder->profile->last;
    gml_status status = GML_OK;
    for (size_t i = 0; i < last->request_count && status == GML_OK; i++) {
        if (gml_build_is_dynamic(&last->requests[i]) == is_dynamic) {
            status = lane_of(builder, last->requests[i].stream, &builder->lanes[i]);
        }
    }
    return status;
}

gml_status
gml_build_find_lanes(gml_builder *builder)
{
    builder->plan->lanes = gml_plan_array(GML_PLAN_MOST_LANES, sizeof(gml_plan_lane));
    if (!builder->plan->lanes) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = enter_lanes(builder, false);
    return status == GML_OK ? enter_lanes(builder, true) : status;
}

/* ---- entries and marks ----------------------------------------------------------------------- */

static void
lay_out_entry(gml_builder *builder, size_t request_index, uint64_t step_begin)
{
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
        .phase_start = request->phase_birth,
        .phase_end = request->phase_death,
    };
    plan->placed_count += is_placed;
}

static void
lay_out_phases(gml_builder *builder, size_t request_index, size_t *next_mark)
{
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    for (; *next_mark < last->mark_count && last->marks[*next_mark].request <= request_index;
         ++*next_mark) {
        if (last->marks[*next_mark].kind == GML_MARK_PHASE) {
            plan->marks[plan->mark_count++] = (gml_plan_mark){.phase = last->marks[*next_mark].id,
                                                              .entry = (uint32_t)plan->entry_count};
        }
    }
}

static void
lay_out_step(gml_builder *builder, unsigned step)
{
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    size_t next_mark = 0;
    for (size_t i = 0; i < last->request_count; i++) {
        lay_out_phases(builder, i, &next_mark);
        if (!gml_build_is_dynamic(&last->requests[i])) {
            lay_out_entry(builder, i, plan->step_time[step]);
        }
    }
    lay_out_phases(builder, last->request_count, &next_mark);
    plan->step_time[step + 1] = plan->step_time[step] + last->event_count;
    plan->step_entry[step + 1] = plan->entry_count;
    plan->step_mark[step + 1] = plan->mark_count;
}

static gml_status
make_room(gml_builder *builder)
{
    gml_plan *plan = builder->plan;
    const gml_step *last = &builder->profile->last;
    size_t dynamic = 0, phases = 0;
    for (size_t i = 0; i < last->request_count; i++) {
        dynamic += gml_build_is_dynamic(&last->requests[i]);
    }
    for (size_t i = 0; i < last->mark_count; i++) {
        phases += last->marks[i].kind == GML_MARK_PHASE;
    }
    size_t visits = dynamic + last->mark_count - phases;
    plan->entries =
        gml_plan_array((last->request_count - dynamic) * plan->steps, sizeof(gml_plan_entry));
    plan->marks = gml_plan_array(phases * plan->steps, sizeof(gml_plan_mark));
    plan->visits = gml_plan_array(visits * plan->steps, sizeof(gml_plan_visit));
    plan->dynamic = gml_plan_array(dynamic * plan->steps, sizeof(gml_plan_dynamic));
    builder->windows = gml_plan_array(dynamic * plan->steps, sizeof *builder->windows);
    bool has_room =
        plan->entries && plan->marks && plan->visits && plan->dynamic && builder->windows;
    return has_room ? GML_OK : GML_NO_HOST_MEMORY;
}

gml_status
gml_build_lay_out(gml_builder *builder)
{
    gml_plan *plan = builder->plan;
    plan->period = plan->steps * builder->profile->last.event_count;
    gml_status status = make_room(builder);
    for (unsigned step = 0; status == GML_OK && step < plan->steps && step < GML_PLAN_MOST_STEPS;
         step++) {
        lay_out_step(builder, step);
        gml_build_visits(builder, step);
    }
    return status;
}
