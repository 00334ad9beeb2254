/* What the solver is made of, against plain models: sorting, problems made ready, first fit
 * and budgets. */
#include "base/sort.h"
#include "planner/methods.h"
#include "planner/support/problems.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

static gml_instance open_all(const gml_problem *problem) {
    uint32_t members[MOST];
    for (uint32_t i = 0; i < problem->count; i++) {
        members[i] = i;
    }
    gml_instance instance;
    CHECK_OK(gml_instance_open(&instance, problem, members, problem->count, NULL));
    return instance;
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
