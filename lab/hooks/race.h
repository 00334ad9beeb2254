/* The driver that watches the order of streams: any other driver, with every use of memory checked
 * against the orderings that were made through this table.
 *
 * Each stream has a vector clock (Lamport's happens-before with one component per stream).
 * Recording an event copies the clock of its stream, a stream that waits for an event comes after
 * that copy, and so does the host once a query or a synchronisation has told it that the event is
 * complete; what the host queues afterwards comes after all that it knows. Orderings that the
 * program makes itself are not seen: an allocator that counts on them, because it was told, is
 * refused.
 *
 * A use is a range of addresses, from begin_use to end_use, on one or several streams. It is a
 * race, answered as GML_CORRUPT with both streams in the reason, and nothing is done, to begin a
 * use of memory whose last uses are not ordered before the new stream, or have not ended, to unmap
 * addresses through which the last uses are not known by the host to have run, or have not ended,
 *   to free plain memory in use. (The device waits itself before it takes such memory back.)
 * Addresses are followed to the physical memory behind them, so that two views of one chunk are
 * seen to be the same memory.
 *
 * What it cannot see: a stream that was destroyed and another one with the same handle are one; so
 * are the streams of all threads behind the handle that means a thread's own. A use outside those
 * that were begun is nobody's. It asks nothing of the device, and its own cost is some microseconds
 * per use and mapping.
 */
#ifndef GML_HOOKS_RACE_H
#define GML_HOOKS_RACE_H

#include "driver/driver.h"
#include "lake/hooks.h"

/* Wraps `inner`, which it then owns; on failure `inner` stays the caller's. *checker, who is to be
 * told of uses, lives as long as *out. Wrapped around what
 * skips calls, it would believe in orderings that were not made: it belongs inside. */
gml_status gml_race_driver_open(gml_driver *inner, gml_driver **out, gml_checker **checker);

#endif
