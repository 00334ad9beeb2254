/* The segments of `caching`: taken from the device whole, given back whole. */
#ifndef GML_POLICY_TORCH_CACHING_SEGMENT_H
#define GML_POLICY_TORCH_CACHING_SEGMENT_H

#include "policy/torch/heap.h"

/* Takes a segment from the device and makes it one free block. Errors: GML_OUT_OF_MEMORY, also
 * where the capacity would be exceeded; GML_NO_HOST_MEMORY; GML_DRIVER_FAILED. */
gml_status gml_caching_segment_add(gml_torch_heap *heap, gml_torch_lane *lane, uint64_t size_bytes,
                                   gml_torch_block **out);

/* The three ways in which PyTorch gives cached blocks back. Only free blocks that are a whole
 * segment can go. Each goes on after a failure of the driver and returns the first. */

/* Garbage collection: once reserved memory passes the threshold, frees large blocks that were not
 * asked for in a long while, until it is below again. */
gml_status gml_caching_collect(gml_torch_heap *heap);

/* With a max_split_size: frees oversize blocks of this stream, the least that fits the request or
 * else the largest ones. *enough tells whether they add up to the request. */
gml_status gml_caching_release_oversize(gml_torch_heap *heap, const gml_torch_request *request,
                                        bool *enough);

/* Synchronises if there is anything to free, and frees everything that can go. */
gml_status gml_caching_release_all(gml_torch_heap *heap);

#endif
