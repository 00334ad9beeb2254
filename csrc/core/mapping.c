/* Multi-step driver work with its unwinding. */
#include "core/mapping.h"

#include "base/status.h"

gml_status gml_chunks_release(gml_driver *driver, gml_handle *handles, size_t count) {
    gml_status first = GML_OK;
    for (size_t i = 0; i < count; i++) {
        if (!handles[i]) {
            continue;
        }
        gml_status status = gml_driver_release(driver, handles[i]);
        if (status == GML_OK) {
            handles[i] = 0;
        }
        first = gml_first_failure(first, status);
    }
    return first;
}

enum { LAST_ATTEMPTS = 3 };

gml_status gml_synchronize_finally(gml_driver *driver) {
    gml_status status = GML_DRIVER_FAILED;
    for (int i = 0; i < LAST_ATTEMPTS && status != GML_OK; i++) {
        status = gml_driver_device_synchronize(driver);
    }
    return status;
}

gml_status gml_unmap_finally(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    gml_status status = GML_DRIVER_FAILED;
    for (int i = 0; i < LAST_ATTEMPTS && status != GML_OK; i++) {
        status = gml_driver_unmap(driver, address, size_bytes);
    }
    return status;
}

gml_status gml_unreserve_finally(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    gml_status status = GML_DRIVER_FAILED;
    for (int i = 0; i < LAST_ATTEMPTS && status != GML_OK; i++) {
        status = gml_driver_unreserve(driver, address, size_bytes);
    }
    return status;
}

gml_status gml_chunks_release_finally(gml_driver *driver, gml_handle *handles, size_t count) {
    gml_status status = GML_DRIVER_FAILED;
    for (int i = 0; i < LAST_ATTEMPTS && status != GML_OK; i++) {
        status = gml_chunks_release(driver, handles, count);
    }
    return status;
}

static uint64_t sum_bytes(const gml_driver *driver, const gml_handle *handles, size_t count) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += gml_driver_size(driver, handles[i]);
    }
    return bytes;
}

gml_status gml_mapping_add(gml_driver *driver, gml_address address, const gml_handle *handles,
                           size_t count, uint64_t *stuck_bytes) {
    gml_status status = GML_OK;
    uint64_t mapped_bytes = 0;
    for (size_t i = 0; i < count && status == GML_OK; i++) {
        uint64_t chunk_bytes = gml_driver_size(driver, handles[i]);
        status = gml_driver_map(driver, address + mapped_bytes, chunk_bytes, handles[i]);
        mapped_bytes += status == GML_OK ? chunk_bytes : 0;
    }
    if (status == GML_OK) {
        status = gml_driver_set_access(driver, address, mapped_bytes);
    }
    uint64_t stuck = 0;
    gml_driver_begin_undo(driver);
    if (status != GML_OK && mapped_bytes &&
        gml_unmap_finally(driver, address, mapped_bytes) != GML_OK) {
        stuck = mapped_bytes;
    }
    gml_driver_end_undo(driver);
    if (stuck_bytes) {
        *stuck_bytes = stuck;
    }
    return status;
}

gml_status gml_mapping_create(gml_driver *driver, const gml_handle *handles, size_t count,
                              gml_address *out, uint64_t *mapped_bytes) {
    *out = 0;
    *mapped_bytes = 0;
    gml_address address;
    uint64_t size_bytes = sum_bytes(driver, handles, count);
    gml_status status = gml_driver_reserve(driver, size_bytes, 0, &address);
    if (status != GML_OK) {
        return status;
    }
    status = gml_mapping_add(driver, address, handles, count, mapped_bytes);
    if (status == GML_OK) {
        *mapped_bytes = size_bytes;
    }
    gml_driver_begin_undo(driver);
    if (*mapped_bytes || gml_unreserve_finally(driver, address, size_bytes) != GML_OK) {
        *out = address;
    }
    gml_driver_end_undo(driver);
    return status;
}

gml_status gml_mapping_destroy(gml_driver *driver, gml_address address, uint64_t size_bytes,
                               uint64_t *mapped_bytes) {
    if (*mapped_bytes) {
        gml_status status = gml_driver_unmap(driver, address, *mapped_bytes);
        if (status != GML_OK) {
            return status;
        }
        *mapped_bytes = 0;
    }
    return gml_driver_unreserve(driver, address, size_bytes);
}
