/* Whole chunks of the smallest size, for callers that map them at other addresses too. */
#include "base/status.h"
#include "policy/stitch/stitch.h"

/* How many free ranges of chunks a search looks at: a bound on the time. */
enum { MAX_RANGES_TRIED = 64 };

static bool is_smallest(const gml_base_range *range, uint64_t offset) {
    return gml_base_range_chunk_bytes(range, offset) == range->granule_bytes;
}

/* Whether the chunk at that offset qualifies: of the smallest size, and free in the stream
 * cache. */
static bool may_take(const gml_stitch *stitch, const gml_stream_cache *cache, uint64_t offset) {
    const gml_base_range *range = &stitch->range;
    if (offset >= range->slots * range->granule_bytes || !is_smallest(range, offset)) {
        return false;
    }
    const gml_extent *extent = gml_base_range_find(range, offset);
    return extent->kind == GML_EXTENT_FREE && extent->set == &cache->set &&
           extent->offset <= offset &&
           extent->offset + extent->size_bytes - offset >= range->granule_bytes;
}

/* Such a chunk among those free in the stream cache: in the smallest range of chunks that begins or
 * ends with one, so that large ranges stay. */
static bool find_chunk(const gml_stitch *stitch, gml_stream_cache *cache, uint64_t *out) {
    const gml_base_range *range = &stitch->range;
    gml_freeset_index(&cache->set);
    gml_tree_node *node = gml_tree_first(&cache->set.wholes);
    for (int tried = 0; node && tried < MAX_RANGES_TRIED; tried++) {
        uint64_t last = node->address + node->size_bytes - range->granule_bytes;
        if (is_smallest(range, node->address) || is_smallest(range, last)) {
            *out = is_smallest(range, node->address) ? node->address : last;
            return true;
        }
        node = gml_tree_next(node);
    }
    return false;
}

/* Moves a free chunk of that kind from another stream cache to this one, if that costs nothing. */
static bool borrow_chunk(gml_stitch *stitch, gml_stream_cache *cache, uint64_t *out,
                         gml_status *status) {
    if (!gml_share_is_open(stitch)) {
        return false;
    }
    gml_share_look(stitch, cache);
    int count = 0;
    gml_stream_cache *donor = NULL;
    while ((donor = gml_share_next_donor(stitch, cache, donor, &count))) {
        if (find_chunk(stitch, donor, out) &&
            gml_share_reach(stitch, cache, gml_base_range_find(&stitch->range, *out), GML_KNOWN)) {
            *status = gml_share_take(stitch, cache, *out, stitch->range.granule_bytes);
            return *status == GML_OK;
        }
    }
    return false;
}

/* Takes all that is missing from the driver; *out is the first chunk. */
static gml_status grow(gml_stitch *stitch, gml_stream_cache *cache, uint64_t missing_bytes,
                       uint64_t *out) {
    gml_base_range *range = &stitch->range;
    gml_tree_node *lowest = gml_tree_first(&range->absent);
    *out = lowest ? gml_extent_of_fit(lowest)->offset : 0;
    gml_status status =
        gml_base_range_grow(range, missing_bytes, range->granule_bytes, false, &cache->set);
    stitch->policy.reserved_bytes = range->held_bytes;
    bool is_there = may_take(stitch, cache, *out) || find_chunk(stitch, cache, out);
    return status == GML_OK && !is_there ? GML_OUT_OF_MEMORY : status;
}

gml_status gml_stitch_take_chunk(gml_policy *self, gml_address wanted, uint64_t missing_bytes,
                                 gml_stream stream, gml_block **out) {
    gml_stitch *stitch = gml_stitch_of(self);
    gml_stream_cache *cache;
    gml_status status = gml_stream_cache_find(stitch, stream, &cache);
    if (status != GML_OK) {
        return status;
    }
    cache->seeker.requests++;
    gml_stream_cache_flush(stitch, cache);
    uint64_t offset = wanted - stitch->range.base;
    gml_state state = GML_STATE_EXACT;
    if (!may_take(stitch, cache, offset) && !find_chunk(stitch, cache, &offset) &&
        !borrow_chunk(stitch, cache, &offset, &status)) {
        state = GML_STATE_GROW;
        status = status == GML_OK ? grow(stitch, cache, missing_bytes, &offset) : status;
    }
    gml_placement *placement = NULL;
    if (status == GML_OK) {
        status = gml_placement_fit(stitch, cache, offset, stitch->range.granule_bytes, &placement);
    }
    if (status == GML_OK) {
        placement->block.requested_bytes = stitch->range.granule_bytes;
        placement->block.state = state;
        gml_placement_serve(stitch, placement);
        *out = &placement->block;
    }
    return status;
}

gml_status gml_stitch_live_chunks(gml_policy *self,
                                  gml_status (*see)(void *context, gml_handle handle),
                                  void *context) {
    gml_stitch *stitch = gml_stitch_of(self);
    const gml_base_range *range = &stitch->range;
    gml_stream_caches_flush(stitch);
    gml_status status = GML_OK;
    uint64_t seen_end = 0; /* neighbours may live in one chunk */
    const gml_extent *extent = gml_base_range_find(range, 0);
    for (; extent && status == GML_OK; extent = extent->next) {
        uint64_t at = gml_base_range_chunk_begin(range, extent->offset);
        at = at < seen_end ? seen_end : at;
        while (extent->kind == GML_EXTENT_USED && at < extent->offset + extent->size_bytes &&
               status == GML_OK) {
            status = see(context, range->handles[at / range->granule_bytes]);
            at = seen_end = at + gml_base_range_chunk_bytes(range, at);
        }
    }
    return status;
}
