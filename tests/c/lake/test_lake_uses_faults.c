/* Blocks that other streams use, when driver calls fail and when a program does what it likes: none
 * ends early, none twice, none never. */
#include "driver/streams.h"
#include "hooks/fault.h"
#include "lake/lake.h"
#include "support/contract.h"
#include "support/stamp.h"

#include <stdlib.h>
#include <string.h>

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
    CHECK_OK(gml_streams_set_manual(self->driver->streams, true));
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
        CHECK_OK(
            gml_streams_enqueue(self->driver->streams, stream, read_once, &self->reads[index]));
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
        CHECK_OK(gml_streams_advance(self->driver->streams, 2 + i % 2, 3, NULL));
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

int main(void) {
    RUN(each_call_may_fail);
    RUN(a_broken_device_keeps_its_blocks);
    return report();
}
