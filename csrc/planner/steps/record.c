/* Growing arrays of what happens in a step. */
#include "planner/steps/record.h"

#include "base/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 64 };

void gml_record_clear(gml_record *record) {
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

gml_status gml_record_copy(const gml_record *record, gml_step *out) {
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
