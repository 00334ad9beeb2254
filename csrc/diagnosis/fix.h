/* Memory as it would be with findings fixed.
 *
 * What a fix does to an object:
 * - early allocation: it lives from its earliest access on
 * - late deallocation, leak: it lives until its latest access; if nothing accesses it, no longer
 *   than right after its allocation
 * - unused allocation: it never lives
 * - temporary idleness: it is away between the two accesses, its content on the host. Not where
 *   another access to it lies between them in order of invocation
 * - overallocation: it is smaller by the bytes of the finding
 * - structured access: each slice lives on its own, from its earliest to its latest access. An
 *   object from before the trace lives from its start, a kept one to its end
 * - redundant allocation: it shares one memory with `other`, as large as the larger of both, from
 *   where `other` starts to where the later of both ends
 * - dead write, non-uniform frequency: the bytes that live stay the same
 *
 * Combined: fixes that shorten a life, make holes in it or shrink the object all count; a shared
 * memory has the holes of all its objects. Structured access leaves nothing to fixes that shorten a
 * life or make holes. Structured access excludes overallocation and redundant allocation, and the
 * reverse: the first counts. An object takes the memory of one other, and gives its own to one: the
 * first counts. Unused allocation leaves nothing to any other fix.
 *
 * Lives are stretches of moments, from `start` to before `end`: moment 0 lies before the first API,
 * moment a + 1 right after API a.
 */
#ifndef GML_DIAGNOSE_FIX_H
#define GML_DIAGNOSE_FIX_H

#include "diagnosis/index.h"

/* Both in moments. */
typedef struct gml_hole {
    uint64_t start, end;
    uint32_t next;
} gml_hole;

typedef struct gml_slice_life {
    uint64_t start, end, bytes;
} gml_slice_life;

/* A memory, and the object it belongs to. */
typedef struct gml_room {
    uint64_t start, end, bytes;
    uint32_t first_hole, last_hole; /* none: GML_NO_OBJECT */
    uint32_t host;                  /* the object whose room this one is part of: itself, or one
                                       nearer to the room that it ended in */
    uint32_t fixed;                 /* bit 1 << gml_pattern of each fix that excludes others */
    bool is_lent;                   /* another object lives in it, later */
    size_t first_slice, slice_count;
} gml_room;

typedef struct gml_fixes {
    const gml_trace_index *index;
    gml_room *rooms; /* of each object */
    gml_hole *holes;
    size_t hole_count, hole_capacity;
    gml_slice_life *slices;
    size_t slice_count, slice_capacity;
} gml_fixes;

/* Nothing is fixed. The caller closes it either way. */
gml_status gml_fixes_open(gml_fixes *fixes, const gml_trace_index *index);
void gml_fixes_close(gml_fixes *fixes);

/* Fixes a finding, unless it is excluded or changes nothing. Not of redundant allocation. */
gml_status gml_fixes_take(gml_fixes *fixes, const gml_finding *finding);

/* Reverts the fixes of the object that was fixed last. pre: no other was fixed since. */
void gml_fixes_drop(gml_fixes *fixes, uint32_t object);

/* The change: `bytes` more from `start` to before `end`. The range or the bytes may be empty. */
typedef void (*gml_stretch_sink)(void *state, uint64_t start, uint64_t end, int64_t bytes);

/* Tells the life of the object as it is in the trace. */
void gml_fixes_tell_life(const gml_fixes *fixes, uint32_t object, gml_stretch_sink sink,
                         void *state);

/* Tells what the fixes change in it, bytes times `sign`. pre: its room was not joined. */
void gml_fixes_tell_change(const gml_fixes *fixes, uint32_t object, int64_t sign,
                           gml_stretch_sink sink, void *state);

/* Whether a redundant allocation can be fixed after those that were: none excludes it, and all
 * accesses to `other` come before those to `object`. */
bool gml_fixes_may_lend(const gml_fixes *fixes, const gml_finding *finding);

/* From here on its fix excludes others. pre: gml_fixes_may_lend. */
void gml_fixes_lend(gml_fixes *fixes, const gml_finding *finding);

/* Tells what joining the two rooms changes, bytes times `sign`. */
void gml_fixes_tell_join(gml_fixes *fixes, const gml_finding *finding, int64_t sign,
                         gml_stretch_sink sink, void *state);

/* Joins the two rooms. pre: lent; and every fix that is left is a join. */
void gml_fixes_join(gml_fixes *fixes, const gml_finding *finding);

#endif
