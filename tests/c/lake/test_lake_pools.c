/* Private pools through a lake, over every policy: who serves a capturing stream, what a capture
 * leaves alone, and what comes back after the release. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { EAGER = 1, CAPTURER = 5, OTHER_CAPTURER = 6 };

static const gml_pool_id GRAPH = {1, 7};
static const gml_pool_id OTHER_GRAPH = {0, 7};

static void set_capturing(gml_lake *lake, gml_stream stream, bool is_capturing) {
    CHECK_OK(gml_streams_set_capturing(lake->driver->streams, stream, is_capturing));
}

static void begin_capture(gml_lake *lake, gml_pool_id id, gml_stream stream) {
    CHECK_OK(gml_lake_begin_pool(lake, id));
    set_capturing(lake, stream, true);
}

static void end_capture(gml_lake *lake, gml_pool_id id, gml_stream stream) {
    set_capturing(lake, stream, false);
    CHECK_OK(gml_lake_end_pool(lake, id));
}

static gml_policy *owner_of(gml_lake *lake, gml_address address) {
    const gml_block *block = gml_map_find(&lake->blocks, address);
    CHECK(block != NULL);
    return block ? block->owner : NULL;
}

/* The lake, its pools and the driver agree on what is held. */
static uint64_t reserved(gml_lake *lake) {
    uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
    CHECK_EQ(lake->driver->held_bytes, reserved_bytes);
    CHECK_OK(gml_lake_check(lake));
    return reserved_bytes;
}

static void count_pool(void *context, const gml_pool_info *info) {
    (void)info;
    (*(size_t *)context)++;
}

static size_t count_pools(const gml_lake *lake) {
    size_t count = 0;
    gml_pools_each(&lake->pools, count_pool, &count);
    return count;
}

/* Calls that would break a capture, or take memory from under it. */
static uint64_t forbidden_calls(gml_lake *lake) {
    static const gml_driver_call forbidden[] = {
        GML_CALL_RELEASE,      GML_CALL_UNRESERVE,          GML_CALL_UNMAP,
        GML_CALL_FREE,         GML_CALL_EVENT_CREATE,       GML_CALL_EVENT_DESTROY,
        GML_CALL_EVENT_RECORD, GML_CALL_EVENT_QUERY,        GML_CALL_EVENT_SYNCHRONIZE,
        GML_CALL_STREAM_WAIT,  GML_CALL_STREAM_SYNCHRONIZE, GML_CALL_DEVICE_SYNCHRONIZE,
    };
    gml_stats stats = lake_stats_of(lake);
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        calls += stats.driver_calls[forbidden[i]];
    }
    return calls;
}

/* Allocates and frees at random on three eager streams and the capturing one. */
static void churn_in_capture(gml_lake *lake, live_block *blocks, size_t count, uint64_t seed) {
    check_random random = {seed};
    for (int step = 0; step < 600; step++) {
        live_block *block = &blocks[check_below(&random, count)];
        if (block->address) {
            lake_check_filled(lake, block);
            lake_give(lake, block->address);
            block->address = 0;
            continue;
        }
        gml_stream stream = check_below(&random, 4);
        *block = (live_block){.size_bytes = lake_draw_size(&random),
                              .seed = check_next(&random),
                              .stream = stream == 3 ? CAPTURER : stream};
        gml_status status =
            gml_lake_allocate(lake, block->size_bytes, block->stream, &block->address);
        CHECK(status == GML_OK || status == GML_OUT_OF_MEMORY);
        if (status == GML_OK) {
            lake_fill(lake, block);
            CHECK_OK(gml_lake_record_stream(lake, block->address, check_below(&random, 3)));
        }
    }
}

TEST(a_capture_sees_no_call_that_would_break_it) {
    gml_lake *lake = lake_open(160 * MIB);
    live_block blocks[48] = {{0}};
    CHECK_OK(gml_streams_set_manual(lake->driver->streams, true));
    churn_in_capture(lake, blocks, 48, 1);
    for (uint64_t round = 0; round < 3; round++) {
        begin_capture(lake, GRAPH, CAPTURER);
        uint64_t before = forbidden_calls(lake);
        churn_in_capture(lake, blocks, 48, 2 + round);
        CHECK_OK(gml_lake_trim(lake, NULL));
        CHECK_EQ(forbidden_calls(lake), before);
        end_capture(lake, GRAPH, CAPTURER);
        CHECK_EQ(forbidden_calls(lake), before);
        (void)reserved(lake);
        churn_in_capture(lake, blocks, 48, 20 + round);
        CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    }
    for (size_t i = 0; i < 48; i++) {
        if (blocks[i].address) {
            lake_check_filled(lake, &blocks[i]);
        }
    }
    CHECK_OK(gml_lake_close(lake));
}

TEST(wrong_ids_are_refused) {
    gml_lake *lake = lake_open(0);
    char reason[256] = "";
    CHECK_STATUS(gml_lake_end_pool(lake, GRAPH), GML_INVALID_ARGUMENT);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "(1, 7) is not begun") != NULL);
    CHECK_STATUS(gml_lake_release_pool(lake, GRAPH), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_begin_pool(lake, GRAPH));
    CHECK_STATUS(gml_lake_end_pool(lake, OTHER_GRAPH), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_lake_release_pool(lake, OTHER_GRAPH), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    CHECK_STATUS(gml_lake_end_pool(lake, GRAPH), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_STATUS(gml_lake_release_pool(lake, GRAPH), GML_INVALID_ARGUMENT);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "(1, 7) has no use") != NULL);
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

TEST(a_pool_may_be_released_before_it_ends) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, GRAPH, CAPTURER);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH)); /* it holds nothing yet, and is still needed */
    CHECK_EQ(count_pools(lake), 1);
    lake_give(lake, lake_take(lake, 30 * MIB, CAPTURER));
    end_capture(lake, GRAPH, CAPTURER);
    CHECK(reserved(lake) >= 30 * MIB);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), 0);
    lake_finish(lake);
}

/* ---- pools that are named -------------------------------------------------------------------- */

static gml_address take_in(gml_lake *lake, gml_pool_id id, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate_in(lake, id, size_bytes, stream, &address));
    return address;
}

typedef struct pool_state {
    gml_pool_id id;
    gml_pool_info info; /* all zero: unknown */
} pool_state;

static void note_pool(void *context, const gml_pool_info *info) {
    pool_state *state = context;
    if (info->id.first == state->id.first && info->id.second == state->id.second) {
        state->info = *info;
    }
}

static gml_pool_info info_of(gml_lake *lake, gml_pool_id id) {
    pool_state state = {.id = id};
    gml_lake_pools(lake, note_pool, &state);
    return state.info;
}

TEST(uses_are_counted_until_the_last_release) {
    gml_lake *lake = lake_open(0);
    gml_address none = 0;
    CHECK_STATUS(gml_lake_allocate_in(lake, GRAPH, MIB, EAGER, &none), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    CHECK_OK(gml_lake_enter_pool(lake, GRAPH));
    CHECK_EQ(info_of(lake, GRAPH).use_count, 2);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    CHECK_EQ(info_of(lake, GRAPH).use_count, 2);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    gml_address block = take_in(lake, GRAPH, MIB, EAGER);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_STATUS(gml_lake_allocate_in(lake, GRAPH, MIB, EAGER, &none), GML_INVALID_ARGUMENT);
    char reason[256] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "(1, 7) is not in use") != NULL);
    CHECK_EQ(count_pools(lake), 1); /* for the block */
    lake_give(lake, block);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

static bool is_stitch(const gml_lake *lake) {
    return strcmp(lake->policy->ops->name, "stitch") == 0 && !lake->driver->arena_bytes;
}

static uint64_t calls_of(gml_lake *lake) {
    gml_stats stats = lake_stats_of(lake);
    uint64_t calls = 0;
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        calls += stats.driver_calls[call];
    }
    return calls;
}

/* A step that makes a pool, works in it, and drops it; returns the driver calls that it took. */
static uint64_t step_in_a_pool(gml_lake *lake, uint64_t number) {
    enum { BLOCKS = 24 };
    const gml_pool_id id = {100 + number, 1};
    gml_address blocks[BLOCKS];
    uint64_t before = calls_of(lake);
    CHECK_OK(gml_lake_hold_pool(lake, id));
    for (uint64_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take_in(lake, id, (i % 5 + 1) * MIB / 2, EAGER);
        if (i % 3 == 2) {
            lake_give(lake, blocks[i - 1]);
            blocks[i - 1] = take_in(lake, id, (i % 7 + 1) * MIB / 2, EAGER);
        }
    }
    for (uint64_t i = 0; i < BLOCKS; i++) {
        lake_give(lake, blocks[i]);
    }
    CHECK_OK(gml_lake_release_pool(lake, id));
    return calls_of(lake) - before;
}

TEST(a_pool_of_each_step_has_the_memory_of_the_one_before) {
    gml_lake *lake = lake_open(0);
    uint64_t calls = 0, last = 0;
    for (uint64_t number = 0; number < 8; number++) {
        calls = step_in_a_pool(lake, number);
        last = number == 0 ? reserved(lake) : last;
    }
    if (is_stitch(lake)) {
        CHECK_EQ(last, 0); /* a pool that is dropped once leaves nothing */
        CHECK_EQ(calls, 0);
        CHECK_EQ(count_pools(lake), 1);
        uint64_t parked_bytes = reserved(lake);
        CHECK(parked_bytes > 0);
        gml_address other = lake_take(lake, 8 * MIB, EAGER); /* grows: what is parked goes */
        CHECK_EQ(reserved(lake), 8 * MIB);
        lake_give(lake, other);
        (void)step_in_a_pool(lake, 8); /* and the next that is dropped leaves nothing again */
        CHECK_EQ(reserved(lake), 8 * MIB);
        (void)step_in_a_pool(lake, 9);
        begin_capture(lake, GRAPH, CAPTURER); /* takes none: the work before may still run */
        gml_address captured = lake_take(lake, 2 * MIB, CAPTURER);
        CHECK_EQ(count_pools(lake), 2);
        lake_give(lake, captured);
        end_capture(lake, GRAPH, CAPTURER);
        CHECK_OK(gml_lake_release_pool(lake, GRAPH));
        CHECK_EQ(count_pools(lake), 1); /* nor is what a graph used parked */
        CHECK_OK(gml_lake_hold_pool(lake, OTHER_GRAPH));
        CHECK_OK(gml_lake_set_pool(lake, OTHER_GRAPH, GML_POOL_IS_WHOLE, true));
        gml_address whole = take_in(lake, OTHER_GRAPH, MIB, EAGER);
        CHECK(owner_of(lake, whole)->ops == &gml_caching_policy); /* and who splits nothing has */
        lake_give(lake, whole);                                   /* memory of its own */
        CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    }
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

TEST(blocks_of_a_pool_may_be_whole) {
    gml_lake *lake = lake_open(0);
    CHECK_STATUS(gml_lake_set_pool(lake, GRAPH, GML_POOL_IS_WHOLE, true), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    CHECK_OK(gml_lake_set_pool(lake, GRAPH, GML_POOL_IS_WHOLE, true));
    gml_address first = take_in(lake, GRAPH, 24 * MIB, EAGER);
    lake_give(lake, first);
    CHECK_EQ(take_in(lake, GRAPH, 12 * MIB, EAGER), first);
    gml_block_info block;
    CHECK_OK(gml_lake_block(lake, first, &block));
    CHECK_EQ(block.block_bytes, 24 * MIB);
    CHECK_EQ(block.pool.second, GRAPH.second);
    CHECK_STATUS(gml_lake_set_pool(lake, GRAPH, GML_POOL_IS_WHOLE, false), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_set_pool(lake, GRAPH, GML_POOL_HELPS, true));
    lake_give(lake, first);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

/* A helper that has nothing is passed over: memory that is idle elsewhere is still released. */
TEST(a_pool_without_idle_memory_does_not_keep_others_from_helping) {
    gml_lake *lake = lake_open(96 * MIB);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    CHECK_OK(gml_lake_set_pool(lake, GRAPH, GML_POOL_HELPS, true));
    gml_address kept = take_in(lake, GRAPH, 10 * MIB, EAGER);
    CHECK_OK(gml_lake_hold_pool(lake, OTHER_GRAPH));
    lake_give(lake, take_in(lake, OTHER_GRAPH, 60 * MIB, EAGER));
    gml_address eager = lake_take(lake, 60 * MIB, EAGER);
    CHECK(owner_of(lake, eager) == lake->policy);
    lake_give(lake, eager);
    lake_give(lake, kept);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    lake_finish(lake);
}

typedef struct pool_walk {
    size_t spans, pool_spans;
    gml_pool_id last;
    bool is_in_pool;
} pool_walk;

static void walk_span(void *context, const gml_span_info *span) {
    pool_walk *walk = context;
    (void)span;
    walk->spans++;
    walk->pool_spans += walk->is_in_pool;
}

static void walk_range(void *context, const gml_range_info *range) {
    (void)context, (void)range;
}

static void walk_pool(void *context, gml_pool_id id) {
    pool_walk *walk = context;
    walk->is_in_pool = true;
    walk->last = id;
}

TEST(a_visitor_hears_whose_spans_follow) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_hold_pool(lake, OTHER_GRAPH));
    gml_address eager = lake_take(lake, 24 * MIB, EAGER);
    gml_address pooled = take_in(lake, OTHER_GRAPH, 24 * MIB, EAGER);
    pool_walk walk = {0};
    const gml_visitor visitor = {
        .context = &walk, .span = walk_span, .range = walk_range, .pool = walk_pool};
    CHECK_OK(gml_lake_visit(lake, &visitor));
    CHECK(walk.is_in_pool);
    CHECK_EQ(walk.last.second, OTHER_GRAPH.second);
    CHECK(walk.pool_spans > 0 && walk.pool_spans < walk.spans);
    lake_give(lake, eager);
    lake_give(lake, pooled);
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    lake_finish(lake);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* One capture after some eager work; false if a call failed that the test cannot do without. */
static bool capture_once(gml_lake *lake) {
    gml_address eager = 0, captured[2] = {0};
    bool is_whole = gml_lake_allocate(lake, 4 * MIB, EAGER, &eager) == GML_OK;
    begin_capture(lake, GRAPH, CAPTURER);
    for (size_t i = 0; i < 2; i++) {
        gml_status status = gml_lake_allocate(lake, 30 * MIB, CAPTURER, &captured[i]);
        CHECK(status == GML_OK || status == GML_OUT_OF_MEMORY || status == GML_DRIVER_FAILED);
        is_whole = is_whole && status == GML_OK;
    }
    lake_give(lake, captured[0]);
    end_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, captured[1]);
    lake_give(lake, eager);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    return is_whole;
}

TEST(each_failing_call_is_survived) {
    size_t failures = 0;
    for (uint64_t nth = 1; nth < 200; nth++) {
        gml_lake_config config = lake_config_of(0);
        config.hooks = GML_HOOKS(.fail_call = nth, .check_order = true);
        gml_lake *lake = NULL;
        char reason[256];
        if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
            failures++;
            continue;
        }
        bool is_whole = capture_once(lake);
        bool is_trimmed = gml_lake_trim(lake, NULL) == GML_OK;
        failures += !is_whole || !is_trimmed;
        CHECK(capture_once(lake) || is_whole);
        CHECK_OK(gml_lake_trim(lake, NULL) == GML_OK ? GML_OK : gml_lake_trim(lake, NULL));
        CHECK_EQ(reserved(lake), 0);
        CHECK_EQ(count_pools(lake), 0);
        gml_status closed = gml_lake_close(lake); /* the call that fails may be its own */
        CHECK(closed == GML_OK || closed == GML_DRIVER_FAILED);
    }
    CHECK(failures > 3);
}

int main(void) {
    return contract_main();
}
