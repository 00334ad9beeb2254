/* The patterns within objects: overallocation, non-uniform access frequency, structured access. */
#include "support/tracing.h"

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

static bool
is_near(double a, double b)
{
    double distance = a > b ? a - b : b - a;
    return distance < 1e-6;
}

/* A kernel that reads a run of the object. */
static uint32_t
read_run(tracing *t, uint32_t object, uint64_t offset, uint64_t size)
{
    uint32_t api = trace_api(t, GML_API_KERNEL);
    trace_access(t, object, READS);
    trace_run(t, offset, size);
    return api;
}

/* ---- overallocation -------------------------------------------------------------------------- */

TEST(few_elements_accessed_is_overallocation)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 4000, 4);
    read_run(&t, x, 0, 200);
    read_run(&t, x, 100, 300);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_OVERALLOCATION);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.bytes, 3600);
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY);
    CHECK_EQ(found.from_api, GML_NO_API);
    CHECK_EQ(found.to_api, GML_NO_API);
    CHECK(is_near(found.percent, 10));
    CHECK(is_near(found.fragmented_percent, 0));
    tracing_clear(&t);
}

TEST(most_elements_accessed_is_none)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 1000, 1);
    read_run(&t, x, 0, 800); /* 80 % is not fewer than 80 % */
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    t.ranges[0].size_bytes = 799;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).bytes, 201);
    tracing_clear(&t);
}

TEST(an_element_counts_if_any_byte_of_it_is_accessed)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 40, 4);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, READS);
    trace_runs(&t, 0, 1, 4, 8);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    t.ranges[0].repeat = 7;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).bytes, 12);
    t.ranges[0] = (gml_access_range){3, 2, 2, 1, 1}; /* two bytes of two elements */
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).bytes, 32);
    tracing_clear(&t);
}

TEST(a_last_element_cut_short_counts_with_the_bytes_it_has)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 42, 4); /* eleven elements, the last of two bytes */
    read_run(&t, x, 0, 4);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).bytes, 38);
    t.ranges[0].offset = 41;
    t.ranges[0].size_bytes = 1;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).bytes, 40);
    tracing_clear(&t);
}

/* Ten elements, of which 0 and 5 are accessed: gaps of 4 and 4 of 8. */
TEST(scattered_rest_is_hard_above_the_threshold)
{
    tracing t = {0};
    gml_diagnose_options options;
    gml_diagnose_defaults(&options);
    uint32_t x = trace_alloc(&t, 10, 1);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, READS);
    trace_runs(&t, 0, 1, 5, 2);
    trace_free(&t, x);
    options.fragmented_percent = 50;
    trace_diagnose(&t, &options);
    gml_finding found = trace_only(&t, GML_PATTERN_OVERALLOCATION);
    CHECK(is_near(found.percent, 20));
    CHECK(is_near(found.fragmented_percent, 50));
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY);
    options.fragmented_percent = 49;
    trace_diagnose(&t, &options);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
    tracing_clear(&t);
}

TEST(untouched_at_all_or_as_a_whole_is_not_overallocation)
{
    tracing t = {0};
    uint32_t unused = trace_alloc(&t, 100, 1);
    uint32_t touched = trace_alloc(&t, 100, 1);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, touched, TOUCHES); /* any part of it, as far as is known */
    trace_free(&t, touched);
    trace_free(&t, unused);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_EQ(trace_count(&t, GML_PATTERN_UNUSED_ALLOCATION), 1);
    tracing_clear(&t);
}

TEST(what_was_before_the_trace_is_not_overallocated)
{
    tracing t = {0};
    uint32_t before = trace_object(&t, 100, 1, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    read_run(&t, before, 0, 10);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    tracing_clear(&t);
}

TEST(accesses_on_several_streams_add_up)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    t.stream = 1;
    read_run(&t, x, 0, 50);
    t.stream = 2;
    read_run(&t, x, 40, 29);
    t.stream = 0;
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_OVERALLOCATION);
    CHECK(is_near(found.percent, 69));
    CHECK_EQ(found.bytes, 31);
    tracing_clear(&t);
}

/* ---- large objects --------------------------------------------------------------------------- */

TEST(strides_over_a_huge_object_cost_nothing)
{
    const uint64_t gigabyte = UINT64_C(1) << 30, stride = 8192, runs = 10 * 1000 * 1000;
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100 * gigabyte, 4);
    for (uint64_t i = 0; i < 100; i++) {
        trace_api(&t, GML_API_KERNEL);
        trace_access(&t, x, READS);
        trace_runs(&t, 40 * i, 80, stride, runs);
    }
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_OVERALLOCATION);
    uint64_t accessed = runs * (99 * 40 + 80);
    CHECK_EQ(found.bytes, 100 * gigabyte - accessed);
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY); /* what the runs do not reach: over 20 GB */
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    tracing_clear(&t);
}

TEST(each_column_of_a_large_matrix_is_a_slice)
{
    const uint64_t n = 4096;
    tracing t = {0};
    uint32_t x = trace_alloc(&t, n * n * 4, 4);
    for (uint64_t k = 0; k < n; k++) {
        trace_api(&t, GML_API_KERNEL);
        trace_access(&t, x, WRITES);
        trace_runs(&t, 4 * (k * 1027 % n), 4, 4 * n, n);
    }
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, n);
    CHECK_EQ(found.bytes, (n - 1) * n * 4);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    tracing_clear(&t);
}

/* Rows and columns together: one slice, as each row meets each column. */
TEST(unlike_strides_meet_in_the_same_elements)
{
    const uint64_t n = 64;
    tracing t = {0};
    uint32_t x = trace_alloc(&t, n * n, 1);
    for (uint64_t k = 0; k < n / 2; k++) {
        trace_api(&t, GML_API_KERNEL);
        trace_access(&t, x, READS);
        trace_runs(&t, 2 * k, 1, n, n); /* every other column */
    }
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, n / 2);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, READS);
    trace_runs(&t, 0, 2, 8, n / 8); /* parts of the first row: columns 0, 8, ... */
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, n / 2 - n / 8 + 1);
    tracing_clear(&t);
}

/* Strides that do not go into one another, of millions of runs each. */
TEST(nothing_is_found_beyond_the_limits)
{
    const uint64_t gigabyte = UINT64_C(1) << 30, runs = 10 * 1000 * 1000;
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100 * gigabyte, 4);
    for (uint64_t i = 0; i < 8; i++) {
        trace_api(&t, GML_API_COPY);
        trace_access(&t, x, WRITES);
        trace_runs(&t, 0, 4, 8192 + 4 * i, runs);
        trace_runs(&t, 4, 4, 8192 + 4 * i, runs);
    }
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK_EQ(trace_count(&t, GML_PATTERN_DEAD_WRITE), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    tracing_clear(&t);
}

/* ---- structured access ----------------------------------------------------------------------- */

TEST(disjoint_parts_are_structured_access)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    uint32_t first = read_run(&t, x, 0, 30);
    read_run(&t, x, 30, 50);
    uint32_t last = read_run(&t, x, 80, 20);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.pieces, 3);
    CHECK_EQ(found.bytes, 50);
    CHECK(is_near(found.percent, 50));
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, last);
    CHECK_EQ(found.distance, 2);
    tracing_clear(&t);
}

TEST(one_shared_element_joins_two_slices)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    read_run(&t, x, 0, 51);
    read_run(&t, x, 50, 50);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    t.ranges[0].size_bytes = 50;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, 2);
    tracing_clear(&t);
}

/* The paper's own example: three kernels of an iteration work on one row. */
TEST(apis_that_overlap_share_a_slice)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    for (uint64_t row = 0; row < 10; row++) {
        read_run(&t, x, 10 * row, 1);
        read_run(&t, x, 10 * row, 10);
        read_run(&t, x, 10 * row + 5, 2);
    }
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, 10);
    CHECK_EQ(found.bytes, 90);
    tracing_clear(&t);
}

TEST(two_parts_of_one_api_are_one_slice)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    read_run(&t, x, 0, 50);
    trace_access(&t, x, WRITES);
    trace_run(&t, 50, 50);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0); /* it takes two APIs */
    tracing_clear(&t);
}

TEST(a_set_of_the_whole_object_joins_all_slices)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    read_run(&t, x, 0, 50);
    read_run(&t, x, 50, 50);
    trace_api(&t, GML_API_SET);
    trace_access(&t, x, WRITES);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    tracing_clear(&t);
}

TEST(what_outlives_the_trace_has_no_slices_of_its_own)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    read_run(&t, x, 0, 50);
    read_run(&t, x, 50, 50);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 1);
    t.objects[x].flags = GML_OBJECT_KEPT;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    tracing_clear(&t);
}

TEST(slices_on_several_streams_run_from_first_to_last)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    t.stream = 1;
    uint32_t left = read_run(&t, x, 0, 50);
    t.stream = 2;
    uint32_t right = read_run(&t, x, 50, 50);
    t.stream = 0;
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, 2);
    CHECK_EQ(t.diagnosis.times[left], t.diagnosis.times[right]);
    CHECK_EQ(found.distance, 0); /* both run at the same time */
    tracing_clear(&t);
}

/* While y lives, the first slice is in use still, and the second not yet. */
TEST(a_slice_lives_from_its_earliest_to_its_latest_access)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 1000, 1);
    read_run(&t, x, 0, 400);
    uint32_t y = trace_alloc(&t, 1000, 1);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, y, WRITES);
    trace_free(&t, y);
    read_run(&t, x, 100, 300);
    read_run(&t, x, 400, 600);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(t.diagnosis.peaks[0].bytes, 2000);
    CHECK_EQ(trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS).saving_bytes, 600);
    tracing_clear(&t);
}

TEST(what_is_kept_and_scattered_is_hard_to_shrink)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    for (uint64_t row = 0; row < 10; row++) {
        read_run(&t, x, 10 * row, 5);
    }
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 1);
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    t.objects[x].flags = GML_OBJECT_KEPT;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
    tracing_clear(&t);
}

/* ---- non-uniform access frequency ------------------------------------------------------------ */

TEST(uneven_rows_of_one_api_are_non_uniform)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 400, 4);
    read_run(&t, x, 0, 400);
    uint32_t api = trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, READS);
    trace_weighted(&t, 0, 40, 1);
    trace_weighted(&t, 40, 40, 3); /* mean 2, deviation 1 */
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.from_api, api);
    CHECK_EQ(found.to_api, api);
    CHECK_EQ(found.distance, 0);
    CHECK_EQ(found.bytes, 400);
    CHECK(is_near(found.percent, 50));
    tracing_clear(&t);
}

TEST(the_threshold_itself_is_uniform)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, READS);
    trace_weighted(&t, 0, 50, 4);
    trace_weighted(&t, 50, 50, 6); /* 20 % */
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    t.ranges[1].size_bytes = 49;
    t.ranges[1].weight = 7;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY), 1);
    tracing_clear(&t);
}

/* Counts start anew with each API, and what it does not access does not count. */
TEST(apis_are_measured_alone)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    for (int i = 0; i < 50; i++) {
        read_run(&t, x, 0, 10);
    }
    read_run(&t, x, 0, 100);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    tracing_clear(&t);
}

TEST(ranges_and_accesses_that_overlap_add_up)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 90, 1);
    uint32_t api = trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, READS);
    trace_run(&t, 0, 60);
    trace_access(&t, x, WRITES);
    trace_runs(&t, 30, 10, 20, 3); /* 30..40, 50..60, 70..80 */
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    /* twice: 20, once: 50. Mean 90/70, variance 130/70 - (90/70)^2 = 0.204 */
    gml_finding found = trace_only(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.from_api, api);
    CHECK(is_near(found.percent, 35.13641844631533));
    tracing_clear(&t);
}

TEST(the_most_uneven_api_is_named)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1), worst = 0;
    for (uint64_t weight = 2; weight < 6; weight++) {
        uint32_t api = trace_api(&t, GML_API_KERNEL);
        worst = weight == 5 ? api : worst;
        trace_access(&t, x, READS);
        trace_weighted(&t, 0, 50, 1);
        trace_weighted(&t, 50, 50, weight);
    }
    read_run(&t, x, 0, 100);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_only(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY).from_api, worst);
    tracing_clear(&t);
}

TEST(how_often_a_touch_is_one_is_not_known)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    trace_api(&t, GML_API_KERNEL);
    trace_access(&t, x, TOUCHES);
    trace_weighted(&t, 0, 50, 1);
    trace_weighted(&t, 50, 50, 9);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    tracing_clear(&t);
}

TEST(how_often_slices_are_touched_is_not_known)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    read_run(&t, x, 0, 90);
    read_run(&t, x, 90, 10);
    trace_free(&t, x);
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY), 1);
    t.accesses[0].flags = TOUCHES;
    trace_diagnose(&t, NULL);
    CHECK_EQ(trace_count(&t, GML_PATTERN_STRUCTURED_ACCESS), 1);
    CHECK_EQ(trace_count(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    tracing_clear(&t);
}

/* R of GramSchmidt: of row k the kernels access N - k elements. 1 / sqrt(3) for large N. */
TEST(slices_of_a_triangle_are_non_uniform)
{
    const uint64_t n = 2000;
    tracing t = {0};
    uint32_t r = trace_alloc(&t, n * n * 4, 4), first = 0, last = 0;
    for (uint64_t k = 0; k < n; k++) {
        last = read_run(&t, r, 4 * (k * n + k), 4 * (n - k));
        first = k == 0 ? last : first;
    }
    trace_free(&t, r);
    trace_diagnose(&t, NULL);
    gml_finding found = trace_only(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, last);
    CHECK(found.percent > 57.6 && found.percent < 57.8);
    found = trace_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, n);
    CHECK_EQ(found.bytes, n * n * 4 - n * 4);
    /* Half of it is never accessed, row by row: slices of their own give that back as well. */
    CHECK_EQ(trace_count(&t, GML_PATTERN_OVERALLOCATION), 0);
    gml_diagnose_options options;
    gml_diagnose_defaults(&options);
    options.patterns = 1u << GML_PATTERN_OVERALLOCATION;
    trace_diagnose(&t, &options);
    CHECK_EQ(trace_only(&t, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
    tracing_clear(&t);
}

int
main(void)
{
    RUN(few_elements_accessed_is_overallocation);
    RUN(most_elements_accessed_is_none);
    RUN(an_element_counts_if_any_byte_of_it_is_accessed);
    RUN(a_last_element_cut_short_counts_with_the_bytes_it_has);
    RUN(scattered_rest_is_hard_above_the_threshold);
    RUN(untouched_at_all_or_as_a_whole_is_not_overallocation);
    RUN(what_was_before_the_trace_is_not_overallocated);
    RUN(accesses_on_several_streams_add_up);
    RUN(strides_over_a_huge_object_cost_nothing);
    RUN(each_column_of_a_large_matrix_is_a_slice);
    RUN(unlike_strides_meet_in_the_same_elements);
    RUN(nothing_is_found_beyond_the_limits);
    RUN(disjoint_parts_are_structured_access);
    RUN(one_shared_element_joins_two_slices);
    RUN(apis_that_overlap_share_a_slice);
    RUN(two_parts_of_one_api_are_one_slice);
    RUN(a_set_of_the_whole_object_joins_all_slices);
    RUN(what_outlives_the_trace_has_no_slices_of_its_own);
    RUN(slices_on_several_streams_run_from_first_to_last);
    RUN(a_slice_lives_from_its_earliest_to_its_latest_access);
    RUN(what_is_kept_and_scattered_is_hard_to_shrink);
    RUN(uneven_rows_of_one_api_are_non_uniform);
    RUN(the_threshold_itself_is_uniform);
    RUN(apis_are_measured_alone);
    RUN(ranges_and_accesses_that_overlap_add_up);
    RUN(the_most_uneven_api_is_named);
    RUN(how_often_a_touch_is_one_is_not_known);
    RUN(how_often_slices_are_touched_is_not_known);
    RUN(slices_of_a_triangle_are_non_uniform);
    return report();
}
