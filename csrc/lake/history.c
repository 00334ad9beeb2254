/* A lake's history: a ring that overwrites its oldest event. */
#include "lake/history.h"

#include "base/clock.h"
#include "lake/lake.h"

#include <stdlib.h>

gml_status gml_history_keep(gml_history *history, size_t max_events) {
    gml_request *ring = NULL;
    if (max_events) {
        ring = max_events <= SIZE_MAX / sizeof *ring ? calloc(max_events, sizeof *ring) : NULL;
        if (!ring) {
            return GML_NO_HOST_MEMORY;
        }
    }
    gml_history_close(history);
    uint64_t wall_ns = gml_wall_clock_ns(); /* first: no event is later than the wall clock */
    *history =
        (gml_history){.ring = ring, .capacity = max_events, .offset_ns = wall_ns - gml_clock_ns()};
    return GML_OK;
}

void gml_history_close(gml_history *history) {
    free(history->ring);
    *history = (gml_history){0};
}

void gml_history_append(gml_history *history, uint32_t kind, uint64_t id, gml_address address,
                        uint64_t size_bytes, gml_stream stream) {
    gml_request event = {.id = id,
                         .size_bytes = size_bytes,
                         .address = address,
                         .time_ns = gml_clock_ns() + history->offset_ns,
                         .stream = stream,
                         .kind = kind == GML_NOTED_FREES ? GML_REQUEST_FREE_REQUESTED : kind};
    history->ring[history->total++ % history->capacity] = event;
    if (kind == GML_NOTED_FREES) {
        event.kind = GML_REQUEST_FREE;
        history->ring[history->total++ % history->capacity] = event;
    }
}

size_t gml_history_copy(const gml_history *history, gml_request *out, size_t capacity) {
    size_t kept = history->total < history->capacity ? (size_t)history->total : history->capacity;
    if (!out) {
        return kept;
    }
    kept = kept < capacity ? kept : capacity;
    for (size_t i = 0; i < kept; i++) {
        out[i] = history->ring[(history->total - kept + i) % history->capacity];
    }
    return kept;
}

/* ---- the public functions -------------------------------------------------------------------- */

gml_status gml_lake_keep_history(gml_lake *lake, size_t max_events) {
    pthread_mutex_lock(&lake->lock);
    gml_lake_note_reserved(lake); /* what came before is not of the events to come */
    gml_status status = gml_history_keep(&lake->history, max_events);
    if (status == GML_OK) {
        gml_lake_begin_segments(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_history(gml_lake *lake, gml_request *out, size_t capacity, size_t *count,
                            uint64_t *total) {
    pthread_mutex_lock(&lake->lock);
    *count = gml_history_copy(&lake->history, out, capacity);
    *total = lake->history.total;
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}
