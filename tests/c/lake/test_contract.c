/* What gmlake.h promises, tried through it on every policy over `sim` and `host`. */
#include "support/contract.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* ---- sizes ----------------------------------------------------------------------------------- */

TEST(size_zero_holds_nothing) {
    gml_lake *lake = lake_open(0);
    gml_address address = 77;
    CHECK_OK(gml_lake_allocate(lake, 0, 3, &address));
    CHECK_EQ(address, 0);
    CHECK_OK(gml_lake_free(lake, 0));
    CHECK_EQ(lake_stats_of(lake).allocations, 0);
    CHECK_EQ(lake_stats_of(lake).frees, 0);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, 0);
    lake_finish(lake);
}

TEST(every_size_is_served_whole) {
    static const uint64_t sizes[] = {
        1,       2,           511,          512,      513,          4095,
        4096,    65537,       MIB - 1,      MIB,      MIB + 1,      2 * MIB - 1,
        2 * MIB, 2 * MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB + 1, 33 * MIB,
        64 * MIB};
    gml_lake *lake = lake_open(0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        gml_address address = lake_take(lake, sizes[i], 0);
        gml_block_info info;
        CHECK_OK(gml_lake_block(lake, address, &info));
        CHECK_EQ(info.address, address);
        CHECK_EQ(info.requested_bytes, sizes[i]);
        CHECK(info.block_bytes >= sizes[i] && info.block_bytes % 512 == 0);
        CHECK(info.state < GML_STATE_OOM);
        const live_block block = {address, sizes[i], i, 0};
        lake_fill(lake, &block);
        lake_check_filled(lake, &block);
        CHECK(lake_stats_of(lake).reserved_bytes >= info.block_bytes);
        lake_give(lake, address);
        CHECK_OK(gml_lake_check(lake));
    }
    lake_finish(lake);
}

TEST(absurd_sizes_are_refused_and_harmless) {
    static const uint64_t too_large[] = {(UINT64_C(1) << 48) + 1, UINT64_C(1) << 63,
                                         UINT64_MAX - 511, UINT64_MAX};
    static const uint64_t too_much[] = {65 * MIB, UINT64_C(1) << 40, (UINT64_C(1) << 48) - 1,
                                        UINT64_C(1) << 48};
    gml_lake *lake = lake_open(64 * MIB);
    gml_address kept = lake_take(lake, 5000, 0);
    gml_address address = 77;
    for (size_t i = 0; i < 4; i++) {
        CHECK_STATUS(gml_lake_allocate(lake, too_large[i], 0, &address), GML_INVALID_ARGUMENT);
        CHECK_STATUS(gml_lake_allocate(lake, too_much[i], 0, &address), GML_OUT_OF_MEMORY);
        CHECK_EQ(address, 77);
        char reason[256] = "";
        gml_lake_reason(lake, reason, sizeof reason);
        CHECK(reason[0] != 0);
    }
    gml_stats stats = lake_stats_of(lake);
    CHECK_EQ(stats.states[GML_STATE_OOM], 4);
    CHECK_EQ(stats.live_blocks, 1);
    CHECK_EQ(stats.allocations, 1);
    CHECK_OK(gml_lake_check(lake));
    lake_give(lake, kept);
    lake_finish(lake);
}

/* ---- frees ----------------------------------------------------------------------------------- */

TEST(foreign_and_double_frees_change_nothing) {
    gml_lake *lake = lake_open(0);
    gml_address address = lake_take(lake, 3 * MIB, 0);
    gml_address other = lake_take(lake, 100, 0);
    const gml_address wrong[] = {address + 512, address + 1, other + 512, 1, 12345, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(gml_lake_free(lake, wrong[i]), GML_UNKNOWN_ADDRESS);
    }
    CHECK_EQ(lake_stats_of(lake).live_blocks, 2);
    lake_give(lake, address);
    CHECK_STATUS(gml_lake_free(lake, address), GML_UNKNOWN_ADDRESS);
    char reason[256] = "";
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(reason[0] != 0);
    lake_give(lake, other);
    CHECK_EQ(lake_stats_of(lake).frees, 2);
    lake_finish(lake);
}

typedef struct foreign_free {
    gml_lake *lake;
    gml_address address;
    gml_status status;
} foreign_free;

static void *free_elsewhere(void *context) {
    foreign_free *job = context;
    job->status = gml_lake_free(job->lake, job->address);
    return NULL;
}

TEST(a_block_may_be_freed_on_another_thread) {
    gml_lake *lake = lake_open(0);
    foreign_free job = {lake, lake_take(lake, 7 * MIB, 2), GML_CORRUPT};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_elsewhere, &job) == 0);
    pthread_join(thread, NULL);
    CHECK_OK(job.status);
    lake_finish(lake);
}

TEST(a_freed_size_comes_back_without_a_driver_call) {
    static const uint64_t sizes[] = {300, 2 * MIB, 40 * MIB};
    gml_lake *lake = lake_open(0);
    for (size_t i = 0; i < 3; i++) {
        lake_give(lake, lake_take(lake, sizes[i], 5));
        gml_stats before = lake_stats_of(lake);
        lake_give(lake, lake_take(lake, sizes[i], 5));
        gml_stats after = lake_stats_of(lake);
        for (size_t call = 0; call < GML_CALL_COUNT; call++) {
            CHECK_EQ(after.driver_calls[call], before.driver_calls[call]);
        }
    }
    lake_finish(lake);
}

TEST(live_blocks_never_overlap) {
    gml_lake *lake = lake_open(0);
    live_block blocks[60];
    size_t count = lake_churn(lake, blocks, 60, 400, 1, 21);
    CHECK(count > 30);
    lake_check_disjoint(blocks, count);
    CHECK_OK(gml_lake_check(lake));
    lake_drain(lake, blocks, count);
    lake_finish(lake);
}

TEST(many_streams_are_kept_apart) {
    gml_lake *lake = lake_open(0);
    live_block blocks[60];
    size_t count = lake_churn(lake, blocks, 60, 300, 40, 22);
    lake_check_disjoint(blocks, count);
    for (size_t i = 0; i < count; i++) {
        gml_block_info info;
        CHECK_OK(gml_lake_block(lake, blocks[i].address, &info));
        CHECK_EQ(info.stream, blocks[i].stream);
    }
    CHECK_OK(gml_lake_check(lake));
    lake_drain(lake, blocks, count);
    lake_finish(lake);
}

TEST(any_number_but_the_last_names_a_stream) {
    static const gml_stream streams[] = {0, 1, UINT64_C(1) << 63, UINT64_MAX - 1};
    gml_lake *lake = lake_open(0);
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        lake_give(lake, lake_take(lake, 3 * MIB, streams[i]));
        uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
        gml_address address = lake_take(lake, 3 * MIB, streams[i]);
        gml_block_info info;
        CHECK_OK(gml_lake_block(lake, address, &info));
        CHECK_EQ(info.stream, streams[i]);
        CHECK_EQ(lake_stats_of(lake).reserved_bytes, reserved_bytes);
        lake_give(lake, address);
    }
    gml_address refused = 77;
    CHECK_STATUS(gml_lake_allocate(lake, 512, UINT64_MAX, &refused), GML_INVALID_ARGUMENT);
    CHECK_EQ(refused, 77);
    lake_finish(lake);
}

TEST(trim_keeps_what_lives) {
    gml_lake *lake = lake_open(0);
    live_block blocks[40];
    size_t count = lake_churn(lake, blocks, 40, 300, 2, 23);
    uint64_t reserved_bytes = lake_stats_of(lake).reserved_bytes;
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_EQ(lake_stats_of(lake).reserved_bytes + released_bytes, reserved_bytes);
    CHECK(lake_stats_of(lake).reserved_bytes >= lake_stats_of(lake).live_bytes);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_OK(gml_lake_check(lake));
    lake_drain(lake, blocks, count);
    lake_finish(lake);
}

TEST(closing_ends_live_blocks) {
    gml_lake *lake = lake_open(0);
    live_block blocks[40];
    CHECK(lake_churn(lake, blocks, 40, 200, 3, 24) > 0);
    CHECK_OK(gml_lake_close(lake));
    CHECK_OK(gml_lake_close(NULL));
}

/* ---- running out ----------------------------------------------------------------------------- */

TEST(capacity_is_never_exceeded_and_can_be_used_again) {
    enum { MOST = 100 };
    const uint64_t capacity_bytes = 64 * MIB;
    gml_lake *lake = lake_open(capacity_bytes);
    for (size_t round = 0; round < 4; round++) {
        gml_address addresses[MOST];
        size_t count = 0;
        gml_status status = GML_OK;
        while (status == GML_OK && count < MOST) {
            uint64_t size_bytes = (1 + (count + round) % 3) * 2 * MIB - round * 512;
            status = gml_lake_allocate(lake, size_bytes, round % 2, &addresses[count]);
            count += status == GML_OK;
            CHECK(lake_stats_of(lake).reserved_bytes <= capacity_bytes);
        }
        CHECK_STATUS(status, GML_OUT_OF_MEMORY);
        CHECK(count >= 8);
        CHECK_OK(gml_lake_check(lake));
        /* Every second goes first, so that what is free is in pieces. */
        for (size_t i = 0; i < count; i++) {
            lake_give(lake, addresses[(i * 2) % count + (count % 2 == 0 && i >= count / 2)]);
        }
        /* Nothing lives: whatever the pieces, most of the device can be had at once. */
        lake_give(lake, lake_take(lake, capacity_bytes - 4 * MIB, 0));
        CHECK_OK(gml_lake_check(lake));
    }
    CHECK_EQ(lake_stats_of(lake).states[GML_STATE_OOM], 4);
    lake_finish(lake);
}

TEST(memory_idle_on_one_stream_serves_another_before_refusing) {
    gml_lake *lake = lake_open(64 * MIB);
    lake_give(lake, lake_take(lake, 40 * MIB, 1));
    lake_give(lake, lake_take(lake, 40 * MIB, 2));
    CHECK(lake_stats_of(lake).reserved_bytes <= 64 * MIB);
    lake_finish(lake);
}

TEST(a_failing_driver_call_fails_one_allocation) {
    for (uint64_t call = 1; call <= 30; call++) {
        gml_lake_config config = lake_config_of(0);
        config.hooks = GML_HOOKS(.fail_call = call, .check_order = true);
        gml_lake *lake = NULL;
        char reason[256] = "";
        if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
            CHECK(reason[0] != 0);
            continue;
        }
        size_t failures = 0;
        gml_address addresses[6] = {0};
        for (size_t i = 0; i < 6; i++) {
            failures += gml_lake_allocate(lake, (i + 1) * 3 * MIB / 2, 0, &addresses[i]) != GML_OK;
            CHECK_OK(gml_lake_check(lake));
        }
        CHECK(failures <= 1);
        for (size_t i = 0; i < 6; i++) {
            lake_give(lake, addresses[i]);
        }
        (void)gml_lake_trim(lake, NULL);
        CHECK_OK(gml_lake_trim(lake, NULL));
        CHECK_EQ(lake_stats_of(lake).reserved_bytes, 0);
        (void)gml_lake_close(lake);
    }
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *work(void *context) {
    gml_lake *lake = context;
    live_block blocks[20];
    uint64_t seed = (uint64_t)(uintptr_t)blocks;
    lake_drain(lake, blocks, lake_churn(lake, blocks, 20, 150, 2, seed));
    return NULL;
}

TEST(threads_share_a_lake) {
    gml_lake *lake = lake_open(0);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, lake) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK_EQ(lake_stats_of(lake).allocations, lake_stats_of(lake).frees);
    lake_finish(lake);
}

/* ---- opening --------------------------------------------------------------------------------- */

TEST(a_bad_configuration_gets_a_reason) {
    const gml_setting unknown = {"frag_limt", 1};
    const gml_setting out_of_range = {"max_views", 0};
    const gml_lake_config configs[] = {
        {.driver = contract_driver, .policy = "cachin"},
        {.driver = contract_driver, .policy = NULL},
        {.driver = "simm", .policy = contract_policy},
        {.driver = NULL, .policy = contract_policy},
        {.driver = contract_driver, .policy = contract_policy, .device = -1},
        {.driver = contract_driver,
         .policy = contract_policy,
         .settings = &unknown,
         .setting_count = 1},
        {.driver = contract_driver,
         .policy = contract_policy,
         .settings = &out_of_range,
         .setting_count = 1},
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char reason[256] = "";
        gml_lake *lake = NULL;
        CHECK_STATUS(gml_lake_open(&configs[i], &lake, reason, sizeof reason),
                     GML_INVALID_ARGUMENT);
        CHECK(!lake && reason[0] != 0 && !strchr(reason, '\n'));
        CHECK_STATUS(gml_lake_open(&configs[i], &lake, NULL, 0), GML_INVALID_ARGUMENT);
    }
}
int main(void) {
    return contract_main_everywhere();
}
