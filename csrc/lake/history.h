/* The last events of a lake, in a ring of bounded size. */
#ifndef GML_LAKE_HISTORY_H
#define GML_LAKE_HISTORY_H

#include "gmlake.h"

/* Beyond gml_request_kind: FREE_REQUESTED and FREE, both in one call. */
enum { GML_NOTED_FREES = GML_REQUEST_KIND_COUNT };

typedef struct gml_history {
    gml_request *ring; /* NULL: no history */
    size_t capacity;
    uint64_t total;     /* events since it was begun; the youngest `capacity` are in the ring */
    uint64_t offset_ns; /* from gml_clock_ns() to the wall clock, when it was begun */
} gml_history;

/* See gml_lake_keep_history(). */
gml_status gml_history_keep(gml_history *history, size_t max_events);

/* Gives everything back. */
void gml_history_close(gml_history *history);

/* Appends an event, as of now. kind: a gml_request_kind, or GML_NOTED_FREES. pre: a ring. */
void gml_history_append(gml_history *history, uint32_t kind, uint64_t id, gml_address address,
                        uint64_t size_bytes, gml_stream stream);

/* The youngest events, oldest first: at most `capacity` of them. Returns how many; with `out` NULL,
 * how many there are. */
size_t gml_history_copy(const gml_history *history, gml_request *out, size_t capacity);

/* Notes an event where any are kept: one branch where none are. */
static inline void gml_history_add(gml_history *history, uint32_t kind, uint64_t id,
                                   gml_address address, uint64_t size_bytes, gml_stream stream) {
    if (history->ring) {
        gml_history_append(history, kind, id, address, size_bytes, stream);
    }
}

#endif
