/* Measured times of each call on an NVIDIA H100 and an H200 (driver 580.159, CUDA 13.0): the
 * medians of benchmarks/results/driver_costs_h100.json and driver_costs.json, which
 * benchmarks/driver_costs.py made.
 *
 * set_access and unmap cost as much per handle in one call over many as in one call each (H200: 512
 * handles of 2 MiB, 11.6 against 11.9 ms and 10.4 against 10.6 ms), so a call over several handles
 * is charged for each of them. Between two measured sizes the cost is interpolated; beyond the
 * largest it grows in proportion.
 */
#include "driver/sim_cost.h"

#include <stddef.h>

#define MIB (UINT64_C(1) << 20)

/* Calls whose cost depends on the size; the others come first. */
typedef enum sized_call {
    UNSIZED,
    CREATE,
    MAP,
    SET_ACCESS,
    UNMAP,
    RELEASE,
    MALLOC,
    FREE
} sized_call;

enum { MEASURED = 6 };

static const uint64_t measured_bytes[MEASURED] = {2 * MIB,   20 * MIB,   128 * MIB,
                                                  512 * MIB, 1024 * MIB, 2048 * MIB};

struct gml_sim_prices {
    const char *name;
    uint64_t cost_ns[MEASURED][FREE]; /* of one handle or plain block */
    uint64_t reserve_ns, unreserve_ns, event_call_ns, memory_info_ns;
    /* The cost of a call between the kernels of a program, in per cent of its cost alone: the
     * median over the runs of benchmarks/results/gpu_varying.json, which differ by a fourth. */
    uint64_t in_program_percent;
};

static const gml_sim_prices h100 = {
    "NVIDIA H100",
    {{11675, 7473, 25864, 23850, 10825, 40593, 36295},
     {12885, 8335, 29276, 26617, 22876, 57281, 58846},
     {9848, 5699, 36449, 27839, 45825, 57553, 75337},
     {14890, 5487, 47307, 31275, 145042, 68689, 175154},
     {27143, 5808, 61607, 36549, 299388, 88877, 321707},
     {418063, 17452, 158878, 72249, 799352, 330796, 696057}},
    .reserve_ns = 645,
    .unreserve_ns = 579,
    .event_call_ns = 480,
    .memory_info_ns = 6700,
    .in_program_percent = 125,
};

static const gml_sim_prices h200 = {
    "NVIDIA H200",
    {{7053, 4658, 18957, 17178, 8931, 30677, 26819},
     {7279, 4669, 19187, 17293, 16864, 33641, 36597},
     {8183, 4698, 33901, 24503, 39825, 35365, 59746},
     {13286, 4829, 44650, 28528, 139489, 62816, 159826},
     {19037, 4942, 57173, 33114, 258582, 78780, 292531},
     {110987, 6027, 83600, 43083, 514800, 140688, 567512}},
    .reserve_ns = 514,
    .unreserve_ns = 452,
    .event_call_ns = 370, /* 224 to 470, by call */
    .memory_info_ns = 4577,
    .in_program_percent = 155,
};

const gml_sim_prices *gml_sim_prices_of(uint64_t capacity_bytes) {
    const uint64_t most_of_h100 = UINT64_C(96) * 1024 * MIB;
    return capacity_bytes > most_of_h100 ? &h200 : &h100;
}

const char *gml_sim_prices_name(const gml_sim_prices *prices) {
    return prices->name;
}

static uint64_t cost_at(const gml_sim_prices *prices, uint64_t size_bytes, sized_call call) {
    size_t high = 0;
    while (high < MEASURED - 1 && size_bytes > measured_bytes[high]) {
        high++;
    }
    double at_high = (double)prices->cost_ns[high][call - 1];
    if (size_bytes > measured_bytes[high]) {
        return (uint64_t)(at_high * (double)size_bytes / (double)measured_bytes[high]);
    }
    if (high == 0) {
        return prices->cost_ns[0][call - 1];
    }
    uint64_t low_bytes = measured_bytes[high - 1];
    double at_low = (double)prices->cost_ns[high - 1][call - 1];
    double share = (double)(size_bytes - low_bytes) / (double)(measured_bytes[high] - low_bytes);
    return (uint64_t)(at_low + share * (at_high - at_low));
}

static const sized_call sized_calls[GML_CALL_COUNT] = {
    [GML_CALL_CREATE] = CREATE, [GML_CALL_MAP] = MAP,         [GML_CALL_SET_ACCESS] = SET_ACCESS,
    [GML_CALL_UNMAP] = UNMAP,   [GML_CALL_RELEASE] = RELEASE, [GML_CALL_MALLOC] = MALLOC,
    [GML_CALL_FREE] = FREE,
};

static uint64_t cost_alone(const gml_sim_prices *prices, gml_driver_call call, uint64_t size_bytes,
                           uint64_t handles) {
    uint64_t count = handles ? handles : 1;
    if (sized_calls[call]) {
        return cost_at(prices, size_bytes / count, sized_calls[call]) * count;
    }
    switch (call) {
    case GML_CALL_RESERVE:
        return prices->reserve_ns;
    case GML_CALL_UNRESERVE:
        return prices->unreserve_ns;
    case GML_CALL_MEMORY_INFO:
        return prices->memory_info_ns;
    default:
        return prices->event_call_ns;
    }
}

uint64_t gml_sim_cost_ns(const gml_sim_prices *prices, gml_driver_call call, uint64_t size_bytes,
                         uint64_t handles) {
    return cost_alone(prices, call, size_bytes, handles) * prices->in_program_percent / 100;
}
