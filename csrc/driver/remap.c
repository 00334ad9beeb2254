/* Virtual handles, the places where each is mapped, and the real handles behind them while
 * awake. */
#include "driver/remap.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/tree.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdlib.h>

/* So much is mapped, opened and told of at a time: opening waits for copies that are under way. */
static const uint64_t PART_BYTES = UINT64_C(512) << 20;

/* Physical memory, as this driver's caller knows it. */
typedef struct chunk {
    gml_handle behind; /* of the inner driver; 0: released */
    uint64_t size_bytes;
    uint64_t places; /* where it is mapped */
    uint64_t absent; /* of them: not now */
    bool is_fresh;   /* taken by an unfinished wake: uninitialized */
    bool is_released;
} chunk;

typedef enum presence { ABSENT, MAPPED, ACCESSIBLE } presence;

/* One mapping. */
typedef struct place {
    gml_tree_node node; /* by address; its size is unused */
    uint64_t size_bytes;
    chunk *chunk;
    gml_handle handle; /* of the chunk, here */
    presence now;
    presence wanted; /* while awake, when it is the same */
    bool continues;  /* in the reservation of the place before it: opened with it in one call */
} place;

struct gml_remapper {
    gml_wrapped wrapped; /* must be first */
    bool is_asleep;      /* from the first step of a sleep to the end of a wake */
    bool is_copying;     /* copies may be under way: until all have been waited for */
    gml_handle last_handle;
    gml_map chunks;  /* handle here -> chunk */
    gml_tree places; /* by address */
    gml_pool chunk_objects, place_objects;
};

static gml_remapper *remapper_of(gml_driver *self) {
    return (gml_remapper *)(void *)self;
}

bool gml_remapper_is_asleep(const gml_remapper *remapper) {
    return remapper->is_asleep;
}

static place *place_from(const gml_remapper *remapper, gml_address address) {
    return (place *)(void *)gml_tree_at_least(&remapper->places, 0, address);
}

static place *next_place(const place *of) {
    return (place *)(void *)gml_tree_next(&of->node);
}

/* The content of a slot of the table, or NULL. */
static chunk *chunk_at(const gml_remapper *remapper, size_t slot) {
    const gml_map_slot *at = &remapper->chunks.slots[slot];
    return at->key ? at->value : NULL;
}

static gml_status check_awake(gml_driver *self, const char *call) {
    return !remapper_of(self)->is_asleep
               ? GML_OK
               : gml_driver_fail(self, GML_UNSUPPORTED, "%s: this memory is asleep", call);
}

/* Passes a status of the inner driver on that was not asked through `counted`, with its reason. */
static gml_status count(const gml_remapper *remapper, gml_driver *counted, gml_driver_call call,
                        gml_status status) {
    counted->calls[call]++;
    if (status != GML_OK) {
        gml_driver_take_reason(counted, remapper->wrapped.inner);
    }
    return status;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Waits for copies that a failure left running, before their memory is released. */
static gml_status await_copies(gml_remapper *remapper, gml_driver *counted) {
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = remapper->is_copying ? count(remapper, counted, GML_CALL_DEVICE_SYNCHRONIZE,
                                                     inner->ops->device_synchronize(inner))
                                             : GML_OK;
    remapper->is_copying = status != GML_OK;
    return status;
}

/* ---- physical memory ------------------------------------------------------------------------- */

static gml_status create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = check_awake(self, "create");
    if (status != GML_OK) {
        return status;
    }
    chunk *made = gml_pool_take(&remapper->chunk_objects);
    if (!made || gml_map_reserve(&remapper->chunks, 1) != GML_OK) {
        gml_pool_give(&remapper->chunk_objects, made);
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "create: no host memory for a handle");
    }
    made->size_bytes = size_bytes;
    status = gml_wrapped_relay(self, gml_driver_take_behind(inner, size_bytes, &made->behind));
    if (status != GML_OK) {
        gml_pool_give(&remapper->chunk_objects, made);
        return status;
    }
    *out = ++remapper->last_handle;
    (void)gml_map_insert(&remapper->chunks, *out, made);
    return GML_OK;
}

/* Frees a chunk without a holder or mapping. */
static gml_status end_chunk(gml_driver *self, gml_handle handle, chunk *ended) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = await_copies(remapper, self);
    if (status == GML_OK && ended->behind) {
        status = gml_driver_give_behind(inner, ended->size_bytes, ended->behind);
        (void)gml_wrapped_relay(self, status);
    }
    if (status == GML_OK) {
        (void)gml_map_take(&remapper->chunks, handle);
        gml_pool_give(&remapper->chunk_objects, ended);
    }
    return status;
}

static gml_status release(gml_driver *self, gml_handle handle) {
    chunk *released = gml_map_find(&remapper_of(self)->chunks, handle);
    if (!released || released->is_released) {
        return gml_driver_fail(self, GML_MISUSE, "release: %" PRIu64 " is no handle", handle);
    }
    released->is_released = released->places > 0; /* it ends with its last mapping */
    return released->is_released ? GML_OK : end_chunk(self, handle, released);
}

/* ---- mappings -------------------------------------------------------------------------------- */

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver *inner = remapper->wrapped.inner;
    chunk *mapped = gml_map_find(&remapper->chunks, handle);
    gml_status status = check_awake(self, "map");
    if (status != GML_OK) {
        return status;
    }
    if (!mapped) {
        return gml_driver_fail(self, GML_MISUSE, "map: %" PRIu64 " is no handle", handle);
    }
    place *made = gml_pool_take(&remapper->place_objects);
    if (!made) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "map: no host memory for a mapping");
    }
    status = gml_wrapped_relay(self, inner->ops->map(inner, address, size_bytes, mapped->behind));
    if (status != GML_OK) {
        gml_pool_give(&remapper->place_objects, made);
        return status;
    }
    made->node.address = address;
    made->size_bytes = size_bytes;
    made->chunk = mapped;
    made->handle = handle;
    made->now = made->wanted = MAPPED;
    mapped->places++;
    gml_tree_insert(&remapper->places, &made->node);
    return GML_OK;
}

/* Forgets a mapping that has ended. A chunk that cannot be released with its last mapping is kept
 * until the driver closes. */
static void forget_place(gml_driver *self, place *gone) {
    gml_remapper *remapper = remapper_of(self);
    chunk *mapped = gone->chunk;
    gml_tree_remove(&remapper->places, &gone->node);
    mapped->absent -= gone->now == ABSENT;
    if (--mapped->places == 0 && mapped->is_released) {
        (void)end_chunk(self, gone->handle, mapped);
    }
    gml_pool_give(&remapper->place_objects, gone);
}

/* Ends one mapping below. */
static gml_status end_mapping(gml_remapper *remapper, gml_driver *counted, place *at) {
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = GML_OK;
    if (at->now != ABSENT) {
        status = count(remapper, counted, GML_CALL_UNMAP,
                       gml_driver_unmap(inner, at->node.address, at->size_bytes));
        at->chunk->absent += status == GML_OK;
        at->now = status == GML_OK ? ABSENT : at->now;
    }
    return status;
}

/* While asleep, some places may still be mapped: keep all records until all are unmapped. */
static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver *inner = remapper->wrapped.inner;
    gml_address end = address + size_bytes;
    gml_status status = await_copies(remapper, self);
    if (status == GML_OK && !remapper->is_asleep) {
        status = gml_wrapped_relay(self, gml_driver_unmap(inner, address, size_bytes));
    }
    place *at = place_from(remapper, address);
    for (; remapper->is_asleep && status == GML_OK && at && at->node.address < end;
         at = next_place(at)) {
        status = end_mapping(remapper, self, at);
    }
    at = status == GML_OK ? place_from(remapper, address) : NULL;
    for (place *next; at && at->node.address < end; at = next) {
        next = next_place(at);
        forget_place(self, at);
    }
    return status;
}

static gml_status set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = check_awake(self, "set_access");
    if (status == GML_OK) {
        status = gml_wrapped_relay(self, inner->ops->set_access(inner, address, size_bytes));
    }
    place *at = status == GML_OK ? place_from(remapper, address) : NULL;
    for (; at && at->node.address < address + size_bytes; at = next_place(at)) {
        at->now = at->wanted = ACCESSIBLE;
        at->continues |= at->node.address > address;
    }
    return status;
}

/* ---- plain memory ---------------------------------------------------------------------------- */

static gml_status remapper_free(gml_driver *self, gml_address address) {
    place *at = place_from(remapper_of(self), address);
    if (!at || at->node.address != address) {
        return gml_driver_fail(self, GML_MISUSE, "free: no memory begins at 0x%" PRIx64, address);
    }
    uint64_t size_bytes = at->size_bytes;
    chunk *freed = at->chunk;
    gml_driver *inner = gml_wrapped_inner(self);
    /* A device waits before it takes plain memory back, and not before it unmaps. */
    gml_status status = gml_wrapped_relay(self, inner->ops->device_synchronize(inner));
    freed->is_released = true; /* it ends with this mapping */
    status = status == GML_OK ? unmap(self, address, size_bytes) : status;
    if (status == GML_OK) { /* what fails now is kept until the driver closes */
        (void)inner->ops->unreserve(inner, address, size_bytes);
    } else {
        freed->is_released = false;
    }
    return status;
}

static gml_status remapper_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    gml_driver *inner = gml_wrapped_inner(self);
    uint64_t granule_bytes = self->info.granularity_bytes;
    uint64_t whole_bytes = (size_bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
    gml_handle handle = 0;
    gml_address address = 0;
    gml_status status = create(self, whole_bytes, &handle);
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->reserve(inner, whole_bytes, 0, &address));
    bool is_reserved = status == GML_OK;
    if (is_reserved) {
        status = map(self, address, whole_bytes, handle);
    }
    bool is_mapped = is_reserved && status == GML_OK;
    if (is_mapped) {
        status = set_access(self, address, whole_bytes);
    }
    if (status == GML_OK) {
        *out = address;
        return GML_OK;
    }
    gml_driver_begin_undo(self);
    if (is_mapped) {
        (void)unmap(self, address, whole_bytes);
    }
    if (is_reserved) {
        (void)inner->ops->unreserve(inner, address, whole_bytes);
    }
    (void)release(self, handle);
    gml_driver_end_undo(self);
    return status;
}

static gml_status behind_malloc(gml_driver *self, gml_address address, gml_handle *out) {
    const place *at = place_from(remapper_of(self), address);
    if (!at || at->node.address != address) {
        return gml_driver_fail(self, GML_MISUSE, "no memory begins at 0x%" PRIx64, address);
    }
    *out = at->handle;
    return GML_OK;
}

/* ---- other processes, and the host ----------------------------------------------------------- */

static gml_status export_file(gml_driver *self, gml_handle handle, bool is_kept, int *out) {
    chunk *exported = gml_map_find(&remapper_of(self)->chunks, handle);
    gml_status status = check_awake(self, "export");
    if (status != GML_OK) {
        return status;
    }
    if (!exported) {
        return gml_driver_fail(self, GML_MISUSE, "export: %" PRIu64 " is no handle", handle);
    }
    return gml_wrapped_relay(
        self, gml_driver_export_file(gml_wrapped_inner(self), exported->behind, is_kept, out));
}

static gml_status bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out) {
    gml_status status = check_awake(self, "bytes");
    return status == GML_OK ? gml_wrapped_relay(self, gml_driver_bytes(gml_wrapped_inner(self),
                                                                       address, size_bytes, out))
                            : status;
}

/* ---- sleeping and waking --------------------------------------------------------------------- */

/* The last place that begins there or below, or NULL. */
static const gml_tree_node *place_below(const gml_remapper *remapper, gml_address address) {
    const gml_tree_node *above = gml_tree_at_least(&remapper->places, 0, address + 1);
    return above ? gml_tree_previous(above) : gml_tree_last(&remapper->places);
}

gml_address gml_remapper_mapping_end(const gml_remapper *remapper, gml_address address) {
    const place *at = (const place *)(const void *)place_below(remapper, address);
    return at && address - at->node.address < at->size_bytes ? at->node.address + at->size_bytes
                                                             : 0;
}

bool gml_remapper_holds(const gml_remapper *remapper, gml_address address, uint64_t size_bytes) {
    const gml_tree_node *at = place_below(remapper, address);
    bool is_held = true;
    for (; at && at->address < address + size_bytes && is_held; at = gml_tree_next(at)) {
        const chunk *mapped = ((const place *)(const void *)at)->chunk;
        is_held = mapped->behind && !mapped->is_fresh;
    }
    return is_held;
}

static void give_back(gml_remapper *remapper, gml_driver *counted, chunk *given,
                      uint64_t *released_bytes, uint64_t *kept_bytes) {
    gml_driver *inner = remapper->wrapped.inner;
    if (!given->behind) {
        return;
    }
    counted->calls[GML_CALL_RELEASE]++;
    if (gml_driver_give_behind(inner, given->size_bytes, given->behind) == GML_OK) {
        given->behind = 0;
        given->is_fresh = false;
        *released_bytes += given->size_bytes;
    } else {
        *kept_bytes += given->size_bytes;
    }
}

gml_status gml_remapper_sleep(gml_remapper *remapper, gml_driver *counted, gml_address below,
                              bool keeps_content, uint64_t *released_bytes, uint64_t *kept_bytes) {
    remapper->is_asleep = remapper->is_copying = true;
    place *at = place_from(remapper, 0);
    for (; at && at->node.address + at->size_bytes <= below; at = next_place(at)) {
        if (at->now == ABSENT) {
            continue;
        }
        gml_status status = end_mapping(remapper, counted, at);
        if (status != GML_OK) {
            return status;
        }
        if (!keeps_content && at->chunk->absent == at->chunk->places) {
            give_back(remapper, counted, at->chunk, released_bytes, kept_bytes);
        }
    }
    for (size_t i = 0; i < remapper->chunks.capacity && below == UINT64_MAX; i++) {
        chunk *left = chunk_at(remapper, i);
        if (left && (keeps_content || !left->places)) { /* the others have been tried */
            give_back(remapper, counted, left, released_bytes, kept_bytes);
        }
    }
    remapper->is_copying &= below < UINT64_MAX;
    return GML_OK;
}

static gml_status take_again(gml_remapper *remapper, gml_driver *counted, chunk *taken) {
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = GML_OK;
    if (!taken->behind && (taken->places || !taken->is_released)) { /* else it is over */
        status = count(remapper, counted, GML_CALL_CREATE,
                       gml_driver_take_behind(inner, taken->size_bytes, &taken->behind));
        taken->is_fresh = status == GML_OK;
    }
    return status;
}

static gml_status map_again(gml_remapper *remapper, gml_driver *counted, place *at) {
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = take_again(remapper, counted, at->chunk);
    if (status == GML_OK && at->now == ABSENT) {
        status = count(remapper, counted, GML_CALL_MAP,
                       inner->ops->map(inner, at->node.address, at->size_bytes, at->chunk->behind));
        at->chunk->absent -= status == GML_OK;
        at->now = status == GML_OK ? MAPPED : ABSENT;
    }
    return status;
}

/* Restores access to the places of [at, end) that had it: one call per contiguous run in one
 * reservation. */
static gml_status open_again(gml_remapper *remapper, gml_driver *counted, place *at,
                             const place *end) {
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = GML_OK;
    while (at != end && status == GML_OK) {
        place *first = at;
        gml_address begin = at->node.address, behind = begin;
        for (; at != end && at->node.address == behind && at->now < at->wanted &&
               (at == first || at->continues);
             at = next_place(at)) {
            behind += at->size_bytes;
        }
        if (at == first) {
            at = next_place(at);
            continue;
        }
        status = count(remapper, counted, GML_CALL_SET_ACCESS,
                       inner->ops->set_access(inner, begin, behind - begin));
        for (; status == GML_OK && first != at; first = next_place(first)) {
            first->now = ACCESSIBLE;
        }
    }
    return status;
}

static gml_status wake_all(gml_remapper *remapper, gml_driver *counted,
                           const gml_remapper_watch *watch) {
    gml_status status = await_copies(remapper, counted);
    remapper->is_copying = true; /* `watch` does */
    place *at = place_from(remapper, 0);
    for (place *first = at; at && status == GML_OK; first = at) {
        for (uint64_t bytes = 0; at && bytes < PART_BYTES && status == GML_OK;
             at = next_place(at)) {
            status = map_again(remapper, counted, at);
            bytes += at->size_bytes;
        }
        status = status == GML_OK ? open_again(remapper, counted, first, at) : status;
        if (status == GML_OK && at) {
            status = watch->mapped(watch->context, at->node.address);
        }
    }
    for (size_t i = 0; i < remapper->chunks.capacity && status == GML_OK; i++) {
        chunk *left = chunk_at(remapper, i);
        status = left ? take_again(remapper, counted, left) : GML_OK;
    }
    return status == GML_OK ? watch->mapped(watch->context, UINT64_MAX) : status;
}

/* After a failed wake: releases what it took, as far as the driver allows, since all contents are
 * still saved elsewhere. The rest is recorded, and serves the next wake. */
static void give_back_fresh(gml_remapper *remapper, gml_driver *counted) {
    uint64_t released_bytes = 0, kept_bytes = 0;
    gml_driver_begin_undo(counted);
    bool is_quiet = await_copies(remapper, counted) == GML_OK;
    for (place *at = place_from(remapper, 0); at && is_quiet; at = next_place(at)) {
        if (at->chunk->is_fresh) {
            (void)end_mapping(remapper, counted, at);
        }
    }
    for (size_t i = 0; i < remapper->chunks.capacity && is_quiet; i++) {
        chunk *at = chunk_at(remapper, i);
        if (at && at->is_fresh && at->absent == at->places) {
            give_back(remapper, counted, at, &released_bytes, &kept_bytes);
        }
    }
    gml_driver_end_undo(counted);
}

gml_status gml_remapper_wake(gml_remapper *remapper, gml_driver *counted,
                             const gml_remapper_watch *watch) {
    gml_status status = wake_all(remapper, counted, watch);
    if (status != GML_OK) {
        give_back_fresh(remapper, counted);
        return status;
    }
    for (size_t i = 0; i < remapper->chunks.capacity; i++) {
        chunk *at = chunk_at(remapper, i);
        if (at) {
            at->is_fresh = false;
        }
    }
    remapper->is_asleep = remapper->is_copying = false;
    return GML_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void destroy(gml_driver *self) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver_close(remapper->wrapped.inner);
    gml_map_clear(&remapper->chunks);
    gml_pool_clear(&remapper->chunk_objects);
    gml_pool_clear(&remapper->place_objects);
    free(remapper);
}

gml_status gml_remapper_open(gml_driver **driver, gml_remapper **out) {
    gml_driver *inner = *driver;
    if (!inner->info.has_virtual_memory || inner->arena_bytes) {
        return gml_driver_fail(inner, GML_UNSUPPORTED,
                               "memory can sleep only where it is mapped: this device or arena has "
                               "no virtual memory management");
    }
    gml_remapper *remapper = calloc(1, sizeof *remapper);
    if (!remapper) {
        return gml_driver_fail(inner, GML_NO_HOST_MEMORY, "no host memory for what can sleep");
    }
    gml_wrap(&remapper->wrapped, inner, destroy);
    remapper->chunk_objects.object_bytes = sizeof(chunk);
    remapper->place_objects.object_bytes = sizeof(place);
    gml_driver_ops *ops = &remapper->wrapped.ops;
    ops->create = create;
    ops->release = release;
    ops->map = map;
    ops->unmap = unmap;
    ops->set_access = set_access;
    ops->malloc = remapper_malloc;
    ops->free = remapper_free;
    ops->expect_malloc = NULL;
    ops->export_file = export_file;
    ops->behind_malloc = behind_malloc;
    ops->bytes = bytes;
    remapper->wrapped.base.can_sleep = true;
    remapper->wrapped.base.has_own_account = true;
    *driver = &remapper->wrapped.base;
    *out = remapper;
    return GML_OK;
}
