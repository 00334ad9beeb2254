/* cuBLAS: solvers of linear systems. */
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

/* Matrices behind arrays of pointers in device memory; `info` is on the device, too. */
static cublasStatus_t
solve_behind_pointers(const char *name, cublasHandle_t handle, const void *a, const void *b,
                      int *info, int batches)
{
    uint64_t count = batches > 0 ? (uint64_t)batches : 0;
    standin_range ranges[] = {
        standin_range_of(a, count * sizeof(void *)),
        standin_range_of(b, count * sizeof(void *)),
    };
    cublasStatus_t status = standin_cublas_run(name, handle, ranges, 2);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    return standin_cublas_status(standin_report_success(name, handle->stream, info, batches));
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
cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n, const float *alpha,
                   const float *const a[], int lda, float *const b[], int ldb, int batches)
{
    CALLED();
    (void)side, (void)uplo, (void)trans, (void)diag, (void)m, (void)n, (void)alpha, (void)lda;
    (void)ldb;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

cublasStatus_t
cublasSgetrfBatched(cublasHandle_t handle, int n, float *const a[], int lda, int *pivots, int *info,
                    int batches)
{
    CALLED();
    (void)n, (void)lda, (void)pivots;
    return solve_behind_pointers(__func__, handle, a, NULL, info, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasSgetrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,
                    const float *const a[], int lda, const int *pivots, float *const b[], int ldb,
                    int *info, int batches)
{
    CALLED();
    (void)trans, (void)n, (void)nrhs, (void)lda, (void)pivots, (void)ldb;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasSgeqrfBatched(cublasHandle_t handle, int m, int n, float *const a[], int lda,
                    float *const tau[], int *info, int batches)
{
    CALLED();
    (void)m, (void)n, (void)lda;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, tau, NULL, batches);
}

/* Here `info` is on the host, `device_info` is not. */
cublasStatus_t
cublasSgelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,
                   float *const a[], int lda, float *const c[], int ldc, int *info,
                   int *device_info, int batches)
{
    CALLED();
    (void)trans, (void)m, (void)n, (void)nrhs, (void)lda, (void)ldc;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, c, device_info, batches);
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
cublasDtrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                   const double *alpha, const double *const a[], int lda, double *const b[],
                   int ldb, int batches)
{
    CALLED();
    (void)side, (void)uplo, (void)trans, (void)diag, (void)m, (void)n, (void)alpha, (void)lda;
    (void)ldb;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

cublasStatus_t
cublasDgetrfBatched(cublasHandle_t handle, int n, double *const a[], int lda, int *pivots,
                    int *info, int batches)
{
    CALLED();
    (void)n, (void)lda, (void)pivots;
    return solve_behind_pointers(__func__, handle, a, NULL, info, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasDgetrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,
                    const double *const a[], int lda, const int *pivots, double *const b[], int ldb,
                    int *info, int batches)
{
    CALLED();
    (void)trans, (void)n, (void)nrhs, (void)lda, (void)pivots, (void)ldb;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasDgeqrfBatched(cublasHandle_t handle, int m, int n, double *const a[], int lda,
                    double *const tau[], int *info, int batches)
{
    CALLED();
    (void)m, (void)n, (void)lda;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, tau, NULL, batches);
}

/* Here `info` is on the host, `device_info` is not. */
cublasStatus_t
cublasDgelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,
                   double *const a[], int lda, double *const c[], int ldc, int *info,
                   int *device_info, int batches)
{
    CALLED();
    (void)trans, (void)m, (void)n, (void)nrhs, (void)lda, (void)ldc;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, c, device_info, batches);
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
cublasCtrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                   const cuComplex *alpha, const cuComplex *const a[], int lda,
                   cuComplex *const b[], int ldb, int batches)
{
    CALLED();
    (void)side, (void)uplo, (void)trans, (void)diag, (void)m, (void)n, (void)alpha, (void)lda;
    (void)ldb;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

cublasStatus_t
cublasCgetrfBatched(cublasHandle_t handle, int n, cuComplex *const a[], int lda, int *pivots,
                    int *info, int batches)
{
    CALLED();
    (void)n, (void)lda, (void)pivots;
    return solve_behind_pointers(__func__, handle, a, NULL, info, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasCgetrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,
                    const cuComplex *const a[], int lda, const int *pivots, cuComplex *const b[],
                    int ldb, int *info, int batches)
{
    CALLED();
    (void)trans, (void)n, (void)nrhs, (void)lda, (void)pivots, (void)ldb;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasCgeqrfBatched(cublasHandle_t handle, int m, int n, cuComplex *const a[], int lda,
                    cuComplex *const tau[], int *info, int batches)
{
    CALLED();
    (void)m, (void)n, (void)lda;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, tau, NULL, batches);
}

/* Here `info` is on the host, `device_info` is not. */
cublasStatus_t
cublasCgelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,
                   cuComplex *const a[], int lda, cuComplex *const c[], int ldc, int *info,
                   int *device_info, int batches)
{
    CALLED();
    (void)trans, (void)m, (void)n, (void)nrhs, (void)lda, (void)ldc;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, c, device_info, batches);
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

cublasStatus_t
cublasZtrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                   cublasOperation_t trans, cublasDiagType_t diag, int m, int n,
                   const cuDoubleComplex *alpha, const cuDoubleComplex *const a[], int lda,
                   cuDoubleComplex *const b[], int ldb, int batches)
{
    CALLED();
    (void)side, (void)uplo, (void)trans, (void)diag, (void)m, (void)n, (void)alpha, (void)lda;
    (void)ldb;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

cublasStatus_t
cublasZgetrfBatched(cublasHandle_t handle, int n, cuDoubleComplex *const a[], int lda, int *pivots,
                    int *info, int batches)
{
    CALLED();
    (void)n, (void)lda, (void)pivots;
    return solve_behind_pointers(__func__, handle, a, NULL, info, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasZgetrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,
                    const cuDoubleComplex *const a[], int lda, const int *pivots,
                    cuDoubleComplex *const b[], int ldb, int *info, int batches)
{
    CALLED();
    (void)trans, (void)n, (void)nrhs, (void)lda, (void)pivots, (void)ldb;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, b, NULL, batches);
}

/* Here `info` is on the host. */
cublasStatus_t
cublasZgeqrfBatched(cublasHandle_t handle, int m, int n, cuDoubleComplex *const a[], int lda,
                    cuDoubleComplex *const tau[], int *info, int batches)
{
    CALLED();
    (void)m, (void)n, (void)lda;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, tau, NULL, batches);
}

/* Here `info` is on the host, `device_info` is not. */
cublasStatus_t
cublasZgelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n, int nrhs,
                   cuDoubleComplex *const a[], int lda, cuDoubleComplex *const c[], int ldc,
                   int *info, int *device_info, int batches)
{
    CALLED();
    (void)trans, (void)m, (void)n, (void)nrhs, (void)lda, (void)ldc;
    *info = 0;
    return solve_behind_pointers(__func__, handle, a, c, device_info, batches);
}
