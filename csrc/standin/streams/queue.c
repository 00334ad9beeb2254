/* Streams as ordered queues, and the pace at which what they hold happens.
 *
 * The order is kept by one gml_streams for all devices, in manual mode. Beside it each stream lists
 * what it has pending, one entry for one operation of its queue, so that the memory in use and the
 * stream that blocks another are known. Streams are ordered by events alone: the default stream is
 * one more stream, and does not wait for those created without cudaStreamNonBlocking, nor they for
 * it, since PyTorch creates none of them.
 */
#include "standin/streams/queue.h"

#include "standin/memory/recent.h"
#include "standin/streams/graph.h"

#include <stdlib.h>

typedef enum in_flight_kind { WORK, RECORD, WAIT } in_flight_kind;

/* One pending operation. */
typedef struct standin_in_flight {
    struct standin_in_flight *next; /* of the stream */
    in_flight_kind kind;
    standin_operation operation; /* of the others, all zeros */
    cudaGraphNode_t node;        /* held: who owns what `staged` points to; NULL: the operation */
    cudaEvent_t event;           /* of a RECORD; may be gone */
    uint64_t recording;
    standin_stream *recorded_on; /* of a WAIT; gone only if what it waits for is done */
} in_flight;

static gml_streams *queues;
static standin_stream *streams;
static gml_stream last_number; /* never given to a second stream */
static uint64_t pending;       /* in all streams */
static uint64_t ticks;         /* operations that have happened: the clock */

gml_streams *standin_queues(void) {
    if (!queues) {
        standin_demand(gml_streams_open(&queues));
        standin_demand(gml_streams_set_manual(queues, true));
    }
    return queues;
}

standin_stream *standin_streams(void) {
    return streams;
}

/* ---- what happens ---------------------------------------------------------------------------- */

static cudaError_t check_range(const char *name, standin_range range) {
    if (range.size_bytes == 0) {
        return cudaSuccess;
    }
    standin_device *device = standin_device_of(range.address);
    if (!device) {
        if (standin_is_pinned((const void *)(uintptr_t)range.address, range.size_bytes)) {
            return cudaSuccess;
        }
        standin_misuse("%s touches %llu bytes at 0x%llx, which is memory of no device", name,
                       (unsigned long long)range.size_bytes, (unsigned long long)range.address);
        return cudaErrorIllegalAddress;
    }
    void *bytes;
    gml_status status = gml_driver_bytes(device->driver, range.address, range.size_bytes, &bytes);
    if (status == GML_OK || status == GML_UNSUPPORTED) {
        return cudaSuccess;
    }
    standin_misuse("%s touches memory of device %d: %s", name, device->ordinal,
                   device->driver->reason);
    return cudaErrorIllegalAddress;
}

cudaError_t standin_check_ranges(const standin_operation *operation) {
    for (int i = 0; i < STANDIN_MOST_RANGES; i++) {
        TRY(check_range(operation->name, operation->ranges[i]));
    }
    return cudaSuccess;
}

/* Called by the queues. What was there when the work was submitted may be gone by now. */
static void do_work(void *context) {
    const standin_operation *operation = &((const in_flight *)context)->operation;
    if (!operation->run) {
        standin_recent_forget(); /* a kernel, which writes what nobody knows */
    } else if (standin_check_ranges(operation) == cudaSuccess) {
        operation->run(operation);
    }
}

static void drop_copy(standin_operation operation) {
    if (operation.drop) {
        operation.drop(&operation);
    }
}

static void discard(in_flight *done) {
    if (done->node) {
        standin_node_release(done->node);
    } else {
        drop_copy(done->operation);
    }
    free(done);
}

/* `done`, the oldest operation of the stream, has happened. */
static void finish_first(standin_stream *stream, in_flight *done) {
    stream->first = done->next;
    if (!stream->first) {
        stream->last = NULL;
    }
    stream->pending--;
    pending--;
    ticks++;
    if (done->kind == RECORD && done->event) {
        standin_event_reached(done->event, done->recording, ticks);
    }
    if (done->operation.host_function) {
        standin_queue_host_function(done->operation.host_function, done->operation.staged);
    }
    discard(done);
}

/* Lets the oldest operation happen; false if there is none, or if it waits for another stream. */
static bool step(standin_stream *stream) {
    uint64_t ran = 0;
    in_flight *oldest = stream->first;
    if (oldest && oldest->kind == WAIT) {
        standin_settle(oldest->recorded_on);
    }
    if (!oldest || gml_streams_advance(queues, stream->number, 1, &ran) != GML_OK || ran == 0) {
        return false;
    }
    finish_first(stream, oldest);
    return true;
}

/* The stream may be gone: it is compared, not looked at. */
void standin_settle(standin_stream *stream) {
    for (int i = 0; stream && i < standin_settings_get()->devices; i++) {
        while (standin_device_at(i)->behind_all == stream && step(stream)) {
        }
    }
}

void standin_step_towards(standin_stream *stream) {
    while (!step(stream)) {
        stream = stream->first->recorded_on;
    }
}

static void drain(standin_stream *stream) {
    while (stream->first) {
        standin_step_towards(stream);
    }
}

/* Lets happen whatever waits for nothing that is pending. */
static void run_all(void) {
    bool has_moved = true;
    while (pending > 0 && has_moved) {
        has_moved = false;
        for (standin_stream *stream = streams; stream; stream = stream->next) {
            while (step(stream)) {
                has_moved = true;
            }
        }
    }
}

/* After something was queued. */
static void keep_pace(standin_stream *stream) {
    const standin_settings *settings = standin_settings_get();
    switch (settings->pace) {
    case STANDIN_EAGER:
        while (step(stream)) {
        }
        run_all();
        break;
    case STANDIN_LAG:
        while (stream->pending > settings->lag) {
            standin_step_towards(stream);
        }
        break;
    case STANDIN_MANUAL:
        break;
    }
}

/* ---- submitting ------------------------------------------------------------------------------ */

static gml_status enqueue(standin_stream *stream, in_flight *added, gml_event point) {
    switch (added->kind) {
    case RECORD:
        return gml_streams_event_record(queues, point, stream->number);
    case WAIT:
        return gml_streams_stream_wait(queues, stream->number, point);
    default:
        return gml_streams_enqueue(queues, stream->number, do_work, added);
    }
}

/* Queues a copy of `what`. */
static void append(standin_stream *stream, const in_flight *what, gml_event point) {
    in_flight *added = standin_new(sizeof *added);
    *added = *what;
    standin_demand(enqueue(stream, added, point));
    if (stream->last) {
        stream->last->next = added;
    } else {
        stream->first = added;
    }
    stream->last = added;
    stream->pending++;
    pending++;
    keep_pace(stream);
}

/* Whether the memory is there, and the stream's device may touch it. */
static cudaError_t check_touch(const standin_stream *stream, const standin_operation *operation) {
    TRY(standin_check_ranges(operation));
    return standin_check_peers(stream->device, operation);
}

static cudaError_t submit(standin_stream *stream, const standin_operation *operation) {
    if (stream->capture) {
        standin_action action = {.kind = STANDIN_WORK, .operation = *operation};
        return standin_capture_action(stream, &action, NULL);
    }
    TRY(check_touch(stream, operation));
    append(stream, &(in_flight){.kind = WORK, .operation = *operation}, 0);
    return cudaSuccess;
}

cudaError_t standin_submit(standin_stream *stream, const standin_operation *operation) {
    standin_operation named = *operation;
    named.name = standin_current_call();
    cudaError_t error = submit(stream, &named);
    if (error != cudaSuccess) {
        drop_copy(named);
    }
    return error;
}

cudaError_t standin_queue_node(standin_stream *stream, cudaGraphNode_t node) {
    const standin_operation *operation = &node->action.operation;
    TRY(check_touch(stream, operation));
    /* Held before it is queued, for it may happen at once. */
    standin_node_hold(node);
    append(stream, &(in_flight){.kind = WORK, .operation = *operation, .node = node}, 0);
    return cudaSuccess;
}

void standin_queue_record(standin_stream *stream, gml_event point, cudaEvent_t event,
                          uint64_t recording) {
    in_flight what = {.kind = RECORD, .event = event, .recording = recording};
    append(stream, &what, point);
}

void standin_queue_wait(standin_stream *stream, gml_event point, standin_stream *recorded_on) {
    append(stream, &(in_flight){.kind = WAIT, .recorded_on = recorded_on}, point);
}

static bool is_stream(const standin_stream *wanted) {
    const standin_stream *stream = streams;
    while (stream && stream != wanted) {
        stream = stream->next;
    }
    return stream != NULL;
}

void standin_queue_behind(standin_stream *stream, standin_stream *before) {
    gml_event point;
    if (before == stream || !is_stream(before) || before->pending == 0) {
        return;
    }
    standin_demand(gml_streams_event_create(queues, &point));
    standin_queue_record(before, point, NULL, 0);
    standin_queue_wait(stream, point, before);
    /* The recording and the wait keep what they need of it. */
    (void)gml_streams_event_destroy(queues, point);
}

standin_stream *standin_stream_behind_all(standin_device *device) {
    device->behind_all = device->behind_all ? device->behind_all : standin_stream_new(device, 0);
    for (standin_stream *stream = streams; stream; stream = stream->next) {
        if (stream->device == device) {
            standin_queue_behind(device->behind_all, stream);
        }
    }
    return device->behind_all;
}

/* ---- waiting and asking ---------------------------------------------------------------------- */

cudaError_t standin_synchronize_stream(standin_stream *stream) {
    TRY(standin_guard_stream(stream));
    drain(stream);
    standin_await_host_functions();
    return cudaSuccess;
}

void standin_synchronize_device(standin_device *device) {
    for (standin_stream *stream = streams; stream; stream = stream->next) {
        if (stream->device == device) {
            drain(stream);
        }
    }
    standin_await_host_functions();
}

void standin_advance(standin_stream *stream, uint64_t count) {
    for (uint64_t i = 0; i < count && step(stream); i++) {
    }
}

cudaError_t standin_cudaStreamQuery(cudaStream_t handle) {
    standin_stream *stream = standin_stream_of(handle);
    TRY(standin_guard_stream(stream));
    if (stream->pending == 0) {
        return cudaSuccess;
    }
    if (standin_settings_get()->pace != STANDIN_MANUAL) {
        standin_step_towards(stream);
    }
    return cudaErrorNotReady;
}

static bool is_overlapping(standin_range range, gml_address address, uint64_t size_bytes) {
    return range.size_bytes > 0 && size_bytes > 0 &&
           (range.address > address ? range.address - address < size_bytes
                                    : address - range.address < range.size_bytes);
}

/* The name of a pending operation that touches the range, or NULL. */
static const char *find_pending(gml_address address, uint64_t size_bytes) {
    for (const standin_stream *stream = streams; stream; stream = stream->next) {
        for (const in_flight *at = stream->first; at; at = at->next) {
            for (int i = 0; i < STANDIN_MOST_RANGES; i++) {
                if (is_overlapping(at->operation.ranges[i], address, size_bytes)) {
                    return at->operation.name;
                }
            }
        }
    }
    return NULL;
}

void standin_check_unused(const char *name, gml_address address, uint64_t size_bytes) {
    const char *user = find_pending(address, size_bytes);
    if (user) {
        standin_misuse("free in flight: %s of %llu bytes at 0x%llx while %s is pending on it", name,
                       (unsigned long long)size_bytes, (unsigned long long)address, user);
    }
}

/* ---- the streams themselves ------------------------------------------------------------------ */

standin_stream *standin_stream_of(cudaStream_t handle) {
    if (handle == NULL || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
        return standin_current_device()->default_stream;
    }
    standin_stream *stream = (standin_stream *)(void *)handle;
    return is_stream(stream) ? stream : NULL;
}

cudaError_t standin_check_stream(cudaStream_t handle) {
    return standin_stream_of(handle) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

standin_stream *standin_stream_new(standin_device *device, int priority) {
    (void)standin_queues();
    standin_stream *added = standin_new(sizeof *added);
    added->device = device;
    added->number = ++last_number;
    added->priority = priority;
    added->next = streams;
    streams = added;
    return added;
}

cudaError_t standin_cudaStreamDestroy(cudaStream_t handle) {
    standin_stream *stream = standin_stream_of(handle);
    if (stream == stream->device->default_stream) {
        return cudaErrorInvalidResourceHandle;
    }
    standin_capture_leave(stream);
    drain(stream);
    standin_stream **link = &streams;
    while (*link != stream) {
        link = &(*link)->next;
    }
    *link = stream->next;
    standin_nodes_clear(&stream->captured);
    free(stream);
    return cudaSuccess;
}
