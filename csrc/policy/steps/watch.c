/* Watching a step: its requests, their frees, and the input of a plan. */
#include "base/rounding.h"
#include "policy/steps/planned.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- records --------------------------------------------------------------------------------- */

enum { FIRST_ROOM = 64 };

/* Empties a record; keeps its capacity. */
static void clear(gml_record *record) {
    *record = (gml_record){
        .step = {.requests = record->step.requests},
        .request_room = record->request_room,
    };
}

void gml_record_close(gml_record *record) {
    free(record->step.requests);
    *record = (gml_record){0};
}

/* Drops every request: a partial step cannot be planned. */
static void cut(gml_record *record) {
    free(record->step.requests);
    record->step.requests = NULL;
    record->step.request_count = 0;
    record->request_room = 0;
    record->is_cut = true;
}

/* false at the limit, or without host memory. */
static bool has_room(gml_record *record) {
    if (record->step.request_count < record->request_room) {
        return true;
    }
    size_t room = record->request_room ? 2 * record->request_room : FIRST_ROOM;
    gml_step_request *grown =
        room <= GML_RECORD_MOST ? realloc(record->step.requests, room * sizeof *grown) : NULL;
    if (grown) {
        record->step.requests = grown;
        record->request_room = room;
    }
    return grown != NULL;
}

size_t gml_record_add(gml_record *record, uint64_t size_bytes, gml_stream stream) {
    gml_step *step = &record->step;
    if (!record->is_cut && !has_room(record)) {
        cut(record);
    }
    if (record->is_cut) {
        return SIZE_MAX;
    }
    step->requests[step->request_count] = (gml_step_request){
        .size_bytes = gml_round_up(size_bytes, GML_ALIGNMENT),
        .stream = stream,
        .birth = step->event_count++,
        .death = GML_STILL_LIVE,
        .death_serial = GML_STILL_LIVE,
    };
    return step->request_count++;
}

/* A record to write on: a further one, or the oldest of the kind. NULL when the host has no memory.
 */
static gml_record *take_record(gml_planned *planned, gml_kind *kind) {
    gml_record *record;
    if (kind->record_count == GML_KEPT_RECORDS) {
        record = kind->records[--kind->record_count];
        (void)gml_map_take(&planned->records, record->number);
    } else {
        record = calloc(1, sizeof *record);
    }
    if (record) {
        clear(record);
    }
    return record;
}

void gml_planned_watch(gml_planned *planned) {
    gml_open_step *open = &planned->open;
    if (gml_map_reserve(&planned->records, 1) == GML_OK) {
        open->record = take_record(planned, open->kind);
    }
    if (open->record) {
        open->record->kind = open->kind;
        open->record->number = open->number;
        open->record->step.serial = open->kind->serial;
        (void)gml_map_insert(&planned->records, open->number, open->record);
    }
    open->seen = gml_layout_new(open->state);
}

void gml_kind_keep_record(gml_kind *kind, gml_record *record) {
    for (size_t i = kind->record_count; i > 0; i--) {
        kind->records[i] = kind->records[i - 1];
    }
    kind->records[0] = record;
    kind->record_count++;
}

/* ---- frees ----------------------------------------------------------------------------------- */

/* A free in a step of another kind, or between steps, counts to the end of the kind's last step. */
static void note_outside(const gml_record *record, gml_step_request *request) {
    const gml_record *last = record->kind->record_count ? record->kind->records[0] : record;
    request->death = last->step.event_count;
    request->death_serial = last->step.serial;
}

void gml_planned_note_free(gml_planned *planned, uint64_t note) {
    gml_record *watched = planned->open.record;
    uint64_t time = watched ? watched->step.event_count++ : 0;
    gml_record *record = note ? gml_map_find(&planned->records, note >> 32) : NULL;
    if (!record) {
        return;
    }
    uint64_t index = note & UINT32_MAX;
    if (index >= record->step.request_count) {
        return; /* of a record that was cut since then */
    }
    gml_step_request *request = &record->step.requests[index];
    if (!watched || watched->kind != record->kind) {
        note_outside(record, request);
        return;
    }
    request->death = time;
    request->death_serial = watched->step.serial;
}

/* ---- profiles -------------------------------------------------------------------------------- */

void gml_profile_free(gml_profile *profile) {
    if (profile) {
        free(profile->last.requests);
        free(profile->previous.requests);
        free(profile);
    }
}

/* A deep copy. GML_NO_HOST_MEMORY; *out is empty then. */
static gml_status copy(const gml_record *record, gml_step *out) {
    const gml_step *step = &record->step;
    gml_step_request *requests = calloc(step->request_count + 1, sizeof *requests);
    *out = (gml_step){0};
    if (!requests) {
        return GML_NO_HOST_MEMORY;
    }
    *out = *step;
    out->requests = requests;
    if (step->request_count) {
        memcpy(requests, step->requests, step->request_count * sizeof *requests);
    }
    return GML_OK;
}

gml_status gml_steps_profile(gml_policy *policy, uint64_t id, gml_profile **out) {
    gml_planned *planned = gml_planned_of(policy);
    const gml_kind *kind = gml_kind_find(planned, id);
    if (!kind || !kind->record_count) {
        return gml_driver_fail(policy->driver, GML_MISUSE, "no step of kind %" PRIu64 " has ended",
                               id);
    }
    const gml_record *last = kind->records[0];
    const gml_record *before = kind->record_count > 1 ? kind->records[1] : NULL;
    gml_profile *profile = calloc(1, sizeof *profile);
    if (!profile) {
        return gml_driver_fail(policy->driver, GML_NO_HOST_MEMORY, "no host memory for a profile");
    }
    gml_status status = copy(last, &profile->last);
    if (status == GML_OK && before && !before->is_cut) {
        status = copy(before, &profile->previous);
    }
    if (status != GML_OK) {
        gml_profile_free(profile);
        return gml_driver_fail(policy->driver, GML_NO_HOST_MEMORY, "no host memory for a profile");
    }
    *out = profile;
    return GML_OK;
}
