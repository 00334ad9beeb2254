/* PyTorch's rounding rules, as in its CUDACachingAllocator from 2.6 to 2.13. */
#include "policy/torch/rounding.h"

#include "base/rounding.h"

enum { FIRST_INTERVAL = 20 /* log2 of 1 MiB; smaller sizes use its divisions too */ };

static unsigned log2_floor(uint64_t value) {
    return 63U - (unsigned)__builtin_clzll(value);
}

/* The distance of the sizes that `size_bytes` is rounded to; 512 where no division applies. */
static uint64_t granule_of(const uint64_t *divisions, uint64_t size_bytes) {
    unsigned power = log2_floor(size_bytes);
    unsigned interval = power > FIRST_INTERVAL ? power - FIRST_INTERVAL : 0;
    if (interval >= GML_ROUNDUP_INTERVALS) {
        interval = GML_ROUNDUP_INTERVALS - 1;
    }
    uint64_t count = divisions[interval];
    if (count <= 1 || (size_bytes - 1) / GML_ALIGNMENT < count) {
        return GML_ALIGNMENT;
    }
    return (UINT64_C(1) << power) >> log2_floor(count);
}

uint64_t gml_torch_round(const uint64_t *divisions, uint64_t size_bytes) {
    return gml_round_up(size_bytes, granule_of(divisions, size_bytes));
}

uint64_t gml_torch_round_down(const gml_knobs *knobs, uint64_t block_bytes) {
    uint64_t granule_bytes = granule_of(knobs->roundup_power2_divisions, block_bytes);
    return block_bytes / granule_bytes * granule_bytes;
}

uint64_t gml_torch_segment_size(const gml_knobs *knobs, uint64_t rounded_bytes) {
    if (rounded_bytes <= GML_SMALL_LIMIT) {
        return GML_TORCH_SMALL_SEGMENT;
    }
    uint64_t least_bytes = gml_round_up(rounded_bytes, GML_TORCH_SEGMENT_GRANULE);
    if (rounded_bytes < GML_TORCH_LARGE_REQUEST && knobs->large_segment_size > least_bytes) {
        return knobs->large_segment_size;
    }
    return least_bytes;
}
