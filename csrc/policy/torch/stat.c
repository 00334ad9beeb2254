/* The slow part of stat.h. */
#include "policy/torch/stat.h"

static void reset_peaks(gml_stat stats[GML_POOL_COUNT]) {
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        stats[pool].peak = stats[pool].current;
    }
}

void gml_torch_stats_reset_peaks(gml_torch_stats *stats) {
    reset_peaks(stats->allocation);
    reset_peaks(stats->segment);
    reset_peaks(stats->active);
    reset_peaks(stats->inactive_split);
    reset_peaks(stats->allocated_bytes);
    reset_peaks(stats->reserved_bytes);
    reset_peaks(stats->active_bytes);
    reset_peaks(stats->inactive_split_bytes);
    reset_peaks(stats->requested_bytes);
    stats->oversize_allocations.peak = stats->oversize_allocations.current;
    stats->oversize_segments.peak = stats->oversize_segments.current;
}
