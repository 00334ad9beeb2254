/* record_stream through a lake, over every policy: who holds a freed block, for how long, and what
 * it costs in driver calls. Streams are advanced by hand. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <string.h>

enum { BLOCK_BYTES = 4 << 20 };

static gml_streams *streams_of(gml_lake *lake) {
    return lake->driver->streams;
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

int main(void) {
    return contract_main_with_arenas();
}
