/* The limits of lending between streams: ranges, waits, each kind of reuse switched off, and
 * streams on which no call may be made. Streams run by hand. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/sharing.h"

#include <string.h>

#define BLOCK (64 * MIB)

enum { MAIN = 1, SIDE = 2, THIRD = 3, PER_THREAD = 2, GONE = 40 };

/* ---- what one request may gather ------------------------------------------------------------- */

/* What was refused leaves nothing behind: what others freed is lent as before. */
TEST(a_refused_request_changes_nothing_for_others)
{
    gml_lake *lake = sharing_open(&(sharing_config){.capacity_bytes = 256 * MIB});
    sharing_leave(lake, 100 * MIB, SIDE);
    gml_address address;
    CHECK_STATUS(gml_lake_allocate(lake, 16 * GIB, SIDE, &address), GML_OUT_OF_MEMORY);
    sharing_leave(lake, 40 * MIB, THIRD);
    CHECK_EQ(sharing_reserved(lake), 100 * MIB);
    sharing_finish(lake);
}

TEST(a_large_stream_borrows_from_a_small_one)
{
    gml_lake *lake = sharing_open_with("optimize_for", 2, NULL, 0);
    sharing_leave(lake, 24 * MIB, SIDE);
    gml_address block = sharing_take(lake, GIB, MAIN);
    CHECK_EQ(sharing_reserved(lake), GIB);
    CHECK_EQ(sharing_pair(lake, SIDE, MAIN).borrowed_bytes, 24 * MIB);
    sharing_give(lake, block);
    sharing_finish(lake);
}

/* One wait is enough for all that was freed before it. */
TEST(a_request_takes_what_it_needs_and_one_wait_serves_the_next)
{
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address blocks[3], between[3];
    for (size_t k = 0; k < 3; k++) {
        blocks[k] = sharing_take(lake, 8 * MIB, MAIN);
        between[k] = sharing_take(lake, 2 * MIB, MAIN);
    }
    for (size_t k = 0; k < 3; k++) {
        sharing_give(lake, blocks[k]);
    }
    uint64_t reserved = sharing_reserved(lake);
    gml_address one = sharing_take(lake, 8 * MIB, SIDE);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).borrowed_bytes, 8 * MIB);
    gml_address rest = sharing_take(lake, 16 * MIB, SIDE);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).borrowed_bytes, 3 * 8 * MIB);
    CHECK_EQ(sharing_count(lake).waits, 1);
    CHECK_EQ(sharing_reserved(lake), reserved);
    sharing_give(lake, one);
    sharing_give(lake, rest);
    for (size_t k = 0; k < 3; k++) {
        sharing_give(lake, between[k]);
    }
    sharing_finish(lake);
}

/* ---- the limit of waits ---------------------------------------------------------------------- */

TEST(beyond_the_limit_of_waits_memory_is_grown)
{
    gml_lake *lake = sharing_open_with("borrow_waits", 1, NULL, 0);
    sharing_leave(lake, BLOCK, MAIN);
    sharing_leave(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).waits, 1);
    gml_address held = sharing_take(lake, BLOCK, SIDE);
    sharing_leave(lake, BLOCK, MAIN);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    gml_address other = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 3 * BLOCK);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).waits, 1);
    CHECK(sharing_pair(lake, MAIN, SIDE).refused_waits >= 1);
    sharing_give(lake, other);
    for (int i = 0; i < 1024; i++) { /* the next stretch of requests */
        sharing_leave(lake, 4096, SIDE);
    }
    gml_address blocks[2] = {sharing_take(lake, BLOCK, SIDE), sharing_take(lake, BLOCK, SIDE)};
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).waits, 2);
    sharing_give(lake, blocks[0]);
    sharing_give(lake, blocks[1]);
    sharing_give(lake, held);
    sharing_finish(lake);
}

TEST(where_the_device_has_no_more_the_limit_of_waits_gives_way)
{
    static const gml_setting none[] = {{"borrow_waits", 0}};
    gml_lake *lake = sharing_open(
        &(sharing_config){.capacity_bytes = BLOCK, .settings = none, .setting_count = 1});
    sharing_leave(lake, BLOCK, MAIN);
    gml_address block = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 0);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).waits, 1);
    sharing_give(lake, block);
    sharing_finish(lake);
}

TEST(with_a_limit_of_no_waits_none_is_made_while_there_is_memory)
{
    gml_lake *lake = sharing_open_with("borrow_waits", 0, NULL, 0);
    for (int i = 0; i < 20; i++) {
        sharing_leave(lake, BLOCK, 1 + (gml_stream)i % 4);
    }
    CHECK_EQ(sharing_count(lake).waits, 0);
    CHECK_EQ(sharing_reserved(lake), 4 * BLOCK);
    sharing_finish(lake);
}

/* ---- kinds of reuse switched off ------------------------------------------------------------- */

TEST(without_internal_dependencies_no_stream_waits)
{
    gml_lake *lake = sharing_open_with("reuse_allow_internal_dependencies", 0, NULL, 0);
    sharing_leave(lake, BLOCK, MAIN);
    gml_address first = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    sharing_run_all(lake);
    gml_address second = sharing_take(lake, BLOCK, SIDE); /* complete: lent after all */
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    CHECK_EQ(sharing_count(lake).waits, 0);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).borrowed_bytes, BLOCK);
    sharing_give(lake, first);
    sharing_give(lake, second);
    sharing_finish(lake);
}

TEST(without_opportunism_complete_memory_is_waited_for_or_left)
{
    static const gml_setting settings[] = {{"reuse_allow_opportunistic", 0},
                                           {"reuse_allow_internal_dependencies", 0}};
    gml_lake *lake = sharing_open(
        &(sharing_config){.settings = settings, .setting_count = 2, .runs_at_once = true});
    sharing_leave(lake, BLOCK, MAIN);
    sharing_leave(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    sharing_order(lake, THIRD, MAIN);
    gml_address held = sharing_take(lake, MIB, THIRD);
    CHECK_OK(gml_lake_order_streams(lake, THIRD, MAIN));
    sharing_leave(lake, BLOCK, THIRD); /* by the order that the program made */
    sharing_give(lake, held);
    CHECK_EQ(sharing_pair(lake, MAIN, THIRD).borrowed_bytes, BLOCK);
    CHECK_EQ(sharing_count(lake).waits, 1); /* the program's */
    sharing_finish(lake);
}

TEST(without_following_each_borrow_waits_anew)
{
    gml_lake *lake = sharing_open_with("reuse_follow_event_dependencies", 0, NULL, 0);
    sharing_leave(lake, 4096, SIDE);
    sharing_leave(lake, BLOCK, MAIN);
    sharing_order(lake, SIDE, MAIN);
    CHECK_OK(gml_lake_order_streams(lake, SIDE, MAIN));
    sharing_leave(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).borrowed_bytes, BLOCK);
    CHECK_EQ(sharing_pair(lake, MAIN, SIDE).waits, 1);
    sharing_finish(lake);
}

TEST(with_all_reuse_off_streams_keep_their_memory_until_there_is_no_other)
{
    static const gml_setting settings[] = {{"reuse_allow_opportunistic", 0},
                                           {"reuse_allow_internal_dependencies", 0},
                                           {"reuse_follow_event_dependencies", 0}};
    gml_lake *lake = sharing_open(&(sharing_config){.capacity_bytes = 2 * BLOCK,
                                                    .settings = settings,
                                                    .setting_count = 3,
                                                    .runs_at_once = true});
    sharing_leave(lake, BLOCK, MAIN);
    gml_address first = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    CHECK_EQ(call_watch_event_calls(lake), 0);
    gml_address second = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 1);
    CHECK_EQ(call_watch_event_calls(lake), 0);
    sharing_give(lake, first);
    sharing_give(lake, second);
    sharing_finish(lake);
}

/* ---- streams on which no call may be made ---------------------------------------------------- */

/* `owner` has free memory that `borrower` cannot reach without a wait for the device, which is made
 * only when there is no other memory. */
static void
expect_apart(gml_lake *lake, gml_stream owner, gml_stream borrower)
{
    uint64_t records = sharing_count(lake).records, waits = sharing_count(lake).waits;
    sharing_leave(lake, BLOCK, owner);
    uint64_t reserved = sharing_reserved(lake);
    gml_address first = sharing_take(lake, BLOCK, borrower);
    CHECK_EQ(sharing_reserved(lake), reserved + BLOCK);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 0);
    gml_address second = sharing_take(lake, BLOCK, borrower);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 1);
    CHECK_EQ(sharing_reserved(lake), reserved + BLOCK);
    CHECK_EQ(sharing_count(lake).records, records);
    CHECK_EQ(sharing_count(lake).waits, waits);
    sharing_give(lake, first);
    sharing_give(lake, second);
}

static gml_lake *
open_bounded(uint64_t capacity_bytes)
{
    gml_lake *lake = sharing_open(&(sharing_config){.capacity_bytes = capacity_bytes});
    lake->driver->per_thread_stream = PER_THREAD;
    return lake;
}

TEST(the_stream_of_each_thread_neither_lends_nor_borrows_by_events)
{
    gml_lake *lake = open_bounded(2 * BLOCK);
    expect_apart(lake, PER_THREAD, THIRD);
    sharing_finish(lake);
    lake = open_bounded(2 * BLOCK);
    expect_apart(lake, THIRD, PER_THREAD);
    sharing_finish(lake);
}

TEST(an_external_stream_lends_after_a_wait_for_the_device)
{
    gml_lake *lake = open_bounded(2 * BLOCK);
    CHECK_OK(gml_lake_mark_external_stream(lake, GONE));
    sharing_leave(lake, 4096, GONE);
    call_watch_end_stream(GONE); /* from here on it may be gone at any time */
    CHECK_OK(gml_lake_trim(lake, NULL));
    uint64_t before = sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE);
    sharing_leave(lake, BLOCK, GONE);
    gml_address first = sharing_take(lake, BLOCK, MAIN);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), before);
    gml_address second = sharing_take(lake, BLOCK, MAIN);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), before + 1);
    sharing_give(lake, first);
    sharing_give(lake, second);
    sharing_finish(lake);
}

/* The wait for the device is for all: no other stream is waited for before. */
TEST(where_one_stream_cannot_be_asked_none_is)
{
    gml_lake *lake = open_bounded(4 * BLOCK);
    sharing_leave(lake, BLOCK, MAIN);
    CHECK_OK(gml_lake_mark_external_stream(lake, GONE));
    sharing_leave(lake, 2 * BLOCK, GONE);
    call_watch_end_stream(GONE);
    uint64_t records = sharing_count(lake).records;
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(sharing_reserved(lake), 0);
    CHECK_EQ(sharing_count(lake).records, records);
    CHECK_EQ(sharing_calls(lake, GML_CALL_EVENT_SYNCHRONIZE), 0);
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 1);
    sharing_finish(lake);
}

TEST(a_stream_that_is_known_may_be_marked_external_later)
{
    gml_lake *lake = open_bounded(2 * BLOCK);
    sharing_leave(lake, 2 * MIB, GONE);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_OK(gml_lake_mark_external_stream(lake, GONE));
    call_watch_end_stream(GONE);
    sharing_leave(lake, BLOCK, GONE);
    sharing_leave(lake, BLOCK, MAIN);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    sharing_finish(lake);
}

TEST(what_a_forgotten_stream_held_serves_others)
{
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address lived_on = sharing_take(lake, BLOCK, GONE);
    sharing_leave(lake, BLOCK, GONE);
    CHECK_OK(gml_lake_release_stream(lake, GONE));
    CHECK_OK(gml_lake_release_stream(lake, 77)); /* unknown: nothing */
    call_watch_end_stream(GONE);
    CHECK(sharing_count(lake).records <= 1);
    gml_address first = sharing_take(lake, BLOCK, MAIN);
    CHECK_EQ(sharing_count(lake).waits, 1);
    sharing_give(lake, lived_on);
    gml_address second = sharing_take(lake, BLOCK, MAIN);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    CHECK(sharing_count(lake).records <= 1);
    CHECK_EQ(sharing_count(lake).waits, 1); /* the same event covers both */
    CHECK_EQ(sharing_calls(lake, GML_CALL_DEVICE_SYNCHRONIZE), 0);
    sharing_give(lake, first);
    sharing_give(lake, second);
    sharing_finish(lake);
}

TEST(a_stream_of_the_same_handle_is_another_one)
{
    gml_lake *lake = sharing_open_with("reuse_allow_internal_dependencies", 0, NULL, 0);
    gml_address lived_on = sharing_take(lake, BLOCK, GONE);
    sharing_leave(lake, BLOCK, GONE);
    CHECK_OK(gml_lake_release_stream(lake, GONE));
    gml_address first = sharing_take(lake, BLOCK, GONE);
    CHECK_EQ(sharing_reserved(lake), 3 * BLOCK); /* not the old one's, which may be in use */
    sharing_give(lake, lived_on);
    gml_address second = sharing_take(lake, BLOCK, GONE);
    CHECK_EQ(sharing_reserved(lake), 4 * BLOCK);
    sharing_run_all(lake);
    gml_address third = sharing_take(lake, BLOCK, GONE);
    gml_address fourth = sharing_take(lake, BLOCK, GONE);
    CHECK_EQ(sharing_reserved(lake), 4 * BLOCK);
    sharing_give(lake, first);
    sharing_give(lake, second);
    sharing_give(lake, third);
    sharing_give(lake, fourth);
    sharing_finish(lake);
}

TEST(streams_that_come_and_go_leave_nothing_behind)
{
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    for (gml_stream stream = 100; stream < 1100; stream++) {
        sharing_leave(lake, BLOCK, stream);
        CHECK_OK(gml_lake_release_stream(lake, stream));
        call_watch_end_stream(stream);
        if (stream % 7 == 0) {
            sharing_run_all(lake);
        }
    }
    CHECK_EQ(sharing_reserved(lake), BLOCK);
    size_t pairs = 0;
    CHECK_OK(gml_lake_stream_pairs(lake, NULL, 0, &pairs));
    CHECK(pairs < 100);
    sharing_finish(lake);
}

/* ---- captures -------------------------------------------------------------------------------- */

static void
set_capturing(gml_lake *lake, gml_stream stream, bool is_capturing)
{
    CHECK_OK(gml_streams_set_capturing(gml_driver_streams(lake->driver), stream, is_capturing));
}

TEST(while_a_graph_is_captured_no_event_call_is_made)
{
    static const gml_pool_id graph = {1, 1};
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, MAIN);
    gml_address known = sharing_take(lake, BLOCK, SIDE); /* comes after MAIN's free from here on */
    sharing_give(lake, known);
    gml_address between, blocks[2];
    blocks[0] = sharing_take(lake, BLOCK, MAIN);
    between = sharing_take(lake, 2 * MIB, MAIN);
    blocks[1] = sharing_take(lake, BLOCK, MAIN);
    sharing_give(lake, blocks[0]);
    sharing_give(lake, blocks[1]);
    uint64_t reserved = sharing_reserved(lake);
    set_capturing(lake, 9, true);
    CHECK_OK(gml_lake_begin_pool(lake, graph));
    uint64_t calls = call_watch_event_calls(lake);
    lake->driver->reason[0] = '\0';
    gml_address grown = sharing_take(lake, BLOCK, THIRD);
    CHECK_EQ(call_watch_event_calls(lake), calls);
    CHECK_EQ(lake->driver->reason[0], '\0'); /* nor was one tried */
    CHECK_EQ(sharing_reserved(lake), reserved + BLOCK);
    CHECK_OK(gml_lake_end_pool(lake, graph));
    CHECK_OK(gml_lake_release_pool(lake, graph));
    set_capturing(lake, 9, false);
    gml_address borrowed = sharing_take(lake, BLOCK, THIRD);
    CHECK_EQ(sharing_reserved(lake), reserved + BLOCK);
    sharing_give(lake, grown);
    sharing_give(lake, borrowed);
    sharing_give(lake, between);
    sharing_finish(lake);
}

TEST(a_stream_that_captures_lends_after_its_capture)
{
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, MAIN);
    set_capturing(lake, MAIN, true);
    gml_address grown = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    CHECK_EQ(sharing_count(lake).waits, 0);
    set_capturing(lake, MAIN, false);
    gml_address borrowed = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    sharing_give(lake, grown);
    sharing_give(lake, borrowed);
    sharing_finish(lake);
}

TEST(a_stream_that_captures_borrows_nothing_by_a_wait)
{
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, MAIN);
    set_capturing(lake, SIDE, true);
    gml_address grown = sharing_take(lake, BLOCK, SIDE);
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    CHECK_EQ(lake_stats_of(lake).cross_stream_waits, 0);
    set_capturing(lake, SIDE, false);
    sharing_give(lake, grown);
    sharing_finish(lake);
}
