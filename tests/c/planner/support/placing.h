/* Random lifetimes ready to be placed, and a check of what came of it. */
#ifndef GML_TEST_PLACING_H
#define GML_TEST_PLACING_H

#include "planner/methods.h"
#include "support/check.h"

enum { PLACING_MOST = 400, PLACING_UNIT = 512 };

typedef struct placing {
    gml_lifetime lifetimes[PLACING_MOST];
    gml_instance instance;
    gml_budget budget; /* plenty */
    uint32_t order[PLACING_MOST];
    uint64_t offsets[PLACING_MOST], peak;
} placing;

typedef struct placing_kind {
    size_t count;
    uint64_t times;   /* events lie in [0, times) */
    uint64_t longest; /* life */
    uint64_t units;   /* largest size */
    uint64_t period;  /* 0, or times */
} placing_kind;

/* Random lifetimes and a random order. */
void placing_random(placing *f, check_random *random, placing_kind kind);

/* lifetimes[0] to lifetimes[count - 1] are set; in the order of the instance. */
void placing_open(placing *f, size_t count, uint64_t period);
void placing_close(placing *f);

void placing_shuffle(check_random *random, uint32_t *order, size_t count);

/* No two that meet overlap, and the peak is the largest end. */
void placing_check(const gml_instance *instance, const uint64_t *offsets, uint64_t peak_bytes);

/* By gml_lowest_run() into f->offsets and f->peak. */
gml_status placing_run_lowest(placing *f, uint64_t limit_bytes);

#endif
