/* The life of a placement: made over one extent, ended, retired; and idle views, which serve no
 * block and are indexed by their size. */
#include "policy/stitch/stitch.h"

#include <stdlib.h>

gml_placement *gml_placement_new(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes) {
    gml_placement *placement = gml_pool_take(&stitch->placements);
    if (!placement) {
        (void)gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a placement");
        return NULL;
    }
    placement->cache = cache;
    cache->user_count++;
    placement->block.block_bytes = size_bytes;
    placement->runs = &placement->only_run;
    placement->run_count = 1;
    return placement;
}

void gml_placement_release(gml_stitch *stitch, gml_placement *placement) {
    placement->cache->user_count--;
    if (placement->runs != &placement->only_run) {
        free(placement->runs);
    }
    gml_pool_give(&stitch->placements, placement);
}

void gml_placement_claim(gml_stitch *stitch, gml_placement *placement) {
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_run *run = &placement->runs[i];
        run->extent = gml_base_range_claim(&stitch->range, run->offset, run->size_bytes, placement);
    }
    placement->state = GML_PLACEMENT_LIVE;
}

gml_status gml_placement_fit(gml_stitch *stitch, gml_stream_cache *cache, uint64_t offset,
                             uint64_t size_bytes, gml_placement **out) {
    gml_status status = gml_base_range_prepare(&stitch->range, 2);
    if (status != GML_OK) {
        return status;
    }
    gml_placement *placement = gml_placement_new(stitch, cache, size_bytes);
    if (!placement) {
        return GML_NO_HOST_MEMORY;
    }
    placement->only_run.offset = offset;
    placement->only_run.size_bytes = size_bytes;
    placement->block.address = stitch->range.base + offset;
    gml_placement_claim(stitch, placement);
    *out = placement;
    return GML_OK;
}

void gml_placement_end(gml_stitch *stitch, gml_placement *placement) {
    gml_stream_cache *cache = placement->cache;
    stitch->live_bytes -= placement->block.block_bytes;
    placement->freed = gml_fence_now(&stitch->fences);
    if (placement->view) {
        gml_stream_cache_flush(stitch, cache);
        placement->state = GML_PLACEMENT_CACHED;
        cache->cached = placement;
    } else {
        gml_placement_retire(stitch, placement);
    }
    if (!stitch->live_bytes) {
        /* A repetition begins from the same state, whichever view the one before freed last. */
        gml_stream_caches_flush(stitch);
        stitch->is_empty = true;
    }
}

void gml_placement_retire(gml_stitch *stitch, gml_placement *placement) {
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_base_range_unclaim(&stitch->range, placement->runs[i].extent, &placement->cache->set,
                               placement->freed);
        placement->runs[i].extent = NULL;
    }
    if (placement->view) {
        gml_idle_view_add(stitch, placement);
    } else {
        gml_placement_release(stitch, placement);
    }
}

/* ---- idle views ------------------------------------------------------------------------------ */

static gml_placement *of_age(gml_tree_node *node) {
    return (gml_placement *)(void *)((char *)node - offsetof(gml_placement, by_age));
}

void gml_idle_view_add(gml_stitch *stitch, gml_placement *placement) {
    placement->state = GML_PLACEMENT_IDLE;
    placement->by_age.size_bytes = placement->block.block_bytes;
    gml_tree_insert(&stitch->idle, &placement->by_age);
    gml_list_append(&stitch->idle_views, &placement->idle);
}

void gml_idle_view_unindex(gml_stitch *stitch, gml_placement *placement) {
    gml_tree_remove(&stitch->idle, &placement->by_age);
}

void gml_idle_view_remove(gml_stitch *stitch, gml_placement *placement) {
    gml_idle_view_unindex(stitch, placement);
    gml_list_remove(&placement->idle);
}

static bool is_all_free(const gml_base_range *range, const gml_stream_cache *cache,
                        const gml_placement *placement) {
    bool is_free = true;
    for (size_t i = 0; i < placement->run_count && is_free; i++) {
        const gml_run *run = &placement->runs[i];
        const gml_extent *extent = gml_base_range_find(range, run->offset);
        is_free = extent->kind == GML_EXTENT_FREE && extent->set == &cache->set &&
                  run->offset + run->size_bytes <= extent->offset + extent->size_bytes;
    }
    return is_free;
}

gml_placement *gml_idle_view_find(const gml_stitch *stitch, const gml_stream_cache *cache,
                                  uint64_t size_bytes) {
    gml_tree_node *node = gml_tree_at_least(&stitch->idle, size_bytes, 0);
    while (node && node->size_bytes == size_bytes &&
           !is_all_free(&stitch->range, cache, of_age(node))) {
        node = gml_tree_next(node);
    }
    return node && node->size_bytes == size_bytes ? of_age(node) : NULL;
}
