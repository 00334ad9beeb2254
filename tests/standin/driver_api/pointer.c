/* What the driver API says about an address. */
#include "standin.h"

#include <string.h>

typedef struct pointer_facts {
    gml_address address;
    standin_place place; /* of no type where CUDA knows nothing */
    standin_range range; /* the block or reservation around it */
    bool is_reservation;
    bool is_mapped;          /* a handle is mapped here */
    standin_mapping mapping; /* if so */
} pointer_facts;

static pointer_facts
facts_of(gml_address address)
{
    pointer_facts facts = {.address = address, .place = standin_place_of(address)};
    if (!standin_find_range(address, &facts.range, &facts.is_reservation)) {
        facts.range = (standin_range){facts.place.begin, facts.place.size_bytes};
    }
    facts.is_mapped = standin_find_mapping(address, &facts.mapping);
    return facts;
}

static bool
is_known(const pointer_facts *facts)
{
    return facts->place.type != cudaMemoryTypeUnregistered;
}

/* The mapping of a handle, or the whole block. */
static standin_range
extent_of(const pointer_facts *facts)
{
    return facts->is_mapped ? facts->mapping.mapping : facts->range;
}

/* The attributes that are a number of 32 bits; false for another. */
static bool
get_number(const pointer_facts *of, CUpointer_attribute attribute, int *out)
{
    bool is_host = of->place.type == cudaMemoryTypeHost;
    bool is_block = is_known(of) && !is_host && !of->is_reservation;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *out = !is_known(of) ? 0 : is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *out = is_known(of) ? of->place.device->ordinal : CU_DEVICE_INVALID;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *out = of->place.type == cudaMemoryTypeManaged;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *out = is_host || of->is_mapped || is_block;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *out = is_block && of->place.type == cudaMemoryTypeDevice;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *out = of->is_mapped ? (int)of->mapping.handle_types : CU_MEM_HANDLE_TYPE_NONE;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *out = is_known(of) && (!of->is_reservation || of->mapping.is_accessible)
                   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                   : CU_MEM_ACCESS_FLAGS_PROT_NONE;
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *out = 0;
        return true;
    default:
        return false;
    }
}

/* The attributes that are an address or a size; false for another. */
static bool
get_address(const pointer_facts *of, CUpointer_attribute attribute, uint64_t *out)
{
    bool has_host = of->place.type == cudaMemoryTypeHost || of->place.type == cudaMemoryTypeManaged;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *out = (uintptr_t)of->place.device;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *out = is_known(of) ? of->address : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *out = has_host ? of->address : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *out = of->range.address;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *out = of->range.size_bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *out = extent_of(of).address;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *out = extent_of(of).size_bytes;
        return true;
    default:
        return false;
    }
}

static cudaError_t
get_attribute(const pointer_facts *of, CUpointer_attribute attribute, void *out)
{
    int number = 0;
    uint64_t address = 0;
    if (get_number(of, attribute, &number)) {
        memcpy(out, &number, sizeof number);
        return cudaSuccess;
    }
    if (get_address(of, attribute, &address)) {
        memcpy(out, &address, sizeof address);
        return cudaSuccess;
    }
    return cudaErrorNotSupported;
}

cudaError_t
standin_cuPointerGetAttribute(void *out, CUpointer_attribute attribute, CUdeviceptr address)
{
    pointer_facts facts = facts_of(address);
    bool is_valid = out && is_known(&facts);
    return is_valid ? get_attribute(&facts, attribute, out) : cudaErrorInvalidValue;
}

cudaError_t
standin_cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    pointer_facts facts = facts_of(address);
    standin_range extent = extent_of(&facts);
    if (!is_known(&facts)) {
        return cudaErrorInvalidValue;
    }
    if (base) {
        *base = extent.address;
    }
    if (size) {
        *size = extent.size_bytes;
    }
    return cudaSuccess;
}
