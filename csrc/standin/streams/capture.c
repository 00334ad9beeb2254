/* Captures: which streams take part, what breaks one, and which calls one forbids.
 *
 * The rules are those of NVIDIA's documentation of cudaStreamBeginCapture and of
 * cudaThreadExchangeStreamCaptureMode. The default streams cannot capture. The implicit dependency
 * of the legacy stream on captures of streams without cudaStreamNonBlocking is not modelled, as
 * queue.c says of the default stream in general.
 */
#include "standin/streams/graph.h"
#include "standin/streams/queue.h"

#include <stdlib.h>

struct standin_capture {
    standin_capture *next; /* of those under way */
    uint64_t id;
    enum cudaStreamCaptureMode mode;
    uint64_t thread; /* that began it */
    standin_stream *origin;
    cudaGraph_t graph;
    bool is_broken;
};

static standin_capture *captures;
static uint64_t last_id, last_thread;

static _Thread_local enum cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
static _Thread_local uint64_t thread_number;

/* Unlike for every thread that ever was. */
static uint64_t this_thread(void) {
    if (thread_number == 0) {
        thread_number = ++last_thread;
    }
    return thread_number;
}

static cudaError_t refuse(standin_capture *capture, cudaError_t error) {
    capture->is_broken = true;
    return error;
}

static standin_capture *find(uint64_t id) {
    standin_capture *capture = captures;
    while (capture && capture->id != id) {
        capture = capture->next;
    }
    return capture;
}

/* ---- what captures forbid -------------------------------------------------------------------- */

static bool forbids_unsafe_calls(const standin_capture *capture) {
    if (capture->thread == this_thread()) {
        return capture->mode != cudaStreamCaptureModeRelaxed;
    }
    return thread_mode == cudaStreamCaptureModeGlobal &&
           capture->mode == cudaStreamCaptureModeGlobal;
}

cudaError_t standin_guard_captures(void) {
    cudaError_t error = cudaSuccess;
    if (thread_mode == cudaStreamCaptureModeRelaxed) {
        return error;
    }
    for (standin_capture *capture = captures; capture; capture = capture->next) {
        if (forbids_unsafe_calls(capture)) {
            error = refuse(capture, cudaErrorStreamCaptureUnsupported);
        }
    }
    return error;
}

cudaError_t standin_guard_stream(standin_stream *stream) {
    TRY(standin_capture_check(stream));
    return stream->capture ? refuse(stream->capture, cudaErrorStreamCaptureUnsupported)
                           : standin_guard_captures();
}

cudaError_t standin_guard_device(const standin_device *device) {
    cudaError_t error = standin_guard_captures();
    for (standin_stream *stream = standin_streams(); stream; stream = stream->next) {
        if (stream->device == device && stream->capture) {
            error = refuse(stream->capture, cudaErrorStreamCaptureUnsupported);
        }
    }
    return error;
}

cudaError_t standin_cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
    enum cudaStreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static void begin(standin_stream *stream, enum cudaStreamCaptureMode mode) {
    standin_capture *added = standin_new(sizeof *added);
    *added = (standin_capture){
        .next = captures,
        .id = ++last_id,
        .mode = mode,
        .thread = this_thread(),
        .origin = stream,
        .graph = standin_graph_new(),
    };
    added->graph->is_captured = true;
    captures = added;
    stream->capture = added;
    stream->captured.count = 0;
}

cudaError_t standin_cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    standin_stream *stream = standin_stream_of(handle);
    if (stream == stream->device->default_stream) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (stream->capture) {
        return cudaErrorIllegalState;
    }
    begin(stream, mode);
    return cudaSuccess;
}

/* All streams leave; the graph is no longer the capture's. */
static void end(standin_capture *capture) {
    for (standin_stream *stream = standin_streams(); stream; stream = stream->next) {
        if (stream->capture == capture) {
            stream->capture = NULL;
            stream->captured.count = 0;
        }
    }
    standin_capture **link = &captures;
    while (*link != capture) {
        link = &(*link)->next;
    }
    *link = capture->next;
    capture->graph->is_captured = false;
    free(capture);
}

/* Whether what every stream has captured comes before the end of the stream that began. */
static bool is_joined(const standin_capture *capture) {
    for (const standin_stream *stream = standin_streams(); stream; stream = stream->next) {
        if (stream->capture == capture &&
            !standin_graph_reaches(capture->graph, &capture->origin->captured, &stream->captured)) {
            return false;
        }
    }
    return true;
}

static cudaError_t may_end(standin_stream *stream) {
    standin_capture *capture = stream->capture;
    if (!capture) {
        return cudaErrorIllegalState;
    }
    if (capture->origin != stream) {
        return refuse(capture, cudaErrorStreamCaptureUnmatched);
    }
    bool is_elsewhere = capture->thread != this_thread();
    return is_elsewhere && capture->mode != cudaStreamCaptureModeRelaxed
               ? cudaErrorStreamCaptureWrongThread
               : cudaSuccess;
}

cudaError_t standin_cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *out) {
    standin_stream *stream = standin_stream_of(handle);
    *out = NULL;
    TRY(may_end(stream));
    standin_capture *capture = stream->capture;
    cudaGraph_t graph = capture->graph;
    cudaError_t error = cudaSuccess;
    if (capture->is_broken) {
        error = cudaErrorStreamCaptureInvalidated;
    } else if (!is_joined(capture)) {
        error = cudaErrorStreamCaptureUnjoined;
    }
    end(capture);
    if (error == cudaSuccess) {
        *out = graph;
    } else {
        standin_graph_free(graph);
    }
    return error;
}

void standin_capture_leave(standin_stream *stream) {
    standin_capture *capture = stream->capture;
    if (!capture) {
        return;
    }
    capture->is_broken = true;
    stream->capture = NULL;
    stream->captured.count = 0;
    if (capture->origin == stream) { /* nobody can end it any more */
        cudaGraph_t graph = capture->graph;
        end(capture);
        standin_graph_free(graph);
    }
}

/* ---- taking part ----------------------------------------------------------------------------- */

cudaError_t standin_capture_check(const standin_stream *stream) {
    return stream->capture && stream->capture->is_broken ? cudaErrorStreamCaptureInvalidated
                                                         : cudaSuccess;
}

cudaError_t standin_capture_break(standin_stream *stream, cudaError_t error) {
    return refuse(stream->capture, error);
}

cudaError_t standin_capture_asked(uint64_t capture_id) {
    standin_capture *capture = find(capture_id);
    return capture ? refuse(capture, cudaErrorCapturedEvent) : cudaErrorInvalidValue;
}

cudaError_t standin_capture_join(standin_stream *stream, uint64_t capture_id,
                                 const standin_nodes *at) {
    standin_capture *capture = find(capture_id);
    TRY(standin_capture_check(stream));
    if (!capture) { /* it has ended, and its nodes may be gone */
        return stream->capture ? refuse(stream->capture, cudaErrorStreamCaptureIsolation)
                               : cudaErrorInvalidValue;
    }
    if (capture->is_broken) {
        return cudaErrorStreamCaptureInvalidated;
    }
    if (stream->capture && stream->capture != capture) {
        stream->capture->is_broken = true;
        return refuse(capture, cudaErrorStreamCaptureMerge);
    }
    if (stream == stream->device->default_stream) {
        return refuse(capture, cudaErrorStreamCaptureUnsupported);
    }
    standin_nodes_unite(&stream->captured, at);
    stream->capture = capture;
    return cudaSuccess;
}

cudaError_t standin_capture_action(standin_stream *stream, const standin_action *action,
                                   cudaGraphNode_t source) {
    TRY(standin_capture_check(stream));
    cudaGraphNode_t node =
        standin_graph_add(stream->capture->graph, action, source, &stream->captured);
    stream->captured.count = 0;
    standin_nodes_append(&stream->captured, node);
    return cudaSuccess;
}

/* ---- asking ---------------------------------------------------------------------------------- */

uint64_t standin_capture_id(const standin_capture *capture) {
    return capture ? capture->id : 0;
}

cudaError_t standin_cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *out) {
    const standin_stream *stream = standin_stream_of(handle);
    *out = !stream->capture             ? cudaStreamCaptureStatusNone
           : stream->capture->is_broken ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* Every edge of the graphs here is a plain one, so that there is no data of edges to give. */
cudaError_t standin_cudaStreamGetCaptureInfo(cudaStream_t handle,
                                             enum cudaStreamCaptureStatus *status,
                                             unsigned long long *id, cudaGraph_t *graph,
                                             const cudaGraphNode_t **dependencies,
                                             const cudaGraphEdgeData **edges, size_t *count) {
    const standin_stream *stream = standin_stream_of(handle);
    (void)standin_cudaStreamIsCapturing(handle, status);
    if (id) {
        *id = standin_capture_id(stream->capture);
    }
    if (graph) {
        *graph = stream->capture ? stream->capture->graph : NULL;
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
    return cudaSuccess;
}
