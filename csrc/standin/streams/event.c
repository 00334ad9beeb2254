/* Events: points in a stream, which happen when their turn comes, and the logical clock.
 *
 * One operation that happens, in whatever stream, is one tick, and a tick is called a microsecond.
 */
#include "standin/streams/graph.h"
#include "standin/streams/queue.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct CUevent_st {
    standin_device *device;
    unsigned flags;
    gml_event point;        /* in the queues */
    uint64_t recording;     /* the number of the last one, unlike for all of the process; 0: none */
    standin_stream *stream; /* of that recording; gone only if it is done */
    uint64_t tick;          /* when it was done */
    uint64_t capture_id;    /* not 0: it was recorded in that capture, and this is the last */
    standin_nodes captured; /* what the stream had captured then */
};

static uint64_t last_recording;

/* NULL for a handle that is no event. */
static cudaEvent_t find(cudaEvent_t handle) {
    return standin_check_handle(handle, STANDIN_EVENT) == cudaSuccess ? handle : NULL;
}

static bool is_pending(const struct CUevent_st *event) {
    standin_settle(event->stream);
    return gml_streams_event_query(standin_queues(), event->point) == GML_NOT_READY;
}

cudaError_t standin_cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    bool is_shared_and_timed =
        (flags & (cudaEventInterprocess | cudaEventDisableTiming)) == cudaEventInterprocess;
    if (flags & ~known || is_shared_and_timed) {
        return cudaErrorInvalidValue;
    }
    struct CUevent_st *added = standin_new(sizeof *added);
    added->device = standin_current_device();
    added->flags = flags;
    standin_demand(gml_streams_event_create(standin_queues(), &added->point));
    standin_remember(added, STANDIN_EVENT);
    *out = added;
    return cudaSuccess;
}

cudaError_t standin_cudaEventDestroy(cudaEvent_t event) {
    standin_forget(event);
    (void)gml_streams_event_destroy(standin_queues(), event->point);
    standin_nodes_clear(&event->captured);
    free(event);
    return cudaSuccess;
}

/* ---- other processes ------------------------------------------------------------------------- */

/* What is done when is each process's own affair here: an event of another process has happened. As
 * on a GPU, the process that shares an event cannot open it. */
struct shared_event {
    char magic[16];
    pid_t process;
};

static const char shared_magic[16] = "gmlake-standin";

cudaError_t standin_cudaIpcGetEventHandle(cudaIpcEventHandle_t *out, cudaEvent_t handle) {
    const struct CUevent_st *event = find(handle);
    if (!event || !(event->flags & cudaEventInterprocess)) {
        return cudaErrorInvalidResourceHandle;
    }
    struct shared_event shared = {.process = getpid()};
    memcpy(shared.magic, shared_magic, sizeof shared.magic);
    memset(out, 0, sizeof *out);
    memcpy(out, &shared, sizeof shared);
    return cudaSuccess;
}

cudaError_t standin_cudaIpcOpenEventHandle(cudaEvent_t *out, cudaIpcEventHandle_t handle) {
    struct shared_event shared;
    memcpy(&shared, &handle, sizeof shared);
    if (memcmp(shared.magic, shared_magic, sizeof shared_magic) != 0) {
        return cudaErrorInvalidResourceHandle;
    }
    if (shared.process == getpid()) {
        return cudaErrorDeviceUninitialized; /* "invalid device context" */
    }
    return standin_cudaEventCreateWithFlags(out, cudaEventDisableTiming);
}

/* ---- recording and waiting for a stream ------------------------------------------------------ */

static cudaError_t record_captured(cudaEvent_t event, const standin_stream *stream) {
    TRY(standin_capture_check(stream));
    standin_nodes_assign(&event->captured, &stream->captured);
    event->capture_id = standin_capture_id(stream->capture);
    return cudaSuccess;
}

static cudaError_t record_queued(cudaEvent_t event, standin_stream *stream) {
    event->recording = ++last_recording;
    event->stream = stream;
    event->capture_id = 0;
    standin_queue_record(stream, event->point, event, event->recording);
    return cudaSuccess;
}

cudaError_t standin_event_record_on(cudaEvent_t handle, standin_stream *stream) {
    cudaEvent_t event = find(handle);
    if (!event || event->device != stream->device) {
        return cudaErrorInvalidResourceHandle;
    }
    return stream->capture ? record_captured(event, stream) : record_queued(event, stream);
}

/* Behind all that the device was given: on a stream of its own, which waits for every other one. As
 * on a GPU, captures of the device do not survive it. */
cudaError_t standin_cuCtxRecordEvent(CUcontext context, CUevent event) {
    standin_device *device = standin_context_of(context);
    if (!device || event->device != device) {
        return cudaErrorInvalidResourceHandle;
    }
    TRY(standin_guard_device(device));
    standin_stream *behind = standin_stream_behind_all(device);
    return record_queued(event, behind);
}

cudaError_t standin_event_wait_on(standin_stream *stream, cudaEvent_t handle) {
    const struct CUevent_st *event = find(handle);
    if (!event) {
        return cudaErrorInvalidResourceHandle;
    }
    if (event->capture_id != 0) {
        return standin_capture_join(stream, event->capture_id, &event->captured);
    }
    if (event->recording == 0) {
        return standin_capture_check(stream);
    }
    if (stream->capture) {
        TRY(standin_capture_check(stream));
        return standin_capture_break(stream, cudaErrorStreamCaptureIsolation);
    }
    standin_queue_wait(stream, event->point, event->stream);
    return cudaSuccess;
}

/* In a capture, the event itself is left alone until a launch comes to it. */
static cudaError_t capture_external(standin_stream *stream, cudaEvent_t event,
                                    standin_action_kind kind) {
    standin_action action = {
        .kind = kind, .operation.name = standin_current_call(), .event = event};
    return standin_capture_action(stream, &action, NULL);
}

cudaError_t standin_cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle,
                                             unsigned flags) {
    standin_stream *stream = standin_stream_of(handle);
    bool is_external = flags & cudaEventRecordExternal && stream->capture;
    return is_external ? capture_external(stream, event, STANDIN_RECORD)
                       : standin_event_record_on(event, stream);
}

cudaError_t standin_cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
    standin_stream *stream = standin_stream_of(handle);
    bool is_external = flags & cudaEventWaitExternal && stream->capture;
    return is_external ? capture_external(stream, event, STANDIN_WAIT)
                       : standin_event_wait_on(stream, event);
}

/* ---- asking ---------------------------------------------------------------------------------- */

void standin_event_reached(cudaEvent_t handle, uint64_t recording, uint64_t tick) {
    cudaEvent_t event = find(handle);
    if (event && event->recording == recording) {
        event->tick = tick;
    }
}

/* Whether the event may be asked about. Both the query and the wait count as unsafe for captures of
 * other streams: PyTorch's own threads relax their mode before they ask. */
static cudaError_t guard(const struct CUevent_st *event) {
    return event->capture_id != 0 ? standin_capture_asked(event->capture_id)
                                  : standin_guard_captures();
}

cudaError_t standin_cudaEventQuery(cudaEvent_t event) {
    TRY(guard(event));
    if (!is_pending(event)) {
        return cudaSuccess;
    }
    if (standin_settings_get()->pace != STANDIN_MANUAL) {
        standin_step_towards(event->stream);
    }
    return cudaErrorNotReady;
}

cudaError_t standin_cudaEventSynchronize(cudaEvent_t event) {
    TRY(guard(event));
    while (is_pending(event)) {
        standin_step_towards(event->stream);
    }
    standin_await_host_functions();
    return cudaSuccess;
}

static bool has_time(const struct CUevent_st *event) {
    return !(event->flags & cudaEventDisableTiming) &&
           (event->recording != 0 || event->capture_id != 0);
}

cudaError_t standin_cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!has_time(start) || !has_time(end)) {
        return cudaErrorInvalidResourceHandle;
    }
    if (start->capture_id != 0 || end->capture_id != 0) {
        return cudaErrorCapturedEvent;
    }
    if (is_pending(start) || is_pending(end)) {
        return cudaErrorNotReady;
    }
    *milliseconds = (float)((double)end->tick - (double)start->tick) / 1000.0F;
    return cudaSuccess;
}
