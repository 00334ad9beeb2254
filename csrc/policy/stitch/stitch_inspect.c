/* Looking at the whole structure: usage, invariants, spans. */
#include "policy/stitch/stitch.h"

#include <inttypes.h>

/* ---- usage ----------------------------------------------------------------------------------- */

static uint64_t larger(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

static uint64_t cached_bytes(const gml_stream_cache *cache) {
    return cache->cached ? cache->cached->block.block_bytes : 0;
}

/* What one stream cache alone can stitch. Changes nothing: a cached view stays cached. */
static uint64_t stitched_of(const gml_stitch *stitch, const gml_stream_cache *cache) {
    return !gml_stitch_has_views(stitch)
               ? 0
               : cache->set.whole_bytes + gml_tree_largest(&cache->set.heads) +
                     gml_tree_largest(&cache->set.tails) + cached_bytes(cache);
}

/* About the largest request that it can serve: a small one from a slab, another one from extents.
 */
static uint64_t largest_of(const gml_stitch *stitch, gml_stream_cache *cache) {
    gml_freeset_index(&cache->set);
    uint64_t fitting = gml_tree_largest(&cache->set.fit) +
                       (gml_stitch_has_views(stitch) ? cached_bytes(cache) : 0);
    uint64_t in_slabs = gml_tree_largest(&cache->small_free);
    in_slabs = in_slabs < GML_SMALL_LIMIT ? in_slabs : (uint64_t)GML_SMALL_LIMIT;
    uint64_t in_extents = larger(fitting, stitched_of(stitch, cache));
    return in_extents > GML_SMALL_LIMIT ? in_extents : in_slabs;
}

void gml_stitch_usage(gml_policy *self, gml_usage *out) {
    gml_stitch *stitch = gml_stitch_of(self);
    *out = (gml_usage){
        .stream = out->stream,
        .reserved_bytes = self->reserved_bytes,
        .small_bytes = self->small_bytes,
        .views = stitch->views,
        .view_bytes = stitch->view_bytes,
        .cross_stream_waits = stitch->fences.waits,
        .borrowed_bytes = stitch->fences.borrowed_bytes,
    };
    bool is_shared = gml_share_is_open(stitch), has_views = gml_stitch_has_views(stitch);
    bool is_reached = is_shared && !gml_driver_is_frozen(self->driver);
    uint64_t whole_bytes = 0; /* of all streams */
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache *cache = gml_stream_cache_of_link(link);
        uint64_t largest_bytes = largest_of(stitch, cache);
        out->largest_free_bytes = larger(out->largest_free_bytes, largest_bytes);
        whole_bytes += cache->set.whole_bytes;
        if (cache->stream == out->stream) {
            out->stream_largest_bytes = largest_bytes;
            out->joined_bytes = stitched_of(stitch, cache);
        } else if (!is_reached) {
            out->elsewhere_bytes += cache->set.free_bytes + cached_bytes(cache);
        }
    }
    if (has_views && is_shared) {
        out->largest_free_bytes = larger(out->largest_free_bytes, whole_bytes);
    }
    if (is_reached && has_views) {
        out->stream_largest_bytes = larger(out->stream_largest_bytes, whole_bytes);
        out->joined_bytes = larger(out->joined_bytes, whole_bytes);
    } else if (is_reached) {
        out->stream_largest_bytes = out->largest_free_bytes;
    }
}

/* ---- check ----------------------------------------------------------------------------------- */

static gml_status corrupt(gml_stitch *stitch, const gml_placement *placement, const char *what) {
    return gml_driver_fail(stitch->policy.driver, GML_CORRUPT, "the placement at %" PRIu64 " %s",
                           placement->block.address, what);
}

/* A live or cached placement holds just its runs. */
static gml_status check_holder(gml_stitch *stitch, const gml_placement *placement) {
    uint64_t held = 0;
    for (size_t i = 0; i < placement->run_count; i++) {
        const gml_run *run = &placement->runs[i];
        const gml_extent *extent = run->extent;
        if (!extent || extent->kind != GML_EXTENT_USED || extent->owner != placement ||
            extent->offset != run->offset || extent->size_bytes != run->size_bytes) {
            return corrupt(stitch, placement, "does not hold what it should");
        }
        held += run->size_bytes;
    }
    if (held != placement->block.block_bytes) {
        return corrupt(stitch, placement, "does not have its size");
    }
    if (placement->slab && !gml_slab_is_valid(stitch, placement->slab)) {
        return corrupt(stitch, placement, "has a slab that contradicts itself");
    }
    bool is_cached = placement->state == GML_PLACEMENT_CACHED;
    if (placement->state == GML_PLACEMENT_IDLE ||
        is_cached != (placement->cache->cached == placement)) {
        return corrupt(stitch, placement, "is not in the state that it should be");
    }
    return GML_OK;
}

static gml_status check_fence(gml_stitch *stitch, const gml_extent *extent) {
    const gml_fences *fences = &stitch->fences;
    if (extent->instant <= fences->clock && fences->completed <= fences->marked &&
        fences->marked <= fences->clock) {
        return GML_OK;
    }
    return gml_driver_fail(stitch->policy.driver, GML_CORRUPT,
                           "the extent at offset %" PRIu64 " was freed after the last free",
                           extent->offset);
}

static gml_status check_extents(gml_stitch *stitch, uint64_t *used_bytes, uint64_t *free_bytes,
                                uint64_t *small_bytes) {
    gml_status status = GML_OK;
    for (const gml_extent *extent = gml_base_range_find(&stitch->range, 0);
         extent && status == GML_OK; extent = extent->next) {
        if (extent->kind == GML_EXTENT_USED) {
            const gml_placement *holder = extent->owner;
            *used_bytes += extent->size_bytes;
            if (holder->runs[0].extent == extent) {
                *small_bytes += holder->slab ? holder->block.block_bytes : 0;
                status = check_holder(stitch, holder);
            }
        } else if (extent->kind == GML_EXTENT_FREE) {
            *free_bytes += extent->size_bytes;
            status = check_fence(stitch, extent);
        }
    }
    return status;
}

/* An idle view holds no extents, and is indexed by its size. */
static gml_status check_idle(gml_stitch *stitch) {
    uint64_t count = 0;
    for (gml_link *link = stitch->idle_views.next; link != &stitch->idle_views; link = link->next) {
        const gml_placement *view = gml_view_of_idle(link);
        if (view->state != GML_PLACEMENT_IDLE || !view->view ||
            view->by_age.size_bytes != view->block.block_bytes) {
            return corrupt(stitch, view, "is idle and not a view of its size");
        }
        count++;
    }
    if (count != stitch->idle.count || !gml_tree_is_valid(&stitch->idle)) {
        return gml_driver_fail(stitch->policy.driver, GML_CORRUPT,
                               "%" PRIu64 " views are idle and %zu can be found", count,
                               stitch->idle.count);
    }
    return GML_OK;
}

gml_status gml_stitch_check(gml_policy *self) {
    gml_stitch *stitch = gml_stitch_of(self);
    uint64_t used_bytes = 0, free_bytes = 0, small_bytes = 0, in_caches = 0;
    gml_status status = gml_base_range_check(&stitch->range);
    if (status == GML_OK) {
        status = check_extents(stitch, &used_bytes, &free_bytes, &small_bytes);
    }
    if (status == GML_OK) {
        status = check_idle(stitch);
    }
    if (status != GML_OK) {
        return status;
    }
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        const gml_stream_cache *cache = gml_stream_cache_of_link(link);
        if (!gml_freeset_is_valid(&cache->set, &stitch->range) ||
            !gml_tree_is_valid(&cache->small_free)) {
            return gml_driver_fail(self->driver, GML_CORRUPT,
                                   "the free extents of stream %" PRIu64 " contradict themselves",
                                   cache->stream);
        }
        in_caches += cache->set.free_bytes;
    }
    if (in_caches != free_bytes || small_bytes != self->small_bytes ||
        used_bytes + free_bytes > self->reserved_bytes + stitch->range.host_bytes ||
        self->reserved_bytes != stitch->range.held_bytes) {
        return gml_driver_fail(self->driver, GML_CORRUPT,
                               "%" PRIu64 " bytes used, %" PRIu64 " free, %" PRIu64
                               " in streams, %" PRIu64 " reserved: these do not add up",
                               used_bytes, free_bytes, in_caches, self->reserved_bytes);
    }
    return GML_OK;
}

/* ---- visit ----------------------------------------------------------------------------------- */

/* The live placement that holds `extent`, or NULL. */
static const gml_placement *live_holder(const gml_extent *extent) {
    const gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
    return holder && holder->state == GML_PLACEMENT_LIVE ? holder : NULL;
}

/* Slabs in the base range are spans of their own, one a row. */
static bool is_base_slab(const gml_extent *extent) {
    const gml_placement *holder = live_holder(extent);
    return holder && holder->slab && !holder->view;
}

static void visit_base_row(const gml_base_range *range, const gml_placement *placement,
                           const gml_visitor *visitor) {
    if (!gml_slab_begins_row(placement->slab)) {
        return;
    }
    bool is_here = gml_base_range_is_told(range, placement->runs[0].offset);
    const gml_span_info span = {
        .address = placement->block.address,
        .size_bytes = gml_slab_row_bytes(placement->slab),
        .used_bytes = gml_slab_row_used_bytes(placement->slab),
        .stream = placement->cache->stream,
        .is_small = true,
        .is_view = !is_here,
        .kind = is_here ? GML_SPAN_BASE : GML_SPAN_VIEW,
    };
    visitor->span(visitor->context, &span);
    gml_slab_visit_row(placement->slab, visitor);
}

/* A place in the base range. */
typedef struct spot {
    const gml_extent *extent;
    uint64_t offset; /* in it */
} spot;

/* The end of what is told of alike from there on, in one extent: only what is free is cut. */
static uint64_t part_end(const gml_base_range *range, spot at) {
    uint64_t end = at.extent->offset + at.extent->size_bytes;
    if (!range->driver->ops->stands_for || at.extent->kind != GML_EXTENT_FREE) {
        return end;
    }
    uint64_t next = gml_base_range_boundary(range, at.offset + 1);
    while (next < end &&
           gml_base_range_is_told(range, next) == gml_base_range_is_told(range, at.offset)) {
        next += gml_base_range_chunk_bytes(range, next);
    }
    return next < end ? next : end;
}

static spot next_spot(const gml_base_range *range, spot at) {
    uint64_t end = part_end(range, at);
    const gml_extent *extent = at.extent;
    extent = end < extent->offset + extent->size_bytes ? extent : extent->next;
    return (spot){extent, end};
}

/* Whether a run goes on there: present, and in no span of its own. */
static bool is_in_run(const gml_extent *extent) {
    return extent && extent->kind != GML_EXTENT_ABSENT && !is_base_slab(extent);
}

/* Extents of a view count as used here; the request is reported with the view. */
static void visit_part(const gml_base_range *range, spot at, const gml_visitor *visitor) {
    const gml_placement *holder = live_holder(at.extent);
    const gml_range_info info = {
        .address = range->base + at.offset,
        .size_bytes = part_end(range, at) - at.offset,
        .requested_bytes = holder && !holder->view ? holder->block.requested_bytes : 0,
        .is_used = holder != NULL,
    };
    visitor->range(visitor->context, &info);
}

/* One span: from `first` on, as far as it is contiguous and told of alike. Returns the place behind
 * it. */
static spot visit_base_span(const gml_base_range *range, spot first, const gml_visitor *visitor) {
    bool is_here = gml_base_range_is_told(range, first.offset);
    gml_span_info span = {.address = range->base + first.offset,
                          .is_view = !is_here,
                          .kind = is_here ? GML_SPAN_BASE : GML_SPAN_VIEW};
    spot end = first;
    while (is_in_run(end.extent) && gml_base_range_is_told(range, end.offset) == is_here) {
        uint64_t size_bytes = part_end(range, end) - end.offset;
        span.size_bytes += size_bytes;
        span.used_bytes += live_holder(end.extent) ? size_bytes : 0;
        end = next_spot(range, end);
    }
    visitor->span(visitor->context, &span);
    for (spot at = first; at.extent && at.offset < end.offset; at = next_spot(range, at)) {
        visit_part(range, at, visitor);
    }
    return end;
}

static void visit_base_range(const gml_base_range *range, const gml_visitor *visitor) {
    const gml_extent *extent = gml_base_range_find(range, 0);
    while (extent) {
        if (extent->kind == GML_EXTENT_ABSENT) {
            extent = extent->next;
        } else if (is_base_slab(extent)) {
            visit_base_row(range, live_holder(extent), visitor);
            extent = extent->next;
        } else {
            spot at = {extent, extent->offset};
            while (is_in_run(at.extent)) {
                at = visit_base_span(range, at, visitor);
            }
            extent = at.extent;
        }
    }
}

static void visit_view_body(const gml_placement *placement, bool is_live,
                            const gml_visitor *visitor) {
    if (is_live && placement->slab) {
        gml_slab_visit_row(placement->slab, visitor);
        return;
    }
    const gml_range_info range = {
        .address = placement->block.address,
        .size_bytes = placement->block.block_bytes,
        .requested_bytes = is_live ? placement->block.requested_bytes : 0,
        .is_used = is_live,
    };
    visitor->range(visitor->context, &range);
}

static void visit_pieces(const gml_base_range *range, const gml_placement *placement,
                         const gml_visitor *visitor) {
    gml_address address = placement->block.address;
    for (size_t i = 0; i < placement->run_count && visitor->piece; i++) {
        const gml_run *run = &placement->runs[i];
        visitor->piece(visitor->context,
                       &(gml_piece_info){.address = address,
                                         .base_address = range->base + run->offset,
                                         .size_bytes = run->size_bytes});
        address += run->size_bytes;
    }
}

/* The part of a view that its placement covers: its ends may reach into chunks of others. */
static void visit_view(const gml_base_range *range, const gml_placement *placement,
                       const gml_visitor *visitor) {
    bool is_live = placement->state == GML_PLACEMENT_LIVE;
    uint64_t size_bytes = placement->block.block_bytes;
    uint64_t used_bytes = placement->slab ? gml_slab_row_used_bytes(placement->slab) : size_bytes;
    const gml_span_info span = {
        .address = placement->block.address,
        .size_bytes = size_bytes,
        .used_bytes = is_live ? used_bytes : 0,
        .stream = placement->cache->stream,
        .is_small = placement->slab != NULL,
        .is_view = true,
        .kind = GML_SPAN_VIEW,
    };
    visitor->span(visitor->context, &span);
    visit_pieces(range, placement, visitor);
    visit_view_body(placement, is_live, visitor);
}

void gml_stitch_visit(gml_policy *self, const gml_visitor *visitor) {
    gml_stitch *stitch = gml_stitch_of(self);
    visit_base_range(&stitch->range, visitor);
    for (const gml_extent *extent = gml_base_range_find(&stitch->range, 0); extent;
         extent = extent->next) {
        const gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
        if (holder && holder->view && holder->runs[0].extent == extent) {
            visit_view(&stitch->range, holder, visitor);
        }
    }
    for (gml_link *link = stitch->idle_views.next; link != &stitch->idle_views; link = link->next) {
        visit_view(&stitch->range, gml_view_of_idle(link), visitor);
    }
}
