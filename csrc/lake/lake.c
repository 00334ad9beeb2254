/* Opening, closing, allocating and freeing. */
#include "lake/lake.h"

#include "base/size.h"
#include "base/status.h"
#include "driver/arena.h"
#include "driver/handed.h"
#include "policy/torch/rounding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gml_status refuse(char *reason, size_t reason_bytes, gml_status status, const char *text) {
    if (reason && reason_bytes) {
        snprintf(reason, reason_bytes, "%s", text);
    }
    return status;
}

static gml_status find_policy(const char *name, const gml_policy_ops **out, char *reason) {
    const gml_policy_ops *found = name ? gml_policy_find(name) : NULL;
    if (found) {
        *out = found;
        return GML_OK;
    }
    int used = snprintf(reason, GML_REASON_BYTES,
                        "no policy is called \"%.60s\"; there are:", name ? name : "");
    for (size_t i = 0; gml_policy_name(i) && used > 0 && used < GML_REASON_BYTES; i++) {
        used +=
            snprintf(reason + used, (size_t)(GML_REASON_BYTES - used), " %s", gml_policy_name(i));
    }
    return GML_INVALID_ARGUMENT;
}

/* Opens the driver that the configuration names. */
static gml_status open_backend(const gml_lake_config *config, gml_driver **out, char *reason) {
    gml_driver *driver;
    gml_status status = gml_driver_open(config->driver, config->device, config->capacity_bytes,
                                        &driver, reason, GML_REASON_BYTES);
    if (status == GML_OK && config->shared) {
        driver->device = config->shared;
    } else if (status == GML_OK) {
        driver->device->limit_bytes = config->capacity_bytes;
    }
    if (status == GML_OK && config->handle_type) {
        status = gml_driver_share(driver, config->handle_type);
        if (status != GML_OK) {
            snprintf(reason, GML_REASON_BYTES, "%s", driver->reason);
            gml_driver_close(driver);
        }
    }
    if (status == GML_OK) {
        *out = driver;
    }
    return status;
}

/* Lets the hooks wrap the driver. */
static gml_status hook(gml_lake *lake, const gml_lake_hooks *hooks, gml_hook_layer layer) {
    return hooks ? hooks->wrap(hooks, layer, &lake->driver, &lake->checker) : GML_OK;
}

/* One allocation in place of virtual memory: if configured, or if the device has none. */
static gml_status open_arena(const gml_lake_config *config, const gml_policy_ops *policy,
                             uint64_t arena_bytes, gml_driver **driver) {
    if (!policy->can_serve_arena) {
        return GML_OK;
    }
    if (!arena_bytes && !(*driver)->info.has_virtual_memory) {
        arena_bytes = config->capacity_bytes;
    }
    return arena_bytes ? gml_arena_driver_open(arena_bytes, driver) : GML_OK;
}

static gml_status open_remapper(gml_lake *lake, const gml_lake_hooks *hooks) {
    gml_status status = hook(lake, hooks, GML_HOOK_BELOW_SLEEP);
    if (status == GML_OK) {
        status = gml_remapper_open(&lake->driver, &lake->remapper);
    }
    return status == GML_OK ? hook(lake, hooks, GML_HOOK_ABOVE_SLEEP) : status;
}

static gml_status open_parts(gml_lake *lake, const gml_lake_config *config,
                             const gml_policy_ops *policy, char *reason) {
    gml_status status = open_backend(config, &lake->driver, reason);
    if (status != GML_OK) {
        return status;
    }
    status = open_arena(config, policy, lake->knobs.arena, &lake->driver);
    if (status == GML_OK) {
        status = config->can_sleep ? open_remapper(lake, config->hooks)
                                   : hook(lake, config->hooks, GML_HOOK_ONLY);
    }
    if (status == GML_OK) {
        status = policy->create(lake->driver, config->capacity_bytes, &lake->knobs, &lake->policy);
    }
    if (status != GML_OK) {
        snprintf(reason, GML_REASON_BYTES, "%s",
                 lake->driver->reason[0] ? lake->driver->reason : gml_status_text(status));
        gml_driver_close(lake->driver);
    }
    return status;
}

static void finish_free(void *context, gml_block *block) {
    gml_lake_finish_free(context, block);
}

gml_status gml_lake_open(const gml_lake_config *config, gml_lake **out, char *reason,
                         size_t reason_bytes) {
    char text[GML_REASON_BYTES] = "";
    const gml_policy_ops *policy;
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    gml_status status = find_policy(config->policy, &policy, text);
    if (status == GML_OK) {
        status =
            gml_knobs_apply(&knobs, config->settings, config->setting_count, text, sizeof text);
    }
    if (status != GML_OK) {
        return refuse(reason, reason_bytes, status, text);
    }
    gml_lake *lake = calloc(1, sizeof *lake);
    if (!lake) {
        return refuse(reason, reason_bytes, GML_NO_HOST_MEMORY, "out of host memory");
    }
    lake->knobs = knobs;
    lake->capacity_bytes = config->capacity_bytes;
    lake->device = config->device;
    status = open_parts(lake, config, policy, text);
    if (status != GML_OK) {
        free(lake);
        return refuse(reason, reason_bytes, status, text);
    }
    pthread_mutex_init(&lake->lock, NULL);
    lake->pools = (gml_pools){
        .driver = lake->driver,
        .ops = lake->policy->ops,
        .knobs = &lake->knobs,
        .capacity_bytes = lake->capacity_bytes,
        .finish_frees = gml_lake_finish_pending,
        .finish_context = lake,
    };
    gml_pools_init(&lake->pools);
    gml_list_init(&lake->elastic_list);
    lake->driver->end_aliases = gml_elastics_end_aliases;
    lake->driver->alias_context = lake;
    gml_uses_init(&lake->uses, lake->driver, finish_free, lake);
    /* A policy that models PyTorch waits for other streams where PyTorch does. */
    lake->policy->finish_frees = gml_lake_finish_pending;
    lake->policy->finish_context = lake;
    lake->sharer.lock = &lake->lock;
    gml_device_join(lake->driver->device, &lake->sharer);
    *out = lake;
    return GML_OK;
}

/* Ends the uses of blocks still live at close: their memory is released. Policies wait for the
 * streams that they served, but not all of them for other streams that use a block. */
static void end_uses(gml_lake *lake) {
    bool is_shared = lake->uses.pending_count > 0;
    for (size_t i = 0; i < lake->blocks.capacity; i++) {
        const gml_block *block = lake->blocks.slots[i].value;
        if (lake->blocks.slots[i].key) {
            gml_lake_end_use(lake, block->address);
            is_shared |= block->uses != NULL;
        }
    }
    if (is_shared) {
        /* A failure cannot be reported here, nor handled. */
        (void)gml_driver_device_synchronize(lake->driver);
    }
}

gml_status gml_lake_close(gml_lake *lake) {
    if (!lake) {
        return GML_OK;
    }
    gml_device *device = lake->driver->device;
    gml_device_halt(device);
    gml_pools_end_all(&lake->pools);
    gml_device_go_on(device);
    pthread_mutex_lock(&lake->lock); /* no capture begins meanwhile */
    end_uses(lake);
    gml_uses_close(&lake->uses);
    gml_status status = gml_elastics_end(lake);
    status = gml_first_failure(status, gml_pools_close(&lake->pools));
    status = gml_first_failure(status, gml_lake_end_imports(lake));
    status = gml_first_failure(status, lake->policy->ops->destroy(lake->policy));
    gml_backup_end(lake);
    pthread_mutex_unlock(&lake->lock);
    gml_device_leave(device, &lake->sharer);
    gml_driver_close(lake->driver);
    gml_map_clear(&lake->blocks);
    gml_history_close(&lake->history);
    gml_lake_end_segments(lake);
    pthread_mutex_destroy(&lake->lock);
    free(lake);
    return status;
}

gml_status gml_lake_find_heap(gml_lake *lake, const gml_pool_id *named, gml_stream stream,
                              gml_heap **out) {
    *out = NULL;
    if (named) {
        return gml_pools_find(&lake->pools, *named, stream, out);
    }
    /* A graph is replayed with the addresses it was captured with, so its memory must come from its
     * own pool only. */
    return gml_list_is_empty(&lake->pools.begun)
               ? GML_OK
               : gml_pools_find_capture(&lake->pools, stream, out);
}

/* Makes room for `server`, which has refused a request; whether it is worth asking again. A policy
 * that models PyTorch may have waited for streams itself, and does not look at what that freed:
 * there were `pending_before` blocks to wait for before it was asked. */
static bool may_ask_again(gml_lake *lake, const gml_policy *server, size_t pending_before) {
    bool has_waited = lake->uses.pending_count < pending_before;
    bool has_room = false;
    gml_status status = gml_lake_make_room(lake, server, &has_room);
    return has_waited || (status == GML_OK && has_room);
}

/* The block is about to be used. Where that would be a race, its owner has it back. Graphs that
 * take turns use their memory in replays, in an order that the program has promised. */
static gml_status begin_use(gml_lake *lake, const gml_heap *heap, gml_block *block) {
    gml_status status = heap && heap->turn ? GML_OK : gml_lake_begin_use(lake, block);
    if (status != GML_OK) {
        block->owner->ops->free(block->owner, block);
    }
    return status;
}

/* Asks `heap`, or the lake's policy where that is NULL. */
static gml_status ask(gml_lake *lake, gml_heap *heap, uint64_t size_bytes, gml_stream stream,
                      gml_block **out) {
    gml_policy *server = heap ? heap->policy : lake->policy;
    uint64_t reserved_bytes = server->reserved_bytes;
    gml_status status = server->ops->allocate(server, size_bytes, stream, out);
    if (heap) {
        gml_pools_count(&lake->pools, heap);
    }
    if (server->reserved_bytes > reserved_bytes) {
        gml_pools_unpark(&lake->pools, heap != NULL);
    }
    if (status != GML_OK && server->driver != lake->driver) {
        gml_driver_take_reason(lake->driver, server->driver);
        lake->driver->tried |= server->driver->tried;
    }
    return status;
}

/* Asks again after a refusal, where pools help out or there is more room now; *heap is the one that
 * serves. */
static gml_status ask_again(gml_lake *lake, gml_heap **heap, size_t pending_before,
                            uint64_t size_bytes, gml_stream stream, gml_block **out) {
    gml_status status = GML_OK;
    if (!*heap) {
        status = gml_pools_help(&lake->pools, size_bytes, stream, heap, out);
        *heap = *out ? *heap : NULL;
    }
    if (status != GML_OK || *out) {
        return status;
    }
    const gml_policy *server = *heap ? (*heap)->policy : lake->policy;
    if (!may_ask_again(lake, server, pending_before)) {
        return GML_OUT_OF_MEMORY;
    }
    lake->torch.num_alloc_retries++;
    return ask(lake, *heap, size_bytes, stream, out);
}

/* A block belongs to its owner from here on. */
static gml_status serve(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes,
                        gml_stream stream, gml_block **out) {
    gml_heap *heap;
    gml_status status = gml_lake_find_heap(lake, pool, stream, &heap);
    if (status != GML_OK) {
        return status;
    }
    gml_block *block = NULL;
    size_t pending_before = lake->uses.pending_count;
    const uint64_t *divisions = GML_DEVICE_READ(lake->driver->device, divisions);
    uint64_t wanted_bytes = divisions ? gml_torch_round(divisions, size_bytes) : size_bytes;
    status = ask(lake, heap, wanted_bytes, stream, &block);
    if (status == GML_OUT_OF_MEMORY) {
        status = ask_again(lake, &heap, pending_before, wanted_bytes, stream, &block);
    }
    if (status == GML_OK) {
        block->requested_bytes = size_bytes;
        block->owner = heap ? heap->policy : lake->policy;
        block->uses = NULL;
        status = begin_use(lake, heap, block);
    }
    if (status == GML_OK) {
        block->id = lake->next_id++;
        *out = block;
    }
    return status;
}

/* Checks that a request may be served, and reserves room for its block: after the policy has served
 * it, nothing may fail. */
static gml_status admit(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    if (gml_lake_sleeps(lake)) {
        return gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                               "%sthis memory is asleep: wake it first, or allocate elsewhere",
                               lake->title);
    }
    if (size_bytes > GML_LARGEST_REQUEST) {
        return gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT,
                               "%s asked for; the largest request is 256 TiB",
                               gml_size_of(size_bytes).text);
    }
    if (stream == UINT64_MAX) {
        return gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT,
                               "2^64 - 1 is not a stream handle");
    }
    if (lake->uses.pending_count) {
        gml_uses_poll(&lake->uses);
    }
    gml_status status = gml_map_reserve(&lake->blocks, 1);
    return status == GML_OK
               ? GML_OK
               : gml_driver_fail(lake->driver, status, "the table of live blocks cannot grow");
}

/* Counts a block that was served. */
static void enter(gml_lake *lake, gml_block *block) {
    (void)gml_map_insert(&lake->blocks, block->address, block);
    gml_lake_count_allocation(lake, block);
    gml_history_add(&lake->history, GML_REQUEST_ALLOC, block->id, block->address,
                    block->requested_bytes, block->stream);
}

void gml_lake_refuse(gml_lake *lake, const gml_situation *seen) {
    pthread_mutex_lock(&lake->lock);
    gml_lake_count_refusal(lake, seen);
    pthread_mutex_unlock(&lake->lock);
}

/* How far a request goes before it is one that was refused. */
typedef enum gml_insistence {
    GML_TRIES,      /* the caller may find memory elsewhere */
    GML_TAKES_HOST, /* the same, but for that of the host */
    GML_IS_FINAL    /* everything is tried, and a lack of memory counted */
} gml_insistence;

/* With memory of the host, where a setting allows it. */
static gml_status serve_from_host(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                                  gml_block **out) {
    if (!lake->knobs.host) {
        return GML_OUT_OF_MEMORY;
    }
    lake->driver->may_take_host = true;
    gml_status status = serve(lake, NULL, size_bytes, stream, out);
    lake->driver->may_take_host = false;
    if (lake->stats.highest_host_bytes < lake->driver->host_bytes) {
        lake->stats.highest_host_bytes = lake->driver->host_bytes;
    }
    return status;
}

/* Of a pool, or of none where that is NULL. */
static gml_status request(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes,
                          gml_stream stream, gml_insistence insistence, gml_address *out) {
    bool is_final = insistence == GML_IS_FINAL;
    if (size_bytes == 0) {
        *out = 0;
        return GML_OK;
    }
    gml_block *block = NULL;
    pthread_mutex_lock(&lake->lock);
    lake->driver->tried = 0;
    gml_status status = admit(lake, size_bytes, stream);
    if (status == GML_OK) {
        status = serve(lake, pool, size_bytes, stream, &block);
        if (status == GML_OUT_OF_MEMORY && is_final && gml_device_spare(lake->driver->device)) {
            gml_device_spend(lake->driver->device, 1);
            status = serve(lake, pool, size_bytes, stream, &block);
            gml_device_spend(lake->driver->device, -1);
        }
        if (status == GML_OUT_OF_MEMORY && insistence != GML_TRIES && !pool) {
            status = serve_from_host(lake, size_bytes, stream, &block);
        }
        gml_lake_note_reserved(lake);
        if (status == GML_OK) {
            enter(lake, block);
            *out = block->address;
        } else if (status == GML_OUT_OF_MEMORY) {
            gml_driver_note(lake->driver, GML_TRIED_IDLE);
            gml_note_all_tried(lake->driver->tried);
        }
        if (status == GML_OUT_OF_MEMORY && is_final) {
            gml_lake_refuse_locked(lake, pool, size_bytes, stream);
        }
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_try(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_address *out) {
    return request(lake, NULL, size_bytes, stream, GML_TRIES, out);
}

gml_status gml_lake_try_host(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                             gml_address *out) {
    return request(lake, NULL, size_bytes, stream, GML_TAKES_HOST, out);
}

gml_status gml_lake_try_in(gml_lake *lake, gml_pool_id id, uint64_t size_bytes, gml_stream stream,
                           gml_address *out) {
    return request(lake, &id, size_bytes, stream, GML_TRIES, out);
}

gml_status gml_lake_allocate_in(gml_lake *lake, gml_pool_id id, uint64_t size_bytes,
                                gml_stream stream, gml_address *out) {
    return request(lake, &id, size_bytes, stream, GML_IS_FINAL, out);
}

gml_status gml_lake_allocate(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                             gml_address *out) {
    return request(lake, NULL, size_bytes, stream, GML_IS_FINAL, out);
}

/* The live block at `address`, or NULL with a reason. */
static gml_block *find_block(gml_lake *lake, gml_address address) {
    gml_block *block = gml_map_find(&lake->blocks, address);
    if (!block || block->is_elastic) {
        (void)gml_driver_fail(lake->driver, GML_UNKNOWN_ADDRESS,
                              "no live block begins at 0x%" PRIx64, address);
        return NULL;
    }
    return block;
}

/* Ends the block and records an event of `kind`. */
static void end_block(gml_lake *lake, gml_block *block, uint32_t kind) {
    gml_history_add(&lake->history, kind, block->id, block->address, block->requested_bytes,
                    block->stream);
    gml_lake_count_free(lake, block);
    block->owner->ops->free(block->owner, block);
}

void gml_lake_finish_free(gml_lake *lake, gml_block *block) {
    end_block(lake, block, GML_REQUEST_FREE);
}

gml_status gml_lake_free_locked(gml_lake *lake, gml_address address) {
    gml_block *block = gml_map_take(&lake->blocks, address);
    if (block && block->is_elastic) {
        (void)gml_map_insert(&lake->blocks, address, block); /* its place has just become free */
        block = NULL;
    }
    if (!block) {
        return gml_driver_fail(
            lake->driver, GML_UNKNOWN_ADDRESS,
            "no live block begins at 0x%" PRIx64 ": it is foreign, or was freed before", address);
    }
    gml_lake_end_use(lake, address);
    if (block->uses) {
        gml_history_add(&lake->history, GML_REQUEST_FREE_REQUESTED, block->id, address,
                        block->requested_bytes, block->stream);
        gml_lake_count_let_go(lake, block);
        gml_uses_free(&lake->uses, block);
    } else {
        end_block(lake, block, GML_NOTED_FREES);
    }
    return GML_OK;
}

gml_status gml_lake_record_stream_of(gml_lake *lake, gml_address address, int device,
                                     gml_stream stream) {
    int elsewhere = device == lake->device ? -1 : device;
    pthread_mutex_lock(&lake->lock);
    gml_block *block = find_block(lake, address);
    gml_status status =
        block ? gml_uses_add(&lake->uses, block, elsewhere, stream) : GML_UNKNOWN_ADDRESS;
    if (status == GML_OK && lake->checker && elsewhere < 0) { /* it sees one device */
        status = gml_lake_checked(lake, lake->checker->join_use(lake->checker, address, stream));
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_record_stream(gml_lake *lake, gml_address address, gml_stream stream) {
    return gml_lake_record_stream_of(lake, address, lake->device, stream);
}

gml_status gml_lake_free(gml_lake *lake, gml_address address) {
    if (address == 0) {
        return GML_OK;
    }
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_lake_free_locked(lake, address);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_trim(gml_lake *lake, uint64_t *released_bytes) {
    uint64_t released = 0;
    gml_device_end_failed_captures(lake->driver->device);
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_lake_trim_locked(lake, &released);
    released += gml_handed_drop(gml_handed_to(lake->driver->device));
    gml_history_add(&lake->history, GML_REQUEST_TRIM, 0, 0, released, 0);
    pthread_mutex_unlock(&lake->lock);
    gml_lake_tell(lake);
    if (released_bytes) {
        *released_bytes = released;
    }
    return status;
}

static gml_block_info info_of(const gml_block *block) {
    return (gml_block_info){
        .address = block->address,
        .requested_bytes = block->requested_bytes,
        .block_bytes = block->block_bytes,
        .stream = block->stream,
        .state = block->state,
        .pool = block->owner->pool,
        .id = block->id,
        .has_users = block->uses != NULL,
    };
}

gml_status gml_lake_block(gml_lake *lake, gml_address address, gml_block_info *out) {
    pthread_mutex_lock(&lake->lock);
    const gml_block *block = find_block(lake, address);
    if (block) {
        *out = info_of(block);
    }
    pthread_mutex_unlock(&lake->lock);
    return block ? GML_OK : GML_UNKNOWN_ADDRESS;
}

typedef struct sought_block {
    uint64_t id;
    bool is_found;
} sought_block;

static void compare_id(void *context, gml_block *block) {
    sought_block *sought = context;
    sought->is_found |= block->id == sought->id;
}

bool gml_lake_block_is_over(gml_lake *lake, gml_address address, uint64_t id) {
    pthread_mutex_lock(&lake->lock);
    const gml_block *live = gml_map_find(&lake->blocks, address);
    sought_block sought = {id, live && live->id == id};
    if (!sought.is_found) {
        gml_uses_each(&lake->uses, compare_id, &sought);
    }
    pthread_mutex_unlock(&lake->lock);
    return !sought.is_found;
}

typedef struct pending_visitor {
    void (*see)(void *context, const gml_block_info *block);
    void *context;
} pending_visitor;

static void see_pending(void *context, gml_block *block) {
    const pending_visitor *visitor = context;
    gml_block_info info = info_of(block);
    visitor->see(visitor->context, &info);
}

void gml_lake_pending(gml_lake *lake, void (*see)(void *context, const gml_block_info *block),
                      void *context) {
    pthread_mutex_lock(&lake->lock);
    gml_uses_each(&lake->uses, see_pending, &(pending_visitor){see, context});
    pthread_mutex_unlock(&lake->lock);
}

gml_status gml_lake_bytes(gml_lake *lake, gml_address address, void **out) {
    pthread_mutex_lock(&lake->lock);
    const gml_block *block = find_block(lake, address);
    gml_status status = block ? gml_driver_bytes(lake->driver, address, block->block_bytes, out)
                              : GML_UNKNOWN_ADDRESS;
    pthread_mutex_unlock(&lake->lock);
    return status;
}

void gml_lake_reason(gml_lake *lake, char *out, size_t out_bytes) {
    if (!out_bytes) {
        return;
    }
    pthread_mutex_lock(&lake->lock);
    snprintf(out, out_bytes, "%s", lake->driver->reason);
    pthread_mutex_unlock(&lake->lock);
}

gml_status gml_lake_set_limit(gml_lake *lake, uint64_t limit_bytes) {
    pthread_mutex_lock(&lake->lock);
    bool is_below = limit_bytes && (!lake->capacity_bytes || limit_bytes < lake->capacity_bytes);
    __atomic_store_n(&lake->driver->device->limit_bytes,
                     is_below ? limit_bytes : lake->capacity_bytes, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

gml_status gml_lake_set_margin(gml_lake *lake, uint64_t margin_bytes) {
    pthread_mutex_lock(&lake->lock);
    lake->driver->margin_bytes = margin_bytes;
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

gml_status gml_lake_grant(gml_lake *lake, int peer) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_driver_grant(lake->driver, peer);
    pthread_mutex_unlock(&lake->lock);
    return status;
}
