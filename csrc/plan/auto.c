/* Planning by itself, where marks tell the steps: gml_lake_mark(). */
#include "base/clock.h"
#include "plan/planned.h"

/* The plan that a mark found due. */
typedef struct due_plan {
    gml_profile *profile; /* NULL: none is due */
    gml_plan *plan;
    uint64_t kind, budget_ms, planning_ns;
} due_plan;

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

/* ---- a mark ---------------------------------------------------------------------------------- */

/* What fails here leaves the steps to the inner policy, as before. */
static void
consider(gml_planned *planned, gml_kind *kind, due_plan *due)
{
    if (is_served_well(kind)) {
        kind->patience = 0;
        kind->plan_after = 0;
    }
    if (is_due(planned, kind)) {
        note_attempt(kind);
        due->kind = kind->id;
        due->budget_ms = planned->budget_ms;
        (void)gml_steps_profile(&planned->policy, kind->id, &due->profile);
    }
}

static void
end_step(gml_planned *planned, due_plan *due)
{
    if (planned->open.record) {
        gml_kind *kind = planned->open.record->kind;
        (void)gml_steps_end(&planned->policy, NULL);
        consider(planned, kind, due);
    }
}

static void
build(due_plan *due)
{
    uint64_t begin_ns = gml_clock_ns();
    const gml_planner_options options = {.budget_ms = due->budget_ms};
    (void)gml_plan_build(due->profile, &options, &due->plan, NULL, 0);
    gml_profile_free(due->profile);
    due->planning_ns = gml_clock_ns() - begin_ns;
}

static gml_status
begin_step(gml_planned *planned, const due_plan *due)
{
    if (due->plan && gml_steps_add_plan(&planned->policy, due->kind, due->plan) == GML_OK) {
        planned->stats.plans_made++;
    }
    planned->stats.planning_ns += due->planning_ns;
    gml_plan_release(due->plan);
    /* Another thread may have marked meanwhile. */
    return planned->open.record ? GML_OK : gml_steps_begin(&planned->policy, 0);
}

gml_status
gml_planned_mark(gml_policy *self, const gml_pause *pause)
{
    gml_planned *planned = gml_planned_of(self);
    due_plan due = {0};
    if (!planned->plans_by_itself) {
        return GML_OK;
    }
    end_step(planned, &due);
    if (due.profile) { /* other threads allocate and free meanwhile */
        pause->begin(pause->context);
        build(&due);
        pause->end(pause->context);
    }
    return begin_step(planned, &due);
}
