/* A driver that watches another: what it holds, who uses which byte of physical memory, and which
 * stream is ordered after which.
 *
 * Order is kept as vector clocks. Every use of memory on a stream ticks that stream's clock. An
 * event carries what was before it; a stream that waits, and the host when it sees an event
 * complete or synchronises, learn what the event carries; whatever is queued later knows what the
 * host knows. A use of a 512-byte line of physical memory must know the last use of that line.
 *
 * Physical memory is followed through every address it is mapped at. Not locked.
 */
#ifndef GML_TEST_SHADOW_H
#define GML_TEST_SHADOW_H

#include "driver/driver.h"
#include "driver/streams.h"

enum { SHADOW_STREAMS = 8 }; /* different streams that one shadow can tell apart */

/* Wraps `inner`, which it then owns. NULL when the host has no memory. */
gml_driver *shadow_open(gml_driver *inner);

typedef struct shadow_counts {
    uint64_t handles, reservations, mappings, plain_blocks; /* that exist now */
    uint64_t held_bytes;                                    /* handles and plain blocks */
    uint64_t waits;                                         /* ordering edges between streams */
} shadow_counts;

shadow_counts shadow_count(const gml_driver *shadow);

/* A live block begins, is used once more, ends. Each counts as a use on `stream`: it is queued
 * there, and pending until the stream is advanced if streams are advanced by hand. False after a
 * breach: memory that is not mapped, that belongs to another live block, or that another stream
 * may still be using. */
bool shadow_begin(gml_driver *shadow, gml_address address, uint64_t size_bytes, gml_stream stream);
bool shadow_use(gml_driver *shadow, gml_address address, uint64_t size_bytes, gml_stream stream);
bool shadow_end(gml_driver *shadow, gml_address address, uint64_t size_bytes, gml_stream stream);

/* The first breach seen, those inside driver calls included (a mapping removed while work that
 * used it may be pending); "" if none. */
const char *shadow_breach(const gml_driver *shadow);

/* The streams of the driver below, to advance them by hand; NULL where it has none. */
gml_streams *shadow_streams(const gml_driver *shadow);

/* From now on a stream's wait for an event orders nothing: a planted fault. */
void shadow_forget_waits(gml_driver *shadow);

#endif
