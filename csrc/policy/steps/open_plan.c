/* Steps begin and end. */
#include "policy/steps/planned.h"

static uint64_t count_calls(const gml_driver *driver) {
    uint64_t calls = 0;
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        calls += driver->calls[call];
    }
    return calls;
}

gml_status gml_steps_begin(gml_policy *policy, uint64_t id) {
    gml_planned *planned = gml_planned_of(policy);
    if (planned->open.kind) {
        (void)gml_steps_end(policy, NULL);
    }
    gml_kind *kind = gml_kind_make(planned, id);
    if (!kind) {
        return GML_NO_HOST_MEMORY;
    }
    if (planned->has_loaded) {
        gml_planned_place_loaded(planned);
        planned->policy.reserved_bytes = planned->inner->reserved_bytes;
    }
    while (planned->next_number > UINT32_MAX ||
           gml_map_find(&planned->watched, planned->next_number)) {
        planned->next_number = planned->next_number % UINT32_MAX + 1;
    }
    planned->open = (gml_open_step){
        .kind = kind,
        .state = gml_planned_state(planned),
        .number = planned->next_number++,
        .calls_before = count_calls(policy->driver),
        .report = {.kind = id,
                   .serial = ++kind->serial,
                   .why = "watched: idle memory was given back in it, or the host has too little"},
    };
    planned->open.layout = gml_kind_predict(&planned->open);
    if (!planned->open.layout) {
        gml_planned_watch(planned);
    }
    return GML_OK;
}

static const char *why_planned(const gml_open_step *open) {
    if (open->layout->is_loaded) {
        return "planned: every request that its file places got its place";
    }
    return open->report.left ? "planned: every request but small ones"
                             : "planned: every request got the place that it had before";
}

/* Records the step's outcome for its kind: served by a plan, learned from, or neither. */
static void conclude(gml_planned *planned) {
    gml_open_step *open = &planned->open;
    gml_kind *kind = open->kind;
    if (open->layout && open->position < open->layout->entry_count) {
        gml_planned_leave(planned, "left: the step ended before its plan");
    }
    if (open->layout) {
        open->layout->last_used = open->number;
        open->layout->failures = 0;
        open->report.fingerprint = open->layout->fingerprint;
        open->report.why = why_planned(open);
        kind->backoff = 0;
        gml_kind_note_step(kind, open->layout);
    } else if (open->seen && open->seen->has_places) {
        open->report.fingerprint = open->seen->fingerprint;
        const char *why = gml_kind_learn(planned, kind, open->seen);
        open->report.why = open->report.served ? open->report.why : why;
    } else {
        gml_kind_note_step(kind, NULL);
    }
    if (open->seen) {
        gml_kind_keep_watched(planned, kind, open->seen);
    }
}

gml_status gml_steps_end(gml_policy *policy, gml_step_report *out) {
    gml_planned *planned = gml_planned_of(policy);
    gml_step_report *report = &planned->open.report;
    if (!planned->open.kind) {
        return gml_driver_fail(policy->driver, GML_MISUSE, "no step is open");
    }
    conclude(planned);
    report->reserved_bytes = policy->driver->held_bytes;
    report->driver_calls = count_calls(policy->driver) - planned->open.calls_before;
    gml_step_stats *stats = &planned->stats;
    stats->steps++;
    stats->planned_steps += report->served != 0;
    stats->why = report->why;
    if (report->served) {
        stats->requests += report->requests;
        stats->served += report->served;
        stats->left += report->left;
    }
    if (out) {
        *out = *report;
    }
    planned->open = (gml_open_step){0};
    return GML_OK;
}

gml_status gml_planned_mark(gml_policy *self) {
    gml_planned *planned = gml_planned_of(self);
    if (!planned->plans_by_itself) {
        return GML_OK;
    }
    if (planned->open.kind) {
        (void)gml_steps_end(self, NULL);
    }
    return gml_steps_begin(self, 0);
}

gml_status gml_steps_drop_plans(gml_policy *policy, uint64_t id) {
    gml_planned *planned = gml_planned_of(policy);
    gml_kind *kind = gml_kind_find(planned, id);
    if (kind && planned->open.kind == kind && planned->open.layout) {
        gml_planned_leave(planned, "left: its plan was dropped");
    }
    gml_status status = gml_planned_yield(planned);
    if (kind && status == GML_OK) {
        gml_kind_drop_layouts(planned, kind);
    }
    return status;
}

void gml_steps_stats(const gml_policy *policy, gml_step_stats *out) {
    *out = ((const gml_planned *)(const void *)policy)->stats;
}
