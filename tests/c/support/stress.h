/* A random program on several lakes, and what it knows of them: which blocks it has, and what each
 * must hold. test_lake_stress.c runs it.
 *
 * Lakes come in three kinds, two on one device as regions are. On `host` every block is stamped,
 * and the stamp is looked at when the block ends, when its lake wakes, and where its content is
 * saved.
 *
 * Lock: a thread that touches memory holds stress_lake.awake for reading, one that lets the lake
 * sleep, wake or forget what it saved for writing, since memory that sleeps may not be touched.
 * Every other call is made without: lakes have locks of their own.
 */
#ifndef GML_TEST_STRESS_H
#define GML_TEST_STRESS_H

#include "driver/streams.h"
#include "support/contract.h"
#include "support/strikes.h"

#include <pthread.h>

enum {
    STRESS_LAKES = 4,
    STRESS_DEVICES = 2,
    STRESS_THREADS = 4,
    STRESS_LIVE = 100,
    STRESS_BUFFERS = 3,
    STRESS_EXCHANGED = 8,
    STRESS_GRAPHS = 8,
    STRESS_TURNS = 2,
    STRESS_STRIDE_BYTES = 1 << 18, /* between stamps: what takes long on `host` is to fill pages */
};

typedef enum stress_answer { STRESS_NO, STRESS_YES, STRESS_MAYBE } stress_answer;

typedef struct stress_lake {
    gml_lake *lake;
    strikes strikes;
    uint64_t capacity_bytes;
    gml_device *device;
    bool can_sleep, has_elastic, is_arena, is_window;
    pthread_rwlock_t awake;
    /* Guarded by it. A sleep is a try to sleep, counted from 1. */
    uint64_t sleeps;
    uint64_t lost_nap;      /* the last that gave contents up: what was stamped before it is gone */
    uint64_t saved_nap;     /* the last that saved all contents in the host's memory */
    stress_answer is_saved; /* whether they are there */
} stress_lake;

typedef struct stress_block {
    live_block block; /* address 0: none */
    stress_lake *at;
    uint64_t born;    /* sleeps of the lake when it was served, or later */
    uint64_t stamped; /* when it was stamped */
    bool is_stamped;
    bool is_captured; /* in a capture that takes turns and goes on, or failed: has no content */
} stress_block;

/* A graph that took its turn when it was captured. */
typedef struct stress_graph {
    gml_lake *lake;
    uint64_t number;
} stress_graph;

typedef struct stress_buffer {
    gml_address address; /* 0: none */
    stress_lake *at;
    uint64_t size_bytes, seed;
    uint64_t stamped_bytes; /* from its beginning on, chunk by chunk */
    uint64_t stamped;       /* sleeps of the lake then */
} stress_buffer;

/* How often what matters happened: a stress in which nothing does proves nothing. */
typedef struct stress_census {
    atomic_uint_least64_t sleeps[3]; /* by backup */
    atomic_uint_least64_t failed_sleeps, half_sleeps, wakes, failed_wakes, saved;
    atomic_uint_least64_t grown, shrunk, refused, given, captures, struck, planned;
    atomic_uint_least64_t turns, failed_turns, spoiled; /* spoiled: graphs, each time */
} stress_census;

extern stress_census stress_counts;

/* What all threads of one run share. */
typedef struct stress_lakes {
    stress_lake lakes[STRESS_LAKES];
    gml_device devices[STRESS_DEVICES]; /* what lakes of one have in common */
    bool is_alone;                      /* one thread */
    bool repeats;                       /* it comes in steps, which `plan` may foresee */
    uint64_t per_million;               /* driver calls that fail, as a rule; 0: none does */
    bool is_failing;                    /* some may have failed */
    pthread_mutex_t lock;
    /* Guarded by the lock: blocks on their way to whoever frees them. */
    stress_block exchange[STRESS_EXCHANGED];
} stress_lakes;

/* One thread. */
typedef struct stress {
    stress_lakes *shared;
    uint64_t number; /* from 0 */
    size_t operations;
    uint64_t seed;
    check_random random;
    bool repeats;    /* the open step is one of those that are the same */
    bool takes_turn; /* the capture does */
    stress_block blocks[STRESS_LIVE];
    size_t count;
    stress_buffer buffers[STRESS_BUFFERS];
    stress_lake *captured_on;           /* NULL: nothing is captured */
    stress_graph graphs[STRESS_GRAPHS]; /* some of those that it captured; they may be gone */
    size_t graph_count;                 /* captured so far */
    uint64_t captures[STRESS_LAKES];    /* uses of the pool that were not released */
} stress;

/* ---- stress_lakes.c -------------------------------------------------------------------------- */

/* Opens the lakes that the seed stands for. failing: calls of the driver do. */
void stress_open(stress_lakes *shared, uint64_t seed, bool is_alone, bool failing);

/* No call fails from here on: whatever a lake promises can be had. */
void stress_calm(stress_lakes *shared);

/* Frees what is on its way, and closes. */
void stress_close(stress_lakes *shared);

/* GML_OK, or what a failing driver explains. */
void stress_expect(const stress *self, gml_status status);

stress_lake *stress_any_lake(stress *self);
bool stress_is_asleep(const stress_lake *at);
/* Whether this thread or another may capture a graph on the lake's device. */
bool stress_may_capture(const stress *self, const stress_lake *at);
gml_streams *stress_streams(const stress_lake *at); /* behind its driver */

/* ---- stress_blocks.c ------------------------------------------------------------------------- */

/* One of this thread's own streams that does not capture: it may end. */
gml_stream stress_own_stream(stress *self);
/* One that never ends nor captures. */
gml_stream stress_lasting_stream(const stress *self);
gml_stream stress_capturing_stream(const stress *self);
/* Also everybody's, and where a graph is captured the stream that captures. */
gml_stream stress_any_stream(stress *self, const stress_lake *at);

void stress_begin_block(stress *self);
void stress_end_block(stress *self, size_t at);
/* Somebody else may free it. pre: there is one. */
void stress_exchange_block(stress *self);

/* Looks at its content, or gives it one where it has none now. */
void stress_touch(stress_block *held);
void stress_touch_all(stress *self, const stress_lake *at);

/* ---- stress_elastic.c ------------------------------------------------------------------------ */

/* Opens, resizes or closes a buffer. */
void stress_change_buffer(stress *self);
void stress_touch_buffers(stress *self, const stress_lake *at);
void stress_close_buffers(stress *self);

/* ---- stress_sleep.c -------------------------------------------------------------------------- */

/* Sleeps or wakes, reads what is saved or forgets it. */
void stress_change_sleep(stress *self);
/* Wakes a lake where it sleeps, which succeeds as no call fails meanwhile. pre: no graph is
 * captured. */
void stress_wake_finally(stress *self, stress_lake *at);

/* ---- stress_tell.c --------------------------------------------------------------------------- */

/* Anything else that a program may ask for. */
void stress_tell(stress *self);
void stress_end_capture(stress *self);
void stress_release_captures(stress *self);

#endif
