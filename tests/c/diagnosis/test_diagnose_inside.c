/* The patterns within objects: overallocation, non-uniform access frequency, structured access. */
#include "diagnosis/scenario.h"

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

static bool is_near(double a, double b) {
    double distance = a > b ? a - b : b - a;
    return distance < 1e-6;
}

/* A kernel that reads a run of the object. */
static uint64_t read_run(scenario *t, uint32_t object, uint64_t offset, uint64_t size) {
    uint64_t api = scenario_kernel(t, object, READS);
    scenario_range(t, offset, size);
    return api;
}

/* ---- overallocation -------------------------------------------------------------------------- */

SCENARIO(few_elements_accessed_is_overallocation) {
    uint32_t x = scenario_new_of(s, 4000, 4);
    read_run(s, x, 0, 200);
    read_run(s, x, 100, 300);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_OVERALLOCATION);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.bytes, 3600);
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY);
    CHECK_EQ(found.from_api, GML_NO_API);
    CHECK_EQ(found.to_api, GML_NO_API);
    CHECK(is_near(found.percent, 10));
    CHECK(is_near(found.fragmented_percent, 0));
}

SCENARIO(most_elements_accessed_is_none) {
    uint32_t x = scenario_new(s, 1000);
    read_run(s, x, 0, 800); /* 80 % is not fewer than 80 % */
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_OVERALLOCATION), 0);
    s->ranges[0].size_bytes = 799;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).bytes, 201);
}

SCENARIO(an_element_counts_if_any_byte_of_it_is_accessed) {
    uint32_t x = scenario_new_of(s, 40, 4);
    scenario_kernel(s, x, READS);
    scenario_runs(s, 0, 1, 4, 8);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_OVERALLOCATION), 0);
    s->ranges[0].repeat = 7;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).bytes, 12);
    s->ranges[0] = (gml_access_range){3, 2, 2, 1, 1}; /* two bytes of two elements */
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).bytes, 32);
}

SCENARIO(a_last_element_cut_short_counts_with_the_bytes_it_has) {
    uint32_t x = scenario_new_of(s, 42, 4); /* eleven elements, the last of two bytes */
    read_run(s, x, 0, 4);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).bytes, 38);
    s->ranges[0].offset = 41;
    s->ranges[0].size_bytes = 1;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).bytes, 40);
}

/* Ten elements, of which 0 and 5 are accessed: gaps of 4 and 4 of 8. */
SCENARIO(scattered_rest_is_hard_above_the_threshold) {
    uint32_t x = scenario_new(s, 10);
    scenario_kernel(s, x, READS);
    scenario_runs(s, 0, 1, 5, 2);
    scenario_free(s, x);
    s->options.fragmented_percent = 50;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_OVERALLOCATION);
    CHECK(is_near(found.percent, 20));
    CHECK(is_near(found.fragmented_percent, 50));
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY);
    s->options.fragmented_percent = 49;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
}

SCENARIO(untouched_at_all_or_as_a_whole_is_not_overallocation) {
    uint32_t unused = scenario_new(s, 100);
    uint32_t touched = scenario_new(s, 100);
    scenario_call(s, GML_API_KERNEL);
    scenario_access(s, touched, TOUCHES); /* any part of it, as far as is known */
    scenario_free(s, touched);
    scenario_free(s, unused);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_EQ(scenario_total(s, GML_PATTERN_UNUSED_ALLOCATION), 1);
}

SCENARIO(what_was_before_the_trace_is_not_overallocated) {
    uint32_t before = scenario_object(s, 100, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    read_run(s, before, 0, 10);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_OVERALLOCATION), 0);
}

SCENARIO(accesses_on_several_streams_add_up) {
    uint32_t x = scenario_new(s, 100);
    s->stream = 1;
    read_run(s, x, 0, 50);
    s->stream = 2;
    read_run(s, x, 40, 29);
    s->stream = 0;
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_OVERALLOCATION);
    CHECK(is_near(found.percent, 69));
    CHECK_EQ(found.bytes, 31);
}

/* ---- large objects --------------------------------------------------------------------------- */

TEST(strides_over_a_huge_object_cost_nothing) {
    const uint64_t gigabyte = UINT64_C(1) << 30, stride = 8192, runs = 10 * 1000 * 1000;
    scenario t;
    scenario_open(&t);
    uint32_t x = scenario_new_of(&t, 100 * gigabyte, 4);
    for (uint64_t i = 0; i < 100; i++) {
        scenario_kernel(&t, x, READS);
        scenario_runs(&t, 40 * i, 80, stride, runs);
    }
    scenario_free(&t, x);
    CHECK_OK(scenario_diagnose(&t, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(&t, GML_PATTERN_OVERALLOCATION);
    uint64_t accessed = runs * (99 * 40 + 80);
    CHECK_EQ(found.bytes, 100 * gigabyte - accessed);
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY); /* what the runs do not reach: over 20 GB */
    CHECK_EQ(scenario_total(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    scenario_close(&t);
}

TEST(each_column_of_a_large_matrix_is_a_slice) {
    const uint64_t n = 4096;
    scenario t;
    scenario_open(&t);
    uint32_t x = scenario_new_of(&t, n * n * 4, 4);
    for (uint64_t k = 0; k < n; k++) {
        scenario_kernel(&t, x, WRITES);
        scenario_runs(&t, 4 * (k * 1027 % n), 4, 4 * n, n);
    }
    scenario_free(&t, x);
    CHECK_OK(scenario_diagnose(&t, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, n);
    CHECK_EQ(found.bytes, (n - 1) * n * 4);
    CHECK_EQ(scenario_total(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    scenario_close(&t);
}

/* Rows and columns together: one slice, as each row meets each column. */
TEST(unlike_strides_meet_in_the_same_elements) {
    const uint64_t n = 64;
    scenario t;
    scenario_open(&t);
    uint32_t x = scenario_new(&t, n * n);
    for (uint64_t k = 0; k < n / 2; k++) {
        scenario_kernel(&t, x, READS);
        scenario_runs(&t, 2 * k, 1, n, n); /* every other column */
    }
    CHECK_OK(scenario_diagnose(&t, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, n / 2);
    scenario_kernel(&t, x, READS);
    scenario_runs(&t, 0, 2, 8, n / 8); /* parts of the first row: columns 0, 8, ... */
    CHECK_OK(scenario_diagnose(&t, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, n / 2 - n / 8 + 1);
    scenario_close(&t);
}

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

/* ---- structured access ----------------------------------------------------------------------- */

SCENARIO(disjoint_parts_are_structured_access) {
    uint32_t x = scenario_new(s, 100);
    uint64_t first = read_run(s, x, 0, 30);
    read_run(s, x, 30, 50);
    uint64_t last = read_run(s, x, 80, 20);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.pieces, 3);
    CHECK_EQ(found.bytes, 50);
    CHECK(is_near(found.percent, 50));
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, last);
    CHECK_EQ(found.distance, 2);
}

SCENARIO(one_shared_element_joins_two_slices) {
    uint32_t x = scenario_new(s, 100);
    read_run(s, x, 0, 51);
    read_run(s, x, 50, 50);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
    s->ranges[0].size_bytes = 50;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_STRUCTURED_ACCESS).pieces, 2);
}

/* The paper's own example: three kernels of an iteration work on one row. */
SCENARIO(apis_that_overlap_share_a_slice) {
    uint32_t x = scenario_new(s, 100);
    for (uint64_t row = 0; row < 10; row++) {
        read_run(s, x, 10 * row, 1);
        read_run(s, x, 10 * row, 10);
        read_run(s, x, 10 * row + 5, 2);
    }
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, 10);
    CHECK_EQ(found.bytes, 90);
}

SCENARIO(two_parts_of_one_api_are_one_slice) {
    uint32_t x = scenario_new(s, 100);
    read_run(s, x, 0, 50);
    scenario_access(s, x, WRITES);
    scenario_range(s, 50, 50);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0); /* it takes two APIs */
}

SCENARIO(a_set_of_the_whole_object_joins_all_slices) {
    uint32_t x = scenario_new(s, 100);
    read_run(s, x, 0, 50);
    read_run(s, x, 50, 50);
    scenario_call(s, GML_API_SET);
    scenario_access(s, x, WRITES);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
}

SCENARIO(what_outlives_the_trace_has_no_slices_of_its_own) {
    uint32_t x = scenario_new(s, 100);
    read_run(s, x, 0, 50);
    read_run(s, x, 50, 50);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 1);
    s->objects[x].flags = GML_OBJECT_KEPT;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
}

SCENARIO(slices_on_several_streams_run_from_first_to_last) {
    uint32_t x = scenario_new(s, 100);
    s->stream = 1;
    uint64_t left = read_run(s, x, 0, 50);
    s->stream = 2;
    uint64_t right = read_run(s, x, 50, 50);
    s->stream = 0;
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, 2);
    CHECK_EQ(s->diagnosis.times[left], s->diagnosis.times[right]);
    CHECK_EQ(found.distance, 0); /* both run at the same time */
}

/* While y lives, the first slice is in use still, and the second not yet. */
SCENARIO(a_slice_lives_from_its_earliest_to_its_latest_access) {
    uint32_t x = scenario_new(s, 1000);
    read_run(s, x, 0, 400);
    uint32_t y = scenario_new(s, 1000);
    scenario_kernel(s, y, WRITES);
    scenario_free(s, y);
    read_run(s, x, 100, 300);
    read_run(s, x, 400, 600);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 2000);
    CHECK_EQ(scenario_only(s, GML_PATTERN_STRUCTURED_ACCESS).saving_bytes, 600);
}

SCENARIO(what_is_kept_and_scattered_is_hard_to_shrink) {
    uint32_t x = scenario_new(s, 100);
    for (uint64_t row = 0; row < 10; row++) {
        read_run(s, x, 10 * row, 5);
    }
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 1);
    CHECK_EQ(scenario_total(s, GML_PATTERN_OVERALLOCATION), 0);
    s->objects[x].flags = GML_OBJECT_KEPT;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK_EQ(scenario_only(s, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
}

/* ---- non-uniform access frequency ------------------------------------------------------------ */

SCENARIO(uneven_rows_of_one_api_are_non_uniform) {
    uint32_t x = scenario_new_of(s, 400, 4);
    read_run(s, x, 0, 400);
    uint64_t api = scenario_kernel(s, x, READS);
    scenario_weighted(s, 0, 40, 1);
    scenario_weighted(s, 40, 40, 3); /* mean 2, deviation 1 */
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    gml_finding found = scenario_only(s, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.from_api, api);
    CHECK_EQ(found.to_api, api);
    CHECK_EQ(found.distance, 0);
    CHECK_EQ(found.bytes, 400);
    CHECK(is_near(found.percent, 50));
}

SCENARIO(the_threshold_itself_is_uniform) {
    uint32_t x = scenario_new(s, 100);
    scenario_kernel(s, x, READS);
    scenario_weighted(s, 0, 50, 4);
    scenario_weighted(s, 50, 50, 6); /* 20 % */
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    s->ranges[1].size_bytes = 49;
    s->ranges[1].weight = 7;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 1);
}

/* Counts start anew with each API, and what it does not access does not count. */
SCENARIO(apis_are_measured_alone) {
    uint32_t x = scenario_new(s, 100);
    for (int i = 0; i < 50; i++) {
        read_run(s, x, 0, 10);
    }
    read_run(s, x, 0, 100);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
}

SCENARIO(ranges_and_accesses_that_overlap_add_up) {
    uint32_t x = scenario_new(s, 90);
    uint64_t api = scenario_kernel(s, x, READS);
    scenario_range(s, 0, 60);
    scenario_access(s, x, WRITES);
    scenario_runs(s, 30, 10, 20, 3); /* 30..40, 50..60, 70..80 */
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    /* twice: 20, once: 50. Mean 90/70, variance 130/70 - (90/70)^2 = 0.204 */
    gml_finding found = scenario_only(s, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.from_api, api);
    CHECK(is_near(found.percent, 35.13641844631533));
}

SCENARIO(the_most_uneven_api_is_named) {
    uint32_t x = scenario_new(s, 100);
    uint64_t worst = 0;
    for (uint64_t weight = 2; weight < 6; weight++) {
        uint64_t api = scenario_call(s, GML_API_KERNEL);
        worst = weight == 5 ? api : worst;
        scenario_access(s, x, READS);
        scenario_weighted(s, 0, 50, 1);
        scenario_weighted(s, 50, 50, weight);
    }
    read_run(s, x, 0, 100);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_only(s, GML_PATTERN_NON_UNIFORM_FREQUENCY).from_api, worst);
}

SCENARIO(how_often_a_touch_is_one_is_not_known) {
    uint32_t x = scenario_new(s, 100);
    scenario_kernel(s, x, TOUCHES);
    scenario_weighted(s, 0, 50, 1);
    scenario_weighted(s, 50, 50, 9);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
}

SCENARIO(how_often_slices_are_touched_is_not_known) {
    uint32_t x = scenario_new(s, 100);
    read_run(s, x, 0, 90);
    read_run(s, x, 90, 10);
    scenario_free(s, x);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 1);
    s->accesses[0].flags = TOUCHES;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(scenario_total(s, GML_PATTERN_STRUCTURED_ACCESS), 1);
    CHECK_EQ(scenario_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
}

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
