/* NCCL with one rank: what it collects is what that rank has, so each collective is a copy.
 *
 * Between ranks nothing is done, for their processes share no memory here: such a communicator is
 * refused when it is made. */
#include "standin/libraries/libraries.h"

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

#include <stdlib.h>
#include <string.h>

/* What a ncclComm_t points to. */
typedef struct ncclComm {
    int device;
} communicator;

static unsigned bytes_of(ncclDataType_t type) {
    static const unsigned char bytes[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1,
    };
    return type >= 0 && type < ncclNumTypes ? bytes[type] : 0;
}

/* ---- communicators --------------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    CALLED();
    memset(out, 0, sizeof *out);
    return ncclSuccess;
}

static ncclResult_t make(ncclComm_t *out, int ranks, int rank) {
    *out = NULL;
    if (ranks != 1 || rank != 0) {
        return ncclInvalidUsage;
    }
    standin_enter();
    ncclComm_t made = standin_new(sizeof *made);
    made->device = standin_current_device()->ordinal;
    standin_leave();
    *out = made;
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    CALLED();
    (void)id;
    return make(out, ranks, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    CALLED();
    (void)id, (void)config;
    return make(out, ranks, rank);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int id_count,
                                      ncclUniqueId *ids, ncclConfig_t *config) {
    CALLED();
    (void)id_count, (void)ids, (void)config;
    return make(out, ranks, rank);
}

/* Who has no colour is in no part. */
ncclResult_t ncclCommSplit(ncclComm_t of, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config) {
    CALLED();
    (void)of, (void)key, (void)config;
    *out = NULL;
    return color == NCCL_SPLIT_NOCOLOR ? ncclSuccess : make(out, 1, 0);
}

ncclResult_t ncclCommFinalize(ncclComm_t of) {
    CALLED();
    (void)of;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t of) {
    CALLED();
    free(of);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t of) {
    CALLED();
    free(of);
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t of, ncclResult_t *out) {
    CALLED();
    (void)of;
    *out = ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t of, int *out) {
    CALLED();
    (void)of;
    *out = 1;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t of, int *out) {
    CALLED();
    (void)of;
    *out = 0;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t of, int *out) {
    CALLED();
    *out = of->device;
    return ncclSuccess;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* In place, it touches the memory all the same. */
static ncclResult_t collect(ncclComm_t of, const void *from, void *to, size_t count,
                            ncclDataType_t type, cudaStream_t stream) {
    size_t size_bytes = count * bytes_of(type);
    if (!of || bytes_of(type) == 0) {
        return ncclInvalidArgument;
    }
    standin_range range = standin_range_of(to, size_bytes);
    if (from == to || size_bytes == 0) {
        cudaError_t error = standin_run_nothing(stream, &range, 1);
        return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
    }
    standin_enter();
    cudaError_t error = standin_check_stream(stream);
    if (error == cudaSuccess) {
        error = standin_cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, stream);
    }
    standin_leave();
    return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream) {
    CALLED();
    (void)operation;
    return collect(of, from, to, count, type, stream);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t of, cudaStream_t stream) {
    CALLED();
    (void)operation;
    return root == 0 ? collect(of, from, to, count, type, stream) : ncclInvalidArgument;
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t of, cudaStream_t stream) {
    CALLED();
    (void)operation;
    return collect(of, from, to, count, type, stream);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t of, cudaStream_t stream) {
    CALLED();
    return collect(of, from, to, count, type, stream);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t of, cudaStream_t stream) {
    CALLED();
    return root == 0 ? collect(of, from, to, count, type, stream) : ncclInvalidArgument;
}

ncclResult_t ncclBcast(void *block, size_t count, ncclDataType_t type, int root, ncclComm_t of,
                       cudaStream_t stream) {
    CALLED();
    return root == 0 ? collect(of, block, block, count, type, stream) : ncclInvalidArgument;
}
