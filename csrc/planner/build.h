/* The parts of gml_plan_build(). */
#ifndef GML_PLANNER_BUILD_H
#define GML_PLANNER_BUILD_H

#include "planner/plan_parts.h"

#define GML_LIFE_UNKNOWN UINT64_MAX

/* When a dynamic request wants its addresses to be idle, in events of the period. */
typedef struct gml_dynamic_window {
    gml_time_range range;
    uint32_t lane;
    uint32_t dynamic; /* index in the plan */
} gml_dynamic_window;

typedef struct gml_builder {
    const gml_profile *profile;
    const gml_planner_options *options;
    gml_plan *plan;
    uint32_t *lanes; /* of each request of `last` */
    uint64_t *ends; /* of each request of `last`, in events since the step began; may lie in a later
                       repetition of it, or be GML_LIFE_UNKNOWN */
    gml_dynamic_window *windows; /* of each dynamic request of the plan */
    char *reason;
    size_t reason_bytes;
} gml_builder;

/* ---- build_profile.c: whether a profile can be true ---------------------------------------------
 *
 * Everything that the other parts index with or add is in range afterwards. GML_INVALID_ARGUMENT.
 */
gml_status gml_profile_check(const gml_profile *profile, char *reason, size_t reason_bytes);

/* ---- build_lives.c: when each request ends, and how many steps the plan has ------------------ */
gml_status gml_build_find_ends(gml_builder *builder);

/* 2 where requests that live longer than one step are worth it. GML_NO_HOST_MEMORY. */
gml_status gml_build_choose_steps(const gml_builder *builder, unsigned *steps);

/* ---- build_entries.c: requests become entries, marks, visits ------------------------------------
 *
 * Each step of the period repeats them. What is to be placed has the offset 0 afterwards. */
gml_status gml_build_find_lanes(gml_builder *builder);
gml_status gml_build_lay_out(gml_builder *builder);

/* ---- build_dynamic.c: where dynamic requests may go ---------------------------------------------
 *
 * The visits and dynamic requests of a step of the period. pre: there is room for them. */
void gml_build_visits(gml_builder *builder, unsigned step);

/* Their spans. pre: the lanes are placed. */
gml_status gml_build_find_spans(gml_builder *builder);

/* What is taken from the stream's lane, to `spans`, which has room for all; how many they are. */
size_t gml_build_taken(const gml_profile *profile, gml_stream stream, gml_span *spans);

/* Size as planned. */
static inline uint64_t
gml_build_size(const gml_step_request *request)
{
    return (request->size_bytes + GML_PLAN_UNIT - 1) / GML_PLAN_UNIT * GML_PLAN_UNIT;
}

static inline bool
gml_build_is_dynamic(const gml_step_request *request)
{
    return request->scope_birth != 0;
}

#endif
