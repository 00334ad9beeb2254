/* Memory of other streams (GLake's multi-stream reuse, Ant Group, 2023).
 *
 * A stream that lacks memory takes memory that others have freed: one range if one is large enough,
 * else whole chunks to stitch. Moved ranges end at chunk boundaries, so that no chunk is divided
 * among streams for long.
 */
#include "policy/stitch/stitch.h"

gml_stream_cache *gml_share_next_donor(gml_stitch *stitch, const gml_stream_cache *cache,
                                       gml_stream_cache *previous, int *count) {
    gml_link *link = previous ? previous->caches.next : stitch->caches.next;
    while (link != &stitch->caches && *count < GML_MOST_DONORS) {
        gml_stream_cache *donor = gml_stream_cache_of_link(link);
        link = link->next;
        if (donor != cache && !donor->is_host) {
            gml_stream_cache_flush(stitch, donor);
            if (donor->set.free_bytes) {
                (*count)++;
                return donor;
            }
        }
    }
    return NULL;
}

/* Only a mark made now can later show what has completed. */
void gml_share_look(gml_stitch *stitch, const gml_stream_cache *cache) {
    if (!stitch->fences.rules.is_opportunistic) {
        return;
    }
    (void)gml_fence_mark_for(&stitch->fences, &cache->seeker);
    gml_fence_poll(&stitch->fences);
}

bool gml_share_reach(gml_stitch *stitch, gml_stream_cache *cache, const gml_extent *extent,
                     gml_effort effort) {
    const gml_stream_cache *owner = gml_stream_cache_of_set(extent->set);
    bool is_passed = false;
    gml_status status = gml_fence_pass(&stitch->fences, &cache->seeker, &owner->seeker,
                                       extent->instant, effort, &is_passed);
    return status == GML_OK && is_passed;
}

/* Moves a range that is free in another stream cache, and in reach. pre: as gml_base_range_move().
 */
static gml_extent *move_in(gml_stitch *stitch, gml_stream_cache *cache, const gml_extent *extent,
                           uint64_t offset, uint64_t size_bytes) {
    const gml_stream_cache *owner = gml_stream_cache_of_set(extent->set);
    gml_fence_count(&stitch->fences, &cache->seeker, &owner->seeker, size_bytes);
    /* A third stream must come after the same work, and this one's is no more. */
    return gml_base_range_move(&stitch->range, offset, size_bytes, &cache->set, extent->instant);
}

gml_status gml_share_take(gml_stitch *stitch, gml_stream_cache *cache, uint64_t offset,
                          uint64_t size_bytes) {
    gml_status status = gml_base_range_prepare(&stitch->range, 2);
    if (status == GML_OK) {
        (void)move_in(stitch, cache, gml_base_range_find(&stitch->range, offset), offset,
                      size_bytes);
    }
    return status;
}

void gml_share_pairs(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
                     void *context) {
    gml_fences *fences = &gml_stitch_of(self)->fences;
    for (gml_link *link = fences->all_pairs.next; link != &fences->all_pairs; link = link->next) {
        const gml_pair *pair = gml_pair_of_link(link);
        const gml_stream_pair told = {
            .owner = pair->owner,
            .borrower = pair->borrower,
            .borrowed_bytes = pair->borrowed_bytes,
            .borrows = pair->borrows,
            .waits = pair->waits,
            .refused_waits = pair->refused_waits,
        };
        see(context, &told);
    }
}

/* How many extents of one stream are tried for one that is in reach: a bound on the time. */
enum { MAX_EXTENTS_TRIED = 16 };

/* Takes [offset, offset + size) of a free extent, and the extent's rest of the last chunk. */
static gml_status take_part(gml_stitch *stitch, gml_stream_cache *cache, const gml_extent *extent,
                            uint64_t offset, uint64_t size_bytes) {
    uint64_t extent_end = extent->offset + extent->size_bytes;
    uint64_t end = extent_end - offset > size_bytes
                       ? gml_base_range_boundary(&stitch->range, offset + size_bytes)
                       : extent_end;
    return gml_share_take(stitch, cache, offset, (end < extent_end ? end : extent_end) - offset);
}

gml_status gml_share_take_range(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                                gml_effort effort) {
    const gml_extent *best = NULL;
    int count = 0;
    gml_stream_cache *donor = NULL;
    while ((donor = gml_share_next_donor(stitch, cache, donor, &count))) {
        gml_tree_node *node = gml_tree_at_least(&donor->set.fit, size_bytes, 0);
        for (int tried = 0; node && tried < MAX_EXTENTS_TRIED; tried++) {
            const gml_extent *extent = gml_extent_of_fit(node);
            if (best && best->size_bytes <= extent->size_bytes) {
                break;
            }
            if (gml_share_reach(stitch, cache, extent, effort)) {
                best = extent;
                break;
            }
            node = gml_tree_next(node);
        }
    }
    return best ? take_part(stitch, cache, best, best->offset, size_bytes) : GML_OK;
}

gml_status gml_share_take_chunks(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                                 gml_effort effort) {
    gml_status status = GML_OK;
    uint64_t wanted_bytes = cache->set.whole_bytes + size_bytes;
    int count = 0;
    gml_stream_cache *donor = gml_share_next_donor(stitch, cache, NULL, &count);
    for (; donor && status == GML_OK && cache->set.whole_bytes < wanted_bytes;
         donor = gml_share_next_donor(stitch, cache, donor, &count)) {
        gml_freeset_index(&donor->set);
        gml_tree_node *node = gml_tree_last(&donor->set.wholes);
        while (node && status == GML_OK && cache->set.whole_bytes < wanted_bytes) {
            const gml_extent *extent = gml_extent_of_whole(node);
            uint64_t offset = node->address;
            node = gml_tree_previous(node);
            if (gml_share_reach(stitch, cache, extent, effort)) {
                status =
                    take_part(stitch, cache, extent, offset, wanted_bytes - cache->set.whole_bytes);
                gml_freeset_index(&donor->set);
                node = gml_tree_last(&donor->set.wholes);
            }
        }
    }
    return status;
}

/* How many extents one request gathers: a bound on the time. */
enum { MOST_GATHERED = 512 };

void gml_share_gather(gml_stitch *stitch, gml_stream_cache *cache) {
    if (!stitch->fences.rules.is_opportunistic) {
        return;
    }
    gml_stream_caches_flush(stitch);
    uint64_t free_bytes = 0;
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        free_bytes += gml_stream_cache_of_link(link)->set.free_bytes;
    }
    if (free_bytes == cache->set.free_bytes) { /* nobody else has any */
        return;
    }
    gml_share_look(stitch, cache);
    gml_extent *extent = gml_base_range_find(&stitch->range, 0);
    for (int count = 0; extent && count < MOST_GATHERED; extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set != &cache->set &&
            !gml_stream_cache_of_set(extent->set)->is_host &&
            gml_fence_is_over(&stitch->fences, extent->instant)) {
            extent = move_in(stitch, cache, extent, extent->offset, extent->size_bytes);
            count++;
        }
    }
}

/* ---- the last resort ------------------------------------------------------------------------- */

gml_status gml_share_take_all(gml_stitch *stitch, gml_stream_cache *cache, bool *is_any) {
    *is_any = false;
    if (gml_stitch_has_graphs(stitch)) {
        return GML_OK;
    }
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache *other = gml_stream_cache_of_link(link);
        gml_stream_cache_flush(stitch, other);
        *is_any |= other != cache && !other->is_host && other->set.free_bytes != 0;
    }
    gml_fence_poll(&stitch->fences);
    gml_status status = GML_OK;
    bool is_passed = false;
    if (*is_any) {
        status = gml_fence_pass(&stitch->fences, &cache->seeker, NULL, stitch->fences.clock,
                                GML_URGENT, &is_passed);
    }
    if (*is_any && (status != GML_OK || !is_passed)) {
        status = gml_stitch_synchronize(stitch, cache, is_any);
    }
    if (status != GML_OK || !*is_any) {
        *is_any = false;
        return status;
    }
    for (gml_extent *extent = gml_base_range_find(&stitch->range, 0); extent;
         extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set != &cache->set &&
            !gml_stream_cache_of_set(extent->set)->is_host) {
            extent = move_in(stitch, cache, extent, extent->offset, extent->size_bytes);
        }
    }
    return GML_OK;
}

/* ---- waiting for work before the mappings that it may use go --------------------------------- */

gml_status gml_stitch_synchronize(gml_stitch *stitch, const gml_stream_cache *asking,
                                  bool *is_done) {
    gml_driver *driver = stitch->policy.driver;
    gml_status status = GML_OK;
    bool is_capturing = gml_driver_is_frozen(driver);
    if (asking && !is_capturing) {
        status = gml_driver_stream_capturing(driver, asking->stream, &is_capturing);
    }
    if (status == GML_OK && !is_capturing) {
        gml_driver_note(driver, GML_TRIED_DEVICE);
        status = gml_driver_device_synchronize(driver);
    }
    *is_done = status == GML_OK && !is_capturing;
    stitch->policy.awaits_device &= !*is_done;
    if (*is_done) {
        gml_fence_complete(&stitch->fences);
    }
    return status;
}

gml_status gml_stitch_wait(gml_stitch *stitch, const gml_stream_cache *asking, bool *is_done) {
    gml_fence_poll(&stitch->fences);
    *is_done = !stitch->policy.awaits_device && stitch->fences.completed == stitch->fences.clock;
    return *is_done ? GML_OK : gml_stitch_synchronize(stitch, asking, is_done);
}
