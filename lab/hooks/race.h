/* The driver that watches the order of streams: any other driver, with every use of memory checked
 * against the orderings that were made through this table.
 *
 * Each stream has a vector clock (Lamport's happens-before with one component per stream).
 * Recording an event copies the clock of its stream, a stream that waits for an event comes after
 * that copy, and so does the host once a query or a synchronisation has shown that the event is
 * complete; work that the host queues afterwards comes after everything known to it. Orderings made
 * by the program itself are not seen: an allocator that relies on them, because it was told, is
 * refused.
 *
 * A use is a range of addresses, from begin_use to end_use, on one or several streams. These calls
 * are races: they change nothing and return GML_CORRUPT, with both streams in the reason:
 *   - beginning a use of memory whose last uses are not ordered before the new stream, or have not
 *     ended
 *   - unmapping addresses whose last uses the host does not know to have run, or have not ended
 *   - freeing plain memory in use (the device itself waits before it frees such memory)
 * Addresses are followed to the physical memory behind them, so that two views of one chunk count
 * as the same memory.
 *
 * Limits: a destroyed stream and a new one with the same handle count as one; so do the streams of
 * all threads behind the per-thread handle. Uses that were not begun are not checked. It makes no
 * device calls, and costs some microseconds per use and mapping.
 */
#ifndef GML_HOOKS_RACE_H
#define GML_HOOKS_RACE_H

#include "driver/driver.h"
#include "lake/hooks.h"

/* Wraps `inner`, which it then owns; on failure `inner` stays the caller's. *checker, to be told of
 * uses, lives as long as *out. Wrap it inside a driver that skips calls: outside, it would count
 * orderings that were never made. */
gml_status gml_race_driver_open(gml_driver *inner, gml_driver **out, gml_checker **checker);

#endif
