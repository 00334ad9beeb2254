/* What the benchmarks have in common: an end with a reason, random numbers, medians. */
#ifndef BENCH_H
#define BENCH_H

#include "base/clock.h"
#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

/* Ends the program. */
static inline void bench_die(const char *what) {
    fprintf(stderr, "benchmark: %s\n", what);
    exit(1);
}

static inline void bench_check(gml_status status, const char *what) {
    if (status != GML_OK) {
        bench_die(what);
    }
}

/* xorshift; `state` must not be 0. */
static inline uint64_t bench_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static inline int bench_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts them. */
static inline double bench_median(double *values, size_t count) {
    qsort(values, count, sizeof *values, bench_compare);
    return values[count / 2];
}

#endif
