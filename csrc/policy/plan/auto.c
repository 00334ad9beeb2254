/* Planning by itself, where marks tell the steps: gml_lake_mark(). */
#include "base/clock.h"
#include "policy/plan/planned.h"

/* While plans that were made do not suit, the next is made each time after twice as many steps. */
enum { LONGEST_PATIENCE = 1024 };

/* How many of the remembered steps were served poorly and made the requests of the last one. */
static uint64_t
count_alike(const gml_kind *kind)
{
    uint64_t alike = 0;
    for (size_t i = 0; i < kind->record_count; i++) {
        const gml_record *record = kind->records[i];
        alike += record->is_poor && record->fingerprint == kind->records[0]->fingerprint;
    }
    return alike;
}

/* All remembered steps were served: what was planned before them has shown its worth. */
static bool
is_served_well(const gml_kind *kind)
{
    bool is_poor = false;
    for (size_t i = 0; i < kind->record_count; i++) {
        is_poor |= kind->records[i]->is_poor;
    }
    return kind->record_count == GML_KEPT_RECORDS && !is_poor;
}

static bool
is_due(const gml_planned *planned, const gml_kind *kind)
{
    const gml_record *last = kind->records[0];
    return last->is_poor && last->step.request_count &&
           count_alike(kind) >= planned->profile_steps && kind->serial >= kind->plan_after;
}

static void
note_attempt(gml_kind *kind)
{
    uint64_t patience = kind->patience ? 2 * kind->patience : GML_KEPT_RECORDS;
    kind->patience = patience < LONGEST_PATIENCE ? patience : LONGEST_PATIENCE;
    kind->plan_after = kind->serial + kind->patience;
}

/* What fails here leaves the steps to the inner policy, as before. */
void
gml_planned_consider(gml_planned *planned, gml_kind *kind)
{
    if (is_served_well(kind)) {
        kind->patience = 0;
    }
    if (!is_due(planned, kind)) {
        return;
    }
    note_attempt(kind);
    uint64_t begin_ns = gml_clock_ns();
    const gml_planner_options options = {.budget_ms = planned->budget_ms};
    gml_profile *profile = NULL;
    gml_plan *plan = NULL;
    gml_status status = gml_steps_profile(&planned->policy, kind->id, &profile);
    if (status == GML_OK) {
        status = gml_plan_build(profile, &options, &plan, NULL, 0);
    }
    if (status == GML_OK) {
        status = gml_steps_add_plan(&planned->policy, kind->id, plan);
    }
    planned->stats.plans_made += status == GML_OK;
    planned->stats.planning_ns += gml_clock_ns() - begin_ns;
    gml_plan_release(plan);
    gml_profile_free(profile);
}

gml_status
gml_steps_mark(gml_policy *policy)
{
    gml_planned *planned = gml_planned_of(policy);
    if (planned->open.record) {
        gml_kind *kind = planned->open.record->kind;
        (void)gml_steps_end(policy, NULL);
        gml_planned_consider(planned, kind);
    }
    return gml_steps_begin(policy, 0);
}
