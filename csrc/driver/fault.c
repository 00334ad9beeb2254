/* The driver that fails on purpose: any other driver, with chosen calls refused before it sees
 * them. */
#include "base/mix.h"
#include "driver/driver.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t MILLION = 1000000;

typedef struct fault_driver {
    gml_driver base;    /* must be first */
    gml_driver_ops ops; /* this driver's table: without what the inner one lacks */
    gml_driver *inner;
    uint64_t made; /* calls that could have failed, so far */
    uint64_t nth;
    uint64_t per_million;
    uint64_t random_state;
} fault_driver;

static fault_driver *
fault_of(gml_driver *self)
{
    return (fault_driver *)self;
}

static gml_driver *
inner_of(gml_driver *self)
{
    return fault_of(self)->inner;
}

/* 0 to 999999. */
static uint64_t
draw(fault_driver *fault)
{
    return gml_mix_next(&fault->random_state) % MILLION;
}

/* GML_OK, or the status to fail this call with. */
static gml_status
strike(gml_driver *self, gml_driver_call call)
{
    fault_driver *fault = fault_of(self);
    fault->made++;
    bool is_drawn = fault->per_million > 0 && draw(fault) < fault->per_million;
    if (fault->made != fault->nth && !is_drawn) {
        return GML_OK;
    }
    bool takes_memory = call == GML_CALL_CREATE || call == GML_CALL_MALLOC || call == GML_CALL_MAP;
    return gml_driver_fail(self, takes_memory ? GML_OUT_OF_MEMORY : GML_DRIVER_FAILED,
                           "%s: failed on purpose, as call number %" PRIu64,
                           gml_driver_call_name(call), fault->made);
}

/* Passes a status of the inner driver on, with its reason. */
static gml_status
relay(gml_driver *self, gml_status status)
{
    if (status != GML_OK && status != GML_NOT_READY) {
        memcpy(self->reason, inner_of(self)->reason, sizeof self->reason);
    }
    return status;
}

static void
destroy(gml_driver *self)
{
    gml_driver_close(inner_of(self));
    free(fault_of(self));
}

static gml_status
create(gml_driver *self, uint64_t size_bytes, gml_handle *out)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_CREATE);
    return status != GML_OK ? status : relay(self, inner->ops->create(inner, size_bytes, out));
}

static gml_status
release(gml_driver *self, gml_handle handle)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_RELEASE);
    return status != GML_OK ? status : relay(self, inner->ops->release(inner, handle));
}

static gml_status
reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes, gml_address *out)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_RESERVE);
    return status != GML_OK
               ? status
               : relay(self, inner->ops->reserve(inner, size_bytes, alignment_bytes, out));
}

static gml_status
unreserve(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_UNRESERVE);
    return status != GML_OK ? status
                            : relay(self, inner->ops->unreserve(inner, address, size_bytes));
}

static gml_status
map(gml_driver *self, gml_address address, uint64_t size_bytes, gml_handle handle)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_MAP);
    return status != GML_OK ? status
                            : relay(self, inner->ops->map(inner, address, size_bytes, handle));
}

static gml_status
unmap(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_UNMAP);
    return status != GML_OK ? status : relay(self, inner->ops->unmap(inner, address, size_bytes));
}

static gml_status
set_access(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_SET_ACCESS);
    return status != GML_OK ? status
                            : relay(self, inner->ops->set_access(inner, address, size_bytes));
}

static gml_status
fault_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_MALLOC);
    return status != GML_OK ? status : relay(self, inner->ops->malloc(inner, size_bytes, out));
}

static gml_status
fault_free(gml_driver *self, gml_address address)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_FREE);
    return status != GML_OK ? status : relay(self, inner->ops->free(inner, address));
}

static gml_status
memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    gml_driver *inner = inner_of(self);
    return relay(self, inner->ops->memory_info(inner, free_bytes, total_bytes));
}

static gml_status
event_create(gml_driver *self, gml_event *out)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_EVENT_CREATE);
    return status != GML_OK ? status : relay(self, inner->ops->event_create(inner, out));
}

static gml_status
event_destroy(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_EVENT_DESTROY);
    return status != GML_OK ? status : relay(self, inner->ops->event_destroy(inner, event));
}

static gml_status
event_record(gml_driver *self, gml_event event, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_EVENT_RECORD);
    return status != GML_OK ? status : relay(self, inner->ops->event_record(inner, event, stream));
}

static gml_status
event_query(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_EVENT_QUERY);
    return status != GML_OK ? status : relay(self, inner->ops->event_query(inner, event));
}

static gml_status
event_synchronize(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_EVENT_SYNCHRONIZE);
    return status != GML_OK ? status : relay(self, inner->ops->event_synchronize(inner, event));
}

static gml_status
stream_wait(gml_driver *self, gml_stream stream, gml_event event)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_STREAM_WAIT);
    return status != GML_OK ? status : relay(self, inner->ops->stream_wait(inner, stream, event));
}

static gml_status
stream_synchronize(gml_driver *self, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_STREAM_SYNCHRONIZE);
    return status != GML_OK ? status : relay(self, inner->ops->stream_synchronize(inner, stream));
}

static gml_status
stream_capturing(gml_driver *self, gml_stream stream, bool *out)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_STREAM_CAPTURING);
    return status != GML_OK ? status
                            : relay(self, inner->ops->stream_capturing(inner, stream, out));
}

static gml_status
device_synchronize(gml_driver *self)
{
    gml_driver *inner = inner_of(self);
    gml_status status = strike(self, GML_CALL_DEVICE_SYNCHRONIZE);
    return status != GML_OK ? status : relay(self, inner->ops->device_synchronize(inner));
}

static gml_status
bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out)
{
    return relay(self, gml_driver_bytes(inner_of(self), address, size_bytes, out));
}

static gml_status
expect_malloc(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    return relay(self, gml_driver_expect_malloc(inner_of(self), address, size_bytes));
}

static gml_status
grant(gml_driver *self, int peer)
{
    gml_driver *inner = inner_of(self);
    return relay(self, inner->ops->grant(inner, peer));
}

static gml_status
share(gml_driver *self, unsigned handle_type)
{
    gml_driver *inner = inner_of(self);
    return relay(self, inner->ops->share(inner, handle_type));
}

static uint64_t
cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes)
{
    const gml_driver *inner = ((const fault_driver *)self)->inner;
    return inner->ops->cost_ns(inner, call, size_bytes);
}

static gml_streams *
streams(gml_driver *self)
{
    gml_driver *inner = inner_of(self);
    return inner->ops->streams(inner);
}

static const gml_driver_ops fault_ops = {
    .destroy = destroy,
    .create = create,
    .release = release,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .malloc = fault_malloc,
    .free = fault_free,
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
    .cost_ns = cost_ns,
    .grant = grant,
    .share = share,
    .streams = streams,
};

gml_status
gml_fault_driver_open(gml_driver *inner, uint64_t nth, uint64_t per_million, uint64_t seed,
                      gml_driver **out)
{
    fault_driver *fault = calloc(1, sizeof *fault);
    if (!fault) {
        return GML_NO_HOST_MEMORY;
    }
    fault->ops = fault_ops;
    fault->ops.name = inner->ops->name;
    fault->ops.cost_ns = inner->ops->cost_ns ? cost_ns : NULL;
    fault->ops.grant = inner->ops->grant ? grant : NULL;
    fault->ops.share = inner->ops->share ? share : NULL;
    fault->ops.streams = inner->ops->streams ? streams : NULL;
    fault->base.ops = &fault->ops;
    fault->base.info = inner->info;
    fault->inner = inner;
    fault->nth = nth;
    fault->per_million = per_million;
    fault->random_state = seed;
    *out = &fault->base;
    return GML_OK;
}
