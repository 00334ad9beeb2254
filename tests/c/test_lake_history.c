/* The last events of a lake: what is kept, in which order, how many, and when it stops. */
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (UINT64_C(1) << 20)

enum { ROOM = 64 };

typedef struct events {
    gml_request list[ROOM];
    size_t count;
    uint64_t total;
} events;

static events
events_of(gml_lake *lake)
{
    events seen = {0};
    CHECK_OK(gml_lake_history(lake, seen.list, ROOM, &seen.count, &seen.total));
    return seen;
}

static uint64_t
now_ns(void)
{
    struct timespec now;
    CHECK_EQ(clock_gettime(CLOCK_REALTIME, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void
check_event(const gml_request *event, gml_request_kind kind, gml_address address,
            uint64_t size_bytes, gml_stream stream)
{
    CHECK_EQ(event->kind, kind);
    CHECK_EQ(event->address, address);
    CHECK_EQ(event->size_bytes, size_bytes);
    CHECK_EQ(event->stream, stream);
    CHECK_EQ(event->reserved, 0);
}

TEST(nothing_is_kept_at_first)
{
    gml_lake *lake = lake_open(0);
    lake_give(lake, lake_take(lake, MIB, 0));
    events seen = events_of(lake);
    CHECK_EQ(seen.count, 0);
    CHECK_EQ(seen.total, 0);
    lake_finish(lake);
}

TEST(every_kind_is_noted_in_order)
{
    gml_lake *lake = lake_open(64 * MIB);
    gml_address refused;
    uint64_t released_bytes, begin_ns = now_ns();
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    gml_address first = lake_take(lake, 3 * MIB + 5, 4);
    gml_address second = lake_take(lake, 100, 0);
    CHECK_STATUS(gml_lake_allocate(lake, 100 * MIB, 4, &refused), GML_OUT_OF_MEMORY);
    lake_give(lake, first);
    lake_give(lake, second);
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    events seen = events_of(lake);
    CHECK_EQ(seen.count, 8);
    CHECK_EQ(seen.total, 8);
    check_event(&seen.list[0], GML_REQUEST_ALLOC, first, 3 * MIB + 5, 4);
    check_event(&seen.list[1], GML_REQUEST_ALLOC, second, 100, 0);
    check_event(&seen.list[2], GML_REQUEST_OOM, 0, 100 * MIB, 4);
    check_event(&seen.list[3], GML_REQUEST_FREE_REQUESTED, first, 3 * MIB + 5, 4);
    check_event(&seen.list[4], GML_REQUEST_FREE, first, 3 * MIB + 5, 4);
    check_event(&seen.list[5], GML_REQUEST_FREE_REQUESTED, second, 100, 0);
    check_event(&seen.list[6], GML_REQUEST_FREE, second, 100, 0);
    check_event(&seen.list[7], GML_REQUEST_TRIM, 0, released_bytes, 0);
    CHECK_EQ(seen.list[3].id, seen.list[0].id);
    CHECK_EQ(seen.list[4].id, seen.list[0].id);
    CHECK_EQ(seen.list[6].id, seen.list[1].id);
    CHECK(seen.list[0].id != seen.list[1].id);
    for (size_t i = 0; i < seen.count; i++) {
        uint64_t earliest_ns = i ? seen.list[i - 1].time_ns : begin_ns;
        CHECK(seen.list[i].time_ns >= earliest_ns && seen.list[i].time_ns <= now_ns());
    }
    lake_finish(lake);
}

/* A request of 0 bytes, a bad free and a failed call leave no event. */
TEST(what_changes_nothing_is_not_noted)
{
    gml_lake *lake = lake_open(0);
    gml_address none = 1;
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    CHECK_OK(gml_lake_allocate(lake, 0, 0, &none));
    CHECK_OK(gml_lake_free(lake, 0));
    CHECK_STATUS(gml_lake_free(lake, 512), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_allocate(lake, UINT64_MAX, 0, &none), GML_INVALID_ARGUMENT);
    CHECK_EQ(events_of(lake).total, 0);
    lake_finish(lake);
}

TEST(the_ring_keeps_the_youngest)
{
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_keep_history(lake, 7));
    for (uint64_t i = 1; i <= 10; i++) {
        lake_give(lake, lake_take(lake, i * 512, 0));
    }
    events seen = events_of(lake);
    CHECK_EQ(seen.total, 30);
    CHECK_EQ(seen.count, 7);
    static const uint64_t sizes[] = {8, 9, 9, 9, 10, 10, 10};
    for (size_t i = 0; i < 7; i++) {
        CHECK_EQ(seen.list[i].size_bytes, sizes[i] * 512);
    }
    CHECK_EQ(seen.list[0].kind, GML_REQUEST_FREE);
    CHECK_EQ(seen.list[4].kind, GML_REQUEST_ALLOC);

    /* Less room than events: the youngest, and not a byte more. */
    gml_request some[4];
    memset(some, 0x5a, sizeof some);
    CHECK_OK(gml_lake_history(lake, some, 3, &seen.count, &seen.total));
    CHECK_EQ(seen.count, 3);
    CHECK_EQ(some[0].kind, GML_REQUEST_ALLOC);
    CHECK_EQ(some[0].size_bytes, 5120);
    CHECK_EQ(some[3].size_bytes, UINT64_C(0x5a5a5a5a5a5a5a5a));
    CHECK_OK(gml_lake_history(lake, some, 0, &seen.count, &seen.total));
    CHECK_EQ(seen.count, 0);
    CHECK_OK(gml_lake_history(lake, NULL, 0, &seen.count, &seen.total));
    CHECK_EQ(seen.count, 7); /* there are to copy */
    CHECK_EQ(seen.total, 30);
    lake_finish(lake);
}

TEST(a_ring_of_one)
{
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_keep_history(lake, 1));
    gml_address address = lake_take(lake, 512, 0);
    CHECK_EQ(events_of(lake).list[0].kind, GML_REQUEST_ALLOC);
    lake_give(lake, address);
    CHECK_EQ(events_of(lake).list[0].kind, GML_REQUEST_FREE);
    CHECK_EQ(events_of(lake).count, 1);
    CHECK_EQ(events_of(lake).total, 3);
    lake_finish(lake);
}

TEST(keeping_again_forgets_and_zero_stops)
{
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_keep_history(lake, 0));
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    gml_address address = lake_take(lake, MIB, 0);
    CHECK_OK(gml_lake_keep_history(lake, 3));
    CHECK_EQ(events_of(lake).total, 0);
    lake_give(lake, address); /* its ALLOC is not there any more */
    events seen = events_of(lake);
    CHECK_EQ(seen.total, 2);
    CHECK_EQ(seen.list[0].kind, GML_REQUEST_FREE_REQUESTED);
    CHECK_OK(gml_lake_keep_history(lake, 0));
    lake_give(lake, lake_take(lake, MIB, 0));
    seen = events_of(lake);
    CHECK_EQ(seen.count, 0);
    CHECK_EQ(seen.total, 0);
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    lake_give(lake, lake_take(lake, MIB, 0));
    CHECK_EQ(events_of(lake).total, 3);
    lake_finish(lake);
}

/* More than the host has: refused, and the ring that there was goes on. */
TEST(a_ring_too_large_changes_nothing)
{
    gml_lake *lake = lake_open(0);
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    lake_give(lake, lake_take(lake, MIB, 0));
    CHECK_STATUS(gml_lake_keep_history(lake, SIZE_MAX), GML_NO_HOST_MEMORY);
    CHECK_STATUS(gml_lake_keep_history(lake, SIZE_MAX / sizeof(gml_request) + 1),
                 GML_NO_HOST_MEMORY);
    CHECK_EQ(events_of(lake).total, 3);
    lake_give(lake, lake_take(lake, MIB, 0));
    CHECK_EQ(events_of(lake).total, 6);
    lake_finish(lake);
}

/* What was kept is a trace: replaying it on another lake does the same. */
TEST(a_history_can_be_replayed)
{
    enum { EVENTS = 4096 };
    gml_lake *lake = lake_open(0);
    gml_request *list = calloc(EVENTS, sizeof *list);
    live_block blocks[24];
    uint64_t total;
    size_t count;
    CHECK_OK(gml_lake_keep_history(lake, EVENTS));
    lake_drain(lake, blocks, lake_churn(lake, blocks, 24, 900, 2, 3));
    CHECK_OK(gml_lake_history(lake, list, EVENTS, &count, &total));
    CHECK_EQ(count, total);
    gml_stats recorded = lake_stats_of(lake);

    gml_lake *other = lake_open(0);
    gml_replay *replay = NULL;
    gml_replay_result result = {0};
    CHECK_OK(gml_replay_open(other, total, &replay));
    CHECK_OK(gml_replay_run(replay, list, count, NULL, &result));
    gml_stats replayed = lake_stats_of(other);
    CHECK_EQ(replayed.allocations, recorded.allocations);
    CHECK_EQ(replayed.peak_live_bytes, recorded.peak_live_bytes);
    CHECK_EQ(replayed.peak_reserved_bytes, recorded.peak_reserved_bytes);
    CHECK_EQ(replayed.live_blocks, 0);
    gml_replay_close(replay);
    free(list);
    lake_finish(other);
    lake_finish(lake);
}

int
main(void)
{
    static const contract_test tests[] = {
        {"nothing is kept at first", test_nothing_is_kept_at_first},
        {"every kind is noted in order", test_every_kind_is_noted_in_order},
        {"what changes nothing is not noted", test_what_changes_nothing_is_not_noted},
        {"the ring keeps the youngest", test_the_ring_keeps_the_youngest},
        {"a ring of one", test_a_ring_of_one},
        {"keeping again forgets, and zero stops", test_keeping_again_forgets_and_zero_stops},
        {"a ring too large changes nothing", test_a_ring_too_large_changes_nothing},
        {"a history can be replayed", test_a_history_can_be_replayed},
    };
    return contract_run(tests, sizeof tests / sizeof *tests);
}
