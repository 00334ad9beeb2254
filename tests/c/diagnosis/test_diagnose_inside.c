/* The patterns within objects: overallocation, non-uniform access frequency, structured access. */
#include "diagnosis/scenario.h"

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

/* A kernel that reads a run of the object. */
static uint64_t read_run(scenario *t, uint32_t object, uint64_t offset, uint64_t size) {
    uint64_t api = scenario_kernel(t, object, READS);
    scenario_range(t, offset, size);
    return api;
}

/* ---- large objects --------------------------------------------------------------------------- */

/* Strides that do not go into one another, of millions of runs each. */
TEST(nothing_is_found_beyond_the_limits) {
    const uint64_t gigabyte = UINT64_C(1) << 30, runs = 10 * 1000 * 1000;
    scenario t;
    scenario_open(&t);
    uint32_t x = scenario_new_of(&t, 100 * gigabyte, 4);
    for (uint64_t i = 0; i < 8; i++) {
        scenario_call(&t, GML_API_COPY);
        scenario_access(&t, x, WRITES);
        scenario_runs(&t, 0, 4, 8192 + 4 * i, runs);
        scenario_runs(&t, 4, 4, 8192 + 4 * i, runs);
    }
    scenario_free(&t, x);
    CHECK_OK(scenario_diagnose(&t, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_EQ(scenario_total(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK_EQ(scenario_total(&t, GML_PATTERN_DEAD_WRITE), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    scenario_close(&t);
}

/* ---- non-uniform access frequency ------------------------------------------------------------ */

/* R of GramSchmidt: of row k the kernels access N - k elements. 1 / sqrt(3) for large N. */
TEST(slices_of_a_triangle_are_non_uniform) {
    const uint64_t n = 2000;
    scenario t;
    scenario_open(&t);
    uint32_t r = scenario_new_of(&t, n * n * 4, 4);
    uint64_t first = 0, last = 0;
    for (uint64_t k = 0; k < n; k++) {
        last = read_run(&t, r, 4 * (k * n + k), 4 * (n - k));
        first = k == 0 ? last : first;
    }
    scenario_free(&t, r);
    CHECK_OK(scenario_diagnose(&t, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, last);
    CHECK(found.percent > 57.6 && found.percent < 57.8);
    found = scenario_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, n);
    CHECK_EQ(found.bytes, n * n * 4 - n * 4);
    /* Half of it is never accessed, row by row: slices of their own give that back as well. */
    CHECK_EQ(scenario_total(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_OK(scenario_diagnose(&t, 1u << GML_PATTERN_OVERALLOCATION));
    CHECK_EQ(scenario_only(&t, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
    scenario_close(&t);
}
