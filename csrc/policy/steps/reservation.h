/* A reservation: the bytes of a stream cache that plans hand out without asking the stream cache.
 *
 * Most of the cost of a request is taking bytes from a stream cache and returning them. A repeating
 * step uses the same bytes again and again, so they stay reserved: each reserved byte is idle or in
 * a live block. The first request for a place takes it from the stream cache, if it is free there.
 * Nothing is ever taken from the driver.
 *
 * Before the stream cache serves other requests the reservation yields: idle bytes return to the
 * stream cache, and blocks live in the reservation become ordinary placements. The stream cache is
 * then in the state as if it had served all of them itself, including its cached view.
 *
 * The ends of all places that plans know cut the addresses into slots. A place is a row of slots,
 * and a bit for each tells whether it is idle: few bits, so that they stay in the processor's cache
 * for any amount of memory.
 */
#ifndef GML_STEPS_RESERVATION_H
#define GML_STEPS_RESERVATION_H

#include "policy/stitch/stitch.h"

typedef struct gml_slots {
    uint32_t first, count;
} gml_slots;

/* Where a request lies. */
typedef struct gml_place {
    gml_run run; /* in the base range */
    gml_placement
        *view; /* or the view over several runs; NULL: none. A view in state gone serves nothing */
    gml_slots slots;        /* of the run */
    uint64_t missing_bytes; /* of a view: what growing would have added instead; 0: it was cached */
    gml_slots *of_view;     /* by run of the view */
} gml_place;

typedef struct gml_reservation {
    struct gml_reservation *next;
    gml_stitch *stitch;
    gml_stream_cache *cache;
    gml_placement holder; /* owns the extents; its other fields are unused */
    uint64_t *ends;       /* offsets in the base range, ascending: slot i ends where i + 1 begins */
    size_t end_count;
    uint64_t *taken;                 /* bit by slot: it is not idle in the reservation */
    gml_link live;                   /* the placements that live in it, by their link `live` */
    gml_placement *cached;           /* as a stream cache's: the view that was given last */
    uint64_t held_bytes, live_bytes; /* all, and of those in which blocks live */
    uint64_t instant;                /* when the last byte was freed, see core/fences.h */
} gml_reservation;

/* An empty reservation without places. NULL without host memory. */
gml_reservation *gml_reservation_open(gml_stitch *stitch, gml_stream_cache *cache);

/* pre: it holds nothing. */
void gml_reservation_close(gml_reservation *reservation);

/* Sets the cuts of the addresses: takes ownership of `ends`, in any order. pre: it is empty.
 * GML_NO_HOST_MEMORY; no place may be taken then until the next call. */
gml_status gml_reservation_cut(gml_reservation *reservation, uint64_t *ends, size_t end_count);

/* The slots of a range whose ends are known. */
gml_slots gml_reservation_slots(const gml_reservation *reservation, uint64_t offset,
                                uint64_t size_bytes);

/* Takes a range from the stream cache, as idle, unless a byte of it is neither free there nor held:
 * false, and maybe a part is held then. */
bool gml_reservation_keep(gml_reservation *reservation, uint64_t offset, uint64_t size_bytes);

/* A block at just this place; NULL where a byte of it is in use, its view is gone or not worth its
 * while any more, or the host has no memory. The place stays where it is until the reservation has
 * yielded. Hot. */
gml_placement *gml_reservation_take(gml_reservation *reservation, const gml_place *place,
                                    uint64_t size_bytes);

/* The end of a block that lives in the reservation. Hot. */
void gml_reservation_give(gml_reservation *reservation, gml_placement *placement);

/* See above. GML_NO_HOST_MEMORY; nothing changes then. */
gml_status gml_reservation_yield(gml_reservation *reservation);

#endif
