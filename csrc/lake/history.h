/* The last events of a lake, in a ring of bounded size. */
#ifndef GML_LAKE_HISTORY_H
#define GML_LAKE_HISTORY_H

#include "gmlake.h"

/* Beyond gml_request_kind, within a ring only: FREE_REQUESTED and FREE, both in one call. */
enum { GML_NOTED_FREES = GML_REQUEST_KIND_COUNT };

typedef struct gml_noted {
    gml_request request; /* time_ns: ticks until read; see history.c */
    uint64_t site;       /* of the thread that made it, see gml_set_site() */
} gml_noted;

/* The counter and the clock at one moment. */
typedef struct gml_moment {
    uint64_t ticks, time_ns;
} gml_moment;

typedef struct gml_history {
    gml_noted *ring; /* NULL: no history */
    size_t capacity;
    size_t next;      /* where the next record goes: the oldest one, once the ring is full */
    uint64_t total;   /* events since it was begun; the youngest `capacity` of them are in the ring,
                         in as many records or fewer */
    bool has_counter; /* see gml_ticks() */
    uint64_t offset_ns; /* from gml_clock_ns() to the wall clock, when it was begun */

    /* Records whose time is in ticks: those from `fresh` to `next`, made after `last`; and up to
     * `stale_count` at the end of the ring, made between `before` and `last`. */
    gml_moment before, last;
    size_t fresh, stale_count;
} gml_history;

/* See gml_lake_keep_history(). */
gml_status gml_history_keep(gml_history *history, size_t max_events);

/* Gives everything back. */
void gml_history_close(gml_history *history);

/* Appends an event of the calling thread, as of now. kind: a gml_request_kind, or GML_NOTED_FREES.
 * pre: a ring. */
void gml_history_append(gml_history *history, uint32_t kind, uint64_t id, gml_address address,
                        uint64_t size_bytes, gml_stream stream);

/* The youngest events, oldest first: at most `capacity` of them, with their sites if `sites` is not
 * NULL. Returns how many; with `out` NULL, how many there are. */
size_t gml_history_copy(gml_history *history, gml_request *out, uint64_t *sites, size_t capacity);

/* Notes an event where any are kept: one branch where none are. */
static inline void gml_history_add(gml_history *history, uint32_t kind, uint64_t id,
                                   gml_address address, uint64_t size_bytes, gml_stream stream) {
    if (history->ring) {
        gml_history_append(history, kind, id, address, size_bytes, stream);
    }
}

#endif
