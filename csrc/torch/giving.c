/* Giving what is idle: what was given before, then of each lake of the device. */
#include "torch/giving.h"

#include "lake/lake.h"
#include "torch/registry.h"

#include <stdatomic.h>

int gml_giver_lake(int device, int number) {
    do {
        number = gml_registry_next(number);
    } while (number >= 0 && gml_torch_device_of(number) != device);
    return number;
}

void gml_giver_memory_info(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
    int number = gml_giver_lake(device, -1);
    *free_bytes = *total_bytes = 0;
    if (number >= 0) {
        gml_lake_memory_info(gml_torch_lake(number), free_bytes, total_bytes);
    }
}

uint64_t gml_giver_idle(gml_giver *giver, int device) {
    uint64_t sum_bytes = gml_handed_bytes(&giver->incoming);
    for (int number = gml_giver_lake(device, -1); number >= 0;
         number = gml_giver_lake(device, number)) {
        sum_bytes += gml_lake_idle_bytes(gml_torch_lake(number));
    }
    return sum_bytes;
}

uint64_t gml_giver_held(int device) {
    return GML_DEVICE_READ(gml_registry_device(device), held_bytes);
}

static uint64_t give_of_lakes(int device, uint64_t wanted_bytes, gml_handed *to, bool waits,
                              bool *is_pending) {
    uint64_t given_bytes = 0;
    for (int number = gml_giver_lake(device, -1); number >= 0 && given_bytes < wanted_bytes;
         number = gml_giver_lake(device, number)) {
        uint64_t released_bytes = 0;
        bool is_later = false;
        /* What fails here is kept, and others give. */
        (void)gml_lake_give(gml_torch_lake(number), wanted_bytes - given_bytes, to, waits,
                            &released_bytes, &is_later);
        given_bytes += released_bytes;
        *is_pending |= is_later;
    }
    return given_bytes;
}

/* What the device lacks of the memory that is left to CUDA. */
static uint64_t lacking_bytes(int device) {
    uint64_t free_bytes, total_bytes;
    gml_giver_memory_info(device, &free_bytes, &total_bytes);
    return total_bytes && free_bytes < GML_SPARE_BYTES ? GML_SPARE_BYTES - free_bytes : 0;
}

uint64_t gml_giver_spare(gml_giver *giver, int device) {
    bool is_pending = false;
    uint64_t lacking = lacking_bytes(device);
    uint64_t given_bytes = lacking ? give_of_lakes(device, lacking, NULL, false, &is_pending) : 0;
    atomic_fetch_add(&giver->given_bytes, given_bytes);
    return given_bytes;
}

uint64_t gml_giver_give(gml_giver *giver, int device, uint64_t wanted_bytes, gml_handed *to,
                        bool waits, bool *is_pending) {
    *is_pending = false;
    uint64_t given_bytes = to ? gml_handed_move(&giver->incoming, to, wanted_bytes)
                              : gml_handed_drop(&giver->incoming);
    if (given_bytes < wanted_bytes) {
        given_bytes += give_of_lakes(device, wanted_bytes - given_bytes, to, waits, is_pending);
    }
    atomic_fetch_add(&giver->given_bytes, given_bytes);
    return given_bytes;
}
