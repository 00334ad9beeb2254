/* cuBLAS: products of matrices and vectors, by the exact bytes of their operands. */
#include "libraries.h"

/* C = A * B, with batches a stride apart or behind arrays of pointers. */
typedef struct product {
    cublasOperation_t transpose_a, transpose_b;
    int64_t m, n, k;
    standin_matrix a, b, c; /* data, type, leading and stride */
    int64_t batches;
} product;

/* A matrix of rows x columns as the operation sees it lies transposed in memory. */
static void
shape(standin_matrix *matrix, cublasOperation_t operation, int64_t rows, int64_t columns,
      int64_t batches)
{
    bool is_plain = operation == CUBLAS_OP_N;
    matrix->rows = is_plain ? rows : columns;
    matrix->columns = is_plain ? columns : rows;
    matrix->batches = batches;
}

static bool
is_valid(const standin_matrix *matrix)
{
    return matrix->leading >= (matrix->rows > 1 ? matrix->rows : 1) &&
           standin_type_bits(matrix->type) > 0;
}

static cublasStatus_t
multiply(const char *name, cublasHandle_t handle, product *self)
{
    shape(&self->a, self->transpose_a, self->m, self->k, self->batches);
    shape(&self->b, self->transpose_b, self->k, self->n, self->batches);
    shape(&self->c, CUBLAS_OP_N, self->m, self->n, self->batches);
    if (self->m < 0 || self->n < 0 || self->k < 0 || self->batches < 0 || !is_valid(&self->a) ||
        !is_valid(&self->b) || !is_valid(&self->c)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (self->m == 0 || self->n == 0 || self->batches == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    standin_range ranges[] = {
        standin_matrix_range(&self->a),
        standin_matrix_range(&self->b),
        standin_matrix_range(&self->c),
    };
    return standin_cublas_run(name, handle, ranges, 3);
}

/* The matrices lie behind pointers in device memory, which cannot be followed. */
static cublasStatus_t
multiply_behind_pointers(const char *name, cublasHandle_t handle, const void *a, const void *b,
                         const void *c, int batches)
{
    if (batches <= 0) {
        return batches < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    }
    uint64_t size_bytes = (uint64_t)batches * sizeof(void *);
    standin_range ranges[] = {
        standin_range_of(a, size_bytes),
        standin_range_of(b, size_bytes),
        standin_range_of(c, size_bytes),
    };
    return standin_cublas_run(name, handle, ranges, 3);
}

/* ---- gemm ------------------------------------------------------------------------------------ */

cublasStatus_t
cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
               int n, int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
               const float *beta, float *c, int ldc)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_R_32F, .leading = lda},
        {.data = b, .type = CUDA_R_32F, .leading = ldb},
        {.data = c, .type = CUDA_R_32F, .leading = ldc},
        1,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
               int n, int k, const double *alpha, const double *a, int lda, const double *b,
               int ldb, const double *beta, double *c, int ldc)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_R_64F, .leading = lda},
        {.data = b, .type = CUDA_R_64F, .leading = ldb},
        {.data = c, .type = CUDA_R_64F, .leading = ldc},
        1,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasCgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
               int n, int k, const cuComplex *alpha, const cuComplex *a, int lda,
               const cuComplex *b, int ldb, const cuComplex *beta, cuComplex *c, int ldc)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_C_32F, .leading = lda},
        {.data = b, .type = CUDA_C_32F, .leading = ldb},
        {.data = c, .type = CUDA_C_32F, .leading = ldc},
        1,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasZgemm_v2(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
               int n, int k, const cuDoubleComplex *alpha, const cuDoubleComplex *a, int lda,
               const cuDoubleComplex *b, int ldb, const cuDoubleComplex *beta, cuDoubleComplex *c,
               int ldc)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_C_64F, .leading = lda},
        {.data = b, .type = CUDA_C_64F, .leading = ldb},
        {.data = c, .type = CUDA_C_64F, .leading = ldc},
        1,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                          int m, int n, int k, const float *alpha, const float *a, int lda,
                          long long stride_a, const float *b, int ldb, long long stride_b,
                          const float *beta, float *c, int ldc, long long stride_c, int batches)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_R_32F, .leading = lda, .stride = stride_a},
        {.data = b, .type = CUDA_R_32F, .leading = ldb, .stride = stride_b},
        {.data = c, .type = CUDA_R_32F, .leading = ldc, .stride = stride_c},
        batches,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                          int m, int n, int k, const double *alpha, const double *a, int lda,
                          long long stride_a, const double *b, int ldb, long long stride_b,
                          const double *beta, double *c, int ldc, long long stride_c, int batches)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_R_64F, .leading = lda, .stride = stride_a},
        {.data = b, .type = CUDA_R_64F, .leading = ldb, .stride = stride_b},
        {.data = c, .type = CUDA_R_64F, .leading = ldc, .stride = stride_c},
        batches,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasCgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                          int m, int n, int k, const cuComplex *alpha, const cuComplex *a, int lda,
                          long long stride_a, const cuComplex *b, int ldb, long long stride_b,
                          const cuComplex *beta, cuComplex *c, int ldc, long long stride_c,
                          int batches)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_C_32F, .leading = lda, .stride = stride_a},
        {.data = b, .type = CUDA_C_32F, .leading = ldb, .stride = stride_b},
        {.data = c, .type = CUDA_C_32F, .leading = ldc, .stride = stride_c},
        batches,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasZgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb,
                          int m, int n, int k, const cuDoubleComplex *alpha,
                          const cuDoubleComplex *a, int lda, long long stride_a,
                          const cuDoubleComplex *b, int ldb, long long stride_b,
                          const cuDoubleComplex *beta, cuDoubleComplex *c, int ldc,
                          long long stride_c, int batches)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = CUDA_C_64F, .leading = lda, .stride = stride_a},
        {.data = b, .type = CUDA_C_64F, .leading = ldb, .stride = stride_b},
        {.data = c, .type = CUDA_C_64F, .leading = ldc, .stride = stride_c},
        batches,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasSgemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                   int n, int k, const float *alpha, const float *const a[], int lda,
                   const float *const b[], int ldb, const float *beta, float *const c[], int ldc,
                   int batches)
{
    CALLED();
    (void)transa, (void)transb, (void)m, (void)n, (void)k, (void)alpha, (void)lda, (void)ldb;
    (void)beta, (void)ldc;
    return multiply_behind_pointers(__func__, handle, a, b, c, batches);
}

cublasStatus_t
cublasDgemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                   int n, int k, const double *alpha, const double *const a[], int lda,
                   const double *const b[], int ldb, const double *beta, double *const c[], int ldc,
                   int batches)
{
    CALLED();
    (void)transa, (void)transb, (void)m, (void)n, (void)k, (void)alpha, (void)lda, (void)ldb;
    (void)beta, (void)ldc;
    return multiply_behind_pointers(__func__, handle, a, b, c, batches);
}

cublasStatus_t
cublasCgemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                   int n, int k, const cuComplex *alpha, const cuComplex *const a[], int lda,
                   const cuComplex *const b[], int ldb, const cuComplex *beta, cuComplex *const c[],
                   int ldc, int batches)
{
    CALLED();
    (void)transa, (void)transb, (void)m, (void)n, (void)k, (void)alpha, (void)lda, (void)ldb;
    (void)beta, (void)ldc;
    return multiply_behind_pointers(__func__, handle, a, b, c, batches);
}

cublasStatus_t
cublasZgemmBatched(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
                   int n, int k, const cuDoubleComplex *alpha, const cuDoubleComplex *const a[],
                   int lda, const cuDoubleComplex *const b[], int ldb, const cuDoubleComplex *beta,
                   cuDoubleComplex *const c[], int ldc, int batches)
{
    CALLED();
    (void)transa, (void)transb, (void)m, (void)n, (void)k, (void)alpha, (void)lda, (void)ldb;
    (void)beta, (void)ldc;
    return multiply_behind_pointers(__func__, handle, a, b, c, batches);
}

cublasStatus_t
cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
             int n, int k, const void *alpha, const void *a, cudaDataType type_a, int lda,
             const void *b, cudaDataType type_b, int ldb, const void *beta, void *c,
             cudaDataType type_c, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm)
{
    CALLED();
    (void)alpha, (void)beta, (void)compute, (void)algorithm;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = type_a, .leading = lda},
        {.data = b, .type = type_b, .leading = ldb},
        {.data = c, .type = type_c, .leading = ldc},
        1,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m,
              int n, int k, const float *alpha, const void *a, cudaDataType type_a, int lda,
              const void *b, cudaDataType type_b, int ldb, const float *beta, void *c,
              cudaDataType type_c, int ldc)
{
    CALLED();
    (void)alpha, (void)beta;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = type_a, .leading = lda},
        {.data = b, .type = type_b, .leading = ldb},
        {.data = c, .type = type_c, .leading = ldc},
        1,
    };
    return multiply(__func__, handle, &self);
}

cublasStatus_t
cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, int k, const void *alpha,
                           const void *a, cudaDataType type_a, int lda, long long stride_a,
                           const void *b, cudaDataType type_b, int ldb, long long stride_b,
                           const void *beta, void *c, cudaDataType type_c, int ldc,
                           long long stride_c, int batches, cublasComputeType_t compute,
                           cublasGemmAlgo_t algorithm)
{
    CALLED();
    (void)alpha, (void)beta, (void)compute, (void)algorithm;
    product self = {
        transa,
        transb,
        m,
        n,
        k,
        {.data = a, .type = type_a, .leading = lda, .stride = stride_a},
        {.data = b, .type = type_b, .leading = ldb, .stride = stride_b},
        {.data = c, .type = type_c, .leading = ldc, .stride = stride_c},
        batches,
    };
    return multiply(__func__, handle, &self);
}

/* ---- gemv ------------------------------------------------------------------------------------ */

/* A vector is a matrix of one row; a negative step only changes the order. */
static standin_matrix
vector(const void *data, cudaDataType type, int length, int step)
{
    return (standin_matrix){
        .data = data,
        .type = type,
        .rows = 1,
        .columns = length,
        .leading = step < 0 ? -(int64_t)step : step,
        .batches = 1,
    };
}

static cublasStatus_t
multiply_vector(const char *name, cublasHandle_t handle, cublasOperation_t transpose,
                const standin_matrix *a, standin_matrix *x, standin_matrix *y)
{
    bool is_plain = transpose == CUBLAS_OP_N;
    x->columns = is_plain ? a->columns : a->rows;
    y->columns = is_plain ? a->rows : a->columns;
    if (a->rows < 0 || a->columns < 0 || !is_valid(a) || x->leading == 0 || y->leading == 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (a->rows == 0 || a->columns == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    standin_range ranges[] = {
        standin_matrix_range(a),
        standin_matrix_range(x),
        standin_matrix_range(y),
    };
    return standin_cublas_run(name, handle, ranges, 3);
}

cublasStatus_t
cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n, const float *alpha,
               const float *a, int lda, const float *x, int incx, const float *beta, float *y,
               int incy)
{
    CALLED();
    (void)alpha, (void)beta;
    standin_matrix matrix = {a, CUDA_R_32F, m, n, lda, 1, 0};
    standin_matrix in = vector(x, CUDA_R_32F, 0, incx), out = vector(y, CUDA_R_32F, 0, incy);
    return multiply_vector(__func__, handle, trans, &matrix, &in, &out);
}

cublasStatus_t
cublasDgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n, const double *alpha,
               const double *a, int lda, const double *x, int incx, const double *beta, double *y,
               int incy)
{
    CALLED();
    (void)alpha, (void)beta;
    standin_matrix matrix = {a, CUDA_R_64F, m, n, lda, 1, 0};
    standin_matrix in = vector(x, CUDA_R_64F, 0, incx), out = vector(y, CUDA_R_64F, 0, incy);
    return multiply_vector(__func__, handle, trans, &matrix, &in, &out);
}

cublasStatus_t
cublasCgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n, const cuComplex *alpha,
               const cuComplex *a, int lda, const cuComplex *x, int incx, const cuComplex *beta,
               cuComplex *y, int incy)
{
    CALLED();
    (void)alpha, (void)beta;
    standin_matrix matrix = {a, CUDA_C_32F, m, n, lda, 1, 0};
    standin_matrix in = vector(x, CUDA_C_32F, 0, incx), out = vector(y, CUDA_C_32F, 0, incy);
    return multiply_vector(__func__, handle, trans, &matrix, &in, &out);
}

cublasStatus_t
cublasZgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
               const cuDoubleComplex *alpha, const cuDoubleComplex *a, int lda,
               const cuDoubleComplex *x, int incx, const cuDoubleComplex *beta, cuDoubleComplex *y,
               int incy)
{
    CALLED();
    (void)alpha, (void)beta;
    standin_matrix matrix = {a, CUDA_C_64F, m, n, lda, 1, 0};
    standin_matrix in = vector(x, CUDA_C_64F, 0, incx), out = vector(y, CUDA_C_64F, 0, incy);
    return multiply_vector(__func__, handle, trans, &matrix, &in, &out);
}
