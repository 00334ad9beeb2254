/* What each call took on an NVIDIA H200 (driver 580.159, CUDA 13.0): the medians of
 * benchmarks/results/driver_costs.json, which benchmarks/driver_costs.py made.
 *
 * set_access and unmap cost as much per handle in one call over many as in one call each (there:
 * 512 handles of 2 MiB, 11.6 against 11.9 ms and 10.4 against 10.6 ms), so a call over several
 * handles is charged for each of them. Between two measured sizes the cost is interpolated; beyond
 * the largest it grows in proportion.
 */
#include "driver/sim_cost.h"

#include <stddef.h>

#define MIB (UINT64_C(1) << 20)

enum {
    RESERVE_NS = 514,
    UNRESERVE_NS = 452,
    EVENT_CALL_NS = 370, /* 224 to 470, by call */
    MEMORY_INFO_NS = 4577,
};

/* Costs of one handle or plain block, in ns. */
typedef struct size_cost {
    uint64_t size_bytes, create_ns, map_ns, access_ns, unmap_ns, release_ns, malloc_ns, free_ns;
} size_cost;

static const size_cost measured[] = {
    {2 * MIB, 7053, 4658, 18957, 17178, 8931, 30677, 26819},
    {20 * MIB, 7279, 4669, 19187, 17293, 16864, 33641, 36597},
    {128 * MIB, 8183, 4698, 33901, 24503, 39825, 35365, 59746},
    {512 * MIB, 13286, 4829, 44650, 28528, 139489, 62816, 159826},
    {1024 * MIB, 19037, 4942, 57173, 33114, 258582, 78780, 292531},
    {2048 * MIB, 110987, 6027, 83600, 43083, 514800, 140688, 567512},
};

enum { MEASURED = sizeof measured / sizeof measured[0] };

/* The cost at `size_bytes` of one column of the table, given by its place in a row. */
static uint64_t
cost_at(uint64_t size_bytes, size_t column)
{
    const size_cost *low = &measured[0];
    const size_cost *high = low;
    for (size_t i = 1; i < MEASURED && size_bytes > high->size_bytes; i++) {
        low = high;
        high = &measured[i];
    }
    double at_low = (double)*(const uint64_t *)((const char *)low + column);
    double at_high = (double)*(const uint64_t *)((const char *)high + column);
    if (size_bytes <= low->size_bytes) {
        return (uint64_t)at_low;
    }
    if (size_bytes > high->size_bytes) {
        return (uint64_t)(at_high * (double)size_bytes / (double)high->size_bytes);
    }
    double share =
        (double)(size_bytes - low->size_bytes) / (double)(high->size_bytes - low->size_bytes);
    return (uint64_t)(at_low + share * (at_high - at_low));
}

uint64_t
gml_sim_cost_ns(gml_driver_call call, uint64_t size_bytes, uint64_t handles)
{
    uint64_t count = handles ? handles : 1;
    switch (call) {
    case GML_CALL_CREATE:
        return cost_at(size_bytes, offsetof(size_cost, create_ns));
    case GML_CALL_RELEASE:
        return cost_at(size_bytes, offsetof(size_cost, release_ns));
    case GML_CALL_RESERVE:
        return RESERVE_NS;
    case GML_CALL_UNRESERVE:
        return UNRESERVE_NS;
    case GML_CALL_MAP:
        return cost_at(size_bytes, offsetof(size_cost, map_ns));
    case GML_CALL_UNMAP:
        return cost_at(size_bytes / count, offsetof(size_cost, unmap_ns)) * count;
    case GML_CALL_SET_ACCESS:
        return cost_at(size_bytes / count, offsetof(size_cost, access_ns)) * count;
    case GML_CALL_MALLOC:
        return cost_at(size_bytes, offsetof(size_cost, malloc_ns));
    case GML_CALL_FREE:
        return cost_at(size_bytes, offsetof(size_cost, free_ns));
    case GML_CALL_MEMORY_INFO:
        return MEMORY_INFO_NS;
    default:
        return EVENT_CALL_NS;
    }
}
