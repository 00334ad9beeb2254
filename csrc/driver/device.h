/* What all lakes of one device have in common: a lake that is opened alone has one of its own,
 * those below PyTorch share the registry's. Read and changed under no lock, since each lake has its
 * own.
 */
#ifndef GML_DRIVER_DEVICE_H
#define GML_DRIVER_DEVICE_H

#include "gmlake.h"

#define GML_DEVICE_READ(device, field) __atomic_load_n(&(device)->field, __ATOMIC_RELAXED)

/* Whether a graph is being captured. */
static inline bool
gml_device_is_frozen(const gml_device *device)
{
    return GML_DEVICE_READ(device, captures) > 0;
}

/* Looks whether captures still go on, before a call that they forbid. pre: no lock is held. */
static inline void
gml_device_settle(const gml_device *device)
{
    if (gml_device_is_frozen(device) && device->settle) {
        device->settle();
    }
}

/* How many bytes more may be held; UINT64_MAX without a limit. */
uint64_t gml_device_room(const gml_device *device);

/* Counts so many bytes more as held; false, and nothing happens, where they exceed the limit. */
bool gml_device_take(gml_device *device, uint64_t size_bytes);

void gml_device_give(gml_device *device, uint64_t size_bytes);

#endif
