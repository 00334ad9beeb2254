/* What a random program asks of its lakes besides memory. */
#include "gmlake_share.h"
#include "lake/lake.h"
#include "support/stress.h"

#define MIB (UINT64_C(1) << 20)

enum { EVENTS = 100, PAIRS = 8 };

typedef void stress_deed(stress *self, stress_lake *at);

/* ---- captures -------------------------------------------------------------------------------- */

static gml_pool_id own_pool(const stress *self) {
    return (gml_pool_id){1, 1 + self->number};
}

/* While any graph is captured on the device, none begins that takes turns. */
static void begin_capture(stress *self, stress_lake *at) {
    uint64_t turn = check_below(&self->random, STRESS_TURNS + 1);
    gml_status status = gml_lake_begin_pool_in_turn(at->lake, own_pool(self), turn);
    if (status != GML_OK) {
        CHECK(status == GML_UNSUPPORTED && turn && !self->shared->is_alone);
        return;
    }
    CHECK_OK(gml_streams_set_capturing(stress_streams(at), stress_capturing_stream(self), true));
    self->captures[at - self->shared->lakes]++;
    self->captured_on = at;
    self->takes_turn = turn && at->lake->pools.ops->live_chunks && !at->is_arena;
    stress_counts.captures++;
}

/* What was captured in turn has contents from here on, and is a graph. */
static void end_turn(stress *self, stress_lake *at) {
    for (size_t i = 0; i < self->count; i++) {
        self->blocks[i].is_captured &= self->blocks[i].at != at;
    }
    stress_graph *graph = &self->graphs[self->graph_count++ % STRESS_GRAPHS];
    *graph = (stress_graph){at->lake, gml_last_graph()};
    stress_counts.turns++;
}

/* A capture that takes turns may find no memory for its outputs, or another one begun meanwhile. */
static bool is_failed_turn(const stress *self, gml_status status) {
    return self->takes_turn && (status == GML_OUT_OF_MEMORY || status == GML_UNSUPPORTED ||
                                (self->shared->per_million && status == GML_DRIVER_FAILED));
}

void stress_end_capture(stress *self) {
    stress_lake *at = self->captured_on;
    if (!at) {
        return;
    }
    CHECK_OK(gml_streams_set_capturing(stress_streams(at), stress_capturing_stream(self), false));
    bool is_over = check_below(&self->random, 6) == 0;
    gml_status status = is_over ? gml_lake_abandon_pool(at->lake, own_pool(self))
                                : gml_lake_end_pool(at->lake, own_pool(self));
    if (is_failed_turn(self, status)) {
        stress_counts.failed_turns++;
        is_over = true;
    } else {
        stress_expect(self, status);
    }
    if (is_over) {
        self->captures[at - self->shared->lakes]--;
    } else if (self->takes_turn) {
        end_turn(self, at);
    }
    self->captured_on = NULL;
    self->takes_turn = false;
}

static void release_capture(stress *self, stress_lake *at) {
    self->captures[at - self->shared->lakes]--;
    stress_expect(self, gml_lake_release_pool(at->lake, own_pool(self)));
}

void stress_release_captures(stress *self) {
    for (size_t i = 0; i < STRESS_LAKES; i++) {
        while (self->captures[i]) {
            release_capture(self, &self->shared->lakes[i]);
        }
    }
}

static void capture(stress *self, stress_lake *at) {
    if (self->captured_on) {
        stress_end_capture(self);
    } else if (self->captures[at - self->shared->lakes] && check_below(&self->random, 3)) {
        release_capture(self, at);
    } else {
        begin_capture(self, at);
    }
}

/* As a replay does, which writes to all its temporary memory: everything else keeps its content. */
static void spoil_graph(stress *self, stress_lake *at) {
    (void)at;
    if (!self->graph_count) {
        return;
    }
    size_t known = self->graph_count < STRESS_GRAPHS ? self->graph_count : STRESS_GRAPHS;
    const stress_graph *graph = &self->graphs[check_below(&self->random, known)];
    gml_status status =
        gml_lake_spoil_graph(graph->lake, graph->number, stress_lasting_stream(self));
    if (status != GML_UNKNOWN_ADDRESS && status != GML_UNSUPPORTED) { /* gone; a capture, asleep */
        stress_expect(self, status);
        stress_counts.spoiled += status == GML_OK;
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

static void do_nothing(void *context) {
    (void)context;
}

/* Something is queued, or comes to run. */
static void work(stress *self, stress_lake *at) {
    gml_stream stream = stress_own_stream(self);
    if (check_below(&self->random, 2)) {
        CHECK_OK(gml_streams_enqueue(stress_streams(at), stream, do_nothing, NULL));
    } else {
        CHECK_OK(gml_streams_advance(stress_streams(at), stream, 1 + check_below(&self->random, 4),
                                     NULL));
    }
}

static void record_stream(stress *self, stress_lake *at) {
    (void)at;
    if (self->count) {
        const stress_block *held = &self->blocks[check_below(&self->random, self->count)];
        stress_expect(self, gml_lake_record_stream(held->at->lake, held->block.address,
                                                   stress_any_stream(self, held->at)));
    }
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

static void trim(stress *self, stress_lake *at) {
    stress_expect(self, gml_lake_trim(at->lake, NULL));
}

/* As to another process that asks. */
static void give(stress *self, stress_lake *at) {
    uint64_t wanted_bytes = (1 + check_below(&self->random, 64)) * MIB, released_bytes = 0;
    bool is_pending = false;
    if (check_below(&self->random, 8) == 0) {
        wanted_bytes = UINT64_MAX;
    }
    stress_expect(self, gml_lake_give(at->lake, wanted_bytes, NULL, &released_bytes, &is_pending));
    stress_counts.given += released_bytes > 0;
    (void)gml_lake_idle_bytes(at->lake);
}

static void mark(stress *self, stress_lake *at) {
    stress_expect(self, gml_lake_mark(at->lake));
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
    gml_stream_pair pairs[PAIRS];
    size_t count = 0;
    uint64_t wrong = 0;
    const gml_visitor visitor = {.context = &wrong, .span = see_span, .range = see_range};
    CHECK_OK(gml_lake_stats(at->lake, &stats));
    CHECK(stats.requested_bytes <= stats.live_bytes);
    CHECK_OK(gml_lake_torch_stats(at->lake, &torch));
    CHECK_OK(gml_lake_visit(at->lake, &visitor));
    CHECK_EQ(wrong, 0);
    CHECK_OK(gml_lake_stream_pairs(at->lake, pairs, PAIRS, &count));
    if (check_below(&self->random, 4) == 0) {
        CHECK_OK(gml_lake_reset_peaks(at->lake));
    }
}

static void keep_history(stress *self, stress_lake *at) {
    static _Thread_local gml_request events[EVENTS];
    size_t count = 0;
    uint64_t total = 0;
    CHECK_OK(gml_lake_history(at->lake, events, NULL, EVENTS, &count, &total));
    CHECK(count <= total && count <= EVENTS);
    CHECK_OK(gml_lake_note_mark(at->lake, total));
    CHECK_OK(gml_lake_keep_history(at->lake, check_below(&self->random, 2) * EVENTS));
}

/* ---- all of it ------------------------------------------------------------------------------- */

void stress_tell(stress *self) {
    /* Twice what is likelier, and first what happens in steps that repeat. */
    static stress_deed *const deeds[] = {
        work,         work,        record_stream, record_stream, record_stream, record_stream,
        trim,         mark,        set_limit,     set_margin,    capture,       capture,
        capture,      spoil_graph, spoil_graph,   grant,         look_at_block, look,
        keep_history, give,        give,
    };
    enum { DEEDS = sizeof deeds / sizeof *deeds, REPEATED = 6 };
    stress_lake *at = stress_any_lake(self);
    deeds[check_below(&self->random, self->repeats ? REPEATED : DEEDS)](self, at);
}
