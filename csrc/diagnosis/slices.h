/* The slices of an object: which of its elements the APIs access, and which APIs belong together.
 *
 * Two APIs that access a common element belong to the same slice, and so do all that such pairs
 * connect. Slices share no element, hence no byte. A TOUCHES access is one to all of its ranges.
 */
#ifndef GML_DIAGNOSE_SLICES_H
#define GML_DIAGNOSE_SLICES_H

#include "diagnosis/index.h"
#include "diagnosis/spans.h"

typedef struct gml_slice {
    uint64_t bytes;            /* of the elements that it accesses */
    uint64_t earliest, latest; /* APIs, in order of invocation */
    double element_accesses;   /* how often its elements are accessed, summed up */
} gml_slice;

/* All zero: empty. May be used for one object after the other. */
typedef struct gml_slices {
    gml_slice *items; /* by `earliest`, ascending */
    size_t count;     /* 0: no accesses, or too_large */
    uint64_t element_count;
    uint64_t accessed_elements;
    uint64_t largest_gap; /* elements: the longest unaccessed run */
    uint64_t unaccessed_bytes;
    bool has_touches; /* what its APIs access is known in part */
    bool too_large;   /* beyond the limits of spans.h: all unknown */

    /* its own */
    gml_sheet sheet;
    gml_slice *by_owner; /* an owner is an API that accesses the object */
    uint32_t *parents;   /* joins owners */
    size_t capacity;
} gml_slices;

/* skips_fills: see gml_index_fills(). GML_NO_HOST_MEMORY. */
gml_status gml_slices_find(gml_slices *slices, const gml_trace_index *index, uint32_t object,
                           bool skips_fills);
void gml_slices_clear(gml_slices *slices);

#endif
