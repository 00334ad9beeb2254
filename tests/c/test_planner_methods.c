/* Best fit in the order of time against a slow twin, and better orders. */
#include "support/placing.h"

#include <string.h>

/* ---- best fit in the order of time ----------------------------------------------------------- */

/* Where best fit puts `size` bytes among the live, of which `order` lists all in ascending order.
 */
static uint64_t
best_gap(const gml_instance *instance, const uint64_t *offsets, const uint32_t *live, size_t count,
         uint64_t size, uint64_t extent)
{
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
static size_t
keep_live(const gml_instance *instance, uint32_t *live, size_t count, uint32_t slot)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (instance->end[live[i]] > slot) {
            live[kept++] = live[i];
        }
    }
    return kept;
}

static void
fit_slowly(const gml_instance *instance, uint64_t *offsets)
{
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

TEST(online_best_fit_agrees_with_its_slow_twin)
{
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

/* ---- better orders --------------------------------------------------------------------------- */

static const gml_method STARTS[] = {GML_METHOD_FIRST_FIT_SIZE, GML_METHOD_LOWEST_AREA,
                                    GML_METHOD_STALLOC};

/* A placement to begin with; the order that gml_improve() is to be given. */
static const uint32_t *
start_with(placing *f, gml_method method)
{
    if (method == GML_METHOD_FIRST_FIT_SIZE) {
        CHECK_OK(
            gml_first_fit(&f->instance, f->order, UINT64_MAX, &f->budget, f->offsets, &f->peak));
        return f->order;
    }
    if (method == GML_METHOD_LOWEST_AREA) {
        CHECK_OK(placing_run_lowest(f, UINT64_MAX));
        return f->order;
    }
    uint64_t top = 0; /* one above the other: the worst there is */
    for (size_t i = 0; i < f->instance.count; i++) {
        f->offsets[i] = top;
        top += f->instance.sizes[i];
    }
    f->peak = top;
    return NULL;
}

/* By work alone: the clock of a busy machine would end one run before the other. */
static gml_budget
budget_of_work(uint64_t milliseconds)
{
    gml_budget budget;
    gml_budget_begin(&budget, milliseconds);
    budget.deadline_ns = UINT64_MAX;
    return budget;
}

TEST(improving_never_makes_it_worse_and_is_repeatable)
{
    static placing f;
    check_random random = {29};
    size_t better = 0, runs = 0;
    for (int round = 0; round < 60; round++) {
        gml_method method = STARTS[round % 3];
        placing_random(&f, &random, (placing_kind){100, 80, 25, 20, round % 2 ? 80 : 0});
        const uint32_t *order = start_with(&f, method);
        uint64_t start = f.peak, peak = f.peak, offsets[PLACING_MOST];
        memcpy(offsets, f.offsets, sizeof offsets);
        f.budget = budget_of_work(5);
        CHECK_OK(gml_improve(&f.instance, method, order, 0, &f.budget, f.offsets, &f.peak));
        placing_check(&f.instance, f.offsets, f.peak);
        CHECK(f.peak <= start);
        better += f.peak < start;
        runs += start > f.instance.lower_bound;
        f.budget = budget_of_work(5);
        CHECK_OK(gml_improve(&f.instance, method, order, 0, &f.budget, offsets, &peak));
        CHECK_EQ(peak, f.peak);
        CHECK(memcmp(offsets, f.offsets, f.instance.count * sizeof *offsets) == 0);
        placing_close(&f);
    }
    CHECK(better * 10 >= runs * 9);
}

/* Moving what ended high does more than shaking alone, which leaves more than half. */
TEST(improving_closes_most_of_the_gap)
{
    static placing f;
    check_random random = {32};
    uint64_t before = 0, behind = 0;
    for (int round = 0; round < 20; round++) {
        placing_random(&f, &random, (placing_kind){300, 240, 80, 40, 0});
        const uint32_t *order = start_with(&f, STARTS[round % 2]);
        before += f.peak - f.instance.lower_bound;
        f.budget = budget_of_work(20);
        CHECK_OK(
            gml_improve(&f.instance, STARTS[round % 2], order, 0, &f.budget, f.offsets, &f.peak));
        behind += f.peak - f.instance.lower_bound;
        placing_close(&f);
    }
    CHECK(behind * 2 < before);
}

/* Some starts lead further than others; which ones is not known before. */
TEST(racing_gets_further_than_one_start)
{
    static placing f;
    check_random random = {33};
    uint64_t alone = 0, raced = 0;
    for (int round = 0; round < 20; round++) {
        gml_method method = STARTS[round % 2];
        placing_random(&f, &random, (placing_kind){150, 120, 40, 40, round % 4 < 2 ? 120 : 0});
        const uint32_t *order = start_with(&f, method);
        uint64_t start = f.peak, peak = f.peak, offsets[PLACING_MOST];
        memcpy(offsets, f.offsets, sizeof offsets);
        f.budget = budget_of_work(40);
        CHECK_OK(gml_improve(&f.instance, method, order, 0, &f.budget, offsets, &peak));
        alone += peak - f.instance.lower_bound;
        f.budget = budget_of_work(40);
        CHECK_OK(
            gml_race(&f.instance, method, order, UINT32_MAX, 0, &f.budget, f.offsets, &f.peak));
        CHECK(f.peak <= start);
        CHECK(f.peak == f.instance.lower_bound || f.budget.is_over);
        CHECK(f.budget.work < 2 * f.budget.work_limit);
        placing_check(&f.instance, f.offsets, f.peak);
        raced += f.peak - f.instance.lower_bound;
        placing_close(&f);
    }
    CHECK(raced < alone);
}

TEST(racing_starts_where_it_is_allowed_to)
{
    static placing f;
    check_random random = {34};
    placing_random(&f, &random, (placing_kind){150, 120, 40, 40, 120});
    start_with(&f, GML_METHOD_FIRST_FIT_SIZE);
    uint64_t start = f.peak, alone = f.peak, offsets[PLACING_MOST];
    memcpy(offsets, f.offsets, sizeof offsets);
    uint64_t before[PLACING_MOST];
    memcpy(before, f.offsets, sizeof before);
    gml_budget over = {.is_over = true};
    CHECK_OK(gml_race(&f.instance, GML_METHOD_FIRST_FIT_SIZE, f.order, UINT32_MAX, 0, &over,
                      f.offsets, &f.peak));
    CHECK_EQ(f.peak, start);
    f.budget = budget_of_work(40);
    CHECK_OK(gml_race(&f.instance, GML_METHOD_FIRST_FIT_SIZE, f.order, UINT32_MAX, start, &f.budget,
                      f.offsets, &f.peak));
    CHECK_EQ(f.peak, start); /* which is within the capacity */
    CHECK(memcmp(before, f.offsets, f.instance.count * sizeof *before) == 0);
    CHECK_OK(gml_race(&f.instance, GML_METHOD_FIRST_FIT_SIZE, f.order, 0, 0, &f.budget, f.offsets,
                      &f.peak));
    f.budget = budget_of_work(40);
    CHECK_OK(gml_improve(&f.instance, GML_METHOD_FIRST_FIT_SIZE, f.order, 0, &f.budget, offsets,
                         &alone));
    CHECK_EQ(f.peak, alone); /* with one racer, the same turns */
    placing_close(&f);
}

TEST(improving_stops_where_it_may)
{
    static placing f;
    check_random random = {30};
    placing_random(&f, &random, (placing_kind){150, 100, 30, 20, 0});
    const uint32_t *order = start_with(&f, GML_METHOD_LOWEST_AREA);
    uint64_t start = f.peak, first = f.offsets[0];
    uint64_t work = f.budget.work;
    CHECK_OK(gml_improve(&f.instance, GML_METHOD_LOWEST_AREA, order, start, &f.budget, f.offsets,
                         &f.peak));
    CHECK_EQ(f.peak, start);
    CHECK_EQ(f.budget.work, work);
    gml_budget over;
    gml_budget_begin(&over, 0);
    CHECK_OK(gml_improve(&f.instance, GML_METHOD_LOWEST_AREA, order, 0, &over, f.offsets, &f.peak));
    CHECK_EQ(f.peak, start);
    CHECK_EQ(f.offsets[0], first);
    CHECK_OK(gml_improve(&f.instance, GML_METHOD_LOWEST_AREA, order, start - PLACING_UNIT,
                         &f.budget, f.offsets, &f.peak));
    CHECK(f.peak < start);
    CHECK(f.budget.work < f.budget.work_limit);
    placing_close(&f);
}

/* First fit in the order of addresses alone undoes a stack. */
TEST(improving_places_anew_without_an_order)
{
    static placing f;
    check_random random = {31};
    placing_random(&f, &random, (placing_kind){100, 1000, 2, 20, 0});
    const uint32_t *order = start_with(&f, GML_METHOD_STALLOC);
    uint64_t start = f.peak;
    CHECK_OK(gml_improve(&f.instance, GML_METHOD_STALLOC, order, 0, &f.budget, f.offsets, &f.peak));
    placing_check(&f.instance, f.offsets, f.peak);
    CHECK(f.peak * 10 < start);
    placing_close(&f);
}

/* Two wrapped lifetimes, one on top of the other, leave room below the upper one that the skyline
 * does not see; what else there is makes every other cut of the circle dearer. */
TEST(improving_fills_the_room_below_wrapped_lifetimes)
{
    static placing f;
    static const uint64_t LIVES[][3] = {{10, 40, 110}, {10, 90, 160}, {10, 10, 40}, {10, 60, 90},
                                        {20, 5, 15},   {1, 12, 38},   {1, 42, 58},  {1, 62, 88},
                                        {20, 35, 45},  {20, 55, 65},  {20, 85, 95}};
    enum { COUNT = sizeof LIVES / sizeof *LIVES };
    for (size_t i = 0; i < COUNT; i++) {
        f.lifetimes[i] = (gml_lifetime){
            .size_bytes = LIVES[i][0] * PLACING_UNIT, .start = LIVES[i][1], .end = LIVES[i][2]};
    }
    placing_open(&f, COUNT, 100);
    const uint32_t *order = start_with(&f, GML_METHOD_LOWEST_AREA);
    CHECK_EQ(f.peak, 51 * PLACING_UNIT);
    gml_budget_begin(&f.budget, 10);
    CHECK_OK(
        gml_improve(&f.instance, GML_METHOD_LOWEST_AREA, order, 0, &f.budget, f.offsets, &f.peak));
    placing_check(&f.instance, f.offsets, f.peak);
    CHECK_EQ(f.peak, 41 * PLACING_UNIT);
    placing_close(&f);
}

TEST(nothing_to_place)
{
    gml_problem problem = {0};
    gml_instance instance;
    uint32_t member = 0;
    uint64_t offset = 77, peak = 77;
    gml_budget budget;
    gml_budget_begin(&budget, 1);
    CHECK_OK(gml_instance_open(&instance, &problem, &member, 0, NULL));
    gml_lowest *lowest = NULL;
    CHECK_OK(gml_lowest_open(&instance, &lowest));
    CHECK_OK(gml_lowest_run(lowest, &member, UINT64_MAX, &budget, &offset, &peak));
    CHECK_EQ(peak, 0);
    gml_lowest_close(lowest);
    peak = 77;
    CHECK_OK(gml_online_best_fit(&instance, &offset, &peak));
    CHECK_EQ(peak, 0);
    CHECK_OK(gml_improve(&instance, GML_METHOD_STALLOC, NULL, 0, &budget, &offset, &peak));
    CHECK_EQ(peak, 0);
    CHECK_EQ(offset, 77);
    gml_lowest_close(NULL);
    gml_instance_close(&instance);
}

int
main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    RUN(online_best_fit_agrees_with_its_slow_twin);
    RUN(improving_never_makes_it_worse_and_is_repeatable);
    RUN(improving_closes_most_of_the_gap);
    RUN(racing_gets_further_than_one_start);
    RUN(racing_starts_where_it_is_allowed_to);
    RUN(improving_stops_where_it_may);
    RUN(improving_places_anew_without_an_order);
    RUN(improving_fills_the_room_below_wrapped_lifetimes);
    RUN(nothing_to_place);
    return report();
}
