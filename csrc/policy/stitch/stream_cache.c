/* Stream caches: the free memory of each stream. */
#include "policy/stitch/stitch.h"

#include <stddef.h>
#include <stdlib.h>

static gml_status
add_cache(gml_stitch *stitch, gml_stream stream, gml_stream_cache **out)
{
    gml_stream_cache *cache = calloc(1, sizeof *cache);
    if (!cache || gml_map_insert(&stitch->cache_by_stream, stream + 1, cache) != GML_OK) {
        free(cache);
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a stream");
    }
    cache->stream = stream;
    gml_freeset_init(&cache->set, GML_SMALL_LIMIT + GML_ALIGNMENT);
    gml_list_append(&stitch->caches, &cache->caches);
    gml_timeline_open(&stitch->fences, &cache->timeline, stream);
    stitch->cache_count++;
    *out = cache;
    return GML_OK;
}

gml_status
gml_stream_cache_find(gml_stitch *stitch, gml_stream stream, gml_stream_cache **out)
{
    if (stitch->last_cache && stitch->last_cache->stream == stream) {
        *out = stitch->last_cache;
        return GML_OK;
    }
    gml_status status = GML_OK;
    *out = gml_map_find(&stitch->cache_by_stream, stream + 1);
    if (!*out) {
        status = add_cache(stitch, stream, out);
    }
    if (status == GML_OK) {
        stitch->last_cache = *out;
    }
    return status;
}

/* ---- streams that end ------------------------------------------------------------------------ */

/* Sweeping walks all idle views, so it is done for several stream caches at a time. */
enum { GONE_UNTIL_SWEEP = 16 };

gml_status
gml_stream_cache_release(gml_policy *self, gml_stream stream)
{
    gml_stitch *stitch = gml_stitch_of(self);
    gml_stream_cache *cache = gml_map_take(&stitch->cache_by_stream, stream + 1);
    if (!cache) {
        return GML_OK;
    }
    stitch->last_cache = NULL;
    gml_fence_forget(&stitch->fences, &cache->timeline);
    cache->stream = GML_NO_STREAM;
    stitch->gone_count++;
    if (stitch->gone_count >= GONE_UNTIL_SWEEP) {
        gml_stream_cache_sweep(stitch);
    }
    return GML_OK;
}

gml_status
gml_stream_cache_mark_external(gml_policy *self, gml_stream stream)
{
    gml_stream_cache *cache;
    gml_status status = gml_stream_cache_find(gml_stitch_of(self), stream, &cache);
    if (status == GML_OK) {
        cache->timeline.is_callable = false;
    }
    return status;
}

/* Moves the idle views of destroyed streams to the heir, once no work can use them. */
static void
inherit_views(gml_stitch *stitch, gml_stream_cache *heir)
{
    for (gml_link *link = stitch->idle_views.next; link != &stitch->idle_views; link = link->next) {
        gml_placement *placement = gml_view_of_idle(link);
        if (placement->cache->stream == GML_NO_STREAM && gml_view_is_unused(placement)) {
            placement->cache->user_count--;
            placement->cache = heir;
            placement->freed = 0;
            heir->user_count++;
        }
    }
}

/* Moves all free memory of `gone` that is complete to `heir`. */
static void
bequeath(gml_stitch *stitch, gml_stream_cache *gone, gml_stream_cache *heir)
{
    gml_extent *extent = gml_base_range_find(&stitch->range, 0);
    while (extent && gone->set.free_bytes) {
        if (extent->kind == GML_EXTENT_FREE && extent->set == &gone->set) {
            extent = gml_base_range_move(&stitch->range, extent->offset, extent->size_bytes,
                                         &heir->set, 0);
        }
        extent = extent->next;
    }
}

static bool
is_deserted(const gml_stream_cache *cache)
{
    return cache->stream == GML_NO_STREAM && cache->user_count == 0 &&
           gml_timeline_is_complete(&cache->timeline);
}

/* A stream cache that inherits: one whose stream exists, else the youngest. */
static gml_stream_cache *
find_heir(gml_stitch *stitch)
{
    gml_link *link = stitch->caches.next;
    while (link->next != &stitch->caches &&
           gml_stream_cache_of_link(link)->stream == GML_NO_STREAM) {
        link = link->next;
    }
    return gml_stream_cache_of_link(link);
}

static void
close_cache(gml_stitch *stitch, gml_stream_cache *cache)
{
    gml_list_remove(&cache->caches);
    stitch->cache_count--;
    gml_timeline_close(&stitch->fences, &cache->timeline);
    free(cache);
}

void
gml_stream_cache_sweep(gml_stitch *stitch)
{
    if (gml_driver_is_frozen(stitch->policy.driver) || gml_stitch_has_graphs(stitch)) {
        return;
    }
    gml_stitch_poll(stitch);
    gml_stream_cache *heir = find_heir(stitch);
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache *cache = gml_stream_cache_of_link(link);
        if (cache->stream == GML_NO_STREAM) {
            gml_stream_cache_flush(stitch, cache);
        }
    }
    inherit_views(stitch, heir);
    for (gml_link *link = stitch->caches.next, *next; link != &stitch->caches; link = next) {
        gml_stream_cache *cache = gml_stream_cache_of_link(link);
        next = link->next;
        if (cache != heir && is_deserted(cache)) {
            bequeath(stitch, cache, heir);
            close_cache(stitch, cache);
            stitch->gone_count--;
        }
    }
}

void
gml_stream_caches_flush(gml_stitch *stitch)
{
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache_flush(stitch, gml_stream_cache_of_link(link));
    }
}

void
gml_stream_caches_close(gml_stitch *stitch)
{
    while (!gml_list_is_empty(&stitch->caches)) {
        close_cache(stitch, gml_stream_cache_of_link(stitch->caches.next));
    }
    gml_map_clear(&stitch->cache_by_stream);
}
