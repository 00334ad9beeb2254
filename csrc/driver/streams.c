/* Queues of operations, run in order within a stream and across streams only by waiting. */
#include "driver/streams.h"

#include "base/map.h"
#include "base/pool.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct queue queue;

/* A moment: all operations up to that number have run, of one stream or of all. Recording an event
 * again gives it a later one; waits keep theirs. */
typedef struct moment {
    uint64_t number; /* 0: before everything */
    queue *stream;   /* NULL: all */
} moment;

typedef struct operation {
    struct operation *next; /* of its stream */
    uint64_t number;        /* of all operations, in the order in which they were queued */
    gml_stream_work work;   /* NULL for a recording and for a wait */
    void *context;
    moment until; /* of a wait */
} operation;

struct queue {
    queue *next; /* in order of first use */
    operation *head, *tail;
    bool is_capturing;
};

typedef struct event_state {
    moment last; /* of the last recording */
} event_state;

struct gml_streams {
    pthread_mutex_t lock;
    queue default_stream; /* stream 0, which a map cannot hold; heads the list of all */
    gml_map queues;       /* by stream */
    gml_map events;       /* by event */
    gml_pool queue_objects, operations, event_objects;
    gml_event next_event;
    uint64_t last_number; /* of an operation */
    bool is_manual;
};

gml_status gml_streams_open(gml_streams **out) {
    gml_streams *streams = calloc(1, sizeof *streams);
    if (!streams) {
        return GML_NO_HOST_MEMORY;
    }
    if (pthread_mutex_init(&streams->lock, NULL) != 0) {
        free(streams);
        return GML_NO_HOST_MEMORY;
    }
    streams->queue_objects.object_bytes = sizeof(queue);
    streams->operations.object_bytes = sizeof(operation);
    streams->event_objects.object_bytes = sizeof(event_state);
    streams->next_event = 1;
    *out = streams;
    return GML_OK;
}

void gml_streams_close(gml_streams *streams) {
    if (!streams) {
        return;
    }
    gml_map_clear(&streams->queues);
    gml_map_clear(&streams->events);
    gml_pool_clear(&streams->queue_objects);
    gml_pool_clear(&streams->operations);
    gml_pool_clear(&streams->event_objects);
    (void)pthread_mutex_destroy(&streams->lock);
    free(streams);
}

/* ---- with the lock held ---------------------------------------------------------------------- */

/* The queue of a stream, made on first use; NULL when the host has no memory. */
static queue *queue_of(gml_streams *streams, gml_stream stream) {
    if (stream == 0) {
        return &streams->default_stream;
    }
    queue *found = gml_map_find(&streams->queues, stream);
    if (found) {
        return found;
    }
    queue *added = gml_pool_take(&streams->queue_objects);
    if (!added || gml_map_insert(&streams->queues, stream, added) != GML_OK) {
        gml_pool_give(&streams->queue_objects, added);
        return NULL;
    }
    added->next = streams->default_stream.next;
    streams->default_stream.next = added;
    return added;
}

/* The queue of a stream; GML_MISUSE if it captures. */
static gml_status uncaptured_queue(gml_streams *streams, gml_stream stream, queue **out) {
    queue *found = queue_of(streams, stream);
    if (!found) {
        return GML_NO_HOST_MEMORY;
    }
    *out = found;
    return found->is_capturing ? GML_MISUSE : GML_OK;
}

static bool is_behind(const queue *stream, uint64_t number) {
    return stream->head && stream->head->number <= number;
}

/* A stream that has yet to get to the moment, or NULL: it has passed. */
static queue *pending_on(gml_streams *streams, moment until) {
    if (until.stream || !until.number) {
        return until.stream && is_behind(until.stream, until.number) ? until.stream : NULL;
    }
    queue *stream = &streams->default_stream;
    while (stream && !is_behind(stream, until.number)) {
        stream = stream->next;
    }
    return stream;
}

static bool can_run(gml_streams *streams, const operation *next) {
    return next && !pending_on(streams, next->until);
}

/* pre: can_run() its head */
static void run_head(gml_streams *streams, queue *stream) {
    operation *done = stream->head;
    stream->head = done->next;
    if (!stream->head) {
        stream->tail = NULL;
    }
    if (done->work) {
        done->work(done->context);
    }
    gml_pool_give(&streams->operations, done);
}

/* Runs everything. It ends with empty queues: a wait refers to a recording queued before it. */
static void run_all(gml_streams *streams) {
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (queue *stream = &streams->default_stream; stream; stream = stream->next) {
            while (can_run(streams, stream->head)) {
                run_head(streams, stream);
                has_moved = true;
            }
        }
    }
}

/* Runs one operation that the head of `stream` depends on, or the head itself. */
static void run_towards(gml_streams *streams, queue *stream) {
    queue *before = pending_on(streams, stream->head->until);
    while (before) {
        stream = before;
        before = pending_on(streams, stream->head->until);
    }
    run_head(streams, stream);
}

static gml_status append(gml_streams *streams, queue *stream, operation what) {
    operation *added = gml_pool_take(&streams->operations);
    if (!added) {
        return GML_NO_HOST_MEMORY;
    }
    *added = what;
    added->number = ++streams->last_number;
    if (stream->tail) {
        stream->tail->next = added;
    } else {
        stream->head = added;
    }
    stream->tail = added;
    if (!streams->is_manual) {
        run_all(streams);
    }
    return GML_OK;
}

static bool is_any_capturing(const gml_streams *streams) {
    const queue *stream = &streams->default_stream;
    while (stream && !stream->is_capturing) {
        stream = stream->next;
    }
    return stream != NULL;
}

/* Finds an event that may be queried or synchronised with. */
static gml_status callable_event(const gml_streams *streams, gml_event event, event_state **out) {
    event_state *found = gml_map_find(&streams->events, event);
    if (!found) {
        return GML_INVALID_ARGUMENT;
    }
    if (found->last.stream && found->last.stream->is_capturing) {
        return GML_MISUSE;
    }
    *out = found;
    return GML_OK;
}

static gml_status enqueue_locked(gml_streams *streams, gml_stream stream, gml_stream_work work,
                                 void *context) {
    queue *target;
    gml_status status = uncaptured_queue(streams, stream, &target);
    if (status != GML_OK) {
        return status;
    }
    return append(streams, target, (operation){.work = work, .context = context});
}

static gml_status advance_locked(gml_streams *streams, gml_stream stream, uint64_t count,
                                 uint64_t *ran) {
    queue *target = queue_of(streams, stream);
    if (!target) {
        return GML_NO_HOST_MEMORY;
    }
    uint64_t done = 0;
    while (done < count && can_run(streams, target->head)) {
        run_head(streams, target);
        done++;
    }
    if (ran) {
        *ran = done;
    }
    return GML_OK;
}

static gml_status event_create(gml_streams *streams, gml_event *out) {
    event_state *added = gml_pool_take(&streams->event_objects);
    if (!added || gml_map_insert(&streams->events, streams->next_event, added) != GML_OK) {
        gml_pool_give(&streams->event_objects, added);
        return GML_NO_HOST_MEMORY;
    }
    *out = streams->next_event++;
    return GML_OK;
}

static gml_status event_destroy(gml_streams *streams, gml_event event) {
    event_state *taken = gml_map_take(&streams->events, event);
    if (!taken) {
        return GML_INVALID_ARGUMENT;
    }
    gml_pool_give(&streams->event_objects, taken);
    return GML_OK;
}

static gml_status event_record(gml_streams *streams, gml_event event, gml_stream stream) {
    event_state *found = gml_map_find(&streams->events, event);
    if (!found) {
        return GML_INVALID_ARGUMENT;
    }
    queue *target;
    gml_status status = uncaptured_queue(streams, stream, &target);
    if (status != GML_OK) {
        return status;
    }
    status = append(streams, target, (operation){0});
    if (status == GML_OK) {
        found->last = (moment){streams->last_number, target};
    }
    return status;
}

static gml_status event_record_all(gml_streams *streams, gml_event event) {
    event_state *found = gml_map_find(&streams->events, event);
    if (!found) {
        return GML_INVALID_ARGUMENT;
    }
    if (is_any_capturing(streams)) {
        return GML_MISUSE;
    }
    found->last = (moment){streams->last_number, NULL};
    return GML_OK;
}

static gml_status stream_wait(gml_streams *streams, gml_stream stream, gml_event event) {
    const event_state *found = gml_map_find(&streams->events, event);
    if (!found) {
        return GML_INVALID_ARGUMENT;
    }
    queue *target;
    gml_status status = uncaptured_queue(streams, stream, &target);
    return status == GML_OK && found->last.number
               ? append(streams, target, (operation){.until = found->last})
               : status;
}

static gml_status event_query(gml_streams *streams, gml_event event) {
    event_state *found;
    gml_status status = callable_event(streams, event, &found);
    if (status != GML_OK) {
        return status;
    }
    return pending_on(streams, found->last) ? GML_NOT_READY : GML_OK;
}

static gml_status event_synchronize(gml_streams *streams, gml_event event) {
    event_state *found;
    gml_status status = callable_event(streams, event, &found);
    queue *before = status == GML_OK ? pending_on(streams, found->last) : NULL;
    for (; before; before = pending_on(streams, found->last)) {
        run_towards(streams, before);
    }
    return status;
}

static gml_status stream_synchronize(gml_streams *streams, gml_stream stream) {
    queue *target;
    gml_status status = uncaptured_queue(streams, stream, &target);
    while (status == GML_OK && target->head) {
        run_towards(streams, target);
    }
    return status;
}

static gml_status device_synchronize(gml_streams *streams) {
    if (is_any_capturing(streams)) {
        return GML_MISUSE;
    }
    run_all(streams);
    return GML_OK;
}

static gml_status stream_capturing(gml_streams *streams, gml_stream stream, bool *out) {
    const queue *target = queue_of(streams, stream);
    if (target) {
        *out = target->is_capturing;
    }
    return target ? GML_OK : GML_NO_HOST_MEMORY;
}

/* ---- the interface: each takes the lock around one of the above ------------------------------ */

static void lock(gml_streams *streams) {
    (void)pthread_mutex_lock(&streams->lock);
}

static gml_status unlock(gml_streams *streams, gml_status status) {
    (void)pthread_mutex_unlock(&streams->lock);
    return status;
}

gml_status gml_streams_set_manual(gml_streams *streams, bool is_manual) {
    lock(streams);
    streams->is_manual = is_manual;
    if (!is_manual) {
        run_all(streams);
    }
    return unlock(streams, GML_OK);
}

gml_status gml_streams_enqueue(gml_streams *streams, gml_stream stream, gml_stream_work work,
                               void *context) {
    lock(streams);
    return unlock(streams, enqueue_locked(streams, stream, work, context));
}

gml_status gml_streams_advance(gml_streams *streams, gml_stream stream, uint64_t count,
                               uint64_t *ran) {
    lock(streams);
    return unlock(streams, advance_locked(streams, stream, count, ran));
}

#define CALL(upper, lower, parameters, arguments, cost_bytes)                                      \
    gml_status gml_streams_##lower parameters {                                                    \
        gml_streams *driver = self;                                                                \
        lock(driver);                                                                              \
        return unlock(driver, lower arguments);                                                    \
    }
GML_DRIVER_STREAM_TABLE(CALL, gml_streams)
#undef CALL

gml_status gml_streams_set_capturing(gml_streams *streams, gml_stream stream, bool is_capturing) {
    lock(streams);
    queue *target = queue_of(streams, stream);
    if (target) {
        target->is_capturing = is_capturing;
    }
    return unlock(streams, target ? GML_OK : GML_NO_HOST_MEMORY);
}
