/* What the lakes of a device have in common, and what a device can do, told without a lake on it.
 */
#include "driver/driver.h"

#include <stdio.h>

uint64_t
gml_device_room(const gml_device *device)
{
    uint64_t held_bytes = GML_DEVICE_READ(device, held_bytes);
    uint64_t limit_bytes = GML_DEVICE_READ(device, limit_bytes);
    return !limit_bytes ? UINT64_MAX : held_bytes < limit_bytes ? limit_bytes - held_bytes : 0;
}

bool
gml_device_take(gml_device *device, uint64_t size_bytes)
{
    uint64_t held_bytes = GML_DEVICE_READ(device, held_bytes);
    uint64_t limit_bytes = GML_DEVICE_READ(device, limit_bytes);
    while (!limit_bytes || (held_bytes <= limit_bytes && size_bytes <= limit_bytes - held_bytes)) {
        if (__atomic_compare_exchange_n(&device->held_bytes, &held_bytes, held_bytes + size_bytes,
                                        true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            return true;
        }
    }
    return false;
}

void
gml_device_give(gml_device *device, uint64_t size_bytes)
{
    (void)__atomic_sub_fetch(&device->held_bytes, size_bytes, __ATOMIC_RELAXED);
}

gml_status
gml_device_describe(const char *driver, int device, gml_device_info *out, char *reason,
                    size_t reason_bytes)
{
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
