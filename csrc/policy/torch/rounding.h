/* PyTorch's size rules: the rounded size of a request, and the size taken from the device.
 */
#ifndef GML_POLICY_TORCH_ROUNDING_H
#define GML_POLICY_TORCH_ROUNDING_H

#include "policy/policy.h"

enum {
    GML_TORCH_SMALL_SEGMENT = 2 << 20,  /* segment, or granule, of the small pools */
    GML_TORCH_LARGE_REQUEST = 10 << 20, /* from here on a request gets a segment of its own */
    GML_TORCH_SEGMENT_GRANULE = 2 << 20,
};

/* `size_bytes` above 0, rounded up to a multiple of 512 or, by roundup_power2_divisions (see
 * gml_knobs), to the next division of its power of two. */
uint64_t gml_torch_round(const uint64_t *divisions, uint64_t size_bytes);

/* The largest size that gml_torch_round() leaves at or below `block_bytes`, a multiple of 512. */
uint64_t gml_torch_round_down(const gml_knobs *knobs, uint64_t block_bytes);

/* The segment that PyTorch would ask of the device to serve a rounded size. */
uint64_t gml_torch_segment_size(const gml_knobs *knobs, uint64_t rounded_bytes);

#endif
