/* Virtual memory management of the driver API: cuMemCreate to cuMemSetAccess.
 *
 * The rules are those of each device's own driver. This file adds what has no place there: several
 * devices behind one interface, handles that are held more than once, and memory of other
 * processes. */
#include "base/map.h"
#include "driver/model.h"
#include "standin/standin.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A handle of the program is the handle of a device's driver times this, plus the ordinal. */
enum { HANDLE_STEP = STANDIN_MOST_DEVICES };

/* What cuMemCreate was asked for, kept until the memory is gone. */
typedef struct allocation {
    CUmemAllocationProp properties;
    uint64_t references; /* how often the program must release the handle; 0: only mappings left */
    bool is_foreign;     /* the bytes are another process's, in `file` from `offset_bytes` on */
    bool is_in_flight;   /* other processes may have a file of it: */
    int flight;          /* see standin_open_flight() */
    int file;            /* -1: there are no bytes */
    uint64_t offset_bytes;
} allocation;

/* What an exported file descriptor leads to: where another process finds the bytes. */
typedef struct ticket {
    char magic[16];
    int process, file; /* of that process; -1: there are no bytes */
    uint64_t offset_bytes, size_bytes;
} ticket;

static const char ticket_magic[16] = "gmlake-standin";

static gml_map allocations; /* by handle of the program */

static gml_model *model_of(const standin_device *device) {
    return (gml_model *)(void *)device->driver;
}

static CUmemGenericAllocationHandle outer_handle(const standin_device *device, gml_handle handle) {
    return handle * HANDLE_STEP + (uint64_t)device->ordinal;
}

static standin_device *device_of_handle(CUmemGenericAllocationHandle handle) {
    return standin_device_at((int)(handle % HANDLE_STEP));
}

/* Whose rules are asked about an address; an address of nobody is refused by any. */
static standin_device *device_to_ask(gml_address address) {
    standin_device *device = standin_device_of(address);
    return device ? device : standin_device_at(standin_current_ordinal());
}

/* ---- physical memory ------------------------------------------------------------------------- */

/* Memory of the host is here one device's, that of the thread which asks. */
static bool is_of_host(const CUmemAllocationProp *properties) {
    return properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* The device that memory with these properties would lie on. */
static cudaError_t check_properties(const CUmemAllocationProp *properties, standin_device **out) {
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
        return cudaErrorInvalidValue;
    }
    bool is_on_host = is_of_host(properties);
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE && !is_on_host) {
        return cudaErrorNotSupported;
    }
    if (((unsigned)properties->requestedHandleTypes &
         ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0) {
        return cudaErrorNotSupported;
    }
    *out = standin_device_at(is_on_host ? standin_current_ordinal() : properties->location.id);
    return *out ? cudaSuccess : cudaErrorInvalidDevice;
}

static void forget(CUmemGenericAllocationHandle handle) {
    allocation *held = gml_map_take(&allocations, handle);
    if (held && held->is_foreign && held->file >= 0) {
        (void)close(held->file);
    }
    if (held && held->is_in_flight) {
        (void)standin_hold_flight(held->flight, -1);
    }
    free(held);
}

cudaError_t standin_cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
                                const CUmemAllocationProp *properties, unsigned long long flags) {
    standin_device *device = NULL;
    gml_handle handle = 0;
    TRY(standin_settings_get()->has_virtual_memory ? cudaSuccess : cudaErrorNotSupported);
    TRY(flags == 0 ? check_properties(properties, &device) : cudaErrorInvalidValue);
    gml_status status = is_of_host(properties)
                            ? gml_driver_create_on_host(device->driver, size, &handle)
                            : gml_driver_create(device->driver, size, &handle);
    TRY(standin_error_of(device, status));
    allocation *made = standin_new(sizeof *made);
    *made = (allocation){.properties = *properties, .references = 1};
    made->properties.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
    *out = outer_handle(device, handle);
    standin_insert(&allocations, *out, made);
    return cudaSuccess;
}

/* The last reference goes to the device's driver, which keeps the memory while it is mapped. */
cudaError_t standin_cuMemRelease(CUmemGenericAllocationHandle handle) {
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
    const gml_physical *chunk = gml_ledger_find(&model_of(device)->ledger, handle / HANDLE_STEP);
    bool is_mapped = chunk && !gml_list_is_empty(&chunk->mappings);
    TRY(standin_error_of(device, gml_driver_release(device->driver, handle / HANDLE_STEP)));
    if (held && is_mapped) {
        held->references = 0;
    } else {
        forget(handle);
    }
    return cudaSuccess;
}

cudaError_t standin_cuMemGetAllocationGranularity(size_t *out,
                                                  const CUmemAllocationProp *properties,
                                                  CUmemAllocationGranularity_flags option) {
    (void)option; /* the least, or the recommended one: the same here */
    standin_device *device = NULL;
    TRY(check_properties(properties, &device));
    *out = device->driver->info.granularity_bytes;
    return cudaSuccess;
}

cudaError_t standin_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out,
                                                           CUmemGenericAllocationHandle handle) {
    const allocation *held = gml_map_find(&allocations, handle);
    if (!held || held->references == 0) {
        return cudaErrorInvalidValue;
    }
    *out = held->properties;
    return cudaSuccess;
}

/* ---- other processes ------------------------------------------------------------------------- */

cudaError_t standin_cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags) {
    standin_device *device = device_of_handle(handle);
    allocation *held = gml_map_find(&allocations, handle);
    if (!device || !held || held->references == 0 || flags != 0) {
        return cudaErrorInvalidValue;
    }
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        held->properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return cudaErrorNotSupported;
    }
    ticket made = {
        .process = getpid(),
        .file = -1,
        .size_bytes = gml_driver_size(device->driver, handle / HANDLE_STEP),
    };
    memcpy(made.magic, ticket_magic, sizeof made.magic);
    (void)gml_model_place(device->driver, handle / HANDLE_STEP, &made.file, &made.offset_bytes);
    int flight = -1;
    int file = standin_open_flight(device->ordinal, made.size_bytes, &flight);
    if (file < 0) {
        return cudaErrorMemoryAllocation;
    }
    if (pwrite(file, &made, sizeof made, lseek(file, 0, SEEK_CUR)) != (ssize_t)sizeof made) {
        (void)close(file);
        return cudaErrorMemoryAllocation;
    }
    if (!held->is_in_flight) { /* of one that has several files, the first tells whether it flies */
        held->is_in_flight = true;
        held->flight = flight;
    }
    *(int *)out = file;
    return cudaSuccess;
}

/* Takes memory of this process's device, too: that keeps the books simple, and is why a process
 * here seems to need what it only opens. */
cudaError_t standin_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shared,
                                                   CUmemAllocationHandleType type) {
    ticket found;
    int given = (int)(intptr_t)shared;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
        return cudaErrorNotSupported;
    }
    if (pread(given, &found, sizeof found, lseek(given, 0, SEEK_CUR)) != (ssize_t)sizeof found ||
        memcmp(found.magic, ticket_magic, sizeof found.magic) != 0) {
        return cudaErrorInvalidValue;
    }
    int file = -1;
    if (found.file >= 0) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", found.process, found.file);
        file = open(path, O_RDWR | O_CLOEXEC);
        if (file < 0) {
            return cudaErrorInvalidValue; /* that process has ended */
        }
    }
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = standin_current_ordinal()},
    };
    int flight = standin_flight_of(given);
    if (standin_hold_flight(flight, 1)) { /* it was used by nobody, and is this process's now */
        model_of(standin_device_at(standin_current_ordinal()))->capacity_bytes += found.size_bytes;
    }
    cudaError_t error = standin_cuMemCreate(out, found.size_bytes, &properties, 0);
    if (error != cudaSuccess) {
        (void)standin_hold_flight(flight, -1);
        (void)(file < 0 || close(file));
        return error;
    }
    allocation *held = gml_map_find(&allocations, *out);
    held->is_foreign = true;
    held->file = file;
    held->offset_bytes = found.offset_bytes;
    held->is_in_flight = true;
    held->flight = flight;
    return cudaSuccess;
}

/* ---- address space --------------------------------------------------------------------------- */

/* CUDA's reservations belong to no device. Ours begins with the thread's device, and goes over to
 * the device whose memory is mapped in it first. */
cudaError_t standin_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                        CUdeviceptr addr, unsigned long long flags) {
    standin_device *device = standin_device_at(standin_current_ordinal());
    gml_address address = 0;
    (void)addr; /* it is a wish */
    TRY(standin_settings_get()->has_virtual_memory ? cudaSuccess : cudaErrorNotSupported);
    TRY(flags == 0 ? cudaSuccess : cudaErrorInvalidValue);
    TRY(standin_error_of(device, gml_driver_reserve(device->driver, size, alignment, &address)));
    *ptr = address;
    return cudaSuccess;
}

cudaError_t standin_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    standin_device *device = device_to_ask(ptr);
    gml_status status = gml_driver_unreserve(device->driver, ptr, size);
    return standin_error_of(device, status);
}

/* Gives an empty reservation of another device to this one. Only the books know whose it is. */
static cudaError_t take_reservation(standin_device *to, gml_address address) {
    standin_device *from = standin_device_of(address);
    if (!from || from == to) {
        return cudaSuccess; /* what is wrong with no reservation is said by the rules */
    }
    gml_range *range = gml_ranges_at(&model_of(from)->ranges, address);
    if (gml_model_check_unreserve(model_of(from), range->node.address, range->size_bytes) !=
        GML_OK) {
        standin_misuse("cuMemMap: 0x%" PRIx64 " lies in memory of device %d, the handle is of "
                       "device %d; the stand-in keeps one device to a reservation",
                       address, from->ordinal, to->ordinal);
        return cudaErrorInvalidValue;
    }
    gml_range *moved = gml_pool_take(&model_of(to)->ranges.objects);
    if (!moved) {
        return cudaErrorMemoryAllocation;
    }
    *moved = (gml_range){.node.address = range->node.address, .size_bytes = range->size_bytes};
    gml_ranges_remove(&model_of(from)->ranges, range);
    gml_ranges_enter(&model_of(to)->ranges, moved);
    return cudaSuccess;
}

cudaError_t standin_cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                             CUmemGenericAllocationHandle handle, unsigned long long flags) {
    standin_device *device = device_of_handle(handle);
    if (offset != 0 || flags != 0) {
        standin_misuse("cuMemMap: offset %zu and flags %llu must be 0", offset, flags);
        return cudaErrorInvalidValue;
    }
    if (!device) {
        standin_misuse("cuMemMap: handle %llu does not exist", handle);
        return cudaErrorInvalidValue;
    }
    TRY(take_reservation(device, address));
    TRY(standin_error_of(device,
                         gml_driver_map(device->driver, address, size, handle / HANDLE_STEP)));
    const allocation *held = gml_map_find(&allocations, handle);
    bool has_other_bytes = held && held->is_foreign && held->file >= 0;
    if (has_other_bytes && mmap((void *)(uintptr_t)address, size, PROT_NONE, MAP_SHARED | MAP_FIXED,
                                held->file, (off_t)held->offset_bytes) == MAP_FAILED) {
        return cudaErrorMemoryAllocation;
    }
    return cudaSuccess;
}

/* The mapping that an address lies in; NULL where nothing is mapped. */
static const gml_mapping *mapping_at(const standin_device *device, gml_address address) {
    return gml_ledger_at(&model_of(device)->ledger, address);
}

/* Ends one whole mapping, and its memory if nothing else holds that. */
static gml_status unmap_one(standin_device *device, gml_address address, uint64_t *size_bytes) {
    const gml_mapping *mapping = mapping_at(device, address);
    const gml_physical *chunk = mapping->chunk;
    CUmemGenericAllocationHandle handle = outer_handle(device, chunk->handle);
    bool is_last = chunk->is_released && chunk->mappings.next == chunk->mappings.previous;
    *size_bytes = mapping->size_bytes;
    gml_status status = gml_driver_unmap(device->driver, address, *size_bytes);
    if (status == GML_OK) {
        standin_peers_forget(address);
    }
    if (status == GML_OK && is_last) {
        forget(handle);
    }
    return status;
}

cudaError_t standin_cuMemUnmap(CUdeviceptr address, size_t size_bytes) {
    standin_device *device = device_to_ask(address);
    gml_status status = gml_model_check_whole(model_of(device), "unmap", address, size_bytes, NULL);
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

/* Makes a handle of a mapping again, also where the program has released it. */
cudaError_t standin_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *pointer) {
    gml_address address = standin_address(pointer);
    const standin_device *device = standin_device_of(address);
    const gml_mapping *mapping = device ? mapping_at(device, address) : NULL;
    if (!mapping) {
        return cudaErrorInvalidValue;
    }
    gml_physical *chunk = mapping->chunk;
    allocation *held = gml_map_find(&allocations, outer_handle(device, chunk->handle));
    if (!held) {
        return cudaErrorInvalidValue; /* plain memory, which has no handle */
    }
    chunk->is_released = false;
    held->references++;
    *out = outer_handle(device, chunk->handle);
    return cudaSuccess;
}

/* ---- access ---------------------------------------------------------------------------------- */

/* What the devices are to be given, as bits. */
typedef struct wanted_access {
    unsigned let_in, shut_out;
} wanted_access;

static cudaError_t read_access(const CUmemAccessDesc *descriptors, size_t count,
                               wanted_access *out) {
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

static void change_peers(gml_address address, uint64_t size_bytes, wanted_access wanted) {
    gml_address end = address + size_bytes;
    standin_mapping found;
    while (address < end && standin_find_mapping(address, &found)) {
        standin_peers_change(address, wanted.let_in, wanted.shut_out);
        address += found.mapping.size_bytes;
    }
}

cudaError_t standin_cuMemSetAccess(CUdeviceptr address, size_t size_bytes,
                                   const CUmemAccessDesc *descriptors, size_t count) {
    standin_device *device = device_to_ask(address);
    unsigned owner = 1U << device->ordinal;
    wanted_access wanted = {0};
    TRY(read_access(descriptors, count, &wanted));
    if (count == 0 || wanted.shut_out & owner) {
        return count == 0 ? cudaErrorInvalidValue : cudaErrorNotSupported;
    }
    gml_status status =
        wanted.let_in & owner
            ? gml_driver_set_access(device->driver, address, size_bytes)
            : gml_model_check_whole(model_of(device), "set_access", address, size_bytes, NULL);
    TRY(standin_error_of(device, status));
    change_peers(address, size_bytes, (wanted_access){wanted.let_in & ~owner, wanted.shut_out});
    return cudaSuccess;
}

/* ---- for the other files --------------------------------------------------------------------- */

bool standin_find_mapping(gml_address address, standin_mapping *out) {
    standin_device *device = standin_device_of(address);
    const gml_mapping *mapping = device ? mapping_at(device, address) : NULL;
    if (!mapping) {
        return false;
    }
    const gml_range *range = gml_ranges_at(&model_of(device)->ranges, address);
    const allocation *held =
        gml_map_find(&allocations, outer_handle(device, mapping->chunk->handle));
    *out = (standin_mapping){
        .device = device,
        .mapping = {mapping->node.address, mapping->size_bytes},
        .reservation = {range->node.address, range->size_bytes},
        .handle_types = held ? held->properties.requestedHandleTypes : CU_MEM_HANDLE_TYPE_NONE,
        .is_accessible = mapping->is_open,
        .is_of_program = held != NULL,
    };
    return true;
}

bool standin_find_range(gml_address address, standin_range *out, bool *is_reservation) {
    const standin_device *device = standin_device_of(address);
    if (!device) {
        return false;
    }
    const gml_range *range = gml_ranges_at(&model_of(device)->ranges, address);
    *out = (standin_range){range->node.address, range->size_bytes};
    *is_reservation = !range->is_plain;
    return true;
}
