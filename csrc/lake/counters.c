/* The counters of a lake, and the text of a refusal. */
#include "base/rounding.h"
#include "lake/lake.h"

#include <inttypes.h>
#include <string.h>

static void
raise_peak(uint64_t *peak, uint64_t current)
{
    if (*peak < current) {
        *peak = current;
    }
}

static void
increase(gml_stat *stat, uint64_t amount)
{
    stat->current += amount;
    stat->allocated += amount;
    raise_peak(&stat->peak, stat->current);
}

static void
decrease(gml_stat *stat, uint64_t amount)
{
    stat->current -= amount;
    stat->freed += amount;
}

typedef void (*stat_change)(gml_stat *, uint64_t);

static void
count_pools(gml_stat stats[GML_POOL_COUNT], const gml_block *block, stat_change change,
            uint64_t amount)
{
    change(&stats[GML_POOL_ALL], amount);
    change(&stats[block->is_small ? GML_POOL_SMALL : GML_POOL_LARGE], amount);
}

/* What PyTorch counts from malloc to free; requested bytes go on until the memory may be reused. */
static void
count_allocated(gml_lake *lake, const gml_block *block, stat_change change)
{
    count_pools(lake->torch.allocation, block, change, 1);
    count_pools(lake->torch.allocated_bytes, block, change, block->block_bytes);
    if (block->block_bytes >= lake->max_split_size) {
        change(&lake->torch.oversize_allocations, 1);
    }
}

void
gml_lake_count_allocation(gml_lake *lake, gml_block *block)
{
    lake->stats.allocations++;
    lake->stats.states[block->state]++;
    gml_lake_count_begin(lake, block);
}

void
gml_lake_count_begin(gml_lake *lake, gml_block *block)
{
    block->is_let_go = false;
    gml_stats *stats = &lake->stats;
    stats->live_blocks++;
    stats->requested_bytes += block->requested_bytes;
    stats->live_bytes += gml_round_up(block->requested_bytes, GML_ALIGNMENT);
    raise_peak(&stats->peak_live_blocks, stats->live_blocks);
    raise_peak(&stats->peak_requested_bytes, stats->requested_bytes);
    raise_peak(&stats->peak_live_bytes, stats->live_bytes);
    count_allocated(lake, block, increase);
    count_pools(lake->torch.requested_bytes, block, increase, block->requested_bytes);
}

static void
count_let_go(gml_lake *lake, gml_block *block)
{
    if (!block->is_let_go) {
        block->is_let_go = true;
        count_allocated(lake, block, decrease);
    }
}

void
gml_lake_let_go(gml_lake *lake, gml_address address)
{
    pthread_mutex_lock(&lake->lock);
    gml_block *block = gml_map_find(&lake->blocks, address);
    if (block) {
        count_let_go(lake, block);
    }
    pthread_mutex_unlock(&lake->lock);
}

void
gml_lake_count_free(gml_lake *lake, gml_block *block)
{
    gml_stats *stats = &lake->stats;
    stats->frees++;
    stats->live_blocks--;
    stats->requested_bytes -= block->requested_bytes;
    stats->live_bytes -= gml_round_up(block->requested_bytes, GML_ALIGNMENT);
    count_let_go(lake, block);
    count_pools(lake->torch.requested_bytes, block, decrease, block->requested_bytes);
}

void
gml_lake_note_reserved(gml_lake *lake)
{
    raise_peak(&lake->stats.peak_reserved_bytes, lake->policy->reserved_bytes);
}

/* Fills what the policy and the driver hold themselves. */
static gml_stats
complete_stats(gml_lake *lake)
{
    gml_usage usage = {0};
    lake->policy->ops->usage(lake->policy, &usage);
    gml_stats stats = lake->stats;
    stats.reserved_bytes = lake->policy->reserved_bytes;
    stats.views = usage.views;
    stats.view_bytes = usage.view_bytes;
    stats.largest_free_bytes = usage.largest_free_bytes;
    memcpy(stats.driver_calls, lake->driver->calls, sizeof stats.driver_calls);
    stats.driver_time_ns = lake->driver->time_ns;
    return stats;
}

gml_status
gml_lake_stats(gml_lake *lake, gml_stats *out)
{
    pthread_mutex_lock(&lake->lock);
    *out = complete_stats(lake);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

gml_status
gml_lake_torch_stats(gml_lake *lake, gml_torch_stats *out)
{
    gml_status status = GML_OK;
    pthread_mutex_lock(&lake->lock);
    if (lake->policy->ops->torch_stats) {
        *out = lake->torch;
        lake->policy->ops->torch_stats(lake->policy, out);
    } else {
        status = gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                 "the policy %s keeps no statistics in PyTorch's form",
                                 lake->policy->ops->name);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_reset_peaks(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    gml_stats *stats = &lake->stats;
    stats->peak_live_blocks = stats->live_blocks;
    stats->peak_requested_bytes = stats->requested_bytes;
    stats->peak_live_bytes = stats->live_bytes;
    stats->peak_reserved_bytes = lake->policy->reserved_bytes;
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        lake->torch.allocation[pool].peak = lake->torch.allocation[pool].current;
        lake->torch.allocated_bytes[pool].peak = lake->torch.allocated_bytes[pool].current;
        lake->torch.requested_bytes[pool].peak = lake->torch.requested_bytes[pool].current;
    }
    lake->torch.oversize_allocations.peak = lake->torch.oversize_allocations.current;
    if (lake->policy->ops->reset_peaks) {
        lake->policy->ops->reset_peaks(lake->policy);
    }
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

void
gml_lake_explain_refusal(gml_lake *lake, uint64_t size_bytes)
{
    const double mib = 1024.0 * 1024.0;
    gml_stats stats = complete_stats(lake);
    uint64_t limit = lake->capacity_bytes ? lake->capacity_bytes : lake->driver->info.total_bytes;
    lake->stats.states[GML_STATE_OOM]++;
    lake->torch.num_ooms++;
    (void)gml_driver_fail(lake->driver, GML_OUT_OF_MEMORY,
                          "out of memory: %.1f MiB asked for; device %d has %.1f MiB, of which "
                          "%.1f MiB are live, %.1f MiB reserved, and %.1f MiB the largest request "
                          "that could be served",
                          (double)size_bytes / mib, lake->device, (double)limit / mib,
                          (double)stats.live_bytes / mib, (double)stats.reserved_bytes / mib,
                          (double)stats.largest_free_bytes / mib);
}
