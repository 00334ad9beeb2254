/* One allocation in place of virtual memory: all blocks lie in it, and nothing else is asked for.
 */
#include "gmlake_share.h"
#include "support/breaking.h"
#include "support/check.h"
#include "support/policies.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

static gml_lake *open_arena(const char *driver, const char *policy, uint64_t arena_bytes) {
    const gml_setting setting = {"arena", arena_bytes};
    const gml_lake_config config = {
        .driver = driver, .policy = policy, .settings = &setting, .setting_count = 1};
    gml_lake *lake = NULL;
    char reason[240] = "";
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    return lake;
}

static gml_stats stats_of(gml_lake *lake) {
    gml_stats stats = {0};
    CHECK_OK(gml_lake_stats(lake, &stats));
    return stats;
}

TEST(all_blocks_lie_in_one_allocation) {
    for (size_t i = 0; lending_policy(i); i++) {
        gml_lake *lake = open_arena("host", lending_policy(i), 64 * MIB);
        gml_address arena = 0;
        uint64_t arena_bytes = 0;
        CHECK_OK(gml_lake_arena(lake, &arena, &arena_bytes));
        CHECK_EQ(arena_bytes, 64 * MIB);
        check_random random = {i + 1};
        gml_address blocks[40] = {0};
        uint64_t sizes[40];
        for (int round = 0; round < 4000; round++) {
            size_t at = (size_t)check_below(&random, 40);
            if (blocks[at]) {
                CHECK_OK(gml_lake_free(lake, blocks[at]));
                blocks[at] = 0;
                continue;
            }
            sizes[at] = 1 + check_below(&random, check_below(&random, 3) ? 300000 : 6 * MIB);
            gml_stream stream = check_below(&random, 3);
            if (gml_lake_allocate(lake, sizes[at], stream, &blocks[at]) == GML_OK) {
                CHECK(blocks[at] >= arena);
                CHECK(blocks[at] + sizes[at] <= arena + arena_bytes);
            }
        }
        CHECK_OK(gml_lake_check(lake));
        gml_stats stats = stats_of(lake);
        CHECK_EQ(stats.driver_calls[GML_CALL_MALLOC], 0); /* made before the lake began to count */
        CHECK_EQ(stats.driver_calls[GML_CALL_CREATE] + stats.driver_calls[GML_CALL_MAP] +
                     stats.driver_calls[GML_CALL_RESERVE],
                 0);
        CHECK_EQ(stats.views, 0);
        CHECK_OK(gml_lake_close(lake));
    }
}

/* What one stream freed serves another, as ever. */
TEST(streams_lend_each_other_what_they_have) {
    gml_lake *lake = open_arena("sim", "stitch", 32 * MIB);
    gml_address first, second;
    CHECK_OK(gml_lake_allocate(lake, 32 * MIB, 1, &first));
    CHECK_OK(gml_lake_free(lake, first));
    CHECK_OK(gml_lake_allocate(lake, 20 * MIB, 2, &second));
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

TEST(what_has_no_arena_says_so) {
    const gml_lake_config config = {.driver = "sim", .policy = "stitch"};
    gml_lake *lake = NULL;
    char reason[240] = "";
    gml_address address = 0;
    uint64_t size_bytes = 0;
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    CHECK_STATUS(gml_lake_arena(lake, &address, &size_bytes), GML_UNSUPPORTED);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "arena") != NULL);
    CHECK_OK(gml_lake_close(lake));
}

TEST(an_arena_that_cannot_be_had_is_refused) {
    const gml_setting settings[] = {{"arena", 2048 * MIB}, {"arena", MIB}};
    for (size_t i = 0; i < 2; i++) {
        const gml_lake_config config = {
            .driver = "host", .policy = "stitch", .settings = &settings[i], .setting_count = 1};
        gml_lake *lake = NULL;
        char reason[240] = "";
        CHECK_STATUS(gml_lake_open(&config, &lake, reason, sizeof reason),
                     i ? GML_INVALID_ARGUMENT : GML_OUT_OF_MEMORY);
        CHECK(lake == NULL && reason[0] != '\0');
    }
}
