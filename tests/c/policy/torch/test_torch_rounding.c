/* The sizes PyTorch rounds to, against values computed by hand. */
#include "policy/torch/rounding.h"
#include "support/policy_fixture.h"

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
