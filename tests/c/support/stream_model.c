/* The queues and streams of the model, and what was found wrong. */
#include "support/stream_model.h"

#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/stamp.h"

#include <inttypes.h>
#include <stdio.h>

enum { STRIDE_BYTES = 1 << 20 };

void model_fault(stream_program *self, const char *what) {
    if (!self->fault[0]) {
        snprintf(self->fault, sizeof self->fault, "operation %" PRIu64 ": %s",
                 self->sums.operations, what);
    }
}

void model_lake_fault(stream_program *self, const char *what, gml_status status) {
    char reason[160], text[280];
    gml_lake_reason(self->lake, reason, sizeof reason);
    snprintf(text, sizeof text, "%s: %s: %s", what, gml_status_text(status), reason);
    model_fault(self, text);
}

bool model_accept(stream_program *self, const char *what, gml_status status) {
    bool is_captured = self->capturing && !self->has_graph_pool;
    if (status == GML_DRIVER_FAILED && self->config.may_fail) {
        self->sums.failed++;
    } else if (status == GML_OUT_OF_MEMORY) {
        self->sums.refused++;
    } else if (status != GML_OK && !(status == GML_MISUSE && is_captured)) {
        model_lake_fault(self, what, status);
    }
    return status == GML_OK;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void end_job(model_job *done) {
    done->next = done->program->idle_jobs;
    done->program->idle_jobs = done;
}

void model_write_stamp(void *context) {
    model_job *self = context;
    if (self->bytes) {
        stamp_write(self->bytes, self->size_bytes, self->seed, STRIDE_BYTES);
    }
    end_job(self);
}

void model_look_for_stamp(void *context) {
    model_job *self = context;
    if (self->bytes) {
        self->program->sums.checks++;
        if (!stamp_holds(self->bytes, self->size_bytes, self->seed, STRIDE_BYTES)) {
            model_fault(self->program, "a stream found the bytes of another in its block");
        }
    }
    end_job(self);
}

void model_run_queues(stream_program *self) {
    (void)gml_streams_set_manual(self->queues, false);
    (void)gml_streams_set_manual(self->queues, true);
}

void model_queue(stream_program *self, const model_block *block, gml_stream stream,
                 gml_stream_work work) {
    if (!self->idle_jobs) {
        model_run_queues(self);
    }
    model_job *added = self->idle_jobs;
    if (!added) {
        model_fault(self, "work that could run did not");
        return;
    }
    self->idle_jobs = added->next;
    *added = (model_job){.program = self,
                         .bytes = block->bytes,
                         .size_bytes = block->size_bytes,
                         .seed = block->seed};
    if (gml_streams_enqueue(self->queues, stream, work, added) != GML_OK) {
        model_fault(self, "the program could not queue work");
        end_job(added);
    }
}

void model_open_queues(stream_program *self) {
    self->queues = gml_driver_streams(self->lake->driver);
    (void)gml_streams_set_manual(self->queues, true);
    for (size_t i = 0; i < MOST_JOBS; i++) {
        self->jobs[i].program = self;
        end_job(&self->jobs[i]);
    }
}

void model_disarm_jobs(stream_program *self) {
    for (size_t i = 0; i < MOST_JOBS; i++) {
        self->jobs[i].bytes = NULL;
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

stream_slot *model_pick_stream(stream_program *self) {
    return &self->streams[check_below(&self->random, self->stream_count)];
}

stream_slot *model_pick_free_stream(stream_program *self) {
    stream_slot *slot = model_pick_stream(self);
    return slot->is_capturing ? NULL : slot;
}

bool model_is_capturing(const stream_program *self, gml_stream stream) {
    return self->capturing && self->capturing->handle == stream;
}

/* Handles below this one name no stream that could be destroyed. */
enum { PER_THREAD_STREAM = 2, FIRST_HANDLE = 16 };

static void open_stream(stream_program *self, stream_slot *slot) {
    *slot = (stream_slot){.handle = self->next_handle++};
}

static bool is_built_in(const stream_slot *slot) {
    return slot->handle < FIRST_HANDLE;
}

static bool has_users(const stream_program *self, const stream_slot *slot) {
    bool has = !gml_list_is_empty(&self->lake->uses.unrecorded);
    for (size_t i = 0; i < self->block_count; i++) {
        has |= self->blocks[i].users >> (slot - self->streams) & 1;
    }
    return has;
}

void model_end_stream(stream_program *self) {
    stream_slot *slot = model_pick_free_stream(self);
    if (!slot || is_built_in(slot) || has_users(self, slot)) {
        return;
    }
    for (size_t i = 0; i < self->block_count; i++) {
        self->blocks[i].is_orphan |= self->blocks[i].stream == slot->handle;
    }
    for (size_t i = 0; i < slot->debt_count; i++) {
        (void)gml_streams_event_destroy(self->queues, slot->debts[i]);
    }
    self->old_streams[self->old_count++ % MOST_OLD] = slot->handle;
    call_watch_end_stream(slot->handle);
    open_stream(self, slot);
}

bool model_owe(stream_program *self, stream_slot *slot, gml_stream user) {
    gml_event *debt = &slot->debts[slot->debt_count];
    if (slot->debt_count == MOST_DEBTS || gml_streams_event_create(self->queues, debt) != GML_OK) {
        return false;
    }
    slot->debt_count++;
    return gml_streams_event_record(self->queues, *debt, user) == GML_OK;
}

void model_pay_debts(stream_program *self, stream_slot *slot) {
    while (slot->debt_count) {
        gml_event debt = slot->debts[--slot->debt_count];
        if (gml_streams_wait(self->queues, slot->handle, debt) != GML_OK) {
            model_fault(self, "the program could not order its own streams");
        }
        (void)gml_streams_event_destroy(self->queues, debt);
    }
}

void model_add_stream(stream_program *self) {
    if (self->stream_count < MOST_STREAMS) {
        open_stream(self, &self->streams[self->stream_count++]);
    }
}

void model_advance(stream_program *self) {
    gml_stream stream = self->streams[check_below(&self->noise, self->stream_count)].handle;
    if (check_below(&self->noise, 8) == 0) {
        stream = UNSEEN_STREAM;
    } else if (self->old_count && check_below(&self->noise, 8) == 0) {
        size_t known = self->old_count < MOST_OLD ? self->old_count : MOST_OLD;
        stream = self->old_streams[check_below(&self->noise, known)];
    }
    uint64_t count = check_below(&self->noise, 16) ? check_below(&self->noise, 8) : UINT64_MAX;
    (void)gml_streams_advance(self->queues, stream, count, NULL);
}

void model_open_streams(stream_program *self) {
    self->next_handle = FIRST_HANDLE;
    self->stream_count = 1;
    if (self->config.streams > 2 && check_below(&self->noise, 3) == 0) {
        self->lake->driver->per_thread_stream = PER_THREAD_STREAM;
        self->streams[self->stream_count++].handle = PER_THREAD_STREAM;
    }
    while (self->stream_count < self->config.streams) {
        model_add_stream(self);
    }
}
