/* A recorded state of PyTorch's allocator, rebuilt in an empty heap of `caching`. */
#ifndef GML_POLICY_TORCH_CACHING_RESTORE_H
#define GML_POLICY_TORCH_CACHING_RESTORE_H

#include "policy/torch/heap.h"

/* Takes the segments from a driver that supports chosen addresses, and makes each recorded block
 * live; the gaps are free, except those of up to 1 MiB behind a block of a large segment, which are
 * that block's slack. Both lists are in ascending order. Errors: GML_CORRUPT for ranges that
 * overlap, lie outside or are not multiples of 512; GML_INVALID_ARGUMENT if the heap holds
 * anything; GML_UNSUPPORTED; those of a segment. */
gml_status gml_caching_restore(gml_policy *self, const gml_recorded_segment *segments,
                               size_t segment_count, const gml_recorded_block *blocks,
                               size_t block_count, gml_block **blocks_out);

#endif
