/* The limits of lending between streams: ranges, waits, each kind of reuse switched off, streams
 * that the lake is told nothing of, and captures. Streams run by hand. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/fence_bench.h"
#include "support/sharing.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK (64 * MIB)

enum { MAIN = 1, SIDE = 2, THIRD = 3, UNSEEN = 9, GONE = 40 };

/* ---- what one request may gather ------------------------------------------------------------- */

/* What was refused leaves nothing behind: what others freed is lent as before. */
TEST(a_refused_request_changes_nothing_for_others) {
    gml_lake *lake = sharing_open(&(sharing_config){.capacity_bytes = 256 * MIB});
    sharing_leave(lake, 100 * MIB, SIDE);
    gml_address address;
    CHECK_STATUS(gml_lake_allocate(lake, 16 * GIB, SIDE, &address), GML_OUT_OF_MEMORY);
    sharing_leave(lake, 40 * MIB, THIRD);
    CHECK_EQ(sharing_reserved(lake), 100 * MIB);
    sharing_finish(lake);
}

TEST(a_large_stream_borrows_from_a_small_one) {
    gml_lake *lake = sharing_open_with("optimize_for", 2, NULL, 0);
    sharing_leave(lake, 24 * MIB, SIDE);
    gml_address block = sharing_take(lake, GIB, MAIN);
    CHECK_EQ(sharing_reserved(lake), GIB);
    CHECK_EQ(sharing_pair(lake, SIDE, MAIN).borrowed_bytes, 24 * MIB);
    sharing_give(lake, block);
    sharing_finish(lake);
}

/* One wait is enough for all that was freed before it. */
TEST(a_request_takes_what_it_needs_and_one_wait_serves_the_next) {
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

TEST(a_request_that_may_not_wait_is_refused_once_however_many_ranges_it_tries) {
    enum { RANGES = 8 };
    gml_lake *lake = sharing_open_with("borrow_waits", 0, NULL, 0);
    gml_address freed[RANGES], between[RANGES];
    for (size_t i = 0; i < RANGES; i++) {
        freed[i] = sharing_take(lake, 4 * MIB, MAIN);
        between[i] = sharing_take(lake, 2 * MIB, MAIN);
    }
    for (size_t i = 0; i < RANGES; i++) {
        sharing_give(lake, freed[i]);
    }
    for (uint64_t request = 1; request <= 2; request++) {
        sharing_leave(lake, request * BLOCK, SIDE);
        CHECK_EQ(sharing_pair(lake, MAIN, SIDE).refused_waits, request);
    }
    for (size_t i = 0; i < RANGES; i++) {
        sharing_give(lake, between[i]);
    }
    sharing_finish(lake);
}

/* ---- kinds of reuse switched off ------------------------------------------------------------- */

TEST(without_internal_dependencies_no_stream_waits) {
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

/* ---- what nobody told the lake --------------------------------------------------------------- */

TEST(streams_that_come_and_go_are_not_called_and_leave_nothing_behind) {
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    gml_address lived_on = sharing_take(lake, BLOCK, GONE);
    call_watch_end_stream(GONE);
    for (gml_stream stream = 100; stream < 1100; stream++) {
        sharing_leave(lake, BLOCK, stream);
        call_watch_end_stream(stream);
        if (stream % 7 == 0) {
            sharing_run_all(lake);
        }
    }
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    sharing_give(lake, lived_on);
    gml_address blocks[2] = {sharing_take(lake, BLOCK, MAIN), sharing_take(lake, BLOCK, MAIN)};
    CHECK_EQ(sharing_reserved(lake), 2 * BLOCK);
    gml_stream_pair *pairs = NULL;
    size_t count = 0;
    CHECK_OK(gml_lake_stream_pairs(lake, &pairs, &count));
    CHECK(count < 100);
    free(pairs);
    sharing_give(lake, blocks[0]);
    sharing_give(lake, blocks[1]);
    sharing_finish(lake);
}

/* ---- captures -------------------------------------------------------------------------------- */

static void set_capturing(gml_lake *lake, gml_stream stream, bool is_capturing) {
    CHECK_OK(gml_streams_set_capturing(lake->driver->streams, stream, is_capturing));
}

TEST(while_a_graph_is_captured_no_event_call_is_made) {
    static const gml_pool_id graph = {1, 1};
    gml_lake *lake = sharing_open_with(NULL, 0, NULL, 0);
    sharing_leave(lake, BLOCK, MAIN);
    gml_address known = sharing_take(lake, BLOCK, SIDE); /* comes after MAIN's free from here on */
    sharing_give(lake, known);
    gml_address between = sharing_leave_two(lake, BLOCK, MAIN);
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

TEST(a_stream_that_captures_borrows_nothing_by_a_wait) {
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
