/* cuBLAS: handles, and products by the exact bytes of their operands. */
#include "standin/libraries/libraries.h"

void *standin_new_handle(void) {
    return standin_new(sizeof(standin_handle));
}

void standin_set_stream(standin_handle *handle, cudaStream_t stream, void *workspace,
                        size_t workspace_bytes) {
    handle->stream = stream;
    handle->workspace = workspace;
    handle->workspace_bytes = workspace_bytes;
}

standin_range standin_range_of(const void *data, uint64_t size_bytes) {
    return (standin_range){(gml_address)(uintptr_t)data, data == NULL ? 0 : size_bytes};
}

/* Bits of one element; 0 for a type that PyTorch has no products of. */
static unsigned bits_of(cudaDataType type) {
    static const unsigned char bits[] = {
        [CUDA_R_16F] = 16, [CUDA_R_16BF] = 16,   [CUDA_R_32F] = 32,    [CUDA_R_64F] = 64,
        [CUDA_C_32F] = 64, [CUDA_C_64F] = 128,   [CUDA_R_8I] = 8,      [CUDA_R_32I] = 32,
        [CUDA_R_8U] = 8,   [CUDA_R_8F_E4M3] = 8, [CUDA_R_8F_E5M2] = 8,
    };
    return (size_t)type < sizeof bits ? bits[type] : 0;
}

standin_range standin_matrix_range(const standin_matrix *matrix, int64_t batches) {
    if (matrix->rows <= 0 || matrix->columns <= 0 || batches <= 0) {
        return standin_range_of(matrix->data, 0);
    }
    int64_t elements =
        (matrix->columns - 1) * matrix->leading + matrix->rows + (batches - 1) * matrix->stride;
    return standin_range_of(matrix->data, (uint64_t)elements * bits_of(matrix->type) / 8);
}

cublasStatus_t standin_cublas_status(cudaError_t error) {
    return error == cudaSuccess                 ? CUBLAS_STATUS_SUCCESS
           : error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED
                                                : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* A matrix of rows x columns as the operation sees it lies transposed in memory. */
static standin_range operand(standin_matrix *matrix, bool is_plain, int64_t rows, int64_t columns,
                             int64_t batches) {
    matrix->rows = is_plain ? rows : columns;
    matrix->columns = is_plain ? columns : rows;
    return standin_matrix_range(matrix, batches);
}

cublasStatus_t standin_multiply(standin_handle *handle, cublasOperation_t transpose_a,
                                cublasOperation_t transpose_b, int64_t m, int64_t n, int64_t k,
                                int64_t batches, standin_matrix *operands) {
    if (m == 0 || n == 0 || batches == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    standin_range ranges[] = {
        operand(&operands[0], transpose_a == CUBLAS_OP_N, m, k, batches),
        operand(&operands[1], transpose_b == CUBLAS_OP_N, k, n, batches),
        operand(&operands[2], true, m, n, batches),
        standin_range_of(handle->workspace, handle->workspace_bytes),
    };
    return standin_cublas_status(standin_run_nothing(handle->stream, ranges, 4));
}
