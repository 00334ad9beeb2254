/* Steps, for the lake: the policy `plan` around a `stitch` policy, and what a program tells it.
 *
 * Every function is called under the lake's lock. On failure driver->reason says why.
 */
#ifndef GML_STEPS_STEPS_H
#define GML_STEPS_STEPS_H

#include "gmlake_steps.h"
#include "policy/policy.h"

/* A `plan` policy around `stitch`, which it then owns; blocks of the latter may be freed through
 * either. GML_UNSUPPORTED if it is another policy, GML_NO_HOST_MEMORY. */
gml_status gml_steps_wrap(gml_policy *stitch, gml_policy **out);

/* Whether it is a `plan` policy, as the other functions here ask for. */
bool gml_steps_are_watched(const gml_policy *policy);

/* See gmlake_steps.h. */
gml_status gml_steps_begin(gml_policy *policy, uint64_t kind);
gml_status gml_steps_end(gml_policy *policy, gml_step_report *out);
gml_status gml_steps_profile(gml_policy *policy, uint64_t kind, gml_profile **out);
gml_status gml_steps_add_places(gml_policy *policy, uint64_t kind,
                                const gml_placed_request *requests, size_t count);
gml_status gml_steps_drop_plans(gml_policy *policy, uint64_t kind);

void gml_steps_stats(const gml_policy *policy, gml_step_stats *out);

#endif
