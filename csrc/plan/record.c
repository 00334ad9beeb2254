/* Growing arrays of what happens in a step. */
#include "plan/record.h"

#include "base/rounding.h"
#include "planner/plan.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 64 };

void
gml_record_clear(gml_record *record)
{
    *record = (gml_record){
        .step = {.requests = record->step.requests, .marks = record->step.marks},
        .request_room = record->request_room,
        .mark_room = record->mark_room,
        .lanes = record->lanes,
        .lane_room = record->lane_room,
        .inherited = record->inherited,
        .inherited_room = record->inherited_room,
        .fingerprint = GML_FINGERPRINT_SEED,
    };
}

void
gml_record_close(gml_record *record)
{
    free(record->step.requests);
    free(record->step.marks);
    free(record->lanes);
    free(record->inherited);
    *record = (gml_record){0};
}

/* Forgets every request and mark: a part of a step is no step to plan for. */
static void
cut(gml_record *record)
{
    free(record->step.requests);
    free(record->step.marks);
    record->step.requests = NULL;
    record->step.marks = NULL;
    record->step.request_count = record->step.mark_count = 0;
    record->request_room = record->mark_room = 0;
    record->is_cut = true;
}

/* The array with twice the room; NULL, and the old one stays, at the limit or without host memory.
 */
static void *
grow(void *items, size_t *room, size_t item_bytes)
{
    size_t wanted = *room ? 2 * *room : FIRST_ROOM;
    void *grown = *room < GML_RECORD_MOST ? realloc(items, wanted * item_bytes) : NULL;
    if (grown) {
        *room = wanted;
    }
    return grown;
}

static bool
has_room(gml_record *record)
{
    if (record->step.request_count == record->request_room) {
        gml_step_request *grown = grow(record->step.requests, &record->request_room, sizeof *grown);
        if (!grown) {
            return false;
        }
        record->step.requests = grown;
    }
    if (record->lane_count == record->lane_room) {
        gml_stream *grown = grow(record->lanes, &record->lane_room, sizeof *grown);
        if (!grown) {
            return false;
        }
        record->lanes = grown;
    }
    return true;
}

void
gml_record_prepare(gml_record *record)
{
    if (!record->is_cut && !has_room(record)) {
        cut(record);
    }
}

/* The number of the stream's lane, a further one at its first request. */
static uint32_t
lane_of(gml_record *record, gml_stream stream)
{
    for (uint32_t i = 0; i < record->lane_count; i++) {
        if (record->lanes[i] == stream) {
            return i;
        }
    }
    record->lanes[record->lane_count] = stream;
    return record->lane_count++;
}

size_t
gml_record_add(gml_record *record, uint64_t size_bytes, gml_stream stream, uint32_t phase,
               uint32_t scope)
{
    gml_step *step = &record->step;
    uint64_t rounded_bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    step->requests[step->request_count] = (gml_step_request){
        .size_bytes = rounded_bytes,
        .stream = stream,
        .birth = step->event_count++,
        .death = GML_STILL_LIVE,
        .death_serial = GML_STILL_LIVE,
        .phase_birth = phase,
        .scope_birth = scope,
    };
    if (!scope) {
        uint32_t lane = lane_of(record, stream);
        record->fingerprint = gml_fingerprint_add(record->fingerprint, rounded_bytes, lane);
    }
    return step->request_count++;
}

void
gml_record_inherit(gml_record *record, gml_inherited inherited)
{
    if (record->inherited_count == record->inherited_room) {
        gml_inherited *grown = grow(record->inherited, &record->inherited_room, sizeof *grown);
        if (!grown) {
            return;
        }
        record->inherited = grown;
    }
    record->inherited[record->inherited_count++] = inherited;
}

void
gml_record_peek(gml_record *record, uint64_t size_bytes, gml_stream stream)
{
    record->step.requests[record->step.request_count] = (gml_step_request){
        .size_bytes = gml_round_up(size_bytes, GML_ALIGNMENT),
        .stream = stream,
        .birth = record->step.event_count,
        .death = GML_STILL_LIVE,
        .death_serial = GML_STILL_LIVE,
    };
}

void
gml_record_mark(gml_record *record, gml_mark_kind kind, uint32_t id)
{
    gml_step *step = &record->step;
    if (!record->is_cut && step->mark_count == record->mark_room) {
        gml_step_mark *grown = grow(step->marks, &record->mark_room, sizeof *grown);
        if (grown) {
            step->marks = grown;
        } else {
            cut(record);
        }
    }
    if (record->is_cut) {
        return;
    }
    step->marks[step->mark_count++] = (gml_step_mark){
        .time = step->event_count,
        .request = step->request_count,
        .kind = kind,
        .id = id,
    };
}

gml_status
gml_record_copy(const gml_record *record, gml_step *out)
{
    const gml_step *step = &record->step;
    gml_step_request *requests = calloc(step->request_count + 1, sizeof *requests);
    gml_step_mark *marks = calloc(step->mark_count + 1, sizeof *marks);
    *out = (gml_step){0};
    if (!requests || !marks) {
        free(requests);
        free(marks);
        return GML_NO_HOST_MEMORY;
    }
    *out = *step;
    out->requests = requests;
    out->marks = marks;
    if (step->request_count) {
        memcpy(requests, step->requests, step->request_count * sizeof *requests);
    }
    if (step->mark_count) {
        memcpy(marks, step->marks, step->mark_count * sizeof *marks);
    }
    return GML_OK;
}
