/* Plain, managed and page-locked memory: giving, taking back, what an address is, and misuse. */
#include "memory_support.h"

TEST(blocks_take_and_give_back_memory)
{
    uint64_t before_bytes = free_bytes();
    void *memory = device_memory(10 * MIB);
    CHECK(memory != NULL);
    CHECK_EQ((uintptr_t)memory % 512, 0);
    CHECK_EQ(free_bytes(), before_bytes - 10 * MIB);
    CHECK_CUDA(cudaFree(memory));
    CHECK_EQ(free_bytes(), before_bytes);
}

TEST(nothing_is_given_and_freed)
{
    void *memory = &memory;
    CHECK_CUDA(cudaMalloc(&memory, 0));
    CHECK(memory == NULL);
    CHECK_CUDA(cudaFree(NULL));
    CHECK_CUDA(cudaFreeHost(NULL));
    CHECK_EQ(cudaMalloc(NULL, 512), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(devices_have_memory_of_their_own)
{
    void *memory = NULL;
    uint64_t before_bytes = free_bytes();
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_CUDA(cudaMalloc(&memory, MIB));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES - MIB);
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_EQ(free_bytes(), before_bytes);
    CHECK_CUDA(cudaFree(memory)); /* whatever device is current */
    CHECK_CUDA(cudaSetDevice(1));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    CHECK_CUDA(cudaSetDevice(0));
}

TEST(memory_ends_at_the_capacity)
{
    void *all = device_memory(free_bytes());
    void *more = &more;
    CHECK_EQ(free_bytes(), 0);
    CHECK_EQ(cudaMalloc(&more, 512), cudaErrorMemoryAllocation);
    CHECK(more == &more);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    CHECK_CUDA(cudaFree(all));
    CHECK_EQ(cudaMalloc(&more, CAPACITY_BYTES + 512), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaMalloc(&more, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST(plain_memory_takes_what_pools_hold_idle)
{
    void *block = NULL;
    cudaMemPool_t pool = NULL;
    cuuint64_t threshold = UINT64_MAX;
    CHECK_CUDA(cudaDeviceGetDefaultMemPool(&pool, 0));
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    CHECK_CUDA(cudaMallocAsync(&block, 100 * MIB, NULL));
    CHECK_CUDA(cudaFreeAsync(block, NULL));
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK(free_bytes() < 160 * MIB);
    void *memory = device_memory(200 * MIB);
    CHECK_CUDA(cudaFree(memory));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    threshold = 0;
    CHECK_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

TEST(wrong_frees_are_found)
{
    int on_stack = 0;
    char *memory = device_memory(MIB);
    CHECK_MISUSE(cudaFree(memory + 512), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFree(&on_stack), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFreeHost(memory), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(memory));
    CHECK_MISUSE(cudaFree(memory), cudaErrorInvalidValue);
    char *pinned = pinned_memory(MIB);
    CHECK_MISUSE(cudaFree(pinned), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFreeHost(pinned + 1), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_MISUSE(cudaFreeHost(pinned), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(freeing_waits_for_the_device)
{
    set_pace("manual");
    cudaStream_t stream = new_stream();
    uint64_t misuses = gmlake_standin_misuses();
    void *memory = device_memory(MIB);
    CHECK_CUDA(cudaMemsetAsync(memory, 1, MIB, stream));
    CHECK_EQ(gmlake_standin_pending(stream), 1);
    CHECK_CUDA(cudaFree(memory));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
    char *pinned = pinned_memory(MIB);
    void *source = device_memory(MIB);
    CHECK_CUDA(cudaMemcpyAsync(pinned, source, MIB, cudaMemcpyDeviceToHost, stream));
    CHECK_EQ(gmlake_standin_pending(stream), 1);
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
    CHECK_CUDA(cudaFree(source));
    CHECK_EQ(gmlake_standin_misuses(), misuses);
    CHECK_CUDA(cudaStreamDestroy(stream));
    set_pace("eager");
}

TEST(plain_blocks_are_freed_in_stream_order)
{
    set_pace("manual");
    uint64_t before_bytes = free_bytes();
    cudaStream_t stream = new_stream();
    void *memory = device_memory(MIB);
    CHECK_CUDA(cudaMemsetAsync(memory, 1, MIB, stream));
    CHECK_CUDA(cudaFreeAsync(memory, stream));
    CHECK_EQ(free_bytes(), before_bytes - MIB);
    CHECK_MISUSE(cudaFree(memory), cudaErrorInvalidValue);
    CHECK_EQ(gmlake_standin_advance(stream, 2), 0);
    CHECK_EQ(free_bytes(), before_bytes);
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    set_pace("eager");
}

TEST(a_plain_block_freed_in_flight_is_found)
{
    set_pace("manual");
    cudaStream_t user = new_stream();
    cudaStream_t other = new_stream();
    void *memory = device_memory(MIB);
    CHECK_CUDA(cudaMemsetAsync(memory, 1, MIB, user));
    CHECK_CUDA(cudaFreeAsync(memory, other));
    CHECK_MISUSE(gmlake_standin_advance(other, 1), 0);
    /* The fill finds no memory any more. */
    CHECK_MISUSE(gmlake_standin_advance(user, 1), 0);
    CHECK_CUDA(cudaStreamDestroy(user));
    CHECK_CUDA(cudaStreamDestroy(other));
    set_pace("eager");
}

TEST(a_block_that_another_device_still_reads_is_found)
{
    set_pace("manual");
    void *block = device_memory(4096);
    CHECK_CUDA(cudaSetDevice(1));
    void *copy = device_memory(4096);
    cudaStream_t stream = new_stream();
    CHECK_CUDA(cudaMemcpyPeerAsync(copy, 1, block, 0, 4096, stream));
    CHECK_MISUSE(cudaFree(block), cudaSuccess); /* as a GPU, which cannot tell */
    CHECK_MISUSE(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_CUDA(cudaStreamDestroy(stream));
    CHECK_CUDA(cudaFree(copy));
    CHECK_CUDA(cudaSetDevice(0));
    set_pace("eager");
}

TEST(managed_memory_has_bytes_in_either_mode)
{
    unsigned char *memory = NULL;
    unsigned char copy[64];
    uint64_t before_bytes = free_bytes();
    CHECK_CUDA(cudaMallocManaged((void **)&memory, MIB, cudaMemAttachGlobal));
    CHECK_EQ(free_bytes(), before_bytes - MIB);
    CHECK_EQ(memory[MIB - 1], 0);
    memset(memory, 7, MIB);
    CHECK_CUDA(cudaMemcpy(copy, memory + 100, sizeof copy, cudaMemcpyDeviceToHost));
    CHECK(holds_value(copy, 7, sizeof copy));
    CHECK_CUDA(cudaMemset(memory, 9, MIB));
    CHECK_EQ(memory[MIB / 2], 9);
    CHECK_CUDA(cudaFree(memory));
    CHECK_EQ(free_bytes(), before_bytes);
    CHECK_EQ(cudaMallocManaged((void **)&memory, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    CHECK_EQ(cudaMallocManaged((void **)&memory, 1, 77), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(page_locked_memory_is_the_hosts)
{
    unsigned char *memory = NULL;
    uint64_t before_bytes = free_bytes();
    CHECK_CUDA(cudaHostAlloc((void **)&memory, 3 * MIB, cudaHostAllocPortable));
    CHECK_EQ((uintptr_t)memory % 4096, 0);
    CHECK_EQ(memory[3 * MIB - 1], 0);
    CHECK_EQ(free_bytes(), before_bytes);
    CHECK_CUDA(cudaFreeHost(memory));
    CHECK_EQ(cudaHostAlloc((void **)&memory, MIB, 0x80), cudaErrorInvalidValue);
    CHECK_EQ(cudaMallocHost((void **)&memory, SIZE_MAX), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST(memory_of_the_program_can_be_page_locked)
{
    static char memory[8192];
    struct cudaPointerAttributes attributes;
    void *block = device_memory(512);
    CHECK_CUDA(cudaHostRegister(memory + 100, 4000, cudaHostRegisterDefault));
    CHECK_EQ(cudaHostRegister(memory + 100, 4000, 0), cudaErrorHostMemoryAlreadyRegistered);
    CHECK_EQ(cudaHostRegister(memory, 101, 0), cudaErrorHostMemoryAlreadyRegistered);
    CHECK_CUDA(cudaHostRegister(memory, 100, 0));
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, memory + 4099));
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, memory + 4100));
    CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);
    CHECK_EQ(cudaHostUnregister(memory + 200), cudaErrorHostMemoryNotRegistered);
    CHECK_CUDA(cudaHostUnregister(memory + 100));
    CHECK_CUDA(cudaHostUnregister(memory));
    CHECK_EQ(cudaHostUnregister(memory), cudaErrorHostMemoryNotRegistered);
    CHECK_EQ(cudaHostRegister(NULL, 100, 0), cudaErrorInvalidValue);
    CHECK_EQ(cudaHostRegister(memory, 0, 0), cudaErrorInvalidValue);
    CHECK_EQ(cudaHostRegister(block, 512, 0), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
    CHECK_CUDA(cudaFree(block));
}

static void
check_kind(const void *pointer, enum cudaMemoryType type, int device, bool on_device, bool on_host)
{
    struct cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer));
    CHECK_EQ(attributes.type, type);
    CHECK_EQ(attributes.device, device);
    CHECK(attributes.devicePointer == (on_device ? pointer : NULL));
    CHECK(attributes.hostPointer == (on_host ? pointer : NULL));
}

TEST(pointers_tell_what_they_are)
{
    int on_stack = 0;
    char *managed = NULL;
    char *pinned = pinned_memory(MIB);
    char *plain = device_memory(MIB);
    char *pooled = NULL;
    CHECK_CUDA(cudaMallocManaged((void **)&managed, MIB, cudaMemAttachGlobal));
    CHECK_CUDA(cudaMallocAsync((void **)&pooled, MIB, NULL));
    CHECK_CUDA(cudaSetDevice(1));
    char *second = device_memory(MIB);
    check_kind(plain + MIB - 1, cudaMemoryTypeDevice, 0, true, false);
    check_kind(second, cudaMemoryTypeDevice, 1, true, false);
    check_kind(pooled + 5, cudaMemoryTypeDevice, 0, true, false);
    check_kind(managed + 5, cudaMemoryTypeManaged, 0, true, true);
    check_kind(pinned + 5, cudaMemoryTypeHost, 0, true, true);
    check_kind(&on_stack, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
    CHECK_CUDA(cudaFree(second));
    CHECK_CUDA(cudaSetDevice(0));
    CHECK_CUDA(cudaFree(plain));
    check_kind(plain, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
    CHECK_CUDA(cudaFree(managed));
    CHECK_CUDA(cudaFreeAsync(pooled, NULL));
    CHECK_CUDA(cudaFreeHost(pinned));
    CHECK_EQ(cudaPointerGetAttributes(NULL, pinned), cudaErrorInvalidValue);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST(mapped_memory_is_of_its_device)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
    };
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CHECK_EQ(cuMemCreate(&handle, 2 * MIB, &properties, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cuMemMap(address, 2 * MIB, 0, handle, 0), CUDA_SUCCESS);
    struct cudaPointerAttributes attributes;
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, (void *)(uintptr_t)(address + MIB)));
    CHECK_EQ(attributes.type, cudaMemoryTypeDevice);
    CHECK_EQ(cuMemUnmap(address, 2 * MIB), CUDA_SUCCESS);
    CHECK_EQ(cuMemAddressFree(address, 4 * MIB), CUDA_SUCCESS);
    CHECK_EQ(cuMemRelease(handle), CUDA_SUCCESS);
}

TEST(captures_forbid_plain_memory)
{
    void *memory = device_memory(MIB);
    void *more = NULL;
    cudaGraph_t graph = NULL;
    cudaStream_t stream = new_stream();
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_EQ(cudaMalloc(&more, MIB), cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_EQ(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
    CHECK_CUDA(cudaFree(memory));
    CHECK_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK_CUDA(cudaMalloc(&memory, MIB));
    CHECK_CUDA(cudaStreamEndCapture(stream, &graph));
    CHECK_CUDA(cudaGraphDestroy(graph));
    CHECK_CUDA(cudaFree(memory));
    CHECK_CUDA(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
}

TEST(memory_is_not_shared_between_processes)
{
    void *memory = device_memory(MIB);
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    CHECK_EQ(cudaIpcGetMemHandle(&handle, memory), cudaErrorNotSupported);
    memset(&event_handle, 0, sizeof event_handle);
    CHECK_EQ(cudaIpcOpenEventHandle((cudaEvent_t *)&memory, event_handle), cudaErrorNotSupported);
    CHECK_EQ(cudaGetLastError(), cudaErrorNotSupported);
    CHECK_CUDA(cudaFree(memory));
}

/* Random traffic against a plain record of what is live: what is free adds up after every call. */
TEST(random_traffic_adds_up)
{
    enum { MOST = 64 };
    check_random random = {.state = 1};
    void *live[MOST] = {0};
    uint64_t sizes[MOST] = {0};
    uint64_t expected_bytes = free_bytes();
    for (int round = 0; round < 2000; round++) {
        size_t i = check_below(&random, MOST);
        if (live[i]) {
            CHECK_CUDA(cudaFree(live[i]));
            expected_bytes += sizes[i];
            live[i] = NULL;
            continue;
        }
        sizes[i] = 512 * (1 + check_below(&random, 20000));
        bool fits = sizes[i] <= expected_bytes;
        CHECK_EQ(cudaMalloc(&live[i], sizes[i]), fits ? cudaSuccess : cudaErrorMemoryAllocation);
        expected_bytes -= fits ? sizes[i] : 0;
        CHECK_EQ(free_bytes(), expected_bytes);
    }
    for (size_t i = 0; i < MOST; i++) {
        CHECK_CUDA(cudaFree(live[i]));
    }
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    (void)cudaGetLastError();
}

static void
run_all(void)
{
    RUN(blocks_take_and_give_back_memory);
    RUN(nothing_is_given_and_freed);
    RUN(devices_have_memory_of_their_own);
    RUN(memory_ends_at_the_capacity);
    RUN(plain_memory_takes_what_pools_hold_idle);
    RUN(wrong_frees_are_found);
    RUN(freeing_waits_for_the_device);
    RUN(plain_blocks_are_freed_in_stream_order);
    RUN(a_plain_block_freed_in_flight_is_found);
    RUN(a_block_that_another_device_still_reads_is_found);
    RUN(managed_memory_has_bytes_in_either_mode);
    RUN(page_locked_memory_is_the_hosts);
    RUN(memory_of_the_program_can_be_page_locked);
    RUN(pointers_tell_what_they_are);
    RUN(mapped_memory_is_of_its_device);
    RUN(captures_forbid_plain_memory);
    RUN(memory_is_not_shared_between_processes);
    RUN(random_traffic_adds_up);
}

int
main(void)
{
    return run_in_both_modes(run_all);
}
