#include "torch/relief.h"

#include <stdatomic.h>

static _Atomic(gml_torch_relief) chosen;

void gml_torch_set_relief(gml_torch_relief relief) {
    atomic_store(&chosen, relief);
}

bool gml_relief_ask(int device, uint64_t size_bytes) {
    gml_torch_relief relief = atomic_load(&chosen);
    return gml_torch_ask_neighbours(device, size_bytes, true) ||
           (relief && relief(device, size_bytes));
}
