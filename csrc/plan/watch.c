/* Steps begin and end; what happens in between is recorded. */
#include "plan/planned.h"

#include <inttypes.h>
#include <stdlib.h>

static gml_status
no_host_memory(const gml_planned *planned)
{
    return gml_driver_fail(planned->policy.driver, GML_NO_HOST_MEMORY,
                           "no host memory to watch a step");
}

static uint64_t
count_calls(const gml_driver *driver)
{
    uint64_t calls = 0;
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        calls += driver->calls[call];
    }
    return calls;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* A record to write on: a further one, or the oldest of the kind. NULL when the host has no memory.
 */
static gml_record *
take_record(gml_planned *planned, gml_kind *kind)
{
    gml_record *record;
    if (kind->record_count == GML_KEPT_RECORDS) {
        record = kind->records[--kind->record_count];
        (void)gml_map_take(&planned->records, record->number);
    } else {
        record = calloc(1, sizeof *record);
    }
    if (record) {
        gml_record_clear(record);
    }
    return record;
}

gml_status
gml_steps_begin(gml_policy *policy, uint64_t id)
{
    gml_planned *planned = gml_planned_of(policy);
    if (planned->open.record) {
        (void)gml_steps_end(policy, NULL);
    }
    gml_kind *kind = gml_kind_make(planned, id);
    if (!kind || gml_map_reserve(&planned->records, 1) != GML_OK) {
        return no_host_memory(planned);
    }
    gml_record *record = take_record(planned, kind);
    if (!record) {
        return no_host_memory(planned);
    }
    while (planned->next_number > UINT32_MAX ||
           gml_map_find(&planned->records, planned->next_number)) {
        planned->next_number = planned->next_number % UINT32_MAX + 1;
    }
    record->kind = kind;
    record->number = planned->next_number++;
    record->step.serial = ++kind->serial;
    (void)gml_map_insert(&planned->records, record->number, record);
    gml_slot *slot = gml_slot_foresee(kind);
    planned->open = (gml_open_step){
        .record = record,
        .visit = SIZE_MAX,
        .calls_before = count_calls(policy->driver),
        .report = {.kind = id, .serial = record->step.serial},
    };
    if (slot) {
        gml_slot_begin(planned, slot,
                       slot == kind->latest ? (slot->step + 1) % slot->plan->steps : 0);
        planned->policy.reserved_bytes = planned->inner->reserved_bytes;
    }
    return GML_OK;
}

/* Sums and the record's verdict. */
static void
conclude(gml_planned *planned, gml_step_report *report)
{
    gml_open_step *open = &planned->open;
    gml_plan_stats *stats = &planned->stats;
    report->driver_calls = count_calls(planned->policy.driver) - open->calls_before;
    report->pool_bytes = planned->lanes.attached_count * gml_stitch_cell_bytes(planned->stitch);
    report->fingerprint = open->record->fingerprint;
    report->is_planned = open->slot != NULL;
    stats->steps++;
    if (report->is_planned) {
        stats->planned_steps++;
        stats->requests += report->requests;
        stats->foreseen += report->foreseen;
        stats->served += report->served;
        stats->left += report->left;
    }
    uint64_t expected = report->requests - report->dynamic;
    uint64_t good = report->served + report->left;
    open->record->is_poor =
        !open->record->is_cut && (!report->is_planned || good * 100 < expected * 95);
}

/* Puts the record that was written before those of the kind. */
static void
keep_record(gml_kind *kind, gml_record *record)
{
    for (size_t i = kind->record_count; i > 0; i--) {
        kind->records[i] = kind->records[i - 1];
    }
    kind->records[0] = record;
    kind->record_count++;
    kind->past_count += kind->past_count < GML_KEPT_PAST;
    for (size_t i = kind->past_count - 1; i > 0; i--) {
        kind->past[i] = kind->past[i - 1];
    }
    kind->past[0] = record->fingerprint;
}

gml_status
gml_steps_end(gml_policy *policy, gml_step_report *out)
{
    gml_planned *planned = gml_planned_of(policy);
    gml_record *record = planned->open.record;
    if (!record) {
        return gml_driver_fail(policy->driver, GML_MISUSE, "no step is open");
    }
    gml_step_report report = planned->open.report;
    conclude(planned, &report);
    gml_slot *slot = planned->open.slot;
    gml_kind *kind = record->kind;
    planned->open = (gml_open_step){0};
    kind->latest = NULL;
    if (slot && slot->is_dropped) {
        gml_slot_drop(planned, slot);
    } else if (slot) {
        slot->last_used = record->number;
        kind->latest = slot;
    }
    keep_record(kind, record);
    if (out) {
        *out = report;
    }
    return GML_OK;
}

/* ---- marks ----------------------------------------------------------------------------------- */

gml_status
gml_steps_enter_phase(gml_policy *policy, uint32_t phase)
{
    gml_planned *planned = gml_planned_of(policy);
    gml_open_step *open = &planned->open;
    if (!open->record) {
        return GML_OK;
    }
    gml_record_mark(open->record, GML_MARK_PHASE, phase);
    open->phase = phase;
    open->is_refused = false;
    if (open->slot) {
        gml_matcher_enter_phase(&open->slot->matcher, phase);
    }
    return GML_OK;
}

gml_status
gml_steps_enter_scope(gml_policy *policy, uint32_t scope)
{
    gml_planned *planned = gml_planned_of(policy);
    gml_open_step *open = &planned->open;
    if (!open->record) {
        return GML_OK;
    }
    gml_record_mark(open->record, GML_MARK_SCOPE, scope);
    open->scope = scope;
    open->is_refused = false;
    gml_open_visit(open, scope);
    return GML_OK;
}

/* ---- frees ----------------------------------------------------------------------------------- */

/* A free in a step of another kind, or between steps, counts to the end of the kind's last step. */
static void
note_outside(const gml_record *record, gml_step_request *request)
{
    const gml_record *last = record->kind->record_count ? record->kind->records[0] : record;
    request->death = last->step.event_count;
    request->death_serial = last->step.serial;
}

void
gml_planned_note_free(gml_planned *planned, uint64_t note)
{
    gml_open_step *open = &planned->open;
    uint64_t time = open->record ? open->record->step.event_count++ : 0;
    gml_record *record = note ? gml_map_find(&planned->records, note >> 32) : NULL;
    if (!record) {
        return;
    }
    uint64_t index = note & UINT32_MAX;
    if (index >= record->step.request_count) {
        return; /* of a record that was cut since then */
    }
    gml_step_request *request = &record->step.requests[index];
    if (!open->record || open->record->kind != record->kind) {
        note_outside(record, request);
        return;
    }
    request->death = time;
    request->death_serial = open->record->step.serial;
    request->phase_death = open->phase;
    request->scope_death = open->scope;
}

/* ---- profiles -------------------------------------------------------------------------------- */

/* The record before the last one that tells best when what it leaves live is freed. */
static const gml_record *
record_before(const gml_kind *kind)
{
    for (size_t i = 1; i < kind->record_count; i++) {
        const gml_record *record = kind->records[i];
        if (!record->is_cut && record->fingerprint == kind->records[0]->fingerprint) {
            return record;
        }
    }
    return kind->record_count > 1 && !kind->records[1]->is_cut ? kind->records[1] : NULL;
}

gml_status
gml_steps_profile(gml_policy *policy, uint64_t id, gml_profile **out)
{
    gml_planned *planned = gml_planned_of(policy);
    const gml_kind *kind = gml_kind_find(planned, id);
    if (!kind || !kind->record_count) {
        return gml_driver_fail(policy->driver, GML_MISUSE, "no step of kind %" PRIu64 " has ended",
                               id);
    }
    const gml_record *last = kind->records[0];
    const gml_record *before = record_before(kind);
    gml_profile *profile = calloc(1, sizeof *profile);
    if (!profile) {
        return no_host_memory(planned);
    }
    gml_status status = gml_planned_list_taken(planned, last, profile);
    if (status == GML_OK) {
        status = gml_record_copy(last, &profile->last);
    }
    if (status == GML_OK && before) {
        status = gml_record_copy(before, &profile->previous);
    }
    if (status != GML_OK) {
        gml_profile_free(profile);
        return no_host_memory(planned);
    }
    gml_planned_leave_small(planned, profile);
    *out = profile;
    return GML_OK;
}

void
gml_steps_stats(const gml_policy *policy, gml_plan_stats *out)
{
    const gml_planned *planned = (const gml_planned *)(const void *)policy;
    *out = planned->stats;
    out->pool_bytes = planned->lanes.attached_count * gml_stitch_cell_bytes(planned->stitch);
}
