/* A driver whose calls fail as often as a test says, and for as long: like hooks/fault.h, which
 * draws from the opening on with one chance for all of it. Calls fail at random, up to two in a
 * row, so that what undoes a failure fails too, or by number. What no driver would forgive is
 * noted: a call that a capture does not survive, and one on a stream that is gone; and what a lake
 * took and did not give back is counted at its end. */
#ifndef GML_TEST_STRIKES_H
#define GML_TEST_STRIKES_H

#include "driver/driver.h"

#include <stdatomic.h>

enum { STRIKES_NUMBERS = 2, STRIKES_GONE = 64 };

/* Of all lakes of a program, which has one thread. */
typedef struct strikes_plan {
    uint64_t made;                     /* calls so far */
    uint64_t numbers[STRIKES_NUMBERS]; /* of those that fail, from 1; 0: none */
} strikes_plan;

/* One for each lake. Guarded by the lake's lock, but for `per_million`. */
typedef struct strikes {
    atomic_uint_least64_t per_million; /* the chance of each call that one fails, or a row */
    strikes_plan *plan;                /* NULL: no call fails by its number */
    uint64_t random_state;             /* the seed at first */
    uint64_t row;                      /* of the calls that come next, how many fail */
    uint64_t rest;                     /* of those behind them, how many do not */
    uint64_t struck;                   /* calls that failed */
    uint64_t skips; /* the calls whose bit is set answer GML_OK and are not made: a planted fault */
    bool is_unchecked; /* the order of streams, since to check it takes host memory, too */
    bool is_old;       /* the driver has no event behind all streams, as before CUDA 12.5 */
    gml_stream gone[STRIKES_GONE]; /* streams that were destroyed */
    size_t gone_count;
    char fault[96]; /* the first call that no driver would forgive; "": none */
    /* What was taken and not given back: pieces of memory, bytes of addresses, of mappings and of
     * the host's memory, events. */
    uint64_t memory, addresses, mapped, host, events;
} strikes;

/* Opens a lake whose calls fail by `of`, which must outlive it, also while it opens. */
gml_status strikes_open(strikes *of, const gml_lake_config *config, gml_lake **out);

/* The same for a driver alone, which it then owns. */
gml_status strikes_wrap(strikes *by, gml_driver **driver);

/* From now on no call may name the stream, or it may again. */
void strikes_end_stream(strikes *of, gml_stream stream);
void strikes_begin_stream(strikes *of, gml_stream stream);

/* Checks that the device's memory and addresses were given back, or all else. pre: the lake is
 * closed. */
void strikes_check_memory(const strikes *of);
void strikes_check_rest(const strikes *of);

#endif
