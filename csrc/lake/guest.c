/* The driver that the guest's algorithm sees, and the guest around both. */
#include "lake/guest.h"

#include "base/map.h"
#include "policy/torch/caching_segment.h"

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

/* ---- memory ---------------------------------------------------------------------------------- */

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
        memcpy(self->reason, host->driver->reason, sizeof self->reason);
        return status;
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

/* Segments go back to the host without a wait: guest.h says why. */
static gml_status
device_synchronize(gml_driver *self)
{
    (void)self;
    return GML_OK;
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

/* The algorithm asks a device for nothing else. */
static const gml_driver_ops guest_ops = {
    .name = "guest",
    .destroy = destroy,
    .malloc = guest_malloc,
    .free = guest_free,
    .device_synchronize = device_synchronize,
    .cost_ns = cost_ns,
};

/* ---- the guest ------------------------------------------------------------------------------- */

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
    guest->driver.device = &guest->driver.own; /* never frozen: it makes no call of the device */
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

gml_status
gml_guest_forget(gml_guest *guest, gml_stream stream)
{
    return report(guest, gml_caching_retire((gml_torch_heap *)guest->caching, stream));
}

void
gml_guest_move(gml_guest *guest, gml_policy *host)
{
    guest->host = host;
}

gml_policy *
gml_guest_policy(gml_guest *guest)
{
    return guest->caching;
}
