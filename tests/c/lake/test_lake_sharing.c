/* What a lake tells of streams that use each other's blocks, over every policy. Streams are
 * advanced by hand. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/contract.h"

#include <string.h>

enum { OWN = 1, SIDE = 2, OTHER = 3, BLOCK_BYTES = 4 << 20, MOST_PAIRS = 16 };

static gml_lake *open_watched(void) {
    gml_lake *lake = lake_open(0);
    call_watch_begin(lake);
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    return lake;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* An allocation that lets the lake look at its events, and leaves nothing behind. */
static void look(gml_lake *lake) {
    lake_give(lake, lake_take(lake, 512, OWN));
}

static uint64_t deferred(gml_lake *lake) {
    return lake_stats_of(lake).deferred_free_bytes;
}

static void finish(gml_lake *lake) {
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), false));
    look(lake);
    CHECK_EQ(deferred(lake), 0);
    lake_finish(lake);
    CHECK_EQ(call_watch_fault()[0], '\0');
}

/* ---- pairs ----------------------------------------------------------------------------------- */

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

int main(void) {
    return contract_main();
}
