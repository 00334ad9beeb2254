/* What the solver is made of, against plain models: sorting, problems made ready, first fit
 * and budgets. */
#include "base/sort.h"
#include "planner/methods.h"
#include "planner/support/problems.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 200 };

static gml_instance open_all(const gml_problem *problem) {
    uint32_t members[MOST];
    for (uint32_t i = 0; i < problem->count; i++) {
        members[i] = i;
    }
    gml_instance instance;
    CHECK_OK(gml_instance_open(&instance, problem, members, problem->count, NULL));
    return instance;
}

/* ---- sorting --------------------------------------------------------------------------------- */

TEST(sort_is_stable) {
    check_random random = {1};
    enum { MOST_KEYS = 9000 };
    static gml_keyed items[MOST_KEYS], scratch[MOST_KEYS];
    for (int round = 0; round < 60; round++) {
        size_t count = check_below(&random, (uint64_t[]){40, 300, MOST_KEYS}[round % 3]);
        unsigned shift = round % 2 ? 60 : (unsigned)check_below(&random, 64);
        for (size_t i = 0; i < count; i++) {
            items[i] = (gml_keyed){check_next(&random) >> shift, i};
        }
        gml_sort_keyed(items, scratch, count);
        for (size_t i = 1; i < count; i++) {
            bool is_ordered =
                items[i - 1].key < items[i].key ||
                (items[i - 1].key == items[i].key && items[i - 1].index < items[i].index);
            if (!CHECK(is_ordered)) {
                return;
            }
        }
    }
}

/* ---- instances ------------------------------------------------------------------------------- */

static void check_instance(const gml_problem *problem) {
    gml_instance instance = open_all(problem);
    uint64_t most_live = 0;
    for (size_t a = 0; a < instance.count; a++) {
        const gml_lifetime *lifetime = &problem->lifetimes[instance.lifetime[a]];
        uint64_t contention = model_contention(problem, lifetime);
        most_live = contention > most_live ? contention : most_live;
        CHECK_EQ(instance.contention[a], contention);
        uint64_t turned = lifetime->start + problem->period - instance.origin;
        CHECK_EQ(instance.start[a], problem->period ? turned % problem->period : lifetime->start);
        CHECK_EQ(instance.life[a], lifetime->end - lifetime->start);
        CHECK_EQ(instance.sizes[a], rounded(problem, instance.lifetime[a]));
        CHECK(a == 0 || instance.begin[a - 1] <= instance.begin[a]);
        CHECK(instance.begin[a] < instance.slots && instance.end[a] <= instance.slots);
        for (size_t b = 0; b < instance.count; b++) {
            CHECK_EQ(gml_items_meet(&instance, a, b),
                     meet(problem, instance.lifetime[a], instance.lifetime[b]));
        }
    }
    CHECK_EQ(gml_instance_most_live(&instance), most_live);
    CHECK_EQ(instance.lower_bound, most_live);
    gml_instance_close(&instance);
}

TEST(instance_agrees_with_its_problem) {
    check_random random = {2};
    static example_problem example;
    for (int round = 0; round < 400 && !check_failures(); round++) {
        problem_shape shape = random_shape(&random);
        make_example(&example, &random, &shape);
        check_instance(&example.problem);
    }
}

TEST(instance_lives_as_long_as_the_given_ends) {
    gml_lifetime lifetimes[] = {{.size_bytes = 512, .start = 0, .end = 1},
                                {.size_bytes = 512, .start = 3, .end = 4},
                                {.size_bytes = 512, .start = 1, .end = 2}};
    gml_problem problem = {.lifetimes = lifetimes, .count = 3};
    uint32_t members[] = {2, 0};
    uint64_t ends[] = {9, 2};
    gml_instance instance;
    CHECK_OK(gml_instance_open(&instance, &problem, members, 2, ends));
    CHECK_EQ(instance.count, 2);
    CHECK_EQ(instance.lifetime[0], 0);
    CHECK_EQ(instance.life[0], 2);
    CHECK_EQ(instance.lifetime[1], 2);
    CHECK_EQ(instance.life[1], 8);
    CHECK_EQ(instance.lower_bound, 1024);
    gml_instance_close(&instance);
}

/* Where the period begins does not matter where something else has a better beginning. */
TEST(periods_begin_where_least_is_live) {
    gml_lifetime lifetimes[] = {{.size_bytes = 512, .start = 8, .end = 13},
                                {.size_bytes = 512, .start = 2, .end = 5},
                                {.size_bytes = 512, .start = 6, .end = 9},
                                {.size_bytes = 512, .start = 1, .end = 3}};
    gml_problem problem = {.lifetimes = lifetimes, .count = 4, .period = 10};
    gml_instance instance = open_all(&problem);
    CHECK_EQ(instance.origin, 5);
    CHECK_EQ(instance.wrapped_count, 0);
    gml_instance_close(&instance);
}

/* ---- first fit ------------------------------------------------------------------------------- */

/* Whether `item` could lie at `offset` without touching what was placed before it. */
static bool fits(const gml_instance *instance, const uint32_t *order, size_t placed,
                 const uint64_t *offsets, uint32_t item, uint64_t offset) {
    uint64_t end = offset + instance->sizes[item];
    for (size_t i = 0; i < placed; i++) {
        uint32_t other = order[i];
        if (gml_items_meet(instance, item, other) && offsets[other] < end &&
            offset < offsets[other] + instance->sizes[other]) {
            return false;
        }
    }
    return true;
}

static uint64_t model_first_fit(const gml_instance *instance, const gml_problem *problem,
                                const uint32_t *order, uint64_t *offsets) {
    uint64_t peak = 0, unit = gml_problem_alignment(problem);
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t item = order[i];
        uint64_t offset = 0;
        while (!fits(instance, order, i, offsets, item, offset)) {
            offset += unit;
        }
        offsets[item] = offset;
        uint64_t end = offset + instance->sizes[item];
        peak = end > peak ? end : peak;
    }
    return peak;
}

static void shuffle(uint32_t *order, size_t count, check_random *random) {
    for (size_t i = 0; i < count; i++) {
        size_t other = check_below(random, i + 1);
        order[i] = order[other];
        order[other] = (uint32_t)i;
    }
}

TEST(first_fit_is_first_fit) {
    check_random random = {3};
    static example_problem example;
    for (int round = 0; round < 400 && !check_failures(); round++) {
        problem_shape shape = random_shape(&random);
        shape.alignment = shape.alignment == 1 ? 64 : shape.alignment;
        make_example(&example, &random, &shape);
        gml_instance instance = open_all(&example.problem);
        uint32_t order[MOST];
        uint64_t expected[MOST], offsets[MOST], peak = 0;
        shuffle(order, instance.count, &random);
        uint64_t expected_peak = model_first_fit(&instance, &example.problem, order, expected);
        gml_budget budget = gml_budget_of(UINT64_MAX, 1);
        CHECK_OK(gml_first_fit(&instance, order, expected_peak, &budget, offsets, &peak));
        CHECK_EQ(peak, expected_peak);
        CHECK(!memcmp(offsets, expected, instance.count * sizeof *offsets));
        gml_instance_close(&instance);
    }
}

/* Thousands of items, so that lists grow and merge; valid by the independent check. */
TEST(first_fit_of_many) {
    enum { MANY = 6000 };
    check_random random = {4};
    gml_lifetime *lifetimes = calloc(MANY, sizeof *lifetimes);
    uint32_t *order = calloc(MANY, sizeof *order);
    uint64_t *found = calloc(MANY, sizeof *found), *offsets = calloc(MANY, sizeof *offsets);
    for (uint32_t i = 0; i < MANY; i++) {
        order[i] = i;
        uint64_t start = check_below(&random, 10000);
        lifetimes[i] = (gml_lifetime){.size_bytes = 512 * (1 + check_below(&random, 50)),
                                      .start = start,
                                      .end = start + 1 + check_below(&random, 900)};
    }
    gml_problem problem = {.lifetimes = lifetimes, .count = MANY, .period = 10000};
    gml_instance instance;
    CHECK_OK(gml_instance_open(&instance, &problem, order, MANY, NULL));
    CHECK(instance.wrapped_count > 100);
    shuffle(order, MANY, &random);
    gml_budget budget = gml_budget_of(UINT64_MAX, 1);
    uint64_t peak = 0;
    CHECK_OK(gml_first_fit(&instance, order, UINT64_MAX, &budget, found, &peak));
    for (size_t i = 0; i < MANY; i++) {
        offsets[instance.lifetime[i]] = found[i];
    }
    char reason[REASON_BYTES];
    CHECK_OK(gml_planner_check(&problem, offsets, peak, reason, sizeof reason));
    CHECK(peak < 2 * instance.lower_bound);
    gml_instance_close(&instance);
    free(lifetimes);
    free(order);
    free(found);
    free(offsets);
}

/* ---- other orders ---------------------------------------------------------------------------- */

/* From a placement in which nothing shares, and with whichever budget. */
TEST(first_fit_in_other_orders_improves_a_placement) {
    check_random random = {31};
    static example_problem example;
    for (int round = 0; round < 60; round++) {
        problem_shape shape = random_shape(&random);
        shape.orderings = 0;
        shape.streams = 1;
        shape.period = round % 2 ? shape.period : 0;
        make_example(&example, &random, &shape);
        gml_instance instance = open_all(&example.problem);
        uint64_t offsets[MOST], apart[MOST], peak = 0;
        for (size_t i = 0; i < instance.count; i++) {
            offsets[i] = apart[i] = peak;
            peak += instance.sizes[i];
        }
        uint64_t before = peak, nothing = peak;
        bool is_better;
        gml_budget none = {0};
        CHECK_OK(gml_first_fit_improve(&instance, 0, &none, offsets, &nothing, &is_better));
        CHECK(!is_better && nothing == before);
        CHECK(!memcmp(offsets, apart, instance.count * sizeof *offsets));
        gml_budget budget = {.limit = 200000};
        CHECK_OK(gml_first_fit_improve(&instance, instance.lower_bound, &budget, offsets, &peak,
                                       &is_better));
        CHECK(is_better ? peak < before : peak == before);
        CHECK(is_better || shape.period || instance.lower_bound == before);
        CHECK_EQ(gml_instance_peak(&instance, offsets), peak);
        for (size_t a = 0; a < instance.count; a++) {
            for (size_t b = 0; b < a; b++) {
                CHECK(!gml_items_meet(&instance, a, b) ||
                      offsets[a] + instance.sizes[a] <= offsets[b] ||
                      offsets[b] + instance.sizes[b] <= offsets[a]);
            }
        }
        gml_instance_close(&instance);
    }
}

TEST(first_fit_gives_up) {
    gml_lifetime lifetimes[] = {{.size_bytes = 512, .start = 0, .end = 2},
                                {.size_bytes = 512, .start = 1, .end = 3}};
    gml_problem problem = {.lifetimes = lifetimes, .count = 2};
    gml_instance instance = open_all(&problem);
    uint32_t order[] = {0, 1};
    uint64_t offsets[] = {7, 7}, peak = 7;
    gml_budget budget = gml_budget_of(UINT64_MAX, 1);
    CHECK_STATUS(gml_first_fit(&instance, order, 1023, &budget, offsets, &peak), GML_NOT_READY);
    budget = gml_budget_of(0, 1);
    CHECK_STATUS(gml_first_fit(&instance, order, 1024, &budget, offsets, &peak), GML_NOT_READY);
    CHECK_EQ(offsets[0], 7);
    CHECK_EQ(peak, 7);
    gml_instance_close(&instance);
}

/* ---- budgets --------------------------------------------------------------------------------- */

TEST(a_millisecond_is_a_budget) {
    CHECK_EQ(gml_budget_of(1, 0).limit, GML_WORK_PER_MS);
    CHECK_EQ(gml_budget_of(1, GML_WORK_CACHED_COUNT).limit, GML_WORK_PER_MS / 2);
    CHECK_EQ(gml_budget_of(1000, 3 * GML_WORK_CACHED_COUNT).limit, 250 * GML_WORK_PER_MS);
    CHECK(gml_budget_of(UINT64_MAX, 1).limit > UINT64_MAX / 2);
    CHECK_EQ(gml_budget_of(0, 5).limit, 0);
}

TEST(budget_ends_after_its_work) {
    gml_budget whole = gml_budget_of(1000, 10);
    CHECK(!gml_budget_spend(&whole, 1));
    uint64_t limit = whole.limit;
    gml_budget part = gml_budget_part(&whole, 1, 4);
    CHECK_EQ(part.limit, (limit - 1) / 4);
    CHECK(!gml_budget_spend(&part, part.limit - 1));
    CHECK(gml_budget_spend(&part, 1));
    CHECK(gml_budget_is_over(&part));
    CHECK(!gml_budget_spend(&whole, part.work));
    CHECK(gml_budget_spend(&whole, limit));
    part = gml_budget_part(&whole, 1, 1);
    CHECK(gml_budget_is_over(&part));
}

TEST(budget_may_be_endless_or_nothing) {
    gml_budget budget = gml_budget_of(UINT64_MAX, 10);
    CHECK(!gml_budget_spend(&budget, UINT64_C(1) << 60));
    gml_budget part = gml_budget_part(&budget, 3, 4);
    CHECK(!gml_budget_spend(&part, UINT64_C(1) << 60));
    budget = gml_budget_of(0, 10);
    CHECK(gml_budget_is_over(&budget));
}

TEST(budget_counts_more_for_a_visit_of_a_large_input) {
    uint64_t last = UINT64_MAX, full = gml_budget_of(1000, 0).limit;
    for (size_t count = 1; count < 10000000; count *= 10) {
        uint64_t limit = gml_budget_of(1000, count).limit;
        CHECK(limit <= last && limit > full / 30);
        CHECK(count > 10000 || limit > full / 10 * 9);
        last = limit;
    }
    CHECK(
        !gml_budget_is_over(&(gml_budget){.limit = gml_budget_of(UINT64_MAX, SIZE_MAX / 2).limit}));
}
