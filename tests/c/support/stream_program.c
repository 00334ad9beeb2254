/* The operations of the program, and what must hold after each. */
#include "support/stream_program.h"

#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/fence_bench.h"
#include "support/stream_model.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum {
    GROUP_STEPS = 8,
    SAME_STEPS = 6,     /* of a group: they begin with nothing live, and nothing else happens */
    CARRIED_BLOCKS = 5, /* into the others */
    CHECK_EVERY = 256,
    LAST_TRIMS = 200
};

/* ---- captures -------------------------------------------------------------------------------- */

static void begin_capture(stream_program *self) {
    stream_slot *slot = model_pick_stream(self);
    model_pay_debts(self, slot);
    self->capturing = slot;
    slot->is_capturing = true;
    (void)gml_streams_set_capturing(self->queues, slot->handle, true);
    self->has_graph_pool = check_below(&self->noise, 4) != 0;
    if (self->has_graph_pool) {
        self->graph = (gml_pool_id){1, 1 + check_below(&self->noise, 4)};
        (void)model_accept(self, "begin_pool", gml_lake_begin_pool(self->lake, self->graph));
        self->frozen_event_calls = call_watch_event_calls(self->lake);
    }
}

static void end_capture(stream_program *self) {
    if (self->has_graph_pool) {
        if (call_watch_event_calls(self->lake) != self->frozen_event_calls) {
            model_fault(self, "an event call was made while a graph was captured");
        }
        (void)model_accept(self, "end_pool", gml_lake_end_pool(self->lake, self->graph));
        (void)model_accept(self, "release_pool", gml_lake_release_pool(self->lake, self->graph));
    }
    (void)gml_streams_set_capturing(self->queues, self->capturing->handle, false);
    self->capturing->is_capturing = false;
    self->capturing = NULL;
    self->has_graph_pool = false;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* 512 B and up, mostly below 1 MiB; often one of a few sizes, which is what programs do. */
static uint64_t draw_size(stream_program *self) {
    static const uint64_t usual[] = {MIB / 2,  2 * MIB,  3 * MIB + 512,   8 * MIB,
                                     10 * MIB, 16 * MIB, 21 * MIB + 4096, 32 * MIB};
    uint64_t kind = check_below(&self->random, 100);
    uint64_t size_bytes = 0;
    if (kind < 25) {
        size_bytes = 1 + check_below(&self->random, 16384);
    } else if (kind < 45) {
        size_bytes = 1 + check_below(&self->random, MIB);
    } else if (kind < 80) {
        size_bytes = usual[check_below(&self->random, sizeof usual / sizeof *usual)];
    } else {
        size_bytes = MIB + check_below(&self->random, kind < 95 ? 8 * MIB : 63 * MIB);
    }
    return size_bytes < self->config.largest_bytes ? size_bytes : self->config.largest_bytes;
}

static void check_apart(stream_program *self, const model_block *added) {
    for (size_t i = 0; i < self->block_count; i++) {
        const model_block *other = &self->blocks[i];
        if (added->address < other->address + other->size_bytes &&
            other->address < added->address + added->size_bytes) {
            model_fault(self, "two live blocks share addresses");
        }
    }
}

static void allocate(stream_program *self) {
    model_block added = {.size_bytes = draw_size(self), .seed = check_next(&self->noise)};
    stream_slot *slot = model_pick_stream(self);
    added.stream = slot->handle;
    if (self->live_bytes + added.size_bytes > self->config.live_bytes) {
        return;
    }
    model_pay_debts(self, slot);
    self->sums.allocations++;
    gml_status status =
        gml_lake_allocate(self->lake, added.size_bytes, added.stream, &added.address);
    if (!model_accept(self, "allocate", status)) {
        return;
    }
    if (strcmp(self->config.lake->driver, "host") == 0) {
        (void)model_accept(self, "bytes", gml_lake_bytes(self->lake, added.address, &added.bytes));
    }
    check_apart(self, &added);
    self->live_bytes += added.size_bytes;
    self->blocks[self->block_count++] = added;
}

/* The first work on a block stamps it, all further work looks for the stamp. */
static void work_on(stream_program *self, model_block *block) {
    if (block->is_orphan || model_is_capturing(self, block->stream)) {
        return;
    }
    model_queue(self, block, block->stream,
                block->is_stamped ? model_look_for_stamp : model_write_stamp);
    block->is_stamped = true;
}

static model_block *pick_block(stream_program *self) {
    return &self->blocks[check_below(&self->random, self->block_count)];
}

static void release(stream_program *self, size_t at) {
    model_block *block = &self->blocks[at];
    if (check_below(&self->random, 2)) {
        work_on(self, block);
    }
    gml_address address = block->address;
    self->live_bytes -= block->size_bytes;
    *block = self->blocks[--self->block_count];
    gml_status status = gml_lake_free(self->lake, address);
    if (status != GML_OK) {
        model_lake_fault(self, "free", status);
    }
}

/* `user` reads the block behind the work that is queued on the block's own stream by now. The order
 * is the program's own affair: the lake's driver does not see it. */
static void read_on(stream_program *self, const model_block *block, gml_stream user) {
    gml_event event = 0;
    if (gml_streams_event_create(self->queues, &event) != GML_OK ||
        gml_streams_event_record(self->queues, event, block->stream) != GML_OK ||
        gml_streams_wait(self->queues, user, event) != GML_OK) {
        model_fault(self, "the program could not order its own streams");
    }
    (void)gml_streams_event_destroy(self->queues, event);
    model_queue(self, block, user, model_look_for_stamp);
}

/* Another stream uses a block, and the lake is told. */
static void use_recorded(stream_program *self, model_block *block, const stream_slot *user) {
    read_on(self, block, user->handle);
    block->users |= UINT64_C(1) << (user - self->streams);
    (void)model_accept(self, "record_stream",
                       gml_lake_record_stream(self->lake, block->address, user->handle));
}

/* Another stream uses a block, the lake is not told, and the block is freed: what CUDA programs do
 * that have its own stream wait before it allocates again. */
static void use_untold(stream_program *self, model_block *block, gml_stream user) {
    stream_slot *own = self->streams;
    while (own->handle != block->stream) {
        own++;
    }
    read_on(self, block, user);
    if (!model_owe(self, own, user)) {
        model_pay_debts(self, own);
        (void)model_owe(self, own, user);
    }
    release(self, (size_t)(block - self->blocks));
}

static void use_elsewhere(stream_program *self) {
    model_block *block = pick_block(self);
    const stream_slot *user = model_pick_free_stream(self);
    uint64_t kind = check_below(&self->random, 4);
    if (!user || user->handle == block->stream || block->is_orphan || !block->is_stamped ||
        model_is_capturing(self, block->stream)) {
        return;
    }
    if (kind < 2) {
        use_recorded(self, block, user);
    } else {
        use_untold(self, block, kind == 2 ? user->handle : UNSEEN_STREAM);
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

static void set_limit(stream_program *self) {
    uint64_t capacity_bytes = self->config.lake->capacity_bytes;
    uint64_t limit_bytes =
        check_below(&self->noise, 3) ? 0 : capacity_bytes / (1 + check_below(&self->noise, 4));
    (void)model_accept(self, "set_limit", gml_lake_set_limit(self->lake, limit_bytes));
}

/* Idle memory goes to somebody else, while streams run. */
static void give_some(stream_program *self) {
    uint64_t wanted_bytes = check_below(&self->noise, self->config.largest_bytes) + 1;
    uint64_t released_bytes = 0, held_bytes = self->lake->driver->held_bytes;
    bool is_pending = false;
    (void)model_accept(self, "give",
                       gml_lake_give(self->lake, wanted_bytes, NULL, &released_bytes, &is_pending));
    if (self->lake->driver->held_bytes + released_bytes != held_bytes) {
        model_fault(self, "more or less was given than is said");
    }
}

/* What happens seldom, and at another place in each repetition. */
static void disturb(stream_program *self) {
    switch (check_below(&self->noise, 9)) {
    case 0:
        (void)model_accept(self, "trim", gml_lake_trim(self->lake, NULL));
        break;
    case 1:
    case 2:
        model_end_stream(self);
        break;
    case 3:
        give_some(self);
        break;
    case 4:
        model_add_stream(self);
        break;
    case 5:
        set_limit(self);
        break;
    case 6:
    case 7:
        if (self->config.has_captures && !self->capturing) {
            begin_capture(self);
        }
        break;
    default:
        model_run_queues(self);
        break;
    }
}

static void begin_step(stream_program *self) {
    self->repeats = self->sums.operations / self->config.steps_of % GROUP_STEPS < SAME_STEPS;
    while (self->block_count > (self->repeats ? 0 : CARRIED_BLOCKS)) {
        release(self, self->block_count - 1);
    }
    if (self->repeats && self->capturing) {
        end_capture(self);
    }
    if (self->repeats) {
        model_run_queues(self);
    }
    (void)model_accept(self, "mark", gml_lake_mark(self->lake));
    self->random = (check_random){self->config.seed};
    self->noise = (check_random){self->config.seed + (self->repeats ? 0 : self->sums.operations)};
}

static void operate(stream_program *self) {
    uint64_t steps_of = self->config.steps_of;
    if (steps_of && self->sums.operations % steps_of == 0) {
        begin_step(self);
    }
    if (!self->repeats && check_below(&self->noise, 60) == 0) {
        disturb(self);
    }
    if (self->capturing && check_below(&self->noise, 40) == 0) {
        end_capture(self);
    }
    uint64_t kind = check_below(&self->random, 100);
    if (!self->block_count || (kind < 42 && self->block_count < MOST_BLOCKS)) {
        allocate(self);
    } else if (kind < 62) {
        work_on(self, pick_block(self));
    } else if (kind < 68) {
        use_elsewhere(self);
    } else {
        release(self, (size_t)check_below(&self->random, self->block_count));
    }
    model_advance(self);
}

/* Everything that has to hold after any operation. */
static void look(stream_program *self) {
    if (self->lake->driver->held_bytes > self->config.lake->capacity_bytes) {
        model_fault(self, "more is held than the capacity");
    }
    if (call_watch_fault()[0]) {
        model_fault(self, call_watch_fault());
    }
    if (self->sums.operations % CHECK_EVERY) {
        return;
    }
    gml_status status = gml_lake_check(self->lake);
    if (status != GML_OK) {
        model_lake_fault(self, "check", status);
    }
    gml_stats stats;
    (void)model_accept(self, "stats", gml_lake_stats(self->lake, &stats));
    if (stats.reserved_bytes != self->lake->driver->held_bytes ||
        stats.requested_bytes < self->live_bytes || stats.reserved_bytes < stats.live_bytes) {
        model_fault(self, "the counters contradict what is held and lives");
    }
}

void stream_program_run(stream_program *self, uint64_t operations) {
    for (uint64_t i = 0; i < operations && !self->fault[0]; i++) {
        operate(self);
        look(self);
        self->sums.operations++;
    }
}

/* ---- beginning and end ----------------------------------------------------------------------- */

gml_status stream_program_open(const stream_program_config *config, stream_program **out) {
    stream_program *self = calloc(1, sizeof *self);
    if (!self) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = gml_lake_open(config->lake, &self->lake, NULL, 0);
    if (status != GML_OK) {
        free(self);
        return status;
    }
    self->config = *config;
    model_open_queues(self);
    self->random = (check_random){config->seed};
    self->noise = (check_random){config->seed + UINT64_C(0x51ed270b9)};
    model_open_streams(self);
    if (config->is_old) {
        bench_make_old(self->lake->driver);
    }
    call_watch_begin(self->lake);
    *out = self;
    return GML_OK;
}

/* What is idle can be given back: at once, or after some tries where calls fail. */
static void give_back(stream_program *self) {
    uint64_t tries = self->config.may_fail ? LAST_TRIMS : 1;
    for (uint64_t i = 0; i < tries && !self->fault[0]; i++) {
        (void)model_accept(self, "the last trim", gml_lake_trim(self->lake, NULL));
        if (self->lake->driver->held_bytes == 0) {
            break;
        }
    }
    if (self->lake->driver->held_bytes) {
        model_fault(self, "memory that nobody uses does not go back");
    }
    gml_status status = gml_lake_check(self->lake);
    if (status != GML_OK) {
        model_lake_fault(self, "the last check", status);
    }
}

static void count_last(stream_program *self) {
    gml_stats stats;
    if (gml_lake_stats(self->lake, &stats) == GML_OK) {
        self->sums.waits = stats.cross_stream_waits;
        self->sums.borrowed_bytes = stats.borrowed_bytes;
        self->sums.planned = stats.states[GML_STATE_PLAN];
    }
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        self->sums.driver_calls += self->lake->driver->calls[i];
    }
}

void stream_program_close(stream_program *self) {
    if (self->capturing) {
        end_capture(self);
    }
    while (self->block_count) {
        release(self, self->block_count - 1);
    }
    if (self->fault[0]) {
        model_disarm_jobs(self);
    } else {
        model_run_queues(self);
        give_back(self);
    }
    count_last(self);
    gml_status status = gml_lake_close(self->lake);
    if (status != GML_OK && !self->config.may_fail) {
        model_fault(self, "the lake did not close well");
    }
    self->lake = NULL;
    if (status == GML_OK && !self->fault[0] && call_watch_leftovers()) {
        model_fault(self, "handles, mappings or events were left behind");
    }
}

const char *stream_program_fault(const stream_program *self) {
    return self->fault;
}

stream_program_sums stream_program_count(const stream_program *self) {
    return self->sums;
}

void stream_program_free(stream_program *self) {
    free(self);
}
