/* The runtime's calls about streams. */
#include "standin/streams/graph.h"

#include <stdlib.h>

/* Of streams, as a device of the last generations answers; a lower number goes first. */
enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

cudaError_t standin_cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    if (!out || (flags & ~(unsigned)cudaStreamNonBlocking) != 0) {
        return cudaErrorInvalidValue;
    }
    int least = priority > LEAST_PRIORITY ? LEAST_PRIORITY : priority;
    int clamped = least < GREATEST_PRIORITY ? GREATEST_PRIORITY : least;
    *out = (cudaStream_t)(void *)standin_stream_new(standin_current_device(), clamped);
    return cudaSuccess;
}

cudaError_t standin_cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = LEAST_PRIORITY;
    *greatest = GREATEST_PRIORITY;
    return cudaSuccess;
}

cudaError_t standin_cudaStreamGetPriority(cudaStream_t handle, int *out) {
    *out = standin_stream_of(handle)->priority;
    return cudaSuccess;
}

/* ---- waiting --------------------------------------------------------------------------------- */

cudaError_t standin_cudaStreamSynchronize(cudaStream_t handle) {
    return standin_synchronize_stream(standin_stream_of(handle));
}

cudaError_t standin_cudaDeviceSynchronize(void) {
    standin_device *device = standin_current_device();
    TRY(standin_guard_device(device));
    standin_synchronize_device(device);
    return cudaSuccess;
}

/* ---- functions of the host ------------------------------------------------------------------- */

cudaError_t standin_cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument) {
    standin_operation operation = {.host_function = function, .staged = argument};
    return function ? standin_submit(standin_stream_of(handle), &operation) : cudaErrorInvalidValue;
}

typedef struct callback {
    cudaStreamCallback_t function;
    cudaStream_t stream;
    void *argument;
} callback;

static void call_back(void *context) {
    callback *called = context;
    called->function(called->stream, cudaSuccess, called->argument);
    free(called);
}

/* A callback cannot be captured. */
cudaError_t standin_cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function,
                                          void *argument, unsigned flags) {
    (void)flags;
    TRY(standin_guard_stream(standin_stream_of(handle)));
    callback *added = standin_new(sizeof *added);
    *added = (callback){function, handle, argument};
    return standin_cudaLaunchHostFunc(handle, call_back, added);
}
