/* The runtime's calls about streams, and those about their captures. */
#include "graph.h"

#include <stdlib.h>

static cudaError_t
create(cudaStream_t *out, unsigned flags, int priority)
{
    if (!out || (flags & ~(unsigned)cudaStreamNonBlocking) != 0) {
        return cudaErrorInvalidValue;
    }
    int least = priority > STANDIN_LEAST_PRIORITY ? STANDIN_LEAST_PRIORITY : priority;
    int clamped = least < STANDIN_GREATEST_PRIORITY ? STANDIN_GREATEST_PRIORITY : least;
    standin_stream *stream = standin_stream_new(standin_current_device(), flags, clamped);
    if (!stream) {
        return cudaErrorMemoryAllocation;
    }
    *out = (cudaStream_t)(void *)stream;
    return cudaSuccess;
}

cudaError_t
cudaStreamCreate(cudaStream_t *out)
{
    CALLED();
    standin_enter();
    return standin_return(create(out, cudaStreamDefault, 0));
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    CALLED();
    standin_enter();
    return standin_return(create(out, flags, 0));
}

cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    CALLED();
    standin_enter();
    return standin_return(create(out, flags, priority));
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
    CALLED();
    standin_enter();
    return standin_return(standin_stream_free(stream));
}

cudaError_t
cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    CALLED();
    if (least) {
        *least = STANDIN_LEAST_PRIORITY;
    }
    if (greatest) {
        *greatest = STANDIN_GREATEST_PRIORITY;
    }
    return cudaSuccess;
}

/* ---- what a stream is ------------------------------------------------------------------------ */

/* The stream behind a handle, or why `out` cannot be filled in. */
static cudaError_t
look_up(cudaStream_t handle, const void *out, standin_stream **stream)
{
    *stream = standin_stream_of(handle);
    if (!*stream) {
        return cudaErrorInvalidResourceHandle;
    }
    return out ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t
cudaStreamGetPriority(cudaStream_t handle, int *out)
{
    CALLED();
    standin_enter();
    standin_stream *stream;
    cudaError_t error = look_up(handle, out, &stream);
    if (error == cudaSuccess) {
        *out = stream->priority;
    }
    return standin_return(error);
}

/* ---- waiting --------------------------------------------------------------------------------- */

cudaError_t
cudaStreamQuery(cudaStream_t stream)
{
    CALLED();
    standin_enter();
    return standin_return(standin_stream_query(stream));
}

cudaError_t
cudaStreamSynchronize(cudaStream_t handle)
{
    CALLED();
    standin_enter();
    standin_stream *stream = standin_stream_of(handle);
    return standin_return(stream ? standin_synchronize_stream(stream)
                                 : cudaErrorInvalidResourceHandle);
}

cudaError_t
cudaDeviceSynchronize(void)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_current_device();
    cudaError_t error = standin_guard_device(device);
    return standin_return(error == cudaSuccess ? standin_synchronize_device(device) : error);
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    CALLED();
    standin_enter();
    if (flags == cudaEventWaitDefault) {
        return standin_return(standin_stream_wait(stream, event));
    }
    return standin_return(flags == cudaEventWaitExternal
                              ? standin_stream_wait_external(stream, event)
                              : cudaErrorInvalidValue);
}

/* ---- functions of the host ------------------------------------------------------------------- */

static cudaError_t
launch(const char *name, standin_stream *stream, void (*function)(void *), void *argument)
{
    standin_operation operation = {.name = name, .host_function = function, .staged = argument};
    return standin_submit(stream, &operation);
}

cudaError_t
cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *argument)
{
    CALLED();
    standin_enter();
    standin_stream *stream;
    cudaError_t error = look_up(handle, (const void *)(uintptr_t)function, &stream);
    if (error == cudaSuccess) {
        error = launch(__func__, stream, function, argument);
    }
    return standin_return(error);
}

typedef struct callback {
    cudaStreamCallback_t function;
    cudaStream_t stream;
    void *argument;
} callback;

static void
call_back(void *context)
{
    callback *called = context;
    called->function(called->stream, cudaSuccess, called->argument);
    free(called);
}

static cudaError_t
add_callback(standin_stream *stream, callback what)
{
    cudaError_t error = standin_guard_stream(stream); /* callbacks cannot be captured */
    if (error != cudaSuccess) {
        return error;
    }
    callback *added = malloc(sizeof *added);
    if (!added) {
        return cudaErrorMemoryAllocation;
    }
    *added = what;
    error = launch("cudaStreamAddCallback", stream, call_back, added);
    if (error != cudaSuccess) {
        free(added);
    }
    return error;
}

cudaError_t
cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void *argument,
                      unsigned flags)
{
    CALLED();
    standin_enter();
    standin_stream *stream;
    cudaError_t error = look_up(handle, (const void *)(uintptr_t)function, &stream);
    if (error == cudaSuccess && flags != 0) {
        error = cudaErrorInvalidValue;
    }
    if (error == cudaSuccess) {
        error = add_callback(
            stream, (callback){.function = function, .stream = handle, .argument = argument});
    }
    return standin_return(error);
}

/* ---- capture --------------------------------------------------------------------------------- */

cudaError_t
cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    CALLED();
    standin_enter();
    return standin_return(standin_begin_capture(stream, mode));
}

cudaError_t
cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    CALLED();
    standin_enter();
    return standin_return(standin_end_capture(stream, out));
}

cudaError_t
cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *out)
{
    CALLED();
    standin_enter();
    return standin_return(standin_stream_is_capturing(stream, out));
}

cudaError_t
cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    CALLED();
    standin_enter();
    return standin_return(standin_exchange_capture_mode(mode));
}

/* Every edge of the graphs here is a plain one, so that there is no data of edges to give. */
cudaError_t
cudaStreamGetCaptureInfo(cudaStream_t handle, enum cudaStreamCaptureStatus *status,
                         unsigned long long *id, cudaGraph_t *graph,
                         const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                         size_t *count)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_stream_is_capturing(handle, status);
    if (error != cudaSuccess) {
        return standin_return(error);
    }
    const standin_stream *stream = standin_stream_of(handle);
    if (id) {
        *id = standin_capture_id(stream->capture);
    }
    if (graph) {
        *graph = standin_capture_graph(stream);
    }
    if (dependencies) {
        *dependencies = stream->captured.items;
    }
    if (edges) {
        *edges = NULL;
    }
    if (count) {
        *count = stream->captured.count;
    }
    return standin_return(cudaSuccess);
}
