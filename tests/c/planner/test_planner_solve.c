/* The solver as a whole: valid, repeatable, and low where that is easy. */
#include "planner/instance.h"
#include "planner/support/problems.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 200, QUICK_MS = 20 };

static gml_status solve(const gml_problem *problem, const gml_planner_options *options,
                        uint64_t *offsets, gml_solution *out) {
    char reason[REASON_BYTES] = "";
    gml_status status = gml_planner_solve(problem, options, offsets, out, reason, sizeof reason);
    check_true(status == GML_OK, reason, __FILE__, __LINE__);
    return status;
}

static void check_solution(const gml_problem *problem, const gml_planner_options *options) {
    uint64_t offsets[MOST], again[MOST];
    gml_solution solution, second;
    char reason[REASON_BYTES];
    if (solve(problem, options, offsets, &solution) != GML_OK) {
        return;
    }
    CHECK_OK(gml_planner_check(problem, offsets, solution.peak_bytes, reason, sizeof reason));
    CHECK(solution.peak_bytes >= solution.lower_bound_bytes);
    CHECK(solution.is_proven || solution.peak_bytes > solution.lower_bound_bytes);
    for (size_t i = 0; i < problem->count; i++) {
        CHECK(offsets[i] != GML_NO_OFFSET);
    }
    CHECK_OK(solve(problem, options, again, &second));
    CHECK_EQ(second.peak_bytes, solution.peak_bytes);
    CHECK(strcmp(second.method, solution.method) == 0);
    CHECK(!memcmp(offsets, again, problem->count * sizeof *offsets));
}

TEST(solutions_are_valid_and_repeat) {
    check_random random = {6};
    static example_problem example;
    for (int round = 0; round < 200 && !check_failures(); round++) {
        problem_shape shape = random_shape(&random);
        make_example(&example, &random, &shape);
        gml_planner_options options = {.budget_ms = 1 + check_below(&random, 3)};
        check_solution(&example.problem, &options);
    }
}

TEST(a_capacity_is_enough) {
    check_random random = {11};
    static example_problem example;
    problem_shape shape = {.count = MOST, .horizon = 40, .alignment = 1};
    for (int round = 0; round < 20; round++) {
        make_example(&example, &random, &shape);
        uint64_t offsets[MOST];
        gml_solution best, fitting;
        gml_planner_options options = {.budget_ms = QUICK_MS};
        CHECK_OK(solve(&example.problem, &options, offsets, &best));
        options.capacity_bytes = best.peak_bytes + best.peak_bytes / 5;
        CHECK_OK(solve(&example.problem, &options, offsets, &fitting));
        CHECK(fitting.peak_bytes <= options.capacity_bytes);
        options.capacity_bytes = UINT64_MAX; /* whatever comes first will do */
        CHECK_OK(solve(&example.problem, &options, offsets, &fitting));
        CHECK(strcmp(fitting.method, "online-best-fit") == 0);
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

static uint64_t peak_of_two_streams(const gml_ordering *ordering) {
    gml_lifetime lifetimes[] = {{.size_bytes = 512, .start = 0, .end = 2, .stream = 1},
                                {.size_bytes = 512, .start = 5, .end = 7, .stream = 2}};
    gml_problem problem = {
        .lifetimes = lifetimes, .count = 2, .orderings = ordering, .ordering_count = !!ordering};
    uint64_t offsets[2];
    gml_solution solution;
    CHECK_OK(solve(&problem, NULL, offsets, &solution));
    CHECK_EQ(solution.lower_bound_bytes, solution.peak_bytes);
    return solution.peak_bytes;
}

TEST(streams_share_only_what_is_ordered) {
    CHECK_EQ(peak_of_two_streams(NULL), 1024);
    for (uint64_t time = 0; time < 9; time++) {
        gml_ordering right = {time, 1, 2}, wrong = {time, 2, 1};
        CHECK_EQ(peak_of_two_streams(&right), time >= 2 && time <= 5 ? 512 : 1024);
        CHECK_EQ(peak_of_two_streams(&wrong), 1024);
    }
}

/* Each stream reuses its memory at once, and another's from the next ordering on. Neither a lane
 * for each stream nor one for lives lengthened to that ordering comes near. */
TEST(streams_take_over_from_each_other) {
    enum { STREAMS = 4, EACH = 12, PARTS = 4, LENGTH = 100 };
    static gml_lifetime lifetimes[STREAMS * PARTS * EACH];
    static uint64_t offsets[STREAMS * PARTS * EACH];
    static gml_ordering orderings[PARTS * STREAMS * STREAMS];
    size_t count = 0, ordered = 0;
    for (uint64_t part = 0; part < PARTS; part++) {
        for (uint64_t stream = 0; stream < STREAMS; stream++) {
            for (uint64_t i = 0; i < EACH; i++) {
                uint64_t start = part * LENGTH + i * STREAMS + stream;
                lifetimes[count++] = (gml_lifetime){
                    .size_bytes = part == stream ? 100 * 512 : 512,
                    .start = start,
                    .end = start + STREAMS,
                    .stream = stream,
                };
            }
            for (uint64_t other = 0; other < STREAMS; other++) {
                orderings[ordered++] = (gml_ordering){(part + 1) * LENGTH, stream, other};
            }
        }
    }
    gml_problem problem = {
        .lifetimes = lifetimes, .count = count, .orderings = orderings, .ordering_count = ordered};
    gml_solution solution;
    CHECK_OK(solve(&problem, NULL, offsets, &solution));
    CHECK_EQ(solution.lower_bound_bytes, (100 + STREAMS - 1) * 512);
    CHECK_EQ(solution.peak_bytes, solution.lower_bound_bytes);
    CHECK(solution.is_proven);
    CHECK(strcmp(solution.method, "order-search") == 0);
    problem.ordering_count = 0;
    CHECK_OK(solve(&problem, NULL, offsets, &solution));
    CHECK_EQ(solution.peak_bytes, STREAMS * 100 * 512);
}

TEST(a_life_through_several_orderings_is_in_each_bound) {
    const gml_lifetime lifetimes[] = {
        {.size_bytes = 512, .start = 0, .end = 300, .stream = 1},
        {.size_bytes = 1024, .start = 110, .end = 120, .stream = 2},
        {.size_bytes = 1024, .start = 210, .end = 220, .stream = 3},
    };
    gml_ordering orderings[12];
    size_t count = 0;
    for (uint64_t time = 100; time <= 200; time += 100) {
        for (uint64_t pair = 0; pair < 9; pair++) {
            if (pair / 3 != pair % 3) {
                orderings[count++] = (gml_ordering){time, 1 + pair / 3, 1 + pair % 3};
            }
        }
    }
    gml_problem problem = {
        .lifetimes = lifetimes, .count = 3, .orderings = orderings, .ordering_count = count};
    uint64_t offsets[3];
    gml_solution solution;
    CHECK_OK(solve(&problem, NULL, offsets, &solution));
    CHECK_EQ(solution.lower_bound_bytes, 512 + 1024);
    CHECK_EQ(solution.peak_bytes, solution.lower_bound_bytes);
}

/* Requests of few sizes on ten streams, ordered now and then. Lanes of their own take 23 % more
 * than the bound and first fit in a few orders 2.7 %; changes of the best order leave 0.9 %. */
TEST(other_orders_bring_streams_close_to_the_bound) {
    enum { COUNT = 600, STREAMS = 10, ROUNDS = 6, MOMENTS = 8, SPAN = 2 * COUNT };
    static gml_lifetime lifetimes[COUNT];
    static uint64_t offsets[COUNT];
    static gml_ordering orderings[MOMENTS * STREAMS * STREAMS];
    check_random random = {77};
    uint64_t peaks = 0, bounds = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t sizes[8];
        size_t ordered = 0;
        for (size_t i = 0; i < 8; i++) {
            sizes[i] = 512 * (1 + check_below(&random, 400));
        }
        for (size_t i = 0; i < COUNT; i++) {
            uint64_t start = check_below(&random, SPAN);
            lifetimes[i] = (gml_lifetime){
                .size_bytes = sizes[check_below(&random, 8)],
                .start = start,
                .end = start + 1 + check_below(&random, 80),
                .stream = check_below(&random, STREAMS),
            };
        }
        for (uint64_t i = 0; i < MOMENTS; i++) {
            uint64_t time = check_below(&random, SPAN);
            for (uint64_t pair = 0; pair < STREAMS * STREAMS; pair++) {
                if (pair / STREAMS != pair % STREAMS) {
                    orderings[ordered++] = (gml_ordering){time, pair / STREAMS, pair % STREAMS};
                }
            }
        }
        gml_problem problem = {.lifetimes = lifetimes,
                               .count = COUNT,
                               .orderings = orderings,
                               .ordering_count = ordered};
        gml_planner_options options = {.budget_ms = 300};
        gml_solution solution;
        CHECK_OK(solve(&problem, &options, offsets, &solution));
        peaks += solution.peak_bytes;
        bounds += solution.lower_bound_bytes;
    }
    CHECK(peaks < bounds + bounds / 90);
}

/* Three streams, of which one alone waits for another: what a bound for all of them would add up is
 * still shared by these two. */
TEST(the_bound_knows_orderings_of_two_streams) {
    const gml_lifetime lifetimes[] = {
        {.size_bytes = 512, .start = 0, .end = 1, .stream = 1},
        {.size_bytes = 512, .start = 2, .end = 3, .stream = 2},
        {.size_bytes = 512, .start = 4, .end = 5, .stream = 3},
    };
    const gml_ordering ordering = {1, 1, 2};
    gml_problem problem = {
        .lifetimes = lifetimes, .count = 3, .orderings = &ordering, .ordering_count = 1};
    const gml_planner_options options = {.budget_ms = QUICK_MS};
    uint64_t offsets[3];
    gml_solution solution;
    CHECK_OK(solve(&problem, &options, offsets, &solution));
    CHECK_EQ(solution.lower_bound_bytes, 2 * 512);
}

/* ---- edges ----------------------------------------------------------------------------------- */

TEST(what_is_refused) {
    const uint64_t large = UINT64_C(1) << 48;
    const gml_lifetime good = {.size_bytes = 1, .end = 1};
    gml_lifetime bad[] = {
        {.size_bytes = 0, .end = 1},
        {.size_bytes = large + 1, .end = 1},
        {.size_bytes = 1},
        {.size_bytes = 1, .start = 2, .end = 1},
    };
    gml_solution solution;
    uint64_t offset = 0;
    char reason[REASON_BYTES];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gml_problem problem = {.lifetimes = &bad[i], .count = 1};
        reason[0] = 0;
        CHECK_STATUS(gml_planner_solve(&problem, NULL, &offset, &solution, reason, sizeof reason),
                     GML_INVALID_ARGUMENT);
        CHECK(reason[0] != 0);
    }
    gml_ordering ordering = {0, 0, 1};
    gml_lifetime late = {.size_bytes = 1, .start = 4, .end = 5};
    gml_lifetime over = {.size_bytes = 1, .start = 3, .end = 8};
    gml_problem problems[] = {
        {.lifetimes = &good, .count = 1, .alignment_bytes = 48},
        {.lifetimes = &late, .count = 1, .period = 4},
        {.lifetimes = &over, .count = 1, .period = 4},
        {.lifetimes = &good, .count = 1, .period = 1, .orderings = &ordering, .ordering_count = 1},
        {.count = 1},
    };
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        CHECK_STATUS(gml_planner_solve(&problems[i], NULL, &offset, &solution, NULL, 0),
                     GML_INVALID_ARGUMENT);
    }
}

TEST(sums_above_2_to_62_are_refused) {
    enum { COUNT = (1 << 14) + 1 };
    gml_lifetime *lifetimes = calloc(COUNT, sizeof *lifetimes);
    for (size_t i = 0; i < COUNT; i++) {
        lifetimes[i] = (gml_lifetime){.size_bytes = UINT64_C(1) << 48, .end = 1};
    }
    gml_problem problem = {.lifetimes = lifetimes, .count = COUNT};
    CHECK_STATUS(gml_problem_check(&problem, NULL, 0), GML_INVALID_ARGUMENT);
    problem.count--;
    CHECK_OK(gml_problem_check(&problem, NULL, 0));
    free(lifetimes);
}

/* ---- training -------------------------------------------------------------------------------- */

/* Forward and backward through `layers`, `micros` times. */
static size_t make_training(gml_lifetime *lifetimes, uint64_t layers, uint64_t micros) {
    size_t count = 0;
    uint64_t time = 0;
    for (uint64_t micro = 0; micro < micros; micro++) {
        size_t first = count;
        uint64_t length = 512 * (16 + micro % 5);
        for (uint64_t layer = 0; layer < layers; layer++) {
            for (uint64_t part = 1; part <= 4; part++) {
                lifetimes[count++] = (gml_lifetime){.size_bytes = length * part, .start = time++};
                lifetimes[count] = (gml_lifetime){.size_bytes = length, .start = time, .end = 0};
                time += 2;
                lifetimes[count++].end = time - 1;
            }
        }
        for (size_t i = count; i-- > first;) {
            if (!lifetimes[i].end) {
                lifetimes[i].end = ++time;
            }
        }
    }
    return count;
}

TEST(training_meets_the_bound) {
    enum { LAYERS = 24, MICROS = 30, COUNT = 8 * LAYERS * MICROS };
    gml_lifetime *lifetimes = calloc(COUNT, sizeof *lifetimes);
    uint64_t *offsets = calloc(COUNT, sizeof *offsets);
    gml_problem problem = {.lifetimes = lifetimes,
                           .count = make_training(lifetimes, LAYERS, MICROS)};
    CHECK_EQ(problem.count, COUNT);
    gml_solution solution;
    CHECK_OK(solve(&problem, NULL, offsets, &solution));
    CHECK_EQ(solution.peak_bytes, solution.lower_bound_bytes);
    free(lifetimes);
    free(offsets);
}
