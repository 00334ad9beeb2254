/* Serving a size: the ladder.
 *
 *   0  cached  the view that the stream freed last, if it has the size     (hot)
 *   -  apart   on a shared device, if it is small: the same in small chunks, or in a new one
 *   1  fit     the smallest free extent that holds it                      (hot)
 *   2  spend   with room: the base range grows a little, so that one extent holds it
 *   -  gather  1 with what other streams have freed and the device has done with
 *   3  stitch  free pieces side by side, under a view from before or a new one
 *   4  reach   1 and 3 with memory that other streams have freed, if it costs nothing
 *   5  wait    the same with memory that this stream must wait for
 *   6  grow    missing memory from the device, in one extent or stitched to free pieces
 *   7  host    3 with what is held of the host's and free (host.c)
 *   8  all     before memory is refused: 1, 3 and 6 with all that other streams hold free, after a
 *              wait for the device, for any size
 *   9  host    where the setting `host` allows it: 3 with what is missing from the host
 *
 * A rung returns a placement or NULL. Failures go to the request's status, except a lack of device
 * memory, which the last rung handles.
 */
#include "base/rounding.h"
#include "base/status.h"
#include "policy/stitch/stitch.h"

typedef struct gml_ascent {
    gml_stitch *stitch;
    gml_stream_cache *cache;
    uint64_t size_bytes;
    bool may_stitch;
    bool at_end;       /* where the base range grows */
    gml_status status; /* a failure that ends the climb */
} gml_ascent;

static gml_placement *create(gml_ascent *request, const gml_choice *choice) {
    gml_placement *placement = NULL;
    request->status = gml_placement_create(request->stitch, request->cache, request->size_bytes,
                                           choice, &placement);
    return request->status == GML_OK ? placement : NULL;
}

/* In a free extent, at `offset`. Hot. */
static gml_placement *take_part(gml_ascent *request, const gml_tree_node *extent, uint64_t offset) {
    gml_placement *placement = NULL;
    bool is_exact = extent->size_bytes == request->size_bytes;
    request->status =
        gml_placement_fit(request->stitch, request->cache, offset, request->size_bytes, &placement);
    if (placement) {
        placement->block.state = is_exact ? GML_STATE_EXACT : GML_STATE_SPLIT;
    }
    return placement;
}

/* Hot. */
static gml_placement *fit(gml_ascent *request) {
    const gml_tree_node *node = gml_tree_at_least(&request->cache->set.fit, request->size_bytes, 0);
    return node ? take_part(request, node, node->address) : NULL;
}

/* How many extents are looked at for small chunks: a bound on the time. */
enum { MAX_EXTENTS_TRIED = 64 };

/* The first or last bytes of an extent, if they lie in small chunks. */
static gml_placement *fit_small(gml_ascent *request, uint64_t small_bytes) {
    const gml_base_range *range = &request->stitch->range;
    gml_tree_node *node = gml_tree_at_least(&request->cache->set.fit, request->size_bytes, 0);
    for (int i = 0; node && i < MAX_EXTENTS_TRIED; i++, node = gml_tree_next(node)) {
        uint64_t last = node->address + node->size_bytes - request->size_bytes;
        bool is_first = gml_base_range_chunk_bytes(range, node->address) <= small_bytes;
        if (is_first || gml_base_range_chunk_bytes(range, last) <= small_bytes) {
            return take_part(request, node, is_first ? node->address : last);
        }
    }
    return NULL;
}

/* Grows the base range; false if the device has no more memory or the policy is closed (not a
 * failure), or if the status says why. */
static bool take_more(gml_ascent *request, uint64_t missing_bytes) {
    bool is_closed = request->stitch->policy.is_closed;
    gml_status status = is_closed ? GML_OUT_OF_MEMORY
                                  : gml_stitch_grow(request->stitch, request->cache, missing_bytes,
                                                    request->at_end);
    request->status = status == GML_OUT_OF_MEMORY ? GML_OK : status;
    return status == GML_OK;
}

/* Marks a placement as served with new memory. */
static gml_placement *as_grown(gml_placement *placement) {
    if (placement) {
        placement->block.state = GML_STATE_GROW;
    }
    return placement;
}

static gml_placement *apart(gml_ascent *request) {
    const gml_stitch *stitch = request->stitch;
    uint64_t small_bytes = gml_cost_model_small(&stitch->costs, &stitch->range);
    if (request->size_bytes > small_bytes) {
        return NULL;
    }
    gml_placement *placement = fit_small(request, small_bytes);
    bool may_grow = !placement && request->status == GML_OK;
    return may_grow && take_more(request, request->size_bytes)
               ? as_grown(fit_small(request, small_bytes))
               : placement;
}

bool gml_stitch_may_spend(const gml_stitch *stitch, uint64_t size_bytes, uint64_t missing_bytes) {
    uint64_t live_bytes = stitch->live_bytes + size_bytes;
    uint64_t peak_bytes =
        live_bytes > stitch->peak_live_bytes ? live_bytes : stitch->peak_live_bytes;
    /* This rung comes before those of other streams. Their free memory costs nothing, so if sharing
     * is open it is tried first, and the rung `grow` takes what is then missing from the device. */
    return !gml_share_is_open(stitch) &&
           gml_cost_model_may_spend(&stitch->costs, &stitch->range, missing_bytes, peak_bytes);
}

/* The bytes to grow the base range by so that the size fits into one extent there. */
static uint64_t missing_where_it_grows(const gml_ascent *request) {
    const gml_stitch *stitch = request->stitch;
    return request->at_end ? gml_round_up(request->size_bytes, stitch->range.granule_bytes)
                           : gml_choose_missing_behind(stitch, request->cache, request->size_bytes);
}

static gml_placement *spend(gml_ascent *request) {
    gml_stitch *stitch = request->stitch;
    uint64_t missing_bytes = missing_where_it_grows(request);
    stitch->missing_bytes = missing_bytes;
    bool is_spent = gml_stitch_may_spend(stitch, request->size_bytes, missing_bytes) &&
                    take_more(request, missing_bytes);
    return is_spent ? as_grown(fit(request)) : NULL;
}

/* With memory of other streams whose work is complete, which needs no order. */
static gml_placement *gather(gml_ascent *request) {
    if (!gml_share_is_open(request->stitch)) {
        return NULL;
    }
    gml_driver_note(request->stitch->policy.driver, GML_TRIED_STREAMS);
    gml_share_gather(request->stitch, request->cache);
    return fit(request);
}

static gml_placement *stitch_pieces(gml_ascent *request) {
    gml_choice choice;
    if (!request->may_stitch ||
        !gml_choose_stitched(request->stitch, request->cache, request->size_bytes, &choice,
                             &request->status)) {
        return NULL;
    }
    return create(request, &choice);
}

static gml_placement *fit_or_stitch(gml_ascent *request) {
    gml_placement *placement = fit(request);
    return placement || request->status != GML_OK ? placement : stitch_pieces(request);
}

/* Takes free memory of other streams that is in reach with that effort. */
static gml_placement *borrow(gml_ascent *request, gml_effort effort) {
    gml_stitch *stitch = request->stitch;
    gml_stream_cache *cache = request->cache;
    request->status = gml_share_take_range(stitch, cache, request->size_bytes, effort);
    gml_placement *placement = request->status == GML_OK ? fit(request) : NULL;
    if (placement || request->status != GML_OK || !request->may_stitch) {
        return placement;
    }
    uint64_t missing_bytes = gml_choose_missing(stitch, cache, request->size_bytes);
    request->status = gml_share_take_chunks(stitch, cache, missing_bytes, effort);
    return request->status == GML_OK ? stitch_pieces(request) : NULL;
}

static gml_placement *reach(gml_ascent *request) {
    return gml_share_is_open(request->stitch) ? borrow(request, GML_KNOWN) : NULL;
}

static gml_placement *wait(gml_ascent *request) {
    return gml_share_is_open(request->stitch) ? borrow(request, GML_WAIT) : NULL;
}

static gml_placement *grow(gml_ascent *request) {
    gml_stitch *stitch = request->stitch;
    uint64_t missing_bytes = request->may_stitch
                                 ? gml_choose_missing(stitch, request->cache, request->size_bytes)
                                 : missing_where_it_grows(request);
    if (!take_more(request, missing_bytes)) {
        return NULL;
    }
    return as_grown(fit_or_stitch(request));
}

/* Whatever it costs. */
static gml_placement *take_all(gml_ascent *request) {
    bool is_any;
    request->status = gml_share_take_all(request->stitch, request->cache, &is_any);
    bool may_stitch = gml_stitch_has_views(request->stitch);
    if (request->status != GML_OK || (!is_any && request->may_stitch == may_stitch)) {
        return NULL;
    }
    request->may_stitch = may_stitch;
    static gml_placement *(*const again[])(gml_ascent *) = {fit, stitch_pieces, grow};
    gml_placement *placement = NULL;
    for (size_t i = 0; i < sizeof again / sizeof *again && !placement && request->status == GML_OK;
         i++) {
        placement = again[i](request);
    }
    return placement;
}

/* What ended of blocks on the host serves as the device's again. */
static gml_placement *settle(gml_ascent *request) {
    if (!request->stitch->range.host_bytes) {
        return NULL;
    }
    request->status = gml_host_settle(request->stitch, request->cache);
    return request->status == GML_OK ? fit(request) : NULL;
}

/* With memory of the host: what is held of it and free, and new one where that may be taken. */
static gml_placement *on_host(gml_ascent *request, bool may_grow) {
    gml_stitch *stitch = request->stitch;
    gml_stream_cache *cache = request->cache;
    request->status = gml_host_begin(stitch, cache);
    if (request->status != GML_OK) {
        return NULL;
    }
    gml_placement *placement = fit_or_stitch(request);
    uint64_t missing_bytes = request->may_stitch
                                 ? gml_choose_missing(stitch, cache, request->size_bytes)
                                 : request->size_bytes;
    bool is_open = may_grow && !placement && request->status == GML_OK;
    if (is_open && gml_host_grow(stitch, cache, missing_bytes, request->may_stitch) == GML_OK) {
        placement = fit_or_stitch(request);
    }
    gml_status status = gml_host_end(stitch, cache, request->at_end ? NULL : placement);
    request->status = placement ? request->status : gml_first_failure(request->status, status);
    return placement;
}

/* Before the device is waited for: a step that repeats finds again what it took. */
static gml_placement *reuse_host(gml_ascent *request) {
    const gml_stream_cache *host = request->cache->host;
    bool is_there = host && host->set.free_bytes && !request->at_end;
    return is_there ? on_host(request, false) : NULL;
}

static gml_placement *borrow_host(gml_ascent *request) {
    const gml_stitch *stitch = request->stitch;
    if (!stitch->range.host_limit || !stitch->policy.driver->may_take_host) {
        return NULL;
    }
    gml_driver_note(stitch->policy.driver, GML_TRIED_HOST);
    return as_grown(on_host(request, true));
}

static gml_placement *(*const ladder[])(gml_ascent *) = {
    apart, fit,  settle, spend,      gather,   stitch_pieces,
    reach, wait, grow,   reuse_host, take_all, borrow_host,
};

enum { RUNGS = sizeof ladder / sizeof *ladder };

/* What ended on the host must not wait for a request that finds nothing: none may come. Sorting
 * looks at each extent, so it is done now and then. */
enum { HOST_PATIENCE = 256 };

static bool is_time_to_settle(gml_stream_cache *host) {
    return host->set.free_bytes && ++host->requests % HOST_PATIENCE == 0;
}

/* Hot: most requests end with the first test, or with the rung `fit`. */
gml_status gml_stitch_place(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                            bool is_slab, gml_placement **out) {
    gml_placement *placement = cache->cached;
    gml_status status = GML_OK;
    if (placement && placement->block.block_bytes == size_bytes) {
        cache->cached = NULL;
        placement->state = GML_PLACEMENT_LIVE;
        placement->block.state = GML_STATE_EXACT;
        placement->block.note = 0;
    } else {
        gml_stream_cache_flush(stitch, cache);
        placement = NULL;
        if (stitch->is_empty && gml_share_is_open(stitch)) { /* begin alike, whoever freed what */
            gml_share_gather(stitch, cache);
        }
        stitch->is_empty = false;
        if (cache->host && is_time_to_settle(cache->host)) {
            status = gml_host_settle(stitch, cache);
        }
        gml_ascent request = {
            .stitch = stitch,
            .cache = cache,
            .size_bytes = size_bytes,
            .at_end = is_slab && gml_stitch_has_views(stitch),
            .may_stitch = size_bytes >= stitch->frag_limit && gml_stitch_has_views(stitch),
            .status = status,
        };
        for (size_t i = 0; i < RUNGS && !placement && request.status == GML_OK; i++) {
            placement = ladder[i](&request);
        }
        status = placement || request.status != GML_OK ? request.status : GML_OUT_OF_MEMORY;
    }
    if (placement) {
        gml_placement_serve(stitch, placement);
        *out = placement;
    }
    return status;
}
