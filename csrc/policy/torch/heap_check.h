/* Checks of a torch heap: a recount of everything that it keeps incrementally. */
#ifndef GML_POLICY_TORCH_HEAP_CHECK_H
#define GML_POLICY_TORCH_HEAP_CHECK_H

#include "policy/torch/heap.h"

/* The totals of a walk over all blocks; the rows are [is_small]. */
typedef struct gml_torch_recount {
    uint64_t segments[2], reserved_bytes[2];
    uint64_t active[2], active_bytes[2];
    uint64_t inactive_split[2], inactive_split_bytes[2];
    uint64_t free_blocks, unmapped_blocks;
    uint64_t oversize_segments;
} gml_torch_recount;

/* Puts "<name> policy: <what> at <address>" into the driver's reason; returns GML_CORRUPT. */
gml_status gml_torch_corrupt(gml_torch_heap *heap, const char *what, gml_address address);

/* Blocks tile the segment, links agree, no two neighbours should have been merged; adds the blocks
 * to the recount. */
gml_status gml_torch_check_segment(gml_torch_heap *heap, const gml_torch_segment *segment,
                                   gml_torch_recount *recount);

/* Every tree is in order and together they hold exactly the idle blocks of the recount. */
gml_status gml_torch_check_lanes(gml_torch_heap *heap, const gml_torch_recount *recount);

/* The current values of all statistics are those of the recount. */
gml_status gml_torch_check_stats(gml_torch_heap *heap, const gml_torch_recount *recount);

#endif
