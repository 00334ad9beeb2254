#include "torch/relief.h"

#include "driver/device.h"
#include "torch/giving.h"
#include "torch/registry.h"

#include <stdatomic.h>

static _Atomic(gml_torch_relief) chosen;

void gml_torch_set_relief(gml_torch_relief relief) {
    atomic_store(&chosen, relief);
}

bool gml_relief_may_give(int device) {
    return atomic_load(&chosen) && gml_giver_lake(device, -1) >= 0 &&
           !gml_device_is_frozen(gml_registry_device(device));
}

/* Relief is asked for requests, so that what the device has free is no help to who asks here. */
uint64_t gml_relief_give(int device, uint64_t wanted_bytes) {
    gml_torch_relief relief = atomic_load(&chosen);
    uint64_t free_bytes, total_bytes;
    gml_giver_memory_info(device, &free_bytes, &total_bytes);
    uint64_t before_bytes = gml_giver_held(device);
    if (!relief || !relief(device, free_bytes + wanted_bytes)) {
        return 0;
    }
    uint64_t after_bytes = gml_giver_held(device);
    return before_bytes > after_bytes ? before_bytes - after_bytes : 0;
}

bool gml_relief_ask(int device, uint64_t size_bytes) {
    gml_torch_relief relief = atomic_load(&chosen);
    return gml_torch_ask_neighbours(device, size_bytes, true) ||
           (relief && relief(device, size_bytes));
}
