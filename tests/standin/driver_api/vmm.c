/* Virtual memory management of the driver API: cuMemCreate to cuMemSetAccess.
 *
 * The rules are those of each device's own driver. This file adds what has no place there: several
 * devices behind one interface, and handles that are held more than once. */
#include "base/map.h"
#include "driver/model_internal.h"
#include "driver/modelled.h"
#include "standin.h"

#include <inttypes.h>
#include <stdlib.h>

/* A handle of the program is the handle of a device's driver times this, plus the ordinal. */
enum { HANDLE_STEP = STANDIN_MOST_DEVICES };

/* What cuMemCreate was asked for, kept until the memory is gone. */
typedef struct allocation {
    CUmemAllocationProp properties;
    uint64_t references; /* how often the program must release the handle; 0: only mappings left */
} allocation;

static gml_map allocations; /* by handle of the program */

static gml_model *
model_of(const standin_device *device)
{
    return &((gml_modelled *)(void *)device->driver)->model;
}

static CUmemGenericAllocationHandle
outer_handle(const standin_device *device, gml_handle handle)
{
    return handle * HANDLE_STEP + (uint64_t)device->ordinal;
}

static standin_device *
device_of_handle(CUmemGenericAllocationHandle handle)
{
    return standin_device_at((int)(handle % HANDLE_STEP));
}

/* Whose rules are asked about an address; an address of nobody is refused by any. */
static standin_device *
device_to_ask(gml_address address)
{
    standin_device *device = standin_device_of(address);
    return device ? device : standin_device_at(standin_current_ordinal());
}

/* ---- physical memory ------------------------------------------------------------------------- */

/* The device that memory with these properties would lie on. */
static cudaError_t
check_properties(const CUmemAllocationProp *properties, standin_device **out)
{
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return cudaErrorInvalidValue;
    }
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
        return cudaErrorNotSupported;
    }
    if (((unsigned)properties->requestedHandleTypes &
         ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return cudaErrorNotSupported;
    }
    *out = standin_device_at(properties->location.id);
    return *out ? cudaSuccess : cudaErrorInvalidDevice;
}

static gml_status
create(standin_device *device, size_t size, gml_handle *out)
{
    gml_status status = gml_driver_create(device->driver, size, out);
    if (status == GML_OUT_OF_MEMORY) {
        standin_pool_trim(device, 0);
        status = gml_driver_create(device->driver, size, out);
    }
    return status;
}

/* Keeps the properties of a new handle. */
static bool
remember(CUmemGenericAllocationHandle handle, const CUmemAllocationProp *properties)
{
    allocation *made = malloc(sizeof *made);
    if (!made || gml_map_insert(&allocations, handle, made) != GML_OK) {
        free(made);
        return false;
    }
    *made = (allocation){.properties = *properties, .references = 1};
    made->properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
    return true;
}

static void
forget(CUmemGenericAllocationHandle handle)
{
    free(gml_map_take(&allocations, handle));
}

static cudaError_t
create_allocation(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop)
{
    standin_device *device = NULL;
    gml_handle handle = 0;
    cudaError_t error = check_properties(prop, &device);
    if (error == cudaSuccess) {
        error = standin_error_of(device, create(device, size, &handle));
    }
    if (error != cudaSuccess) {
        return error;
    }
    if (!remember(outer_handle(device, handle), prop)) {
        (void)gml_driver_release(device->driver, handle);
        return cudaErrorMemoryAllocation;
    }
    *out = outer_handle(device, handle);
    return cudaSuccess;
}

cudaError_t
standin_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                    const CUmemAllocationProp *prop, unsigned long long flags)
{
    cudaError_t error =
        handle && flags == 0 ? create_allocation(handle, size, prop) : cudaErrorInvalidValue;
    return error;
}

/* The last reference goes to the device's driver, which keeps the memory while it is mapped. */
static cudaError_t
release_allocation(CUmemGenericAllocationHandle handle)
{
    standin_device *device = device_of_handle(handle);
    allocation *held = gml_map_find(&allocations, handle);
    if (held && held->references > 1) {
        held->references--;
        return cudaSuccess;
    }
    if (!device) {
        standin_misuse("cuMemRelease: handle %llu does not exist", handle);
        return cudaErrorInvalidValue;
    }
    const gml_physical *physical = gml_model_physical(model_of(device), handle / HANDLE_STEP);
    bool is_mapped = physical && physical->mappings > 0;
    cudaError_t error =
        standin_error_of(device, gml_driver_release(device->driver, handle / HANDLE_STEP));
    if (error == cudaSuccess && held) {
        held->references = 0;
        if (!is_mapped) {
            forget(handle);
        }
    }
    return error;
}

cudaError_t
standin_cuMemRelease(CUmemGenericAllocationHandle handle)
{
    return release_allocation(handle);
}

cudaError_t
standin_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                      CUmemAllocationGranularity_flags option)
{
    standin_device *device = NULL;
    cudaError_t error = check_properties(prop, &device);
    if (!granularity || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                         option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)) {
        error = cudaErrorInvalidValue;
    }
    if (error == cudaSuccess) {
        *granularity = device->driver->info.granularity_bytes;
    }
    return error;
}

cudaError_t
standin_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                               CUmemGenericAllocationHandle handle)
{
    const allocation *held = gml_map_find(&allocations, handle);
    bool is_held = prop && held && held->references > 0;
    if (is_held) {
        *prop = held->properties;
    }
    return is_held ? cudaSuccess : cudaErrorInvalidValue;
}

/* ---- address space --------------------------------------------------------------------------- */

/* CUDA's reservations belong to no device. Ours begins with the thread's device, and goes over to
 * the device whose memory is mapped in it first. */
cudaError_t
standin_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                            unsigned long long flags)
{
    (void)addr; /* where the caller would like it: a wish */
    standin_device *device = standin_device_at(standin_current_ordinal());
    gml_address address = 0;
    cudaError_t error = cudaErrorInvalidValue;
    if (ptr && flags == 0) {
        error =
            standin_error_of(device, gml_driver_reserve(device->driver, size, alignment, &address));
    }
    if (error == cudaSuccess) {
        *ptr = address;
    }
    return error;
}

cudaError_t
standin_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    standin_device *device = device_to_ask(ptr);
    gml_status status = gml_driver_unreserve(device->driver, ptr, size);
    return standin_error_of(device, status);
}

/* Gives an empty reservation of another device to this one. Only the books know whose it is. */
static cudaError_t
take_reservation(standin_device *to, gml_address address)
{
    standin_device *from = standin_device_of(address);
    if (!from || from == to) {
        return cudaSuccess; /* what is wrong with no reservation is said by the rules */
    }
    const gml_range *range = gml_model_range_at(model_of(from), address);
    if (!range->slots || range->mapped_slots > 0) {
        standin_misuse("cuMemMap: 0x%" PRIx64 " lies in memory of device %d, the handle is of "
                       "device %d; the stand-in keeps one device to a reservation",
                       address, from->ordinal, to->ordinal);
        return cudaErrorInvalidValue;
    }
    gml_address base = range->node.address;
    uint64_t size_bytes = range->size_bytes;
    gml_status status = gml_model_reserve(model_of(to), base, size_bytes);
    if (status == GML_OK) {
        status = gml_model_unreserve(model_of(from), base, size_bytes);
    }
    return standin_error_of(to, status);
}

static cudaError_t
map_allocation(CUdeviceptr address, size_t size, CUmemGenericAllocationHandle handle)
{
    standin_device *device = device_of_handle(handle);
    if (!device) {
        standin_misuse("cuMemMap: handle %llu does not exist", handle);
        return cudaErrorInvalidValue;
    }
    cudaError_t error = take_reservation(device, address);
    if (error != cudaSuccess) {
        return error;
    }
    return standin_error_of(device,
                            gml_driver_map(device->driver, address, size, handle / HANDLE_STEP));
}

cudaError_t
standin_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                 unsigned long long flags)
{
    cudaError_t error = cudaErrorInvalidValue;
    if (offset != 0 || flags != 0) {
        standin_misuse("cuMemMap: offset %zu and flags %llu must be 0", offset, flags);
    } else {
        error = map_allocation(ptr, size, handle);
    }
    return error;
}

/* The granule that an address lies in; NULL where nothing is mapped. */
static const gml_slot *
mapped_slot(const standin_device *device, gml_address address, gml_address *mapping_address)
{
    gml_model *model = model_of(device);
    const gml_range *range = gml_model_range_at(model, address);
    if (!range || !range->slots) {
        return NULL;
    }
    uint64_t index = (address - range->node.address) / model->granularity_bytes;
    const gml_slot *slot = &range->slots[index];
    *mapping_address = range->node.address + (index - slot->index) * model->granularity_bytes;
    return slot->physical ? slot : NULL;
}

/* Ends one whole mapping, and its memory if nothing else holds that. */
static gml_status
unmap_one(standin_device *device, gml_address address, uint64_t *size_bytes)
{
    gml_address mapping_address = address;
    const gml_physical *physical = mapped_slot(device, address, &mapping_address)->physical;
    CUmemGenericAllocationHandle handle = outer_handle(device, physical->handle);
    bool is_last = physical->is_released && physical->mappings == 1;
    *size_bytes = physical->size_bytes;
    gml_status status = gml_driver_unmap(device->driver, address, *size_bytes);
    if (status == GML_OK) {
        standin_peers_forget(address);
    }
    if (status == GML_OK && is_last) {
        forget(handle);
    }
    return status;
}

static cudaError_t
unmap_range(CUdeviceptr address, uint64_t size_bytes)
{
    standin_device *device = device_to_ask(address);
    gml_status status = gml_model_check_whole(model_of(device), "unmap", address, size_bytes);
    if (status == GML_OK) {
        standin_check_unused("cuMemUnmap", address, size_bytes);
    }
    for (uint64_t done_bytes = 0; status == GML_OK && done_bytes < size_bytes;) {
        uint64_t mapping_bytes = 0;
        status = unmap_one(device, address + done_bytes, &mapping_bytes);
        done_bytes += mapping_bytes;
    }
    return standin_error_of(device, status);
}

cudaError_t
standin_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    return unmap_range(ptr, size);
}

/* Makes a handle of a mapping again, also where the program has released it. */
static cudaError_t
retain_allocation(gml_address address, CUmemGenericAllocationHandle *out)
{
    gml_address mapping_address = 0;
    const standin_device *device = standin_device_of(address);
    const gml_slot *slot = device ? mapped_slot(device, address, &mapping_address) : NULL;
    if (!slot) {
        return cudaErrorInvalidValue;
    }
    gml_physical *physical = slot->physical;
    allocation *held = gml_map_find(&allocations, outer_handle(device, physical->handle));
    if (!held) {
        return cudaErrorInvalidValue; /* a pool's memory, which the program has no handle of */
    }
    if (held->references == 0) {
        gml_map *handles = &model_of(device)->handles;
        if (gml_map_insert(handles, physical->handle, physical) != GML_OK) {
            return cudaErrorMemoryAllocation;
        }
        physical->is_released = false;
    }
    held->references++;
    *out = outer_handle(device, physical->handle);
    return cudaSuccess;
}

cudaError_t
standin_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    cudaError_t error =
        handle ? retain_allocation((gml_address)(uintptr_t)addr, handle) : cudaErrorInvalidValue;
    return error;
}

/* ---- access ---------------------------------------------------------------------------------- */

/* What the devices are to be given, as bits. */
typedef struct wanted_access {
    unsigned let_in, shut_out;
} wanted_access;

static cudaError_t
read_access(const CUmemAccessDesc *descriptors, size_t count, wanted_access *out)
{
    *out = (wanted_access){0};
    for (size_t i = 0; i < count; i++) {
        if (descriptors[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
            return cudaErrorNotSupported;
        }
        if (!standin_device_at(descriptors[i].location.id)) {
            return cudaErrorInvalidDevice;
        }
        bool is_none = descriptors[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
        *(is_none ? &out->shut_out : &out->let_in) |= 1U << descriptors[i].location.id;
    }
    return cudaSuccess;
}

static cudaError_t
change_peers(gml_address address, uint64_t size_bytes, wanted_access wanted)
{
    cudaError_t error = cudaSuccess;
    gml_address end = address + size_bytes;
    standin_mapping found;
    while (error == cudaSuccess && address < end && standin_find_mapping(address, &found)) {
        error = standin_peers_change(address, wanted.let_in, wanted.shut_out);
        address += found.mapping.size_bytes;
    }
    return error;
}

static cudaError_t
set_access(gml_address address, uint64_t size_bytes, wanted_access wanted)
{
    standin_device *device = device_to_ask(address);
    unsigned owner = 1U << device->ordinal;
    if (wanted.shut_out & owner) {
        return cudaErrorNotSupported;
    }
    gml_status status =
        wanted.let_in & owner
            ? gml_driver_set_access(device->driver, address, size_bytes)
            : gml_model_check_whole(model_of(device), "set_access", address, size_bytes);
    wanted.let_in &= ~owner;
    bool has_peers = (wanted.let_in | wanted.shut_out) != 0;
    return status == GML_OK && has_peers ? change_peers(address, size_bytes, wanted)
                                         : standin_error_of(device, status);
}

cudaError_t
standin_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    wanted_access wanted = {0};
    cudaError_t error =
        desc && count > 0 ? read_access(desc, count, &wanted) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = set_access(ptr, size, wanted);
    }
    return error;
}

/* ---- for the other files --------------------------------------------------------------------- */

bool
standin_find_mapping(gml_address address, standin_mapping *out)
{
    gml_address mapping_address = 0;
    standin_device *device = standin_device_of(address);
    const gml_slot *slot = device ? mapped_slot(device, address, &mapping_address) : NULL;
    if (!slot) {
        return false;
    }
    const gml_range *range = gml_model_range_at(model_of(device), address);
    const allocation *held =
        gml_map_find(&allocations, outer_handle(device, slot->physical->handle));
    *out = (standin_mapping){
        .device = device,
        .mapping = {mapping_address, slot->physical->size_bytes},
        .reservation = {range->node.address, range->size_bytes},
        .handle_types = held ? held->properties.requestedHandleTypes : CU_MEM_HANDLE_TYPE_NONE,
        .is_accessible = slot->is_accessible,
        .is_of_program = held != NULL,
    };
    return true;
}

bool
standin_find_range(gml_address address, standin_range *out, bool *is_reservation)
{
    const standin_device *device = standin_device_of(address);
    if (!device) {
        return false;
    }
    const gml_range *range = gml_model_range_at(model_of(device), address);
    *out = (standin_range){range->node.address, range->size_bytes};
    *is_reservation = range->slots != NULL;
    return true;
}
