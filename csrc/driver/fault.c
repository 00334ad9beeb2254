/* The driver that fails on purpose: any other driver, with chosen calls refused, or answered as if
 * they had been made, before it sees them. */
#include "base/mix.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdlib.h>

static const uint64_t MILLION = 1000000;

#define BIT(call) (UINT64_C(1) << (call))

/* The calls that give nothing but an ordering, so that nobody misses one before memory is reused.
 */
static const uint64_t SKIPPABLE =
    BIT(GML_CALL_EVENT_RECORD) | BIT(GML_CALL_EVENT_QUERY) | BIT(GML_CALL_EVENT_SYNCHRONIZE) |
    BIT(GML_CALL_STREAM_WAIT) | BIT(GML_CALL_STREAM_SYNCHRONIZE) | BIT(GML_CALL_DEVICE_SYNCHRONIZE);

typedef struct fault_driver {
    gml_wrapped wrapped; /* must be first */
    uint64_t made;       /* calls that could have failed, so far */
    uint64_t nth;
    uint64_t per_million;
    uint64_t random_state;
    uint64_t skipped; /* calls that are not made, a bit each */
} fault_driver;

static fault_driver *
fault_of(gml_driver *self)
{
    return (fault_driver *)(void *)self;
}

static gml_driver *
inner_of(gml_driver *self)
{
    return gml_wrapped_inner(self);
}

static gml_status
relay(gml_driver *self, gml_status status)
{
    return gml_wrapped_relay(self, status);
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

/* As strike(), and *is_made false where a call shall not be made that has not failed either. */
static gml_status
strike_or_skip(gml_driver *self, gml_driver_call call, bool *is_made)
{
    gml_status status = strike(self, call);
    *is_made = status == GML_OK && !(fault_of(self)->skipped & BIT(call));
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
    bool is_made;
    gml_status status = strike_or_skip(self, GML_CALL_EVENT_RECORD, &is_made);
    return !is_made ? status : relay(self, inner->ops->event_record(inner, event, stream));
}

static gml_status
event_query(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    bool is_made;
    gml_status status = strike_or_skip(self, GML_CALL_EVENT_QUERY, &is_made);
    return !is_made ? status : relay(self, inner->ops->event_query(inner, event));
}

static gml_status
event_synchronize(gml_driver *self, gml_event event)
{
    gml_driver *inner = inner_of(self);
    bool is_made;
    gml_status status = strike_or_skip(self, GML_CALL_EVENT_SYNCHRONIZE, &is_made);
    return !is_made ? status : relay(self, inner->ops->event_synchronize(inner, event));
}

static gml_status
stream_wait(gml_driver *self, gml_stream stream, gml_event event)
{
    gml_driver *inner = inner_of(self);
    bool is_made;
    gml_status status = strike_or_skip(self, GML_CALL_STREAM_WAIT, &is_made);
    return !is_made ? status : relay(self, inner->ops->stream_wait(inner, stream, event));
}

static gml_status
stream_synchronize(gml_driver *self, gml_stream stream)
{
    gml_driver *inner = inner_of(self);
    bool is_made;
    gml_status status = strike_or_skip(self, GML_CALL_STREAM_SYNCHRONIZE, &is_made);
    return !is_made ? status : relay(self, inner->ops->stream_synchronize(inner, stream));
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
    bool is_made;
    gml_status status = strike_or_skip(self, GML_CALL_DEVICE_SYNCHRONIZE, &is_made);
    return !is_made ? status : relay(self, inner->ops->device_synchronize(inner));
}

/* Everything that can fail; what cannot is passed on. */
static void
fill_table(gml_driver_ops *ops)
{
    ops->create = create;
    ops->release = release;
    ops->reserve = reserve;
    ops->unreserve = unreserve;
    ops->map = map;
    ops->unmap = unmap;
    ops->set_access = set_access;
    ops->malloc = fault_malloc;
    ops->free = fault_free;
    ops->event_create = event_create;
    ops->event_destroy = event_destroy;
    ops->event_record = event_record;
    ops->event_query = event_query;
    ops->event_synchronize = event_synchronize;
    ops->stream_wait = stream_wait;
    ops->stream_synchronize = stream_synchronize;
    ops->stream_capturing = stream_capturing;
    ops->device_synchronize = device_synchronize;
}

gml_status
gml_fault_driver_open(gml_driver *inner, uint64_t nth, uint64_t per_million, uint64_t seed,
                      gml_driver **out)
{
    fault_driver *fault = calloc(1, sizeof *fault);
    if (!fault) {
        return GML_NO_HOST_MEMORY;
    }
    gml_wrap(&fault->wrapped, inner, destroy);
    fill_table(&fault->wrapped.ops);
    fault->nth = nth;
    fault->per_million = per_million;
    fault->random_state = seed;
    *out = &fault->wrapped.base;
    return GML_OK;
}

gml_status
gml_fault_driver_skip(gml_driver *driver, uint64_t calls)
{
    if (calls & ~SKIPPABLE) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "skip_calls 0x%" PRIx64 " names calls that cannot be skipped: only "
                               "0x%" PRIx64 " can, which record, wait and synchronise",
                               calls, SKIPPABLE);
    }
    fault_of(driver)->skipped = calls;
    return GML_OK;
}
