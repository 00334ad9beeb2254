/* Handles of its own, the places of each, and what is behind them while awake. */
#include "driver/sleeper.h"

#include "base/pool.h"
#include "base/status.h"
#include "base/tree.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* So much is mapped, opened and told of at a time: opening waits for copies that are under way. */
static const uint64_t PART_BYTES = UINT64_C(512) << 20;

/* Physical memory, as this driver's caller knows it. */
typedef struct chunk {
    gml_handle behind; /* of the inner driver; 0: asleep */
    uint64_t size_bytes;
    uint64_t places; /* where it is mapped */
    uint64_t absent; /* of them: not now */
    bool is_new;     /* taken by the waking that is under way */
    bool is_released;
    bool is_exported; /* another process may map it */
} chunk;

/* One mapping. */
typedef struct place {
    gml_tree_node node; /* by address; its size is unused */
    uint64_t size_bytes;
    chunk *chunk;
    gml_handle handle;  /* of the chunk, here */
    bool is_mapped;     /* now: no while asleep */
    bool is_new;        /* mapped by the waking that is under way */
    bool is_accessible; /* while it is mapped */
    bool continues;     /* in the reservation of what lies before it: once opened in one call */
} place;

struct gml_sleeper {
    gml_wrapped wrapped; /* must be first */
    bool is_asleep;
    gml_handle last_handle;
    gml_map chunks;  /* handle here -> chunk */
    gml_tree places; /* by address */
    gml_pool chunk_objects, place_objects;
};

static gml_sleeper *
sleeper_of(gml_driver *self)
{
    return (gml_sleeper *)(void *)self;
}

bool
gml_sleeper_is_asleep(const gml_sleeper *sleeper)
{
    return sleeper->is_asleep;
}

static place *
place_from(const gml_sleeper *sleeper, gml_address address)
{
    return (place *)(void *)gml_tree_at_least(&sleeper->places, 0, address);
}

static place *
next_place(const place *of)
{
    return (place *)(void *)gml_tree_next(&of->node);
}

static gml_status
check_awake(gml_driver *self, const char *call)
{
    return !sleeper_of(self)->is_asleep
               ? GML_OK
               : gml_driver_fail(self, GML_UNSUPPORTED, "%s: this memory is asleep", call);
}

/* ---- physical memory ------------------------------------------------------------------------- */

static gml_status
create(gml_driver *self, uint64_t size_bytes, gml_handle *out)
{
    gml_sleeper *sleeper = sleeper_of(self);
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status = check_awake(self, "create");
    if (status != GML_OK) {
        return status;
    }
    chunk *made = gml_pool_take(&sleeper->chunk_objects);
    if (!made || gml_map_reserve(&sleeper->chunks, 1) != GML_OK) {
        gml_pool_give(&sleeper->chunk_objects, made);
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "create: no host memory for a handle");
    }
    status = gml_wrapped_relay(self, inner->ops->create(inner, size_bytes, &made->behind));
    if (status != GML_OK) {
        gml_pool_give(&sleeper->chunk_objects, made);
        return status;
    }
    made->size_bytes = size_bytes;
    *out = ++sleeper->last_handle;
    (void)gml_map_insert(&sleeper->chunks, *out, made);
    return GML_OK;
}

/* Ends a chunk that nobody holds or maps. */
static gml_status
end_chunk(gml_driver *self, gml_handle handle, chunk *ended)
{
    gml_sleeper *sleeper = sleeper_of(self);
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status =
        ended->behind ? gml_wrapped_relay(self, inner->ops->release(inner, ended->behind)) : GML_OK;
    if (status == GML_OK) {
        (void)gml_map_take(&sleeper->chunks, handle);
        gml_pool_give(&sleeper->chunk_objects, ended);
    }
    return status;
}

static gml_status
release(gml_driver *self, gml_handle handle)
{
    chunk *released = gml_map_find(&sleeper_of(self)->chunks, handle);
    if (!released || released->is_released) {
        return gml_driver_fail(self, GML_MISUSE, "release: %" PRIu64 " is no handle", handle);
    }
    if (released->places) {
        released->is_released = true; /* it ends with its last mapping */
        return GML_OK;
    }
    return end_chunk(self, handle, released);
}

/* ---- mappings -------------------------------------------------------------------------------- */

static gml_status
map(gml_driver *self, gml_address address, uint64_t size_bytes, gml_handle handle)
{
    gml_sleeper *sleeper = sleeper_of(self);
    gml_driver *inner = sleeper->wrapped.inner;
    chunk *mapped = gml_map_find(&sleeper->chunks, handle);
    gml_status status = check_awake(self, "map");
    if (status != GML_OK) {
        return status;
    }
    if (!mapped) {
        return gml_driver_fail(self, GML_MISUSE, "map: %" PRIu64 " is no handle", handle);
    }
    place *made = gml_pool_take(&sleeper->place_objects);
    if (!made) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "map: no host memory for a mapping");
    }
    status = gml_wrapped_relay(self, inner->ops->map(inner, address, size_bytes, mapped->behind));
    if (status != GML_OK) {
        gml_pool_give(&sleeper->place_objects, made);
        return status;
    }
    made->node.address = address;
    made->size_bytes = size_bytes;
    made->chunk = mapped;
    made->handle = handle;
    made->is_mapped = true;
    mapped->places++;
    gml_tree_insert(&sleeper->places, &made->node);
    return GML_OK;
}

/* Forgets a mapping that has ended. A chunk that cannot be given back with its last mapping is kept
 * until the driver closes. */
static void
forget_place(gml_driver *self, place *gone)
{
    gml_sleeper *sleeper = sleeper_of(self);
    chunk *mapped = gone->chunk;
    gml_tree_remove(&sleeper->places, &gone->node);
    mapped->absent -= !gone->is_mapped;
    if (--mapped->places == 0 && mapped->is_released) {
        (void)end_chunk(self, gone->handle, mapped);
    }
    gml_pool_give(&sleeper->place_objects, gone);
}

static gml_status
unmap(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_sleeper *sleeper = sleeper_of(self);
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status = GML_OK;
    if (!sleeper->is_asleep) {
        status = gml_wrapped_relay(self, inner->ops->unmap(inner, address, size_bytes));
    }
    for (place *at = place_from(sleeper, address);
         status == GML_OK && at && at->node.address < address + size_bytes;) {
        place *next = next_place(at);
        if (sleeper->is_asleep && at->is_mapped) { /* left from a failure */
            status =
                gml_wrapped_relay(self, inner->ops->unmap(inner, at->node.address, at->size_bytes));
        }
        if (status == GML_OK) {
            forget_place(self, at);
        }
        at = next;
    }
    return status;
}

static gml_status
set_access(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_sleeper *sleeper = sleeper_of(self);
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status = check_awake(self, "set_access");
    if (status == GML_OK) {
        status = gml_wrapped_relay(self, inner->ops->set_access(inner, address, size_bytes));
    }
    place *at = status == GML_OK ? place_from(sleeper, address) : NULL;
    for (; at && at->node.address < address + size_bytes; at = next_place(at)) {
        at->is_accessible = true;
        at->continues |= at->node.address > address;
    }
    return status;
}

/* ---- plain memory ---------------------------------------------------------------------------- */

static gml_status
sleeper_free(gml_driver *self, gml_address address)
{
    place *at = place_from(sleeper_of(self), address);
    if (!at || at->node.address != address) {
        return gml_driver_fail(self, GML_MISUSE, "free: no memory begins at 0x%" PRIx64, address);
    }
    uint64_t size_bytes = at->size_bytes;
    gml_handle handle = at->handle;
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = unmap(self, address, size_bytes);
    if (status == GML_OK) {
        /* Nobody knows the rest any more: what fails now is kept until the driver closes. */
        (void)release(self, handle);
        (void)inner->ops->unreserve(inner, address, size_bytes);
    }
    return status;
}

static gml_status
sleeper_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out)
{
    gml_driver *inner = gml_wrapped_inner(self);
    uint64_t grain_bytes = self->info.granularity_bytes;
    uint64_t whole_bytes = (size_bytes + grain_bytes - 1) / grain_bytes * grain_bytes;
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
    char reason[GML_REASON_BYTES];
    memcpy(reason, self->reason, sizeof reason);
    if (is_mapped) {
        (void)unmap(self, address, whole_bytes);
    }
    if (is_reserved) {
        (void)inner->ops->unreserve(inner, address, whole_bytes);
    }
    (void)release(self, handle);
    memcpy(self->reason, reason, sizeof reason);
    return status;
}

static gml_status
behind_malloc(gml_driver *self, gml_address address, gml_handle *out)
{
    const place *at = place_from(sleeper_of(self), address);
    if (!at || at->node.address != address) {
        return gml_driver_fail(self, GML_MISUSE, "no memory begins at 0x%" PRIx64, address);
    }
    *out = at->handle;
    return GML_OK;
}

/* ---- other processes, and the host ----------------------------------------------------------- */

static gml_status
export_file(gml_driver *self, gml_handle handle, int *out)
{
    chunk *exported = gml_map_find(&sleeper_of(self)->chunks, handle);
    gml_status status = check_awake(self, "export");
    if (status != GML_OK) {
        return status;
    }
    if (!exported) {
        return gml_driver_fail(self, GML_MISUSE, "export: %" PRIu64 " is no handle", handle);
    }
    status = gml_wrapped_relay(
        self, gml_driver_export_file(gml_wrapped_inner(self), exported->behind, out));
    exported->is_exported |= status == GML_OK;
    return status;
}

static gml_status
bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out)
{
    gml_status status = check_awake(self, "bytes");
    return status == GML_OK ? gml_wrapped_relay(self, gml_driver_bytes(gml_wrapped_inner(self),
                                                                       address, size_bytes, out))
                            : status;
}

/* ---- sleeping and waking --------------------------------------------------------------------- */

bool
gml_sleeper_is_exported(const gml_sleeper *sleeper)
{
    bool is_any = false;
    for (size_t i = 0; i < sleeper->chunks.capacity; i++) {
        const chunk *at = sleeper->chunks.slots[i].value;
        is_any |= sleeper->chunks.slots[i].key && at->is_exported;
    }
    return is_any;
}

static void
give_back(gml_sleeper *sleeper, gml_driver *counted, chunk *given, uint64_t *released_bytes,
          uint64_t *kept_bytes)
{
    gml_driver *inner = sleeper->wrapped.inner;
    if (!given->behind) {
        return;
    }
    counted->calls[GML_CALL_RELEASE]++;
    if (inner->ops->release(inner, given->behind) == GML_OK) {
        given->behind = 0;
        *released_bytes += given->size_bytes;
    } else {
        *kept_bytes += given->size_bytes;
    }
}

static gml_status
end_mapping(gml_sleeper *sleeper, gml_driver *counted, place *at)
{
    gml_driver *inner = sleeper->wrapped.inner;
    counted->calls[GML_CALL_UNMAP]++;
    gml_status status = inner->ops->unmap(inner, at->node.address, at->size_bytes);
    if (status == GML_OK) {
        at->is_mapped = false;
        at->chunk->absent++;
        return status;
    }
    memcpy(counted->reason, inner->reason, sizeof counted->reason);
    return status;
}

gml_status
gml_sleeper_sleep(gml_sleeper *sleeper, gml_driver *counted, gml_address below, bool keeps_content,
                  uint64_t *released_bytes, uint64_t *kept_bytes)
{
    place *at = place_from(sleeper, 0);
    for (; at && at->node.address + at->size_bytes <= below; at = next_place(at)) {
        if (!at->is_mapped) {
            continue;
        }
        gml_status status = end_mapping(sleeper, counted, at);
        if (status != GML_OK) {
            return status;
        }
        if (!keeps_content && at->chunk->absent == at->chunk->places) {
            give_back(sleeper, counted, at->chunk, released_bytes, kept_bytes);
        }
    }
    if (below < UINT64_MAX) {
        return GML_OK;
    }
    for (size_t i = 0; i < sleeper->chunks.capacity; i++) {
        if (sleeper->chunks.slots[i].key) {
            chunk *left = sleeper->chunks.slots[i].value;
            bool is_tried = !keeps_content && left->places > 0;
            if (!is_tried) {
                give_back(sleeper, counted, left, released_bytes, kept_bytes);
            }
        }
    }
    sleeper->is_asleep = true;
    return GML_OK;
}

static gml_status
take_again(gml_sleeper *sleeper, gml_driver *counted, chunk *taken)
{
    gml_driver *inner = sleeper->wrapped.inner;
    if (taken->behind) {
        return GML_OK;
    }
    counted->calls[GML_CALL_CREATE]++;
    gml_status status = inner->ops->create(inner, taken->size_bytes, &taken->behind);
    if (status != GML_OK) {
        taken->behind = 0;
        return status;
    }
    taken->is_new = true;
    return GML_OK;
}

static gml_status
map_again(gml_sleeper *sleeper, gml_driver *counted, place *at)
{
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status = take_again(sleeper, counted, at->chunk);
    if (status == GML_OK) {
        counted->calls[GML_CALL_MAP]++;
        status = inner->ops->map(inner, at->node.address, at->size_bytes, at->chunk->behind);
    }
    if (status == GML_OK) {
        at->is_mapped = true;
        at->is_new = true;
        at->chunk->absent--;
    }
    return status;
}

static bool
is_opened_again(const place *at, gml_address address)
{
    return at->node.address == address && at->is_new && at->is_accessible;
}

/* Opens what was mapped again from `at` on, up to `end`: one call for what lies side by side in one
 * reservation. */
static gml_status
open_again(gml_sleeper *sleeper, gml_driver *counted, place *at, const place *end)
{
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status = GML_OK;
    while (at != end && status == GML_OK) {
        gml_address begin = at->node.address, behind = begin;
        for (; at != end && is_opened_again(at, behind) && (behind == begin || at->continues);
             at = next_place(at)) {
            behind += at->size_bytes;
        }
        if (behind > begin) {
            counted->calls[GML_CALL_SET_ACCESS]++;
            status = inner->ops->set_access(inner, begin, behind - begin);
        } else {
            at = next_place(at);
        }
    }
    return status;
}

/* Maps and opens what is missing from *at on, a part of it; *at: the place behind. */
static gml_status
wake_part(gml_sleeper *sleeper, gml_driver *counted, place **at)
{
    place *first = *at;
    gml_status status = GML_OK;
    for (uint64_t bytes = 0; *at && bytes < PART_BYTES && status == GML_OK; *at = next_place(*at)) {
        status = (*at)->is_mapped ? GML_OK : map_again(sleeper, counted, *at);
        bytes += (*at)->size_bytes;
    }
    return status == GML_OK ? open_again(sleeper, counted, first, *at) : status;
}

/* What this waking did is what it made last: nothing of that has been used. */
static void
undo_waking(gml_sleeper *sleeper, gml_driver *counted)
{
    gml_driver *inner = sleeper->wrapped.inner;
    uint64_t released_bytes = 0, kept_bytes = 0;
    char reason[GML_REASON_BYTES];
    memcpy(reason, counted->reason, sizeof reason);
    (void)inner->ops->device_synchronize(inner); /* the watch may have queued copies */
    for (place *at = place_from(sleeper, 0); at; at = next_place(at)) {
        if (at->is_new && at->is_mapped) {
            (void)end_mapping(sleeper, counted, at);
        }
    }
    for (size_t i = 0; i < sleeper->chunks.capacity; i++) {
        chunk *at = sleeper->chunks.slots[i].value;
        if (sleeper->chunks.slots[i].key && at->is_new && at->absent == at->places) {
            give_back(sleeper, counted, at, &released_bytes, &kept_bytes);
        }
    }
    memcpy(counted->reason, reason, sizeof reason);
}

static void
forget_news(gml_sleeper *sleeper)
{
    for (place *at = place_from(sleeper, 0); at; at = next_place(at)) {
        at->is_new = false;
        at->chunk->is_new = false;
    }
}

gml_status
gml_sleeper_wake(gml_sleeper *sleeper, gml_driver *counted, const gml_sleeper_watch *watch)
{
    gml_driver *inner = sleeper->wrapped.inner;
    gml_status status = GML_OK;
    for (place *at = place_from(sleeper, 0); at && status == GML_OK;) {
        status = wake_part(sleeper, counted, &at);
        if (status != GML_OK) {
            memcpy(counted->reason, inner->reason, sizeof counted->reason);
        } else if (watch) {
            status = watch->mapped(watch->context, at ? at->node.address : UINT64_MAX);
        }
    }
    for (size_t i = 0; i < sleeper->chunks.capacity && status == GML_OK; i++) {
        if (sleeper->chunks.slots[i].key) {
            status = take_again(sleeper, counted, sleeper->chunks.slots[i].value);
            if (status != GML_OK) {
                memcpy(counted->reason, inner->reason, sizeof counted->reason);
            }
        }
    }
    if (status != GML_OK) {
        undo_waking(sleeper, counted);
    }
    forget_news(sleeper);
    sleeper->is_asleep = status != GML_OK;
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static void
destroy(gml_driver *self)
{
    gml_sleeper *sleeper = sleeper_of(self);
    gml_driver_close(sleeper->wrapped.inner);
    gml_map_clear(&sleeper->chunks);
    gml_pool_clear(&sleeper->chunk_objects);
    gml_pool_clear(&sleeper->place_objects);
    free(sleeper);
}

gml_status
gml_sleeper_open(gml_driver **driver, gml_sleeper **out)
{
    gml_driver *inner = *driver;
    if (!inner->info.has_virtual_memory || inner->arena_bytes) {
        return gml_driver_fail(inner, GML_UNSUPPORTED,
                               "memory can sleep only where it is mapped: this device or arena has "
                               "no virtual memory management");
    }
    gml_sleeper *sleeper = calloc(1, sizeof *sleeper);
    if (!sleeper) {
        return gml_driver_fail(inner, GML_NO_HOST_MEMORY, "no host memory for what can sleep");
    }
    gml_wrap(&sleeper->wrapped, inner, destroy);
    sleeper->chunk_objects.object_bytes = sizeof(chunk);
    sleeper->place_objects.object_bytes = sizeof(place);
    gml_driver_ops *ops = &sleeper->wrapped.ops;
    ops->create = create;
    ops->release = release;
    ops->map = map;
    ops->unmap = unmap;
    ops->set_access = set_access;
    ops->malloc = sleeper_malloc;
    ops->free = sleeper_free;
    ops->expect_malloc = NULL;
    ops->export_file = export_file;
    ops->behind_malloc = behind_malloc;
    ops->bytes = bytes;
    sleeper->wrapped.base.can_sleep = true;
    *driver = &sleeper->wrapped.base;
    *out = sleeper;
    return GML_OK;
}
