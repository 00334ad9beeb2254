/* A ring that overwrites its oldest event. */
#include "lake/history.h"

#include <stdlib.h>
#include <time.h>

gml_status
gml_history_keep(gml_history *history, size_t max_events)
{
    gml_request *ring = NULL;
    if (max_events) {
        ring = max_events <= SIZE_MAX / sizeof *ring ? calloc(max_events, sizeof *ring) : NULL;
        if (!ring) {
            return GML_NO_HOST_MEMORY;
        }
    }
    gml_history_close(history);
    *history = (gml_history){.ring = ring, .capacity = max_events};
    return GML_OK;
}

void
gml_history_close(gml_history *history)
{
    free(history->ring);
    *history = (gml_history){0};
}

static uint64_t
wall_clock_ns(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

void
gml_history_append(gml_history *history, gml_request_kind kind, uint64_t id, gml_address address,
                   uint64_t size_bytes, gml_stream stream)
{
    history->ring[history->total++ % history->capacity] = (gml_request){
        .id = id,
        .size_bytes = size_bytes,
        .address = address,
        .time_ns = wall_clock_ns(),
        .stream = stream,
        .kind = kind,
    };
}

size_t
gml_history_copy(const gml_history *history, gml_request *out, size_t capacity)
{
    uint64_t kept = history->total < history->capacity ? history->total : history->capacity;
    uint64_t count = kept < capacity ? kept : capacity;
    for (uint64_t i = 0; i < count; i++) {
        out[i] = history->ring[(history->total - count + i) % history->capacity];
    }
    return (size_t)count;
}
