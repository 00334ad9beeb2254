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

typedef enum sized_call {
    CREATE,
    MAP,
    SET_ACCESS,
    UNMAP,
    RELEASE,
    MALLOC,
    FREE,
    SIZED_CALLS
} sized_call;

/* Costs of one handle or plain block, in ns. */
static const struct {
    uint64_t size_bytes;
    uint64_t cost_ns[SIZED_CALLS];
} measured[] = {
    {2 * MIB, {7053, 4658, 18957, 17178, 8931, 30677, 26819}},
    {20 * MIB, {7279, 4669, 19187, 17293, 16864, 33641, 36597}},
    {128 * MIB, {8183, 4698, 33901, 24503, 39825, 35365, 59746}},
    {512 * MIB, {13286, 4829, 44650, 28528, 139489, 62816, 159826}},
    {1024 * MIB, {19037, 4942, 57173, 33114, 258582, 78780, 292531}},
    {2048 * MIB, {110987, 6027, 83600, 43083, 514800, 140688, 567512}},
};

enum { MEASURED = sizeof measured / sizeof measured[0] };

static uint64_t
cost_at(uint64_t size_bytes, sized_call call)
{
    size_t high = 0;
    while (high < MEASURED - 1 && size_bytes > measured[high].size_bytes) {
        high++;
    }
    double at_high = (double)measured[high].cost_ns[call];
    if (size_bytes > measured[high].size_bytes) {
        return (uint64_t)(at_high * (double)size_bytes / (double)measured[high].size_bytes);
    }
    if (high == 0) {
        return measured[0].cost_ns[call];
    }
    uint64_t low_bytes = measured[high - 1].size_bytes;
    double at_low = (double)measured[high - 1].cost_ns[call];
    double share =
        (double)(size_bytes - low_bytes) / (double)(measured[high].size_bytes - low_bytes);
    return (uint64_t)(at_low + share * (at_high - at_low));
}

uint64_t
gml_sim_cost_ns(gml_driver_call call, uint64_t size_bytes, uint64_t handles)
{
    uint64_t count = handles ? handles : 1;
    switch (call) {
    case GML_CALL_CREATE:
        return cost_at(size_bytes, CREATE);
    case GML_CALL_RELEASE:
        return cost_at(size_bytes, RELEASE);
    case GML_CALL_RESERVE:
        return RESERVE_NS;
    case GML_CALL_UNRESERVE:
        return UNRESERVE_NS;
    case GML_CALL_MAP:
        return cost_at(size_bytes, MAP);
    case GML_CALL_UNMAP:
        return cost_at(size_bytes / count, UNMAP) * count;
    case GML_CALL_SET_ACCESS:
        return cost_at(size_bytes / count, SET_ACCESS) * count;
    case GML_CALL_MALLOC:
        return cost_at(size_bytes, MALLOC);
    case GML_CALL_FREE:
        return cost_at(size_bytes, FREE);
    case GML_CALL_MEMORY_INFO:
        return MEMORY_INFO_NS;
    default:
        return EVENT_CALL_NS;
    }
}
