/* Kernels and libraries: what they touch is exactly what the real ones would, descriptors keep what
 * they were told, and what has no behaviour says so. */
#include "libraries/dnn.h"
#include "memory_support.h"

#include <pthread.h>

#pragma GCC visibility push(default)
#include <cufftXt.h>
#include <cupti.h>
#include <cusolverDn.h>
#include <nccl.h>
#pragma GCC visibility pop

/* What code compiled by nvcc calls. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread, uint3 *block,
                            dim3 *block_dim, dim3 *grid_dim, int *warp_size);
void __cudaRegisterVar(void **module, char *host_variable, char *device_address, const char *name,
                       int is_extern, size_t size, int is_constant, int is_global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

static char kernel, variable; /* their addresses stand for them */

/* ---- kernels --------------------------------------------------------------------------------- */

static void **
register_code(void)
{
    static char name[] = "add_one", variable_name[] = "table";
    void **module = __cudaRegisterFatBinary(&kernel);
    __cudaRegisterFunction(module, &kernel, name, name, -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(module, &variable, variable_name, variable_name, 0, 48, 0, 0);
    __cudaRegisterFatBinaryEnd(module);
    return module;
}

TEST(launches_are_checked_and_queued)
{
    const dim3 one = {1, 1, 1}, none = {0, 1, 1}, many = {1024, 2, 1};
    void **module = register_code();
    set_pace("manual");
    cudaStream_t stream = new_stream();
    CHECK_CUDA(cudaLaunchKernel(&kernel, one, one, NULL, 0, stream));
    CHECK_CUDA(cudaLaunchKernelExC(
        &(cudaLaunchConfig_t){.gridDim = one, .blockDim = one, .stream = stream}, &kernel, NULL));
    CHECK_EQ(gmlake_standin_pending(stream), 2);
    CHECK_EQ(cudaLaunchKernel(&kernel, none, one, NULL, 0, stream), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaLaunchKernel(&kernel, one, many, NULL, 0, stream), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaLaunchKernel(&stream, one, one, NULL, 0, stream), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(gmlake_standin_pending(stream), 2);
    CHECK_CUDA(cudaStreamSynchronize(stream));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
    CHECK_CUDA(cudaStreamDestroy(stream));
    set_pace("eager");
    (void)cudaGetLastError();
    __cudaUnregisterFatBinary(module);
}

TEST(functions_describe_themselves)
{
    void **module = register_code();
    struct cudaFuncAttributes attributes;
    int blocks = 0;
    CHECK_CUDA(cudaFuncGetAttributes(&attributes, &kernel));
    CHECK_EQ(attributes.ptxVersion, 90);
    CHECK_EQ(attributes.maxThreadsPerBlock, 1024);
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &kernel, 256, 0));
    CHECK_EQ(blocks, 8);
    CHECK_EQ(cudaFuncGetAttributes(&attributes, &blocks), cudaErrorInvalidDeviceFunction);
    (void)cudaGetLastError();
    __cudaUnregisterFatBinary(module);
}

TEST(device_variables_have_one_place)
{
    void **module = register_code();
    void *first = NULL, *again = NULL;
    CHECK_CUDA(cudaGetSymbolAddress(&first, &variable));
    CHECK_CUDA(cudaGetSymbolAddress(&again, &variable));
    CHECK(first != NULL && first == again);
    CHECK_CUDA(cudaMemset(first, 1, 48));
    CHECK_EQ(cudaGetSymbolAddress(&first, &kernel), cudaErrorInvalidSymbol);
    (void)cudaGetLastError();
    __cudaUnregisterFatBinary(module);
}

static void *
pop_in_another_thread(void *unused)
{
    dim3 grid, block;
    size_t shared_bytes = 0;
    cudaStream_t stream = NULL;
    (void)unused;
    CHECK_EQ(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, (void *)&stream),
             cudaErrorMissingConfiguration);
    return NULL;
}

/* f<<<a>>>(g<<<b>>>()): the inner launch takes its configuration first. */
TEST(call_configurations_are_handed_over)
{
    pthread_t thread;
    dim3 grid = {0, 0, 0}, block = {0, 0, 0};
    size_t shared_bytes = 0;
    cudaStream_t stream = new_stream(), popped = NULL;
    CHECK_EQ(__cudaPushCallConfiguration((dim3){7, 6, 5}, (dim3){4, 3, 2}, 11, stream), 0);
    CHECK_EQ(__cudaPushCallConfiguration((dim3){1, 1, 1}, (dim3){1, 1, 1}, 0, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, pop_in_another_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_CUDA(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, (void *)&popped));
    CHECK(grid.x == 1 && popped == NULL);
    CHECK_CUDA(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, (void *)&popped));
    CHECK(grid.x == 7 && grid.y == 6 && grid.z == 5 && block.x == 4 && block.y == 3 &&
          block.z == 2);
    CHECK(shared_bytes == 11 && popped == stream);
    (void)pop_in_another_thread(NULL);
    CHECK_CUDA(cudaStreamDestroy(stream));
}

/* ---- cuBLAS ---------------------------------------------------------------------------------- */

typedef struct shapes {
    cublasOperation_t transpose_a, transpose_b;
    int m, n, k, lda, ldb, ldc;
    uint64_t a_bytes, b_bytes, c_bytes; /* what the product touches, counted by hand */
} shapes;

/* 5 x 3 times 3 x 4 in floats; with gaps between columns the last column has none. */
static const shapes products[] = {
    {CUBLAS_OP_N, CUBLAS_OP_N, 5, 4, 3, 5, 3, 5, 60, 48, 80},
    {CUBLAS_OP_T, CUBLAS_OP_N, 5, 4, 3, 3, 3, 5, 60, 48, 80},
    {CUBLAS_OP_N, CUBLAS_OP_T, 5, 4, 3, 8, 6, 9, 84, 64, 128},
    {CUBLAS_OP_C, CUBLAS_OP_T, 5, 4, 3, 10, 4, 7, 172, 48, 104},
};

/* A block whose last `size_bytes` bytes begin where the result points to; `extra` more lie behind
 * the block's end. */
static char *
at_end_of(char *block, uint64_t block_bytes, uint64_t size_bytes, uint64_t extra)
{
    return block + (block_bytes - size_bytes) + extra;
}

static cublasStatus_t
multiply(cublasHandle_t handle, const shapes *with, const char *a, const char *b, char *c)
{
    const float one = 1.0F;
    return cublasSgemm_v2(handle, with->transpose_a, with->transpose_b, with->m, with->n, with->k,
                          &one, (const void *)a, with->lda, (const void *)b, with->ldb, &one,
                          (void *)c, with->ldc);
}

TEST(products_touch_their_operands_exactly)
{
    enum { BLOCK_BYTES = 4096 };
    char *block = device_memory(BLOCK_BYTES);
    cublasHandle_t handle = NULL;
    CHECK_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const shapes *with = &products[i];
        char *a = at_end_of(block, BLOCK_BYTES, with->a_bytes, 0);
        char *b = at_end_of(block, BLOCK_BYTES, with->b_bytes, 0);
        char *c = at_end_of(block, BLOCK_BYTES, with->c_bytes, 0);
        CHECK_EQ(multiply(handle, with, a, b, c), CUBLAS_STATUS_SUCCESS);
        CHECK_MISUSE(multiply(handle, with, a + 1, b, c), CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_MISUSE(multiply(handle, with, a, b + 1, c), CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_MISUSE(multiply(handle, with, a, b, c + 1), CUBLAS_STATUS_EXECUTION_FAILED);
    }
    CHECK_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(block));
}

TEST(impossible_products_are_refused)
{
    shapes with = products[0];
    char *block = device_memory(4096);
    cublasHandle_t handle = NULL;
    CHECK_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    with.lda = 4;
    CHECK_EQ(multiply(handle, &with, block, block, block), CUBLAS_STATUS_INVALID_VALUE);
    with = products[0];
    with.k = -1;
    CHECK_EQ(multiply(handle, &with, block, block, block), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_EQ(multiply(NULL, &products[0], block, block, block), CUBLAS_STATUS_NOT_INITIALIZED);
    with.k = 3;
    with.m = 0;
    CHECK_EQ(multiply(handle, &with, NULL, NULL, NULL), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(block));
}

/* Three batches of 2 x 2 halves, 10 elements apart: the last ends at element 24. */
TEST(batches_count_by_their_stride)
{
    enum { BYTES = 24 * 2 };
    const float one = 1.0F;
    char *a = device_memory(4096), *c = device_memory(4096);
    cublasHandle_t handle = NULL;
    CHECK_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    for (uint64_t extra = 0; extra < 2; extra++) {
        uint64_t before = gmlake_standin_misuses();
        cublasStatus_t status = cublasGemmStridedBatchedEx(
            handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_16F, 2, 10, a, CUDA_R_16F, 2,
            0, &one, at_end_of(c, 4096, BYTES, extra), CUDA_R_16F, 2, 10, 3, CUBLAS_COMPUTE_32F,
            CUBLAS_GEMM_DEFAULT);
        CHECK_EQ(status, extra == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_EQ(gmlake_standin_misuses() - before, extra);
    }
    CHECK_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(a));
    CHECK_CUDA(cudaFree(c));
}

TEST(products_find_what_was_unmapped)
{
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle memory = 0;
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    CUmemAccessDesc access = {.location.type = CU_MEM_LOCATION_TYPE_DEVICE,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    char *block = device_memory(4096);
    cublasHandle_t handle = NULL;
    CHECK_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cuMemAddressReserve(&address, 4 * MIB, 0, 0, 0));
    CHECK_CUDA(cuMemCreate(&memory, 2 * MIB, &kind, 0));
    CHECK_CUDA(cuMemMap(address, 2 * MIB, 0, memory, 0));
    CHECK_CUDA(cuMemSetAccess(address, 2 * MIB, &access, 1));
    char *mapped = (char *)(uintptr_t)address;
    CHECK_EQ(multiply(handle, &products[0], block, block, mapped), CUBLAS_STATUS_SUCCESS);
    CHECK_MISUSE(multiply(handle, &products[0], block, block, mapped + 2 * MIB),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK_CUDA(cuMemUnmap(address, 2 * MIB));
    CHECK_MISUSE(multiply(handle, &products[0], block, block, mapped),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK_CUDA(cuMemRelease(memory));
    CHECK_CUDA(cuMemAddressFree(address, 4 * MIB));
    CHECK_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(block));
}

TEST(products_use_the_workspace_until_the_stream_changes)
{
    char *block = device_memory(4096), *workspace = device_memory(4096);
    cublasHandle_t handle = NULL;
    CHECK_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasSetWorkspace_v2(handle, workspace, 4096), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(multiply(handle, &products[0], block, block, block), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(workspace));
    CHECK_MISUSE(multiply(handle, &products[0], block, block, block),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK_EQ(cublasSetStream_v2(handle, NULL), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(multiply(handle, &products[0], block, block, block), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(block));
}

TEST(numbers_go_where_the_pointer_mode_says)
{
    float *device = device_memory(4096);
    float host = 5.0F;
    cublasHandle_t handle = NULL;
    CHECK_EQ(cublasCreate_v2(&handle), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasSdot_v2(handle, 8, device, 2, device, -3, &host), CUBLAS_STATUS_SUCCESS);
    CHECK(host == 0.0F);
    CHECK_EQ(cublasSetPointerMode_v2(handle, CUBLAS_POINTER_MODE_DEVICE), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasSdot_v2(handle, 8, device, 2, device, -3, device), CUBLAS_STATUS_SUCCESS);
    CHECK_MISUSE(cublasSdot_v2(handle, 8, device, 2, device, -3, &host),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    CHECK_EQ(cublasDestroy_v2(handle), CUBLAS_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(device));
}

/* ---- cuBLASLt -------------------------------------------------------------------------------- */

typedef struct light {
    cublasLtMatmulDesc_t descriptor;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulPreference_t preference;
} light;

/* 4 x 3 times 3 x 2 in halves, all of it transposed: d lies by rows, 5 elements apart. */
static light
light_product(void)
{
    light made;
    int32_t order = CUBLASLT_ORDER_ROW;
    cublasOperation_t transposed = CUBLAS_OP_T;
    CHECK_EQ(cublasLtMatmulDescCreate(&made.descriptor, CUBLAS_COMPUTE_32F, CUDA_R_32F), 0);
    CHECK_EQ(cublasLtMatmulDescSetAttribute(made.descriptor, CUBLASLT_MATMUL_DESC_TRANSA,
                                            &transposed, sizeof transposed),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutCreate(&made.a, CUDA_R_16F, 3, 4, 3), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutCreate(&made.b, CUDA_R_16F, 3, 2, 3), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutCreate(&made.d, CUDA_R_16F, 4, 2, 5), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutSetAttribute(made.d, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                              sizeof order),
             CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutSetAttribute(made.d, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 1),
             CUBLAS_STATUS_INVALID_VALUE);
    CHECK_EQ(cublasLtMatmulPreferenceCreate(&made.preference), CUBLAS_STATUS_SUCCESS);
    return made;
}

static void
destroy_light(light *made)
{
    CHECK_EQ(cublasLtMatmulDescDestroy(made->descriptor), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutDestroy(made->a), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutDestroy(made->b), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatrixLayoutDestroy(made->d), CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(cublasLtMatmulPreferenceDestroy(made->preference), CUBLAS_STATUS_SUCCESS);
}

TEST(light_products_have_algorithms_and_ranges)
{
    const float one = 1.0F;
    enum { D_BYTES = ((4 - 1) * 5 + 2) * 2 };
    cublasLtMatmulHeuristicResult_t results[2];
    int count = 0;
    char *block = device_memory(4096);
    light made = light_product();
    CHECK_EQ(cublasLtMatmulAlgoGetHeuristic(NULL, made.descriptor, made.a, made.b, made.d, made.d,
                                            made.preference, 2, results, &count),
             CUBLAS_STATUS_SUCCESS);
    CHECK(count >= 1 && count <= 2);
    CHECK_EQ(results[0].state, CUBLAS_STATUS_SUCCESS);
    CHECK_EQ(results[0].workspaceSize, 0);
    for (uint64_t extra = 0; extra < 2; extra++) {
        uint64_t before = gmlake_standin_misuses();
        char *d = at_end_of(block, 4096, D_BYTES, extra);
        cublasStatus_t status =
            cublasLtMatmul(NULL, made.descriptor, &one, block, made.a, block, made.b, &one, d,
                           made.d, d, made.d, &results[0].algo, NULL, 0, NULL);
        CHECK_EQ(status, extra == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_EQ(gmlake_standin_misuses() - before, extra);
    }
    CHECK_EQ(cublasLtMatmulAlgoGetHeuristic(NULL, made.descriptor, made.b, made.a, made.d, made.d,
                                            made.preference, 2, results, &count),
             CUBLAS_STATUS_INVALID_VALUE);
    CHECK_EQ(count, 0);
    destroy_light(&made);
    CHECK_CUDA(cudaFree(block));
}

/* ---- others ---------------------------------------------------------------------------------- */

/* Two transforms of 8 reals to 5 complex numbers: 64 bytes in, 80 out. */
TEST(transforms_touch_input_and_output)
{
    long long size = 8;
    size_t workspace_bytes = 0;
    cufftHandle plan = 0;
    char *block = device_memory(4096);
    CHECK_EQ(cufftCreate(&plan), CUFFT_SUCCESS);
    CHECK_EQ(cufftXtMakePlanMany(plan, 1, &size, NULL, 1, 1, CUDA_R_32F, NULL, 1, 1, CUDA_C_32F, 2,
                                 &workspace_bytes, CUDA_C_32F),
             CUFFT_SUCCESS);
    CHECK_EQ(workspace_bytes, 80);
    CHECK_EQ(cufftXtExec(plan, at_end_of(block, 4096, 64, 0), at_end_of(block, 4096, 80, 0), 0),
             CUFFT_SUCCESS);
    CHECK_MISUSE(cufftXtExec(plan, at_end_of(block, 4096, 64, 1), block, 0), CUFFT_EXEC_FAILED);
    CHECK_MISUSE(cufftXtExec(plan, block, at_end_of(block, 4096, 80, 1), 0), CUFFT_EXEC_FAILED);
    CHECK_EQ(cufftDestroy(plan), CUFFT_SUCCESS);
    CHECK_CUDA(cudaFree(block));
}

TEST(solvers_report_success_on_the_device)
{
    int report_on_host = 7;
    int size = 0;
    int *report_on_device = device_memory(4);
    float *matrix = device_memory(4096);
    cusolverDnHandle_t handle = NULL;
    CHECK_EQ(cusolverDnCreate(&handle), CUSOLVER_STATUS_SUCCESS);
    CHECK_EQ(cusolverDnSgetrf_bufferSize(handle, 4, 4, matrix, 4, &size), CUSOLVER_STATUS_SUCCESS);
    CHECK(size > 0);
    CHECK_CUDA(cudaMemset(report_on_device, 0xff, 4));
    CHECK_EQ(cusolverDnSgetrf(handle, 4, 4, matrix, 4, matrix, NULL, report_on_device),
             CUSOLVER_STATUS_SUCCESS);
    CHECK_CUDA(cudaMemcpy(&report_on_host, report_on_device, 4, cudaMemcpyDeviceToHost));
    CHECK_EQ(report_on_host, 0);
    CHECK_EQ(cusolverDnDestroy(handle), CUSOLVER_STATUS_SUCCESS);
    CHECK_CUDA(cudaFree(report_on_device));
    CHECK_CUDA(cudaFree(matrix));
}

TEST(what_is_missing_says_so)
{
    uint32_t version = 0;
    ncclUniqueId id;
    CHECK_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
    CHECK_EQ(version, CUPTI_API_VERSION);
    CHECK_EQ(cuptiActivityFlushAll(0), CUPTI_ERROR_NOT_SUPPORTED);
    CHECK_EQ(ncclGetUniqueId(&id), ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(NULL), "gloo") != NULL);
    CHECK_EQ(cudnnGetVersion(), CUDNN_VERSION);
    CHECK(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED) != NULL);
    /* The older convolutions, and a call of the runtime that would have to make something. */
    cudnnConvolutionDescriptor_t convolution = NULL;
    struct cudaPitchedPtr cube = {0};
    CHECK_EQ(cudnnCreateConvolutionDescriptor(&convolution), CUDNN_STATUS_NOT_SUPPORTED);
    CHECK_EQ(cudaMalloc3D(&cube, (struct cudaExtent){100, 4, 3}), cudaErrorNotSupported);
}

static void
run_all(void)
{
    RUN(launches_are_checked_and_queued);
    RUN(functions_describe_themselves);
    RUN(device_variables_have_one_place);
    RUN(call_configurations_are_handed_over);
    RUN(products_touch_their_operands_exactly);
    RUN(impossible_products_are_refused);
    RUN(batches_count_by_their_stride);
    RUN(products_find_what_was_unmapped);
    RUN(products_use_the_workspace_until_the_stream_changes);
    RUN(numbers_go_where_the_pointer_mode_says);
    RUN(light_products_have_algorithms_and_ranges);
    RUN(transforms_touch_input_and_output);
    RUN(solvers_report_success_on_the_device);
    RUN(what_is_missing_says_so);
}

int
main(void)
{
    return run_in_both_modes(run_all);
}
