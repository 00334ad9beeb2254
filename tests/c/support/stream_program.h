/* A random program on many streams of one lake, and everything that must hold on its way.
 *
 * Streams run only when the program lets them, so that work really is pending. Each block has work
 * queued on its stream that stamps it, and later work, there or on streams that it was recorded on,
 * that looks for the stamp: with the driver `host`, memory that was handed on without an order
 * shows as wrong bytes. With GML_HOOKS(.check_order) it shows on every driver.
 *
 * The program keeps to gmlake.h: it makes its own orderings where it uses a block on another
 * stream, records that or has the block's own stream wait for it, and queues nothing on a stream
 * that it has destroyed.
 */
#ifndef GML_TEST_STREAM_PROGRAM_H
#define GML_TEST_STREAM_PROGRAM_H

#include "gmlake.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct stream_program stream_program;

typedef struct stream_program_config {
    const gml_lake_config *lake;
    uint64_t seed;
    size_t streams;         /* at first, 1 to 16 */
    uint64_t largest_bytes; /* of a request */
    uint64_t live_bytes;    /* at most */
    uint64_t steps_of;      /* the program repeats itself after so many operations; 0: never */
    bool may_fail;          /* driver calls do, on purpose */
    bool has_captures;      /* graphs are captured now and then */
    bool is_old;            /* the driver has no event behind all streams */
} stream_program_config;

/* GML_OK; any other status: the lake could not be opened, and nothing is left. */
gml_status stream_program_open(const stream_program_config *config, stream_program **out);

/* Runs up to `operations`, until the first fault. */
void stream_program_run(stream_program *program, uint64_t operations);

/* Ends every block and the lake. Where all calls succeed everything must be back then. */
void stream_program_close(stream_program *program);

/* The first thing found wrong, "" if all was well. Valid after the close. */
const char *stream_program_fault(const stream_program *program);

typedef struct stream_program_sums {
    uint64_t operations, allocations, refused, failed; /* calls of the lake */
    uint64_t checks;                                   /* stamps that were looked at */
    uint64_t waits, borrowed_bytes, driver_calls;      /* at the end */
    uint64_t planned;                                  /* blocks served by a plan */
} stream_program_sums;

stream_program_sums stream_program_count(const stream_program *program);

void stream_program_free(stream_program *program);

#endif
