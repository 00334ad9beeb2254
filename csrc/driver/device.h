/* State shared by all lakes of one device: a lake opened alone has its own, lakes below PyTorch
 * share the registry's.
 *
 * Lock: see gml_device. A function that takes it is called without any lake's lock.
 */
#ifndef GML_DRIVER_DEVICE_H
#define GML_DRIVER_DEVICE_H

#include "gmlake.h"

#define GML_DEVICE_READ(device, field) __atomic_load_n(&(device)->field, __ATOMIC_RELAXED)

/* One of the lakes: a part of it. */
typedef struct gml_sharer {
    struct gml_sharer *next;
    pthread_mutex_t *lock; /* the lake's: held during each call on it */
} gml_sharer;

void gml_device_join(gml_device *device, gml_sharer *sharer);
void gml_device_leave(gml_device *device, gml_sharer *sharer);

/* Waits for the calls that are under way on all lakes; none begins before gml_device_go_on(). */
void gml_device_halt(gml_device *device);
void gml_device_go_on(gml_device *device);

/* A capture begins (1) or ends (-1). */
void gml_device_freeze(gml_device *device, int change);

/* Whether a graph is being captured, as long as the caller holds the lock of one of the lakes. */
static inline bool gml_device_is_frozen(const gml_device *device) {
    return GML_DEVICE_READ(device, captures) > 0;
}

/* Checks whether captures are still running, before a call that they forbid. pre: no lock is
 * held. */
static inline void gml_device_end_failed_captures(const gml_device *device) {
    if (gml_device_is_frozen(device) && device->end_failed_captures) {
        device->end_failed_captures();
    }
}

/* The bytes that may still be taken; UINT64_MAX without a limit. */
uint64_t gml_device_room(const gml_device *device);

/* The bytes that are to be left to what CUDA takes itself, as for kernels when they are loaded. */
static inline uint64_t gml_device_spare(const gml_device *device) {
    return GML_DEVICE_READ(device, spending) ? 0 : GML_DEVICE_READ(device, spare_bytes);
}

/* A request that may take these, too, begins (1) or ends (-1). */
void gml_device_spend(gml_device *device, int change);

/* Counts `size_bytes` more as held; false, with nothing changed, if that exceeds the limit. */
bool gml_device_take(gml_device *device, uint64_t size_bytes);

void gml_device_give(gml_device *device, uint64_t size_bytes);

#endif
