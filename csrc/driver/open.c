/* Drivers by name, and the capabilities of a device without a lake on it. */
#include "driver/backends.h"

#include <stdio.h>
#include <string.h>

static gml_status open_named(const char *name, int device, uint64_t capacity_bytes,
                             gml_driver **out, char *reason, size_t reason_bytes) {
    if (strcmp(name, "cuda") == 0) {
        return gml_cuda_driver_open(device, out, reason, reason_bytes);
    }
    bool is_sim = strcmp(name, "sim") == 0;
    if (!is_sim && strcmp(name, "host") != 0) {
        (void)snprintf(reason, reason_bytes,
                       "driver '%.32s' is unknown; choose one of: cuda, host, sim", name);
        return GML_INVALID_ARGUMENT;
    }
    if (device < 0) {
        (void)snprintf(reason, reason_bytes, "device %d is negative; devices count from 0", device);
        return GML_INVALID_ARGUMENT;
    }
    return gml_model_driver_open(is_sim ? GML_MODEL_SIM : GML_MODEL_HOST, capacity_bytes, 0, out,
                                 reason, reason_bytes);
}

gml_status gml_driver_open(const char *name, int device, uint64_t capacity_bytes, gml_driver **out,
                           char *reason, size_t reason_bytes) {
    char ignored[1];
    bool wants_reason = reason && reason_bytes > 0;
    return open_named(name ? name : "", device, capacity_bytes, out,
                      wants_reason ? reason : ignored,
                      wants_reason ? reason_bytes : sizeof ignored);
}

gml_status gml_device_describe(const char *driver, int device, gml_device_info *out, char *reason,
                               size_t reason_bytes) {
    gml_driver *opened;
    gml_status status = gml_driver_open(driver, device, 0, &opened, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    uint64_t free_bytes;
    uint64_t total_bytes;
    status = gml_driver_memory_info(opened, &free_bytes, &total_bytes);
    if (status == GML_OK) {
        *out = opened->info;
    } else if (reason && reason_bytes > 0) {
        (void)snprintf(reason, reason_bytes, "%s", opened->reason);
    }
    gml_driver_close(opened);
    return status;
}
