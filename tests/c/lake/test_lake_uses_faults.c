/* Blocks that other streams use, when driver calls fail and when a program does what it likes: none
 * ends early, none twice, none never. */
#include "driver/streams.h"
#include "hooks/fault.h"
#include "lake/lake.h"
#include "support/contract.h"
#include "support/stamp.h"

#include <stdlib.h>
#include <string.h>

enum { STRIDE_BYTES = 4096 };

static const gml_pool_id GRAPH = {1, 7};

/* ---- the uses alone -------------------------------------------------------------------------- */

enum { BLOCKS = 6, BLOCK_STREAM = 1, MOST_USERS = 4, LEAST_FAILURES = 40 };

typedef struct bench {
    gml_driver *driver;
    gml_uses uses;
    gml_block blocks[BLOCKS];
    size_t reads[BLOCKS];    /* queued and not run */
    size_t finished[BLOCKS]; /* times that the block was ended */
    bool is_closing;
} bench;

static void read_once(void *context) {
    (*(size_t *)context)--;
}

static void note_finished(void *context, gml_block *block) {
    bench *self = context;
    size_t index = (size_t)(block - self->blocks);
    CHECK(self->reads[index] == 0 || self->is_closing);
    CHECK(block->uses == NULL);
    self->finished[index]++;
}

static void open_bench(bench *self, uint64_t fail_call, uint64_t fail_per_million, uint64_t seed) {
    char reason[GML_REASON_BYTES];
    gml_driver *inner = NULL;
    *self = (bench){0};
    CHECK_OK(gml_driver_open("sim", 0, 0, &inner, reason, sizeof reason));
    CHECK_OK(gml_fault_driver_open(inner, fail_call, fail_per_million, seed, &self->driver));
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(self->driver), true));
    gml_uses_init(&self->uses, self->driver, note_finished, self);
    for (size_t i = 0; i < BLOCKS; i++) {
        self->blocks[i] = (gml_block){.block_bytes = 512 * (i + 1), .stream = BLOCK_STREAM};
    }
}

static void close_bench(bench *self) {
    self->is_closing = true;
    gml_uses_close(&self->uses);
    CHECK_EQ(self->uses.pending_count, 0);
    CHECK_EQ(self->uses.pending_bytes, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK(self->finished[i] <= 1);
    }
    gml_driver_close(self->driver);
}

/* Block `index` is used on some streams, with work queued there, and freed. */
static void use_and_free(bench *self, size_t index) {
    gml_block *block = &self->blocks[index];
    for (gml_stream stream = 2; stream < 3 + index % MOST_USERS; stream++) {
        CHECK_OK(gml_uses_add(&self->uses, block, -1, stream));
        self->reads[index]++;
        CHECK_OK(gml_streams_enqueue(gml_driver_streams(self->driver), stream, read_once,
                                     &self->reads[index]));
    }
    gml_uses_free(&self->uses, block);
}

/* Frees each block, the fourth during a capture, and lets the streams run in between. */
static void run_bench(bench *self) {
    for (size_t i = 0; i < BLOCKS; i++) {
        self->driver->device->captures = i == 3;
        use_and_free(self, i);
        gml_uses_poll(&self->uses);
        self->driver->device->captures = false;
        CHECK_OK(gml_streams_advance(gml_driver_streams(self->driver), 2 + i % 2, 3, NULL));
        gml_uses_poll(&self->uses);
    }
}

static bool is_failed_call(const bench *self, const char *call) {
    return strncmp(self->driver->reason, call, strlen(call)) == 0;
}

/* With only the n-th call failing, the second wait at the latest ends everything. */
static bool survive_failure(uint64_t nth) {
    bench self;
    open_bench(&self, nth, 0, 0);
    run_bench(&self);
    if (gml_uses_wait(&self.uses) != GML_OK) {
        CHECK_OK(gml_uses_wait(&self.uses));
    }
    CHECK_EQ(self.uses.pending_count, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_EQ(self.finished[i], 1);
        CHECK_EQ(self.reads[i], 0);
    }
    self.is_closing = true;
    gml_uses_close(&self.uses);
    uint64_t created = self.driver->calls[GML_CALL_EVENT_CREATE];
    uint64_t destroyed = self.driver->calls[GML_CALL_EVENT_DESTROY];
    CHECK_EQ(created - is_failed_call(&self, "event_create:"),
             destroyed - is_failed_call(&self, "event_destroy:"));
    bool has_failed = self.driver->reason[0];
    gml_driver_close(self.driver);
    return has_failed;
}

TEST(each_call_may_fail) {
    uint64_t nth = 1;
    while (survive_failure(nth)) {
        nth++;
    }
    CHECK(nth > LEAST_FAILURES);
}

TEST(calls_fail_at_random) {
    for (uint64_t seed = 0; seed < 2000; seed++) {
        bench self;
        open_bench(&self, 0, 100000 * (1 + seed % 7), seed);
        run_bench(&self);
        for (int i = 0; i < 1000 && self.uses.pending_count; i++) {
            gml_uses_poll(&self.uses);
            (void)gml_uses_wait(&self.uses);
        }
        CHECK_EQ(self.uses.pending_count, 0);
        for (size_t i = 0; i < BLOCKS; i++) {
            CHECK_EQ(self.finished[i], 1);
        }
        close_bench(&self);
    }
}

static void count_block(void *context, gml_block *block) {
    (void)block;
    (*(size_t *)context)++;
}

static uint64_t calls_of_a_look(const gml_driver *driver) {
    return driver->calls[GML_CALL_EVENT_CREATE] + driver->calls[GML_CALL_STREAM_SYNCHRONIZE] +
           driver->calls[GML_CALL_DEVICE_SYNCHRONIZE];
}

/* A device that answers nothing but failures keeps its blocks, at three calls per look. */
TEST(a_broken_device_keeps_its_blocks) {
    bench self;
    open_bench(&self, 0, 1000000, 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        use_and_free(&self, i);
    }
    uint64_t before = calls_of_a_look(self.driver);
    gml_uses_poll(&self.uses);
    CHECK_EQ(calls_of_a_look(self.driver), before + 3);
    CHECK_STATUS(gml_uses_wait(&self.uses), GML_DRIVER_FAILED);
    CHECK_EQ(self.uses.pending_count, BLOCKS);
    CHECK_EQ(self.uses.pending_bytes, 512 * BLOCKS * (BLOCKS + 1) / 2);
    size_t seen = 0;
    gml_uses_each(&self.uses, count_block, &seen);
    CHECK_EQ(seen, BLOCKS);
    close_bench(&self);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_EQ(self.finished[i], 1);
    }
}

/* ---- a random program against a model, through a lake ---------------------------------------- */

static gml_streams *streams_of(gml_lake *lake) {
    return gml_driver_streams(lake->driver);
}

static void run_all(gml_lake *lake) {
    CHECK_OK(gml_streams_set_manual(streams_of(lake), false));
    CHECK_OK(gml_streams_set_manual(streams_of(lake), true));
}

/* An allocation that lets the lake look at its events, and leaves nothing behind. */
static void look(gml_lake *lake) {
    lake_give(lake, lake_take(lake, 512, 1));
}

enum { SIM_STEPS = 100000, HOST_STEPS = 6000 };
enum { MOST_LIVE = 40, MOST_READS = 400, OWNERS = 4, USERS = 7, CAPTURER = 20 };

typedef struct model_block {
    live_block is; /* address 0: this place is free */
    size_t reads;  /* queued and not run */
    bool is_freed;
    void *bytes; /* NULL on `sim` */
} model_block;

/* Work on another stream that reads a block. */
typedef struct reading {
    model_block *block;
    bool is_queued;
} reading;

typedef struct program {
    gml_lake *lake;
    check_random random;
    model_block blocks[MOST_LIVE];
    reading readings[MOST_READS];
    bool is_frozen;
    bool may_fail;
} program;

static void read_block(void *context) {
    reading *run = context;
    model_block *block = run->block;
    CHECK(!block->bytes ||
          stamp_holds(block->bytes, block->is.size_bytes, block->is.seed, STRIDE_BYTES));
    run->is_queued = false;
    if (--block->reads == 0 && block->is_freed) {
        block->is.address = 0;
    }
}

static model_block *pick(program *self, bool wants_live) {
    size_t start = (size_t)check_below(&self->random, MOST_LIVE);
    for (size_t i = 0; i < MOST_LIVE; i++) {
        model_block *block = &self->blocks[(start + i) % MOST_LIVE];
        bool is_live = block->is.address && !block->is_freed;
        if (wants_live ? is_live : block->is.address == 0) {
            return block;
        }
    }
    return NULL;
}

/* What lives, and what a stream still reads, is nobody else's. */
static void check_apart(const program *self, const model_block *added) {
    for (size_t i = 0; i < MOST_LIVE; i++) {
        const live_block *other = &self->blocks[i].is;
        bool is_apart = &self->blocks[i] == added || !other->address ||
                        added->is.address + added->is.size_bytes <= other->address ||
                        other->address + other->size_bytes <= added->is.address;
        CHECK(is_apart);
    }
}

static void program_allocate(program *self) {
    model_block *block = pick(self, false);
    if (!block) {
        return;
    }
    model_block added = {.is = {.size_bytes = lake_draw_size(&self->random),
                                .stream = check_below(&self->random, OWNERS),
                                .seed = check_next(&self->random)}};
    gml_address address = 0;
    gml_status status =
        gml_lake_allocate(self->lake, added.is.size_bytes, added.is.stream, &address);
    if (status != GML_OK) {
        CHECK(self->may_fail);
        return;
    }
    added.is.address = address;
    *block = added;
    check_apart(self, block);
    if (lake_is_host() && CHECK_OK(gml_lake_bytes(self->lake, address, &block->bytes))) {
        stamp_write(block->bytes, block->is.size_bytes, block->is.seed, STRIDE_BYTES);
    }
}

static void program_read(program *self) {
    model_block *block = pick(self, true);
    size_t at = 0;
    while (at < MOST_READS && self->readings[at].is_queued) {
        at++;
    }
    if (!block || at == MOST_READS) {
        return;
    }
    gml_stream stream = check_below(&self->random, USERS);
    CHECK_OK(gml_lake_record_stream(self->lake, block->is.address, stream));
    if (stream == block->is.stream) {
        return;
    }
    self->readings[at] = (reading){block, true};
    block->reads++;
    CHECK_OK(gml_streams_enqueue(streams_of(self->lake), stream, read_block, &self->readings[at]));
}

static void program_free(program *self) {
    model_block *block = pick(self, true);
    if (!block) {
        return;
    }
    gml_address address = block->is.address;
    block->is_freed = true;
    if (!block->reads) {
        block->is.address = 0;
    }
    CHECK_OK(gml_lake_free(self->lake, address));
}

static void program_freeze(program *self, bool is_frozen) {
    if (is_frozen == self->is_frozen) {
        return;
    }
    self->is_frozen = is_frozen;
    if (is_frozen) {
        CHECK_OK(gml_streams_set_capturing(streams_of(self->lake), CAPTURER, true));
        CHECK_OK(gml_lake_begin_pool(self->lake, GRAPH));
    } else {
        CHECK_OK(gml_lake_end_pool(self->lake, GRAPH));
        CHECK_OK(gml_streams_set_capturing(streams_of(self->lake), CAPTURER, false));
        CHECK_OK(gml_lake_release_pool(self->lake, GRAPH));
    }
}

static void program_step(program *self) {
    uint64_t kind = check_below(&self->random, 1000);
    if (kind < 280) {
        program_allocate(self);
    } else if (kind < 550) {
        program_read(self);
    } else if (kind < 800) {
        program_free(self);
    } else if (kind < 990) {
        gml_stream stream = check_below(&self->random, USERS);
        uint64_t count = 1 + check_below(&self->random, 6);
        CHECK_OK(gml_streams_advance(streams_of(self->lake), stream, count, NULL));
    } else if (kind < 998) {
        program_freeze(self, !self->is_frozen);
    } else {
        gml_status status = gml_lake_trim(self->lake, NULL);
        CHECK(status == GML_OK || self->may_fail);
    }
}

static void program_run(gml_lake *lake, uint64_t seed, int steps, bool may_fail) {
    program *self = calloc(1, sizeof *self);
    self->lake = lake;
    self->random.state = seed;
    self->may_fail = may_fail;
    for (int step = 0; step < steps; step++) {
        program_step(self);
        if (step % 2500 == 0) {
            CHECK_OK(gml_lake_check(lake));
        }
    }
    program_freeze(self, false);
    for (size_t i = 0; i < MOST_LIVE; i++) {
        program_free(self);
    }
    run_all(lake);
    CHECK_OK(gml_lake_check(lake));
    free(self);
}

TEST(no_block_is_reused_while_it_is_read) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_streams_set_manual(streams_of(lake), true));
    program_run(lake, 11, lake_is_host() ? HOST_STEPS : SIM_STEPS, false);
    look(lake); /* records what a capture has deferred */
    run_all(lake);
    look(lake);
    CHECK_EQ(lake->uses.pending_count, 0);
    lake_finish(lake);
}

/* Every driver call fails with a probability of 2 %: nothing is reused early, lost or leaked. */
TEST(failures_lose_nothing) {
    for (uint64_t seed = 1; seed <= 3; seed++) {
        gml_lake_config config = lake_config_of(0);
        config.hooks = GML_HOOKS(.fail_per_million = 20000, .fail_seed = seed, .check_order = true);
        gml_lake *lake = NULL;
        char reason[256];
        if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
            continue; /* the first call failed */
        }
        CHECK_OK(gml_streams_set_manual(streams_of(lake), true));
        program_run(lake, seed, 4000, true);
        for (int i = 0; i < 100 && lake_stats_of(lake).reserved_bytes; i++) {
            (void)gml_lake_trim(lake, NULL);
        }
        CHECK_EQ(lake->uses.pending_count, 0);
        CHECK_EQ(lake_stats_of(lake).live_blocks, 0);
        CHECK_EQ(lake_stats_of(lake).reserved_bytes, 0);
        (void)gml_lake_close(lake);
    }
}

int main(void) {
    RUN(each_call_may_fail);
    RUN(calls_fail_at_random);
    RUN(a_broken_device_keeps_its_blocks);
    contract_run("no block is reused while it is read", test_no_block_is_reused_while_it_is_read);
    contract_run("failures lose nothing", test_failures_lose_nothing);
    return report();
}
