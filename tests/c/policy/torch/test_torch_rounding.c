/* The sizes PyTorch rounds to, against values computed by hand. */
#include "policy/torch/rounding.h"
#include "support/policy_fixture.h"

TEST(rounds_to_512) {
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    const uint64_t table[][2] = {
        {1, 512},
        {511, 512},
        {512, 512},
        {513, 1024},
        {1024, 1024},
        {1025, 1536},
        {MIB - 1, MIB},
        {MIB, MIB},
        {MIB + 1, MIB + 512},
        {GIB + 3, GIB + 512},
        {UINT64_C(1) << 48, UINT64_C(1) << 48},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CHECK_EQ(gml_torch_round(knobs.roundup_power2_divisions, table[i][0]), table[i][1]);
    }
}

TEST(rounds_to_divisions_of_powers_of_two) {
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    gml_setting all = {"roundup_power2_divisions", 4};
    CHECK_OK(gml_knobs_apply(&knobs, &all, 1, NULL, 0));
    const uint64_t table[][2] = {
        {100, 512},
        {1200, 1536},
        {2048, 2048},
        {2049, 2560},
        {4097, 5120},
        {1200 * KIB, 1280 * KIB},
        {1025 * KIB, 1280 * KIB},
        {1280 * KIB, 1280 * KIB},
        {1537 * KIB, 1792 * KIB},
        {2 * MIB, 2 * MIB},
        {7 * MIB + 1, 8 * MIB},
        {5 * GIB + 1, 6 * GIB},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CHECK_EQ(gml_torch_round(knobs.roundup_power2_divisions, table[i][0]), table[i][1]);
    }
}

TEST(rounds_per_interval) {
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    const gml_setting settings[] = {
        {"roundup_power2_divisions.1", 2},
        {"roundup_power2_divisions.256", 8},
        {"roundup_power2_divisions.512", 1},
        {"roundup_power2_divisions.32768", 2},
    };
    CHECK_OK(gml_knobs_apply(&knobs, settings, 4, NULL, 0));
    const uint64_t table[][2] = {
        {5 * KIB, 6 * KIB}, /* below 1 MiB the first interval holds */
        {1025 * KIB, 1536 * KIB},
        {2 * MIB + 1, 2 * MIB + 512}, /* 2 MiB has no divisions */
        {255 * MIB + 1, 255 * MIB + 512},
        {257 * MIB, 288 * MIB},
        {513 * MIB, 513 * MIB}, /* one division is none */
        {33 * GIB, 48 * GIB},
        {65 * GIB, 96 * GIB}, /* the last interval has no upper end */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CHECK_EQ(gml_torch_round(knobs.roundup_power2_divisions, table[i][0]), table[i][1]);
    }
}

TEST(round_down_is_the_largest_that_fits) {
    check_random random = {7};
    for (int i = 0; i < 20000; i++) {
        gml_knobs knobs;
        gml_knobs_init(&knobs);
        gml_setting all = {"roundup_power2_divisions", check_below(&random, 20)};
        CHECK_OK(gml_knobs_apply(&knobs, &all, 1, NULL, 0));
        uint64_t block_bytes = (1 + (check_next(&random) >> (30 + check_below(&random, 30)))) * 512;
        uint64_t size_bytes = gml_torch_round_down(&knobs, block_bytes);
        CHECK(gml_torch_round(knobs.roundup_power2_divisions, size_bytes) <= block_bytes);
        CHECK(gml_torch_round(knobs.roundup_power2_divisions, size_bytes + 1) > block_bytes);
    }
}

TEST(segment_sizes) {
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    CHECK_EQ(gml_torch_segment_size(&knobs, 512), 2 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, MIB), 2 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, MIB + 512), 20 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, 10 * MIB - 512), 20 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, 10 * MIB), 10 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, 10 * MIB + 512), 12 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, GIB), GIB);
    knobs.large_segment_size = 12 * MIB;
    CHECK_EQ(gml_torch_segment_size(&knobs, 5 * MIB), 12 * MIB);
    CHECK_EQ(gml_torch_segment_size(&knobs, 13 * MIB), 14 * MIB);
    knobs.large_segment_size = 2 * MIB; /* never less than the request */
    CHECK_EQ(gml_torch_segment_size(&knobs, 5 * MIB), 6 * MIB);
}
