/* What the driver API says about an address. */
#include "standin/standin.h"

#include <string.h>

typedef struct pointer_facts {
    standin_place place; /* of no type where CUDA knows nothing */
    standin_range range; /* the block or reservation around it */
    bool is_reservation;
    bool is_mapped;          /* a handle is mapped here */
    standin_mapping mapping; /* if so */
    standin_range extent;    /* the mapping of a handle, or the whole block */
} pointer_facts;

/* cudaErrorInvalidValue for an address that CUDA knows nothing of. */
static cudaError_t find_facts(gml_address address, pointer_facts *out) {
    *out = (pointer_facts){.place = standin_place_of(address)};
    if (!standin_find_range(address, &out->range, &out->is_reservation)) {
        out->range = (standin_range){out->place.begin, out->place.size_bytes};
    }
    out->is_mapped = standin_find_mapping(address, &out->mapping);
    out->extent = out->is_mapped ? out->mapping.mapping : out->range;
    bool is_known = out->place.type != cudaMemoryTypeUnregistered;
    return is_known ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t standin_cuPointerGetAttribute(void *out, CUpointer_attribute attribute,
                                          CUdeviceptr address) {
    pointer_facts of;
    TRY(find_facts(address, &of));
    bool is_host = of.place.type == cudaMemoryTypeHost;
    bool is_block = !is_host && !of.is_reservation;
    uint64_t value = 0;
    size_t value_bytes = sizeof value; /* of an address or a size; else that of an int */
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        value = (uintptr_t)of.place.device;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        value = address;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        value = is_host ? address : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        value = of.range.address;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        value = of.range.size_bytes;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        value = of.extent.address;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        value = of.extent.size_bytes;
        break;
    default:
        value_bytes = sizeof(int);
        break;
    }
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        value = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        value = (uint64_t)of.place.device->ordinal;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        value = is_host || of.is_mapped || is_block;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        value = is_block;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        value = of.is_mapped ? of.mapping.handle_types : CU_MEM_HANDLE_TYPE_NONE;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        value = !of.is_reservation || of.mapping.is_accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                               : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        break;
    default: /* an address or a size, or what nothing here has: 0 */
        break;
    }
    memcpy(out, &value, value_bytes);
    return cudaSuccess;
}

cudaError_t standin_cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    pointer_facts of;
    TRY(find_facts(address, &of));
    if (base) {
        *base = of.extent.address;
    }
    if (size) {
        *size = of.extent.size_bytes;
    }
    return cudaSuccess;
}
