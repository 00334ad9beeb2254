/* Virtual handles, the places where each is mapped, and the real handles behind them while
 * awake. */
#include "driver/remap.h"

#include "driver/ledger.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdlib.h>

/* So much is mapped, opened and told of at a time: opening waits for copies that are under way. */
static const uint64_t PART_BYTES = UINT64_C(512) << 20;

typedef struct chunk {
    gml_physical known; /* must be first */
    gml_handle behind;  /* of the inner driver; 0: released */
    bool is_fresh;      /* taken by an unfinished wake: uninitialized */
} chunk;

typedef struct place {
    gml_mapping known; /* must be first */
    bool is_shut;      /* mapped again by an unfinished wake, and not opened again */
    bool continues;    /* in the reservation of the place before it: opened with it in one call */
} place;

struct gml_remapper {
    gml_wrapped wrapped; /* must be first */
    bool is_asleep;      /* from the first step of a sleep to the end of a wake */
    bool is_copying;     /* copies may be under way: until all have been waited for */
    gml_ledger ledger;   /* of chunk and place */
};

static gml_remapper *remapper_of(gml_driver *self) {
    return (gml_remapper *)(void *)self;
}

bool gml_remapper_is_asleep(const gml_remapper *remapper) {
    return remapper->is_asleep;
}

static chunk *chunk_of(const place *at) {
    return (chunk *)(void *)at->known.chunk;
}

static bool is_mapped_nowhere(chunk *of) {
    gml_link *link = of->known.mappings.next;
    while (link != &of->known.mappings && gml_mapping_of_link(link)->is_absent) {
        link = link->next;
    }
    return link == &of->known.mappings;
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
    gml_status status = check_awake(self, "create");
    return status == GML_OK ? gml_ledger_create(&remapper_of(self)->ledger, size_bytes, out)
                            : status;
}

static gml_status take_chunk(gml_driver *self, gml_physical *taken) {
    gml_driver *inner = gml_wrapped_inner(self);
    return gml_wrapped_relay(
        self, gml_driver_take_behind(inner, taken->size_bytes, &((chunk *)(void *)taken)->behind));
}

static gml_status give_chunk(gml_driver *self, gml_physical *ended) {
    gml_handle behind = ((chunk *)(void *)ended)->behind;
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = await_copies(remapper_of(self), self);
    if (status == GML_OK && behind) {
        status = gml_driver_give_behind(inner, ended->size_bytes, behind);
        (void)gml_wrapped_relay(self, status);
    }
    return status;
}

static gml_status release(gml_driver *self, gml_handle handle) {
    return gml_ledger_release(&remapper_of(self)->ledger, handle);
}

/* ---- mappings -------------------------------------------------------------------------------- */

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    gml_status status = check_awake(self, "map");
    return status == GML_OK
               ? gml_ledger_map(&remapper_of(self)->ledger, address, size_bytes, handle)
               : status;
}

static gml_status map_chunk(gml_driver *self, gml_address address, gml_physical *mapped) {
    gml_driver *inner = gml_wrapped_inner(self);
    return gml_wrapped_relay(self, inner->ops->map(inner, address, mapped->size_bytes,
                                                   ((chunk *)(void *)mapped)->behind));
}

static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_remapper *remapper = remapper_of(self);
    gml_status status = await_copies(remapper, self);
    return status == GML_OK ? gml_ledger_unmap(&remapper->ledger, address, size_bytes) : status;
}

static gml_status unmap_chunks(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_wrapped_relay(self, gml_driver_unmap(gml_wrapped_inner(self), address, size_bytes));
}

static const gml_ledger_user books = {take_chunk, map_chunk,     unmap_chunks,
                                      give_chunk, sizeof(chunk), sizeof(place)};

/* Ends one mapping below, for a sleep. */
static gml_status end_mapping(gml_remapper *remapper, gml_driver *counted, place *at) {
    return at->known.is_absent ? GML_OK
                               : count(remapper, counted, GML_CALL_UNMAP,
                                       gml_ledger_lose(&remapper->ledger, &at->known));
}

static gml_status set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_remapper *remapper = remapper_of(self);
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = check_awake(self, "set_access");
    if (status == GML_OK) {
        status = gml_wrapped_relay(self, inner->ops->set_access(inner, address, size_bytes));
    }
    place *at = status == GML_OK ? gml_ledger_from(&remapper->ledger, address) : NULL;
    for (; at && at->known.node.address < address + size_bytes; at = gml_ledger_next(&at->known)) {
        at->known.is_open = true;
        at->is_shut = false;
        at->continues |= at->known.node.address > address;
    }
    return status;
}

/* ---- plain memory ---------------------------------------------------------------------------- */

/* The mapping that begins there: that of a malloc; NULL, with a reason for GML_MISUSE. */
static gml_mapping *demand_block(gml_driver *self, gml_address address) {
    gml_mapping *at = gml_ledger_from(&remapper_of(self)->ledger, address);
    if (!at || at->node.address != address) {
        (void)gml_driver_fail(self, GML_MISUSE, "no memory begins at 0x%" PRIx64, address);
        return NULL;
    }
    return at;
}

static gml_status remapper_free(gml_driver *self, gml_address address) {
    const gml_mapping *at = demand_block(self, address);
    if (!at) {
        return GML_MISUSE;
    }
    uint64_t size_bytes = at->size_bytes;
    gml_physical *freed = at->chunk;
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
    const gml_mapping *at = demand_block(self, address);
    if (at) {
        *out = at->chunk->handle;
    }
    return at ? GML_OK : GML_MISUSE;
}

/* ---- other processes, and the host ----------------------------------------------------------- */

static gml_status export_file(gml_driver *self, gml_handle handle, bool is_kept, int *out) {
    gml_status status = check_awake(self, "export");
    if (status != GML_OK) {
        return status;
    }
    const chunk *exported = gml_ledger_demand(&remapper_of(self)->ledger, "export", handle);
    return exported
               ? gml_wrapped_relay(self, gml_driver_export_file(gml_wrapped_inner(self),
                                                                exported->behind, is_kept, out))
               : GML_MISUSE;
}

static gml_status bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out) {
    gml_status status = check_awake(self, "bytes");
    return status == GML_OK ? gml_wrapped_relay(self, gml_driver_bytes(gml_wrapped_inner(self),
                                                                       address, size_bytes, out))
                            : status;
}

/* ---- sleeping and waking --------------------------------------------------------------------- */

gml_address gml_remapper_mapping_end(const gml_remapper *remapper, gml_address address) {
    const gml_mapping *at = gml_ledger_at(&remapper->ledger, address);
    return at ? gml_mapping_end(at) : 0;
}

bool gml_remapper_holds(const gml_remapper *remapper, gml_address address, uint64_t size_bytes) {
    const place *at = gml_ledger_at(&remapper->ledger, address);
    bool is_held = true;
    for (; at && at->known.node.address < address + size_bytes && is_held;
         at = gml_ledger_next(&at->known)) {
        const chunk *mapped = chunk_of(at);
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
    if (gml_driver_give_behind(inner, given->known.size_bytes, given->behind) == GML_OK) {
        given->behind = 0;
        given->is_fresh = false;
        *released_bytes += given->known.size_bytes;
    } else {
        *kept_bytes += given->known.size_bytes;
    }
}

gml_status gml_remapper_sleep(gml_remapper *remapper, gml_driver *counted, gml_address below,
                              bool releases_last, uint64_t *released_bytes, uint64_t *kept_bytes) {
    remapper->is_asleep = remapper->is_copying = true;
    place *at = gml_ledger_from(&remapper->ledger, 0);
    for (; at && gml_mapping_end(&at->known) <= below; at = gml_ledger_next(&at->known)) {
        if (at->known.is_absent) {
            continue;
        }
        gml_status status = end_mapping(remapper, counted, at);
        if (status != GML_OK) {
            return status;
        }
        if (!releases_last && is_mapped_nowhere(chunk_of(at))) {
            give_back(remapper, counted, chunk_of(at), released_bytes, kept_bytes);
        }
    }
    for (size_t i = 0; i < remapper->ledger.chunks.capacity && below == UINT64_MAX; i++) {
        chunk *left = gml_ledger_in_slot(&remapper->ledger, i);
        if (left && (releases_last ||
                     gml_list_is_empty(&left->known.mappings))) { /* the others have been tried */
            give_back(remapper, counted, left, released_bytes, kept_bytes);
        }
    }
    remapper->is_copying &= below < UINT64_MAX;
    return GML_OK;
}

static gml_status take_again(gml_remapper *remapper, gml_driver *counted, chunk *taken) {
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = GML_OK;
    if (!taken->behind && !gml_physical_is_over(&taken->known)) {
        status = count(remapper, counted, GML_CALL_CREATE,
                       gml_driver_take_behind(inner, taken->known.size_bytes, &taken->behind));
        taken->is_fresh = status == GML_OK;
    }
    return status;
}

static gml_status map_again(gml_remapper *remapper, gml_driver *counted, place *at) {
    gml_mapping *known = &at->known;
    gml_driver *inner = remapper->wrapped.inner;
    gml_status status = take_again(remapper, counted, chunk_of(at));
    if (status == GML_OK && known->is_absent) {
        status = count(
            remapper, counted, GML_CALL_MAP,
            inner->ops->map(inner, known->node.address, known->size_bytes, chunk_of(at)->behind));
        if (status == GML_OK) {
            gml_ledger_regain(&remapper->ledger, known);
            at->is_shut = known->is_open;
        }
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
        gml_address begin = at->known.node.address, behind = begin;
        for (; at != end && at->known.node.address == behind && at->is_shut &&
               (at == first || at->continues);
             at = gml_ledger_next(&at->known)) {
            behind = gml_mapping_end(&at->known);
        }
        if (at == first) {
            at = gml_ledger_next(&at->known);
            continue;
        }
        status = count(remapper, counted, GML_CALL_SET_ACCESS,
                       inner->ops->set_access(inner, begin, behind - begin));
        for (; status == GML_OK && first != at; first = gml_ledger_next(&first->known)) {
            first->is_shut = false;
        }
    }
    return status;
}

static gml_status wake_all(gml_remapper *remapper, gml_driver *counted,
                           const gml_remapper_watch *watch) {
    gml_status status = await_copies(remapper, counted);
    remapper->is_copying = true; /* `watch` does */
    place *at = gml_ledger_from(&remapper->ledger, 0);
    for (place *first = at; at && status == GML_OK; first = at) {
        for (uint64_t bytes = 0; at && bytes < PART_BYTES && status == GML_OK;
             at = gml_ledger_next(&at->known)) {
            status = map_again(remapper, counted, at);
            bytes += at->known.size_bytes;
        }
        status = status == GML_OK ? open_again(remapper, counted, first, at) : status;
        if (status == GML_OK && at) {
            status = watch->mapped(watch->context, at->known.node.address);
        }
    }
    for (size_t i = 0; i < remapper->ledger.chunks.capacity && status == GML_OK; i++) {
        chunk *left = gml_ledger_in_slot(&remapper->ledger, i);
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
    place *mapped = gml_ledger_from(&remapper->ledger, 0);
    for (place *at = mapped; at && is_quiet; at = gml_ledger_next(&at->known)) {
        if (chunk_of(at)->is_fresh) {
            (void)end_mapping(remapper, counted, at);
        }
    }
    for (size_t i = 0; i < remapper->ledger.chunks.capacity && is_quiet; i++) {
        chunk *at = gml_ledger_in_slot(&remapper->ledger, i);
        if (at && at->is_fresh && is_mapped_nowhere(at)) {
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
    for (size_t i = 0; i < remapper->ledger.chunks.capacity; i++) {
        chunk *at = gml_ledger_in_slot(&remapper->ledger, i);
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
    gml_ledger_clear(&remapper->ledger);
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
    gml_ledger_init(&remapper->ledger, &remapper->wrapped.base, &books);
    gml_driver_ops *ops = &remapper->wrapped.ops;
    ops->create = create;
    ops->release = release;
    ops->map = map;
    ops->unmap = unmap;
    ops->set_access = set_access;
    ops->malloc = remapper_malloc;
    ops->free = remapper_free;
    ops->expect_malloc = NULL;
    ops->take_host = NULL;
    ops->export_file = export_file;
    ops->behind_malloc = behind_malloc;
    ops->bytes = bytes;
    remapper->wrapped.base.can_sleep = true;
    remapper->wrapped.base.has_own_account = true;
    *driver = &remapper->wrapped.base;
    *out = remapper;
    return GML_OK;
}
