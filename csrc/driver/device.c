/* What a device can do, told without opening a lake on it. */
#include "driver/driver.h"

#include <stdio.h>

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
