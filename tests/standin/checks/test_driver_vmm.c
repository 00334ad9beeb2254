/* Virtual memory of the driver API, on two devices: what is counted, what is shown, and what is
 * said when a rule is broken. Work happens only when something waits for it. */
#include "rig/control.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE (UINT64_C(2) << 20)
#define CAPACITY (UINT64_C(64) << 20)

/* ---- what the tests share -------------------------------------------------------------------- */

static int messages = -1; /* a memfd, where standard error goes while expect_misuse() listens */
static int real_stderr = -1;
static uint64_t misuses_before;

static void
begin_listening(void)
{
    CHECK_EQ(ftruncate(messages, 0), 0);
    CHECK(dup2(messages, STDERR_FILENO) >= 0);
    CHECK_EQ(lseek(messages, 0, SEEK_SET), 0);
    misuses_before = gmlake_standin_misuses();
}

/* One misuse was reported since, with these words. */
static void
expect_misuse(const char *words)
{
    char text[2048] = "";
    CHECK(dup2(real_stderr, STDERR_FILENO) >= 0);
    CHECK(pread(messages, text, sizeof text - 1, 0) >= 0);
    CHECK_EQ(gmlake_standin_misuses() - misuses_before, 1);
    if (!CHECK(strstr(text, words) != NULL)) {
        fprintf(stderr, "expected '%s' in: %s\n", words, text);
    }
}

static void
enter_device(int ordinal)
{
    CUcontext context = NULL;
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, ordinal), CUDA_SUCCESS);
    CHECK_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
}

static void
leave_device(int ordinal)
{
    CUcontext context = NULL;
    CHECK_EQ(cuCtxPopCurrent(&context), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(ordinal), CUDA_SUCCESS);
}

static uint64_t
used_bytes(int ordinal)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    enter_device(ordinal);
    CHECK_EQ(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    leave_device(ordinal);
    CHECK_EQ(total_bytes, CAPACITY);
    return total_bytes - free_bytes;
}

static CUmemAllocationProp
properties_of(int ordinal)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal},
    };
}

static CUmemGenericAllocationHandle
new_handle(int ordinal, uint64_t granules)
{
    CUmemAllocationProp properties = properties_of(ordinal);
    CUmemGenericAllocationHandle handle = 0;
    CHECK_EQ(cuMemCreate(&handle, granules * GRANULE, &properties, 0), CUDA_SUCCESS);
    return handle;
}

static CUdeviceptr
new_reservation(uint64_t granules)
{
    CUdeviceptr address = 0;
    CHECK_EQ(cuMemAddressReserve(&address, granules * GRANULE, 0, 0, 0), CUDA_SUCCESS);
    return address;
}

static CUresult
open_access(CUdeviceptr address, uint64_t granules, int ordinal)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, ordinal},
                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuMemSetAccess(address, granules * GRANULE, &access, 1);
}

/* A reservation of four granules; the first is mapped and open. */
typedef struct scene {
    CUdeviceptr base;
    CUmemGenericAllocationHandle handle;
    CUstream stream;
} scene;

static scene
open_scene(void)
{
    scene made = {.base = new_reservation(4), .handle = new_handle(0, 1)};
    enter_device(0);
    CHECK_EQ(cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(made.base, GRANULE, 0, made.handle, 0), CUDA_SUCCESS);
    CHECK_EQ(open_access(made.base, 1, 0), CUDA_SUCCESS);
    return made;
}

static void
close_scene(const scene *of)
{
    CHECK_EQ(cuStreamSynchronize(of->stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamDestroy(of->stream), CUDA_SUCCESS);
    CHECK_EQ(cuMemUnmap(of->base, GRANULE), CUDA_SUCCESS);
    CHECK_EQ(cuMemRelease(of->handle), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressFree(of->base, 4 * GRANULE), CUDA_SUCCESS);
    leave_device(0);
    CHECK_EQ(used_bytes(0), 0);
}

/* ---- physical memory, mappings, access ------------------------------------------------------- */

TEST(physical_memory_is_counted)
{
    CUmemAllocationProp properties = properties_of(0);
    CUmemGenericAllocationHandle refused = 0;
    CUmemGenericAllocationHandle handle = new_handle(0, 3);
    CHECK_EQ(used_bytes(0), 3 * GRANULE);
    CHECK_EQ(used_bytes(1), 0);
    CHECK_EQ(cuMemCreate(&refused, CAPACITY, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_EQ(refused, 0);
    CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    CHECK_EQ(used_bytes(0), 0);
    begin_listening();
    CHECK_EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("does not exist or was released before");
}

TEST(properties_are_kept_and_the_impossible_refused)
{
    CUmemAllocationProp properties = properties_of(1);
    CUmemAllocationProp kept;
    size_t granularity = 0;
    int file = -1;
    CUmemGenericAllocationHandle handle = new_handle(1, 1);
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&kept, handle), CUDA_SUCCESS);
    CHECK_EQ(kept.location.id, 1);
    CHECK_EQ(kept.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CHECK_EQ(
        cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_NOT_SUPPORTED);
    CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
    CHECK_EQ(cuMemGetAllocationPropertiesFromHandle(&kept, handle), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(
        cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        CUDA_SUCCESS);
    CHECK_EQ(granularity, GRANULE);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    CHECK_EQ(cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_ERROR_NOT_SUPPORTED);
    properties = properties_of(2);
    CHECK_EQ(cuMemCreate(&handle, GRANULE, &properties, 0), CUDA_ERROR_INVALID_DEVICE);
}

TEST(a_double_map_is_told)
{
    scene of = open_scene();
    begin_listening();
    CHECK_EQ(cuMemMap(of.base, GRANULE, 0, of.handle, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("is mapped already");
    begin_listening();
    CHECK_EQ(cuMemMap(of.base + GRANULE, GRANULE, GRANULE, of.handle, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("must be 0");
    close_scene(&of);
}

TEST(an_unmap_of_nothing_is_told)
{
    scene of = open_scene();
    begin_listening();
    CHECK_EQ(cuMemUnmap(of.base + GRANULE, GRANULE), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("nothing is mapped");
    begin_listening();
    CHECK_EQ(cuMemAddressFree(of.base, 4 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("still mapped");
    close_scene(&of);
}

TEST(a_touch_without_mapping_or_access_is_told)
{
    scene of = open_scene();
    begin_listening();
    CHECK_EQ(cuMemsetD32Async(of.base + GRANULE, 1, 4, of.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse("nothing is mapped");
    CHECK_EQ(cuMemMap(of.base + GRANULE, GRANULE, 0, of.handle, 0), CUDA_SUCCESS);
    begin_listening();
    CHECK_EQ(cuMemsetD32Async(of.base + GRANULE, 1, 4, of.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    expect_misuse("access was never set");
    CHECK_EQ(cuMemUnmap(of.base + GRANULE, GRANULE), CUDA_SUCCESS);
    close_scene(&of);
}

TEST(a_free_in_flight_is_told)
{
    scene of = open_scene();
    CHECK_EQ(cuMemMap(of.base + GRANULE, GRANULE, 0, of.handle, 0), CUDA_SUCCESS);
    CHECK_EQ(open_access(of.base + GRANULE, 1, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemsetD32Async(of.base + GRANULE, 7, 4, of.stream), CUDA_SUCCESS);
    CHECK_EQ(gmlake_standin_pending(of.stream), 1);
    begin_listening();
    CHECK_EQ(cuMemUnmap(of.base + GRANULE, GRANULE),
             CUDA_SUCCESS); /* as a GPU, which cannot tell */
    expect_misuse("free in flight: cuMemUnmap");
    begin_listening();
    CHECK_EQ(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    expect_misuse("cuMemsetD32Async touches memory");
    close_scene(&of);
}

TEST(an_unmap_after_the_work_is_silent)
{
    scene of = open_scene();
    uint64_t before = gmlake_standin_misuses();
    CHECK_EQ(cuMemsetD32Async(of.base, 7, 4, of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuMemUnmap(of.base, GRANULE), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(of.base, GRANULE, 0, of.handle, 0), CUDA_SUCCESS);
    CHECK_EQ(gmlake_standin_misuses(), before);
    close_scene(&of);
}

TEST(aliases_show_the_same_bytes)
{
    scene of = open_scene();
    uint32_t values[4] = {0};
    CHECK_EQ(cuMemMap(of.base + 2 * GRANULE, GRANULE, 0, of.handle, 0), CUDA_SUCCESS);
    CHECK_EQ(open_access(of.base + 2 * GRANULE, 1, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemsetD32Async(of.base + 64, 0x01020304, 3, of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuMemsetD32Async(of.base + 2 * GRANULE + 76, 0x0506, 1, of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(values, of.base + 2 * GRANULE + 64, sizeof values), CUDA_SUCCESS);
    CHECK_EQ(values[0], 0x01020304);
    CHECK_EQ(values[2], 0x01020304);
    CHECK_EQ(values[3], 0x0506);
    CHECK_EQ(cuMemUnmap(of.base + 2 * GRANULE, GRANULE), CUDA_SUCCESS);
    close_scene(&of);
}

/* A handle can be had again from an address, also after its release, and must be released again. */
TEST(a_handle_is_retained_by_address)
{
    scene of = open_scene();
    CUmemGenericAllocationHandle again = 0;
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(of.base + 5)), CUDA_SUCCESS);
    CHECK_EQ(again, of.handle);
    CHECK_EQ(cuMemRelease(of.handle), CUDA_SUCCESS);
    CHECK_EQ(cuMemRelease(of.handle), CUDA_SUCCESS);
    CHECK_EQ(used_bytes(0), GRANULE);
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)of.base), CUDA_SUCCESS);
    CHECK_EQ(cuMemUnmap(of.base, GRANULE), CUDA_SUCCESS);
    CHECK_EQ(used_bytes(0), GRANULE);
    CHECK_EQ(cuMemMap(of.base, GRANULE, 0, again, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(of.base + GRANULE)),
             CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

TEST(an_address_has_a_mapping_and_a_reservation)
{
    scene of = open_scene();
    CUdeviceptr base = 0;
    size_t size = 0;
    int is_mapped = -1;
    CHECK_EQ(cuMemGetAddressRange(&base, &size, of.base + 5), CUDA_SUCCESS);
    CHECK_EQ(base, of.base);
    CHECK_EQ(size, GRANULE);
    CHECK_EQ(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, of.base), CUDA_SUCCESS);
    CHECK_EQ(size, 4 * GRANULE);
    CHECK_EQ(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, of.base), CUDA_SUCCESS);
    CHECK_EQ(is_mapped, 1);
    CHECK_EQ(cuPointerGetAttribute(&is_mapped, CU_POINTER_ATTRIBUTE_MAPPED, of.base + GRANULE),
             CUDA_SUCCESS);
    CHECK_EQ(is_mapped, 0);
    close_scene(&of);
}

/* gmlake reserves without a context, whatever device its memory is of. */
TEST(a_reservation_goes_to_the_device_that_maps_first)
{
    CUdeviceptr base = new_reservation(4);
    CUmemGenericAllocationHandle first = new_handle(1, 1);
    CUmemGenericAllocationHandle other = new_handle(0, 1);
    unsigned char byte = 0;
    CHECK_EQ(cuMemMap(base, GRANULE, 0, first, 0), CUDA_SUCCESS);
    CHECK_EQ(open_access(base, 1, 1), CUDA_SUCCESS);
    begin_listening();
    CHECK_EQ(cuMemMap(base + GRANULE, GRANULE, 0, other, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("one device to a reservation");
    enter_device(1);
    CHECK_EQ(cuMemsetD32Async(base, 9, 1, NULL), CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(&byte, base, 1), CUDA_SUCCESS);
    CHECK_EQ(byte, 9);
    leave_device(1);
    CHECK_EQ(used_bytes(1), GRANULE);
    CHECK_EQ(cuMemUnmap(base, GRANULE), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(base + GRANULE, GRANULE, 0, other, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemUnmap(base + GRANULE, GRANULE), CUDA_SUCCESS);
    CHECK_EQ(cuMemRelease(first), CUDA_SUCCESS);
    CHECK_EQ(cuMemRelease(other), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressFree(base, 4 * GRANULE), CUDA_SUCCESS);
    CHECK_EQ(used_bytes(0) + used_bytes(1), 0);
}

static unsigned long long
access_of(CUdeviceptr address, int ordinal)
{
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    unsigned long long flags = 0;
    CHECK_EQ(cuMemGetAccess(&flags, &location, address), CUDA_SUCCESS);
    return flags;
}

/* Work of another device needs to be let in; a copy that is made to cross devices does not. */
TEST(a_peer_touches_only_what_was_opened_to_it)
{
    scene of = open_scene();
    CUmemAccessDesc none = {{CU_MEM_LOCATION_TYPE_DEVICE, 1}, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    int can_reach = 0;
    void *plain = NULL;
    void *mapped = (void *)(uintptr_t)of.base;
    CHECK_EQ(cuDeviceCanAccessPeer(&can_reach, 1, 0), CUDA_SUCCESS);
    CHECK_EQ(can_reach, 1);
    CHECK_EQ(access_of(of.base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(access_of(of.base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(cudaSetDevice(1), cudaSuccess);
    CHECK_EQ(cudaMalloc(&plain, 4096), cudaSuccess);
    begin_listening();
    CHECK_EQ(cudaMemcpyAsync(plain, mapped, 4096, cudaMemcpyDefault, NULL),
             cudaErrorIllegalAddress);
    expect_misuse("never opened to it");
    CHECK_EQ(cudaMemcpyPeerAsync(plain, 1, mapped, 0, 4096, NULL), cudaSuccess);
    CHECK_EQ(open_access(of.base, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(access_of(of.base + 5, 1), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(cudaMemcpyAsync(plain, mapped, 4096, cudaMemcpyDefault, NULL), cudaSuccess);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    CHECK_EQ(cuMemSetAccess(of.base, GRANULE, &none, 1), CUDA_SUCCESS);
    CHECK_EQ(access_of(of.base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(access_of(of.base, 0), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CHECK_EQ(open_access(of.base, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(cuMemUnmap(of.base, GRANULE), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(of.base, GRANULE, 0, of.handle, 0), CUDA_SUCCESS);
    CHECK_EQ(access_of(of.base, 1), CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CHECK_EQ(cudaFree(plain), cudaSuccess);
    CHECK_EQ(cudaSetDevice(0), cudaSuccess);
    close_scene(&of);
}

TEST(access_may_be_a_peers_and_has_no_holes)
{
    scene of = open_scene();
    CHECK_EQ(open_access(of.base, 1, 1), CUDA_SUCCESS);
    CHECK_EQ(open_access(of.base, 1, 2), CUDA_ERROR_INVALID_DEVICE);
    begin_listening();
    CHECK_EQ(open_access(of.base, 2, 0), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("nothing is mapped");
    begin_listening();
    CHECK_EQ(open_access(of.base + GRANULE, 1, 1), CUDA_ERROR_INVALID_VALUE);
    expect_misuse("nothing is mapped");
    close_scene(&of);
}

static void
set_variables(void)
{
    /* Read by the stand-in at its first call; no other thread is running. */
    CHECK_EQ(setenv("GMLAKE_STANDIN_DEVICES", "2", 1), 0);      /* NOLINT(concurrency-mt-unsafe) */
    CHECK_EQ(setenv("GMLAKE_STANDIN_CAPACITY", "64MiB", 1), 0); /* NOLINT(concurrency-mt-unsafe) */
    CHECK_EQ(setenv("GMLAKE_STANDIN_BACKED", "1", 1), 0);       /* NOLINT(concurrency-mt-unsafe) */
    CHECK_EQ(setenv("GMLAKE_STANDIN_PACE", "manual", 1), 0);    /* NOLINT(concurrency-mt-unsafe) */
}

int
main(void)
{
    set_variables();
    messages = memfd_create("messages", 0);
    real_stderr = dup(STDERR_FILENO);
    if (messages < 0 || real_stderr < 0 || cuInit(0) != CUDA_SUCCESS) {
        return 1;
    }
    RUN(physical_memory_is_counted);
    RUN(properties_are_kept_and_the_impossible_refused);
    RUN(a_double_map_is_told);
    RUN(an_unmap_of_nothing_is_told);
    RUN(a_touch_without_mapping_or_access_is_told);
    RUN(a_free_in_flight_is_told);
    RUN(an_unmap_after_the_work_is_silent);
    RUN(aliases_show_the_same_bytes);
    RUN(a_handle_is_retained_by_address);
    RUN(a_reservation_goes_to_the_device_that_maps_first);
    RUN(an_address_has_a_mapping_and_a_reservation);
    RUN(a_peer_touches_only_what_was_opened_to_it);
    RUN(access_may_be_a_peers_and_has_no_holes);
    return report();
}
