/* The counters as others see them: as a whole, in PyTorch's form, and in the text of a refusal. */
#include "base/size.h"
#include "lake/lake.h"

#include <stdio.h>

gml_status
gml_lake_stats(gml_lake *lake, gml_stats *out)
{
    pthread_mutex_lock(&lake->lock);
    *out = gml_lake_complete_stats(lake);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

/* ---- in PyTorch's form ----------------------------------------------------------------------- */

/* From malloc to the end of the last use. */
static gml_stat
active_stat(const gml_stat *allocated, uint64_t lingering, uint64_t peak)
{
    return (gml_stat){
        .current = allocated->current + lingering,
        .peak = peak > allocated->peak ? peak : allocated->peak,
        .allocated = allocated->allocated,
        .freed = allocated->freed - lingering,
    };
}

/* What is reserved and not active. `seen` keeps the peak of what was looked at. */
static gml_stat
idle_stat(const gml_stat *reserved, const gml_stat *active, gml_stat *seen)
{
    gml_stat idle = {
        .current = reserved->current > active->current ? reserved->current - active->current : 0,
        .allocated = reserved->allocated + active->freed,
        .freed = reserved->freed + active->allocated,
    };
    seen->peak = seen->peak > idle.current ? seen->peak : idle.current;
    idle.peak = seen->peak;
    return idle;
}

static void
fill_pool_row(gml_lake *lake, int pool, gml_torch_stats *out)
{
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
static void
add_ladder(gml_policy *policy, gml_torch_stats *out)
{
    if (policy->ops->torch_stats) {
        gml_torch_stats own = {0};
        policy->ops->torch_stats(policy, &own);
        out->num_alloc_retries += own.num_alloc_retries;
    }
}

/* Of the lake as a whole, whoever serves. */
static void
fill_torch_stats(gml_lake *lake, gml_torch_stats *out)
{
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

gml_status
gml_lake_torch_stats(gml_lake *lake, gml_torch_stats *out)
{
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

static void
reset_torch_peaks(gml_lake *lake)
{
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

gml_status
gml_lake_reset_peaks(gml_lake *lake)
{
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
    gml_lake_show(lake);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

/* ---- a refusal ------------------------------------------------------------------------------- */

void
gml_lake_explain_refusal(gml_lake *lake, uint64_t size_bytes)
{
    gml_stats stats = gml_lake_complete_stats(lake);
    uint64_t limit = GML_DEVICE_READ(lake->driver->device, limit_bytes);
    limit = limit ? limit : lake->driver->info.total_bytes;
    char margin[64] = "";
    if (lake->driver->margin_bytes) {
        (void)snprintf(margin, sizeof margin, "; %s are left to others",
                       gml_size_of(lake->driver->margin_bytes).text);
    }
    lake->stats.states[GML_STATE_OOM]++;
    lake->torch.num_ooms++;
    (void)gml_driver_fail(lake->driver, GML_OUT_OF_MEMORY,
                          "out of memory: %s asked for; device %d has %s, of which %s are live, "
                          "%s reserved, and %s the largest request that could be served%s",
                          gml_size_of(size_bytes).text, lake->device, gml_size_of(limit).text,
                          gml_size_of(stats.live_bytes).text,
                          gml_size_of(stats.reserved_bytes).text,
                          gml_size_of(stats.largest_free_bytes).text, margin);
}

void
gml_lake_explain_waking(gml_lake *lake)
{
    gml_driver *driver = lake->driver;
    uint64_t free_bytes = 0, total_bytes = 0;
    uint64_t awake_bytes = GML_DEVICE_READ(driver->device, held_bytes);
    uint64_t limit_bytes = GML_DEVICE_READ(driver->device, limit_bytes);
    char limit[96] = "";
    if (limit_bytes) {
        (void)snprintf(limit, sizeof limit, "; all may hold %s, by capacity or fraction",
                       gml_size_of(limit_bytes).text);
    }
    (void)gml_driver_memory_info(driver, &free_bytes, &total_bytes);
    (void)gml_driver_fail(driver, GML_OUT_OF_MEMORY,
                          "out of memory: waking needs %s; of %s %s are free, gmlake holds %s "
                          "awake, and others the rest%s",
                          gml_size_of(driver->held_bytes).text, gml_size_of(total_bytes).text,
                          gml_size_of(free_bytes).text, gml_size_of(awake_bytes).text, limit);
}

static uint64_t
difference(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

void
gml_lake_look(gml_lake *lake, gml_situation *out)
{
    gml_situation now = {0};
    pthread_mutex_lock(&lake->lock);
    gml_driver *driver = lake->driver;
    gml_stats stats = gml_lake_complete_stats(lake);
    now.policy = lake->policy->ops->name;
    now.has_pools = gml_pools_reserved(&lake->pools) > 0;
    now.is_capturing = gml_driver_is_frozen(driver);
    now.is_arena = driver->arena_bytes > 0;
    now.is_region = lake->sleeper != NULL;
    now.limit_bytes = GML_DEVICE_READ(driver->device, limit_bytes);
    now.margin_bytes = driver->margin_bytes;
    now.others_bytes = difference(GML_DEVICE_READ(driver->device, held_bytes), driver->held_bytes);
    now.pending_bytes = lake->uses.pending_bytes;
    now.live_bytes = difference(stats.live_bytes, lake->uses.pending_bytes);
    now.live_blocks = difference(stats.live_blocks, lake->uses.pending_count);
    now.reserved_bytes = stats.reserved_bytes;
    now.idle_bytes = difference(stats.reserved_bytes, stats.live_bytes);
    now.largest_bytes = stats.largest_free_bytes;
    gml_driver_begin_undo(driver); /* the reason of the refusal stays */
    if (gml_driver_memory_info(driver, &now.free_bytes, &now.total_bytes) != GML_OK) {
        now.total_bytes = 0;
    }
    gml_driver_end_undo(driver);
    pthread_mutex_unlock(&lake->lock);
    *out = now;
}
