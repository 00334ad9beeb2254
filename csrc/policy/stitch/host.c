/* Memory of the host, before a request is refused.
 *
 * What the device lacks comes as chunks of the host's, which the device reaches over its link: the
 * same places, the same views, a block may lie partly on each side. They are the worst memory that
 * there is, so nothing but the request that would have been refused gets any. Its block belongs to
 * a stream cache of its own, in which nobody looks for free memory: when the block has ended, the
 * next request that no free extent holds, or one of the next hundreds, puts back what is the
 * device's, and gives the host's chunks back where the device has room instead of them. A step that
 * repeats where it has none finds them again.
 */
#include "base/rounding.h"
#include "base/size.h"
#include "policy/stitch/stitch.h"

/* ---- sorting --------------------------------------------------------------------------------- */

/* The end of the part of a free extent that begins at `begin` and lies on one side. */
static uint64_t side_end(const gml_base_range *range, const gml_extent *extent, uint64_t begin) {
    uint64_t end = extent->offset + extent->size_bytes;
    bool is_on_host = gml_base_range_is_on_host(range, begin);
    uint64_t at = begin;
    while (at < end && gml_base_range_is_on_host(range, at) == is_on_host) {
        at = gml_base_range_chunk_begin(range, at) + gml_base_range_chunk_bytes(range, at);
    }
    return at < end ? at : end;
}

/* Moves what is free in one stream cache of a stream, and lies on that side, to the other. */
static gml_status move_side(gml_stitch *stitch, const gml_stream_cache *from, gml_stream_cache *to,
                            bool is_on_host) {
    gml_base_range *range = &stitch->range;
    gml_status status = GML_OK;
    uint64_t at = 0, all_bytes = range->slots * range->granule_bytes;
    while (at < all_bytes && status == GML_OK) {
        const gml_extent *extent = gml_base_range_find(range, at);
        uint64_t end = extent->offset + extent->size_bytes;
        if (extent->kind == GML_EXTENT_FREE && extent->set == &from->set) {
            bool is_wanted = gml_base_range_is_on_host(range, at) == is_on_host;
            end = side_end(range, extent, at);
            status = is_wanted ? gml_base_range_prepare(range, 2) : GML_OK;
            if (is_wanted && status == GML_OK) {
                (void)gml_base_range_move(range, at, end - at, &to->set, extent->instant);
            }
        }
        at = end;
    }
    return status;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Releases the chunks that are free in the stream cache and used by no work, as far as the device
 * has room for what they served. */
static gml_status give_back(gml_stitch *stitch, gml_stream_cache *host) {
    gml_freeset_index(&host->set);
    gml_status status = GML_OK;
    gml_tree_node *node = gml_tree_first(&host->set.wholes);
    while (node && status == GML_OK) {
        const gml_extent *extent = gml_extent_of_whole(node);
        node = gml_tree_next(node);
        uint64_t begin = extent->whole.address, end = begin + extent->whole.size_bytes;
        if (!gml_fence_is_over(&stitch->fences, extent->instant) ||
            gml_cost_model_room(&stitch->range) < end - begin) {
            continue;
        }
        uint64_t released_bytes = 0;
        status = gml_trim_views(stitch, begin, end);
        if (status == GML_OK) {
            status = gml_base_range_shrink(&stitch->range, extent, 0, &released_bytes);
        }
    }
    return status;
}

gml_status gml_host_settle(gml_stitch *stitch, gml_stream_cache *cache) {
    gml_stream_cache *host = cache->host;
    if (!host) {
        return GML_OK;
    }
    gml_stream_cache_flush(stitch, host);
    gml_status status = move_side(stitch, host, cache, false);
    if (status == GML_OK) {
        status = move_side(stitch, cache, host, true); /* a slab's */
    }
    if (status == GML_OK && host->set.free_bytes && !gml_driver_is_frozen(stitch->policy.driver)) {
        gml_share_look(stitch, cache);
        status = give_back(stitch, host);
    }
    return status;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Takes what the device still has of *missing_bytes. What is said to be free can be too much: the
 * driver wants some itself, and others take. */
static gml_status take_device(gml_stitch *stitch, gml_stream_cache *cache,
                              uint64_t *missing_bytes) {
    uint64_t granule_bytes = stitch->range.granule_bytes;
    uint64_t part_bytes = gml_least(gml_cost_model_room(&stitch->range), *missing_bytes);
    gml_status status = GML_OUT_OF_MEMORY;
    for (; part_bytes >= granule_bytes && status == GML_OUT_OF_MEMORY; part_bytes /= 2) {
        uint64_t had_bytes = cache->set.whole_bytes;
        status = gml_stitch_grow(stitch, cache, part_bytes - part_bytes % granule_bytes, false);
        uint64_t got_bytes = cache->set.whole_bytes - had_bytes; /* some of it after a failure */
        *missing_bytes -= gml_least(got_bytes, *missing_bytes);
    }
    return status == GML_OUT_OF_MEMORY ? GML_OK : status;
}

gml_status gml_host_grow(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                         bool may_divide) {
    gml_base_range *range = &stitch->range;
    size_bytes = gml_round_up(size_bytes, range->granule_bytes);
    gml_status status = may_divide ? take_device(stitch, cache, &size_bytes) : GML_OK;
    if (status != GML_OK || !size_bytes) {
        return status;
    }
    if (size_bytes > range->host_limit - range->host_bytes) {
        return gml_driver_fail(stitch->policy.driver, GML_OUT_OF_MEMORY,
                               "%s of the host's memory are held, of %s, and %s more are wanted",
                               gml_size_of(range->host_bytes).text,
                               gml_size_of(range->host_limit).text, gml_size_of(size_bytes).text);
    }
    range->takes_host = true;
    status = gml_base_range_grow(range, size_bytes, range->largest_bytes, false, &cache->set);
    range->takes_host = false;
    return status;
}

gml_status gml_host_begin(gml_stitch *stitch, gml_stream_cache *cache) {
    gml_status status = gml_stream_cache_add_host(stitch, cache);
    if (status == GML_OK) {
        gml_stream_cache_flush(stitch, cache->host);
        status = move_side(stitch, cache->host, cache, false);
    }
    return status == GML_OK ? move_side(stitch, cache->host, cache, true) : status;
}

gml_status gml_host_end(gml_stitch *stitch, gml_stream_cache *cache, gml_placement *placement) {
    bool is_there = false;
    for (size_t i = 0; placement && i < placement->run_count && !is_there; i++) {
        const gml_run *run = &placement->runs[i];
        uint64_t end = run->offset + run->size_bytes;
        for (uint64_t at = run->offset; at < end && !is_there;
             at = gml_base_range_chunk_begin(&stitch->range, at) +
                  gml_base_range_chunk_bytes(&stitch->range, at)) {
            is_there = gml_base_range_is_on_host(&stitch->range, at);
        }
    }
    if (is_there) {
        placement->cache->user_count--;
        placement->cache = cache->host;
        cache->host->user_count++;
    }
    return move_side(stitch, cache, cache->host, true);
}
