/* One function per entry of the table, each of which asks the inner driver. */
#include "driver/wrapped.h"

#include <string.h>

static gml_driver *
inner_of(gml_driver *self)
{
    return gml_wrapped_inner(self);
}

gml_status
gml_wrapped_relay(gml_driver *self, gml_status status)
{
    if (status != GML_OK && status != GML_NOT_READY) {
        memcpy(self->reason, inner_of(self)->reason, sizeof self->reason);
    }
    return status;
}

static gml_status
create(gml_driver *self, uint64_t size_bytes, gml_handle *out)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->create(inner, size_bytes, out));
}

static gml_status
release(gml_driver *self, gml_handle handle)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->release(inner, handle));
}

static gml_status
reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes, gml_address *out)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->reserve(inner, size_bytes, alignment_bytes, out));
}

static gml_status
unreserve(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->unreserve(inner, address, size_bytes));
}

static gml_status
map(gml_driver *self, gml_address address, uint64_t size_bytes, gml_handle handle)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->map(inner, address, size_bytes, handle));
}

static gml_status
unmap(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->unmap(inner, address, size_bytes));
}

static gml_status
set_access(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->set_access(inner, address, size_bytes));
}

static gml_status
pass_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->malloc(inner, size_bytes, out));
}

static gml_status
pass_free(gml_driver *self, gml_address address)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->free(inner, address));
}

static gml_status
memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->memory_info(inner, free_bytes, total_bytes));
}

static gml_status
event_create(gml_driver *self, gml_event *out)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->event_create(inner, out));
}

static gml_status
event_destroy(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->event_destroy(inner, event));
}

static gml_status
event_record(gml_driver *self, gml_event event, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->event_record(inner, event, stream));
}

static gml_status
event_query(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->event_query(inner, event));
}

static gml_status
event_synchronize(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->event_synchronize(inner, event));
}

static gml_status
stream_wait(gml_driver *self, gml_stream stream, gml_event event)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->stream_wait(inner, stream, event));
}

static gml_status
stream_synchronize(gml_driver *self, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->stream_synchronize(inner, stream));
}

static gml_status
stream_capturing(gml_driver *self, gml_stream stream, bool *out)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->stream_capturing(inner, stream, out));
}

static gml_status
device_synchronize(gml_driver *self)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, inner->ops->device_synchronize(inner));
}

static gml_status
bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out)
{
    return gml_wrapped_relay(self, gml_driver_bytes(inner_of(self), address, size_bytes, out));
}

static gml_status
expect_malloc(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    return gml_wrapped_relay(self, gml_driver_expect_malloc(inner_of(self), address, size_bytes));
}

static uint64_t
cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes)
{
    const gml_driver *inner = ((const gml_wrapped *)(const void *)self)->inner;
    return inner->ops->cost_ns(inner, call, size_bytes);
}

static gml_status
grant(gml_driver *self, int peer)
{
    return gml_wrapped_relay(self, gml_driver_grant(inner_of(self), peer));
}

static gml_status
share(gml_driver *self, unsigned handle_type)
{
    return gml_wrapped_relay(self, gml_driver_share(inner_of(self), handle_type));
}

static gml_status
begin_use(gml_driver *self, gml_address address, uint64_t size_bytes, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, gml_driver_begin_use(inner, address, size_bytes, stream));
}

static gml_status
join_use(gml_driver *self, gml_address address, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    return gml_wrapped_relay(self, gml_driver_join_use(inner, address, stream));
}

static void
end_use(gml_driver *self, gml_address address)
{
    gml_driver_end_use(inner_of(self), address);
}

static void
order(gml_driver *self, gml_stream later, gml_stream earlier)
{
    gml_driver_order(inner_of(self), later, earlier);
}

static void
forget(gml_driver *self, gml_stream stream)
{
    gml_driver_forget(inner_of(self), stream);
}

static gml_streams *
streams(gml_driver *self)
{
    gml_driver *inner = inner_of(self);
    return inner->ops->streams(inner);
}

static const gml_driver_ops passing_ops = {
    .create = create,
    .release = release,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .malloc = pass_malloc,
    .free = pass_free,
    .memory_info = memory_info,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_synchronize = event_synchronize,
    .stream_wait = stream_wait,
    .stream_synchronize = stream_synchronize,
    .stream_capturing = stream_capturing,
    .device_synchronize = device_synchronize,
    .bytes = bytes,
    .expect_malloc = expect_malloc,
};

void
gml_wrap(gml_wrapped *wrapped, gml_driver *inner, void (*destroy)(gml_driver *self))
{
    gml_driver_ops *ops = &wrapped->ops;
    *ops = passing_ops;
    ops->name = inner->ops->name;
    ops->destroy = destroy;
    ops->cost_ns = inner->ops->cost_ns ? cost_ns : NULL;
    ops->grant = inner->ops->grant ? grant : NULL;
    ops->share = inner->ops->share ? share : NULL;
    ops->begin_use = inner->ops->begin_use ? begin_use : NULL;
    ops->join_use = inner->ops->join_use ? join_use : NULL;
    ops->end_use = inner->ops->end_use ? end_use : NULL;
    ops->order = inner->ops->order ? order : NULL;
    ops->forget = inner->ops->forget ? forget : NULL;
    ops->streams = inner->ops->streams ? streams : NULL;
    wrapped->base.ops = ops;
    wrapped->base.info = inner->info;
    wrapped->base.per_thread_stream = inner->per_thread_stream;
    wrapped->inner = inner;
}
