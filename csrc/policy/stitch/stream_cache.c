/* Stream caches: the free memory of each stream. */
#include "policy/stitch/stitch.h"

#include <stddef.h>
#include <stdlib.h>

/* Where sweeping comes to pay: programs have fewer streams, unless they make new ones on and on. */
enum { MANY_CACHES = 64 };

static gml_status no_memory(gml_stitch *stitch) {
    return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                           "no host memory for a stream");
}

static void begin(gml_stitch *stitch, gml_stream_cache *cache, gml_stream stream) {
    cache->stream = stream;
    gml_freeset_init(&cache->set, GML_SMALL_LIMIT + GML_ALIGNMENT);
    gml_list_append(&stitch->caches, &cache->caches);
    gml_seeker_open(&stitch->fences, &cache->seeker, stream);
}

static gml_status add_cache(gml_stitch *stitch, gml_stream stream, gml_stream_cache **out) {
    if (stitch->cache_count >= MANY_CACHES && !gml_stitch_has_graphs(stitch)) {
        gml_stream_cache_sweep(stitch);
    }
    gml_stream_cache *cache = calloc(1, sizeof *cache);
    if (!cache || gml_map_insert(&stitch->cache_by_stream, stream + 1, cache) != GML_OK) {
        free(cache);
        return no_memory(stitch);
    }
    begin(stitch, cache, stream);
    stitch->cache_count++;
    *out = cache;
    return GML_OK;
}

gml_status gml_stream_cache_add_host(gml_stitch *stitch, gml_stream_cache *cache) {
    if (cache->host) {
        return GML_OK;
    }
    gml_stream_cache *host = calloc(1, sizeof *host);
    if (!host) {
        return no_memory(stitch);
    }
    begin(stitch, host, cache->stream);
    host->is_host = true;
    cache->host = host;
    return GML_OK;
}

gml_status gml_stream_cache_find(gml_stitch *stitch, gml_stream stream, gml_stream_cache **out) {
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

/* ---- ending ---------------------------------------------------------------------------------- */

static void close_cache(gml_stitch *stitch, gml_stream_cache *cache) {
    gml_list_remove(&cache->caches);
    if (!cache->is_host) {
        (void)gml_map_take(&stitch->cache_by_stream, cache->stream + 1);
        stitch->cache_count--;
    }
    gml_seeker_close(&stitch->fences, &cache->seeker);
    free(cache);
}

void gml_stream_cache_sweep(gml_stitch *stitch) {
    stitch->last_cache = NULL;
    for (gml_link *link = stitch->caches.next, *next; link != &stitch->caches; link = next) {
        gml_stream_cache *cache = gml_stream_cache_of_link(link);
        next = link->next;
        if (!cache->user_count && !cache->set.free_bytes && !cache->host && !cache->is_host) {
            close_cache(stitch, cache);
        }
    }
}

void gml_stream_caches_flush(gml_stitch *stitch) {
    for (gml_link *link = stitch->caches.next; link != &stitch->caches; link = link->next) {
        gml_stream_cache_flush(stitch, gml_stream_cache_of_link(link));
    }
}

void gml_stream_caches_close(gml_stitch *stitch) {
    while (!gml_list_is_empty(&stitch->caches)) {
        close_cache(stitch, gml_stream_cache_of_link(stitch->caches.next));
    }
    gml_map_clear(&stitch->cache_by_stream);
}
