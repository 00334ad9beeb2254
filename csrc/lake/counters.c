/* The counters of a lake: what is counted, and what is asked of policy and driver. */
#include "base/rounding.h"
#include "lake/lake.h"
#include "policy/torch/size.h"

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
    if (block->block_bytes >= lake->knobs.max_split_size) {
        change(&lake->torch.oversize_allocations, 1);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int
pool_of(const gml_block *block)
{
    return block->is_small ? GML_POOL_SMALL : GML_POOL_LARGE;
}

void
gml_lake_count_allocation(gml_lake *lake, gml_block *block)
{
    lake->stats.allocations++;
    lake->stats.states[block->state]++;
    gml_lake_count_begin(lake, block);
}

static void
raise_active_peaks(gml_lake *lake)
{
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        raise_peak(&lake->lingering.peak_active[pool], gml_lake_active_blocks(lake, pool));
        raise_peak(&lake->lingering.peak_active_bytes[pool], gml_lake_active_bytes(lake, pool));
    }
}

void
gml_lake_count_begin(gml_lake *lake, gml_block *block)
{
    block->is_let_go = block->is_exported = block->is_elastic = false;
    gml_stats *stats = &lake->stats;
    stats->live_blocks++;
    stats->requested_bytes += block->requested_bytes;
    stats->live_bytes += gml_round_up(block->requested_bytes, GML_ALIGNMENT);
    raise_peak(&stats->peak_live_blocks, stats->live_blocks);
    raise_peak(&stats->peak_requested_bytes, stats->requested_bytes);
    raise_peak(&stats->peak_live_bytes, stats->live_bytes);
    count_allocated(lake, block, increase);
    count_pools(lake->torch.requested_bytes, block, increase, block->requested_bytes);
    if (lake->lingering.count[GML_POOL_ALL]) {
        raise_active_peaks(lake);
    }
}

void
gml_lake_count_let_go(gml_lake *lake, gml_block *block)
{
    if (block->is_let_go) {
        return;
    }
    block->is_let_go = true;
    count_allocated(lake, block, decrease);
    lake->lingering.count[GML_POOL_ALL]++;
    lake->lingering.count[pool_of(block)]++;
    lake->lingering.bytes[GML_POOL_ALL] += block->block_bytes;
    lake->lingering.bytes[pool_of(block)] += block->block_bytes;
}

/* The end of a block that was let go before. */
static void
forget_lingering(gml_lake *lake, const gml_block *block)
{
    lake->lingering.count[GML_POOL_ALL]--;
    lake->lingering.count[pool_of(block)]--;
    lake->lingering.bytes[GML_POOL_ALL] -= block->block_bytes;
    lake->lingering.bytes[pool_of(block)] -= block->block_bytes;
}

void
gml_lake_let_go(gml_lake *lake, gml_address address)
{
    pthread_mutex_lock(&lake->lock);
    gml_block *block = gml_map_find(&lake->blocks, address);
    if (block) {
        gml_lake_count_let_go(lake, block);
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
    if (block->is_let_go) {
        forget_lingering(lake, block);
    } else {
        count_allocated(lake, block, decrease);
    }
    count_pools(lake->torch.requested_bytes, block, decrease, block->requested_bytes);
}

/* ---- what is reserved ------------------------------------------------------------------------ */

static void
move_to(gml_stat *stat, uint64_t value)
{
    if (value > stat->current) {
        increase(stat, value - stat->current);
    } else {
        decrease(stat, stat->current - value);
    }
}

static void
add_small(void *context, gml_pool_id id, gml_policy *policy)
{
    (void)id;
    *(uint64_t *)context += policy->small_bytes;
}

void
gml_lake_follow_reserved(gml_lake *lake)
{
    uint64_t reserved_bytes = gml_lake_reserved(lake);
    uint64_t small_bytes = lake->policy->small_bytes;
    lake->noted_small_bytes = small_bytes;
    /* A segment may have been given back for another of its size. */
    bool is_traded = lake->driver->given_count != lake->noted_given;
    lake->noted_given = lake->driver->given_count;
    gml_pools_each(&lake->pools, add_small, &small_bytes);
    gml_torch_stats *torch = &lake->torch;
    uint64_t before_bytes = torch->reserved_bytes[GML_POOL_ALL].current;
    if (lake->history.ring && (is_traded || before_bytes != reserved_bytes)) {
        gml_lake_note_segments(lake, before_bytes, reserved_bytes);
    }
    move_to(&torch->reserved_bytes[GML_POOL_ALL], reserved_bytes);
    move_to(&torch->reserved_bytes[GML_POOL_SMALL], small_bytes);
    move_to(&torch->reserved_bytes[GML_POOL_LARGE], reserved_bytes - small_bytes);
    move_to(&torch->segment[GML_POOL_ALL], lake->driver->sizes.count);
    move_to(&torch->segment[GML_POOL_LARGE], lake->driver->sizes.count);
    raise_peak(&lake->stats.peak_reserved_bytes, reserved_bytes);
}

/* ---- numbers for others ---------------------------------------------------------------------- */

/* Fills what the policy and the driver hold themselves. */
void
gml_lake_raise_highest(gml_stats *stats)
{
    raise_peak(&stats->highest_live_bytes, stats->peak_live_bytes);
    raise_peak(&stats->highest_reserved_bytes, stats->peak_reserved_bytes);
}

gml_stats
gml_lake_complete_stats(gml_lake *lake)
{
    gml_usage usage = {0};
    lake->policy->ops->usage(lake->policy, &usage);
    gml_stats stats = lake->stats;
    stats.reserved_bytes = gml_lake_reserved(lake);
    gml_lake_raise_highest(&stats);
    stats.views = usage.views;
    stats.view_bytes = usage.view_bytes;
    stats.largest_free_bytes = usage.largest_free_bytes;
    stats.cross_stream_waits = usage.cross_stream_waits;
    stats.borrowed_bytes = usage.borrowed_bytes;
    stats.deferred_free_bytes = lake->uses.pending_bytes;
    memcpy(stats.driver_calls, lake->driver->calls, sizeof stats.driver_calls);
    stats.driver_time_ns = lake->driver->time_ns;
    return stats;
}
