/* Kernels and libraries: what they touch is exactly what the real ones would, and what has no
 * behaviour says so. */
#include "standin/libraries/dnn.h"
#include "support.h"

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

/* What code compiled by nvcc calls. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
void __cudaRegisterFunction(void **module, const char *host_function, char *device_function,
                            const char *name, int thread_limit, uint3 *thread, uint3 *block,
                            dim3 *block_dim, dim3 *grid_dim, int *warp_size);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

CASE(launches_are_checked_and_queued) {
    static char kernel; /* its address stands for it */
    const dim3 one = {1, 1, 1}, none = {0, 1, 1}, many = {1024, 2, 1};
    __cudaRegisterFunction(NULL, &kernel, &kernel, "add", -1, NULL, NULL, NULL, NULL, NULL);
    set_pace("manual");
    cudaStream_t stream = new_stream();
    OK(cudaLaunchKernel(&kernel, one, one, NULL, 0, stream));
    OK(cudaLaunchKernelExC(&(cudaLaunchConfig_t){.gridDim = one, .blockDim = one, .stream = stream},
                           &kernel, NULL));
    CHECK_EQ(cudaLaunchKernel(&kernel, none, one, NULL, 0, stream), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaLaunchKernel(&kernel, one, many, NULL, 0, stream), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    CHECK_EQ(cudaLaunchKernel(&stream, one, one, NULL, 0, stream), cudaErrorInvalidDeviceFunction);
    CHECK_EQ(gmlake_standin_pending(stream), 2);
    OK(cudaStreamSynchronize(stream));
    CHECK_EQ(gmlake_standin_pending(stream), 0);
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
static char *at_end_of(char *block, uint64_t block_bytes, uint64_t size_bytes, uint64_t extra) {
    return block + (block_bytes - size_bytes) + extra;
}

static cublasStatus_t multiply(cublasHandle_t handle, const shapes *with, const char *a,
                               const char *b, char *c) {
    const float one = 1.0F;
    return cublasSgemm_v2(handle, with->transpose_a, with->transpose_b, with->m, with->n, with->k,
                          &one, (const void *)a, with->lda, (const void *)b, with->ldb, &one,
                          (void *)c, with->ldc);
}

CASE(products_touch_their_operands_exactly) {
    enum { BLOCK_BYTES = 4096 };
    char *block = device_memory(BLOCK_BYTES);
    cublasHandle_t handle = NULL;
    OK(cublasCreate_v2(&handle));
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const shapes *with = &products[i];
        char *a = at_end_of(block, BLOCK_BYTES, with->a_bytes, 0);
        char *b = at_end_of(block, BLOCK_BYTES, with->b_bytes, 0);
        char *c = at_end_of(block, BLOCK_BYTES, with->c_bytes, 0);
        OK(multiply(handle, with, a, b, c));
        CHECK_MISUSE(multiply(handle, with, a + 1, b, c), CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_MISUSE(multiply(handle, with, a, b + 1, c), CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_MISUSE(multiply(handle, with, a, b, c + 1), CUBLAS_STATUS_EXECUTION_FAILED);
    }
    OK(cublasDestroy_v2(handle));
}

/* Three batches of 2 x 2 halves, 10 elements apart: the last ends at element 24. */
CASE(batches_count_by_their_stride) {
    enum { BYTES = 24 * 2 };
    const float one = 1.0F;
    char *a = device_memory(4096), *c = device_memory(4096);
    cublasHandle_t handle = NULL;
    OK(cublasCreate_v2(&handle));
    for (uint64_t extra = 0; extra < 2; extra++) {
        uint64_t before = gmlake_standin_misuses();
        cublasStatus_t status = cublasGemmStridedBatchedEx(
            handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, a, CUDA_R_16F, 2, 10, a, CUDA_R_16F, 2,
            0, &one, at_end_of(c, 4096, BYTES, extra), CUDA_R_16F, 2, 10, 3, CUBLAS_COMPUTE_32F,
            CUBLAS_GEMM_DEFAULT);
        CHECK_EQ(status, extra == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_EQ(gmlake_standin_misuses() - before, extra);
    }
    OK(cublasDestroy_v2(handle));
}

CASE(products_find_what_was_unmapped) {
    CUdeviceptr address = new_reservation(2);
    char *block = device_memory(4096), *mapped = (char *)(uintptr_t)address;
    cublasHandle_t handle = NULL;
    OK(cublasCreate_v2(&handle));
    map_granule(address);
    OK(multiply(handle, &products[0], block, block, mapped));
    CHECK_MISUSE(multiply(handle, &products[0], block, block, mapped + GRANULE),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    OK(cuMemUnmap(address, GRANULE));
    CHECK_MISUSE(multiply(handle, &products[0], block, block, mapped),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    OK(cuMemAddressFree(address, 2 * GRANULE));
    OK(cublasDestroy_v2(handle));
}

CASE(products_use_the_workspace_until_the_stream_changes) {
    char *block = device_memory(4096), *workspace = device_memory(4096);
    cublasHandle_t handle = NULL;
    OK(cublasCreate_v2(&handle));
    OK(cublasSetWorkspace_v2(handle, workspace, 4096));
    OK(multiply(handle, &products[0], block, block, block));
    OK(cudaFree(workspace));
    CHECK_MISUSE(multiply(handle, &products[0], block, block, block),
                 CUBLAS_STATUS_EXECUTION_FAILED);
    OK(cublasSetStream_v2(handle, NULL));
    OK(multiply(handle, &products[0], block, block, block));
    OK(cublasDestroy_v2(handle));
}

/* 3 x 2 floats, columns 4 elements apart: 28 bytes. Every second element of a vector of 2: 12
 * bytes, and of the result 12 bytes. */
CASE(vectors_are_products_too) {
    const float one = 1.0F;
    char *block = device_memory(4096);
    cublasHandle_t handle = NULL;
    OK(cublasCreate_v2(&handle));
    for (uint64_t extra = 0; extra < 2; extra++) {
        uint64_t before = gmlake_standin_misuses();
        const void *a = at_end_of(block, 4096, 28, 0);
        const void *x = at_end_of(block, 4096, 12, 0);
        void *y = at_end_of(block, 4096, 12, extra);
        cublasStatus_t status =
            cublasSgemv_v2(handle, CUBLAS_OP_N, 3, 2, &one, a, 4, x, -2, &one, y, 1);
        CHECK_EQ(status, extra == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_EQ(gmlake_standin_misuses() - before, extra);
    }
    OK(cublasDestroy_v2(handle));
}

/* 4 x 3 times 3 x 2 in halves; the result lies by rows, 5 elements apart. */
CASE(light_products_have_algorithms_and_ranges) {
    const float one = 1.0F;
    const int32_t order = CUBLASLT_ORDER_ROW;
    enum { D_BYTES = ((4 - 1) * 5 + 2) * 2 };
    cublasLtMatmulDesc_t descriptor = NULL;
    cublasLtMatrixLayout_t layout_a = NULL, layout_b = NULL, layout_d = NULL;
    cublasLtMatmulHeuristicResult_t results[2];
    int count = 0;
    char *block = device_memory(4096);
    OK(cublasLtMatmulDescCreate(&descriptor, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatrixLayoutCreate(&layout_a, CUDA_R_16F, 4, 3, 4));
    OK(cublasLtMatrixLayoutCreate(&layout_b, CUDA_R_16F, 3, 2, 3));
    OK(cublasLtMatrixLayoutCreate(&layout_d, CUDA_R_16F, 4, 2, 5));
    OK(cublasLtMatrixLayoutSetAttribute(layout_d, CUBLASLT_MATRIX_LAYOUT_ORDER, &order,
                                        sizeof order));
    OK(cublasLtMatmulAlgoGetHeuristic(NULL, descriptor, layout_a, layout_b, layout_d, layout_d,
                                      NULL, 2, results, &count));
    CHECK_EQ(count, 2);
    CHECK_EQ(results[0].workspaceSize, 0);
    for (uint64_t extra = 0; extra < 2; extra++) {
        uint64_t before = gmlake_standin_misuses();
        char *d = at_end_of(block, 4096, D_BYTES, extra);
        cublasStatus_t status =
            cublasLtMatmul(NULL, descriptor, &one, block, layout_a, block, layout_b, &one, d,
                           layout_d, d, layout_d, &results[0].algo, NULL, 0, NULL);
        CHECK_EQ(status, extra == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED);
        CHECK_EQ(gmlake_standin_misuses() - before, extra);
    }
    OK(cublasLtMatmulDescDestroy(descriptor));
    OK(cublasLtMatrixLayoutDestroy(layout_a));
    OK(cublasLtMatrixLayoutDestroy(layout_b));
    OK(cublasLtMatrixLayoutDestroy(layout_d));
}

CASE(handles_of_light_products_are_made_and_given_back) {
    cublasLtHandle_t handle = NULL, other = NULL;
    OK(cublasLtCreate(&handle));
    OK(cublasLtCreate(&other));
    CHECK(handle != NULL && other != NULL && handle != other);
    OK(cublasLtDestroy(handle));
    OK(cublasLtDestroy(other));
    CHECK(strcmp(cublasGetStatusString(CUBLAS_STATUS_SUCCESS), "success") == 0);
    CHECK(strcmp(cublasGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED), "success") != 0);
}

/* Both ends lie at the end of a block, the second beyond it. */
CASE(collectives_of_one_rank_copy_what_it_has) {
    enum { COUNT = 100, BYTES = 4 * COUNT };
    ncclUniqueId id;
    ncclComm_t group = NULL, part = NULL, none = (ncclComm_t)(void *)&id;
    ncclResult_t error = ncclInternalError;
    int ranks = 0, rank = -1, device = -1;
    unsigned char seen[BYTES];
    char *from = device_memory(BYTES), *to = device_memory(BYTES);
    OK(cudaSetDevice(1));
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRankConfig(&group, 1, id, 0, NULL));
    OK(cudaSetDevice(0));
    OK(ncclCommCount(group, &ranks));
    OK(ncclCommUserRank(group, &rank));
    OK(ncclCommCuDevice(group, &device));
    OK(ncclCommGetAsyncError(group, &error));
    CHECK_EQ(ranks, 1);
    CHECK_EQ(rank, 0);
    CHECK_EQ(device, 1);
    CHECK_EQ(error, ncclSuccess);
    OK(ncclCommSplit(group, 3, 0, &part, NULL));
    OK(ncclCommSplit(group, NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
    CHECK(part != NULL && part != group && none == NULL);
    for (int i = 1; i <= 5; i++) {
        OK(cudaMemset(to, 0, BYTES));
        OK(cudaMemset(from, i, BYTES));
        OK(i == 1   ? ncclAllReduce(from, to, COUNT, ncclFloat, ncclSum, part, NULL)
           : i == 2 ? ncclAllGather(from, to, COUNT, ncclInt32, part, NULL)
           : i == 3 ? ncclReduceScatter(from, to, COUNT * 2, ncclBfloat16, ncclAvg, part, NULL)
           : i == 4 ? ncclBroadcast(from, to, COUNT / 2, ncclInt64, 0, part, NULL)
                    : ncclReduce(from, to, BYTES, ncclUint8, ncclMax, 0, part, NULL));
        OK(cudaMemcpy(seen, to, BYTES, cudaMemcpyDefault));
        CHECK(!is_backed() || holds_value(seen, i, BYTES));
    }
    OK(ncclBcast(to, COUNT, ncclFloat, 0, part, NULL));
    CHECK_EQ(ncclBcast(to, COUNT, ncclFloat, 1, part, NULL), ncclInvalidArgument);
    CHECK_EQ(ncclAllGather(from, to, 1, ncclNumTypes, part, NULL), ncclInvalidArgument);
    CHECK_MISUSE(ncclAllReduce(from, to, COUNT + 1000000, ncclFloat, ncclSum, part, NULL),
                 ncclUnhandledCudaError);
    CHECK_MISUSE(ncclBcast(to, COUNT + 1000000, ncclFloat, 0, part, NULL), ncclUnhandledCudaError);
    OK(ncclCommFinalize(part));
    OK(ncclCommDestroy(part));
    OK(ncclCommAbort(group));
}

CASE(what_is_missing_says_so) {
    ncclUniqueId id;
    ncclComm_t group = (ncclComm_t)(void *)&id;
    cudnnConvolutionDescriptor_t convolution = NULL;
    struct cudaPitchedPtr cube = {0};
    OK(ncclGetUniqueId(&id));
    CHECK_EQ(ncclCommInitRank(&group, 2, id, 0), ncclInvalidUsage);
    CHECK(group == NULL);
    CHECK_EQ(ncclSend(NULL, 1, ncclFloat, 0, NULL, NULL), ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(NULL), "gloo") != NULL);
    CHECK_EQ(cudnnCreateConvolutionDescriptor(&convolution), CUDNN_STATUS_NOT_SUPPORTED);
    CHECK_EQ(cudaMalloc3D(&cube, (struct cudaExtent){100, 4, 3}), cudaErrorNotSupported);
}

int main(void) {
    return run_cases("eager", false);
}
