/* Steps, for the lake: the policy `plan` around a `stitch` policy, and what a program tells it.
 *
 * Every function is called under the lake's lock. On failure driver->reason says why.
 */
#ifndef GML_POLICY_PLAN_STEPS_H
#define GML_POLICY_PLAN_STEPS_H

#include "gmlake_plan.h"
#include "policy/policy.h"

/* A `plan` policy around `stitch`, which it then owns; blocks of the latter may be freed through
 * either. GML_UNSUPPORTED if it is another policy, GML_NO_HOST_MEMORY. */
gml_status gml_steps_wrap(gml_policy *stitch, const gml_knobs *knobs, gml_policy **out);

/* Whether it is a `plan` policy, as the other functions here ask for. */
bool gml_steps_are_watched(const gml_policy *policy);

/* See gmlake_plan.h. */
gml_status gml_steps_begin(gml_policy *policy, uint64_t kind);
gml_status gml_steps_end(gml_policy *policy, gml_step_report *out);
gml_status gml_steps_enter_phase(gml_policy *policy, uint32_t phase);
gml_status gml_steps_enter_scope(gml_policy *policy, uint32_t scope);
gml_status gml_steps_profile(gml_policy *policy, uint64_t kind, gml_profile **out);
gml_status gml_steps_add_plan(gml_policy *policy, uint64_t kind, gml_plan *plan);
gml_status gml_steps_drop_plans(gml_policy *policy, uint64_t kind);

/* The plan that a mark found due. */
typedef struct gml_due_plan {
    gml_profile *profile; /* NULL: none is due, or it is built */
    gml_plan *plan;
    uint64_t kind, budget_ms, planning_ns;
} gml_due_plan;

/* See gml_lake_mark(): ends the open step, if there is one, and begins the next. Between the two a
 * due plan is built, which takes long and needs no lock. */
void gml_steps_end_mark(gml_policy *policy, gml_due_plan *due);
void gml_due_plan_build(gml_due_plan *due);
gml_status gml_steps_begin_mark(gml_policy *policy, gml_due_plan *due);

void gml_steps_stats(const gml_policy *policy, gml_plan_stats *out);

#endif
