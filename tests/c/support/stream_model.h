/* The model of a random program on many streams (stream_program.h): what lives where, what is
 * queued, which streams there are. */
#ifndef GML_TEST_STREAM_MODEL_H
#define GML_TEST_STREAM_MODEL_H

#include "driver/streams.h"
#include "support/check.h"
#include "support/stream_program.h"

enum { MOST_STREAMS = 16, MOST_BLOCKS = 96, MOST_JOBS = 2048, MOST_OLD = 8, MOST_DEBTS = 8 };

typedef struct stream_slot {
    gml_stream handle;
    bool is_capturing;
    gml_event debts[MOST_DEBTS]; /* other streams' reads that it waits for before it allocates */
    size_t debt_count;
} stream_slot;

typedef struct model_block {
    gml_address address;
    void *bytes; /* NULL without bytes */
    uint64_t size_bytes, seed;
    gml_stream stream;
    uint64_t users; /* the slots of the streams that it was recorded on, as bits */
    bool is_orphan; /* its stream is gone */
    bool is_stamped;
} model_block;

/* Work in a queue: it carries what it needs, since its block may be freed before it runs. */
typedef struct model_job {
    stream_program *program;
    struct model_job *next; /* idle */
    void *bytes;
    uint64_t size_bytes, seed;
} model_job;

struct stream_program {
    stream_program_config config;
    gml_lake *lake;
    gml_streams *queues;
    check_random random; /* what may repeat itself */
    check_random noise;  /* what does not, but in steps that repeat */
    bool repeats;        /* the open step is such a one */
    stream_slot streams[MOST_STREAMS];
    size_t stream_count;
    gml_stream old_streams[MOST_OLD]; /* gone, with work that is still queued */
    size_t old_count;
    gml_stream next_handle;
    model_block blocks[MOST_BLOCKS];
    size_t block_count;
    uint64_t live_bytes;
    model_job jobs[MOST_JOBS];
    model_job *idle_jobs;
    stream_slot *capturing; /* NULL: none */
    gml_pool_id graph;
    bool has_graph_pool; /* for what `capturing` captures */
    uint64_t frozen_event_calls;
    stream_program_sums sums;
    char fault[320];
};

/* Keeps the first thing that was found wrong; the second with the lake's status and reason. */
void model_fault(stream_program *self, const char *what);
void model_lake_fault(stream_program *self, const char *what, gml_status status);

/* Notes the answer of a lake; whether it is GML_OK. */
bool model_accept(stream_program *self, const char *what, gml_status status);

/* ---- queues ---------------------------------------------------------------------------------- */

void model_open_queues(stream_program *self);

/* Queues work on a block: model_write_stamp() or model_look_for_stamp(). */
void model_queue(stream_program *self, const model_block *block, gml_stream stream,
                 gml_stream_work work);
void model_write_stamp(void *context);
void model_look_for_stamp(void *context);

void model_run_queues(stream_program *self);

/* After a fault, work that is still queued may name memory that is not there any more. */
void model_disarm_jobs(stream_program *self);

/* ---- streams --------------------------------------------------------------------------------- */

/* No lake ever hears of this one. */
#define UNSEEN_STREAM 9

/* The default stream, often the one of each thread, and streams that come and go. */
void model_open_streams(stream_program *self);

stream_slot *model_pick_stream(stream_program *self);

/* A stream that does not capture; NULL if the one drawn does. */
stream_slot *model_pick_free_stream(stream_program *self);

bool model_is_capturing(const stream_program *self, gml_stream stream);

void model_add_stream(stream_program *self);

/* The program destroys a stream, without a word, as soon as it may: no block that lives, or whose
 * uses are not noted yet, was recorded on it. */
void model_end_stream(stream_program *self);

/* Another stream has the bytes of a block of the slot's stream, which is the next to be freed. The
 * program tells nobody: it makes the block's own stream, and no other, wait for that use before its
 * next allocation, by model_pay_debts(). Whether that many can be kept. */
bool model_owe(stream_program *self, stream_slot *slot, gml_stream user);
void model_pay_debts(stream_program *self, stream_slot *slot);

/* Lets some stream run some of what is queued on it. */
void model_advance(stream_program *self);

#endif
