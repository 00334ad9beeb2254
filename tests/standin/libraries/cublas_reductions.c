/* cuBLAS: operations on vectors that end in one number. Norms and indices, which PyTorch itself
 * does not call, are written by generate_stubs.py. */
#include "libraries.h"

#include <string.h>

/* ---- one number ------------------------------------------------------------------------------ */

/* Where the result goes, by the pointer mode: to the host now, or to the device by the operation.
 */
typedef struct result {
    void *data;
    size_t size_bytes;
} result;

static standin_range
vector_range(const void *data, cudaDataType type, int length, int step)
{
    standin_matrix vector = {
        .data = data,
        .type = type,
        .rows = 1,
        .columns = length,
        .leading = step < 0 ? -(int64_t)step : step,
        .batches = 1,
    };
    return standin_matrix_range(&vector);
}

/* The real calls wait for the stream when the host gets the result; here it is known at once: 0. */
static cublasStatus_t
reduce(const char *name, cublasHandle_t handle, standin_range x, standin_range y, result to)
{
    standin_range ranges[3] = {x, y};
    if (handle == NULL) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
        ranges[2] = standin_range_of(to.data, to.size_bytes);
    } else {
        memset(to.data, 0, to.size_bytes);
    }
    return standin_cublas_run(name, handle, ranges, 3);
}

cublasStatus_t
cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx, const float *y, int incy,
              float *out)
{
    CALLED();
    standin_range first = vector_range(x, CUDA_R_32F, n, incx);
    standin_range second = vector_range(y, CUDA_R_32F, n, incy);
    return reduce(__func__, handle, first, second, (result){out, sizeof *out});
}

cublasStatus_t
cublasDdot_v2(cublasHandle_t handle, int n, const double *x, int incx, const double *y, int incy,
              double *out)
{
    CALLED();
    standin_range first = vector_range(x, CUDA_R_64F, n, incx);
    standin_range second = vector_range(y, CUDA_R_64F, n, incy);
    return reduce(__func__, handle, first, second, (result){out, sizeof *out});
}

cublasStatus_t
cublasCdotc_v2(cublasHandle_t handle, int n, const cuComplex *x, int incx, const cuComplex *y,
               int incy, cuComplex *out)
{
    CALLED();
    standin_range first = vector_range(x, CUDA_C_32F, n, incx);
    standin_range second = vector_range(y, CUDA_C_32F, n, incy);
    return reduce(__func__, handle, first, second, (result){out, sizeof *out});
}

cublasStatus_t
cublasCdotu_v2(cublasHandle_t handle, int n, const cuComplex *x, int incx, const cuComplex *y,
               int incy, cuComplex *out)
{
    CALLED();
    standin_range first = vector_range(x, CUDA_C_32F, n, incx);
    standin_range second = vector_range(y, CUDA_C_32F, n, incy);
    return reduce(__func__, handle, first, second, (result){out, sizeof *out});
}

cublasStatus_t
cublasZdotc_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x, int incx,
               const cuDoubleComplex *y, int incy, cuDoubleComplex *out)
{
    CALLED();
    standin_range first = vector_range(x, CUDA_C_64F, n, incx);
    standin_range second = vector_range(y, CUDA_C_64F, n, incy);
    return reduce(__func__, handle, first, second, (result){out, sizeof *out});
}

cublasStatus_t
cublasZdotu_v2(cublasHandle_t handle, int n, const cuDoubleComplex *x, int incx,
               const cuDoubleComplex *y, int incy, cuDoubleComplex *out)
{
    CALLED();
    standin_range first = vector_range(x, CUDA_C_64F, n, incx);
    standin_range second = vector_range(y, CUDA_C_64F, n, incy);
    return reduce(__func__, handle, first, second, (result){out, sizeof *out});
}

cublasStatus_t
cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType type_x, int incx,
            const void *y, cudaDataType type_y, int incy, void *out, cudaDataType type_out,
            cudaDataType compute)
{
    CALLED();
    (void)compute;
    standin_range first = vector_range(x, type_x, n, incx);
    standin_range second = vector_range(y, type_y, n, incy);
    return reduce(__func__, handle, first, second, (result){out, standin_type_bits(type_out) / 8});
}

void
standin_cublas_number(const char *name, struct cublasContext *handle, void *out, size_t size_bytes)
{
    (void)reduce(name, handle, (standin_range){0}, (standin_range){0}, (result){out, size_bytes});
}
