/* Giving memory back to the driver. */
#include "policy/stitch/stitch.h"

/* Whether an extent has chunks that may go from `floor` on: wholly free, and used by no work. */
static bool has_chunks_to_give(const gml_stitch *stitch, const gml_extent *extent, uint64_t floor) {
    return extent->kind == GML_EXTENT_FREE && extent->whole.size_bytes &&
           gml_fence_is_over(&stitch->fences, extent->instant) &&
           extent->whole.address + extent->whole.size_bytes > floor;
}

/* Whether a chunk in [floor, ceiling) that the idle view maps is about to go. */
static bool loses_chunk(const gml_stitch *stitch, const gml_placement *placement, uint64_t floor,
                        uint64_t ceiling) {
    const gml_base_range *range = &stitch->range;
    for (size_t i = 0; i < placement->run_count; i++) {
        const gml_run *run = &placement->runs[i];
        uint64_t end = gml_base_range_boundary(range, run->offset + run->size_bytes);
        uint64_t begin = gml_base_range_chunk_begin(range, run->offset);
        begin = begin > floor ? begin : floor;
        end = end < ceiling ? end : ceiling;
        const gml_extent *extent = begin < end ? gml_base_range_find(range, begin) : NULL;
        for (; extent && extent->offset < end; extent = extent->next) {
            if (has_chunks_to_give(stitch, extent, begin) && extent->whole.address < end) {
                return true;
            }
        }
    }
    return false;
}

gml_status gml_trim_views(gml_stitch *stitch, uint64_t floor, uint64_t ceiling) {
    gml_status status = GML_OK;
    for (gml_link *link = stitch->idle_views.next;
         link != &stitch->idle_views && status == GML_OK;) {
        gml_placement *placement = gml_view_of_idle(link);
        link = link->next;
        if (loses_chunk(stitch, placement, floor, ceiling)) {
            status = gml_view_destroy(stitch, placement);
        }
    }
    return status;
}

/* Releases every whole chunk that is free in `cache`. */
static gml_status release_chunks(gml_stitch *stitch, gml_stream_cache *cache,
                                 uint64_t *released_bytes) {
    gml_status status = GML_OK;
    while (status == GML_OK && cache->set.whole_bytes) {
        gml_freeset_index(&cache->set);
        gml_extent *extent = gml_extent_of_whole(gml_tree_last(&cache->set.wholes));
        status = gml_base_range_shrink(&stitch->range, extent, 0, released_bytes);
    }
    return status;
}

/* The last extent that is present, or NULL. */
static gml_extent *last_present(const gml_base_range *range) {
    gml_extent *last = gml_base_range_find(range, range->slots * range->granule_bytes - 1);
    return last->kind == GML_EXTENT_ABSENT ? last->previous : last;
}

/* The bytes of the last chunks that are wholly free, whichever streams own their parts. */
static uint64_t count_idle_end(const gml_base_range *range) {
    const gml_extent *extent = last_present(range);
    uint64_t end = extent ? extent->offset + extent->size_bytes : 0, begin = end;
    for (; extent && extent->kind == GML_EXTENT_FREE; extent = extent->previous) {
        begin = extent->offset;
    }
    return end - gml_base_range_boundary(range, begin);
}

/* In an arena only the chunks at its end are released, one after the other: releasing others would
 * return nothing to the device, and memory behind a hole cannot be stitched to memory before it.
 * pre: streams share no chunk that is free. */
static gml_status release_end(gml_stitch *stitch, uint64_t *released_bytes) {
    gml_status status = GML_OK;
    while (status == GML_OK && count_idle_end(&stitch->range)) {
        gml_extent *last = last_present(&stitch->range);
        gml_freeset_index(last->set);
        status = gml_base_range_shrink(&stitch->range, last, 0, released_bytes);
    }
    return status;
}

/* The bytes of chunks that are wholly free, whichever streams own their parts. */
static uint64_t count_idle_bytes(const gml_base_range *range) {
    uint64_t idle_bytes = 0;
    const gml_extent *extent = gml_base_range_find(range, 0);
    while (extent) {
        uint64_t begin = extent->offset;
        bool is_free = extent->kind == GML_EXTENT_FREE;
        while (is_free && extent->next && extent->next->kind == GML_EXTENT_FREE) {
            extent = extent->next;
        }
        uint64_t first = gml_base_range_boundary(range, begin);
        uint64_t last = gml_base_range_chunk_begin(range, extent->offset + extent->size_bytes);
        idle_bytes += is_free && last > first ? last - first : 0;
        extent = extent->next;
    }
    return idle_bytes;
}

/* Joins free neighbours of different streams that meet inside a chunk, so that the chunk is whole
 * in one of them. pre: all that was freed is complete. */
static void join_shared_chunks(gml_stitch *stitch) {
    gml_base_range *range = &stitch->range;
    gml_extent *extent = gml_base_range_find(range, 0);
    while (extent->next) {
        gml_extent *next = extent->next;
        bool meet = extent->kind == GML_EXTENT_FREE && next->kind == GML_EXTENT_FREE &&
                    gml_base_range_chunk_begin(range, next->offset) != next->offset;
        extent = meet ? gml_base_range_move(range, next->offset, next->size_bytes, extent->set, 0)
                      : next;
    }
}

/* The second half of trim(), once there is something to release. */
static gml_status give_back(gml_stitch *stitch, uint64_t *released_bytes) {
    bool is_done;
    gml_status status = gml_stitch_wait(stitch, NULL, &is_done);
    if (status != GML_OK || !is_done) {
        return status;
    }
    status = gml_view_unmap_pending(stitch);
    if (status == GML_OK) {
        join_shared_chunks(stitch);
        status = gml_trim_views(stitch, 0, UINT64_MAX);
    }
    if (status == GML_OK && !gml_stitch_has_views(stitch)) {
        status = release_end(stitch, released_bytes);
    }
    for (gml_link *link = stitch->caches.next;
         link != &stitch->caches && status == GML_OK && gml_stitch_has_views(stitch);
         link = link->next) {
        status = release_chunks(stitch, gml_stream_cache_of_link(link), released_bytes);
    }
    return status == GML_OK ? gml_base_range_release_leftovers(&stitch->range, released_bytes)
                            : status;
}

/* Whether there is anything to release; the cheapest test comes first. */
static bool has_surplus(const gml_stitch *stitch, uint64_t free_bytes) {
    const gml_base_range *range = &stitch->range;
    if (gml_base_range_leftover(range)) {
        return true; /* what could not be released before */
    }
    if (!gml_stitch_has_views(stitch)) {
        return count_idle_end(range);
    }
    return !gml_list_is_empty(&stitch->pending_unmaps) ||
           (free_bytes / range->granule_bytes && count_idle_bytes(range));
}

gml_status gml_stitch_trim(gml_policy *self, uint64_t *released_bytes) {
    gml_stitch *stitch = gml_stitch_of(self);
    uint64_t free_bytes = 0;
    *released_bytes = 0;
    if (self->is_kept) {
        return GML_OK;
    }
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache_flush(stitch, gml_stream_cache_of_link(link));
        free_bytes += gml_stream_cache_of_link(link)->set.free_bytes;
    }
    if (!has_surplus(stitch, free_bytes)) {
        return GML_OK;
    }
    gml_status status = give_back(stitch, released_bytes);
    gml_stream_cache_sweep(stitch);
    self->reserved_bytes = stitch->range.held_bytes;
    return status;
}

/* ---- a part of it, without waiting ----------------------------------------------------------- */

/* Finds out how far the device has come; where it has no event for that, after it was waited for.
 */
static gml_status look_at_device(gml_stitch *stitch) {
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache *cache = gml_stream_cache_of_link(link);
        gml_stream_cache_flush(stitch, cache);
        gml_freeset_index(&cache->set);
    }
    gml_status status = gml_fence_mark(&stitch->fences);
    if (stitch->fences.cannot_mark) {
        bool is_done;
        return gml_stitch_wait(stitch, NULL, &is_done);
    }
    gml_fence_poll(&stitch->fences);
    return status;
}

/* Where the chunks begin that add up to `wanted_bytes`, from the end of the base range downwards:
 * the lowest places serve first, so that memory is missed least. *is_pending: chunks on the way are
 * idle, but for work that will have run. */
static uint64_t find_floor(const gml_stitch *stitch, uint64_t wanted_bytes, bool *is_pending) {
    const gml_base_range *range = &stitch->range;
    uint64_t floor = range->slots * range->granule_bytes, found_bytes = 0;
    const gml_extent *extent = last_present(range);
    for (; extent && found_bytes < wanted_bytes; extent = extent->previous) {
        if (has_chunks_to_give(stitch, extent, 0)) {
            found_bytes += extent->whole.size_bytes;
            floor = extent->whole.address;
        } else if (extent->kind == GML_EXTENT_FREE && extent->whole.size_bytes) {
            *is_pending |= stitch->fences.marked >= extent->instant;
        }
    }
    uint64_t excess_bytes = found_bytes > wanted_bytes ? found_bytes - wanted_bytes : 0;
    return excess_bytes ? gml_base_range_chunk_begin(range, floor + excess_bytes) : floor;
}

static gml_status release_from(gml_stitch *stitch, uint64_t floor, uint64_t *released_bytes) {
    gml_base_range *range = &stitch->range;
    gml_status status = GML_OK;
    gml_extent *extent = last_present(range);
    while (extent && extent->offset + extent->size_bytes > floor && status == GML_OK) {
        gml_extent *before = extent->previous;
        if (has_chunks_to_give(stitch, extent, floor)) {
            status = gml_base_range_shrink(range, extent, floor, released_bytes);
        }
        extent = before;
    }
    return status;
}

gml_status gml_stitch_give(gml_policy *self, uint64_t wanted_bytes, uint64_t *released_bytes,
                           bool *is_pending) {
    gml_stitch *stitch = gml_stitch_of(self);
    *released_bytes = 0;
    *is_pending = false;
    if (gml_stitch_has_graphs(stitch) || !gml_stitch_has_views(stitch)) {
        return GML_OK;
    }
    gml_status status = look_at_device(stitch);
    uint64_t floor = find_floor(stitch, wanted_bytes, is_pending);
    if (status == GML_OK) {
        status = gml_view_unmap_pending(stitch);
    }
    if (status == GML_OK) {
        status = gml_trim_views(stitch, floor, UINT64_MAX);
    }
    if (status == GML_OK) {
        status = release_from(stitch, floor, released_bytes);
    }
    self->reserved_bytes = stitch->range.held_bytes;
    return status;
}

uint64_t gml_stitch_idle_bytes(gml_policy *self) {
    gml_stitch *stitch = gml_stitch_of(self);
    uint64_t sum_bytes = 0;
    if (self->is_kept) {
        return 0;
    }
    gml_stream_caches_flush(stitch);
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        sum_bytes += gml_stream_cache_of_link(link)->set.whole_bytes;
    }
    return gml_stitch_has_views(stitch) ? sum_bytes : count_idle_end(&stitch->range);
}
