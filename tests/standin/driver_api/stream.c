/* Streams, events, captures and graphs of the driver API, whose handles are those of the runtime
 * API. */
#include "standin.h"
#include "streams/graph.h"

/* The default streams are those of the thread's context. */
static cudaError_t
check_stream(CUstream stream)
{
    bool is_default =
        stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    return is_default ? standin_check_context() : cudaSuccess;
}

static cudaError_t
find_stream(CUstream stream, standin_stream **out)
{
    cudaError_t error = check_stream(stream);
    *out = error == cudaSuccess ? standin_stream_of(stream) : NULL;
    return error == cudaSuccess && !*out ? cudaErrorInvalidResourceHandle : error;
}

/* ---- streams -----------------------------------------------------------------------------------
 */

static int
clamp_priority(int wanted)
{
    int least = wanted > STANDIN_LEAST_PRIORITY ? STANDIN_LEAST_PRIORITY : wanted;
    return least < STANDIN_GREATEST_PRIORITY ? STANDIN_GREATEST_PRIORITY : least;
}

static CUresult
create_stream(CUstream *out, unsigned flags, int priority)
{
    standin_enter();
    standin_device *device = standin_context_device();
    if (!device || !out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return standin_return_driver(device ? cudaErrorInvalidValue : cudaErrorDeviceUninitialized);
    }
    standin_stream *made = standin_stream_new(device, flags, clamp_priority(priority));
    if (made) {
        *out = (CUstream)(void *)made;
    }
    return standin_return_driver(made ? cudaSuccess : cudaErrorMemoryAllocation);
}

CUresult
cuStreamCreate(CUstream *out, unsigned flags)
{
    CALLED();
    return create_stream(out, flags, STANDIN_LEAST_PRIORITY);
}

CUresult
cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    CALLED();
    return create_stream(out, flags, priority);
}

CUresult
cuStreamDestroy(CUstream stream)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_stream(stream);
    return standin_return_driver(error == cudaSuccess ? standin_stream_free(stream) : error);
}

CUresult
cuStreamQuery(CUstream stream)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_stream(stream);
    return standin_return_driver(error == cudaSuccess ? standin_stream_query(stream) : error);
}

CUresult
cuStreamSynchronize(CUstream stream)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    return standin_return_driver(found ? standin_synchronize_stream(found) : error);
}

CUresult
cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) {
        error = flags & CU_EVENT_WAIT_EXTERNAL ? standin_stream_wait_external(stream, event)
                                               : standin_stream_wait(stream, event);
    }
    return standin_return_driver(error);
}

CUresult
cuStreamGetFlags(CUstream stream, unsigned *out)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    if (found) {
        *out = found->flags;
    }
    return standin_return_driver(error);
}

CUresult
cuStreamGetPriority(CUstream stream, int *out)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    if (found) {
        *out = found->priority;
    }
    return standin_return_driver(error);
}

CUresult
cuStreamGetId(CUstream stream, unsigned long long *out)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    if (found) {
        *out = found->number;
    }
    return standin_return_driver(error);
}

CUresult
cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    if (found) {
        *out = (CUcontext)(void *)found->device;
    }
    return standin_return_driver(error);
}

CUresult
cuStreamGetDevice(CUstream stream, CUdevice *out)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    if (found) {
        *out = found->device->ordinal;
    }
    return standin_return_driver(error);
}

CUresult
cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    if (!found || !function) {
        return standin_return_driver(found ? cudaErrorInvalidValue : error);
    }
    standin_operation call = {.name = __func__, .staged = argument, .host_function = function};
    return standin_return_driver(standin_submit(found, &call));
}

/* ---- events ------------------------------------------------------------------------------------
 */

CUresult
cuEventCreate(CUevent *out, unsigned flags)
{
    CALLED();
    standin_enter();
    cudaError_t error = standin_check_context();
    return standin_return_driver(error == cudaSuccess ? standin_event_create(out, flags) : error);
}

CUresult
cuEventDestroy(CUevent event)
{
    CALLED();
    standin_enter();
    return standin_return_driver(standin_event_destroy(event));
}

static CUresult
record_event(CUevent event, CUstream stream, unsigned flags)
{
    standin_enter();
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) {
        error = flags & CU_EVENT_RECORD_EXTERNAL ? standin_event_record_external(event, stream)
                                                 : standin_event_record(event, stream);
    }
    return standin_return_driver(error);
}

CUresult
cuEventRecord(CUevent event, CUstream stream)
{
    CALLED();
    return record_event(event, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult
cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    CALLED();
    return record_event(event, stream, flags);
}

CUresult
cuEventQuery(CUevent event)
{
    CALLED();
    standin_enter();
    return standin_return_driver(standin_event_query(event));
}

CUresult
cuEventSynchronize(CUevent event)
{
    CALLED();
    standin_enter();
    return standin_return_driver(standin_event_synchronize(event));
}

CUresult
cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    CALLED();
    standin_enter();
    return standin_return_driver(standin_event_elapsed(milliseconds, start, end));
}

/* ---- captures and graphs -----------------------------------------------------------------------
 */

CUresult
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CALLED();
    standin_enter();
    enum cudaStreamCaptureMode exchanged = (enum cudaStreamCaptureMode) * mode;
    cudaError_t error = standin_exchange_capture_mode(&exchanged);
    *mode = (CUstreamCaptureMode)exchanged;
    return standin_return_driver(error);
}

CUresult
cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) {
        error = standin_begin_capture(stream, (enum cudaStreamCaptureMode)mode);
    }
    return standin_return_driver(error);
}

CUresult
cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_stream(stream);
    return standin_return_driver(error == cudaSuccess ? standin_end_capture(stream, out) : error);
}

CUresult
cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *out)
{
    CALLED();
    standin_enter();
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess) {
        error = standin_stream_is_capturing(stream, &status);
    }
    *out = (CUstreamCaptureStatus)status;
    return standin_return_driver(error);
}

/* pre: a captured graph that is no longer captured, or no graph at all. */
static cudaError_t
check_graph(CUgraph graph)
{
    const struct CUgraph_st *found = standin_graph_of(graph);
    return found && !found->is_captured ? cudaSuccess : cudaErrorInvalidValue;
}

CUresult
cuGraphDestroy(CUgraph graph)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_graph(graph);
    if (error == cudaSuccess) {
        standin_graph_free(graph);
    }
    return standin_return_driver(error);
}

CUresult
cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_graph(graph);
    if (error == cudaSuccess) {
        error = standin_graph_instantiate(graph, flags, out);
    }
    return standin_return_driver(error);
}

CUresult
cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    CALLED();
    standin_enter();
    standin_stream *found = NULL;
    cudaError_t error = find_stream(stream, &found);
    CUgraphExec known = standin_executable_of(executable);
    if (!found || !known) {
        return standin_return_driver(found ? cudaErrorInvalidValue : error);
    }
    return standin_return_driver(standin_graph_launch(known, found));
}

CUresult
cuGraphExecDestroy(CUgraphExec executable)
{
    CALLED();
    standin_enter();
    CUgraphExec known = standin_executable_of(executable);
    if (known) {
        standin_executable_free(known);
    }
    return standin_return_driver(known ? cudaSuccess : cudaErrorInvalidValue);
}
