/* Which devices may touch virtual memory of another: who can, who was let in, and who tried
 * without.
 *
 * Whether the device that memory lies on may touch it is that device's driver's to know. */
#include "standin/standin.h"

#include <inttypes.h>

/* Bits of devices, kept as pointers, by address of a mapping; none where no peer was let in. */
static gml_map peers_of;

static uintptr_t peers_at(gml_address mapping) {
    return (uintptr_t)gml_map_find(&peers_of, mapping);
}

void standin_peers_forget(gml_address mapping) {
    (void)gml_map_take(&peers_of, mapping);
}

void standin_peers_change(gml_address mapping, unsigned let_in, unsigned shut_out) {
    uintptr_t after = (peers_at(mapping) | let_in) & ~(uintptr_t)shut_out;
    standin_peers_forget(mapping);
    if (after != 0) {
        standin_insert(&peers_of, mapping, (void *)after);
    }
}

/* Memory of a program's handle that `device` does not own and was never let into. Plain memory
 * has rules of its own, which are not checked. */
static bool is_shut(const standin_mapping *of, const standin_device *device) {
    return of->device != device && of->is_of_program &&
           !(peers_at(of->mapping.address) >> device->ordinal & 1U);
}

static cudaError_t check_range(const standin_device *device, const char *name,
                               standin_range range) {
    gml_address end = range.address + range.size_bytes;
    standin_mapping found;
    for (gml_address at = range.address; at < end && standin_find_mapping(at, &found);) {
        if (is_shut(&found, device)) {
            standin_misuse("%s on a stream of device %d touches memory of device %d at 0x%" PRIx64
                           ", which cuMemSetAccess never opened to it",
                           name, device->ordinal, found.device->ordinal, at);
            return cudaErrorIllegalAddress;
        }
        at = found.mapping.address + found.mapping.size_bytes;
    }
    return cudaSuccess;
}

cudaError_t standin_check_peers(const standin_device *device, const standin_operation *operation) {
    bool is_asked = !operation->crosses_devices && standin_device_at(1);
    for (int i = 0; is_asked && i < STANDIN_MOST_RANGES; i++) {
        TRY(check_range(device, operation->name, operation->ranges[i]));
    }
    return cudaSuccess;
}

cudaError_t standin_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                   CUdeviceptr ptr) {
    standin_mapping found;
    bool is_device = location && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
                     standin_device_at(location->id);
    if (!flags || !is_device || !standin_find_mapping(ptr, &found)) {
        return cudaErrorInvalidValue;
    }
    bool is_open = found.device->ordinal == location->id
                       ? found.is_accessible
                       : peers_at(found.mapping.address) >> location->id & 1U;
    *flags = is_open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return cudaSuccess;
}
