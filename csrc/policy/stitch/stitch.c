/* The policy `stitch`: base range and views (GMLake, ASPLOS 2024, with permanent base
 * addresses).
 */
#include "policy/stitch/stitch.h"

#include "base/rounding.h"
#include "base/size.h"
#include "base/status.h"
#include "core/mapping.h"

#include <inttypes.h>
#include <stdlib.h>

#define DEFAULT_GRANULE_BYTES (UINT64_C(2) << 20)

enum { LAST_ATTEMPTS = 3 }; /* at closing there is no later moment */

/* The size of the smallest chunk, or 0 with a reason. */
static uint64_t choose_granule(gml_driver *driver, const gml_knobs *knobs) {
    uint64_t granularity = driver->info.granularity_bytes;
    if (!knobs->chunk_size) {
        return gml_round_up(DEFAULT_GRANULE_BYTES, granularity);
    }
    if (knobs->chunk_size % granularity) {
        (void)gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                              "chunk_size is %s, but must be a multiple of the device's "
                              "granularity of %s",
                              gml_exact_size_of(knobs->chunk_size).text,
                              gml_exact_size_of(granularity).text);
        return 0;
    }
    return knobs->chunk_size;
}

static void init_parts(gml_stitch *stitch, const gml_knobs *knobs) {
    stitch->frag_limit = knobs->frag_limit;
    stitch->max_views = knobs->max_views;
    const gml_fence_rules rules = {
        .follows_events = knobs->reuse_allow_internal_dependencies,
        .is_opportunistic = knobs->reuse_allow_opportunistic,
        .may_wait = knobs->reuse_allow_internal_dependencies,
        .most_waits = knobs->borrow_waits,
    };
    gml_fences_init(&stitch->fences, stitch->policy.driver, &rules);
    stitch->placements.object_bytes = sizeof(gml_placement);
    gml_small_init(stitch);
    gml_list_init(&stitch->caches);
    gml_list_init(&stitch->idle_views);
    gml_list_init(&stitch->pending_unmaps);
}

/* The most that a policy of that capacity may hold. */
static uint64_t limit_of(const gml_driver *driver, uint64_t capacity_bytes) {
    uint64_t limit = driver->arena_bytes ? driver->arena_bytes : driver->info.total_bytes;
    return capacity_bytes && capacity_bytes < limit ? capacity_bytes : limit;
}

static gml_status create(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs,
                         gml_policy **out) {
    if (!driver->info.has_virtual_memory) {
        return gml_driver_fail(driver, GML_UNSUPPORTED,
                               "this device has no virtual memory management; name a capacity, or "
                               "arena, and one allocation of that size serves in place of it");
    }
    uint64_t limit = limit_of(driver, capacity_bytes);
    uint64_t granule_bytes = choose_granule(driver, knobs);
    if (!granule_bytes) {
        return GML_INVALID_ARGUMENT;
    }
    if (limit < granule_bytes) {
        return gml_driver_fail(
            driver, GML_INVALID_ARGUMENT, "a capacity of %s does not hold one chunk of %s",
            gml_exact_size_of(limit).text, gml_exact_size_of(granule_bytes).text);
    }
    gml_stitch *stitch = calloc(1, sizeof *stitch);
    if (!stitch) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for the policy");
    }
    stitch->policy = (gml_policy){.ops = &gml_stitch_policy, .driver = driver};
    init_parts(stitch, knobs);
    gml_cost_model_init(&stitch->costs, (gml_optimize_for)knobs->optimize_for, driver->can_sleep,
                        knobs->chunk_size, granule_bytes, limit);
    gml_status status = gml_base_range_open(
        &stitch->range, driver, granule_bytes, limit / granule_bytes,
        gml_stitch_has_views(stitch) && driver->ops->take_host ? knobs->host : 0);
    if (status != GML_OK) {
        free(stitch);
        return status;
    }
    stitch->policy.chunk_bytes = gml_stitch_has_views(stitch) ? granule_bytes : 0;
    *out = &stitch->policy;
    return GML_OK;
}

enum { MOST_HALVINGS = 6 }; /* of a private pool's range of addresses */

/* Before addresses run out, those that many pools reserve do: each is content with less then. */
static gml_status create_private(gml_driver *driver, uint64_t capacity_bytes,
                                 const gml_knobs *knobs, gml_policy **out) {
    gml_knobs own = *knobs;
    own.optimize_for = GML_OPTIMIZE_FOR_MEMORY;
    own.host = 0; /* a graph would use it for ever */
    own.reuse_allow_opportunistic = 0;
    own.reuse_allow_internal_dependencies = 0;
    uint64_t limit = limit_of(driver, capacity_bytes);
    gml_status status = GML_OUT_OF_MEMORY;
    for (int i = 0; i <= MOST_HALVINGS && status == GML_OUT_OF_MEMORY; i++) {
        status = create(driver, limit >> i, &own, out);
    }
    if (status == GML_OK) {
        gml_stitch_of(*out)->is_private = true;
    }
    return status;
}

/* Frees every block, so that only idle views are left. */
static void flush_all(gml_stitch *stitch) {
    gml_stream_caches_flush(stitch);
    const gml_extent *extent = gml_base_range_find(&stitch->range, 0);
    while (extent) {
        if (extent->kind == GML_EXTENT_USED) {
            uint64_t offset = extent->offset;
            gml_placement_retire(stitch, extent->owner);
            extent = gml_base_range_find(&stitch->range, offset);
        } else {
            extent = extent->next;
        }
    }
}

static gml_status destroy(gml_policy *self) {
    gml_stitch *stitch = gml_stitch_of(self);
    gml_status first = gml_synchronize_finally(self->driver);
    flush_all(stitch);
    while (!gml_list_is_empty(&stitch->idle_views)) {
        /* An unmap that the driver refuses is pending, and tried again below. */
        (void)gml_view_destroy(stitch, gml_view_of_idle(stitch->idle_views.next));
    }
    for (int i = 0; i < LAST_ATTEMPTS && !gml_list_is_empty(&stitch->pending_unmaps); i++) {
        gml_status status = gml_view_unmap_pending(stitch);
        if (i + 1 == LAST_ATTEMPTS) {
            first = gml_first_failure(first, status);
        }
    }
    gml_view_abandon_pending(stitch);
    gml_stream_caches_close(stitch);
    gml_fences_close(&stitch->fences);
    first = gml_first_failure(first, gml_base_range_close(&stitch->range));
    gml_pool_clear(&stitch->placements);
    gml_pool_clear(&stitch->pieces);
    gml_pool_clear(&stitch->slabs);
    gml_map_clear(&stitch->slab_at);
    free(stitch->scratch);
    free(stitch);
    return first;
}

static gml_status allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream,
                           gml_block **out) {
    gml_stitch *stitch = gml_stitch_of(self);
    uint64_t block_bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    gml_stream_cache *cache;
    gml_block *block = NULL;
    gml_status status = gml_stream_cache_find(stitch, stream, &cache);
    if (status == GML_OK) {
        cache->seeker.requests++;
    }
    if (status == GML_OK && block_bytes <= GML_SMALL_LIMIT) {
        status = gml_small_allocate(stitch, cache, block_bytes, &block);
    } else if (status == GML_OK) {
        gml_placement *placement = NULL;
        status = gml_stitch_place(stitch, cache, block_bytes, false, &placement);
        block = placement ? &placement->block : NULL;
    }
    if (block) {
        block->requested_bytes = size_bytes;
        *out = block;
    }
    return status;
}

static void free_block(gml_policy *self, gml_block *block) {
    gml_stitch *stitch = gml_stitch_of(self);
    gml_placement *ended[GML_SLABS_TOUCHED] = {(gml_placement *)(void *)block};
    size_t count = block->is_small ? gml_small_free(stitch, block, ended) : 1;
    for (size_t i = 0; i < count; i++) {
        gml_placement_end(stitch, ended[i]);
    }
}

static gml_status find_chunk(gml_policy *self, gml_address address, gml_chunk *out) {
    const gml_base_range *range = &gml_stitch_of(self)->range;
    uint64_t offset = address - range->base;
    if (offset >= range->slots * range->granule_bytes) {
        return gml_driver_fail(self->driver, GML_UNSUPPORTED,
                               "0x%" PRIx64 " lies in no chunk of the policy", address);
    }
    uint64_t begin = gml_base_range_chunk_begin(range, offset);
    gml_handle handle =
        gml_driver_handle_below(self->driver, range->handles[begin / range->granule_bytes]);
    *out = (gml_chunk){range->base + begin, gml_base_range_chunk_bytes(range, offset), handle};
    return handle ? GML_OK
                  : gml_driver_fail(self->driver, GML_UNSUPPORTED,
                                    "no memory is held at 0x%" PRIx64, address);
}

const gml_policy_ops gml_stitch_policy = {
    .name = "stitch",
    .help = "gmlake's own: splits and merges, and stitches free chunks where no free range fits",
    .create = create,
    .create_private = create_private,
    .destroy = destroy,
    .can_serve_arena = true,
    .allocate = allocate,
    .free = free_block,
    .trim = gml_stitch_trim,
    .give = gml_stitch_give,
    .idle_bytes = gml_stitch_idle_bytes,
    .usage = gml_stitch_usage,
    .check = gml_stitch_check,
    .visit = gml_stitch_visit,
    .chunk = find_chunk,
    .take_chunk = gml_stitch_take_chunk,
    .live_chunks = gml_stitch_live_chunks,
    .stream_pairs = gml_share_pairs,
    .save = gml_stitch_save,
    .prepare_restore = gml_stitch_prepare_restore,
    .restore_to = gml_stitch_restore_to,
};
