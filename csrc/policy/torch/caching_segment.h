/* The segments of `caching`: taken from the device whole, released whole. */
#ifndef GML_POLICY_TORCH_CACHING_SEGMENT_H
#define GML_POLICY_TORCH_CACHING_SEGMENT_H

#include "policy/torch/heap.h"

/* Takes a segment from the device and makes it one free block. Errors: GML_OUT_OF_MEMORY, also
 * where the capacity would be exceeded; GML_NO_HOST_MEMORY; GML_DRIVER_FAILED. */
gml_status gml_caching_segment_add(gml_torch_heap *heap, gml_torch_lane *lane, uint64_t size_bytes,
                                   gml_torch_block **out);

/* The three ways in which PyTorch releases cached blocks. Only free blocks that are a whole segment
 * can be released. Each continues after a driver failure and returns the first. */

/* Garbage collection: once reserved memory passes the threshold, frees large blocks that were not
 * asked for in a long while, until it is below again. */
gml_status gml_caching_collect(gml_torch_heap *heap);

/* With a max_split_size: frees oversize blocks of this stream, the least that fits the request or
 * else the largest ones. *enough tells whether they add up to the request. */
gml_status gml_caching_release_oversize(gml_torch_heap *heap, const gml_torch_request *request,
                                        bool *enough);

/* Synchronises if there is anything to free, and frees all it can. */
gml_status gml_caching_release_all(gml_torch_heap *heap);

/* See gml_torch_rules. */
gml_status gml_caching_give(gml_torch_heap *heap, uint64_t wanted_bytes, bool *is_pending);
uint64_t gml_caching_idle_bytes(const gml_torch_heap *heap);

#endif
