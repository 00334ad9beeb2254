/* Virtual memory of the driver API, on two devices: what is counted, what is shown, and which rules
 * are kept. Work happens only when something waits for it. */
#include "support.h"

#include <unistd.h>

static uint64_t used_bytes(int ordinal) {
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    enter_device(ordinal);
    OK(cuMemGetInfo(&free_bytes, &total_bytes));
    leave_device(ordinal);
    CHECK_EQ(total_bytes, CAPACITY_BYTES);
    return total_bytes - free_bytes;
}

/* A reservation of four granules; the first is mapped and open. */
typedef struct scene {
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    CUstream stream;
} scene;

static scene open_scene(void) {
    scene made = {.base = new_reservation(4), .handle = new_handle(0, 1)};
    enter_device(0);
    OK(cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemMap(made.base, GRANULE, 0, made.handle, 0));
    OK(open_access(made.base, 1, 0));
    return made;
}

static void close_scene(const scene *of) {
    OK(cuStreamSynchronize(of->stream));
    OK(cuStreamDestroy(of->stream));
    OK(cuMemUnmap(of->base, GRANULE));
    OK(cuMemRelease(of->handle));
    OK(cuMemAddressFree(of->base, 4 * GRANULE));
    leave_device(0);
    CHECK_EQ(used_bytes(0), 0);
}

/* ---- physical memory, mappings, access ------------------------------------------------------- */

CASE(physical_memory_is_counted) {
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle refused = 0;
    CUmemGenericAllocationHandle handle = new_handle(0, 3);
    CHECK_EQ(used_bytes(0), 3 * GRANULE);
    CHECK_EQ(used_bytes(1), 0);
    CHECK_EQ(cuMemCreate(&refused, CAPACITY_BYTES, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(refused, 0);
    OK(cuMemRelease(handle));
    CHECK_EQ(used_bytes(0), 0);
    CHECK_MISUSE(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
}

CASE(properties_are_kept_and_the_impossible_refused) {
    CUmemAllocationProp kept;
    size_t granularity = 0;
    int file = -1;
    CUmemGenericAllocationHandle handle = new_handle(1, 1);
    OK(cuMemGetAllocationPropertiesFromHandle(&kept, handle));
    CHECK_EQ(kept.location.id, 1);
    CHECK_EQ(kept.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_EQ(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0),
             CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMemRelease(handle));
    OK(cuMemGetAllocationGranularity(&granularity, &kept, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK_EQ(granularity, GRANULE);
    kept.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CHECK_EQ(cuMemCreate(&handle, GRANULE, &kept, 0), CUDA_ERROR_NOT_SUPPORTED);
    kept.location.id = 2;
    kept.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    CHECK_EQ(cuMemCreate(&handle, GRANULE, &kept, 0), CUDA_ERROR_INVALID_DEVICE);
}

CASE(a_double_map_is_told) {
    scene of = open_scene();
    CHECK_MISUSE(cuMemMap(of.base, GRANULE, 0, of.handle, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_MISUSE(cuMemMap(of.base + GRANULE, GRANULE, GRANULE, of.handle, 0),
                 CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

CASE(an_unmap_of_nothing_is_told) {
    scene of = open_scene();
    CHECK_MISUSE(cuMemUnmap(of.base + GRANULE, GRANULE), CUDA_ERROR_INVALID_VALUE);
    CHECK_MISUSE(cuMemAddressFree(of.base, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

CASE(a_touch_without_mapping_or_access_is_told) {
    scene of = open_scene();
    CHECK_MISUSE(cuMemsetD32Async(of.base + GRANULE, 1, 4, of.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuMemMap(of.base + GRANULE, GRANULE, 0, of.handle, 0));
    CHECK_MISUSE(cuMemsetD32Async(of.base + GRANULE, 1, 4, of.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuMemUnmap(of.base + GRANULE, GRANULE));
    close_scene(&of);
}

CASE(a_free_in_flight_is_told) {
    scene of = open_scene();
    OK(cuMemMap(of.base + GRANULE, GRANULE, 0, of.handle, 0));
    OK(open_access(of.base + GRANULE, 1, 0));
    OK(cuMemsetD32Async(of.base + GRANULE, 7, 4, of.stream));
    CHECK_EQ(gmlake_standin_pending(of.stream), 1);
    CHECK_MISUSE(cuMemUnmap(of.base + GRANULE, GRANULE), CUDA_SUCCESS);
    CHECK_MISUSE(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    close_scene(&of);
}

CASE(aliases_show_the_same_bytes) {
    scene of = open_scene();
    uint32_t values[4] = {0};
    OK(cuMemMap(of.base + 2 * GRANULE, GRANULE, 0, of.handle, 0));
    OK(open_access(of.base + 2 * GRANULE, 1, 0));
    OK(cuMemsetD32Async(of.base + 64, 0x01020304, 3, of.stream));
    OK(cuMemsetD32Async(of.base + 2 * GRANULE + 76, 0x0506, 1, of.stream));
    OK(cuStreamSynchronize(of.stream));
    OK(cuMemcpyDtoH(values, of.base + 2 * GRANULE + 64, sizeof values));
    CHECK_EQ(values[0], 0x01020304);
    CHECK_EQ(values[2], 0x01020304);
    CHECK_EQ(values[3], 0x0506);
    OK(cuMemUnmap(of.base + 2 * GRANULE, GRANULE));
    close_scene(&of);
}

/* As another process would, by the file that it was given. */
CASE(an_exported_handle_leads_to_the_same_bytes) {
    scene of = open_scene();
    CUmemGenericAllocationHandle again = 0;
    uint32_t value = 0;
    int file = -1;
    OK(cuMemExportToShareableHandle(&file, of.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CHECK_EQ(close(file), 0);
    OK(cuMemMap(of.base + 2 * GRANULE, GRANULE, 0, again, 0));
    OK(open_access(of.base + 2 * GRANULE, 1, 0));
    OK(cuMemRelease(again));
    OK(cuMemsetD32Async(of.base + 64, 0x01020304, 3, of.stream));
    OK(cuStreamSynchronize(of.stream));
    OK(cuMemcpyDtoH(&value, of.base + 2 * GRANULE + 72, sizeof value));
    CHECK_EQ(value, 0x01020304);
    OK(cuMemUnmap(of.base + 2 * GRANULE, GRANULE));
    CHECK_EQ(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

/* A handle can be had again from an address, also after its release, and must be released again. */
CASE(a_handle_is_retained_by_address) {
    scene of = open_scene();
    CUmemGenericAllocationHandle again = 0;
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(of.base + 5)));
    CHECK_EQ(again, of.handle);
    OK(cuMemRelease(of.handle));
    OK(cuMemRelease(of.handle));
    CHECK_EQ(used_bytes(0), GRANULE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)of.base));
    OK(cuMemUnmap(of.base, GRANULE));
    CHECK_EQ(used_bytes(0), GRANULE);
    OK(cuMemMap(of.base, GRANULE, 0, again, 0));
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(of.base + GRANULE)),
             CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

CASE(an_address_has_a_mapping_and_a_reservation) {
    scene of = open_scene();
    CUdeviceptr base = 0;
    size_t size = 0;
    int is_mapped = -1;
    OK(cuMemGetAddressRange(&base, &size, of.base + 5));
    CHECK_EQ(base, of.base);
    CHECK_EQ(size, GRANULE);
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, of.base));
    CHECK_EQ(size, 4 * GRANULE);
    OK(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, of.base));
    CHECK_EQ(is_mapped, 1);
    OK(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, of.base + GRANULE));
    CHECK_EQ(is_mapped, 0);
    close_scene(&of);
}

/* gmlake reserves without a context, whatever device its memory is of. */
CASE(a_reservation_goes_to_the_device_that_maps_first) {
    CUdeviceptr base = new_reservation(4);
    CUmemGenericAllocationHandle first = new_handle(1, 1);
    CUmemGenericAllocationHandle other = new_handle(0, 1);
    unsigned char byte = 0;
    OK(cuMemMap(base, GRANULE, 0, first, 0));
    OK(open_access(base, 1, 1));
    CHECK_MISUSE(cuMemMap(base + GRANULE, GRANULE, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    enter_device(1);
    OK(cuMemsetD32Async(base, 9, 1, NULL));
    OK(cuMemcpyDtoH(&byte, base, 1));
    CHECK_EQ(byte, 9);
    leave_device(1);
    CHECK_EQ(used_bytes(1), GRANULE);
    OK(cuMemUnmap(base, GRANULE));
    OK(cuMemMap(base + GRANULE, GRANULE, 0, other, 0));
    OK(cuMemUnmap(base + GRANULE, GRANULE));
    OK(cuMemRelease(first));
    OK(cuMemRelease(other));
    OK(cuMemAddressFree(base, 4 * GRANULE));
    CHECK_EQ(used_bytes(0) + used_bytes(1), 0);
}

static unsigned long long access_of(CUdeviceptr address, int ordinal) {
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal};
    unsigned long long flags = 0;
    OK(cuMemGetAccess(&flags, &location, address));
    return flags;
}

/* Work of another device needs to be let in; a copy that is made to cross devices does not. */
CASE(a_peer_touches_only_what_was_opened_to_it) {
    scene of = open_scene();
    CUmemAccessDesc none = {{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                            CU_MEM_ACCESS_FLAGS_PROT_NONE};
    int can_reach = 0;
    void *plain = NULL;
    void *mapped = (void *)(uintptr_t)of.base;
    OK(cuDeviceCanAccessPeer(&can_reach, 1, 0));
    CHECK_EQ(can_reach, 1);
    CHECK_EQ(access_of(of.base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(access_of(of.base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&plain, 4096));
    CHECK_MISUSE(cudaMemcpyAsync(plain, mapped, 4096, cudaMemcpyDefault, NULL),
                 cudaErrorIllegalAddress);
    OK(cudaMemcpyPeerAsync(plain, 1, mapped, 0, 4096, NULL));
    OK(open_access(of.base, 1, 1));
    CHECK_EQ(access_of(of.base + 5, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cudaMemcpyAsync(plain, mapped, 4096, cudaMemcpyDefault, NULL));
    OK(cudaDeviceSynchronize());
    OK(cuMemSetAccess(of.base, GRANULE, &none, 1));
    CHECK_EQ(access_of(of.base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(access_of(of.base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(open_access(of.base, 1, 1));
    OK(cuMemUnmap(of.base, GRANULE));
    OK(cuMemMap(of.base, GRANULE, 0, of.handle, 0));
    CHECK_EQ(access_of(of.base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cudaFree(plain));
    OK(cudaSetDevice(0));
    close_scene(&of);
}

CASE(access_may_be_a_peers_and_has_no_holes) {
    scene of = open_scene();
    OK(open_access(of.base, 1, 1));
    CHECK_EQ(open_access(of.base, 1, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_MISUSE(open_access(of.base, 2, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_MISUSE(open_access(of.base + GRANULE, 1, 1), CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

int main(void) {
    return run_cases("manual", true);
}
