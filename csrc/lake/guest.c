/* The driver that the guest's algorithm sees, and the guest around both. */
#include "lake/guest.h"

#include "base/map.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct gml_guest {
    gml_driver driver; /* must be first: what the algorithm takes to be the device */
    gml_policy *host;
    gml_policy *caching;
    gml_stream stream; /* of the request that is being served */
    gml_map segments;  /* address -> gml_block of the host */
};

static gml_guest *
guest_of(gml_driver *driver)
{
    return (gml_guest *)driver;
}

static gml_driver *
real_of(gml_driver *driver)
{
    return guest_of(driver)->host->driver;
}

/* Passes a status of the host, or of its driver, on with its reason. */
static gml_status
relay(gml_driver *self, gml_status status)
{
    if (status != GML_OK && status != GML_NOT_READY) {
        memcpy(self->reason, real_of(self)->reason, sizeof self->reason);
    }
    return status;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static gml_status
guest_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out)
{
    gml_guest *guest = guest_of(self);
    gml_policy *host = guest->host;
    /* Room in the map first: once the host has served, nothing may fail. */
    if (gml_map_reserve(&guest->segments, 1) != GML_OK) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "no host memory for another segment");
    }
    gml_block *block = NULL;
    gml_status status = host->ops->allocate(host, size_bytes, guest->stream, &block);
    if (status != GML_OK) {
        return relay(self, status);
    }
    block->owner = host;
    block->uses = NULL;
    (void)gml_map_insert(&guest->segments, block->address, block);
    *out = block->address;
    return GML_OK;
}

static gml_status
guest_free(gml_driver *self, gml_address address)
{
    gml_guest *guest = guest_of(self);
    gml_block *block = gml_map_take(&guest->segments, address);
    if (!block) {
        return gml_driver_fail(self, GML_MISUSE, "no segment begins at 0x%" PRIx64, address);
    }
    guest->host->ops->free(guest->host, block);
    return GML_OK;
}

static gml_status
memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    return relay(self, gml_driver_memory_info(real_of(self), free_bytes, total_bytes));
}

/* Segments go back to the host without a wait: guest.h says why. */
static gml_status
device_synchronize(gml_driver *self)
{
    (void)self;
    return GML_OK;
}

/* ---- what goes to the real driver as it is -----------------------------------------------------
 */

static gml_status
create(gml_driver *self, uint64_t size_bytes, gml_handle *out)
{
    return relay(self, gml_driver_create(real_of(self), size_bytes, out));
}

static gml_status
release(gml_driver *self, gml_handle handle)
{
    return relay(self, gml_driver_release(real_of(self), handle));
}

static gml_status
reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes, gml_address *out)
{
    return relay(self, gml_driver_reserve(real_of(self), size_bytes, alignment_bytes, out));
}

static gml_status
unreserve(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    return relay(self, gml_driver_unreserve(real_of(self), address, size_bytes));
}

static gml_status
map(gml_driver *self, gml_address address, uint64_t size_bytes, gml_handle handle)
{
    return relay(self, gml_driver_map(real_of(self), address, size_bytes, handle));
}

static gml_status
unmap(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    return relay(self, gml_driver_unmap(real_of(self), address, size_bytes));
}

static gml_status
set_access(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    return relay(self, gml_driver_set_access(real_of(self), address, size_bytes));
}

static gml_status
event_create(gml_driver *self, gml_event *out)
{
    return relay(self, gml_driver_event_create(real_of(self), out));
}

static gml_status
event_destroy(gml_driver *self, gml_event event)
{
    return relay(self, gml_driver_event_destroy(real_of(self), event));
}

static gml_status
event_record(gml_driver *self, gml_event event, gml_stream stream)
{
    return relay(self, gml_driver_event_record(real_of(self), event, stream));
}

static gml_status
event_query(gml_driver *self, gml_event event)
{
    return relay(self, gml_driver_event_query(real_of(self), event));
}

static gml_status
event_synchronize(gml_driver *self, gml_event event)
{
    return relay(self, gml_driver_event_synchronize(real_of(self), event));
}

static gml_status
stream_wait(gml_driver *self, gml_stream stream, gml_event event)
{
    return relay(self, gml_driver_stream_wait(real_of(self), stream, event));
}

static gml_status
stream_synchronize(gml_driver *self, gml_stream stream)
{
    return relay(self, gml_driver_stream_synchronize(real_of(self), stream));
}

static gml_status
stream_capturing(gml_driver *self, gml_stream stream, bool *out)
{
    return relay(self, gml_driver_stream_capturing(real_of(self), stream, out));
}

/* The real driver accounts the time of its calls. */
static uint64_t
cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes)
{
    (void)self;
    (void)call;
    (void)size_bytes;
    return 0;
}

static void
destroy(gml_driver *self)
{
    gml_guest *guest = guest_of(self);
    gml_map_clear(&guest->segments);
    free(guest);
}

static const gml_driver_ops guest_ops = {
    .name = "guest",
    .destroy = destroy,
    .create = create,
    .release = release,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .malloc = guest_malloc,
    .free = guest_free,
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
    .cost_ns = cost_ns,
};

/* ---- the guest ---------------------------------------------------------------------------------
 */

/* Passes a status of the algorithm on, with its reason, to where the lake's callers look. */
static gml_status
report(gml_guest *guest, gml_status status)
{
    if (status != GML_OK) {
        memcpy(guest->host->driver->reason, guest->driver.reason, sizeof guest->driver.reason);
    }
    return status;
}

gml_status
gml_guest_open(gml_policy *host, const gml_knobs *knobs, gml_guest **out)
{
    gml_guest *guest = calloc(1, sizeof *guest);
    if (!guest) {
        return gml_driver_fail(host->driver, GML_NO_HOST_MEMORY, "no host memory for a guest");
    }
    guest->driver.ops = &guest_ops;
    guest->driver.info = host->driver->info;
    guest->host = host;
    gml_status status =
        report(guest, gml_caching_policy.create(&guest->driver, 0, knobs, &guest->caching));
    if (status != GML_OK) {
        gml_driver_close(&guest->driver);
        return status;
    }
    *out = guest;
    return GML_OK;
}

gml_status
gml_guest_close(gml_guest *guest)
{
    if (!guest) {
        return GML_OK;
    }
    gml_status status = report(guest, guest->caching->ops->destroy(guest->caching));
    gml_driver_close(&guest->driver);
    return status;
}

gml_status
gml_guest_allocate(gml_guest *guest, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_policy *caching = guest->caching;
    guest->stream = stream;
    return report(guest, caching->ops->allocate(caching, size_bytes, stream, out));
}

gml_policy *
gml_guest_policy(gml_guest *guest)
{
    return guest->caching;
}
