/* cuBLAS: handles, their modes, and transfers. */
#include "libraries.h"

#include <stdlib.h>

cublasStatus_t
standin_cublas_status(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return CUBLAS_STATUS_SUCCESS;
    case cudaErrorMemoryAllocation:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case cudaErrorInvalidValue:
        return CUBLAS_STATUS_INVALID_VALUE;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

cublasStatus_t
standin_cublas_run(const char *name, cublasHandle_t handle, const standin_range *ranges, int count)
{
    standin_range all[STANDIN_MOST_RANGES] = {{0}};
    int used = 0;
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    while (used < count && used < STANDIN_MOST_RANGES - 1) {
        all[used] = ranges[used];
        used++;
    }
    all[used++] = standin_range_of(handle->workspace, handle->workspace_bytes);
    return standin_cublas_status(standin_run_nothing(name, handle->stream, all, used));
}

cublasStatus_t
cublasCreate_v2(cublasHandle_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasDestroy_v2(cublasHandle_t handle)
{
    CALLED();
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* cuBLAS forgets the workspace that it was given when the stream changes. */
cublasStatus_t
cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    CALLED();
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    handle->stream = stream;
    handle->workspace = NULL;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size)
{
    CALLED();
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if ((uintptr_t)workspace % 256 != 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->workspace = workspace;
    handle->workspace_bytes = size;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    CALLED();
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    handle->math_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasGetMathMode(cublasHandle_t handle, cublasMath_t *out)
{
    CALLED();
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *out = handle->math_mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
    CALLED();
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    handle->pointer_mode = mode;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *out)
{
    CALLED();
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *out = handle->pointer_mode;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- transfers ------------------------------------------------------------------------------- */

/* Column by column; a vector is a matrix of one row. */
static cublasStatus_t
transfer(const char *name, const standin_matrix *to, const standin_matrix *from, int element_bytes,
         cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    standin_enter();
    for (int64_t i = 0; i < from->columns && error == cudaSuccess; i++) {
        error = standin_copy(name, (char *)(uintptr_t)to->data + i * to->leading * element_bytes,
                             (const char *)from->data + i * from->leading * element_bytes,
                             (uint64_t)(from->rows * element_bytes), stream, false);
    }
    standin_leave();
    return standin_cublas_status(error);
}

cublasStatus_t
cublasSetMatrixAsync(int rows, int columns, int element_bytes, const void *a, int lda, void *b,
                     int ldb, cudaStream_t stream)
{
    CALLED();
    standin_matrix from = {.data = a, .rows = rows, .columns = columns, .leading = lda};
    standin_matrix to = {.data = b, .leading = ldb};
    return transfer(__func__, &to, &from, element_bytes, stream);
}

cublasStatus_t
cublasGetMatrixAsync(int rows, int columns, int element_bytes, const void *a, int lda, void *b,
                     int ldb, cudaStream_t stream)
{
    CALLED();
    standin_matrix from = {.data = a, .rows = rows, .columns = columns, .leading = lda};
    standin_matrix to = {.data = b, .leading = ldb};
    return transfer(__func__, &to, &from, element_bytes, stream);
}

cublasStatus_t
cublasSetVectorAsync(int n, int element_bytes, const void *x, int incx, void *y, int incy,
                     cudaStream_t stream)
{
    CALLED();
    standin_matrix from = {.data = x, .rows = 1, .columns = n, .leading = incx};
    standin_matrix to = {.data = y, .leading = incy};
    return transfer(__func__, &to, &from, element_bytes, stream);
}

cublasStatus_t
cublasGetVectorAsync(int n, int element_bytes, const void *x, int incx, void *y, int incy,
                     cudaStream_t stream)
{
    CALLED();
    standin_matrix from = {.data = x, .rows = 1, .columns = n, .leading = incx};
    standin_matrix to = {.data = y, .leading = incy};
    return transfer(__func__, &to, &from, element_bytes, stream);
}
