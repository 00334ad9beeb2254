/* The lowest segment of the skyline, against a slow twin. */
#include "planner/support/placing.h"

#include <string.h>

#define NO_RANK UINT32_MAX

static uint32_t best_of(const gml_instance *instance, const uint32_t *order, const bool *is_gone,
                        uint32_t begin, uint32_t end) {
    for (uint32_t rank = 0; rank < instance->count; rank++) {
        uint32_t item = order[rank];
        if (!is_gone[item] && instance->begin[item] >= begin && instance->end[item] <= end) {
            return rank;
        }
    }
    return NO_RANK;
}

/* ---- the lowest segment ---------------------------------------------------------------------- */

typedef struct range {
    uint32_t begin, end;
} range;

/* The lowest run of slots of equal height, the first of equal ones. */
static range lowest_range(const uint64_t *heights, uint32_t slots) {
    uint32_t begin = 0;
    for (uint32_t slot = 1; slot < slots; slot++) {
        begin = heights[slot] < heights[begin] ? slot : begin;
    }
    uint32_t end = begin;
    while (end < slots && heights[end] == heights[begin]) {
        end++;
    }
    return (range){begin, end};
}

static void lift_range(uint64_t *heights, uint32_t slots, range at) {
    uint64_t left = at.begin > 0 ? heights[at.begin - 1] : UINT64_MAX;
    uint64_t right = at.end < slots ? heights[at.end] : UINT64_MAX;
    for (uint32_t slot = at.begin; slot < at.end; slot++) {
        heights[slot] = left < right ? left : right;
    }
}

/* With one height per slot and a scan for everything. */
static void place_slowly(const gml_instance *instance, const uint32_t *order, uint64_t *offsets) {
    uint64_t heights[2 * PLACING_MOST] = {0};
    bool is_placed[PLACING_MOST] = {false};
    for (size_t left = instance->count; left > 0;) {
        range at = lowest_range(heights, instance->slots);
        for (;;) {
            uint32_t best = best_of(instance, order, is_placed, at.begin, at.end);
            if (best == NO_RANK) {
                lift_range(heights, instance->slots, at);
                break;
            }
            uint32_t item = order[best], begin = instance->begin[item], end = instance->end[item];
            offsets[item] = heights[begin];
            is_placed[item] = true;
            left--;
            for (uint32_t slot = begin; slot < end; slot++) {
                heights[slot] += instance->sizes[item];
            }
            if (begin > at.begin) {
                at.end = begin;
            } else if (end < at.end) {
                at.begin = end;
            } else {
                break;
            }
        }
    }
}

TEST(lowest_segment_agrees_with_its_slow_twin) {
    static placing f;
    check_random random = {22};
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + check_below(&random, 200);
        placing_random(&f, &random,
                       (placing_kind){count, 1 + check_below(&random, 2 * count),
                                      1 + check_below(&random, count), 1 + check_below(&random, 9),
                                      0});
        CHECK_OK(placing_run_lowest(&f, UINT64_MAX));
        placing_check(&f.instance, f.offsets, f.peak);
        uint64_t expected[PLACING_MOST] = {0};
        place_slowly(&f.instance, f.order, expected);
        CHECK(memcmp(expected, f.offsets, count * sizeof *expected) == 0);
        placing_close(&f);
    }
}

/* One opened for several orders gives what one opened for each gives. */
TEST(lowest_segment_runs_do_not_touch_each_other) {
    static placing f;
    check_random random = {23};
    placing_random(&f, &random, (placing_kind){300, 400, 60, 20, 0});
    gml_lowest *lowest = NULL;
    CHECK_OK(gml_lowest_open(&f.instance, &lowest));
    for (int round = 0; round < 10; round++) {
        uint64_t offsets[PLACING_MOST], peak = 0;
        CHECK_OK(placing_run_lowest(&f, UINT64_MAX));
        gml_status limited = gml_lowest_run(lowest, f.order, f.peak - 1, &f.budget, offsets, &peak);
        CHECK_STATUS(limited, GML_NOT_READY);
        CHECK_OK(gml_lowest_run(lowest, f.order, f.peak, &f.budget, offsets, &peak));
        CHECK_EQ(peak, f.peak);
        CHECK(memcmp(offsets, f.offsets, f.instance.count * sizeof *offsets) == 0);
        placing_shuffle(&random, f.order, f.instance.count);
    }
    gml_lowest_close(lowest);
    placing_close(&f);
}

TEST(lowest_segment_within_a_limit_is_the_same_or_nothing) {
    static placing f;
    check_random random = {24};
    uint64_t whole = 0, early = 0;
    for (int round = 0; round < 100; round++) {
        bool is_circle = round % 2;
        placing_random(&f, &random, (placing_kind){120, 100, 30, 20, is_circle ? 100 : 0});
        CHECK_OK(placing_run_lowest(&f, UINT64_MAX));
        whole += f.budget.work;
        uint64_t peak = f.peak, first = f.offsets[0];
        CHECK_OK(placing_run_lowest(&f, peak));
        CHECK_EQ(f.peak, peak);
        CHECK_EQ(f.offsets[0], first);
        uint64_t before = f.budget.work;
        CHECK_STATUS(placing_run_lowest(&f, f.instance.lower_bound),
                     peak == f.instance.lower_bound ? GML_OK : GML_NOT_READY);
        early += f.budget.work - before;
        f.offsets[0] = 77;
        CHECK_STATUS(placing_run_lowest(&f, peak - 1 - check_below(&random, peak / 2)),
                     GML_NOT_READY);
        CHECK_EQ(f.offsets[0], 77);
        CHECK_EQ(f.peak, peak);
        placing_close(&f);
    }
    CHECK(early * 3 < whole); /* it sees that the limit cannot be kept long before it is reached */
}

/* ---- what is wrapped ------------------------------------------------------------------------- */

TEST(lowest_segment_serves_wrapped_lifetimes) {
    static placing f;
    check_random random = {27};
    uint64_t lowest = 0, first = 0;
    for (int round = 0; round < 300; round++) {
        uint64_t times = 4 + check_below(&random, 200);
        placing_random(&f, &random,
                       (placing_kind){1 + check_below(&random, 150), times,
                                      1 + check_below(&random, times), 20, times});
        CHECK_OK(placing_run_lowest(&f, UINT64_MAX));
        placing_check(&f.instance, f.offsets, f.peak);
        lowest += f.peak / PLACING_UNIT;
        CHECK_OK(gml_first_fit(&f.instance, f.order, UINT64_MAX, &f.budget, f.offsets, &f.peak));
        first += f.peak / PLACING_UNIT;
        placing_close(&f);
    }
    CHECK(lowest < first); /* in random orders, all together */
}
