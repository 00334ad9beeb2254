/* Random problems for the planner, and plain models of what is true of them. */
#ifndef GML_TEST_PROBLEMS_H
#define GML_TEST_PROBLEMS_H

#include "planner/instance.h"
#include "support/check.h"

enum { MOST = 64 }; /* lifetimes, orderings */

typedef struct example_problem {
    gml_lifetime lifetimes[MOST];
    gml_ordering orderings[MOST];
    gml_problem problem;
} example_problem;

typedef struct problem_shape {
    size_t count;
    uint64_t period, alignment, horizon;
    size_t orderings, streams;
} problem_shape;

problem_shape random_shape(check_random *random);
void make_example(example_problem *example, check_random *random, const problem_shape *shape);

/* Size rounded up to the alignment. */
uint64_t rounded(const gml_problem *problem, uint32_t i);

bool meet(const gml_problem *problem, uint32_t a, uint32_t b);

/* The largest live sum at any time at which `like` is live. */
uint64_t model_contention(const gml_problem *problem, const gml_lifetime *like);

#endif
