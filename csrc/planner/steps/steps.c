/* Steps: the functions of gmlake_plan.h that a lake has. */
#include "planner/steps/steps.h"

#include "gmlake_plan.h"
#include "lake/lake.h"

static gml_status watch(gml_policy *inner, const gml_knobs *knobs, gml_policy **policy) {
    (void)knobs;
    return gml_steps_are_watched(inner) ? GML_OK : gml_steps_wrap(inner, policy);
}

gml_status gml_lake_watch_steps(gml_lake *lake) {
    return gml_lake_wrap_policy(lake, watch);
}

/* Arguments and results of a call. */
typedef struct call {
    gml_status (*function)(gml_policy *policy, struct call *call);
    uint64_t kind;
    gml_plan *plan;
    gml_step_report *report;
    gml_profile **profile;
    gml_plan_stats *stats;
} call;

static gml_status make_call(gml_policy *policy, void *context) {
    call *made = context;
    return gml_steps_are_watched(policy)
               ? made->function(policy, made)
               : gml_driver_fail(policy->driver, GML_MISUSE, "steps of this lake are not watched");
}

static gml_status begin(gml_policy *policy, call *made) {
    return gml_steps_begin(policy, made->kind);
}

gml_status gml_lake_begin_step(gml_lake *lake, uint64_t kind) {
    return gml_lake_with_policy(lake, make_call, &(call){.function = begin, .kind = kind});
}

static gml_status end(gml_policy *policy, call *made) {
    gml_status status = gml_steps_end(policy, made->report);
    if (status == GML_OK && made->report) {
        made->report->reserved_bytes = policy->driver->held_bytes;
    }
    return status;
}

gml_status gml_lake_end_step(gml_lake *lake, gml_step_report *out) {
    return gml_lake_with_policy(lake, make_call, &(call){.function = end, .report = out});
}

static gml_status profile(gml_policy *policy, call *made) {
    return gml_steps_profile(policy, made->kind, made->profile);
}

gml_status gml_lake_profile(gml_lake *lake, uint64_t kind, gml_profile **out) {
    return gml_lake_with_policy(lake, make_call,
                                &(call){.function = profile, .kind = kind, .profile = out});
}

static gml_status add_plan(gml_policy *policy, call *made) {
    return gml_steps_add_plan(policy, made->kind, made->plan);
}

gml_status gml_lake_add_plan(gml_lake *lake, uint64_t kind, gml_plan *plan) {
    return gml_lake_with_policy(lake, make_call,
                                &(call){.function = add_plan, .kind = kind, .plan = plan});
}

static gml_status drop_plans(gml_policy *policy, call *made) {
    return gml_steps_drop_plans(policy, made->kind);
}

gml_status gml_lake_drop_plans(gml_lake *lake, uint64_t kind) {
    return gml_lake_with_policy(lake, make_call, &(call){.function = drop_plans, .kind = kind});
}

static gml_status stats(gml_policy *policy, call *made) {
    gml_steps_stats(policy, made->stats);
    return GML_OK;
}

gml_status gml_lake_plan_stats(gml_lake *lake, gml_plan_stats *out) {
    return gml_lake_with_policy(lake, make_call, &(call){.function = stats, .stats = out});
}
