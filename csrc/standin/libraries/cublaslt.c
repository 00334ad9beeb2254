/* cuBLASLt: layouts of matrices, and one product. What else it describes changes no memory. */
#include "standin/libraries/libraries.h"

#include <string.h>

enum { ALGORITHMS = 3 };

/* What a cublasLtMatrixLayout_t points to. */
typedef struct layout {
    cudaDataType type;
    cublasLtOrder_t order;
    uint64_t rows, columns;
    int64_t leading, stride;
    int32_t batches;
} layout;

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
    CALLED();
    layout *made = standin_new(sizeof *made);
    *made = (layout){type, CUBLASLT_ORDER_COL, rows, columns, leading, 0, 1};
    *out = (cublasLtMatrixLayout_t)(void *)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t matrix,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t size) {
    CALLED();
#define FIELD(field) offsetof(layout, field), sizeof((layout *)0)->field
    static const struct {
        size_t offset, size;
    } fields[] = {
        [CUBLASLT_MATRIX_LAYOUT_ORDER] = {FIELD(order)},
        [CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = {FIELD(batches)},
        [CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET] = {FIELD(stride)},
    };
    if ((size_t)name < sizeof fields / sizeof fields[0] && size == fields[name].size) {
        memcpy((char *)matrix + fields[name].offset, value, size);
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* The algorithms differ in their index alone, and need no work area. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t descriptor,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *returned) {
    CALLED();
    (void)handle, (void)descriptor, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *returned = requested < ALGORITHMS ? requested : ALGORITHMS;
    for (int i = 0; i < *returned; i++) {
        results[i] = (cublasLtMatmulHeuristicResult_t){
            .algo.data = {(uint64_t)i + 1},
            .state = CUBLAS_STATUS_SUCCESS,
        };
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* As it lies in memory: by columns, so that rows and columns of a row-major one change places. */
static standin_range range_of(const void *data, cublasLtMatrixLayout_t matrix) {
    const layout *self = (const layout *)(void *)matrix;
    bool is_by_rows = self->order == CUBLASLT_ORDER_ROW;
    standin_matrix found = {
        .data = data,
        .type = self->type,
        .rows = (int64_t)(is_by_rows ? self->columns : self->rows),
        .columns = (int64_t)(is_by_rows ? self->rows : self->columns),
        .leading = self->leading,
        .stride = self->stride,
    };
    return standin_matrix_range(&found, self->batches);
}

/* C is left out: PyTorch passes D for it wherever it is read. */
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t layout_a,
                              const void *b, cublasLtMatrixLayout_t layout_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
    CALLED();
    (void)handle, (void)descriptor, (void)alpha, (void)beta, (void)c, (void)layout_c,
        (void)algorithm;
    standin_range ranges[] = {
        range_of(a, layout_a),
        range_of(b, layout_b),
        range_of(d, layout_d),
        standin_range_of(workspace, workspace_bytes),
    };
    return standin_cublas_status(standin_run_nothing(stream, ranges, 4));
}
