/* The counters of a lake: its own, those of policy and driver, as gml_stats and as PyTorch's
 * statistics. */
#include "base/rounding.h"
#include "lake/lake.h"
#include "policy/torch/rounding.h"

#include <string.h>

static void raise_peak(uint64_t *peak, uint64_t current) {
    if (*peak < current) {
        *peak = current;
    }
}

static void increase(gml_stat *stat, uint64_t amount) {
    stat->current += amount;
    stat->allocated += amount;
    raise_peak(&stat->peak, stat->current);
}

static void decrease(gml_stat *stat, uint64_t amount) {
    stat->current -= amount;
    stat->freed += amount;
}

typedef void (*stat_change)(gml_stat *, uint64_t);

static void count_pools(gml_stat stats[GML_POOL_COUNT], const gml_block *block, stat_change change,
                        uint64_t amount) {
    change(&stats[GML_POOL_ALL], amount);
    change(&stats[block->is_small ? GML_POOL_SMALL : GML_POOL_LARGE], amount);
}

/* PyTorch's counters from malloc to free; requested bytes count until the memory may be reused. */
static void count_allocated(gml_lake *lake, const gml_block *block, stat_change change) {
    count_pools(lake->torch.allocation, block, change, 1);
    count_pools(lake->torch.allocated_bytes, block, change, block->block_bytes);
    if (block->block_bytes >= lake->knobs.max_split_size) {
        change(&lake->torch.oversize_allocations, 1);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static int pool_of(const gml_block *block) {
    return block->is_small ? GML_POOL_SMALL : GML_POOL_LARGE;
}

static void raise_active_peaks(gml_lake *lake) {
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        raise_peak(&lake->lingering.peak_active[pool], gml_lake_active_blocks(lake, pool));
        raise_peak(&lake->lingering.peak_active_bytes[pool], gml_lake_active_bytes(lake, pool));
    }
}

void gml_lake_count_allocation(gml_lake *lake, gml_block *block) {
    block->is_let_go = block->is_exported = block->is_elastic = false;
    gml_stats *stats = &lake->stats;
    stats->allocations++;
    stats->states[block->state]++;
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

void gml_lake_count_let_go(gml_lake *lake, gml_block *block) {
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
static void forget_lingering(gml_lake *lake, const gml_block *block) {
    lake->lingering.count[GML_POOL_ALL]--;
    lake->lingering.count[pool_of(block)]--;
    lake->lingering.bytes[GML_POOL_ALL] -= block->block_bytes;
    lake->lingering.bytes[pool_of(block)] -= block->block_bytes;
}

void gml_lake_let_go(gml_lake *lake, gml_address address) {
    pthread_mutex_lock(&lake->lock);
    gml_block *block = gml_map_find(&lake->blocks, address);
    if (block) {
        gml_lake_count_let_go(lake, block);
    }
    pthread_mutex_unlock(&lake->lock);
}

void gml_lake_count_free(gml_lake *lake, gml_block *block) {
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

static void move_to(gml_stat *stat, uint64_t value) {
    if (value > stat->current) {
        increase(stat, value - stat->current);
    } else {
        decrease(stat, stat->current - value);
    }
}

static void add_small(void *context, const gml_heap *heap) {
    *(uint64_t *)context += heap->turn ? 0 : heap->policy->small_bytes;
}

void gml_lake_follow_reserved(gml_lake *lake) {
    uint64_t reserved_bytes = gml_lake_reserved(lake);
    uint64_t small_bytes = lake->policy->small_bytes;
    lake->noted_small_bytes = small_bytes;
    gml_pools_each_heap(&lake->pools, add_small, &small_bytes);
    gml_torch_stats *torch = &lake->torch;
    uint64_t before_bytes = torch->reserved_bytes[GML_POOL_ALL].current;
    if (lake->history.ring) {
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
void gml_lake_raise_highest(gml_stats *stats) {
    raise_peak(&stats->highest_live_bytes, stats->peak_live_bytes);
    raise_peak(&stats->highest_reserved_bytes, stats->peak_reserved_bytes);
}

gml_stats gml_lake_complete_stats(gml_lake *lake) {
    gml_usage usage = {0};
    lake->policy->ops->usage(lake->policy, &usage);
    gml_stats stats = lake->stats;
    stats.reserved_bytes = gml_lake_reserved(lake);
    gml_lake_raise_highest(&stats);
    stats.highest_shared_bytes = GML_DEVICE_READ(lake->driver->device, highest_bytes);
    stats.host_bytes = lake->driver->host_bytes;
    stats.views = usage.views;
    stats.view_bytes = usage.view_bytes;
    stats.largest_free_bytes = usage.largest_free_bytes;
    stats.cross_stream_waits = usage.cross_stream_waits;
    stats.borrowed_bytes = usage.borrowed_bytes;
    stats.deferred_free_bytes = lake->uses.pending_bytes;
    memcpy(stats.driver_calls, lake->driver->calls, sizeof stats.driver_calls);
    memcpy(stats.driver_call_ns, lake->driver->call_ns, sizeof stats.driver_call_ns);
    stats.driver_time_ns = gml_driver_time_ns(lake->driver);
    return stats;
}

gml_status gml_lake_stats(gml_lake *lake, gml_stats *out) {
    pthread_mutex_lock(&lake->lock);
    *out = gml_lake_complete_stats(lake);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

/* ---- in PyTorch's form ----------------------------------------------------------------------- */

/* From malloc to the end of the last use. */
static gml_stat active_stat(const gml_stat *allocated, uint64_t lingering, uint64_t peak) {
    return (gml_stat){
        .current = allocated->current + lingering,
        .peak = peak > allocated->peak ? peak : allocated->peak,
        .allocated = allocated->allocated,
        .freed = allocated->freed - lingering,
    };
}

/* Reserved and not active. `seen` keeps the peak of the values read. */
static gml_stat idle_stat(const gml_stat *reserved, const gml_stat *active, gml_stat *seen) {
    gml_stat idle = {
        .current = reserved->current > active->current ? reserved->current - active->current : 0,
        .allocated = reserved->allocated + active->freed,
        .freed = reserved->freed + active->allocated,
    };
    seen->peak = seen->peak > idle.current ? seen->peak : idle.current;
    idle.peak = seen->peak;
    return idle;
}

static void fill_pool_row(gml_lake *lake, int pool, gml_torch_stats *out) {
    const gml_lingering *lingering = &lake->lingering;
    out->active[pool] = active_stat(&lake->torch.allocation[pool], lingering->count[pool],
                                    lingering->peak_active[pool]);
    out->active_bytes[pool] =
        active_stat(&lake->torch.allocated_bytes[pool], lingering->bytes[pool],
                    lingering->peak_active_bytes[pool]);
    out->inactive_split_bytes[pool] =
        idle_stat(&out->reserved_bytes[pool], &out->active_bytes[pool],
                  &lake->torch.inactive_split_bytes[pool]);
}

/* Adds what a policy that models PyTorch has counted of its own ladder. */
static void add_ladder(gml_policy *policy, gml_torch_stats *out) {
    if (policy->ops->torch_stats) {
        gml_torch_stats own = {0};
        policy->ops->torch_stats(policy, &own);
        out->num_alloc_retries += own.num_alloc_retries;
    }
}

/* Of the lake as a whole, for policy and pools. */
static void fill_torch_stats(gml_lake *lake, gml_torch_stats *out) {
    const uint64_t *calls = lake->driver->calls;
    uint64_t max_split_size = lake->knobs.max_split_size;
    gml_lake_follow_reserved(lake);
    *out = lake->torch;
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        fill_pool_row(lake, pool, out);
    }
    add_ladder(lake->policy, out);
    out->num_sync_all_streams = calls[GML_CALL_DEVICE_SYNCHRONIZE];
    out->num_device_alloc = calls[GML_CALL_CREATE] + calls[GML_CALL_MALLOC];
    out->num_device_free = calls[GML_CALL_RELEASE] + calls[GML_CALL_FREE];
    out->max_split_size = max_split_size > INT64_MAX ? -1 : (int64_t)max_split_size;
}

gml_status gml_lake_torch_stats(gml_lake *lake, gml_torch_stats *out) {
    pthread_mutex_lock(&lake->lock);
    bool is_alone = gml_list_is_empty(&lake->pools.all);
    if (is_alone && lake->policy->ops->torch_stats) {
        *out = lake->torch;
        lake->policy->ops->torch_stats(lake->policy, out);
    } else {
        fill_torch_stats(lake, out);
    }
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

static void reset_torch_peaks(gml_lake *lake) {
    gml_torch_stats *torch = &lake->torch;
    gml_lake_follow_reserved(lake);
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        torch->allocation[pool].peak = torch->allocation[pool].current;
        torch->allocated_bytes[pool].peak = torch->allocated_bytes[pool].current;
        torch->requested_bytes[pool].peak = torch->requested_bytes[pool].current;
        torch->reserved_bytes[pool].peak = torch->reserved_bytes[pool].current;
        torch->segment[pool].peak = torch->segment[pool].current;
        torch->inactive_split_bytes[pool].peak = 0;
        lake->lingering.peak_active[pool] = gml_lake_active_blocks(lake, pool);
        lake->lingering.peak_active_bytes[pool] = gml_lake_active_bytes(lake, pool);
    }
    torch->oversize_allocations.peak = torch->oversize_allocations.current;
}

gml_status gml_lake_reset_peaks(gml_lake *lake) {
    pthread_mutex_lock(&lake->lock);
    gml_stats *stats = &lake->stats;
    reset_torch_peaks(lake);
    gml_lake_raise_highest(stats);
    stats->peak_live_blocks = stats->live_blocks;
    stats->peak_requested_bytes = stats->requested_bytes;
    stats->peak_live_bytes = stats->live_bytes;
    stats->peak_reserved_bytes = gml_lake_reserved(lake);
    if (lake->policy->ops->reset_peaks) {
        lake->policy->ops->reset_peaks(lake->policy);
    }
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}
