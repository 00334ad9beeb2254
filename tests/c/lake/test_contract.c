/* What gmlake.h promises, tried through it on every policy over `sim` and `host`. */
#include "support/contract.h"

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

/* ---- frees ----------------------------------------------------------------------------------- */

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

/* ---- running out ----------------------------------------------------------------------------- */

TEST(memory_idle_on_one_stream_serves_another_before_refusing) {
    gml_lake *lake = lake_open(64 * MIB);
    lake_give(lake, lake_take(lake, 40 * MIB, 1));
    lake_give(lake, lake_take(lake, 40 * MIB, 2));
    CHECK(lake_stats_of(lake).reserved_bytes <= 64 * MIB);
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
    return contract_main_with_arenas();
}
