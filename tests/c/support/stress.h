/* A random program on several lakes, and what it knows of them: which blocks it has, and what each
 * must hold. test_lake_stress.c runs programs, and lets calls of the driver or requests for the
 * host's memory fail under them.
 *
 * Lakes come in three kinds, two on one device as regions are. On `host` every block is stamped by
 * work of its stream, and later work, there or on streams that wait for it, looks for the stamp:
 * memory that was handed on without an order shows as wrong bytes. Streams run only when the
 * program lets them, as a rule.
 *
 * A program of one thread knows everything: which answers are right, what the counters must say,
 * and which streams are gone. Of four threads, each knows its own blocks.
 *
 * Lock: a thread that queues work on memory holds stress_lake.awake for reading, one that lets the
 * lake sleep, wake or forget what it saved for writing, since memory that sleeps may not be
 * touched. Every other call is made without: lakes have locks of their own.
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
    STRESS_POOLS = 2,  /* of each thread, on each lake */
    STRESS_STATES = 3, /* of pools, saved */
    STRESS_OWN = 5,    /* streams of each thread that come and go */
    STRESS_DEBTS = 8,
    STRESS_UNSEEN = 90,            /* a stream that no lake hears of */
    STRESS_STRIDE_BYTES = 1 << 18, /* between stamps: what takes long on `host` is to fill pages */
};

/* What fails: calls of the driver, by number or at random; requests for the host's memory, one, or
 * all from one on. */
typedef enum stress_fault {
    STRESS_NONE,
    STRESS_CALL,
    STRESS_PAIR,
    STRESS_RANDOM,
    STRESS_PIECE,
    STRESS_PIECES,
    STRESS_FAULTS
} stress_fault;

typedef enum stress_answer { STRESS_NO, STRESS_YES, STRESS_MAYBE } stress_answer;

/* One of a thread's own streams on a lake. */
typedef struct stress_slot {
    gml_stream handle;
    gml_event debts[STRESS_DEBTS]; /* others' reads that it waits for before it allocates */
    size_t debt_count;
} stress_slot;

typedef struct stress_lake {
    gml_lake *lake;
    strikes strikes;
    uint64_t capacity_bytes;
    gml_device *device;
    bool can_sleep, has_elastic, is_arena;
    pthread_rwlock_t awake;
    /* Guarded by it. A sleep is a try to sleep, counted from 1. */
    uint64_t sleeps;
    uint64_t lost_nap;      /* the last that gave contents up: what was stamped before it is gone */
    uint64_t saved_nap;     /* the last that saved all contents in the host's memory */
    stress_answer is_saved; /* whether they are there */
    /* Of a program of one thread: */
    stress_slot slots[STRESS_OWN];
    gml_stream next_stream, last_gone;
    size_t ended; /* streams */
} stress_lake;

typedef struct stress_block {
    live_block block; /* address 0: none */
    stress_lake *at;
    uint64_t serial;  /* no other block of the program has it */
    uint64_t born;    /* sleeps of the lake when it was served, or later */
    uint64_t stamped; /* when it was stamped */
    uint64_t users;   /* the slots of the streams that it was recorded on, as bits */
    uint64_t life;    /* of the private pool that has it, see stress_life_of(); 0: none */
    bool is_stamped;
    bool is_captured; /* in a capture that takes turns and goes on, or failed: has no content */
    bool is_orphan;   /* its stream is gone */
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

/* A thread's use of a private pool. */
typedef struct stress_pool {
    uint64_t uses, life; /* how often its last use has ended */
    bool is_plain; /* entered or saved since it was last without uses: captures take no turn */
} stress_pool;

typedef struct stress_state {
    gml_pool_state *saved; /* NULL: none */
    stress_lake *at;
    uint64_t pool, life;
    size_t count;
    stress_block blocks[STRESS_LIVE];
} stress_state;

/* How often what matters happened: a stress in which nothing does proves nothing. */
#define STRESS_COUNTS(X)                                                                           \
    X(plain_sleeps, "sleeps without backup")                                                       \
    X(host_sleeps, "to the host")                                                                  \
    X(failed_sleeps, "sleeps that failed")                                                         \
    X(half_sleeps, "of these asleep")                                                              \
    X(wakes, "wakes")                                                                              \
    X(failed_wakes, "wakes that failed")                                                           \
    X(saved, "saved blocks read")                                                                  \
    X(grown, "buffers grown")                                                                      \
    X(shrunk, "buffers shrunk")                                                                    \
    X(refused, "requests refused")                                                                 \
    X(given, "memory given")                                                                       \
    X(captures, "captures")                                                                        \
    X(turns, "in turn")                                                                            \
    X(spoiled, "graphs spoiled")                                                                   \
    X(states, "states saved")                                                                      \
    X(restored, "states restored")                                                                 \
    X(ended, "streams ended")                                                                      \
    X(untold, "uses untold")                                                                       \
    X(waits, "waits between streams")                                                              \
    X(looks, "contents looked at")                                                                 \
    X(struck, "driver calls that failed")                                                          \
    X(starved, "host memory refused")

typedef struct stress_census {
#define COUNT(field, text) atomic_uint_least64_t field;
    STRESS_COUNTS(COUNT)
#undef COUNT
    atomic_uint_least64_t planned; /* blocks; some policies have no steps */
} stress_census;

extern stress_census stress_counts;

/* What all threads of one program share. */
typedef struct stress_lakes {
    stress_lake lakes[STRESS_LAKES];    /* some of them, of any kinds */
    gml_device devices[STRESS_DEVICES]; /* what lakes of one have in common */
    size_t lake_count;
    strikes_plan plan;
    stress_fault fault;
    bool is_alone;        /* one thread */
    bool is_manual;       /* streams run when they are told to */
    bool repeats;         /* it comes in steps, which `plan` may foresee */
    bool is_plain;        /* nothing but requests and work on streams happens */
    uint64_t per_million; /* driver calls that fail, as a rule; 0: none does */
    uint64_t explained;   /* answers that say that a call failed, or that the host has no memory */
    uint64_t serial;
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
    uint64_t captured_in;               /* the pool's number */
    stress_graph graphs[STRESS_GRAPHS]; /* some of those that it captured; they may be gone */
    size_t graph_count;                 /* captured so far */
    stress_pool pools[STRESS_LAKES][STRESS_POOLS];
    stress_state states[STRESS_STATES];
} stress;

/* ---- what fails ------------------------------------------------------------------------------ */

/* Whether requests for the host's memory are counted, and refused, from here on. */
extern void (*stress_arm)(bool is_armed);

static inline gml_status stress_answered(gml_status status) {
    stress_arm(false);
    return status;
}

/* A call of a lake: only in it the host's memory may be refused. */
#define ASK(call) (stress_arm(true), stress_answered(call))

/* Whether a failure explains such an answer. */
bool stress_is_explained(const stress_lakes *shared, gml_status status);

/* GML_OK, or what a failure explains. */
void stress_expect(const stress *self, gml_status status);

/* ---- stress_lakes.c -------------------------------------------------------------------------- */

/* Opens the lakes that the seed stands for, of those calls whose bit is set none is made. */
void stress_open(stress_lakes *shared, uint64_t seed, uint64_t skips);

/* No call fails at random from here on: whatever a lake promises can be had. */
void stress_calm(stress_lakes *shared);

/* Frees what is on its way, and closes. */
void stress_close(stress_lakes *shared);

stress_lake *stress_any_lake(stress *self);
bool stress_is_asleep(const stress_lake *at);
/* Whether this thread or another may capture a graph on the lake's device. */
bool stress_may_capture(const stress *self, const stress_lake *at);
gml_streams *stress_streams(const stress_lake *at); /* behind its driver */
stress_pool *stress_pool_of(stress *self, const stress_lake *at, uint64_t number);
gml_pool_id stress_pool_id(const stress *self, uint64_t number);
/* What a pool is from its first use to its last: another one has its id later. */
uint64_t stress_life_of(stress *self, const stress_lake *at, uint64_t number);

/* ---- stress_streams.c ------------------------------------------------------------------------ */

void stress_begin_streams(stress_lake *at, check_random *random);

/* One of this thread's own streams on the lake that does not capture: it may end. */
gml_stream stress_own_stream(stress *self, const stress_lake *at);
/* One that never ends nor captures. */
gml_stream stress_lasting_stream(const stress *self);
gml_stream stress_capturing_stream(const stress *self);
/* Also everybody's, and where a graph is captured the stream that captures. */
gml_stream stress_any_stream(stress *self, const stress_lake *at);
stress_slot *stress_slot_of(stress_lake *at, gml_stream stream); /* NULL: none has it */

/* Queues work that stamps memory, or looks for the stamp. Whether that was possible: it is not on a
 * stream that captures. */
bool stress_queue(const stress_lake *at, gml_stream stream, void *bytes, uint64_t size_bytes,
                  uint64_t seed, bool writes);

/* Another stream reads a block, behind what is queued on the block's own; whether it could. */
bool stress_read_on(const stress_block *held, gml_stream user);

/* The slot's stream waits for a read by `user` before it next allocates; no lake is told. */
void stress_owe(stress_lake *at, stress_slot *slot, gml_stream user);
void stress_pay(stress_lake *at, gml_stream stream);

/* A stream is destroyed, without a word, if that is allowed now. */
void stress_end_stream(stress *self, stress_lake *at);

/* Some of what is queued somewhere runs. */
void stress_advance(stress *self);

/* ---- stress_blocks.c ------------------------------------------------------------------------- */

void stress_begin_block(stress *self);
void stress_end_block(stress *self, size_t at);
/* Somebody else may free it. pre: there is one. */
void stress_exchange_block(stress *self);
/* Another stream uses one of the blocks, and the lake is told or need not be. */
void stress_use_elsewhere(stress *self);

/* Looks at its content, or gives it one where it has none now. */
void stress_touch(stress_block *held);
void stress_touch_all(stress *self, const stress_lake *at);

/* ---- stress_pools.c -------------------------------------------------------------------------- */

/* Begins or ends a capture, or whatever else a program does with a private pool. */
void stress_change_pool(stress *self, stress_lake *at);
/* As a replay does, which writes to all its temporary memory: everything else keeps its content. */
void stress_spoil_graph(stress *self, stress_lake *at);
void stress_end_capture(stress *self);
void stress_release_pools(stress *self);

/* ---- stress_elastic.c ------------------------------------------------------------------------ */

/* Opens, resizes or closes a buffer. */
void stress_change_buffer(stress *self);
void stress_touch_buffers(stress *self, const stress_lake *at);
void stress_close_buffers(stress *self);

/* ---- stress_sleep.c -------------------------------------------------------------------------- */

/* Sleeps or wakes, reads what is saved or forgets it. */
void stress_change_sleep(stress *self);
/* Wakes a lake where it sleeps, which succeeds if no call fails meanwhile. pre: no graph is
 * captured. */
void stress_wake_finally(stress *self, stress_lake *at);

/* ---- stress_tell.c --------------------------------------------------------------------------- */

/* Anything else that a program may ask for. */
void stress_tell(stress *self);
/* Whether a lake is sound, and says what is known of it. */
void stress_look(stress *self, stress_lake *at);

#endif
