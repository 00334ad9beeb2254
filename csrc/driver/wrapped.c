/* One function per entry of the table, each of which asks the inner driver. */
#include "driver/wrapped.h"

static gml_driver *inner_of(gml_driver *self) {
    return gml_wrapped_inner(self);
}

gml_status gml_wrapped_relay(gml_driver *self, gml_status status) {
    if (status != GML_OK && status != GML_NOT_READY) {
        gml_driver_take_reason(self, inner_of(self));
    }
    return status;
}

#define PASS(upper, lower, parameters, arguments, cost_bytes)                                      \
    static gml_status pass_##lower parameters {                                                    \
        gml_driver *driver = inner_of(self);                                                       \
        return gml_wrapped_relay(self, driver->ops->lower arguments);                              \
    }
GML_DRIVER_TABLE(PASS, PASS)
#undef PASS

static gml_status bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out) {
    return gml_wrapped_relay(self, gml_driver_bytes(inner_of(self), address, size_bytes, out));
}

static gml_status expect_malloc(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_wrapped_relay(self, gml_driver_expect_malloc(inner_of(self), address, size_bytes));
}

static uint64_t cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes) {
    const gml_driver *inner = ((const gml_wrapped *)(const void *)self)->inner;
    return inner->ops->cost_ns(inner, call, size_bytes);
}

static gml_status grant(gml_driver *self, int peer) {
    return gml_wrapped_relay(self, gml_driver_grant(inner_of(self), peer));
}

static gml_status record_elsewhere(gml_driver *self, int device, gml_stream stream,
                                   gml_event *out) {
    return gml_wrapped_relay(self,
                             gml_driver_record_elsewhere(inner_of(self), device, stream, out));
}

static gml_status share(gml_driver *self, unsigned handle_type) {
    return gml_wrapped_relay(self, gml_driver_share(inner_of(self), handle_type));
}

static gml_status export_file(gml_driver *self, gml_handle handle, bool is_kept, int *out) {
    return gml_wrapped_relay(self, gml_driver_export_file(inner_of(self), handle, is_kept, out));
}

static gml_status behind_malloc(gml_driver *self, gml_address address, gml_handle *out) {
    return gml_wrapped_relay(self, gml_driver_behind_malloc(inner_of(self), address, out));
}

static gml_status open_files(gml_driver *self, const gml_shared_piece *pieces, size_t count,
                             gml_address *out) {
    return gml_wrapped_relay(self, gml_driver_open_files(inner_of(self), pieces, count, out));
}

static gml_status close_files(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_wrapped_relay(self, gml_driver_close_files(inner_of(self), address, size_bytes));
}

static gml_streams *streams(gml_driver *self) {
    gml_driver *inner = inner_of(self);
    return inner->ops->streams(inner);
}

static const gml_driver_ops passing_ops = {
#define ENTRY(upper, lower, parameters, arguments, cost_bytes) .lower = pass_##lower,
    GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
        .bytes = bytes,
    .expect_malloc = expect_malloc,
    .record_elsewhere = record_elsewhere,
    .export_file = export_file,
    .behind_malloc = behind_malloc,
    .open_files = open_files,
    .close_files = close_files,
};

void gml_wrap(gml_wrapped *wrapped, gml_driver *inner, void (*destroy)(gml_driver *self)) {
    gml_driver_ops *ops = &wrapped->ops;
    *ops = passing_ops;
    ops->name = inner->ops->name;
    ops->destroy = destroy;
    ops->cost_ns = inner->ops->cost_ns ? cost_ns : NULL;
    ops->grant = inner->ops->grant ? grant : NULL;
    ops->share = inner->ops->share ? share : NULL;
    ops->streams = inner->ops->streams ? streams : NULL;
    wrapped->base.ops = ops;
    wrapped->base.info = inner->info;
    wrapped->base.per_thread_stream = inner->per_thread_stream;
    wrapped->base.arena = inner->arena;
    wrapped->base.arena_bytes = inner->arena_bytes;
    wrapped->base.window_bytes = inner->window_bytes;
    wrapped->base.can_sleep = inner->can_sleep;
    wrapped->base.has_own_account = inner->has_own_account;
    wrapped->base.device = inner->device;
    wrapped->base.gone = inner->gone;
    wrapped->inner = inner;
}
