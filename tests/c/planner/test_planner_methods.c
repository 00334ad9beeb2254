/* Best fit in the order of time against a slow twin, and the methods together. */
#include "planner/support/placing.h"

#include <string.h>

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
