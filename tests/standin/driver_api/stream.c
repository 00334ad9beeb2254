/* Streams, events and captures of the driver API, whose handles are those of the runtime
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

/* ---- streams --------------------------------------------------------------------------------- */

CUresult
cuStreamCreate(CUstream *out, unsigned flags)
{
    CALLED();
    standin_enter();
    standin_device *device = standin_context_device();
    if (!device || !out || (flags & ~(unsigned)CU_STREAM_NON_BLOCKING) != 0) {
        return standin_return_driver(device ? cudaErrorInvalidValue : cudaErrorDeviceUninitialized);
    }
    standin_stream *made = standin_stream_new(device, flags, STANDIN_LEAST_PRIORITY);
    if (made) {
        *out = (CUstream)(void *)made;
    }
    return standin_return_driver(made ? cudaSuccess : cudaErrorMemoryAllocation);
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

/* ---- events ---------------------------------------------------------------------------------- */

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

CUresult
cuEventRecord(CUevent event, CUstream stream)
{
    CALLED();
    standin_enter();
    cudaError_t error = check_stream(stream);
    return standin_return_driver(error == cudaSuccess ? standin_event_record(event, stream)
                                                      : error);
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

/* ---- captures -------------------------------------------------------------------------------- */

CUresult
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CALLED();
    standin_enter();
    if (!mode) {
        return standin_return_driver(cudaErrorInvalidValue);
    }
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
    cudaError_t error = out ? check_stream(stream) : cudaErrorInvalidValue;
    if (error == cudaSuccess) {
        error = standin_stream_is_capturing(stream, &status);
    }
    if (error == cudaSuccess) {
        *out = (CUstreamCaptureStatus)status;
    }
    return standin_return_driver(error);
}

CUresult
cuGraphDestroy(CUgraph handle)
{
    CALLED();
    standin_enter();
    return standin_return_driver(standin_graph_destroy(handle));
}
