/* Fences over a `sim` driver whose streams run by hand. */
#ifndef GML_TEST_FENCE_BENCH_H
#define GML_TEST_FENCE_BENCH_H

#include "core/fences.h"
#include "driver/streams.h"
#include "support/check.h"

/* The first SEEKERS streams ask for memory, the others only work. */
enum { SEEKERS = 4, STREAMS = 6, FIRST_STREAM = 10 };

typedef struct bench {
    gml_driver *driver;
    gml_streams *queues;
    gml_fences fences;
    gml_seeker seekers[SEEKERS]; /* of the streams FIRST_STREAM and up */
} bench;

/* Everything allowed, and as many waits as requests. */
extern const gml_fence_rules bench_all_rules;

void bench_open(bench *self, gml_fence_rules rules);

/* The driver call of that number fails; 0: none. */
void bench_open_failing(bench *self, const gml_fence_rules *rules, uint64_t fail_call);

/* Closes, and sees that every event was given back. */
void bench_close(bench *self);

/* Makes the driver, one at a time, one of before CUDA 12.5, which has no event behind all. */
void bench_make_old(gml_driver *driver);

/* A free, after work on a stream by its index. */
uint64_t bench_free(bench *self, size_t stream);

/* gml_fence_pass() on seekers by their index; it must succeed. */
bool bench_passes(bench *self, size_t borrower, size_t owner, uint64_t instant, gml_effort effort);

/* Runs up to `count` of what is queued on the stream. */
void bench_advance(bench *self, size_t stream, uint64_t count);

#endif
