/* What a random program asks of its lakes besides memory. */
#include "gmlake_elastic.h"
#include "gmlake_share.h"
#include "lake/lake.h"
#include "support/stress.h"

#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)

enum { EVENTS = 100 };

typedef void stress_deed(stress *self, stress_lake *at);

/* ---- streams --------------------------------------------------------------------------------- */

/* Something is queued, or comes to run. */
static void work(stress *self, stress_lake *at) {
    gml_stream stream = stress_own_stream(self, at);
    if (check_below(&self->random, 2)) {
        (void)stress_queue(at, stream, NULL, 0, 0, false);
    } else {
        CHECK_OK(gml_streams_advance(stress_streams(at), stream, 1 + check_below(&self->random, 4),
                                     NULL));
    }
}

static void use_elsewhere(stress *self, stress_lake *at) {
    (void)at;
    stress_use_elsewhere(self);
}

/* ---- knobs ----------------------------------------------------------------------------------- */

static void set_limit(stress *self, stress_lake *at) {
    uint64_t most_bytes = at->capacity_bytes;
    uint64_t limit_bytes =
        check_below(&self->random, 2) ? most_bytes / 4 + check_below(&self->random, most_bytes) : 0;
    CHECK_OK(gml_lake_set_limit(at->lake, limit_bytes));
}

static void set_margin(stress *self, stress_lake *at) {
    uint64_t margin_bytes =
        check_below(&self->random, 2) ? check_below(&self->random, at->capacity_bytes / 2) : 0;
    CHECK_OK(gml_lake_set_margin(at->lake, margin_bytes));
}

static void grant(stress *self, stress_lake *at) {
    int peer = (int)check_below(&self->random, STRESS_DEVICES);
    CHECK_STATUS(gml_lake_grant(at->lake, peer), GML_UNSUPPORTED);
}

/* What is held by the lake, for a thread that nobody disturbs. */
static uint64_t held_bytes(const stress *self, const stress_lake *at) {
    return self->shared->is_alone ? at->lake->driver->held_bytes : 0;
}

/* What a lake says that it released is what it holds less. */
static void check_released(const stress *self, const stress_lake *at, uint64_t before_bytes,
                           uint64_t released_bytes) {
    if (self->shared->is_alone && !stress_is_asleep(at)) {
        CHECK_EQ(held_bytes(self, at) + released_bytes, before_bytes);
    }
}

static void trim(stress *self, stress_lake *at) {
    uint64_t before_bytes = held_bytes(self, at), released_bytes = 0;
    stress_expect(self, ASK(gml_lake_trim(at->lake, &released_bytes)));
    check_released(self, at, before_bytes, released_bytes);
}

/* As to another process that asks. */
static void give(stress *self, stress_lake *at) {
    uint64_t wanted_bytes = (1 + check_below(&self->random, 64)) * MIB, released_bytes = 0;
    uint64_t before_bytes = held_bytes(self, at);
    bool is_pending = false, waits = check_below(&self->random, 4) == 0;
    if (check_below(&self->random, 8) == 0) {
        wanted_bytes = UINT64_MAX;
    }
    stress_expect(self, ASK(gml_lake_give(at->lake, wanted_bytes, NULL, waits, &released_bytes,
                                          &is_pending)));
    check_released(self, at, before_bytes, released_bytes);
    stress_counts.given += released_bytes > 0;
    (void)gml_lake_idle_bytes(at->lake);
}

static void mark(stress *self, stress_lake *at) {
    stress_expect(self, ASK(gml_lake_mark(at->lake)));
}

/* ---- looking --------------------------------------------------------------------------------- */

static void look_at_block(stress *self, stress_lake *at) {
    (void)at;
    if (!self->count) {
        return;
    }
    const stress_block *held = &self->blocks[check_below(&self->random, self->count)];
    gml_lake *lake = held->at->lake;
    gml_address address = held->block.address;
    gml_block_info info = {0};
    size_t chunks = 0;
    uint64_t offset_bytes = 0;
    CHECK_OK(gml_lake_block(lake, address, &info));
    CHECK_EQ(info.requested_bytes, held->block.size_bytes);
    CHECK(info.block_bytes >= info.requested_bytes);
    CHECK_EQ(info.stream, held->block.stream);
    gml_status status = gml_lake_count_chunks(lake, address, &chunks);
    CHECK(status == GML_UNSUPPORTED || (status == GML_OK && chunks > 0));
    /* Drivers without a device have no files to give. */
    CHECK_STATUS(gml_lake_export(lake, address, NULL, 0, &chunks, &offset_bytes), GML_UNSUPPORTED);
}

static void see_span(void *context, const gml_span_info *span) {
    *(uint64_t *)context += span->used_bytes <= span->size_bytes ? 0 : 1;
}

static void see_range(void *context, const gml_range_info *range) {
    *(uint64_t *)context += range->requested_bytes <= range->size_bytes ? 0 : 1;
}

static void look(stress *self, stress_lake *at) {
    gml_stats stats = {0};
    gml_torch_stats torch = {0};
    gml_stream_pair *pairs = NULL;
    size_t count = 0;
    uint64_t wrong = 0;
    const gml_visitor visitor = {.context = &wrong, .span = see_span, .range = see_range};
    CHECK_OK(gml_lake_stats(at->lake, &stats));
    CHECK(stats.requested_bytes <= stats.live_bytes);
    CHECK_OK(gml_lake_torch_stats(at->lake, &torch));
    CHECK_OK(gml_lake_visit(at->lake, &visitor));
    CHECK_EQ(wrong, 0);
    stress_expect(self, ASK(gml_lake_stream_pairs(at->lake, &pairs, &count)));
    free(pairs);
    if (check_below(&self->random, 4) == 0) {
        CHECK_OK(gml_lake_reset_peaks(at->lake));
    }
}

static void keep_history(stress *self, stress_lake *at) {
    static _Thread_local gml_request events[EVENTS];
    size_t count = 0;
    uint64_t total = 0;
    CHECK_OK(gml_lake_history(at->lake, events, EVENTS, &count, &total));
    CHECK(count <= total && count <= EVENTS);
    size_t most = check_below(&self->random, 2) * EVENTS;
    stress_expect(self, ASK(gml_lake_keep_history(at->lake, most)));
}

typedef struct sum {
    uint64_t blocks, bytes;
} sum;

static void add(sum *to, uint64_t size_bytes) {
    to->blocks++;
    to->bytes += size_bytes;
}

static void add_pending(void *context, const gml_block_info *block) {
    add(context, block->requested_bytes);
}

/* The counters are what the program has, and what waits for streams. */
static void check_counters(const stress *self, const stress_lake *at) {
    const gml_stats stats = lake_stats_of(at->lake);
    sum lives = {0};
    gml_lake_pending(at->lake, add_pending, &lives);
    for (size_t i = 0; i < self->count; i++) {
        if (self->blocks[i].at == at) {
            add(&lives, self->blocks[i].block.size_bytes);
        }
    }
    for (size_t i = 0; i < STRESS_EXCHANGED; i++) {
        if (self->shared->exchange[i].at == at) {
            add(&lives, self->shared->exchange[i].block.size_bytes);
        }
    }
    for (size_t i = 0; i < STRESS_BUFFERS; i++) {
        gml_elastic_info info = {.chunk_bytes = 1};
        if (self->buffers[i].address && self->buffers[i].at == at) {
            CHECK_OK(gml_lake_elastic(at->lake, self->buffers[i].address, &info));
        }
        lives.blocks += info.memory_bytes / info.chunk_bytes;
        lives.bytes += info.memory_bytes;
    }
    CHECK_EQ(stats.live_blocks, lives.blocks);
    CHECK_EQ(stats.requested_bytes, lives.bytes);
    CHECK_EQ(stats.allocations - stats.frees, lives.blocks);
    CHECK(stats.reserved_bytes >= stats.live_bytes);
    CHECK(at->lake->driver->held_bytes <= at->capacity_bytes);
    CHECK_EQ(stats.reserved_bytes, at->lake->driver->held_bytes);
}

void stress_look(stress *self, stress_lake *at) {
    if (!CHECK_OK(gml_lake_check(at->lake))) {
        char reason[GML_REASON_BYTES];
        gml_lake_reason(at->lake, reason, sizeof reason);
        fprintf(stderr, "%s\n", reason);
    }
    if (self->shared->is_alone) {
        check_counters(self, at);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

void stress_tell(stress *self) {
    /* Twice what is likelier, and first what happens in steps that repeat, and in plain programs.
     */
    static stress_deed *const deeds[] = {
        work,
        work,
        use_elsewhere,
        use_elsewhere,
        use_elsewhere,
        use_elsewhere,
        trim,
        mark,
        stress_end_stream,
        stress_end_stream,
        give,
        give,
        set_limit,
        set_margin,
        stress_spoil_graph,
        stress_spoil_graph,
        grant,
        look_at_block,
        look,
        keep_history,
    };
    enum { DEEDS = sizeof deeds / sizeof *deeds, REPEATED = 6, PLAIN = 12 };
    stress_lake *at = stress_any_lake(self);
    size_t kinds = self->repeats ? REPEATED : self->shared->is_plain ? PLAIN : DEEDS;
    deeds[check_below(&self->random, kinds)](self, at);
}
