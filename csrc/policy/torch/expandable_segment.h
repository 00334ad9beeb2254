/* The segments of `expandable`: one large reservation of addresses, backed granule by granule.
 *
 * A granule is the memory behind one handle, mapped at its own place in the reservation. It is
 * backed while it serves mapped blocks. A granule that has a handle and is not backed is a stray: a
 * driver call failed half-way. Strays count as reserved, serve the next mapping of their place, and
 * are released by the next sweep.
 */
#ifndef GML_POLICY_TORCH_EXPANDABLE_SEGMENT_H
#define GML_POLICY_TORCH_EXPANDABLE_SEGMENT_H

#include "policy/torch/heap.h"

typedef enum gml_granule {
    GML_GRANULE_ABSENT, /* no handle */
    GML_GRANULE_BACKED,
    GML_GRANULE_LOOSE, /* a stray that is not mapped */
    GML_GRANULE_STUCK, /* a stray that is still mapped */
} gml_granule;

typedef struct gml_expandable_segment {
    gml_torch_segment base;
    uint64_t granule_bytes;
    size_t room;           /* length of the two arrays, in granules; behind it all are absent */
    gml_handle *handles;   /* by place; 0 where absent */
    gml_granule *granules; /* by place */
    size_t handle_count;
    size_t backed_count;
} gml_expandable_segment;

/* Reserves 1 1/8 of the device's memory for the lane, as one unmapped block. */
gml_status gml_expandable_segment_open(gml_torch_heap *heap, gml_torch_lane *lane,
                                       gml_expandable_segment **out);

/* The bytes that gml_expandable_segment_open() would reserve. */
uint64_t gml_expandable_segment_span(const gml_torch_heap *heap, bool is_small);

/* Gives up the reservation of a segment that is one unmapped block without strays. */
gml_status gml_expandable_segment_close(gml_torch_heap *heap, gml_expandable_segment *segment);

/* Releases everything, from any state; continues after a failure and returns the first. */
gml_status gml_expandable_segment_abandon(gml_torch_heap *heap, gml_expandable_segment *segment);

/* Backs the granules from place `first` on, which are not backed: all of them or none. Errors:
 * GML_OUT_OF_MEMORY, also where the capacity would be exceeded; GML_NO_HOST_MEMORY; those of the
 * driver. */
gml_status gml_expandable_back(gml_torch_heap *heap, gml_expandable_segment *segment, size_t first,
                               size_t count);

/* Takes the memory from under backed granules, in ascending order, once the device is idle.
 * *unbacked counts those that are no longer backed, also on failure. */
gml_status gml_expandable_unback(gml_torch_heap *heap, gml_expandable_segment *segment,
                                 size_t first, size_t count, size_t *unbacked);

/* Releases strays to the driver; continues after a failure and returns the first. */
gml_status gml_expandable_sweep(gml_torch_heap *heap, gml_expandable_segment *segment);

#endif
