/* Watches the driver calls of one lake at a time: what the device has lent and not got back, and
 * that no call names a stream that is gone. */
#ifndef GML_TEST_CALL_WATCH_H
#define GML_TEST_CALL_WATCH_H

#include "gmlake.h"

#include <stdbool.h>
#include <stdint.h>

/* Watches the lake from here on; what was watched before is forgotten. The lake holds nothing yet
 * but address space. */
void call_watch_begin(gml_lake *lake);

/* No call may name the stream any more; or it may again, because there is another of that handle.
 */
void call_watch_end_stream(gml_stream stream);

/* The first call that named a stream that is gone; "" if none did. */
const char *call_watch_fault(void);

/* Of physical memory, mappings, plain blocks and events: how much there is that was made since
 * call_watch_begin(). Valid after the lake was closed, too. */
uint64_t call_watch_leftovers(void);

/* Calls on events and streams so far, those that a program with one stream never needs: to create,
 * record, query and wait for events. */
uint64_t call_watch_event_calls(gml_lake *lake);

#endif
