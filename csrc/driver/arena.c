/* Virtual memory of which every byte has its one place. */
#include "driver/arena.h"

#include "base/size.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct arena_driver {
    gml_wrapped wrapped; /* must be first */
    uint64_t created_bytes;
    gml_handle last_handle;
    gml_map sizes; /* handle -> bytes */
    bool is_reserved;
} arena_driver;

static arena_driver *arena_of(gml_driver *self) {
    return (arena_driver *)(void *)self;
}

static void destroy(gml_driver *self) {
    arena_driver *arena = arena_of(self);
    gml_driver *inner = arena->wrapped.inner;
    (void)inner->ops->free(inner, self->arena);
    gml_driver_close(inner);
    gml_map_clear(&arena->sizes);
    free(arena);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gml_status create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    arena_driver *arena = arena_of(self);
    if (size_bytes > self->arena_bytes - arena->created_bytes) {
        return gml_driver_fail(self, GML_OUT_OF_MEMORY,
                               "create: %s more asked for, and %s of the arena of %s are in use",
                               gml_size_of(size_bytes).text, gml_size_of(arena->created_bytes).text,
                               gml_size_of(self->arena_bytes).text);
    }
    if (gml_map_insert(&arena->sizes, arena->last_handle + 1, (void *)(uintptr_t)size_bytes) !=
        GML_OK) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "create: no host memory for a handle");
    }
    arena->created_bytes += size_bytes;
    *out = ++arena->last_handle;
    return GML_OK;
}

static gml_status release(gml_driver *self, gml_handle handle) {
    arena_driver *arena = arena_of(self);
    uint64_t size_bytes = (uint64_t)(uintptr_t)gml_map_take(&arena->sizes, handle);
    arena->created_bytes -= size_bytes;
    return size_bytes ? GML_OK
                      : gml_driver_fail(self, GML_INVALID_ARGUMENT,
                                        "release: %" PRIu64 " is no handle", handle);
}

static gml_status memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes) {
    *free_bytes = self->arena_bytes - arena_of(self)->created_bytes;
    *total_bytes = self->arena_bytes;
    return GML_OK;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static gml_status reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                          gml_address *out) {
    arena_driver *arena = arena_of(self);
    if (arena->is_reserved || size_bytes > self->arena_bytes ||
        (alignment_bytes && self->arena % alignment_bytes)) {
        return gml_driver_fail(self, GML_UNSUPPORTED,
                               "reserve: an arena of %s has no other addresses",
                               gml_size_of(self->arena_bytes).text);
    }
    arena->is_reserved = true;
    *out = self->arena;
    return GML_OK;
}

static gml_status unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    (void)address, (void)size_bytes;
    arena_of(self)->is_reserved = false;
    return GML_OK;
}

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    (void)self, (void)address, (void)size_bytes, (void)handle;
    return GML_OK;
}

static gml_status do_nothing(gml_driver *self, gml_address address, uint64_t size_bytes) {
    (void)self, (void)address, (void)size_bytes;
    return GML_OK;
}

/* ---- other processes ------------------------------------------------------------------------- */

static gml_status export_file(gml_driver *self, gml_handle handle, bool is_kept, int *out) {
    (void)handle, (void)is_kept, (void)out;
    return gml_driver_fail(self, GML_UNSUPPORTED, "an arena cannot be exported by its parts");
}

/* ---- opening --------------------------------------------------------------------------------- */

gml_status gml_arena_driver_open(uint64_t size_bytes, gml_driver **driver) {
    gml_driver *inner = *driver;
    arena_driver *arena = calloc(1, sizeof *arena);
    if (!arena) {
        return gml_driver_fail(inner, GML_NO_HOST_MEMORY, "no host memory for an arena");
    }
    gml_address address;
    gml_status status = inner->ops->malloc(inner, size_bytes, &address); /* its parts count */
    if (status != GML_OK) {
        char why[GML_REASON_BYTES];
        (void)snprintf(why, sizeof why, "%s", inner->reason);
        free(arena);
        return gml_driver_fail(inner, status,
                               "one allocation of %s, by the setting arena or the capacity, is "
                               "refused: %s",
                               gml_exact_size_of(size_bytes).text, why);
    }
    gml_wrap(&arena->wrapped, inner, destroy);
    gml_driver *self = &arena->wrapped.base;
    gml_driver_ops *ops = &arena->wrapped.ops;
    ops->create = create;
    ops->release = release;
    ops->reserve = reserve;
    ops->unreserve = unreserve;
    ops->map = map;
    ops->unmap = do_nothing;
    ops->set_access = do_nothing;
    ops->memory_info = memory_info;
    ops->share = NULL;
    ops->export_file = export_file;
    self->arena = address;
    self->arena_bytes = size_bytes;
    self->info.has_virtual_memory = true;
    self->info.free_bytes = size_bytes;
    *driver = self;
    return GML_OK;
}
