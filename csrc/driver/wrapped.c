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

#define PASS(lower, parameters, arguments)                                                         \
    static gml_status pass_##lower parameters {                                                    \
        gml_driver *driver = inner_of(self);                                                       \
        return gml_wrapped_relay(self, driver->ops->lower arguments);                              \
    }
#define CALL(upper, lower, parameters, arguments, cost_bytes) PASS(lower, parameters, arguments)
#define OPTION(lower, parameters, arguments, absent) PASS(lower, parameters, arguments)
GML_DRIVER_TABLE(CALL, CALL)
GML_DRIVER_OPTIONAL(OPTION)
#undef PASS
#undef CALL
#undef OPTION

static uint64_t cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes) {
    const gml_driver *inner = ((const gml_wrapped *)(const void *)self)->inner;
    return inner->ops->cost_ns(inner, call, size_bytes);
}

static const gml_driver_ops passing_ops = {
#define ENTRY(upper, lower, parameters, arguments, cost_bytes) .lower = pass_##lower,
    GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
};

void gml_wrap(gml_wrapped *wrapped, gml_driver *inner, void (*destroy)(gml_driver *self)) {
    gml_driver_ops *ops = &wrapped->ops;
    *ops = passing_ops;
    ops->name = inner->ops->name;
    ops->destroy = destroy;
    ops->cost_ns = inner->ops->cost_ns ? cost_ns : NULL;
#define OPTION(lower, parameters, arguments, absent)                                               \
    ops->lower = inner->ops->lower ? pass_##lower : NULL;
    GML_DRIVER_OPTIONAL(OPTION)
#undef OPTION
    wrapped->base.ops = ops;
    wrapped->base.info = inner->info;
    wrapped->base.per_thread_stream = inner->per_thread_stream;
    wrapped->base.streams = inner->streams;
    wrapped->base.arena = inner->arena;
    wrapped->base.arena_bytes = inner->arena_bytes;
    wrapped->base.can_sleep = inner->can_sleep;
    wrapped->base.has_own_account = inner->has_own_account;
    wrapped->base.device = inner->device;
    wrapped->base.gone = inner->gone;
    wrapped->inner = inner;
}
