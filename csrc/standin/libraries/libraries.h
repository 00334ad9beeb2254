/* What the files that answer for cuBLAS, cuBLASLt, cuDNN and the like share.
 *
 * Their calls compute nothing. What counts is that each queues one operation which names the exact
 * bytes of device memory that the real library would touch. Most of them are written by
 * generate_stubs.py, in terms of what is declared here.
 */
#ifndef GML_STANDIN_LIBRARIES_H
#define GML_STANDIN_LIBRARIES_H

#include "standin/standin.h"

/* These headers are C++ and need a part of the toolkit that PyTorch's packages lack; nothing of
 * what they declare is needed. */
/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
#define __CUDA_FP16_H__
#define __CUDA_BF16_H__
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

#include <library_types.h>

#pragma GCC visibility push(default)
#include <cublas_v2.h>
#include <cublasLt.h>
#include <nccl.h>
#pragma GCC visibility pop

/* What a handle of any library points to. */
typedef struct standin_handle {
    cudaStream_t stream;
    void *workspace; /* of cuBLAS, given by the program */
    size_t workspace_bytes;
    int pointer_mode, math_mode;
} standin_handle;

/* The caller frees it. */
void *standin_new_handle(void);

/* Work goes to that stream from now on, and may use that memory. */
void standin_set_stream(standin_handle *handle, cudaStream_t stream, void *workspace,
                        size_t workspace_bytes);

/* Batches of matrices in device memory, stored by columns. */
typedef struct standin_matrix {
    const void *data;
    cudaDataType type;
    int64_t rows, columns;
    int64_t leading; /* elements from column to column */
    int64_t stride;  /* elements from batch to batch */
} standin_matrix;

/* From the first to the last byte that the matrices occupy; size 0 if they are empty. */
standin_range standin_matrix_range(const standin_matrix *matrix, int64_t batches);
standin_range standin_range_of(const void *data, uint64_t size_bytes);

/* Queues the product of the operands 0 and 1 into 2, m x k times k x n as the operations see them;
 * their rows and columns are filled in here. */
cublasStatus_t standin_multiply(standin_handle *handle, cublasOperation_t transpose_a,
                                cublasOperation_t transpose_b, int64_t m, int64_t n, int64_t k,
                                int64_t batches, standin_matrix *operands);

cublasStatus_t standin_cublas_status(cudaError_t error);

/* ---- nccl.c ---------------------------------------------------------------------------------- */

/* What a ncclComm_t points to; whoever ends it frees it. */
struct ncclComm {
    int device;
};

/* Of one rank; NULL of none, who has no colour and is in no part; ncclInvalidUsage for more. */
ncclResult_t standin_communicate(ncclComm_t *out, int ranks, int rank);

/* Copies from one rank to itself. */
ncclResult_t standin_reduce(ncclComm_t of, const void *from, void *to, size_t count,
                            ncclDataType_t type, cudaStream_t stream);

#endif
