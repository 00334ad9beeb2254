/* What the numbers and walks of gmlake.h tell, compared with a count of our own. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/census.h"
#include "support/contract.h"

/* ---- looking in ------------------------------------------------------------------------------ */

TEST(block_and_bytes_know_only_live_blocks) {
    gml_lake *lake = lake_open(0);
    gml_address address = lake_take(lake, 1000, 9);
    gml_block_info info;
    void *bytes = NULL;
    CHECK_STATUS(gml_lake_block(lake, address + 512, &info), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_block(lake, 0, &info), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_bytes(lake, address + 512, &bytes), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_bytes(lake, address, &bytes), lake_is_host() ? GML_OK : GML_UNSUPPORTED);
    lake_give(lake, address);
    CHECK_STATUS(gml_lake_block(lake, address, &info), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_bytes(lake, address, &bytes), GML_UNKNOWN_ADDRESS);
    lake_finish(lake);
}

enum { MOST_LIVE = 512 };

/* ---- as PyTorch counts ----------------------------------------------------------------------- */

static void check_rows(const gml_stat row[GML_POOL_COUNT]) {
    CHECK_EQ(row[GML_POOL_ALL].current, row[GML_POOL_SMALL].current + row[GML_POOL_LARGE].current);
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        CHECK_EQ(row[pool].current, row[pool].allocated - row[pool].freed);
        CHECK(row[pool].peak >= row[pool].current);
    }
}

static void check_torch_stats(gml_lake *lake) {
    gml_torch_stats torch;
    gml_stats stats = lake_stats_of(lake);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    check_rows(torch.allocation);
    check_rows(torch.allocated_bytes);
    check_rows(torch.active);
    check_rows(torch.active_bytes);
    check_rows(torch.requested_bytes);
    check_rows(torch.reserved_bytes);
    check_rows(torch.inactive_split_bytes);
    check_rows(torch.segment);
    CHECK_EQ(torch.allocation[0].current, stats.live_blocks);
    CHECK_EQ(torch.requested_bytes[0].current, stats.requested_bytes);
    CHECK_EQ(torch.reserved_bytes[0].current, stats.reserved_bytes);
    CHECK_EQ(torch.active[0].allocated, stats.allocations);
    CHECK(torch.allocated_bytes[0].current >= stats.live_bytes);
    for (size_t pool = 0; pool < GML_POOL_COUNT; pool++) {
        CHECK(torch.active_bytes[pool].current <= torch.reserved_bytes[pool].current);
        if (!lake->policy->ops->torch_stats) {
            CHECK_EQ(torch.inactive_split_bytes[pool].current,
                     torch.reserved_bytes[pool].current - torch.active_bytes[pool].current);
        }
    }
    CHECK_EQ(torch.max_split_size, -1);
}

TEST(torch_stats_add_up) {
    gml_lake *lake = lake_open(0);
    check_random random = {41};
    live_block blocks[MOST_LIVE];
    size_t count = 0;
    for (size_t step = 0; step < 400; step++) {
        uint64_t choice = check_below(&random, 100);
        if (choice < 60 && count < MOST_LIVE) {
            uint64_t size_bytes = lake_draw_size(&random);
            blocks[count++] = (live_block){lake_take(lake, size_bytes, 0), size_bytes, 0, 0};
        } else if (choice == 98) {
            CHECK_OK(gml_lake_trim(lake, NULL));
        } else if (choice == 99) {
            CHECK_OK(gml_lake_reset_peaks(lake));
        } else if (count) {
            size_t pick = check_below(&random, count);
            lake_give(lake, blocks[pick].address);
            blocks[pick] = blocks[--count];
        }
        check_torch_stats(lake);
    }
    for (size_t i = 0; i < count; i++) {
        lake_give(lake, blocks[i].address);
    }
    lake_finish(lake);
}

int main(void) {
    return contract_main_with_arenas();
}
