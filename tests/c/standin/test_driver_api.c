/* The driver API of the stand-in: look-ups, contexts, pointers, kernels and captures. Work
 * happens only when something waits for it. */
#include "support.h"

#include <pthread.h>

/* A block of device 0 and a stream, in its context. */
typedef struct scene {
    CUdeviceptr block;
    CUstream stream;
} scene;

enum { BLOCK_BYTES = 4096 };

static scene open_scene(void) {
    scene made = {0};
    enter_device(0);
    OK(cuMemAlloc(&made.block, BLOCK_BYTES));
    OK(cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING));
    return made;
}

static void close_scene(const scene *of) {
    OK(cuStreamSynchronize(of->stream));
    OK(cuStreamDestroy(of->stream));
    OK(cuMemFree(of->block));
    leave_device(0);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

CASE(a_plain_name_finds_the_form_that_the_header_means) {
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *found = NULL;
    CUresult (*wanted)(CUdeviceptr *, size_t) = cuMemAlloc;
    OK(cuGetProcAddress("cuMemAlloc", &found, 12000, 0, &status));
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(memcmp(&found, (void *)&wanted, sizeof found) == 0);
    void *of_11 = NULL;
    OK(cuGetProcAddress("cuGetProcAddress", &found, 12000, 0, &status));
    OK(cuGetProcAddress("cuGetProcAddress", &of_11, 11030, 0, &status));
    CHECK(found != of_11);
}

CASE(an_unknown_name_is_not_found) {
    enum cudaDriverEntryPointQueryResult of_runtime = cudaDriverEntryPointSuccess;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *found = &status;
    CHECK_EQ(cuGetProcAddress("cuGreenCtxCreate", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(found == NULL);
    found = &status;
    OK(cudaGetDriverEntryPointByVersion("cuGreenCtxCreate", &found, 13000, 0, &of_runtime));
    CHECK_EQ(of_runtime, cudaDriverEntryPointSymbolNotFound);
    CHECK(found == NULL);
}

/* ---- devices and contexts -------------------------------------------------------------------- */

static void check_current(CUcontext expected) {
    CUcontext current = NULL;
    OK(cuCtxGetCurrent(&current));
    CHECK(current == expected);
}

static void *begin_without_context(void *unused) {
    CUdeviceptr address = 0;
    CUevent event = NULL;
    CUcontext context = NULL;
    (void)unused;
    check_current(NULL);
    CHECK_EQ(cuMemAlloc(&address, BLOCK_BYTES), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuEventCreate(&event, 0), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuStreamSynchronize(NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuMemsetD32Async(0, 0, 1, NULL), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxPopCurrent(&context), CUDA_ERROR_INVALID_CONTEXT);
    check_current(NULL);
    OK(cudaSetDevice(1)); /* the runtime's device is the thread's context */
    OK(cuCtxGetCurrent(&context));
    CHECK(context != NULL);
    OK(cuCtxSetCurrent(NULL));
    check_current(NULL);
    return NULL;
}

CASE(a_new_thread_has_no_context) {
    pthread_t thread;
    if (CHECK_EQ(pthread_create(&thread, NULL, begin_without_context, NULL), 0)) {
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
}

CASE(contexts_are_a_stack) {
    CUcontext contexts[2];
    CUcontext popped = NULL;
    CUdevice device = -1;
    for (int i = 0; i < 2; i++) {
        OK(cuDevicePrimaryCtxRetain(&contexts[i], i));
        OK(cuCtxPushCurrent(contexts[i]));
    }
    OK(cuCtxGetDevice(&device));
    CHECK_EQ(device, 1);
    OK(cudaGetDevice(&device));
    CHECK_EQ(device, 1);
    OK(cuCtxPopCurrent(&popped));
    CHECK(popped == contexts[1]);
    check_current(contexts[0]);
    OK(cuCtxSetCurrent(contexts[1])); /* replaces the top */
    OK(cuCtxPopCurrent(&popped));
    CHECK(popped == contexts[1]);
    check_current(NULL);
    CHECK_EQ(cuCtxPushCurrent((CUcontext)(void *)&device), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxRelease(0));
    OK(cuDevicePrimaryCtxRelease(1));
    CHECK_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
}

static bool is_active(int ordinal) {
    unsigned flags = 0;
    int answer = -1;
    OK(cuDevicePrimaryCtxGetState(ordinal, &flags, &answer));
    return answer == 1;
}

/* Before anything has used device 0 through the runtime API, which never lets go of a context. */
CASE(a_context_lives_while_it_is_held) {
    CUcontext context = NULL;
    CHECK(!is_active(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    CHECK(is_active(0));
    OK(cuDevicePrimaryCtxRelease(0));
    CHECK(!is_active(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cudaSetDevice(0));
    OK(cuDevicePrimaryCtxRelease(0));
    CHECK(is_active(0)); /* the runtime API uses it now */
    OK(cuCtxSetCurrent(NULL));
}

/* ---- plain memory and pointers --------------------------------------------------------------- */

CASE(pointers_say_what_they_are) {
    scene of = open_scene();
    unsigned type = 0;
    int ordinal = -1;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUdeviceptr local = (CUdeviceptr)(uintptr_t)&local;
    OK(cuMemGetAddressRange(&base, &size, of.block + BLOCK_BYTES - 1));
    CHECK_EQ(base, of.block);
    CHECK_EQ(size, BLOCK_BYTES);
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of.block + 1));
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, of.block + 1));
    CHECK_EQ(ordinal, 0);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, local),
             CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

CASE(locked_memory_is_the_hosts_and_the_devices) {
    scene of = open_scene();
    unsigned type = 0;
    void *memory = NULL;
    OK(cudaHostAlloc(&memory, BLOCK_BYTES, cudaHostAllocDefault));
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
    CHECK_EQ(type, CU_MEMORYTYPE_HOST);
    OK(cuStreamWriteValue32(of.stream, address + 4, 42, 0));
    CHECK_EQ(((uint32_t *)memory)[1], 0);
    OK(cuStreamSynchronize(of.stream));
    CHECK_EQ(((uint32_t *)memory)[1], 42);
    OK(cudaFreeHost(memory));
    close_scene(&of);
}

/* ---- kernels and captures -------------------------------------------------------------------- */

CASE(a_captured_fill_happens_at_the_launch) {
    scene of = open_scene();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    cudaGraphExec_t executable = NULL;
    unsigned word = 0;
    OK(cuStreamBeginCapture(of.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamIsCapturing(of.stream, &status));
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(cuMemsetD32Async(of.block, 2, 1, of.stream));
    OK(cuStreamEndCapture(of.stream, &graph));
    OK(cudaGraphInstantiate(&executable, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cudaGraphLaunch(executable, of.stream));
    OK(cuStreamSynchronize(of.stream));
    OK(cuMemcpyDtoH(&word, of.block, sizeof word));
    CHECK_EQ(word, 2);
    OK(cudaGraphExecDestroy(executable));
    close_scene(&of);
}

/* A map of four rows of 64 halves, of which one call changes something. */
typedef struct tensor_map {
    CUtensorMap out;
    cuuint32_t rank;
    uintptr_t tensor;
    cuuint64_t sizes[6], strides[5];
    cuuint32_t box[6], element_strides[6];
    CUtensorMapInterleave interleave;
} tensor_map;

static tensor_map some_map(void) {
    return (tensor_map){
        .rank = 2,
        .tensor = 0x7000,
        .sizes = {64, 4, 1, 1, 1, 1},
        .strides = {128, 512, 512, 512, 512},
        .box = {64, 4, 1, 1, 1, 1},
        .element_strides = {1, 1, 1, 1, 1, 1},
    };
}

static CUresult encode(tensor_map *map) {
    return cuTensorMapEncodeTiled(
        &map->out, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, map->rank, (void *)map->tensor, map->sizes,
        map->strides, map->box, map->element_strides, map->interleave, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

/* The map is refused with these words changed, and taken once they are as they were. */
#define CHECK_REFUSED(word, value)                                                                 \
    do {                                                                                           \
        tensor_map changed = some_map();                                                           \
        changed.word = (value);                                                                    \
        CHECK_EQ(encode(&changed), CUDA_ERROR_INVALID_VALUE);                                      \
    } while (0)

CASE(a_tensor_map_is_made_where_a_gpu_makes_one) {
    tensor_map map = some_map();
    OK(encode(&map));
    CHECK_EQ(map.out.opaque[0], 0x7000);
    map.rank = 5;
    OK(encode(&map));
    map.rank = 3;
    map.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
    OK(encode(&map));
    map.strides[4] = 1; /* beyond the rank */
    OK(encode(&map));
}

CASE(a_tensor_map_that_a_gpu_refuses_is_refused) {
    CHECK_REFUSED(rank, 0);
    CHECK_REFUSED(rank, 6);
    CHECK_REFUSED(tensor, 0);
    CHECK_REFUSED(tensor, 0x7008);
    CHECK_REFUSED(sizes[0], 0);
    CHECK_REFUSED(sizes[1], (UINT64_C(1) << 32) + 1);
    CHECK_REFUSED(strides[0], 120);
    CHECK_REFUSED(strides[0], UINT64_C(1) << 40);
    CHECK_REFUSED(box[1], 0);
    CHECK_REFUSED(box[0], 257);
    CHECK_REFUSED(element_strides[0], 0);
    CHECK_REFUSED(element_strides[1], 9);
    CHECK_REFUSED(interleave, CU_TENSOR_MAP_INTERLEAVE_16B); /* wants three dimensions */
}

int main(void) {
    return run_cases("manual", true);
}
