/* Each call is made first and, on success, recorded in the order of streams or the memory. Whatever
 * may fail in telling is done before. */
#include "hooks/race.h"

#include "driver/wrapped.h"
#include "hooks/race_memory.h"

#include <stddef.h>
#include <stdlib.h>

typedef struct race_driver {
    gml_wrapped wrapped; /* must be first */
    gml_checker checker;
    gml_order order;
    gml_race_memory memory;
} race_driver;

static race_driver *race_of(gml_driver *self) {
    return (race_driver *)(void *)self;
}

static race_driver *watched_by(gml_checker *self) {
    return (race_driver *)(void *)((char *)self - offsetof(race_driver, checker));
}

static gml_race_memory *memory_of(gml_driver *self) {
    return &race_of(self)->memory;
}

static gml_order *order_of(gml_driver *self) {
    return &race_of(self)->order;
}

static void destroy(gml_driver *self) {
    gml_driver_close(gml_wrapped_inner(self));
    gml_race_memory_close(memory_of(self));
    gml_order_close(order_of(self));
    free(self);
}

/* Gives a failure its reason. */
static gml_status checked(gml_driver *self, gml_status status) {
    return status == GML_OK
               ? GML_OK
               : gml_driver_fail(self, status,
                                 "the host has no memory to watch the order of streams");
}

/* ---- memory ---------------------------------------------------------------------------------- */

static gml_status create_by(gml_driver *self,
                            gml_status (*make)(gml_driver *inner, uint64_t size_bytes,
                                               gml_handle *out),
                            uint64_t size_bytes, gml_handle *out) {
    gml_status status = gml_race_memory_prepare(memory_of(self));
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, make(gml_wrapped_inner(self), size_bytes, out));
    if (status == GML_OK) {
        gml_race_memory_create(memory_of(self), *out);
    }
    return status;
}

static gml_status create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    return create_by(self, gml_wrapped_inner(self)->ops->create, size_bytes, out);
}

static gml_status take_host(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    return create_by(self, gml_wrapped_inner(self)->ops->take_host, size_bytes, out);
}

static gml_status release(gml_driver *self, gml_handle handle) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_wrapped_relay(self, inner->ops->release(inner, handle));
    if (status == GML_OK) {
        gml_race_memory_release(memory_of(self), handle);
    }
    return status;
}

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_race_memory_prepare(memory_of(self));
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->map(inner, address, size_bytes, handle));
    if (status == GML_OK) {
        gml_race_memory_map(memory_of(self), address, size_bytes, handle);
    }
    return status;
}

static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_race_memory_check_unmap(memory_of(self), address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->unmap(inner, address, size_bytes));
    if (status == GML_OK) {
        gml_race_memory_unmap(memory_of(self), address, size_bytes);
    }
    return status;
}

static gml_status race_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_race_memory_prepare(memory_of(self));
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->malloc(inner, size_bytes, out));
    if (status == GML_OK) {
        gml_race_memory_malloc(memory_of(self), *out, size_bytes);
    }
    return status;
}

static gml_status race_free(gml_driver *self, gml_address address) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_race_memory_check_free(memory_of(self), address);
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->free(inner, address));
    if (status == GML_OK) {
        gml_race_memory_free(memory_of(self), address);
    }
    return status;
}

/* ---- order ----------------------------------------------------------------------------------- */

static gml_status event_destroy(gml_driver *self, gml_event event) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_wrapped_relay(self, inner->ops->event_destroy(inner, event));
    if (status == GML_OK) {
        gml_order_forget_event(order_of(self), event);
    }
    return status;
}

static gml_status event_record(gml_driver *self, gml_event event, gml_stream stream) {
    gml_driver *inner = gml_wrapped_inner(self);
    size_t number;
    gml_status status = checked(self, gml_order_find(order_of(self), stream, &number));
    if (status == GML_OK) {
        status = checked(self, gml_order_prepare(order_of(self), event));
    }
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->event_record(inner, event, stream));
    if (status == GML_OK) {
        gml_order_record(order_of(self), event, number);
    }
    return status;
}

static gml_status event_record_all(gml_driver *self, gml_event event) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = checked(self, gml_order_prepare(order_of(self), event));
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->event_record_all(inner, event));
    if (status == GML_OK) {
        gml_order_record_all(order_of(self), event);
    }
    return status;
}

static gml_status event_query(gml_driver *self, gml_event event) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_wrapped_relay(self, inner->ops->event_query(inner, event));
    if (status == GML_OK) {
        gml_order_learn_event(order_of(self), event);
    }
    return status;
}

static gml_status event_synchronize(gml_driver *self, gml_event event) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_wrapped_relay(self, inner->ops->event_synchronize(inner, event));
    if (status == GML_OK) {
        gml_order_learn_event(order_of(self), event);
    }
    return status;
}

static gml_status stream_wait(gml_driver *self, gml_stream stream, gml_event event) {
    gml_driver *inner = gml_wrapped_inner(self);
    size_t number;
    gml_status status = checked(self, gml_order_find(order_of(self), stream, &number));
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->stream_wait(inner, stream, event));
    if (status == GML_OK) {
        gml_order_wait(order_of(self), number, event);
    }
    return status;
}

static gml_status stream_synchronize(gml_driver *self, gml_stream stream) {
    gml_driver *inner = gml_wrapped_inner(self);
    size_t number;
    gml_status status = checked(self, gml_order_find(order_of(self), stream, &number));
    if (status != GML_OK) {
        return status;
    }
    status = gml_wrapped_relay(self, inner->ops->stream_synchronize(inner, stream));
    if (status == GML_OK) {
        gml_order_learn_stream(order_of(self), number);
    }
    return status;
}

static gml_status device_synchronize(gml_driver *self) {
    gml_driver *inner = gml_wrapped_inner(self);
    gml_status status = gml_wrapped_relay(self, inner->ops->device_synchronize(inner));
    if (status == GML_OK) {
        gml_order_learn_all(order_of(self));
    }
    return status;
}

/* ---- uses ------------------------------------------------------------------------------------ */

static gml_status begin_use(gml_checker *self, gml_address address, uint64_t size_bytes,
                            gml_stream stream) {
    return gml_race_memory_begin(&watched_by(self)->memory, address, size_bytes, stream);
}

static gml_status join_use(gml_checker *self, gml_address address, gml_stream stream) {
    return gml_race_memory_join(&watched_by(self)->memory, address, stream);
}

static void end_use(gml_checker *self, gml_address address) {
    gml_race_memory_end(&watched_by(self)->memory, address);
}

static void fill_table(gml_driver_ops *ops) {
    ops->create = create;
    ops->release = release;
    ops->map = map;
    ops->unmap = unmap;
    ops->malloc = race_malloc;
    ops->free = race_free;
    ops->event_destroy = event_destroy;
    ops->event_record = event_record;
    ops->event_record_all = event_record_all;
    ops->event_query = event_query;
    ops->event_synchronize = event_synchronize;
    ops->stream_wait = stream_wait;
    ops->stream_synchronize = stream_synchronize;
    ops->device_synchronize = device_synchronize;
    ops->take_host = ops->take_host ? take_host : NULL;
}

gml_status gml_race_driver_open(gml_driver *inner, gml_driver **out, gml_checker **checker) {
    race_driver *race = calloc(1, sizeof *race);
    if (!race) {
        return GML_NO_HOST_MEMORY;
    }
    gml_wrap(&race->wrapped, inner, destroy);
    fill_table(&race->wrapped.ops);
    gml_race_memory_init(&race->memory, &race->wrapped.base, &race->order);
    race->checker = (gml_checker){.begin_use = begin_use,
                                  .join_use = join_use,
                                  .end_use = end_use,
                                  .reason = race->wrapped.base.reason};
    *checker = &race->checker;
    *out = &race->wrapped.base;
    return GML_OK;
}
