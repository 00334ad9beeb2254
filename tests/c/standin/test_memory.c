/* Plain and page-locked memory: giving, taking back, what an address is, and misuse. */
#include "support.h"

CASE(devices_have_memory_of_their_own) {
    void *memory = NULL;
    uint64_t before_bytes = free_bytes();
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&memory, MIB));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES - MIB);
    OK(cudaSetDevice(0));
    CHECK_EQ(free_bytes(), before_bytes);
    OK(cudaFree(memory)); /* whatever device is current */
    OK(cudaSetDevice(1));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    OK(cudaSetDevice(0));
}

CASE(memory_ends_at_the_capacity) {
    void *all = device_memory(free_bytes());
    void *more = &more;
    CHECK_EQ(free_bytes(), 0);
    CHECK_EQ(cudaMalloc(&more, 512), cudaErrorMemoryAllocation);
    CHECK(more == &more);
    CHECK_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    OK(cudaFree(all));
    CHECK_EQ(cudaMalloc(&more, CAPACITY_BYTES + 512), cudaErrorMemoryAllocation);
    CHECK_EQ(cudaMalloc(&more, SIZE_MAX), cudaErrorMemoryAllocation);
}

CASE(plain_memory_takes_what_pools_hold_idle) {
    void *block = NULL;
    cudaMemPool_t pool = NULL;
    cuuint64_t threshold = UINT64_MAX;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    OK(cudaMallocAsync(&block, 100 * MIB, NULL));
    OK(cudaFreeAsync(block, NULL));
    OK(cudaDeviceSynchronize());
    CHECK(free_bytes() < 160 * MIB);
    void *memory = device_memory(200 * MIB);
    OK(cudaFree(memory));
    CHECK_EQ(free_bytes(), CAPACITY_BYTES);
    threshold = 0;
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
}

CASE(wrong_frees_are_found) {
    int on_stack = 0;
    char *memory = device_memory(MIB);
    CHECK_MISUSE(cudaFree(memory + 512), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFree(&on_stack), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFreeHost(memory), cudaErrorInvalidValue);
    OK(cudaFree(memory));
    CHECK_MISUSE(cudaFree(memory), cudaErrorInvalidValue);
    char *pinned = pinned_memory(MIB);
    CHECK_MISUSE(cudaFree(pinned), cudaErrorInvalidValue);
    CHECK_MISUSE(cudaFreeHost(pinned + 1), cudaErrorInvalidValue);
    OK(cudaFreeHost(pinned));
    CHECK_MISUSE(cudaFreeHost(pinned), cudaErrorInvalidValue);
}

CASE(freeing_waits_for_the_device) {
    set_pace("manual");
    cudaStream_t stream = new_stream();
    uint64_t misuses = gmlake_standin_misuses();
    void *memory = device_memory(MIB);
    OK(cudaMemsetAsync(memory, 1, MIB, stream));
    CHECK_EQ(gmlake_standin_pending(stream), 1);
    OK(cudaFree(memory));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
    char *pinned = pinned_memory(MIB);
    void *source = device_memory(MIB);
    OK(cudaMemcpyAsync(pinned, source, MIB, cudaMemcpyDeviceToHost, stream));
    CHECK_EQ(gmlake_standin_pending(stream), 1);
    OK(cudaFreeHost(pinned));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
    OK(cudaFree(source));
    CHECK_EQ(gmlake_standin_misuses(), misuses);
}

CASE(plain_blocks_are_freed_in_stream_order) {
    set_pace("manual");
    uint64_t before_bytes = free_bytes();
    cudaStream_t stream = new_stream();
    void *memory = device_memory(MIB);
    OK(cudaMemsetAsync(memory, 1, MIB, stream));
    OK(cudaFreeAsync(memory, stream));
    CHECK_EQ(free_bytes(), before_bytes - MIB);
    CHECK_MISUSE(cudaFree(memory), cudaErrorInvalidValue);
    OK(gmlake_standin_advance(stream, 2));
    CHECK_EQ(free_bytes(), before_bytes);
    OK(cudaStreamDestroy(stream));
}

CASE(a_plain_block_freed_in_flight_is_found) {
    set_pace("manual");
    cudaStream_t user = new_stream();
    cudaStream_t other = new_stream();
    void *memory = device_memory(MIB);
    OK(cudaMemsetAsync(memory, 1, MIB, user));
    OK(cudaFreeAsync(memory, other));
    CHECK_MISUSE(gmlake_standin_advance(other, 1), 0);
    /* The fill finds no memory any more. */
    CHECK_MISUSE(gmlake_standin_advance(user, 1), 0);
}

CASE(a_block_that_another_device_still_reads_is_found) {
    set_pace("manual");
    void *block = device_memory(4096);
    OK(cudaSetDevice(1));
    void *copy = device_memory(4096);
    cudaStream_t stream = new_stream();
    OK(cudaMemcpyPeerAsync(copy, 1, block, 0, 4096, stream));
    CHECK_MISUSE(cudaFree(block), cudaSuccess); /* as a GPU, which cannot tell */
    CHECK_MISUSE(cudaStreamSynchronize(stream), cudaSuccess);
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(copy));
    OK(cudaSetDevice(0));
}

CASE(page_locked_memory_is_the_hosts) {
    unsigned char *memory = NULL;
    uint64_t before_bytes = free_bytes();
    OK(cudaHostAlloc((void **)&memory, 3 * MIB, cudaHostAllocPortable));
    CHECK_EQ(memory[3 * MIB - 1], 0);
    CHECK_EQ(free_bytes(), before_bytes);
    OK(cudaFreeHost(memory));
    CHECK_EQ(cudaHostAlloc((void **)&memory, MIB, 0x80), cudaErrorInvalidValue);
    CHECK_EQ(cudaMallocHost((void **)&memory, SIZE_MAX), cudaErrorMemoryAllocation);
}

CASE(memory_of_the_program_can_be_page_locked) {
    static char memory[8192];
    struct cudaPointerAttributes attributes;
    OK(cudaHostRegister(memory + 100, 4000, cudaHostRegisterDefault));
    CHECK_EQ(cudaHostRegister(memory, 101, 0), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostRegister(memory, 100, 0));
    OK(cudaPointerGetAttributes(&attributes, memory + 4099));
    CHECK_EQ(attributes.type, cudaMemoryTypeHost);
    OK(cudaPointerGetAttributes(&attributes, memory + 4100));
    CHECK_EQ(attributes.type, cudaMemoryTypeUnregistered);
    CHECK_EQ(cudaHostUnregister(memory + 200), cudaErrorHostMemoryNotRegistered);
    OK(cudaHostUnregister(memory + 100));
    OK(cudaHostUnregister(memory));
    CHECK_EQ(cudaHostRegister(device_memory(512), 512, 0), cudaErrorInvalidValue);
}

/* What a device is given must be page-locked, and flags there are none. */
static void check_no_device_pointer(void *address, unsigned flags) {
    void *found = &found;
    CHECK_EQ(cudaHostGetDevicePointer(&found, address, flags), cudaErrorInvalidValue);
    CHECK(found == NULL);
}

CASE(a_device_sees_page_locked_memory_where_the_host_does) {
    static char memory[4096];
    void *found = NULL;
    CUdeviceptr of_driver = 0;
    char *pinned = pinned_memory(MIB);
    OK(cudaHostGetDevicePointer(&found, pinned + 100, 0));
    CHECK(found == pinned + 100);
    OK(cuMemHostGetDevicePointer(&of_driver, pinned + MIB - 1, 0));
    CHECK(of_driver == (CUdeviceptr)(uintptr_t)(pinned + MIB - 1));
    check_no_device_pointer(pinned, 1);
    check_no_device_pointer(memory, 0);
    check_no_device_pointer(NULL, 0);
    check_no_device_pointer(device_memory(512), 0);
    OK(cudaHostRegister(memory, sizeof memory, cudaHostRegisterMapped));
    OK(cudaHostGetDevicePointer(&found, memory, 0));
    CHECK(found == memory);
    OK(cudaHostUnregister(memory));
    check_no_device_pointer(memory, 0);
}

static void check_kind(const void *pointer, enum cudaMemoryType type, int device, bool on_device,
                       bool on_host) {
    struct cudaPointerAttributes attributes;
    OK(cudaPointerGetAttributes(&attributes, pointer));
    CHECK_EQ(attributes.type, type);
    CHECK_EQ(attributes.device, device);
    CHECK(attributes.devicePointer == (on_device ? pointer : NULL));
    CHECK(attributes.hostPointer == (on_host ? pointer : NULL));
}

CASE(pointers_tell_what_they_are) {
    int on_stack = 0;
    char *pinned = pinned_memory(MIB);
    char *plain = device_memory(MIB);
    char *pooled = NULL;
    OK(cudaMallocAsync((void **)&pooled, MIB, NULL));
    OK(cudaSetDevice(1));
    char *second = device_memory(MIB);
    check_kind(plain + MIB - 1, cudaMemoryTypeDevice, 0, true, false);
    check_kind(second, cudaMemoryTypeDevice, 1, true, false);
    check_kind(pooled + 5, cudaMemoryTypeDevice, 0, true, false);
    check_kind(pinned + 5, cudaMemoryTypeHost, 0, true, true);
    check_kind(&on_stack, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
    OK(cudaFree(second));
    OK(cudaSetDevice(0));
    OK(cudaFree(plain));
    check_kind(plain, cudaMemoryTypeUnregistered, cudaInvalidDeviceId, false, true);
    OK(cudaFreeAsync(pooled, NULL));
    OK(cudaFreeHost(pinned));
}

CASE(captures_forbid_plain_memory) {
    void *memory = device_memory(MIB);
    void *more = NULL;
    cudaGraph_t graph = NULL;
    cudaStream_t stream = new_stream();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_EQ(cudaMalloc(&more, MIB), cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_EQ(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) != cudaSuccess);
    OK(cudaFree(memory));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&memory, MIB));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
}

int main(void) {
    return run_cases("eager", false);
}
