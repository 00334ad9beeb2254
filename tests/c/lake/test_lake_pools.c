/* Private pools through a lake, over every policy: who serves a capturing stream, what a capture
 * leaves alone, and what comes back after the release. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { EAGER = 1, CAPTURER = 5, OTHER_CAPTURER = 6 };

static const gml_pool_id GRAPH = {1, 7};
static const gml_pool_id OTHER_GRAPH = {0, 7};

static void set_capturing(gml_lake *lake, gml_stream stream, bool is_capturing) {
    CHECK_OK(gml_streams_set_capturing(gml_driver_streams(lake->driver), stream, is_capturing));
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

TEST(the_stream_decides_who_serves) {
    gml_lake *lake = lake_open(0);
    set_capturing(lake, CAPTURER, true);
    gml_address unasked = lake_take(lake, MIB, CAPTURER); /* captures, but no pool is begun */
    CHECK(owner_of(lake, unasked) == lake->policy);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_STREAM_CAPTURING], 0);
    CHECK_OK(gml_lake_begin_pool(lake, GRAPH));
    gml_address captured = lake_take(lake, MIB, CAPTURER);
    gml_address eager = lake_take(lake, MIB, EAGER);
    CHECK(owner_of(lake, captured) != lake->policy);
    CHECK(owner_of(lake, eager) == lake->policy);
    end_capture(lake, GRAPH, CAPTURER);
    gml_address after = lake_take(lake, MIB, CAPTURER);
    CHECK(owner_of(lake, after) == lake->policy);
    lake_give(lake, captured);
    lake_give(lake, unasked);
    lake_give(lake, eager);
    lake_give(lake, after);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

TEST(the_latest_begin_serves) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address first = lake_take(lake, MIB, CAPTURER);
    CHECK_OK(gml_lake_begin_pool(lake, OTHER_GRAPH));
    gml_address second = lake_take(lake, MIB, CAPTURER);
    CHECK(owner_of(lake, second) != owner_of(lake, first));
    CHECK(gml_driver_is_frozen(lake->driver));
    CHECK_OK(gml_lake_end_pool(lake, OTHER_GRAPH));
    CHECK(gml_driver_is_frozen(lake->driver));
    gml_address third = lake_take(lake, MIB, CAPTURER);
    CHECK(owner_of(lake, third) == owner_of(lake, first));
    end_capture(lake, GRAPH, CAPTURER);
    CHECK(!gml_driver_is_frozen(lake->driver));
    CHECK_EQ(count_pools(lake), 2);
    lake_give(lake, first);
    lake_give(lake, second);
    lake_give(lake, third);
    (void)reserved(lake);
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    (void)reserved(lake);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

TEST(two_captures_share_a_pool_by_its_id) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address first = lake_take(lake, 30 * MIB, CAPTURER);
    lake_give(lake, first);
    end_capture(lake, GRAPH, CAPTURER);
    uint64_t before = reserved(lake);
    begin_capture(lake, GRAPH, CAPTURER);
    CHECK_EQ(lake_take(lake, 30 * MIB, CAPTURER), first);
    CHECK_EQ(reserved(lake), before);
    lake_give(lake, first);
    end_capture(lake, GRAPH, CAPTURER);
    CHECK_EQ(count_pools(lake), 1);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(reserved(lake), before); /* the other capture still uses it */
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(reserved(lake), 0);
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

TEST(addresses_stay_until_the_release) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address first = lake_take(lake, 24 * MIB, CAPTURER);
    gml_address second = lake_take(lake, 24 * MIB, CAPTURER);
    lake_give(lake, first);
    end_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, second);
    uint64_t held = reserved(lake), released_bytes = 1;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_EQ(released_bytes, 0);
    CHECK_EQ(reserved(lake), held);

    /* Nobody else is served there. */
    gml_address others[4];
    for (size_t i = 0; i < 4; i++) {
        others[i] = lake_take(lake, 24 * MIB, i % 2 ? CAPTURER : EAGER);
        CHECK(others[i] != first && others[i] != second);
        CHECK(owner_of(lake, others[i]) == lake->policy);
    }
    for (size_t i = 0; i < 4; i++) {
        lake_give(lake, others[i]);
    }
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

/* Idle memory of one side serves no request of the other, and what lives on both keeps its bytes.
 */
TEST(no_memory_is_shared_with_eager_streams) {
    gml_lake *lake = lake_open(0);
    live_block blocks[40];
    size_t count = 0;
    lake_give(lake, lake_take(lake, 64 * MIB, EAGER));
    uint64_t eager_bytes = reserved(lake);
    begin_capture(lake, GRAPH, CAPTURER);
    for (uint64_t i = 0; i < 40; i++) {
        gml_stream stream = i % 2 ? CAPTURER : EAGER;
        blocks[i] = (live_block){.size_bytes = (1 + i) * 65536, .seed = i, .stream = stream};
        blocks[i].address = lake_take(lake, blocks[i].size_bytes, stream);
        lake_fill(lake, &blocks[i]);
        count++;
    }
    uint64_t pool_bytes = owner_of(lake, blocks[1].address)->reserved_bytes;
    CHECK_EQ(reserved(lake), lake->policy->reserved_bytes + pool_bytes);
    CHECK(lake->policy->reserved_bytes >= eager_bytes);
    CHECK(pool_bytes >= 20 * 65536);
    end_capture(lake, GRAPH, CAPTURER);
    lake_check_disjoint(blocks, count);
    lake_drain(lake, blocks, count);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(reserved(lake), lake->policy->reserved_bytes);
    lake_finish(lake);
}

/* A refusal during a capture takes nothing from anyone; after it, idle memory can be had again. */
TEST(a_lack_of_memory_during_a_capture) {
    gml_lake *lake = lake_open(96 * MIB);
    live_block live = {.size_bytes = 20 * MIB, .seed = 3, .stream = EAGER};
    gml_address none = 0;
    live.address = lake_take(lake, live.size_bytes, EAGER);
    lake_fill(lake, &live);
    lake_give(lake, lake_take(lake, 40 * MIB, EAGER));
    begin_capture(lake, GRAPH, CAPTURER);
    live_block captured = {.size_bytes = 20 * MIB, .seed = 4, .stream = CAPTURER};
    captured.address = lake_take(lake, captured.size_bytes, CAPTURER);
    lake_fill(lake, &captured);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(gml_lake_allocate(lake, 50 * MIB, CAPTURER, &none), GML_OUT_OF_MEMORY);
        CHECK_STATUS(gml_lake_allocate(lake, 70 * MIB, EAGER, &none), GML_OUT_OF_MEMORY);
    }
    CHECK(reserved(lake) <= 96 * MIB);
    CHECK_EQ(lake_stats_of(lake).live_blocks, 2);
    end_capture(lake, GRAPH, CAPTURER);
    lake_check_filled(lake, &live);
    lake_check_filled(lake, &captured);
    begin_capture(lake, OTHER_GRAPH, OTHER_CAPTURER);
    CHECK_STATUS(gml_lake_allocate(lake, 50 * MIB, OTHER_CAPTURER, &none), GML_OUT_OF_MEMORY);
    end_capture(lake, OTHER_GRAPH, OTHER_CAPTURER);
    lake_give(lake, captured.address);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    gml_address large = lake_take(lake, 60 * MIB, OTHER_CAPTURER);
    lake_check_filled(lake, &live);
    lake_give(lake, large);
    lake_give(lake, live.address);
    lake_finish(lake);
}

/* An eager request may have what a released pool holds idle; never what a used one does. */
TEST(a_lack_of_memory_takes_from_released_pools) {
    gml_lake *lake = lake_open(96 * MIB);
    gml_address none = 0;
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address small = lake_take(lake, MIB / 2, CAPTURER);
    gml_address captured = lake_take(lake, 60 * MIB, CAPTURER);
    end_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, captured);
    CHECK_STATUS(gml_lake_allocate(lake, 60 * MIB, EAGER, &none), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_begin_pool(lake, OTHER_GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, GRAPH)); /* too early to give anything back */
    CHECK(reserved(lake) > 60 * MIB);
    CHECK_OK(gml_lake_end_pool(lake, OTHER_GRAPH));
    gml_address eager = lake_take(lake, 60 * MIB, EAGER);
    lake_give(lake, small);
    lake_give(lake, eager);
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    lake_finish(lake);
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
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
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

TEST(live_blocks_outlive_the_release) {
    gml_lake *lake = lake_open(0);
    live_block output = {.size_bytes = 24 * MIB, .seed = 9, .stream = CAPTURER};
    begin_capture(lake, GRAPH, CAPTURER);
    output.address = lake_take(lake, output.size_bytes, CAPTURER);
    lake_give(lake, lake_take(lake, 48 * MIB, CAPTURER));
    end_capture(lake, GRAPH, CAPTURER);
    lake_fill(lake, &output);
    uint64_t before = reserved(lake);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK(reserved(lake) <= before - 40 * MIB); /* `expandable` has granules of 20 MiB */
    CHECK_EQ(count_pools(lake), 1);

    /* The id comes back while the block lives. */
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address again = lake_take(lake, 24 * MIB, CAPTURER);
    CHECK(owner_of(lake, again) == owner_of(lake, output.address));
    lake_give(lake, again);
    end_capture(lake, GRAPH, CAPTURER);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_check_filled(lake, &output);
    lake_give(lake, output.address);
    CHECK(reserved(lake) >= 24 * MIB);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), 0);
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
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

TEST(a_lake_may_end_during_a_capture) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address captured = lake_take(lake, MIB, CAPTURER);
    gml_address eager = lake_take(lake, MIB, EAGER);
    CHECK_OK(gml_lake_record_stream(lake, captured, EAGER));
    CHECK_OK(gml_lake_record_stream(lake, eager, 2));
    lake_give(lake, eager);
    set_capturing(lake, CAPTURER, false);
    CHECK_OK(gml_lake_close(lake));
}

/* ---- pools that are named -------------------------------------------------------------------- */

static gml_address take_in(gml_lake *lake, gml_pool_id id, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    CHECK_OK(gml_lake_allocate_in(lake, id, size_bytes, stream, &address));
    return address;
}

static uint64_t calls_of(gml_lake *lake, gml_driver_call call) {
    return lake_stats_of(lake).driver_calls[call];
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

TEST(a_pool_serves_those_who_name_it) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    CHECK_OK(gml_lake_hold_pool(lake, OTHER_GRAPH));
    CHECK_EQ(info_of(lake, GRAPH).reserved_bytes, 0); /* none before it is asked */
    live_block blocks[3] = {
        {.size_bytes = 24 * MIB, .seed = 1, .stream = EAGER},
        {.size_bytes = 24 * MIB, .seed = 2, .stream = EAGER},
        {.size_bytes = 24 * MIB, .seed = 3, .stream = EAGER},
    };
    lake_give(lake, take_in(lake, GRAPH, 48 * MIB, EAGER));
    blocks[0].address = take_in(lake, GRAPH, 24 * MIB, EAGER);
    blocks[1].address = take_in(lake, OTHER_GRAPH, 24 * MIB, EAGER);
    blocks[2].address = lake_take(lake, 24 * MIB, EAGER);
    CHECK_EQ(info_of(lake, GRAPH).reserved_bytes,
             owner_of(lake, blocks[0].address)->reserved_bytes);
    CHECK(owner_of(lake, blocks[0].address) != owner_of(lake, blocks[1].address));
    CHECK(owner_of(lake, blocks[2].address) == lake->policy);
    CHECK(!gml_driver_is_frozen(lake->driver));
    for (size_t i = 0; i < 3; i++) {
        lake_fill(lake, &blocks[i]);
    }
    (void)reserved(lake);
    lake_check_disjoint(blocks, 3);
    lake_drain(lake, blocks, 3);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    CHECK_EQ(reserved(lake), lake->policy->reserved_bytes);
    lake_finish(lake);
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

TEST(an_entered_pool_that_never_served_may_be_released) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_enter_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(count_pools(lake), 1);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

TEST(a_begin_of_a_thread_is_no_capture) {
    gml_lake *lake = lake_open(0);
    set_capturing(lake, CAPTURER, true);
    CHECK_OK(gml_lake_enter_pool(lake, GRAPH));
    CHECK(!gml_driver_is_frozen(lake->driver));
    gml_address captured = lake_take(lake, MIB, CAPTURER);
    CHECK(owner_of(lake, captured) == lake->policy);
    set_capturing(lake, CAPTURER, false);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    CHECK_EQ(gml_device_is_frozen(lake->driver->device), false);
    lake_give(lake, captured);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(count_pools(lake), 0);
    lake_finish(lake);
}

/* What a pool without graphs holds idle comes back: to a trim unless a thread is in it, and to
 * every request that would be refused. */
TEST(idle_memory_of_a_living_pool_returns) {
    gml_lake *lake = lake_open(96 * MIB);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    CHECK_OK(gml_lake_enter_pool(lake, GRAPH));
    lake_give(lake, take_in(lake, GRAPH, 60 * MIB, EAGER));
    uint64_t held = reserved(lake);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), held);
    gml_address eager = lake_take(lake, 60 * MIB, EAGER); /* a thread may be in it */
    CHECK(reserved(lake) <= 96 * MIB);
    lake_give(lake, eager);
    CHECK_OK(gml_lake_trim(lake, NULL));
    lake_give(lake, take_in(lake, GRAPH, 60 * MIB, EAGER));
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), 0);

    /* And the other way round. */
    lake_give(lake, lake_take(lake, 60 * MIB, EAGER));
    gml_address pooled = take_in(lake, GRAPH, 60 * MIB, EAGER);
    lake_give(lake, pooled);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

/* Blocks of random sizes come and go in the pool, captured and not. */
static void churn_in_pool(gml_lake *lake, uint64_t seed) {
    check_random random = {seed};
    gml_address blocks[24] = {0};
    for (int step = 0; step < 300; step++) {
        gml_address *block = &blocks[check_below(&random, 24)];
        if (*block) {
            lake_give(lake, *block);
            *block = 0;
        } else {
            *block = take_in(lake, GRAPH, 1 + check_below(&random, 12 * MIB),
                             check_below(&random, 2) ? CAPTURER : OTHER_CAPTURER);
        }
    }
    for (size_t i = 0; i < 24; i++) {
        lake_give(lake, blocks[i]);
    }
}

/* The calls that change which memory an address has. */
static uint64_t moving_calls(gml_lake *lake) {
    return calls_of(lake, GML_CALL_UNMAP) + calls_of(lake, GML_CALL_RELEASE) +
           calls_of(lake, GML_CALL_FREE);
}

TEST(memory_of_graphs_keeps_its_addresses) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    begin_capture(lake, GRAPH, CAPTURER);
    churn_in_pool(lake, 1);
    end_capture(lake, GRAPH, CAPTURER);
    CHECK(info_of(lake, GRAPH).is_kept);
    uint64_t before = moving_calls(lake), held = reserved(lake);
    churn_in_pool(lake, 2);
    CHECK_OK(gml_lake_trim(lake, NULL));
    gml_address none = 0;
    CHECK_STATUS(gml_lake_allocate_in(lake, GRAPH, UINT64_C(1) << 47, CAPTURER, &none),
                 GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_lake_allocate(lake, UINT64_C(1) << 47, CAPTURER, &none), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_EQ(moving_calls(lake), before);
    CHECK(reserved(lake) >= held);

    /* No stream tells where a graph is replayed, so the whole device is waited for. */
    uint64_t waits = calls_of(lake, GML_CALL_DEVICE_SYNCHRONIZE);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK(calls_of(lake, GML_CALL_DEVICE_SYNCHRONIZE) > waits);
    CHECK(moving_calls(lake) > before);
    CHECK_EQ(reserved(lake), 0);
    CHECK_OK(gml_lake_close(lake)); /* refused calls upset the counts that lake_finish() compares */
}

TEST(views_of_graphs_outlive_the_limits) {
    gml_lake_config config = lake_config_of(0);
    const gml_setting few = {"max_views", 1};
    if (strcmp(contract_policy, "stitch") != 0) {
        return;
    }
    config.settings = &few;
    config.setting_count = 1;
    gml_lake *lake = lake_open_by(&config);
    begin_capture(lake, GRAPH, CAPTURER);
    churn_in_pool(lake, 3);
    end_capture(lake, GRAPH, CAPTURER);
    uint64_t before = moving_calls(lake);
    churn_in_pool(lake, 4);
    CHECK_EQ(moving_calls(lake), before);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

/* A thread may enter the pool while its stream captures: the graph has that memory too. */
TEST(a_capture_in_an_entered_pool_keeps_it) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, OTHER_GRAPH, CAPTURER);
    CHECK_OK(gml_lake_enter_pool(lake, GRAPH));
    lake_give(lake, take_in(lake, GRAPH, 24 * MIB, EAGER));
    CHECK(!info_of(lake, GRAPH).is_kept);
    lake_give(lake, take_in(lake, GRAPH, 24 * MIB, CAPTURER));
    CHECK(info_of(lake, GRAPH).is_kept);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    end_capture(lake, OTHER_GRAPH, CAPTURER);
    uint64_t held = reserved(lake);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), held);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, OTHER_GRAPH));
    CHECK_EQ(reserved(lake), 0);
    lake_finish(lake);
}

TEST(a_failed_capture_keeps_nothing) {
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    begin_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, lake_take(lake, 24 * MIB, CAPTURER));
    set_capturing(lake, CAPTURER, false);
    CHECK_OK(gml_lake_abandon_pool(lake, GRAPH));
    CHECK(!gml_driver_is_frozen(lake->driver));
    CHECK_EQ(info_of(lake, GRAPH).use_count, 1);
    CHECK(!info_of(lake, GRAPH).is_kept);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), 0);

    /* One that did not fail needs its memory, whatever the next one does. */
    begin_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, lake_take(lake, 24 * MIB, CAPTURER));
    end_capture(lake, GRAPH, CAPTURER);
    begin_capture(lake, GRAPH, CAPTURER);
    set_capturing(lake, CAPTURER, false);
    CHECK_OK(gml_lake_abandon_pool(lake, GRAPH));
    CHECK(info_of(lake, GRAPH).is_kept);
    CHECK_STATUS(gml_lake_abandon_pool(lake, GRAPH), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
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

TEST(a_pool_helps_out_with_idle_memory_only) {
    gml_lake *lake = lake_open(96 * MIB);
    gml_address none = 0;
    CHECK_OK(gml_lake_hold_pool(lake, GRAPH));
    CHECK_OK(gml_lake_set_pool(lake, GRAPH, GML_POOL_HELPS, true));
    gml_address kept = take_in(lake, GRAPH, MIB, EAGER);
    gml_policy *pool = owner_of(lake, kept);
    lake_give(lake, take_in(lake, GRAPH, 40 * MIB, EAGER));
    uint64_t held = pool->reserved_bytes;
    gml_address eager = lake_take(lake, 24 * MIB, EAGER);
    CHECK(owner_of(lake, eager) == lake->policy); /* while the device has memory */
    gml_address helped = lake_take(lake, 40 * MIB, EAGER);
    CHECK(owner_of(lake, helped) == pool);
    CHECK_EQ(pool->reserved_bytes, held);
    CHECK_STATUS(gml_lake_allocate(lake, 60 * MIB, EAGER, &none), GML_OUT_OF_MEMORY);
    CHECK_EQ(pool->reserved_bytes, held);
    lake_give(lake, helped);
    lake_give(lake, eager);
    lake_give(lake, kept);
    CHECK_OK(gml_lake_trim(lake, NULL));

    /* Not with what graphs use. */
    begin_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, lake_take(lake, 40 * MIB, CAPTURER));
    end_capture(lake, GRAPH, CAPTURER);
    CHECK_STATUS(gml_lake_allocate(lake, 80 * MIB, EAGER, &none), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
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

TEST(who_leaves_a_pool_by_a_failure_ends_no_graph) {
    gml_lake *lake = lake_open(0);
    begin_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, lake_take(lake, 30 * MIB, CAPTURER));
    end_capture(lake, GRAPH, CAPTURER);
    uint64_t held = reserved(lake);
    CHECK_OK(gml_lake_enter_pool(lake, GRAPH));
    CHECK_OK(gml_lake_abandon_pool(lake, GRAPH));
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(reserved(lake), held);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
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

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 6, BLOCKS_PER_THREAD = 32 };

typedef struct capture_thread {
    gml_lake *lake;
    pthread_barrier_t *all_begun;
    uint64_t index;
    gml_address blocks[BLOCKS_PER_THREAD];
} capture_thread;

static void *capture_beside_others(void *context) {
    capture_thread *self = context;
    gml_pool_id id = {self->index, 1};
    gml_stream stream = 100 + self->index;
    begin_capture(self->lake, id, stream);
    (void)pthread_barrier_wait(self->all_begun);
    for (uint64_t i = 0; i < BLOCKS_PER_THREAD; i++) {
        self->blocks[i] = lake_take(self->lake, (1 + i) * 100000, stream);
        lake_give(self->lake, lake_take(self->lake, 70000, self->index % 2));
    }
    (void)pthread_barrier_wait(self->all_begun);
    end_capture(self->lake, id, stream);
    return NULL;
}

TEST(threads_begin_pools_at_once) {
    gml_lake *lake = lake_open(0);
    pthread_barrier_t all_begun;
    capture_thread workers[THREADS];
    pthread_t threads[THREADS];
    CHECK_EQ(pthread_barrier_init(&all_begun, NULL, THREADS), 0);
    for (uint64_t i = 0; i < THREADS; i++) {
        workers[i] = (capture_thread){.lake = lake, .all_begun = &all_begun, .index = i};
        CHECK_EQ(pthread_create(&threads[i], NULL, capture_beside_others, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    CHECK(!gml_driver_is_frozen(lake->driver));
    for (size_t i = 0; i < THREADS; i++) {
        gml_policy *owner = owner_of(lake, workers[i].blocks[0]);
        for (size_t j = 0; j < THREADS; j++) {
            CHECK((owner_of(lake, workers[j].blocks[0]) == owner) == (i == j));
        }
        for (size_t j = 0; j < BLOCKS_PER_THREAD; j++) {
            CHECK(owner_of(lake, workers[i].blocks[j]) == owner);
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        for (size_t j = 0; j < BLOCKS_PER_THREAD; j++) {
            lake_give(lake, workers[i].blocks[j]);
        }
        CHECK_OK(gml_lake_release_pool(lake, (gml_pool_id){i, 1}));
    }
    CHECK_EQ(pthread_barrier_destroy(&all_begun), 0);
    CHECK_EQ(reserved(lake), lake->policy->reserved_bytes);
    lake_finish(lake);
}

static void *allocate_for_another(void *context) {
    capture_thread *self = context;
    self->blocks[0] = lake_take(self->lake, MIB, CAPTURER);
    return NULL;
}

/* The backward pass of a captured step runs on a thread that began nothing. */
TEST(a_thread_without_a_begin_is_served_by_the_latest) {
    gml_lake *lake = lake_open(0);
    capture_thread helper = {.lake = lake};
    pthread_t thread;
    begin_capture(lake, GRAPH, CAPTURER);
    gml_address mine = lake_take(lake, MIB, CAPTURER);
    CHECK_EQ(pthread_create(&thread, NULL, allocate_for_another, &helper), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(owner_of(lake, helper.blocks[0]) == owner_of(lake, mine));
    end_capture(lake, GRAPH, CAPTURER);
    lake_give(lake, mine);
    lake_give(lake, helper.blocks[0]);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    lake_finish(lake);
}

int main(void) {
    return contract_main();
}
