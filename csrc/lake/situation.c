/* Taking the account of a refusal: what there is, by whom it may be used. */
#include "lake/situation.h"

#include "base/rounding.h"
#include "base/size.h"
#include "lake/lake.h"

#include <stdio.h>

/* ---- what was tried -------------------------------------------------------------------------- */

static _Thread_local uint64_t steps;
static _Thread_local gml_situation last;

void gml_note_tried(gml_tried step) {
    steps |= UINT64_C(1) << step;
}

void gml_note_all_tried(uint64_t tried) {
    steps |= tried;
}

uint64_t gml_take_tried(void) {
    uint64_t taken = steps;
    steps = 0;
    return taken;
}

gml_situation *gml_last_refusal(void) {
    return &last;
}

/* ---- idle memory ----------------------------------------------------------------------------- */

/* The idle memory of one policy, each byte once. */
typedef struct idle {
    gml_span_info span; /* the last one */
    gml_stream stream;
    uint64_t pieces, bytes;
    uint64_t elsewhere_bytes; /* in spans of other streams than `stream` */
} idle;

static void see_span(void *context, const gml_span_info *span) {
    ((idle *)context)->span = *span;
}

static void see_range(void *context, const gml_range_info *range) {
    idle *now = context;
    bool is_idle_view = now->span.kind == GML_SPAN_VIEW && now->span.used_bytes == 0;
    if (!range->is_used && !is_idle_view) {
        now->pieces++;
        now->bytes += range->size_bytes;
        now->elsewhere_bytes += now->span.stream == now->stream ? 0 : range->size_bytes;
    }
}

static idle idle_of(gml_policy *policy, gml_stream stream) {
    idle now = {.stream = stream};
    const gml_visitor visitor = {.context = &now, .span = see_span, .range = see_range};
    policy->ops->visit(policy, &visitor);
    return now;
}

typedef struct pool_sums {
    const gml_policy *server; /* whose memory is no private pool's to others */
    gml_situation *out;
    gml_pool_id id; /* of the pool whose heaps are seen, */
    uint64_t bytes; /* and what is idle in these so far */
} pool_sums;

static void see_heap(void *context, const gml_heap *heap) {
    pool_sums *sums = context;
    gml_policy *policy = heap->policy;
    gml_situation *out = sums->out;
    if (policy == sums->server) {
        return;
    }
    if (policy->pool.first != sums->id.first || policy->pool.second != sums->id.second) {
        sums->id = policy->pool;
        sums->bytes = 0;
    }
    uint64_t idle_bytes = idle_of(policy, 0).bytes;
    sums->bytes += idle_bytes;
    out->pools_bytes += idle_bytes;
    if (sums->bytes > out->most_bytes) {
        out->most_bytes = sums->bytes;
        out->most_owner = sums->id.first;
        out->most_number = sums->id.second;
        out->most_kind = policy->is_kept ? GML_POOL_KIND_GRAPH : GML_POOL_KIND_MEMPOOL;
    }
}

void gml_lake_idle(gml_lake *lake, uint64_t *idle_bytes, uint64_t *asleep_bytes) {
    gml_situation pooled = {0};
    pthread_mutex_lock(&lake->lock);
    bool is_asleep = gml_lake_sleeps(lake);
    gml_pools_each_heap(&lake->pools, see_heap, &(pool_sums){.out = &pooled});
    *idle_bytes = is_asleep ? 0 : idle_of(lake->policy, 0).bytes + pooled.pools_bytes;
    *asleep_bytes = is_asleep ? lake->driver->held_bytes : 0;
    pthread_mutex_unlock(&lake->lock);
}

/* ---- the account ----------------------------------------------------------------------------- */

static void fill_device(const gml_lake *lake, gml_situation *out) {
    gml_driver *driver = lake->driver;
    gml_driver_begin_undo(driver); /* the reason of the refusal stays */
    if (gml_driver_memory_info(driver, &out->free_bytes, &out->total_bytes) != GML_OK) {
        out->free_bytes = out->total_bytes = 0;
    }
    gml_driver_end_undo(driver);
    uint64_t device_bytes = gml_difference(out->free_bytes, driver->margin_bytes);
    uint64_t allowed_bytes = gml_device_room(driver->device);
    out->device = (uint64_t)lake->device;
    out->limit_bytes = GML_DEVICE_READ(driver->device, limit_bytes);
    out->margin_bytes = driver->margin_bytes;
    out->is_limited = allowed_bytes < device_bytes;
    out->room_bytes = out->is_limited ? allowed_bytes : device_bytes;
    out->is_arena = driver->arena_bytes > 0;
    out->is_capturing = gml_driver_is_frozen(driver);
    out->is_shared = GML_DEVICE_READ(driver->device, spare_bytes) > 0;
    out->regions_bytes =
        gml_difference(GML_DEVICE_READ(driver->device, held_bytes), driver->held_bytes);
}

static void fill_live(gml_lake *lake, gml_situation *out) {
    uint64_t chunks;
    gml_elastics_measure(lake, &chunks, &out->elastic_bytes);
    out->pending_bytes = lake->uses.pending_bytes;
    out->host_bytes = lake->driver->host_bytes;
    out->live_bytes = gml_difference(lake->stats.live_bytes,
                                     out->pending_bytes + out->elastic_bytes + out->host_bytes);
    out->live_blocks = gml_difference(lake->stats.live_blocks, lake->uses.pending_count + chunks);
    out->held_bytes = gml_lake_reserved(lake);
}

/* The memory of the policy that was to serve, and what it could still have served. */
static void fill_server(gml_policy *server, gml_situation *out) {
    gml_usage usage = {.stream = out->stream};
    server->ops->usage(server, &usage);
    idle own = idle_of(server, out->stream);
    bool has_views = server->chunk_bytes && !out->is_arena;
    out->streams_bytes = server->ops->stream_pairs ? usage.elsewhere_bytes : own.elsewhere_bytes;
    out->idle_bytes = gml_difference(own.bytes, out->streams_bytes);
    out->pieces = own.pieces;
    out->largest_bytes =
        usage.stream_largest_bytes < out->idle_bytes ? usage.stream_largest_bytes : out->idle_bytes;
    uint64_t chunk_bytes = server->chunk_bytes ? server->chunk_bytes : 2 << 20;
    uint64_t new_bytes = out->room_bytes - out->room_bytes % chunk_bytes;
    uint64_t joined_bytes = new_bytes + (has_views ? usage.joined_bytes : 0);
    out->serves_bytes = joined_bytes > out->largest_bytes ? joined_bytes : out->largest_bytes;
}

/* pre: the lock is held. */
static void look(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes, gml_stream stream,
                 gml_situation *out) {
    gml_heap *heap = NULL;
    *out = (gml_situation){
        .size_bytes = size_bytes,
        .stream = stream,
        .is_region = lake->remapper != NULL,
        .tried = gml_take_tried(),
    };
    fill_device(lake, out);
    fill_live(lake, out);
    gml_driver_begin_undo(lake->driver);
    bool is_found = gml_lake_find_heap(lake, pool, out->stream, &heap) == GML_OK && heap;
    gml_driver_end_undo(lake->driver);
    gml_policy *server = is_found ? heap->policy : lake->policy;
    if (is_found) {
        out->pool_owner = server->pool.first;
        out->pool_number = server->pool.second;
        out->outside_bytes = idle_of(lake->policy, 0).bytes;
    }
    fill_server(server, out);
    gml_pools_each_heap(&lake->pools, see_heap, &(pool_sums){.server = server, .out = out});
    (void)snprintf(out->policy, sizeof out->policy, "%s", lake->policy->ops->name);
}

void gml_lake_look(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes, gml_stream stream,
                   gml_situation *out) {
    pthread_mutex_lock(&lake->lock);
    look(lake, pool, size_bytes, stream, out);
    pthread_mutex_unlock(&lake->lock);
}

void gml_lake_memory_info(gml_lake *lake, uint64_t *free_bytes, uint64_t *total_bytes) {
    gml_situation now = {0};
    pthread_mutex_lock(&lake->lock);
    fill_device(lake, &now);
    pthread_mutex_unlock(&lake->lock);
    *free_bytes = now.free_bytes;
    *total_bytes = now.total_bytes;
}

/* ---- as the lake's reason -------------------------------------------------------------------- */

void gml_lake_count_refusal(gml_lake *lake, const gml_situation *seen) {
    char verdict[GML_SAY_BYTES], remedy[GML_SAY_BYTES];
    lake->stats.states[GML_STATE_OOM]++;
    lake->torch.num_ooms++;
    gml_history_add(&lake->history, GML_REQUEST_OOM, 0, 0, seen->size_bytes, seen->stream);
    gml_situation_say(seen, GML_SAY_VERDICT, verdict, sizeof verdict);
    gml_situation_say(seen, GML_SAY_REMEDY, remedy, sizeof remedy);
    (void)gml_driver_fail(lake->driver, GML_OUT_OF_MEMORY, "out of memory: %s asked for. %s%s%s",
                          gml_size_of(seen->size_bytes).text, verdict, *remedy ? " " : "", remedy);
}

void gml_lake_refuse_locked(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes,
                            gml_stream stream) {
    look(lake, pool, size_bytes, stream, &last);
    gml_lake_count_refusal(lake, &last);
}

void gml_lake_explain_waking(gml_lake *lake) {
    gml_situation now = {0};
    fill_device(lake, &now);
    char limit[96] = "";
    if (now.limit_bytes) {
        (void)snprintf(limit, sizeof limit, "; all may hold %s, by capacity or fraction",
                       gml_size_of(now.limit_bytes).text);
    }
    (void)gml_driver_fail(
        lake->driver, GML_OUT_OF_MEMORY,
        "out of memory: waking needs %s; of %s %s are free, gmlake holds %s awake, and others the "
        "rest%s",
        gml_size_of(lake->driver->held_bytes).text, gml_size_of(now.total_bytes).text,
        gml_size_of(now.free_bytes).text,
        gml_size_of(GML_DEVICE_READ(lake->driver->device, held_bytes)).text, limit);
}
