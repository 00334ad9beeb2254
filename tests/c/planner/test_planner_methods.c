/* Best fit in the order of time against a slow twin, and the methods together. */
#include "planner/support/placing.h"

#include <string.h>

/* ---- best fit in the order of time ----------------------------------------------------------- */

/* Where best fit puts `size` bytes among the live, of which `order` lists all in ascending order.
 */
static uint64_t best_gap(const gml_instance *instance, const uint64_t *offsets,
                         const uint32_t *live, size_t count, uint64_t size, uint64_t extent) {
    uint64_t best = UINT64_MAX, address = 0, below = 0;
    for (size_t i = 0; i <= count; i++) {
        uint64_t gap = (i < count ? offsets[live[i]] : extent) - below;
        if (gap >= size && gap < best) {
            best = gap;
            address = below;
        }
        below = i < count ? offsets[live[i]] + instance->sizes[live[i]] : below;
    }
    return best == UINT64_MAX ? below : address;
}

/* Ascending by offset, without those that ended. */
static size_t keep_live(const gml_instance *instance, uint32_t *live, size_t count, uint32_t slot) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (instance->end[live[i]] > slot) {
            live[kept++] = live[i];
        }
    }
    return kept;
}

static void fit_slowly(const gml_instance *instance, uint64_t *offsets) {
    uint32_t live[PLACING_MOST];
    size_t count = 0;
    uint64_t extent = 0;
    for (uint32_t slot = 0; slot < instance->slots; slot++) {
        count = keep_live(instance, live, count, slot);
        for (uint32_t item = 0; item < instance->count; item++) {
            if (instance->begin[item] != slot) {
                continue;
            }
            uint64_t size = instance->sizes[item];
            offsets[item] = best_gap(instance, offsets, live, count, size, extent);
            extent = offsets[item] + size > extent ? offsets[item] + size : extent;
            size_t at = count++;
            for (; at > 0 && offsets[live[at - 1]] > offsets[item]; at--) {
                live[at] = live[at - 1];
            }
            live[at] = item;
        }
    }
}

TEST(online_best_fit_agrees_with_its_slow_twin) {
    static placing f;
    check_random random = {28};
    for (int round = 0; round < 300; round++) {
        size_t count = 1 + check_below(&random, 300);
        placing_random(&f, &random,
                       (placing_kind){count, 1 + check_below(&random, 2 * count),
                                      1 + check_below(&random, count), 1 + check_below(&random, 30),
                                      0});
        CHECK_OK(gml_online_best_fit(&f.instance, f.offsets, &f.peak));
        placing_check(&f.instance, f.offsets, f.peak);
        uint64_t expected[PLACING_MOST] = {0};
        fit_slowly(&f.instance, expected);
        CHECK(memcmp(expected, f.offsets, count * sizeof *expected) == 0);
        placing_close(&f);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

enum { QUICK_MS = 20 };

/* Every other one wraps. */
static void open_contest(placing *f, check_random *random, int round) {
    size_t count = 1 + check_below(random, 120);
    placing_random(f, random, (placing_kind){count, 80, 40, 30, round % 2 ? 80 : 0});
}

static gml_placing place_all(placing *f, uint64_t milliseconds) {
    gml_placing found = {0};
    gml_budget budget = gml_budget_of(milliseconds, f->instance.count);
    CHECK_OK(gml_portfolio_place(&f->instance, 0, &budget, f->offsets, &found));
    placing_check(&f->instance, f->offsets, found.peak_bytes);
    return found;
}

TEST(together_they_are_as_good_as_each_in_any_order) {
    static placing f;
    check_random random = {8};
    uint64_t better = 0;
    for (int round = 0; round < 200; round++) {
        open_contest(&f, &random, round);
        uint64_t peak = place_all(&f, QUICK_MS).peak_bytes;
        CHECK_OK(gml_first_fit(&f.instance, f.order, UINT64_MAX, &f.budget, f.offsets, &f.peak));
        CHECK(round % 2 || peak <= f.peak); /* with the search, nothing is lower */
        better += peak < f.peak;
        CHECK_OK(placing_run_lowest(&f, UINT64_MAX));
        CHECK(round % 2 || peak <= f.peak);
        if (!f.instance.wrapped_count) {
            CHECK_OK(gml_online_best_fit(&f.instance, f.offsets, &f.peak));
            CHECK(peak <= f.peak);
        }
        placing_close(&f);
    }
    CHECK(better > 100);
}

TEST(without_a_budget_first_fit_goes_on) {
    static placing f;
    check_random random = {9};
    for (int round = 0; round < 60; round++) {
        open_contest(&f, &random, round);
        gml_placing found = place_all(&f, 0);
        if (f.instance.wrapped_count) {
            CHECK_EQ(found.method, GML_METHOD_FIRST_FIT_SIZE);
        }
        placing_close(&f);
    }
}

TEST(methods_have_names) {
    for (unsigned method = 0; method < GML_METHOD_COUNT; method++) {
        CHECK_EQ(gml_method_named(gml_method_name((gml_method)method)), method);
    }
    CHECK(!strcmp(gml_method_name(GML_METHOD_COUNT), "unknown"));
    CHECK_EQ(gml_method_named("unknown"), GML_METHOD_COUNT);
    CHECK(!strcmp(gml_method_name(GML_METHOD_LOWEST_PEAK), "lowest-peak"));
}

TEST(nothing_to_place) {
    gml_problem problem = {0};
    gml_instance instance;
    uint32_t member = 0;
    uint64_t offset = 77, peak = 77;
    gml_budget budget = gml_budget_of(1, 0);
    CHECK_OK(gml_instance_open(&instance, &problem, &member, 0, NULL));
    gml_lowest *lowest = NULL;
    CHECK_OK(gml_lowest_open(&instance, &lowest));
    CHECK_OK(gml_lowest_run(lowest, &member, UINT64_MAX, &budget, &offset, &peak));
    CHECK_EQ(peak, 0);
    gml_lowest_close(lowest);
    peak = 77;
    CHECK_OK(gml_online_best_fit(&instance, &offset, &peak));
    CHECK_EQ(peak, 0);
    CHECK_EQ(offset, 77);
    gml_lowest_close(NULL);
    gml_instance_close(&instance);
}
