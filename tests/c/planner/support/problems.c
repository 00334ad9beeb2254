#include "planner/support/problems.h"

static void make_lifetime(gml_lifetime *lifetime, check_random *random,
                          const problem_shape *shape) {
    uint64_t most_life = shape->period ? shape->period : 1 + shape->horizon / 3;
    *lifetime = (gml_lifetime){
        .size_bytes = 1 + check_below(random, 4000),
        .start = check_below(random, shape->period ? shape->period : shape->horizon),
        .stream = 100 * check_below(random, shape->streams ? shape->streams : 1),
    };
    lifetime->end = lifetime->start + 1 + check_below(random, most_life);
}

void make_example(example_problem *example, check_random *random, const problem_shape *shape) {
    for (size_t i = 0; i < shape->count; i++) {
        make_lifetime(&example->lifetimes[i], random, shape);
    }
    for (size_t i = 0; i < shape->orderings; i++) {
        example->orderings[i] = (gml_ordering){check_below(random, shape->horizon),
                                               100 * check_below(random, shape->streams),
                                               100 * check_below(random, shape->streams)};
    }
    example->problem = (gml_problem){
        .lifetimes = example->lifetimes,
        .count = shape->count,
        .period = shape->period,
        .alignment_bytes = shape->alignment,
        .orderings = example->orderings,
        .ordering_count = shape->orderings,
    };
}

problem_shape random_shape(check_random *random) {
    problem_shape shape = {
        .count = 1 + check_below(random, MOST - 1),
        .alignment = (uint64_t[]){0, 1, 16, 4096}[check_below(random, 4)],
        .horizon = 1 + check_below(random, 60),
        .streams = check_below(random, 3) ? 1 : 1 + check_below(random, 4),
    };
    if (!check_below(random, 3)) {
        shape.period = 1 + check_below(random, 60);
    } else if (shape.streams > 1) {
        shape.orderings = check_below(random, 40);
    }
    return shape;
}

/* ---- models ---------------------------------------------------------------------------------- */

static bool is_live(const gml_lifetime *lifetime, uint64_t period, uint64_t time) {
    return (lifetime->start <= time && time < lifetime->end) ||
           (period && time + period < lifetime->end);
}

/* At some start, for what meets meets first where one of the two begins. */
bool meet(const gml_problem *problem, uint32_t a, uint32_t b) {
    const gml_lifetime *one = &problem->lifetimes[a], *other = &problem->lifetimes[b];
    return is_live(one, problem->period, other->start) ||
           is_live(other, problem->period, one->start);
}

uint64_t rounded(const gml_problem *problem, uint32_t i) {
    uint64_t unit = gml_problem_alignment(problem);
    return (problem->lifetimes[i].size_bytes + unit - 1) / unit * unit;
}

uint64_t model_contention(const gml_problem *problem, const gml_lifetime *like) {
    uint64_t most = 0;
    for (size_t k = 0; k < problem->count; k++) {
        /* sums rise only at starts; a life also begins in the middle of others' */
        uint64_t times[2] = {problem->lifetimes[k].start, like->start};
        for (int t = 0; t < 2; t++) {
            uint64_t sum = 0;
            for (uint32_t i = 0; i < problem->count; i++) {
                bool counts = is_live(&problem->lifetimes[i], problem->period, times[t]);
                sum += counts ? rounded(problem, i) : 0;
            }
            bool is_inside = is_live(like, problem->period, times[t]);
            most = is_inside && sum > most ? sum : most;
        }
    }
    return most;
}
