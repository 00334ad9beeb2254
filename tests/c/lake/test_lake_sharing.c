/* What a lake tells of streams that use each other's blocks, over every policy. Streams are
 * advanced by hand. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/contract.h"

#include <string.h>

#define ALL UINT64_MAX

enum { OWN = 1, SIDE = 2, OTHER = 3, BLOCK_BYTES = 4 << 20, MOST_PAIRS = 16 };

static gml_lake *open_watched(void) {
    gml_lake *lake = lake_open(0);
    call_watch_begin(lake);
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    return lake;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void advance(gml_lake *lake, gml_stream stream) {
    CHECK_OK(gml_streams_advance(gml_driver_streams(lake->driver), stream, ALL, NULL));
}

/* An allocation that lets the lake look at its events, and leaves nothing behind. */
static void look(gml_lake *lake) {
    lake_give(lake, lake_take(lake, 512, OWN));
}

static uint64_t deferred(gml_lake *lake) {
    return lake_stats_of(lake).deferred_free_bytes;
}

/* A block of OWN that SIDE works on. */
static gml_address lend(gml_lake *lake) {
    gml_address address = lake_take(lake, BLOCK_BYTES, OWN);
    CHECK_OK(gml_lake_record_stream(lake, address, SIDE));
    lake_queue_work(lake, SIDE);
    return address;
}

static void finish(gml_lake *lake) {
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), false));
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    lake_finish(lake);
    CHECK_EQ(call_watch_fault()[0], '\0');
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* What the lake says of two streams; zeros where it says nothing. Each pair is there once. */
static gml_stream_pair pair_of(gml_lake *lake, gml_stream owner, gml_stream borrower) {
    gml_stream_pair pairs[MOST_PAIRS];
    gml_stream_pair found = {0};
    size_t count = 0;
    CHECK_OK(gml_lake_stream_pairs(lake, pairs, MOST_PAIRS, &count));
    CHECK(count <= MOST_PAIRS);
    size_t matches = 0;
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].owner == owner && pairs[i].borrower == borrower) {
            found = pairs[i];
            matches++;
        }
    }
    CHECK(matches <= 1);
    return found;
}

TEST(deferred_bytes_are_counted_for_each_stream_that_is_waited_for) {
    gml_lake *lake = open_watched();
    gml_address first = lend(lake);
    gml_address second = lend(lake);
    CHECK_OK(gml_lake_record_stream(lake, second, OTHER));
    lake_queue_work(lake, OTHER);
    CHECK_EQ(deferred(lake), 0);
    lake_give(lake, first);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    lake_give(lake, second);
    CHECK_EQ(deferred(lake), 2 * BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, SIDE).deferred_free_bytes, 2 * BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, OTHER).deferred_free_bytes, BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, SIDE, OWN).deferred_free_bytes, 0);

    advance(lake, SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    CHECK_EQ(pair_of(lake, OWN, SIDE).deferred_free_bytes, 0);
    CHECK_EQ(pair_of(lake, OWN, OTHER).deferred_free_bytes, BLOCK_BYTES);
    advance(lake, OTHER);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    finish(lake);
}

TEST(pairs_are_counted_and_copied_as_far_as_there_is_room) {
    gml_lake *lake = open_watched();
    gml_stream_pair pairs[3];
    size_t count = 9;
    CHECK_OK(gml_lake_stream_pairs(lake, NULL, 0, &count));
    CHECK_EQ(count, 0);
    gml_address address = lake_take(lake, BLOCK_BYTES, OWN);
    for (gml_stream stream = 10; stream < 30; stream++) {
        CHECK_OK(gml_lake_record_stream(lake, address, stream));
        lake_queue_work(lake, stream);
    }
    lake_give(lake, address);
    CHECK_OK(gml_lake_stream_pairs(lake, NULL, 0, &count));
    CHECK_EQ(count, 20);
    memset(pairs, 0, sizeof pairs);
    CHECK_OK(gml_lake_stream_pairs(lake, pairs, 2, &count));
    CHECK_EQ(count, 20);
    CHECK_EQ(pairs[1].deferred_free_bytes, BLOCK_BYTES);
    CHECK_EQ(pairs[2].owner, 0);
    finish(lake);
}

TEST(a_stream_may_go_once_the_blocks_that_it_uses_were_freed) {
    gml_lake *lake = open_watched();
    lake_give(lake, lend(lake));
    call_watch_end_stream(SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), BLOCK_BYTES);
    advance(lake, SIDE);
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    call_watch_begin_stream(SIDE);
    lake_give(lake, lend(lake));
    call_watch_end_stream(SIDE);
    CHECK_OK(gml_lake_close(lake)); /* with an event that is still to come */
    CHECK_EQ(call_watch_fault()[0], '\0');
    CHECK_EQ(call_watch_leftovers(), 0);
}

int main(void) {
    return contract_main();
}
