/* What queue.c and event.c lend to captures and graphs; the lock is held throughout. */
#ifndef GML_STANDIN_QUEUE_H
#define GML_STANDIN_QUEUE_H

#include "standin/standin.h"

/* ---- queue.c --------------------------------------------------------------------------------- */

/* The queues of the whole process, in manual mode: queue.c alone decides when something happens. */
gml_streams *standin_queues(void);

/* All streams, through `next`. */
standin_stream *standin_streams(void);

/* Queues a recording of `point`. When it happens, standin_event_reached() hears of it, unless
 * `event` is NULL. */
void standin_queue_record(standin_stream *stream, gml_event point, cudaEvent_t event,
                          uint64_t recording);

/* Queues a wait for what `point` was last recorded for, on `recorded_on`. */
void standin_queue_wait(standin_stream *stream, gml_event point, standin_stream *recorded_on);

/* What `stream` gets from now on happens after what `before`, possibly no longer there, has got. */
void standin_queue_behind(standin_stream *stream, standin_stream *before);

/* A stream of the device behind all that its others were given by now. It has no work of its own,
 * so it comes as far as they let it whenever somebody asks: standin_settle(), which does nothing
 * for any other stream, or NULL. */
standin_stream *standin_stream_behind_all(standin_device *device);
void standin_settle(standin_stream *stream);

/* Queues the work of a node, which is held until then. */
cudaError_t standin_queue_node(standin_stream *stream, cudaGraphNode_t node);

/* Lets one operation happen: the oldest of the stream, or one that it waits for.
 * pre: the stream has pending operations. */
void standin_step_towards(standin_stream *stream);

/* ---- event.c --------------------------------------------------------------------------------- */

/* The recording number `recording` of an event, which may be gone or recorded anew, is done. */
void standin_event_reached(cudaEvent_t event, uint64_t recording, uint64_t tick);

cudaError_t standin_event_record_on(cudaEvent_t event, standin_stream *stream);
cudaError_t standin_event_wait_on(standin_stream *stream, cudaEvent_t event);

/* ---- host_function.c ------------------------------------------------------------------------- */

/* What standin_run_host_functions() shall run. No host memory left ends the process. */
void standin_queue_host_function(void (*function)(void *), void *argument);

/* The thread's next standin_run_host_functions() returns only when all that are queued have run. */
void standin_await_host_functions(void);

#endif
