/* The tops of the placed items, over the slots: segments of equal height, and the lowest of them.
 *
 * A segment is identified by its first slot. Heights only rise.
 */
#ifndef GML_PLANNER_SKYLINE_H
#define GML_PLANNER_SKYLINE_H

#include "gmlake.h"

#include <stddef.h>
#include <stdint.h>

#define GML_NO_SEGMENT UINT32_MAX

typedef struct gml_segment {
    uint64_t height;
    uint32_t next; /* where the next one begins; 0: no segment begins here */
    uint32_t previous;
} gml_segment;

typedef struct gml_skyline_entry {
    uint64_t height;
    uint32_t slot;
} gml_skyline_entry;

typedef struct gml_skyline {
    gml_segment *segments;   /* by first slot, and one more, infinitely high */
    gml_skyline_entry *heap; /* every segment; also stale entries, merged or lower since */
    size_t heap_count, heap_room;
    uint32_t slots;
} gml_skyline;

/* GML_NO_HOST_MEMORY. `slots` is at least 1. */
gml_status gml_skyline_open(gml_skyline *skyline, uint32_t slots);
void gml_skyline_close(gml_skyline *skyline);

/* Heights by slot; NULL: all 0. GML_NO_HOST_MEMORY, as for all that may add a segment. */
gml_status gml_skyline_reset(gml_skyline *skyline, const uint64_t *heights);

/* Takes the lowest segment, the first of equal ones, from the heap. pre: none is taken out. */
uint32_t gml_skyline_take(gml_skyline *skyline);

/* Raises [begin, end) inside the taken segment `at` by `size_bytes`. *taken: a segment of the old
 * height that is left, taken; or GML_NO_SEGMENT. */
gml_status gml_skyline_raise(gml_skyline *skyline, uint32_t at, uint32_t begin, uint32_t end,
                             uint64_t size_bytes, uint32_t *taken);

/* How far the segment is below its lower neighbour. pre: it has one. */
uint64_t gml_skyline_depth(const gml_skyline *skyline, uint32_t at);

/* Raises the taken segment to its lower neighbour. pre: it has one. */
gml_status gml_skyline_lift(gml_skyline *skyline, uint32_t at);

#endif
