/* A random program on several lakes, and what it knows of them: which blocks it has, and what each
 * must hold. test_lake_storm.c runs it.
 *
 * Lakes come in three kinds, two on one device as regions are. On `host` every block is stamped,
 * and the stamp is looked at when the block ends, when its lake wakes, and where its content is
 * saved.
 *
 * Lock: a thread that touches memory holds storm_lake.awake for reading, one that lets the lake
 * sleep, wake or forget what it saved for writing, since memory that sleeps may not be touched.
 * Every other call is made without: lakes have locks of their own.
 */
#ifndef GML_TEST_STORM_H
#define GML_TEST_STORM_H

#include "driver/streams.h"
#include "support/contract.h"
#include "support/strikes.h"

#include <pthread.h>

enum {
    STORM_LAKES = 4,
    STORM_DEVICES = 2,
    STORM_THREADS = 4,
    STORM_LIVE = 100,
    STORM_BUFFERS = 3,
    STORM_EXCHANGED = 8,
    STORM_STRIDE_BYTES = 1 << 18, /* between stamps: what takes long on `host` is to fill pages */
};

typedef enum storm_answer { STORM_NO, STORM_YES, STORM_MAYBE } storm_answer;

typedef struct storm_lake {
    gml_lake *lake;
    strikes strikes;
    uint64_t capacity_bytes;
    gml_device *device;
    bool can_sleep, has_elastic, is_arena;
    pthread_rwlock_t awake;
    /* Guarded by it. A sleep is a try to sleep, counted from 1. */
    uint64_t sleeps;
    uint64_t lost_nap;     /* the last that gave contents up: what was stamped before it is gone */
    uint64_t saved_nap;    /* the last that saved all contents in the host's memory */
    storm_answer is_saved; /* whether they are there */
} storm_lake;

typedef struct storm_block {
    live_block block; /* address 0: none */
    storm_lake *at;
    uint64_t born;    /* sleeps of the lake when it was served, or later */
    uint64_t stamped; /* when it was stamped */
    bool is_stamped;
} storm_block;

typedef struct storm_buffer {
    gml_address address; /* 0: none */
    storm_lake *at;
    uint64_t size_bytes, seed;
    uint64_t stamped_bytes; /* from its beginning on, chunk by chunk */
    uint64_t stamped;       /* sleeps of the lake then */
} storm_buffer;

/* How often what matters happened: a storm in which nothing does proves nothing. */
typedef struct storm_census {
    atomic_uint_least64_t sleeps[3]; /* by backup */
    atomic_uint_least64_t failed_sleeps, half_sleeps, wakes, failed_wakes, saved;
    atomic_uint_least64_t grown, shrunk, refused, captures, struck, planned;
} storm_census;

extern storm_census storm_counts;

/* What all threads of one run share. */
typedef struct storm_sea {
    storm_lake lakes[STORM_LAKES];
    gml_device devices[STORM_DEVICES]; /* what lakes of one have in common */
    bool forgets;         /* streams end: not where a model serves whoever has the handle */
    bool is_alone;        /* one thread */
    bool repeats;         /* it comes in steps, which `plan` may foresee */
    uint64_t per_million; /* driver calls that fail, as a rule; 0: none does */
    bool is_failing;      /* some may have failed */
    pthread_mutex_t lock;
    /* Guarded by the lock: blocks on their way to whoever frees them. */
    storm_block exchange[STORM_EXCHANGED];
} storm_sea;

/* One thread. */
typedef struct storm {
    storm_sea *sea;
    uint64_t number; /* from 0 */
    size_t operations;
    uint64_t seed;
    check_random random;
    bool repeats; /* the open step is one of those that are the same */
    storm_block blocks[STORM_LIVE];
    size_t count;
    storm_buffer buffers[STORM_BUFFERS];
    storm_lake *captured_on;        /* NULL: nothing is captured */
    uint64_t captures[STORM_LAKES]; /* uses of the pool that were not released */
} storm;

/* ---- storm_sea.c ----------------------------------------------------------------------------- */

/* Opens the lakes that the seed stands for. failing: calls of the driver do. */
void storm_open(storm_sea *sea, uint64_t seed, bool is_alone, bool failing);

/* No call fails from here on: whatever a lake promises can be had. */
void storm_calm(storm_sea *sea);

/* Frees what is on its way, and closes. */
void storm_close(storm_sea *sea);

/* GML_OK, or what a failing driver explains. */
void storm_expect(const storm *self, gml_status status);

storm_lake *storm_any_lake(storm *self);
bool storm_is_asleep(const storm_lake *at);
/* Whether this thread or another may capture a graph on the lake's device. */
bool storm_may_capture(const storm *self, const storm_lake *at);
gml_streams *storm_streams(const storm_lake *at); /* behind its driver */

/* ---- storm_blocks.c -------------------------------------------------------------------------- */

/* One of this thread's own streams that does not capture: it may end. */
gml_stream storm_own_stream(storm *self);
/* One that never ends nor captures. */
gml_stream storm_lasting_stream(const storm *self);
gml_stream storm_capturing_stream(const storm *self);
/* Also everybody's, and where a graph is captured the stream that captures. */
gml_stream storm_any_stream(storm *self, const storm_lake *at);

void storm_begin_block(storm *self);
void storm_end_block(storm *self, size_t at);
/* Somebody else may free it. pre: there is one. */
void storm_exchange_block(storm *self);

/* Looks at its content, or gives it one where it has none now. */
void storm_touch(storm_block *held);
void storm_touch_all(storm *self, const storm_lake *at);

/* ---- storm_elastic.c ------------------------------------------------------------------------- */

/* Opens, resizes or closes a buffer. */
void storm_change_buffer(storm *self);
void storm_touch_buffers(storm *self, const storm_lake *at);
void storm_close_buffers(storm *self);

/* ---- storm_sleep.c --------------------------------------------------------------------------- */

/* Sleeps or wakes, reads what is saved or forgets it. */
void storm_change_sleep(storm *self);
/* Wakes a lake where it sleeps, which succeeds as no call fails meanwhile. pre: no graph is
 * captured. */
void storm_wake_finally(storm *self, storm_lake *at);

/* ---- storm_tell.c ---------------------------------------------------------------------------- */

/* Anything else that a program may ask for. */
void storm_tell(storm *self);
void storm_end_capture(storm *self);
void storm_release_captures(storm *self);

#endif
