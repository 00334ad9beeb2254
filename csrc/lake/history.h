/* The last events of a lake, in a ring of bounded size. */
#ifndef GML_LAKE_HISTORY_H
#define GML_LAKE_HISTORY_H

#include "gmlake.h"

typedef struct gml_history {
    gml_request *ring; /* NULL: nothing is kept */
    size_t capacity;
    uint64_t total; /* events since it was begun; the youngest `capacity` of them are in the ring */
} gml_history;

/* See gml_lake_keep_history(). */
gml_status gml_history_keep(gml_history *history, size_t max_events);

/* Frees the ring. */
void gml_history_close(gml_history *history);

/* pre: a ring. */
void gml_history_append(gml_history *history, gml_request_kind kind, uint64_t id,
                        gml_address address, uint64_t size_bytes, gml_stream stream);

/* Notes an event where any are kept: one branch where none are. */
static inline void
gml_history_add(gml_history *history, gml_request_kind kind, uint64_t id, gml_address address,
                uint64_t size_bytes, gml_stream stream)
{
    if (history->ring) {
        gml_history_append(history, kind, id, address, size_bytes, stream);
    }
}

/* See gml_lake_history(). Returns how many events were copied. */
size_t gml_history_copy(const gml_history *history, gml_request *out, size_t capacity);

#endif
