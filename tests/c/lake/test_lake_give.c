/* Idle memory released for somebody else: as much as is wanted, and none that work may still use.
 */
#include "driver/device.h"
#include "driver/streams.h"
#include "gmlake_elastic.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "support/contract.h"
#include "support/policies.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { BLOCKS = 8, BLOCK_MIB = 16, MOST_BEYOND_MIB = 20 };

static uint64_t give(gml_lake *lake, uint64_t wanted_bytes, bool *is_pending) {
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_give(lake, wanted_bytes, NULL, &released_bytes, is_pending));
    CHECK_OK(gml_lake_check(lake));
    return released_bytes;
}

static bool gives_parts(void) {
    return strcmp(contract_policy, "gmlake-paper") != 0 && !contract_is_arena;
}

static void take_all(gml_lake *lake, gml_address *blocks, gml_stream stream) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = lake_take(lake, BLOCK_MIB * MIB, stream);
    }
}

static void give_all(gml_lake *lake, const gml_address *blocks) {
    for (int i = 0; i < BLOCKS; i++) {
        lake_give(lake, blocks[i]);
    }
}

TEST(memory_that_work_may_use_is_not_given_and_not_waited_for) {
    if (!gives_parts()) {
        return;
    }
    gml_lake *lake = lake_open(256 * MIB);
    gml_streams *streams = gml_driver_streams(lake->driver);
    gml_address blocks[BLOCKS];
    bool is_pending = false;
    CHECK_OK(gml_streams_set_manual(streams, true));
    take_all(lake, blocks, 1);
    lake_queue_work(lake, 1);
    give_all(lake, blocks);
    CHECK_EQ(give(lake, MIB, &is_pending), 0);
    CHECK(is_pending);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_DEVICE_SYNCHRONIZE], 0);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_STREAM_SYNCHRONIZE], 0);
    CHECK_EQ(lake_stats_of(lake).driver_calls[GML_CALL_EVENT_SYNCHRONIZE], 0);
    CHECK_OK(gml_streams_advance(streams, 1, UINT64_MAX, NULL));
    CHECK(give(lake, MIB, &is_pending) >= MIB);
    CHECK(!is_pending);
    CHECK_OK(gml_streams_set_manual(streams, false));
    lake_finish(lake);
}

TEST(nothing_is_given_during_a_capture) {
    gml_lake *lake = lake_open(64 * MIB);
    bool is_pending = true;
    gml_address first = lake_take(lake, 16 * MIB, 1);
    lake_give(lake, lake_take(lake, 16 * MIB, 1));
    lake_give(lake, first);
    (void)give(lake, 1, &is_pending); /* all of its work is known to be done */
    gml_device_freeze(lake->driver->device, 1);
    CHECK_EQ(give(lake, UINT64_MAX, &is_pending), 0);
    CHECK(!is_pending);
    CHECK_EQ(gml_lake_idle_bytes(lake), 0);
    gml_device_freeze(lake->driver->device, -1);
    CHECK(!gives_parts() || give(lake, UINT64_MAX, &is_pending) > 0);
    lake_finish(lake);
}

/* A graph may write to it whenever it is replayed. Without graphs, a pool's idle memory goes last:
 * when the lake is trimmed. */
TEST(what_graphs_use_is_not_idle) {
    const gml_pool_id graphs = {1, 1}, plain = {1, 2};
    if (!gives_parts()) {
        return;
    }
    gml_lake *lake = lake_open(128 * MIB);
    gml_address in_graph = 0, in_pool = 0;
    bool is_pending = true;
    CHECK_OK(gml_lake_begin_pool(lake, graphs));
    CHECK_OK(gml_lake_allocate_in(lake, graphs, 16 * MIB, 1, &in_graph));
    CHECK_OK(gml_lake_end_pool(lake, graphs));
    CHECK_OK(gml_lake_hold_pool(lake, plain));
    CHECK_OK(gml_lake_allocate_in(lake, plain, 16 * MIB, 1, &in_pool));
    lake_give(lake, in_graph);
    CHECK_EQ(gml_lake_idle_bytes(lake), 0);
    lake_give(lake, in_pool);
    uint64_t idle_bytes = gml_lake_idle_bytes(lake), released_bytes = 0;
    CHECK(idle_bytes >= 16 * MIB);
    CHECK_EQ(give(lake, UINT64_MAX, &is_pending), 0);
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_EQ(released_bytes, idle_bytes);
    CHECK_OK(gml_lake_release_pool(lake, graphs));
    CHECK_OK(gml_lake_release_pool(lake, plain));
    lake_finish(lake);
}

/* A block that another stream used is idle as soon as that is known to be done: nobody else looks.
 */
TEST(freed_blocks_whose_uses_are_over_are_given) {
    if (!gives_parts()) {
        return;
    }
    gml_lake *lake = lake_open(64 * MIB);
    gml_streams *streams = gml_driver_streams(lake->driver);
    bool is_pending = false;
    gml_address block = lake_take(lake, 16 * MIB, 1);
    CHECK_OK(gml_streams_set_manual(streams, true));
    lake_queue_work(lake, 2);
    CHECK_OK(gml_lake_record_stream(lake, block, 2));
    lake_give(lake, block);
    CHECK_EQ(give(lake, UINT64_MAX, &is_pending), 0);
    CHECK_OK(gml_streams_set_manual(streams, false));
    CHECK(give(lake, UINT64_MAX, &is_pending) >= 16 * MIB);
    lake_finish(lake);
}

int main(void) {
    return contract_main_everywhere();
}
