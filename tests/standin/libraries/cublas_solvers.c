/* cuBLAS: solvers of linear systems. Those of batches behind arrays of pointers, which cannot be
 * followed, are written by generate_stubs.py. */
#include "libraries.h"

/* A triangular system: the triangle, and the right-hand sides that become the solution. */
static cublasStatus_t
solve(const char *name, cublasHandle_t handle, cublasSideMode_t side, standin_matrix *triangle,
      standin_matrix *sides)
{
    triangle->rows = triangle->columns = side == CUBLAS_SIDE_LEFT ? sides->rows : sides->columns;
    standin_range ranges[] = {standin_matrix_range(triangle), standin_matrix_range(sides)};
    return standin_cublas_run(name, handle, ranges, 2);
}

cublasStatus_t
cublasStrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
               cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const float *alpha,
               const float *a, int lda, float *b, int ldb)
{
    CALLED();
    (void)uplo, (void)trans, (void)diag, (void)alpha;
    standin_matrix triangle = {a, CUDA_R_32F, 0, 0, lda, 1, 0},
                   sides = {b, CUDA_R_32F, m, n, ldb, 1, 0};
    return solve(__func__, handle, side, &triangle, &sides);
}

cublasStatus_t
cublasDtrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
               cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const double *alpha,
               const double *a, int lda, double *b, int ldb)
{
    CALLED();
    (void)uplo, (void)trans, (void)diag, (void)alpha;
    standin_matrix triangle = {a, CUDA_R_64F, 0, 0, lda, 1, 0},
                   sides = {b, CUDA_R_64F, m, n, ldb, 1, 0};
    return solve(__func__, handle, side, &triangle, &sides);
}

cublasStatus_t
cublasCtrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
               cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const cuComplex *alpha,
               const cuComplex *a, int lda, cuComplex *b, int ldb)
{
    CALLED();
    (void)uplo, (void)trans, (void)diag, (void)alpha;
    standin_matrix triangle = {a, CUDA_C_32F, 0, 0, lda, 1, 0},
                   sides = {b, CUDA_C_32F, m, n, ldb, 1, 0};
    return solve(__func__, handle, side, &triangle, &sides);
}

cublasStatus_t
cublasZtrsm_v2(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
               cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
               const cuDoubleComplex *alpha, const cuDoubleComplex *a, int lda, cuDoubleComplex *b,
               int ldb)
{
    CALLED();
    (void)uplo, (void)trans, (void)diag, (void)alpha;
    standin_matrix triangle = {a, CUDA_C_64F, 0, 0, lda, 1, 0},
                   sides = {b, CUDA_C_64F, m, n, ldb, 1, 0};
    return solve(__func__, handle, side, &triangle, &sides);
}

void
standin_cublas_success(const char *name, struct cublasContext *handle, int *info, int64_t count)
{
    if (handle != NULL) {
        (void)standin_report_success(name, handle->stream, info, count);
    }
}
