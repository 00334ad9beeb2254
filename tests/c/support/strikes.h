/* A driver whose calls fail as often as a test says, and for as long: like hooks/fault.h, which
 * draws from the opening on with one chance for all of it. Failures come up to three in a row, so
 * that what undoes a failure fails too; and what a lake took and did not give back is counted at
 * its end. */
#ifndef GML_TEST_STRIKES_H
#define GML_TEST_STRIKES_H

#include "driver/driver.h"

#include <stdatomic.h>

/* One for each lake. Guarded by the lake's lock, but for `per_million`. */
typedef struct strikes {
    atomic_uint_least64_t per_million; /* the chance of each call that one fails, or a row */
    uint64_t random_state;             /* the seed at first */
    uint64_t row;                      /* of the calls that come next, how many fail */
    uint64_t struck;                   /* calls that failed */
    /* What was taken and not given back: pieces of memory, bytes of addresses, of mappings and of
     * the host's memory, events. */
    uint64_t memory, addresses, mapped, host, events;
} strikes;

/* Opens a lake whose calls fail by `of`, which must outlive it, also while it opens. Of
 * config->hooks it keeps whether the order is checked. */
gml_status strikes_open(strikes *of, const gml_lake_config *config, gml_lake **out);

/* Checks that the device's memory and addresses were given back, or all else. pre: the lake is
 * closed. */
void strikes_check_memory(const strikes *of);
void strikes_check_rest(const strikes *of);

#endif
