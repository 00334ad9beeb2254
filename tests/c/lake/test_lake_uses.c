/* record_stream through a lake, over every policy: who holds a freed block, for how long, and what
 * it costs in driver calls. Streams are advanced by hand. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define ALL UINT64_MAX

enum { BLOCK_BYTES = 4 << 20 };

static const gml_pool_id GRAPH = {1, 7};

static gml_streams *streams_of(gml_lake *lake) {
    return gml_driver_streams(lake->driver);
}

static gml_lake *open_by_hand(uint64_t capacity_bytes) {
    gml_lake *lake = lake_open(capacity_bytes);
    CHECK_OK(gml_streams_set_manual(streams_of(lake), true));
    return lake;
}

static void run_all(gml_lake *lake) {
    CHECK_OK(gml_streams_set_manual(streams_of(lake), false));
    CHECK_OK(gml_streams_set_manual(streams_of(lake), true));
}

static void advance(gml_lake *lake, gml_stream stream, uint64_t count) {
    CHECK_OK(gml_streams_advance(streams_of(lake), stream, count, NULL));
}

static uint64_t calls_of(gml_lake *lake, gml_driver_call call) {
    return lake_stats_of(lake).driver_calls[call];
}

static uint64_t event_calls(gml_lake *lake) {
    gml_stats stats = lake_stats_of(lake);
    return stats.driver_calls[GML_CALL_EVENT_CREATE] + stats.driver_calls[GML_CALL_EVENT_DESTROY] +
           stats.driver_calls[GML_CALL_EVENT_RECORD] + stats.driver_calls[GML_CALL_EVENT_QUERY] +
           stats.driver_calls[GML_CALL_EVENT_SYNCHRONIZE] +
           stats.driver_calls[GML_CALL_STREAM_WAIT] +
           stats.driver_calls[GML_CALL_STREAM_SYNCHRONIZE] +
           stats.driver_calls[GML_CALL_DEVICE_SYNCHRONIZE];
}

static bool overlaps(gml_address left, gml_address right, uint64_t size_bytes) {
    return left < right + size_bytes && right < left + size_bytes;
}

/* An allocation that lets the lake look at its events, and leaves nothing behind. */
static void look(gml_lake *lake) {
    lake_give(lake, lake_take(lake, 512, 1));
}

static size_t pending(gml_lake *lake) {
    return lake->uses.pending_count;
}

static void finish(gml_lake *lake) {
    look(lake); /* records what a capture has deferred */
    run_all(lake);
    look(lake);
    CHECK_EQ(pending(lake), 0);
    CHECK_EQ(lake->uses.pending_bytes, 0);
    lake_finish(lake);
}

TEST(a_block_waits_for_the_other_stream) {
    gml_lake *lake = open_by_hand(0);
    gml_address first = lake_take(lake, BLOCK_BYTES, 1);
    CHECK_OK(gml_lake_record_stream(lake, first, 2));
    lake_queue_work(lake, 2);
    lake_give(lake, first);
    gml_address second = lake_take(lake, BLOCK_BYTES, 1);
    gml_address third = lake_take(lake, BLOCK_BYTES, 2);
    CHECK(!overlaps(first, second, BLOCK_BYTES));
    CHECK(!overlaps(first, third, BLOCK_BYTES));
    advance(lake, 2, 1); /* the work, but not yet the event behind it */
    look(lake);
    CHECK_EQ(pending(lake), 1);
    advance(lake, 2, ALL);
    CHECK_EQ(lake_take(lake, BLOCK_BYTES, 1), first);
    CHECK_EQ(pending(lake), 0);
    lake_give(lake, first);
    lake_give(lake, second);
    lake_give(lake, third);
    finish(lake);
}

TEST(work_queued_after_the_free_does_not_hold_it) {
    gml_lake *lake = open_by_hand(0);
    gml_address first = lake_take(lake, BLOCK_BYTES, 1);
    CHECK_OK(gml_lake_record_stream(lake, first, 2));
    lake_queue_work(lake, 2);
    lake_give(lake, first);
    lake_queue_work(lake, 2);
    advance(lake, 2, 2); /* the work before the free, and the event */
    CHECK_EQ(lake_take(lake, BLOCK_BYTES, 1), first);
    lake_give(lake, first);
    finish(lake);
}

TEST(its_own_stream_changes_nothing) {
    gml_lake *lake = open_by_hand(0);
    gml_address first = lake_take(lake, BLOCK_BYTES, 1);
    uint64_t before = event_calls(lake);
    CHECK_OK(gml_lake_record_stream(lake, first, 1));
    lake_queue_work(lake, 1);
    lake_give(lake, first);
    CHECK_EQ(lake_take(lake, BLOCK_BYTES, 1), first);
    lake_give(lake, first);
    CHECK_EQ(event_calls(lake), before);
    finish(lake);
}

TEST(without_record_stream_no_event_is_touched) {
    gml_lake *lake = open_by_hand(0);
    live_block blocks[32];
    size_t count = lake_churn(lake, blocks, 32, 400, 1, 5);
    lake_drain(lake, blocks, count);
    gml_stats stats = lake_stats_of(lake);
    CHECK_EQ(stats.driver_calls[GML_CALL_EVENT_CREATE], 0);
    CHECK_EQ(stats.driver_calls[GML_CALL_EVENT_RECORD], 0);
    CHECK_EQ(stats.driver_calls[GML_CALL_EVENT_QUERY], 0);
    CHECK_EQ(stats.driver_calls[GML_CALL_EVENT_SYNCHRONIZE], 0);
    finish(lake);
}

enum { MANY = 200 };

static void record_on_many(gml_lake *lake, gml_address address) {
    for (gml_stream stream = 10; stream < 10 + MANY; stream++) {
        CHECK_OK(gml_lake_record_stream(lake, address, stream));
        CHECK_OK(gml_lake_record_stream(lake, address, stream)); /* known already */
    }
}

TEST(the_last_of_many_streams_ends_the_block) {
    gml_lake *lake = open_by_hand(0);
    gml_address first = lake_take(lake, BLOCK_BYTES, 0);
    uint64_t created = calls_of(lake, GML_CALL_EVENT_CREATE);
    uint64_t recorded = calls_of(lake, GML_CALL_EVENT_RECORD);
    record_on_many(lake, first);
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_RECORD), recorded);
    lake_give(lake, first);
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_RECORD), recorded + MANY);
    for (uint64_t i = 0; i < MANY; i++) {
        look(lake);
        CHECK_EQ(pending(lake), 1);
        advance(lake, 10 + (i * 77 + 13) % MANY, ALL);
    }
    look(lake);
    CHECK_EQ(pending(lake), 0);
    CHECK_EQ(lake_take(lake, BLOCK_BYTES, 0), first);

    /* The events serve again. */
    record_on_many(lake, first);
    lake_give(lake, first);
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_CREATE), created + MANY);
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_RECORD), recorded + 2 * MANY);
    finish(lake);
}

TEST(stream_zero_is_a_stream_like_others) {
    gml_lake *lake = open_by_hand(0);
    gml_address first = lake_take(lake, BLOCK_BYTES, 3);
    CHECK_OK(gml_lake_record_stream(lake, first, 0));
    lake_give(lake, first);
    look(lake);
    CHECK_EQ(pending(lake), 1);
    advance(lake, 0, ALL);
    look(lake);
    CHECK_EQ(pending(lake), 0);
    finish(lake);
}

TEST(only_live_blocks_can_be_recorded) {
    gml_lake *lake = open_by_hand(0);
    gml_address address = lake_take(lake, BLOCK_BYTES, 1);
    char reason[256] = "";
    CHECK_STATUS(gml_lake_record_stream(lake, address + 512, 2), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_record_stream(lake, 0, 2), GML_UNKNOWN_ADDRESS);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "0x0") != NULL);
    CHECK_STATUS(gml_lake_record_stream(lake, address, UINT64_MAX), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_lake_record_stream(lake, address, 2));
    lake_give(lake, address);
    CHECK_EQ(pending(lake), 1);
    CHECK_STATUS(gml_lake_record_stream(lake, address, 3), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_free(lake, address), GML_UNKNOWN_ADDRESS);
    CHECK_EQ(pending(lake), 1);
    finish(lake);
}

/* One query per stream where nothing has completed, and one more per block that has. */
TEST(looking_is_cheap) {
    gml_lake *lake = open_by_hand(0);
    gml_address blocks[30];
    for (size_t i = 0; i < 30; i++) {
        blocks[i] = lake_take(lake, MIB, 1);
        CHECK_OK(gml_lake_record_stream(lake, blocks[i], 10 + i % 3));
    }
    for (size_t i = 0; i < 30; i++) {
        lake_give(lake, blocks[i]);
    }
    gml_address other = lake_take(lake, MIB, 1);
    uint64_t before = calls_of(lake, GML_CALL_EVENT_QUERY);
    gml_address another = lake_take(lake, MIB, 1);
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_QUERY) - before, 3);
    advance(lake, 11, 4);
    before = calls_of(lake, GML_CALL_EVENT_QUERY);
    gml_address third = lake_take(lake, MIB, 1);
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_QUERY) - before, 7);
    CHECK_EQ(pending(lake), 26);
    advance(lake, 11, ALL);
    lake_give(lake, lake_take(lake, MIB, 1));
    before = calls_of(lake, GML_CALL_EVENT_QUERY);
    lake_give(lake, lake_take(lake, MIB, 1));
    CHECK_EQ(calls_of(lake, GML_CALL_EVENT_QUERY) - before, 2);
    lake_give(lake, other);
    lake_give(lake, another);
    lake_give(lake, third);
    finish(lake);
}

/* A freed block is counted as active until it ends, no longer as allocated, as PyTorch does. */
TEST(a_pending_block_is_active_but_not_allocated) {
    gml_lake *lake = open_by_hand(0);
    gml_torch_stats stats;
    gml_address address = lake_take(lake, BLOCK_BYTES, 1);
    CHECK_OK(gml_lake_record_stream(lake, address, 2));
    lake_give(lake, address);
    CHECK_OK(gml_lake_torch_stats(lake, &stats));
    CHECK_EQ(stats.allocation[GML_POOL_ALL].current, 0);
    CHECK_EQ(stats.allocated_bytes[GML_POOL_ALL].current, 0);
    CHECK_EQ(stats.active[GML_POOL_ALL].current, 1);
    CHECK_OK(gml_lake_check(lake));
    advance(lake, 2, ALL);
    look(lake);
    CHECK_OK(gml_lake_torch_stats(lake, &stats));
    CHECK_EQ(stats.active[GML_POOL_ALL].current, 0);
    finish(lake);
}

TEST(trim_waits_for_the_streams) {
    gml_lake *lake = open_by_hand(0);
    uint64_t released_bytes = 0;
    for (gml_stream stream = 2; stream < 6; stream++) {
        gml_address address = lake_take(lake, BLOCK_BYTES, 1);
        CHECK_OK(gml_lake_record_stream(lake, address, stream));
        lake_queue_work(lake, stream);
        lake_give(lake, address);
    }
    CHECK_EQ(pending(lake), 4);
    uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_EQ(pending(lake), 0);
    CHECK_EQ(released_bytes, reserved_bytes);
    finish(lake);
}

TEST(a_lack_of_memory_waits_for_the_streams) {
    gml_lake *lake = open_by_hand(64 * MIB);
    gml_address first = lake_take(lake, 40 * MIB, 1);
    gml_address second = 0;
    CHECK_OK(gml_lake_record_stream(lake, first, 2));
    CHECK_STATUS(gml_lake_allocate(lake, 40 * MIB, 1, &second), GML_OUT_OF_MEMORY);
    lake_queue_work(lake, 2);
    lake_give(lake, first);
    second = lake_take(lake, 40 * MIB, 1);
    CHECK_EQ(pending(lake), 0);
    lake_give(lake, second);
    finish(lake);
}

/* Half of all memory is live, and what is freed in the other half is too little to go back to the
 * device: whoever waits for the stream, the request is served from where the block lay. */
TEST(a_lack_of_memory_finds_what_the_wait_has_ended) {
    gml_lake *lake = open_by_hand(20 * MIB);
    gml_address live = lake_take(lake, 9 * MIB, 1);
    gml_address first = lake_take(lake, 9 * MIB, 1);
    CHECK_OK(gml_lake_record_stream(lake, first, 2));
    lake_queue_work(lake, 2);
    lake_give(lake, first);
    CHECK_EQ(pending(lake), 1);
    CHECK_EQ(lake_take(lake, 9 * MIB, 1), first);
    CHECK_EQ(pending(lake), 0);
    CHECK_OK(gml_lake_check(lake));
    lake_give(lake, first);
    lake_give(lake, live);
    finish(lake);
}

TEST(a_capture_defers_the_events) {
    gml_lake *lake = open_by_hand(0);
    gml_address before = lake_take(lake, BLOCK_BYTES, 1);
    gml_address during = lake_take(lake, BLOCK_BYTES, 1);
    CHECK_OK(gml_lake_record_stream(lake, before, 2));
    CHECK_OK(gml_lake_record_stream(lake, during, 2));
    lake_give(lake, before);
    CHECK_OK(gml_streams_set_capturing(streams_of(lake), 9, true));
    CHECK_OK(gml_lake_begin_pool(lake, GRAPH));
    uint64_t calls = event_calls(lake);
    lake_give(lake, during);
    run_all(lake);
    look(lake);
    CHECK_EQ(event_calls(lake), calls);
    CHECK_EQ(pending(lake), 2);
    lake_queue_work(lake, 2);
    CHECK_OK(gml_lake_end_pool(lake, GRAPH));
    CHECK_OK(gml_streams_set_capturing(streams_of(lake), 9, false));
    CHECK_EQ(event_calls(lake), calls);
    look(lake); /* ends `before`, and records the event of `during` */
    CHECK_EQ(pending(lake), 1);
    run_all(lake);
    look(lake);
    CHECK_EQ(pending(lake), 0);
    CHECK_OK(gml_lake_release_pool(lake, GRAPH));
    finish(lake);
}

/* A stream that captures behind our back refuses the event, and waiting for the device would break
 * that capture. */
TEST(what_cannot_be_recorded_is_tried_again) {
    gml_lake *lake = open_by_hand(0);
    gml_address first = lake_take(lake, BLOCK_BYTES, 1);
    CHECK_OK(gml_lake_record_stream(lake, first, 2));
    CHECK_OK(gml_lake_record_stream(lake, first, 3));
    lake_queue_work(lake, 3);
    CHECK_OK(gml_streams_set_capturing(streams_of(lake), 3, true));
    uint64_t waits = calls_of(lake, GML_CALL_DEVICE_SYNCHRONIZE);
    lake_give(lake, first);
    for (int i = 0; i < 3; i++) {
        gml_address other = lake_take(lake, BLOCK_BYTES, 1);
        CHECK(!overlaps(first, other, BLOCK_BYTES));
        lake_give(lake, other);
        advance(lake, 2, ALL);
    }
    CHECK_EQ(calls_of(lake, GML_CALL_DEVICE_SYNCHRONIZE), waits);
    CHECK_EQ(pending(lake), 1);
    CHECK_STATUS(gml_lake_trim(lake, NULL), GML_MISUSE);
    CHECK_EQ(pending(lake), 1);
    CHECK_OK(gml_streams_set_capturing(streams_of(lake), 3, false));
    look(lake);
    CHECK_EQ(pending(lake), 1);
    run_all(lake);
    look(lake);
    CHECK_EQ(pending(lake), 0);
    finish(lake);
}

TEST(a_lake_may_end_with_pending_blocks) {
    gml_lake *lake = open_by_hand(0);
    gml_address freed = lake_take(lake, BLOCK_BYTES, 1);
    gml_address live = lake_take(lake, BLOCK_BYTES, 1);
    CHECK_OK(gml_lake_record_stream(lake, freed, 2));
    CHECK_OK(gml_lake_record_stream(lake, live, 2));
    lake_queue_work(lake, 2);
    lake_give(lake, freed);
    CHECK_EQ(pending(lake), 1);
    CHECK_OK(gml_lake_close(lake));
}

int main(void) {
    return contract_main_with_arenas();
}
