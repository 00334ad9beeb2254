/* Fences over a `sim` driver whose streams run by hand. */
#ifndef GML_TEST_FENCE_BENCH_H
#define GML_TEST_FENCE_BENCH_H

#include "core/fences.h"
#include "driver/streams.h"
#include "support/check.h"

enum { STREAMS = 4, FIRST_STREAM = 10 };

typedef struct bench {
    gml_driver *driver;
    gml_streams *queues;
    gml_fences fences;
    gml_timeline lines[STREAMS]; /* of the streams FIRST_STREAM and up */
} bench;

/* Everything allowed, and as many waits as requests. */
extern const gml_fence_rules bench_all_rules;

void bench_open(bench *self, gml_fence_rules rules);

/* The driver call of that number fails; 0: none. */
void bench_open_failing(bench *self, const gml_fence_rules *rules, uint64_t fail_call);

/* Closes, and sees that every event was given back. */
void bench_close(bench *self);

/* Driver calls so far: of one kind, and of all. */
uint64_t bench_calls(const bench *self, gml_driver_call call);
uint64_t bench_all_calls(const bench *self);

/* The functions of fences.h on timelines by their index; each must succeed. */
uint64_t bench_now(bench *self, size_t line);
bool bench_passes(bench *self, size_t borrower, size_t owner, uint64_t instant, gml_effort effort);
bool bench_marks(bench *self, size_t line);
bool bench_waits(bench *self, size_t line);

/* Runs up to `count` of what is queued on the stream. */
void bench_advance(bench *self, size_t line, uint64_t count);

/* The first pair there is. */
const gml_pair *bench_pair(bench *self);

#endif
