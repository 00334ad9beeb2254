/* The driver API of the stand-in: look-ups, devices, contexts, pointers, kernels and captures. Work
 * happens only when something waits for it. */
#include "rig/control.h"
#include "support/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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

/* A block of device 0 and a stream, in its context. */
typedef struct scene {
    CUdeviceptr block;
    CUstream stream;
} scene;

enum { BLOCK_BYTES = 4096 };

static scene
open_scene(void)
{
    scene made = {0};
    enter_device(0);
    CHECK_EQ(cuMemAlloc(&made.block, BLOCK_BYTES), CUDA_SUCCESS);
    CHECK_EQ(cuStreamCreate(&made.stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return made;
}

static void
close_scene(const scene *of)
{
    CHECK_EQ(cuStreamSynchronize(of->stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamDestroy(of->stream), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(of->block), CUDA_SUCCESS);
    leave_device(0);
}

/* ---- look-ups -------------------------------------------------------------------------------- */

/* Those that PyTorch 2.11 does not start its driver API without (c10/cuda/driver_api.h), and those
 * that its libraries look up one by one. */
TEST(what_pytorch_wants_is_found)
{
    static const char *const names[] = {
        "cuDeviceGet",
        "cuDeviceGetAttribute",
        "cuMemAddressReserve",
        "cuMemRelease",
        "cuMemMap",
        "cuMemAddressFree",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemCreate",
        "cuMemGetAllocationGranularity",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemRetainAllocationHandle",
        "cuMemGetAllocationPropertiesFromHandle",
        "cuMemsetD32Async",
        "cuStreamWriteValue32",
        "cuGetErrorString",
        "cuCtxGetCurrent",
        "cuCtxPopCurrent",
        "cuCtxPushCurrent",
        "cuCtxSetCurrent",
        "cuDevicePrimaryCtxGetState",
        "cuMemGetAddressRange_v2",
        "cuPointerGetAttribute",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
        void *found = NULL;
        CHECK_EQ(
            cudaGetDriverEntryPointByVersion(names[i], &found, 12000, cudaEnableDefault, &status),
            cudaSuccess);
        CHECK_EQ(status, cudaDriverEntryPointSuccess);
        if (!CHECK(found != NULL)) {
            fprintf(stderr, "%s\n", names[i]);
        }
    }
}

TEST(a_plain_name_finds_the_form_that_the_header_means)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *found = NULL;
    CUresult (*wanted)(CUdeviceptr *, size_t) = cuMemAlloc;
    CHECK_EQ(cuGetProcAddress("cuMemAlloc", &found, 12000, 0, &status), CUDA_SUCCESS);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(memcmp(&found, (void *)&wanted, sizeof found) == 0);
    void *of_11 = NULL;
    CHECK_EQ(cuGetProcAddress("cuGetProcAddress", &found, 12000, 0, &status), CUDA_SUCCESS);
    CHECK_EQ(cuGetProcAddress("cuGetProcAddress", &of_11, 11030, 0, &status), CUDA_SUCCESS);
    CHECK(found != of_11);
}

TEST(an_unknown_name_is_not_found)
{
    enum cudaDriverEntryPointQueryResult of_runtime = cudaDriverEntryPointSuccess;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *found = &status;
    CHECK_EQ(cuGetProcAddress("cuGreenCtxCreate", &found, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
    CHECK_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    CHECK(found == NULL);
    found = &status;
    CHECK_EQ(cudaGetDriverEntryPointByVersion("cuGreenCtxCreate", &found, 13000, 0, &of_runtime),
             cudaSuccess);
    CHECK_EQ(of_runtime, cudaDriverEntryPointSymbolNotFound);
    CHECK(found == NULL);
}

/* ---- devices and contexts -------------------------------------------------------------------- */

TEST(devices_describe_themselves)
{
    int count = 0;
    int is_supported = -1;
    CUdevice device = -1;
    CUuuid uuids[2];
    char name[64] = "";
    CHECK_EQ(cuDeviceGetCount(&count), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_EQ(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
    CHECK_EQ(cuDeviceGet(&device, 1), CUDA_SUCCESS);
    CHECK_EQ(device, 1);
    CHECK_EQ(cuDeviceGetName(name, sizeof name, device), CUDA_SUCCESS);
    CHECK(strlen(name) > 0);
    CHECK_EQ(cuDeviceGetUuid(&uuids[0], 0), CUDA_SUCCESS);
    CHECK_EQ(cuDeviceGetUuid(&uuids[1], 1), CUDA_SUCCESS);
    CHECK(memcmp(&uuids[0], &uuids[1], sizeof uuids[0]) != 0);
    CHECK_EQ(cuDeviceGetAttribute(&is_supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                                  device),
             CUDA_SUCCESS);
    CHECK_EQ(is_supported, 0);
    CHECK_EQ(cuDeviceGetAttribute(&is_supported,
                                  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                  device),
             CUDA_SUCCESS);
    CHECK_EQ(is_supported, 1);
}

TEST(errors_have_names_and_words)
{
    const char *name = NULL;
    const char *text = NULL;
    CHECK_EQ(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name), CUDA_SUCCESS);
    CHECK_EQ(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
    CHECK(name && strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    CHECK(text && strcmp(text, "out of memory") == 0);
    CUresult unknown = 12345; /* NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange) */
    CHECK_EQ(cuGetErrorName(unknown, &name), CUDA_ERROR_INVALID_VALUE);
    CHECK(name == NULL);
}

static void
check_current(CUcontext expected)
{
    CUcontext current = NULL;
    CHECK_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    CHECK(current == expected);
}

static void *
begin_without_context(void *unused)
{
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
    CHECK_EQ(cudaSetDevice(1), cudaSuccess); /* the runtime's device is the thread's context */
    CHECK_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    CHECK(context != NULL);
    CHECK_EQ(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    check_current(NULL);
    return NULL;
}

TEST(a_new_thread_has_no_context)
{
    pthread_t thread;
    if (CHECK_EQ(pthread_create(&thread, NULL, begin_without_context, NULL), 0)) {
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
}

TEST(contexts_are_a_stack)
{
    CUcontext contexts[2];
    CUcontext popped = NULL;
    CUdevice device = -1;
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(cuDevicePrimaryCtxRetain(&contexts[i], i), CUDA_SUCCESS);
        CHECK_EQ(cuCtxPushCurrent(contexts[i]), CUDA_SUCCESS);
    }
    CHECK_EQ(cuCtxGetDevice(&device), CUDA_SUCCESS);
    CHECK_EQ(device, 1);
    CHECK_EQ(cudaGetDevice(&device), cudaSuccess);
    CHECK_EQ(device, 1);
    CHECK_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    CHECK(popped == contexts[1]);
    check_current(contexts[0]);
    CHECK_EQ(cuCtxSetCurrent(contexts[1]), CUDA_SUCCESS); /* replaces the top */
    CHECK_EQ(cuCtxPopCurrent(&popped), CUDA_SUCCESS);
    CHECK(popped == contexts[1]);
    check_current(NULL);
    CHECK_EQ(cuCtxPushCurrent((CUcontext)(void *)&device), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(1), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(1), CUDA_ERROR_INVALID_CONTEXT);
}

static bool
is_active(int ordinal)
{
    unsigned flags = 0;
    int answer = -1;
    CHECK_EQ(cuDevicePrimaryCtxGetState(ordinal, &flags, &answer), CUDA_SUCCESS);
    return answer == 1;
}

/* Before anything has used device 0 through the runtime API, which never lets go of a context. */
TEST(a_context_lives_while_it_is_held)
{
    CUcontext context = NULL;
    CHECK(!is_active(0));
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK(is_active(0));
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK(!is_active(0));
    CHECK_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_EQ(cudaSetDevice(0), cudaSuccess);
    CHECK_EQ(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK(is_active(0)); /* the runtime API uses it now */
    CHECK_EQ(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
}

/* ---- plain memory and pointers --------------------------------------------------------------- */

TEST(pointers_say_what_they_are)
{
    scene of = open_scene();
    unsigned type = 0;
    int ordinal = -1;
    CUdeviceptr base = 0;
    size_t size = 0;
    CUdeviceptr local = (CUdeviceptr)(uintptr_t)&local;
    CHECK_EQ(cuMemGetAddressRange(&base, &size, of.block + BLOCK_BYTES - 1), CUDA_SUCCESS);
    CHECK_EQ(base, of.block);
    CHECK_EQ(size, BLOCK_BYTES);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, of.block + 1),
             CUDA_SUCCESS);
    CHECK_EQ(type, CU_MEMORYTYPE_DEVICE);
    CHECK_EQ(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, of.block + 1),
             CUDA_SUCCESS);
    CHECK_EQ(ordinal, 0);
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, local),
             CUDA_ERROR_INVALID_VALUE);
    close_scene(&of);
}

TEST(locked_memory_is_the_hosts_and_the_devices)
{
    scene of = open_scene();
    unsigned type = 0;
    void *memory = NULL;
    CHECK_EQ(cudaHostAlloc(&memory, BLOCK_BYTES, cudaHostAllocDefault), cudaSuccess);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory;
    CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address), CUDA_SUCCESS);
    CHECK_EQ(type, CU_MEMORYTYPE_HOST);
    CHECK_EQ(cuStreamWriteValue32(of.stream, address + 4, 42, 0), CUDA_SUCCESS);
    CHECK_EQ(((uint32_t *)memory)[1], 0);
    CHECK_EQ(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    CHECK_EQ(((uint32_t *)memory)[1], 42);
    CHECK_EQ(cudaFreeHost(memory), cudaSuccess);
    close_scene(&of);
}

/* ---- kernels and captures -------------------------------------------------------------------- */

TEST(a_loaded_kernel_is_launched)
{
    scene of = open_scene();
    CUmodule module = NULL;
    CUfunction function = NULL;
    int blocks = 0;
    CHECK_EQ(cuModuleLoadData(&module, "image"), CUDA_SUCCESS);
    CHECK_EQ(cuModuleGetFunction(&function, module, "add"), CUDA_SUCCESS);
    CHECK_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 256, 0), CUDA_SUCCESS);
    CHECK_EQ(blocks, 8);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, of.stream, NULL, NULL), CUDA_SUCCESS);
    CHECK_EQ(gmlake_standin_pending(of.stream), 1);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, of.stream, NULL, NULL),
             CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, of.stream, NULL, NULL),
             CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    CHECK_EQ(gmlake_standin_pending(of.stream), 0);
    close_scene(&of);
}

TEST(a_captured_fill_happens_at_the_launch)
{
    scene of = open_scene();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    cudaGraphExec_t executable = NULL;
    unsigned word = 0;
    CHECK_EQ(cuMemsetD32Async(of.block, 1, 1, of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_EQ(cuStreamBeginCapture(of.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CHECK_EQ(cuStreamIsCapturing(of.stream, &status), CUDA_SUCCESS);
    CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CHECK_EQ(cuMemsetD32Async(of.block, 2, 1, of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuStreamEndCapture(of.stream, &graph), CUDA_SUCCESS);
    CHECK_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    CHECK_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(&word, of.block, sizeof word), CUDA_SUCCESS);
    CHECK_EQ(word, 1);
    CHECK_EQ(cudaGraphLaunch(executable, of.stream), cudaSuccess);
    CHECK_EQ(cuStreamSynchronize(of.stream), CUDA_SUCCESS);
    CHECK_EQ(cuMemcpyDtoH(&word, of.block, sizeof word), CUDA_SUCCESS);
    CHECK_EQ(word, 2);
    CHECK_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
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
    if (cuInit(0) != CUDA_SUCCESS) {
        return 1;
    }
    RUN(what_pytorch_wants_is_found);
    RUN(a_plain_name_finds_the_form_that_the_header_means);
    RUN(an_unknown_name_is_not_found);
    RUN(devices_describe_themselves);
    RUN(errors_have_names_and_words);
    RUN(a_new_thread_has_no_context);
    RUN(contexts_are_a_stack);
    RUN(a_context_lives_while_it_is_held);
    RUN(pointers_say_what_they_are);
    RUN(locked_memory_is_the_hosts_and_the_devices);
    RUN(a_loaded_kernel_is_launched);
    RUN(a_captured_fill_happens_at_the_launch);
    return report();
}
