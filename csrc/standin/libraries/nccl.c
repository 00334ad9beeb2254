/* NCCL with one rank: what it collects is what that rank has, so each collective is a copy.
 *
 * Between ranks nothing is done, for their processes share no memory here: such a communicator is
 * refused when it is made. */
#include "standin/libraries/libraries.h"

static unsigned bytes_of(ncclDataType_t type) {
    static const unsigned char bytes[ncclNumTypes] = {
        [ncclInt8] = 1,    [ncclUint8] = 1,    [ncclInt32] = 4,      [ncclUint32] = 4,
        [ncclInt64] = 8,   [ncclUint64] = 8,   [ncclFloat16] = 2,    [ncclFloat32] = 4,
        [ncclFloat64] = 8, [ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1,
    };
    return type >= 0 && type < ncclNumTypes ? bytes[type] : 0;
}

ncclResult_t standin_communicate(ncclComm_t *out, int ranks, int rank) {
    *out = NULL;
    if (ranks != 1 || rank != 0) {
        return ranks ? ncclInvalidUsage : ncclSuccess;
    }
    standin_enter();
    ncclComm_t made = standin_new(sizeof *made);
    made->device = standin_current_device()->ordinal;
    standin_leave();
    *out = made;
    return ncclSuccess;
}

/* In place, it touches the memory all the same. */
ncclResult_t standin_reduce(ncclComm_t of, const void *from, void *to, size_t count,
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
