/* What the numbers and walks of gmlake.h tell, compared with a count of our own. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/census.h"
#include "support/contract.h"

/* ---- numbers --------------------------------------------------------------------------------- */

typedef struct expected {
    uint64_t live_blocks, requested_bytes, live_bytes, allocations, frees;
    uint64_t peak_live_blocks, peak_live_bytes, peak_requested_bytes;
} expected;

static uint64_t rounded(uint64_t size_bytes) {
    return (size_bytes + 511) / 512 * 512;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void compare_stats(gml_lake *lake, const expected *want, uint64_t *peak_reserved_bytes) {
    gml_stats stats = lake_stats_of(lake);
    CHECK_EQ(stats.live_blocks, want->live_blocks);
    CHECK_EQ(stats.requested_bytes, want->requested_bytes);
    CHECK_EQ(stats.live_bytes, want->live_bytes);
    CHECK_EQ(stats.allocations, want->allocations);
    CHECK_EQ(stats.frees, want->frees);
    CHECK_EQ(stats.peak_live_blocks, want->peak_live_blocks);
    CHECK_EQ(stats.peak_live_bytes, want->peak_live_bytes);
    CHECK_EQ(stats.peak_requested_bytes, want->peak_requested_bytes);
    uint64_t served = 0;
    for (size_t state = 0; state < GML_STATE_OOM; state++) {
        served += stats.states[state];
    }
    CHECK_EQ(served, want->allocations);
    CHECK(stats.reserved_bytes >= stats.live_bytes);
    *peak_reserved_bytes = larger(*peak_reserved_bytes, stats.reserved_bytes);
    CHECK_EQ(stats.peak_reserved_bytes, *peak_reserved_bytes);
}

TEST(statistics_add_up) {
    gml_lake *lake = lake_open(0);
    check_random random = {25};
    live_block blocks[50];
    size_t count = 0;
    expected want = {0};
    uint64_t peak_reserved_bytes = 0;
    for (size_t step = 0; step < 400; step++) {
        if (count < 50 && check_below(&random, 5) > 1) {
            uint64_t size_bytes = lake_draw_size(&random);
            blocks[count++] =
                (live_block){lake_take(lake, size_bytes, step % 3), size_bytes, 0, step % 3};
            want.allocations++;
            want.live_blocks++;
            want.requested_bytes += size_bytes;
            want.live_bytes += rounded(size_bytes);
        } else if (count) {
            live_block *block = &blocks[check_below(&random, count)];
            lake_give(lake, block->address);
            want.frees++;
            want.live_blocks--;
            want.requested_bytes -= block->size_bytes;
            want.live_bytes -= rounded(block->size_bytes);
            *block = blocks[--count];
        }
        want.peak_live_blocks = larger(want.peak_live_blocks, want.live_blocks);
        want.peak_live_bytes = larger(want.peak_live_bytes, want.live_bytes);
        want.peak_requested_bytes = larger(want.peak_requested_bytes, want.requested_bytes);
        compare_stats(lake, &want, &peak_reserved_bytes);
    }
    for (size_t i = 0; i < count; i++) {
        lake_give(lake, blocks[i].address);
    }
    CHECK_OK(gml_lake_reset_peaks(lake));
    CHECK_EQ(lake_stats_of(lake).peak_live_bytes, 0);
    CHECK_EQ(lake_stats_of(lake).peak_reserved_bytes, lake_stats_of(lake).reserved_bytes);
    lake_finish(lake);
}

TEST(largest_free_can_be_had_without_new_memory) {
    gml_lake *lake = lake_open(0);
    live_block blocks[40];
    size_t count = lake_churn(lake, blocks, 40, 300, 1, 26);
    gml_stats before = lake_stats_of(lake);
    CHECK(before.largest_free_bytes > 0);
    CHECK(before.largest_free_bytes <= before.reserved_bytes - before.live_bytes);
    gml_address address = lake_take(lake, before.largest_free_bytes, 0);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, before.reserved_bytes);
    lake_give(lake, address);
    lake_drain(lake, blocks, count);
    lake_finish(lake);
}

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

TEST(a_visit_sees_everything_once) {
    gml_lake *lake = lake_open(0);
    live_block blocks[60];
    size_t count = lake_churn(lake, blocks, 60, 400, 3, 27);
    census seen = census_of(lake);
    gml_stats stats = lake_stats_of(lake);
    CHECK_EQ(seen.requests, stats.live_blocks);
    CHECK_EQ(seen.requested_bytes, stats.requested_bytes);
    CHECK_EQ(seen.physical_bytes, stats.reserved_bytes);
    lake_drain(lake, blocks, count);
    CHECK_OK(gml_lake_trim(lake, NULL));
    seen = census_of(lake);
    CHECK_EQ(seen.physical_bytes, 0);
    lake_finish(lake);
}
#define MIB (UINT64_C(1) << 20)

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

TEST(a_block_in_use_elsewhere_is_active_and_not_allocated) {
    gml_lake *lake = lake_open(0);
    gml_torch_stats torch;
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    if (lake->policy->ops
            ->torch_stats) { /* whose own count of PyTorch's events is another test's */
        CHECK_OK(gml_lake_close(lake));
        return;
    }
    gml_address first = lake_take(lake, 2 * MIB, 0);
    CHECK_OK(gml_lake_record_stream(lake, first, 7));
    lake_give(lake, first);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.allocation[0].current, 0);
    CHECK_EQ(torch.active[0].current, 1);
    CHECK_EQ(torch.active_bytes[0].current, 2 * MIB);
    CHECK_EQ(torch.active[0].freed, 0);
    CHECK_EQ(lake_stats_of(lake).live_blocks, 1);
    CHECK_OK(gml_lake_check(lake));
    gml_address second = lake_take(lake, 2 * MIB, 0);
    CHECK(second != first);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.allocation[0].peak, 1);
    CHECK_EQ(torch.active[0].peak, 2);
    CHECK_EQ(torch.active_bytes[0].peak, 4 * MIB);
    CHECK_OK(gml_lake_trim(lake, NULL)); /* waits for the stream */
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.active[0].current, 1);
    CHECK_EQ(torch.active_bytes[0].current, 2 * MIB);
    CHECK_EQ(torch.active[0].peak, 2);
    CHECK_OK(gml_lake_reset_peaks(lake));
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.active[0].peak, 1);
    CHECK_EQ(torch.active_bytes[0].peak, 2 * MIB);
    lake_give(lake, second);
    lake_finish(lake);
}

int main(void) {
    return contract_main_with_arenas();
}
