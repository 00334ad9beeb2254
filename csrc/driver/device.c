/* State shared by the lakes of a device. */
#include "driver/device.h"

void gml_device_join(gml_device *device, gml_sharer *sharer) {
    pthread_mutex_lock(&device->lock);
    sharer->next = device->sharers;
    device->sharers = sharer;
    pthread_mutex_unlock(&device->lock);
}

void gml_device_leave(gml_device *device, gml_sharer *sharer) {
    pthread_mutex_lock(&device->lock);
    gml_sharer **at = &device->sharers;
    while (*at != sharer) {
        at = &(*at)->next;
    }
    *at = sharer->next;
    pthread_mutex_unlock(&device->lock);
}

void gml_device_halt(gml_device *device) {
    pthread_mutex_lock(&device->lock);
    for (gml_sharer *at = device->sharers; at; at = at->next) {
        pthread_mutex_lock(at->lock);
    }
}

void gml_device_go_on(gml_device *device) {
    for (gml_sharer *at = device->sharers; at; at = at->next) {
        pthread_mutex_unlock(at->lock);
    }
    pthread_mutex_unlock(&device->lock);
}

void gml_device_freeze(gml_device *device, int change) {
    gml_device_halt(device);
    (void)__atomic_add_fetch(&device->captures, (uint64_t)change, __ATOMIC_RELAXED);
    gml_device_go_on(device);
}

uint64_t gml_device_room(const gml_device *device) {
    uint64_t held_bytes = GML_DEVICE_READ(device, held_bytes);
    uint64_t limit_bytes = GML_DEVICE_READ(device, limit_bytes);
    return !limit_bytes ? UINT64_MAX : held_bytes < limit_bytes ? limit_bytes - held_bytes : 0;
}

static void raise_highest(gml_device *device, uint64_t held_bytes) {
    uint64_t highest_bytes = GML_DEVICE_READ(device, highest_bytes);
    while (highest_bytes < held_bytes &&
           !__atomic_compare_exchange_n(&device->highest_bytes, &highest_bytes, held_bytes, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

bool gml_device_take(gml_device *device, uint64_t size_bytes) {
    uint64_t held_bytes = GML_DEVICE_READ(device, held_bytes);
    uint64_t limit_bytes = GML_DEVICE_READ(device, limit_bytes);
    while (!limit_bytes || (held_bytes <= limit_bytes && size_bytes <= limit_bytes - held_bytes)) {
        if (__atomic_compare_exchange_n(&device->held_bytes, &held_bytes, held_bytes + size_bytes,
                                        true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            raise_highest(device, held_bytes + size_bytes);
            return true;
        }
    }
    return false;
}

void gml_device_give(gml_device *device, uint64_t size_bytes) {
    (void)__atomic_sub_fetch(&device->held_bytes, size_bytes, __ATOMIC_RELAXED);
}

void gml_device_spend(gml_device *device, int change) {
    (void)__atomic_add_fetch(&device->spending, (uint64_t)(int64_t)change, __ATOMIC_RELAXED);
}
