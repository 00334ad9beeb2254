/* The driver `cuda`: streams, events and copies. */
#include "driver/cuda_internal.h"

#include <inttypes.h>

/* Streams and events are integers above this file and pointers below it. */
static gml_cu_stream stream_of(gml_stream stream) {
    return (gml_cu_stream)(uintptr_t)stream;
}

static gml_cu_event event_of(gml_event event) {
    return (gml_cu_event)(uintptr_t)event;
}

/* Whether `stream` captures, or is the default stream while one that it would wait for captures:
 * in both cases no call may be made on it. pre: inside gml_cuda_enter() */
static gml_status is_capturing(gml_cuda_driver *cuda, gml_stream stream, bool *out) {
    int capture = GML_CU_CAPTURE_NONE;
    gml_cu_result result = cuda->api.cuStreamIsCapturing(stream_of(stream), &capture);
    if (result != GML_CU_SUCCESS && result != GML_CU_STREAM_CAPTURE_IMPLICIT) {
        return gml_cuda_check(cuda, "cuStreamIsCapturing", result);
    }
    *out = result == GML_CU_STREAM_CAPTURE_IMPLICIT || capture != GML_CU_CAPTURE_NONE;
    return GML_OK;
}

/* Leaves again, with a reason, if `stream` captures. pre: inside gml_cuda_enter() */
static gml_status demand_uncaptured(gml_cuda_driver *cuda, const char *call, gml_stream stream) {
    bool is_captured = false;
    gml_status status = is_capturing(cuda, stream, &is_captured);
    if (status == GML_OK && is_captured) {
        status = gml_driver_fail(&cuda->base, GML_MISUSE,
                                 "%s: forbidden while stream %" PRIu64 " captures a graph", call,
                                 stream);
    }
    return status == GML_OK ? GML_OK : gml_cuda_leave(cuda, status);
}

/* gml_cuda_enter() for a call that a capture on `stream` would not survive. */
static gml_status enter_uncaptured(gml_cuda_driver *cuda, const char *call, gml_stream stream) {
    gml_status status = gml_cuda_enter(cuda);
    return status == GML_OK ? demand_uncaptured(cuda, call, stream) : status;
}

/* A call that a capture on `stream` would not survive: GML_CUDA_CALL_INSIDE() unless it captures.
 */
#define CALL_ON(self, stream, name, ...)                                                           \
    ({                                                                                             \
        gml_cuda_driver *caller = gml_cuda_of(self);                                               \
        gml_status is_open = enter_uncaptured(caller, #name, stream);                              \
        is_open == GML_OK ? gml_cuda_leave(caller, GML_CUDA_CALL(caller, name, __VA_ARGS__))       \
                          : is_open;                                                               \
    })

gml_status gml_cuda_event_create(gml_driver *self, gml_event *out) {
    gml_cu_event event;
    gml_status status =
        GML_CUDA_CALL_INSIDE(self, cuEventCreate, &event, GML_CU_EVENT_DISABLE_TIMING);
    if (status == GML_OK) {
        *out = (gml_event)(uintptr_t)event;
    }
    return status;
}

gml_status gml_cuda_event_destroy(gml_driver *self, gml_event event) {
    return GML_CUDA_CALL_INSIDE(self, cuEventDestroy, event_of(event));
}

gml_status gml_cuda_event_record(gml_driver *self, gml_event event, gml_stream stream) {
    return CALL_ON(self, stream, cuEventRecord, event_of(event), stream_of(stream));
}

gml_status gml_cuda_event_record_all(gml_driver *self, gml_event event) {
    const gml_cuda_driver *cuda = gml_cuda_of(self);
    if (!cuda->api.cuCtxRecordEvent) {
        return gml_driver_fail(self, GML_UNSUPPORTED,
                               "this NVIDIA driver has no cuCtxRecordEvent, which came with CUDA "
                               "12.5");
    }
    return CALL_ON(self, 0, cuCtxRecordEvent, cuda->context, event_of(event));
}

gml_status gml_cuda_record_elsewhere(gml_driver *self, int device, gml_stream stream,
                                     gml_event *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_cu_event event;
    gml_status status = gml_cuda_enter_elsewhere(cuda, device);
    if (status == GML_OK) {
        status = demand_uncaptured(cuda, "cuEventRecord", stream);
    }
    if (status != GML_OK) {
        return status;
    }
    status = GML_CUDA_CALL(cuda, cuEventCreate, &event, GML_CU_EVENT_DISABLE_TIMING);
    if (status == GML_OK) {
        status = GML_CUDA_CALL(cuda, cuEventRecord, event, stream_of(stream));
        if (status == GML_OK) {
            *out = (gml_event)(uintptr_t)event;
        } else {
            (void)cuda->api.cuEventDestroy(event);
        }
    }
    return gml_cuda_leave(cuda, status);
}

gml_status gml_cuda_event_query(gml_driver *self, gml_event event) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_status status = gml_cuda_enter(cuda);
    if (status != GML_OK) {
        return status;
    }
    gml_cu_result result = cuda->api.cuEventQuery(event_of(event));
    return gml_cuda_leave(cuda, result == GML_CU_NOT_READY
                                    ? GML_NOT_READY
                                    : gml_cuda_check(cuda, "cuEventQuery", result));
}

gml_status gml_cuda_event_synchronize(gml_driver *self, gml_event event) {
    return GML_CUDA_CALL_INSIDE(self, cuEventSynchronize, event_of(event));
}

gml_status gml_cuda_stream_wait(gml_driver *self, gml_stream stream, gml_event event) {
    return CALL_ON(self, stream, cuStreamWaitEvent, stream_of(stream), event_of(event), 0);
}

gml_status gml_cuda_stream_synchronize(gml_driver *self, gml_stream stream) {
    return CALL_ON(self, stream, cuStreamSynchronize, stream_of(stream));
}

gml_status gml_cuda_stream_capturing(gml_driver *self, gml_stream stream, bool *out) {
    gml_cuda_driver *cuda = gml_cuda_of(self);
    gml_status status = gml_cuda_enter(cuda);
    return status == GML_OK ? gml_cuda_leave(cuda, is_capturing(cuda, stream, out)) : status;
}

gml_status gml_cuda_device_synchronize(gml_driver *self) {
    return CALL_ON(self, 0, cuCtxSynchronize);
}

gml_status gml_cuda_copy_out(gml_driver *self, void *to, gml_address from, uint64_t size_bytes,
                             gml_stream stream) {
    return CALL_ON(self, stream, cuMemcpyDtoHAsync, to, from, size_bytes, stream_of(stream));
}

gml_status gml_cuda_copy_in(gml_driver *self, gml_address to, const void *from, uint64_t size_bytes,
                            gml_stream stream) {
    return CALL_ON(self, stream, cuMemcpyHtoDAsync, to, from, size_bytes, stream_of(stream));
}
