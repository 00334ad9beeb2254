/* The methods together, against each by itself. */
#include "planner/methods.h"
#include "support/check.h"

#include <string.h>

enum { QUICK_MS = 20, PLENTY_MS = 100000, MOST = 120, UNIT = 512, TIMES = 80 };

/* Random lifetimes ready to be placed, and an order of them. */
typedef struct contest {
    gml_lifetime lifetimes[MOST];
    gml_instance instance;
    uint32_t order[MOST];
    uint64_t offsets[MOST], peak;
} contest;

/* Every other one wraps. */
static void open_contest(contest *f, check_random *random, int round) {
    size_t count = 1 + check_below(random, MOST);
    uint32_t members[MOST];
    memset(f, 0, sizeof *f);
    for (size_t i = 0; i < count; i++) {
        uint64_t start = check_below(random, TIMES);
        f->lifetimes[i] = (gml_lifetime){.size_bytes = (1 + check_below(random, 30)) * UNIT,
                                         .start = start,
                                         .end = start + 1 + check_below(random, 40)};
        size_t other = check_below(random, i + 1);
        members[i] = (uint32_t)i;
        f->order[i] = f->order[other];
        f->order[other] = (uint32_t)i;
    }
    gml_problem problem = {
        .lifetimes = f->lifetimes, .count = count, .period = round % 2 ? TIMES : 0};
    CHECK_OK(gml_instance_open(&f->instance, &problem, members, count, NULL));
}

/* No two that meet overlap, and the peak is the largest end. */
static void check_placing(const contest *f, uint64_t peak_bytes) {
    const gml_instance *instance = &f->instance;
    size_t overlaps = 0;
    for (size_t i = 0; i < instance->count; i++) {
        for (size_t j = 0; j < i; j++) {
            overlaps += gml_items_meet(instance, i, j) &&
                        f->offsets[i] < f->offsets[j] + instance->sizes[j] &&
                        f->offsets[j] < f->offsets[i] + instance->sizes[i];
        }
    }
    CHECK_EQ(overlaps, 0);
    CHECK_EQ(gml_instance_peak(instance, f->offsets), peak_bytes);
    CHECK(peak_bytes >= instance->lower_bound);
}

static gml_placing place_all(contest *f, uint64_t milliseconds) {
    gml_placing found = {0};
    gml_budget budget = gml_budget_of(milliseconds, f->instance.count);
    CHECK_OK(gml_portfolio_place(&f->instance, 0, &budget, f->offsets, &found));
    check_placing(f, found.peak_bytes);
    return found;
}

TEST(together_they_are_as_good_as_each_in_any_order) {
    static contest f;
    check_random random = {8};
    uint64_t better = 0;
    for (int round = 0; round < 200; round++) {
        open_contest(&f, &random, round);
        uint64_t peak = place_all(&f, QUICK_MS).peak_bytes;
        gml_budget budget = gml_budget_of(PLENTY_MS, f.instance.count);
        CHECK_OK(gml_first_fit(&f.instance, f.order, UINT64_MAX, &budget, f.offsets, &f.peak));
        CHECK(round % 2 || peak <= f.peak); /* with the search, nothing is lower */
        better += peak < f.peak;
        if (!f.instance.wrapped_count) {
            CHECK_OK(gml_online_best_fit(&f.instance, f.offsets, &f.peak));
            CHECK(peak <= f.peak);
        }
        gml_instance_close(&f.instance);
    }
    CHECK(better > 100);
}

TEST(without_a_budget_first_fit_goes_on) {
    static contest f;
    check_random random = {9};
    for (int round = 0; round < 60; round++) {
        open_contest(&f, &random, round);
        gml_placing found = place_all(&f, 0);
        if (f.instance.wrapped_count) {
            CHECK_EQ(found.method, GML_METHOD_FIRST_FIT_LIFE);
        }
        gml_instance_close(&f.instance);
    }
}
