/* The table entries that drivers without a device share. */
#include "driver/modelled.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gml_modelled *modelled_of(gml_driver *self) {
    return (gml_modelled *)self;
}

gml_status gml_modelled_init(gml_modelled *driver, uint64_t capacity_bytes,
                             uint64_t granularity_bytes) {
    gml_status status =
        gml_model_init(&driver->model, &driver->base, capacity_bytes, granularity_bytes);
    if (status != GML_OK) {
        return status;
    }
    status = gml_streams_open(&driver->streams);
    if (status != GML_OK) {
        gml_model_clear(&driver->model);
        return gml_driver_fail(&driver->base, status, "open: no host memory left");
    }
    driver->base.device = &driver->base.own;
    driver->base.gone = &driver->base.own_gone;
    gml_device_info *info = &driver->base.info;
    info->granularity_bytes = granularity_bytes;
    info->total_bytes = driver->model.capacity_bytes;
    info->free_bytes = driver->model.capacity_bytes;
    info->has_virtual_memory = true;
    (void)snprintf(info->name, sizeof info->name, "%s", driver->base.ops->name);
    return GML_OK;
}

void gml_modelled_clear(gml_modelled *driver) {
    gml_streams_close(driver->streams);
    gml_model_clear(&driver->model);
}

gml_status gml_modelled_create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    return gml_model_create(&modelled_of(self)->model, size_bytes, out);
}

gml_status gml_modelled_release(gml_driver *self, gml_handle handle) {
    return gml_model_release(&modelled_of(self)->model, handle);
}

gml_status gml_modelled_memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes) {
    const gml_model *model = &modelled_of(self)->model;
    *free_bytes = model->capacity_bytes - model->used_bytes;
    *total_bytes = model->capacity_bytes;
    return GML_OK;
}

/* Gives a status of the queues its reason. */
static gml_status explain(gml_driver *self, gml_status status, const char *call, uint64_t subject) {
    switch (status) {
    case GML_OK:
    case GML_NOT_READY:
        return status;
    case GML_INVALID_ARGUMENT:
        return gml_driver_fail(self, GML_MISUSE, "%s: event %" PRIu64 " does not exist", call,
                               subject);
    case GML_MISUSE:
        return gml_driver_fail(self, status,
                               "%s(%" PRIu64 "): forbidden while the stream captures a graph", call,
                               subject);
    default:
        return gml_driver_fail(self, status, "%s: no host memory left", call);
    }
}

gml_status gml_modelled_event_create(gml_driver *self, gml_event *out) {
    return explain(self, gml_streams_event_create(modelled_of(self)->streams, out), "event_create",
                   0);
}

gml_status gml_modelled_event_destroy(gml_driver *self, gml_event event) {
    return explain(self, gml_streams_event_destroy(modelled_of(self)->streams, event),
                   "event_destroy", event);
}

gml_status gml_modelled_event_record(gml_driver *self, gml_event event, gml_stream stream) {
    return explain(self, gml_streams_event_record(modelled_of(self)->streams, event, stream),
                   "event_record", event);
}

gml_status gml_modelled_event_record_all(gml_driver *self, gml_event event) {
    return explain(self, gml_streams_event_record_all(modelled_of(self)->streams, event),
                   "event_record_all", event);
}

gml_status gml_modelled_event_query(gml_driver *self, gml_event event) {
    return explain(self, gml_streams_event_query(modelled_of(self)->streams, event), "event_query",
                   event);
}

gml_status gml_modelled_event_synchronize(gml_driver *self, gml_event event) {
    return explain(self, gml_streams_event_synchronize(modelled_of(self)->streams, event),
                   "event_synchronize", event);
}

gml_status gml_modelled_stream_wait(gml_driver *self, gml_stream stream, gml_event event) {
    return explain(self, gml_streams_wait(modelled_of(self)->streams, stream, event), "stream_wait",
                   event);
}

gml_status gml_modelled_stream_synchronize(gml_driver *self, gml_stream stream) {
    return explain(self, gml_streams_synchronize(modelled_of(self)->streams, stream),
                   "stream_synchronize", stream);
}

gml_status gml_modelled_stream_capturing(gml_driver *self, gml_stream stream, bool *out) {
    return explain(self, gml_streams_capturing(modelled_of(self)->streams, stream, out),
                   "stream_capturing", stream);
}

gml_status gml_modelled_device_synchronize(gml_driver *self) {
    return explain(self, gml_streams_synchronize_all(modelled_of(self)->streams),
                   "device_synchronize", 0);
}

gml_streams *gml_modelled_streams(gml_driver *self) {
    return modelled_of(self)->streams;
}

/* ---- the host -------------------------------------------------------------------------------- */

gml_status gml_modelled_host_malloc(gml_driver *self, uint64_t size_bytes, void **out) {
    void *memory = malloc((size_t)size_bytes);
    if (!memory) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "host_malloc: no %s left",
                               gml_size_of(size_bytes).text);
    }
    *out = memory;
    return GML_OK;
}

gml_status gml_modelled_host_free(gml_driver *self, void *memory, uint64_t size_bytes) {
    (void)self;
    (void)size_bytes;
    free(memory);
    return GML_OK;
}

/* The bytes at an address of the device; GML_OK and NULL if the backend has no bytes. */
static gml_status find_bytes(gml_driver *self, gml_address address, uint64_t size_bytes,
                             void **out) {
    *out = NULL;
    gml_status status = self->ops->bytes(self, address, size_bytes, out);
    return status == GML_UNSUPPORTED ? GML_OK : status;
}

gml_status gml_modelled_copy_out(gml_driver *self, void *to, gml_address from, uint64_t size_bytes,
                                 gml_stream stream) {
    (void)stream;
    void *bytes;
    gml_status status = find_bytes(self, from, size_bytes, &bytes);
    if (status == GML_OK && bytes) {
        memcpy(to, bytes, (size_t)size_bytes);
    }
    return status;
}

gml_status gml_modelled_copy_in(gml_driver *self, gml_address to, const void *from,
                                uint64_t size_bytes, gml_stream stream) {
    (void)stream;
    void *bytes;
    gml_status status = find_bytes(self, to, size_bytes, &bytes);
    if (status == GML_OK && bytes) {
        memcpy(bytes, from, (size_t)size_bytes);
    }
    return status;
}
