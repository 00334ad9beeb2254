/* What the files that answer for cuBLAS, cuBLASLt, cuDNN and the like share.
 *
 * Their calls compute nothing. What counts is that each queues one operation which names the exact
 * bytes of device memory that the real library would touch.
 */
#ifndef GML_TESTS_STANDIN_LIBRARIES_H
#define GML_TESTS_STANDIN_LIBRARIES_H

#include "standin.h"

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
#pragma GCC visibility pop

/* ---- matrix.c: bytes of matrices ------------------------------------------------------------- */

/* Batches of matrices in device memory, stored by columns. */
typedef struct standin_matrix {
    const void *data;
    cudaDataType type;
    int64_t rows, columns;
    int64_t leading; /* elements from column to column */
    int64_t batches;
    int64_t stride; /* elements from batch to batch */
} standin_matrix;

/* Bits of one element; 0 for a type that the rig does not know. */
unsigned standin_type_bits(cudaDataType type);

/* From the first to the last byte that the matrices occupy; size 0 if they are empty. */
standin_range standin_matrix_range(const standin_matrix *matrix);

standin_range standin_range_of(const void *data, uint64_t size_bytes);

/* A number that serves as a handle: not NULL, never given twice, and never dereferenced. */
void *standin_new_handle(void);

/* ---- cublas.c: handles ----------------------------------------------------------------------- */

struct cublasContext {
    cudaStream_t stream;
    void *workspace;
    size_t workspace_bytes;
    cublasPointerMode_t pointer_mode;
    cublasAtomicsMode_t atomics_mode;
    cublasMath_t math_mode;
    int multiprocessor_target;
};

/* Queues one operation on the handle's stream that touches the ranges (three at most) and the
 * handle's workspace. */
cublasStatus_t standin_cublas_run(const char *name, cublasHandle_t handle,
                                  const standin_range *ranges, int count);

cublasStatus_t standin_cublas_status(cudaError_t error);

/* ---- cusolver.c: what a solver reports ------------------------------------------------------- */

/* Queues zeros for `count` reports of success on the device; NULL: the caller wants none. Takes and
 * leaves the lock by itself. */
cudaError_t standin_report_success(const char *name, cudaStream_t stream, int *info, int64_t count);

struct cusolverDnContext;
void standin_cusolver_success(const char *name, struct cusolverDnContext *handle, int *info,
                              int64_t count);
void standin_cublas_success(const char *name, struct cublasContext *handle, int *info,
                            int64_t count);

/* ---- cublas_reductions.c --------------------------------------------------------------------- */

/* The number 0, on the host or the device as the handle's mode says. */
void standin_cublas_number(const char *name, struct cublasContext *handle, void *out,
                           size_t size_bytes);

#endif
