/* Streams and events as ordered queues, for the backends without a device.
 *
 * A stream is a queue of operations: work (a callback), an event record, a wait for an event.
 * In automatic mode, the default, an operation that can run does so as soon as it is queued. In
 * manual mode nothing runs until a test advances a stream or something synchronises with it, so
 * that an event really is pending until the test decides otherwise.
 *
 * Lock: `lock` guards every field; callbacks run with it held and may not call back.
 */
#ifndef GML_DRIVER_STREAMS_H
#define GML_DRIVER_STREAMS_H

#include "driver/driver.h"

typedef void (*gml_stream_work)(void *context);

gml_status gml_streams_open(gml_streams **out);
void gml_streams_close(gml_streams *streams);

gml_status gml_streams_set_manual(gml_streams *streams, bool is_manual);

/* Queues `work` on `stream`; streams come into being on first use. */
gml_status gml_streams_enqueue(gml_streams *streams, gml_stream stream, gml_stream_work work,
                               void *context);

/* Runs up to `count` operations of `stream`, stopping early at a wait whose event is pending;
 * `ran` (may be NULL) receives how many. */
gml_status gml_streams_advance(gml_streams *streams, gml_stream stream, uint64_t count,
                               uint64_t *ran);

/* As the calls of the driver with these names; GML_INVALID_ARGUMENT for an event that does not
 * exist. event_record_all is behind all that is queued on any stream.
 *
 * While a stream captures, work, event records, waits and synchronisation on it answer GML_MISUSE,
 * as do queries of events that were last recorded on it, event_record_all and device_synchronize:
 * each would break the capture, or become a part of it. (CUDA would answer a query of an event
 * recorded before the capture began; the core has no business asking.) */
#define GML_STREAMS_CALL(upper, lower, parameters, arguments, cost_bytes)                          \
    gml_status gml_streams_##lower parameters;
GML_DRIVER_STREAM_TABLE(GML_STREAMS_CALL, gml_streams)
#undef GML_STREAMS_CALL

gml_status gml_streams_set_capturing(gml_streams *streams, gml_stream stream, bool is_capturing);

#endif
