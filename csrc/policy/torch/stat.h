/* The counters of torch.cuda.memory_stats(): current, peak, and the totals gone up and down. */
#ifndef GML_POLICY_TORCH_STAT_H
#define GML_POLICY_TORCH_STAT_H

#include "gmlake.h"

static inline void gml_torch_stat_raise(gml_stat *stat, uint64_t amount) {
    stat->current += amount;
    stat->allocated += amount;
    if (stat->current > stat->peak) {
        stat->peak = stat->current;
    }
}

static inline void gml_torch_stat_lower(gml_stat *stat, uint64_t amount) {
    stat->current -= amount;
    stat->freed += amount;
}

static inline int gml_torch_pool(bool is_small) {
    return is_small ? GML_POOL_SMALL : GML_POOL_LARGE;
}

/* The two rows that a pool's block counts in: all, and its own. */
static inline void gml_torch_stats_raise(gml_stat stats[GML_POOL_COUNT], bool is_small,
                                         uint64_t amount) {
    gml_torch_stat_raise(&stats[GML_POOL_ALL], amount);
    gml_torch_stat_raise(&stats[gml_torch_pool(is_small)], amount);
}

static inline void gml_torch_stats_lower(gml_stat stats[GML_POOL_COUNT], bool is_small,
                                         uint64_t amount) {
    gml_torch_stat_lower(&stats[GML_POOL_ALL], amount);
    gml_torch_stat_lower(&stats[gml_torch_pool(is_small)], amount);
}

/* PyTorch applies the net change only: an increase and a decrease that cancel out leave no trace.
 */
static inline void gml_torch_stats_change(gml_stat stats[GML_POOL_COUNT], bool is_small,
                                          uint64_t raise, uint64_t lower) {
    if (raise > lower) {
        gml_torch_stats_raise(stats, is_small, raise - lower);
    } else if (lower > raise) {
        gml_torch_stats_lower(stats, is_small, lower - raise);
    }
}

/* Peaks start again from the current values. */
void gml_torch_stats_reset_peaks(gml_torch_stats *stats);

#endif
