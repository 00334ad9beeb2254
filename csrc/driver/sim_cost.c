/* Model figures from publications. Nothing here was measured by us.
 *
 * [T1] GMLake (ASPLOS 2024), Table 1: the time to build a 2 GB allocation out of 2 MB, 128 MB or
 *      1024 MB chunks, call by call, as multiples of the time of one 2 GB cuMemAlloc:
 *          cuMemAddressReserve   0.003   0.003   0.002    once
 *          cuMemCreate          18.1     0.89    0.79     per chunk: 1024, 16, 2 times
 *          cuMemMap              0.70    0.01    0.002    per chunk
 *          cuMemSetAccess       96.8     8.2     0.7      per chunk
 * [I]  GMLake's issue tracker: mapping and opening 512 MB in 2 MiB pieces takes 20 ms. By [T1]
 *      that is 256 / 1024 * (0.70 + 96.8) = 24.4 cuMemAlloc, so one 2 GB cuMemAlloc is 820 us.
 *
 * Between the three sizes of [T1] the cost of a chunk is interpolated, outside it is that of the
 * nearest. No publication gives the cost of one cuMemSetAccess over several handles: it is charged
 * like one call per handle, which favours no policy. For the rest there is no figure at all; each
 * assumption is marked [A].
 */
#include "driver/sim_cost.h"

#include <stddef.h>

#define MIB (UINT64_C(1) << 20)

enum {
    RESERVE_NS = 2460,      /* [T1] 0.003 x 820 us; [A] unreserve the same */
    MALLOC_2GB_NS = 820000, /* [I] */
    MALLOC_LEAST_NS = 2460, /* [A] no cheaper than the cheapest call of [T1] */
    SMALL_CALL_NS = 1000,   /* [A] events, streams, memory_info: the order of an empty call */
};

/* Cost of one chunk, in ns, at the sizes of [T1]. */
typedef struct chunk_cost {
    uint64_t size_bytes;
    uint64_t create_ns; /* 18.1 / 1024, 0.89 / 16, 0.79 / 2, times 820 us */
    uint64_t map_ns;    /* 0.70 / 1024, 0.01 / 16, 0.002 / 2, times 820 us */
    uint64_t access_ns; /* 96.8 / 1024, 8.2 / 16, 0.7 / 2, times 820 us */
} chunk_cost;

static const chunk_cost published[] = {
    {2 * MIB, 14494, 561, 77516},
    {128 * MIB, 45613, 513, 420250},
    {1024 * MIB, 323900, 820, 287000},
};

enum { PUBLISHED = sizeof published / sizeof published[0] };

static uint64_t
between(uint64_t at, uint64_t from, uint64_t to, uint64_t value_from, uint64_t value_to)
{
    double share = (double)(at - from) / (double)(to - from);
    double value = (double)value_from + share * ((double)value_to - (double)value_from);
    return (uint64_t)value;
}

static chunk_cost
cost_of_chunk(uint64_t size_bytes)
{
    if (size_bytes <= published[0].size_bytes) {
        return published[0];
    }
    for (size_t i = 1; i < PUBLISHED; i++) {
        const chunk_cost *low = &published[i - 1];
        const chunk_cost *high = &published[i];
        if (size_bytes <= high->size_bytes) {
            uint64_t from = low->size_bytes;
            uint64_t to = high->size_bytes;
            return (chunk_cost){
                .size_bytes = size_bytes,
                .create_ns = between(size_bytes, from, to, low->create_ns, high->create_ns),
                .map_ns = between(size_bytes, from, to, low->map_ns, high->map_ns),
                .access_ns = between(size_bytes, from, to, low->access_ns, high->access_ns),
            };
        }
    }
    return published[PUBLISHED - 1];
}

/* [A] in proportion to the size, from the one point that is published. */
static uint64_t
cost_of_malloc(uint64_t size_bytes)
{
    double scaled = (double)size_bytes / (double)(2048 * MIB) * MALLOC_2GB_NS;
    return scaled > MALLOC_LEAST_NS ? (uint64_t)scaled : MALLOC_LEAST_NS;
}

uint64_t
gml_sim_cost_ns(gml_driver_call call, uint64_t size_bytes, uint64_t handles)
{
    uint64_t count = handles ? handles : 1;
    chunk_cost chunk = cost_of_chunk(size_bytes / count);
    switch (call) {
    case GML_CALL_CREATE:
    case GML_CALL_RELEASE: /* [A] as create */
        return chunk.create_ns;
    case GML_CALL_RESERVE:
    case GML_CALL_UNRESERVE:
        return RESERVE_NS;
    case GML_CALL_MAP:
        return chunk.map_ns;
    case GML_CALL_UNMAP: /* [A] as set_access: both rewrite page tables */
    case GML_CALL_SET_ACCESS:
        return chunk.access_ns * count;
    case GML_CALL_MALLOC:
    case GML_CALL_FREE: /* [A] as malloc */
        return cost_of_malloc(size_bytes);
    default:
        return SMALL_CALL_NS;
    }
}
