/* cuBLASLt: layouts, descriptors and preferences as objects, and one product.
 *
 * The descriptors are opaque structures whose size the header fixes, since callers may keep them on
 * their own stack; what the rig needs lies in their first bytes.
 */
#include "libraries.h"

#include <stdlib.h>
#include <string.h>

enum { ALGORITHMS = 3 };

typedef struct layout {
    cudaDataType type;
    cublasLtOrder_t order;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batches;
} layout;

typedef struct description {
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasOperation_t transpose_a, transpose_b;
} description;

_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "a layout fits");
_Static_assert(sizeof(description) <= sizeof(cublasLtMatmulDescOpaque_t), "a descriptor fits");

size_t
cublasLtGetVersion(void)
{
    CALLED();
    return CUBLAS_VERSION;
}

/* ---- layouts --------------------------------------------------------------------------------- */

cublasStatus_t
cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                           uint64_t columns, int64_t leading)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *(layout *)(void *)*out = (layout){
        .type = type,
        .order = CUBLASLT_ORDER_COL,
        .rows = rows,
        .columns = columns,
        .leading = leading,
        .batches = 1,
    };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix)
{
    CALLED();
    free(matrix);
    return CUBLAS_STATUS_SUCCESS;
}

/* Where an attribute of known size lies; NULL for those that do not matter here. */
static void *
layout_field(layout *self, cublasLtMatrixLayoutAttribute_t name, size_t *size)
{
    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        *size = sizeof self->type;
        return &self->type;
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        *size = sizeof self->order;
        return &self->order;
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        *size = sizeof self->rows;
        return &self->rows;
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        *size = sizeof self->columns;
        return &self->columns;
    case CUBLASLT_MATRIX_LAYOUT_LD:
        *size = sizeof self->leading;
        return &self->leading;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        *size = sizeof self->batches;
        return &self->batches;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        *size = sizeof self->stride;
        return &self->stride;
    default:
        return NULL;
    }
}

cublasStatus_t
cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                 cublasLtMatrixLayoutAttribute_t name, const void *value,
                                 size_t size)
{
    CALLED();
    size_t own_size = 0;
    void *field = layout_field((layout *)(void *)matrix, name, &own_size);
    if (field == NULL) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (value == NULL || size != own_size) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

cublasStatus_t
cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType scale)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *(description *)(void *)*out = (description){.compute = compute, .scale = scale};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor)
{
    CALLED();
    free(descriptor);
    return CUBLAS_STATUS_SUCCESS;
}

static void *
description_field(description *self, cublasLtMatmulDescAttributes_t name, size_t *size)
{
    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        *size = sizeof self->transpose_a;
        return &self->transpose_a;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        *size = sizeof self->transpose_b;
        return &self->transpose_b;
    default:
        return NULL;
    }
}

cublasStatus_t
cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t name,
                               const void *value, size_t size)
{
    CALLED();
    size_t own_size = 0;
    void *field = description_field((description *)(void *)descriptor, name, &own_size);
    if (field == NULL) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (value == NULL || size != own_size) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- preferences, of which none matters ------------------------------------------------------ */

cublasStatus_t
cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    CALLED();
    *out = calloc(1, sizeof **out);
    return *out == NULL ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    CALLED();
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t name, const void *value,
                                     size_t size)
{
    CALLED();
    (void)name, (void)size;
    return preference == NULL || value == NULL ? CUBLAS_STATUS_INVALID_VALUE
                                               : CUBLAS_STATUS_SUCCESS;
}

/* ---- products -------------------------------------------------------------------------------- */

/* As it lies in memory: by columns, so that rows and columns of a row-major one change places. */
static standin_matrix
matrix_of(const void *data, const layout *self)
{
    bool is_by_rows = self->order == CUBLASLT_ORDER_ROW;
    return (standin_matrix){
        .data = data,
        .type = self->type,
        .rows = (int64_t)(is_by_rows ? self->columns : self->rows),
        .columns = (int64_t)(is_by_rows ? self->rows : self->columns),
        .leading = self->leading,
        .batches = self->batches,
        .stride = self->stride,
    };
}

static bool
fits(const layout *a, const layout *b, const layout *d, const description *operation)
{
    bool is_plain_a = operation->transpose_a == CUBLAS_OP_N;
    bool is_plain_b = operation->transpose_b == CUBLAS_OP_N;
    uint64_t rows = is_plain_a ? a->rows : a->columns;
    uint64_t inner = is_plain_a ? a->columns : a->rows;
    uint64_t other_inner = is_plain_b ? b->rows : b->columns;
    uint64_t columns = is_plain_b ? b->columns : b->rows;
    return rows == d->rows && columns == d->columns && inner == other_inner;
}

/* The algorithms differ in their index alone, and need no work area. */
cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference, int requested,
                               cublasLtMatmulHeuristicResult_t results[], int *returned)
{
    CALLED();
    (void)handle, (void)c, (void)preference;
    *returned = 0;
    if (!fits((layout *)(void *)a, (layout *)(void *)b, (layout *)(void *)d,
              (description *)(void *)descriptor)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < requested && i < ALGORITHMS; i++) {
        results[i] = (cublasLtMatmulHeuristicResult_t){
            .algo.data = {(uint64_t)i + 1},
            .state = CUBLAS_STATUS_SUCCESS,
            .wavesCount = 1.0F,
        };
        *returned = i + 1;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* C is left out: PyTorch passes D for it wherever it is read. */
cublasStatus_t
cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, const void *alpha,
               const void *a, cublasLtMatrixLayout_t layout_a, const void *b,
               cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
               cublasLtMatrixLayout_t layout_c, void *d, cublasLtMatrixLayout_t layout_d,
               const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
               cudaStream_t stream)
{
    CALLED();
    (void)handle, (void)alpha, (void)beta, (void)c, (void)layout_c, (void)algorithm;
    const layout *own_a = (layout *)(void *)layout_a, *own_b = (layout *)(void *)layout_b,
                 *own_d = (layout *)(void *)layout_d;
    if (!fits(own_a, own_b, own_d, (description *)(void *)descriptor)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    standin_matrix matrix_a = matrix_of(a, own_a), matrix_b = matrix_of(b, own_b),
                   matrix_d = matrix_of(d, own_d);
    standin_range ranges[] = {
        standin_matrix_range(&matrix_a),
        standin_matrix_range(&matrix_b),
        standin_matrix_range(&matrix_d),
        standin_range_of(workspace, workspace_bytes),
    };
    return standin_cublas_status(standin_run_nothing(__func__, stream, ranges, 4));
}
