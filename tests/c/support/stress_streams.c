/* Streams of a random program: work that is queued on them, the order that the program makes
 * itself, and their end. */
#include "lake/lake.h"
#include "support/stamp.h"
#include "support/stress.h"

#include <stdlib.h>

enum {
    CAPTURING = STRESS_OWN,
    LASTING,
    THREAD_STREAMS,
    PER_THREAD = 80,   /* the handle that is another stream in every thread */
    FIRST_HANDLE = 100 /* of those that come later */
};

/* ---- which there are ------------------------------------------------------------------------- */

void stress_begin_streams(stress_lake *at, check_random *random) {
    for (size_t i = 0; i < STRESS_OWN; i++) {
        at->slots[i] = (stress_slot){.handle = 1 + i};
    }
    if (check_below(random, 3) == 0) {
        at->lake->driver->per_thread_stream = at->slots[0].handle = PER_THREAD;
    }
    at->next_stream = FIRST_HANDLE;
}

gml_stream stress_own_stream(stress *self, const stress_lake *at) {
    uint64_t index = check_below(&self->random, STRESS_OWN);
    return self->shared->is_alone ? at->slots[index].handle
                                  : 1 + self->number * THREAD_STREAMS + index;
}

gml_stream stress_capturing_stream(const stress *self) {
    return 1 + self->number * THREAD_STREAMS + CAPTURING;
}

gml_stream stress_lasting_stream(const stress *self) {
    return 1 + self->number * THREAD_STREAMS + LASTING;
}

gml_stream stress_any_stream(stress *self, const stress_lake *at) {
    uint64_t choice = check_below(&self->random, 8);
    if (choice == 0) {
        return 0;
    }
    bool captures = choice < 5 && self->captured_on == at;
    return captures ? stress_capturing_stream(self) : stress_own_stream(self, at);
}

stress_slot *stress_slot_of(stress_lake *at, gml_stream stream) {
    for (size_t i = 0; i < STRESS_OWN; i++) {
        if (at->slots[i].handle == stream) {
            return &at->slots[i];
        }
    }
    return NULL;
}

/* ---- work ------------------------------------------------------------------------------------ */

typedef struct job {
    void *bytes;
    uint64_t size_bytes, seed;
    bool writes;
} job;

/* It carries what it needs, since its block may be freed before it runs. */
static void run_job(void *context) {
    job *of = context;
    if (!of->bytes) { /* the driver has none */
        stress_counts.looks++;
    } else if (of->writes) {
        stamp_write(of->bytes, of->size_bytes, of->seed, STRESS_STRIDE_BYTES);
    } else {
        stress_counts.looks++;
        CHECK(stamp_holds(of->bytes, of->size_bytes, of->seed, STRESS_STRIDE_BYTES));
    }
    free(of);
}

bool stress_queue(const stress_lake *at, gml_stream stream, void *bytes, uint64_t size_bytes,
                  uint64_t seed, bool writes) {
    job *added = malloc(sizeof *added);
    *added = (job){bytes, size_bytes, seed, writes};
    gml_status status = gml_streams_enqueue(stress_streams(at), stream, run_job, added);
    if (status != GML_OK) {
        CHECK_STATUS(status, GML_MISUSE);
        free(added);
    }
    return status == GML_OK;
}

/* ---- the order that the program makes -------------------------------------------------------- */

bool stress_read_on(const stress_block *held, gml_stream user) {
    const stress_lake *at = held->at;
    const live_block *block = &held->block;
    gml_streams *queues = stress_streams(at);
    void *bytes = NULL;
    gml_event event = 0;
    bool is_awake = !lake_is_host() || gml_lake_bytes(at->lake, block->address, &bytes) == GML_OK;
    bool is_ordered = is_awake && CHECK_OK(gml_streams_event_create(queues, &event)) &&
                      gml_streams_event_record(queues, event, block->stream) == GML_OK &&
                      gml_streams_stream_wait(queues, user, event) == GML_OK;
    if (event) {
        CHECK_OK(gml_streams_event_destroy(queues, event));
    }
    return is_ordered && stress_queue(at, user, bytes, block->size_bytes, block->seed, false);
}

void stress_owe(stress_lake *at, stress_slot *slot, gml_stream user) {
    gml_event debt = 0;
    if (slot->debt_count == STRESS_DEBTS) {
        stress_pay(at, slot->handle);
    }
    CHECK_OK(gml_streams_event_create(stress_streams(at), &debt));
    CHECK_OK(gml_streams_event_record(stress_streams(at), debt, user));
    if (slot->debt_count < STRESS_DEBTS) {
        slot->debts[slot->debt_count++] = debt;
    }
}

void stress_pay(stress_lake *at, gml_stream stream) {
    stress_slot *slot = stress_slot_of(at, stream);
    while (slot && slot->debt_count) {
        gml_event debt = slot->debts[--slot->debt_count];
        CHECK_OK(gml_streams_stream_wait(stress_streams(at), stream, debt));
        CHECK_OK(gml_streams_event_destroy(stress_streams(at), debt));
    }
}

/* ---- their end ------------------------------------------------------------------------------- */

/* No block that lives, or whose uses are not noted yet, was recorded on it. */
static bool may_end(const stress *self, const stress_lake *at, const stress_slot *slot) {
    bool may = slot->handle != PER_THREAD && gml_list_is_empty(&at->lake->uses.unrecorded) &&
               at->strikes.gone_count < STRIKES_GONE;
    for (size_t i = 0; i < self->count; i++) {
        may &= self->blocks[i].at != at || !(self->blocks[i].users >> (slot - at->slots) & 1);
    }
    for (size_t i = 0; i < STRESS_EXCHANGED; i++) {
        const stress_block *held = &self->shared->exchange[i];
        may &= held->at != at || !(held->users >> (slot - at->slots) & 1);
    }
    return may;
}

static void orphan(stress_block *held, const stress_lake *at, gml_stream stream) {
    held->is_orphan |= held->at == at && held->block.stream == stream;
}

void stress_end_stream(stress *self, stress_lake *at) {
    stress_slot *slot = &at->slots[check_below(&self->random, STRESS_OWN)];
    if (!self->shared->is_alone || !may_end(self, at, slot)) {
        return;
    }
    gml_stream gone = slot->handle;
    stress_pay(at, gone);
    for (size_t i = 0; i < self->count; i++) {
        orphan(&self->blocks[i], at, gone);
    }
    for (size_t i = 0; i < STRESS_EXCHANGED; i++) {
        orphan(&self->shared->exchange[i], at, gone);
    }
    for (size_t i = 0; i < STRESS_STATES; i++) {
        for (size_t j = 0; j < self->states[i].count; j++) {
            orphan(&self->states[i].blocks[j], at, gone);
        }
    }
    strikes_end_stream(&at->strikes, gone);
    bool comes_back = at->last_gone && check_below(&self->random, 3) == 0;
    slot->handle = comes_back ? at->last_gone : at->next_stream++;
    strikes_begin_stream(&at->strikes, slot->handle);
    at->last_gone = gone;
    at->ended++;
    stress_counts.ended++;
}

void stress_advance(stress *self) {
    stress_lake *at = stress_any_lake(self);
    uint64_t choice = check_below(&self->random, 12);
    gml_stream stream = stress_own_stream(self, at);
    if (choice == 0) {
        stream = STRESS_UNSEEN;
    } else if (choice == 1 && self->shared->is_alone) {
        stream = at->last_gone; /* the queue of a stream that is gone still runs */
    } else if (choice == 2) {
        stream = stress_capturing_stream(self);
    } else if (choice == 3) {
        stream = stress_lasting_stream(self);
    }
    uint64_t count = check_below(&self->random, 16) ? check_below(&self->random, 8) : UINT64_MAX;
    CHECK_OK(gml_streams_advance(stress_streams(at), stream, count, NULL));
}
