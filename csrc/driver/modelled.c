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
    status = gml_streams_open(&driver->base.streams);
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
    gml_streams_close(driver->base.streams);
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

/* ---- streams --------------------------------------------------------------------------------- */

/* Gives a status of the queues its reason. */
static gml_status explain(gml_driver *self, gml_status status, const char *call) {
    switch (status) {
    case GML_OK:
    case GML_NOT_READY:
        return status;
    case GML_INVALID_ARGUMENT:
        return gml_driver_fail(self, GML_MISUSE, "%s: this event does not exist", call);
    case GML_MISUSE:
        return gml_driver_fail(self, status, "%s: forbidden while a stream captures a graph", call);
    default:
        return gml_driver_fail(self, status, "%s: no host memory left", call);
    }
}

#define ASK(upper, lower, parameters, arguments, cost_bytes)                                       \
    gml_status gml_modelled_##lower parameters {                                                   \
        gml_streams *driver = self->streams;                                                       \
        return explain(self, gml_streams_##lower arguments, #lower);                               \
    }
GML_DRIVER_STREAM_TABLE(ASK, gml_driver)
#undef ASK

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
