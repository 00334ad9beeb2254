/* The parts of gml_plan_build(). */
#ifndef GML_PLANNER_BUILD_H
#define GML_PLANNER_BUILD_H

#include "planner/plan_parts.h"

#define GML_LIFE_UNKNOWN UINT64_MAX

typedef struct gml_builder {
    const gml_profile *profile;
    const gml_planner_options *options;
    gml_plan *plan;
    uint32_t *lanes; /* of each request of `last` */
    uint64_t *ends; /* of each request of `last`, in events since the step began; may lie in a later
                       repetition of it, or be GML_LIFE_UNKNOWN */
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

/* ---- build_entries.c: requests become entries ---------------------------------------------------
 *
 * Each step of the period repeats them. Entries to be placed have the offset 0 afterwards. */
gml_status gml_build_find_lanes(gml_builder *builder);
gml_status gml_build_lay_out(gml_builder *builder);

/* Size as planned. */
static inline uint64_t gml_build_size(const gml_step_request *request) {
    return (request->size_bytes + GML_PLAN_UNIT - 1) / GML_PLAN_UNIT * GML_PLAN_UNIT;
}

#endif
