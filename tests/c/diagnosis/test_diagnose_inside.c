/* The patterns within objects: overallocation, non-uniform access frequency, structured access. */
#include "diagnosis/story.h"

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

static bool
is_near(double a, double b)
{
    double distance = a > b ? a - b : b - a;
    return distance < 1e-6;
}

/* A kernel that reads a run of the object. */
static uint64_t
read_run(story *t, uint32_t object, uint64_t offset, uint64_t size)
{
    uint64_t api = story_kernel(t, object, READS);
    story_range(t, offset, size);
    return api;
}

/* ---- overallocation -------------------------------------------------------------------------- */

STORY(few_elements_accessed_is_overallocation)
{
    uint32_t x = story_new_of(s, 4000, 4);
    read_run(s, x, 0, 200);
    read_run(s, x, 100, 300);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_OVERALLOCATION);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.bytes, 3600);
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY);
    CHECK_EQ(found.from_api, GML_NO_API);
    CHECK_EQ(found.to_api, GML_NO_API);
    CHECK(is_near(found.percent, 10));
    CHECK(is_near(found.fragmented_percent, 0));
}

STORY(most_elements_accessed_is_none)
{
    uint32_t x = story_new(s, 1000);
    read_run(s, x, 0, 800); /* 80 % is not fewer than 80 % */
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_OVERALLOCATION), 0);
    s->ranges[0].size_bytes = 799;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).bytes, 201);
}

STORY(an_element_counts_if_any_byte_of_it_is_accessed)
{
    uint32_t x = story_new_of(s, 40, 4);
    story_kernel(s, x, READS);
    story_runs(s, 0, 1, 4, 8);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_OVERALLOCATION), 0);
    s->ranges[0].repeat = 7;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).bytes, 12);
    s->ranges[0] = (gml_access_range){3, 2, 2, 1, 1}; /* two bytes of two elements */
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).bytes, 32);
}

STORY(a_last_element_cut_short_counts_with_the_bytes_it_has)
{
    uint32_t x = story_new_of(s, 42, 4); /* eleven elements, the last of two bytes */
    read_run(s, x, 0, 4);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).bytes, 38);
    s->ranges[0].offset = 41;
    s->ranges[0].size_bytes = 1;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).bytes, 40);
}

/* Ten elements, of which 0 and 5 are accessed: gaps of 4 and 4 of 8. */
STORY(scattered_rest_is_hard_above_the_threshold)
{
    uint32_t x = story_new(s, 10);
    story_kernel(s, x, READS);
    story_runs(s, 0, 1, 5, 2);
    story_free(s, x);
    s->options.fragmented_percent = 50;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_OVERALLOCATION);
    CHECK(is_near(found.percent, 20));
    CHECK(is_near(found.fragmented_percent, 50));
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY);
    s->options.fragmented_percent = 49;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
}

STORY(untouched_at_all_or_as_a_whole_is_not_overallocation)
{
    uint32_t unused = story_new(s, 100);
    uint32_t touched = story_new(s, 100);
    story_call(s, GML_API_KERNEL);
    story_access(s, touched, TOUCHES); /* any part of it, as far as is known */
    story_free(s, touched);
    story_free(s, unused);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_EQ(story_total(s, GML_PATTERN_UNUSED_ALLOCATION), 1);
}

STORY(what_was_before_the_trace_is_not_overallocated)
{
    uint32_t before = story_object(s, 100, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    read_run(s, before, 0, 10);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_OVERALLOCATION), 0);
}

STORY(accesses_on_several_streams_add_up)
{
    uint32_t x = story_new(s, 100);
    s->stream = 1;
    read_run(s, x, 0, 50);
    s->stream = 2;
    read_run(s, x, 40, 29);
    s->stream = 0;
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_OVERALLOCATION);
    CHECK(is_near(found.percent, 69));
    CHECK_EQ(found.bytes, 31);
}

/* ---- large objects --------------------------------------------------------------------------- */

TEST(strides_over_a_huge_object_cost_nothing)
{
    const uint64_t gigabyte = UINT64_C(1) << 30, stride = 8192, runs = 10 * 1000 * 1000;
    story t;
    story_open(&t);
    uint32_t x = story_new_of(&t, 100 * gigabyte, 4);
    for (uint64_t i = 0; i < 100; i++) {
        story_kernel(&t, x, READS);
        story_runs(&t, 40 * i, 80, stride, runs);
    }
    story_free(&t, x);
    CHECK_OK(story_diagnose(&t, STORY_EVERY_PATTERN));
    gml_finding found = story_only(&t, GML_PATTERN_OVERALLOCATION);
    uint64_t accessed = runs * (99 * 40 + 80);
    CHECK_EQ(found.bytes, 100 * gigabyte - accessed);
    CHECK_EQ(found.guidance, GML_GUIDANCE_EASY); /* what the runs do not reach: over 20 GB */
    CHECK_EQ(story_total(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    story_close(&t);
}

TEST(each_column_of_a_large_matrix_is_a_slice)
{
    const uint64_t n = 4096;
    story t;
    story_open(&t);
    uint32_t x = story_new_of(&t, n * n * 4, 4);
    for (uint64_t k = 0; k < n; k++) {
        story_kernel(&t, x, WRITES);
        story_runs(&t, 4 * (k * 1027 % n), 4, 4 * n, n);
    }
    story_free(&t, x);
    CHECK_OK(story_diagnose(&t, STORY_EVERY_PATTERN));
    gml_finding found = story_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, n);
    CHECK_EQ(found.bytes, (n - 1) * n * 4);
    CHECK_EQ(story_total(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    story_close(&t);
}

/* Rows and columns together: one slice, as each row meets each column. */
TEST(unlike_strides_meet_in_the_same_elements)
{
    const uint64_t n = 64;
    story t;
    story_open(&t);
    uint32_t x = story_new(&t, n * n);
    for (uint64_t k = 0; k < n / 2; k++) {
        story_kernel(&t, x, READS);
        story_runs(&t, 2 * k, 1, n, n); /* every other column */
    }
    CHECK_OK(story_diagnose(&t, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, n / 2);
    story_kernel(&t, x, READS);
    story_runs(&t, 0, 2, 8, n / 8); /* parts of the first row: columns 0, 8, ... */
    CHECK_OK(story_diagnose(&t, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(&t, GML_PATTERN_STRUCTURED_ACCESS).pieces, n / 2 - n / 8 + 1);
    story_close(&t);
}

/* Strides that do not go into one another, of millions of runs each. */
TEST(nothing_is_found_beyond_the_limits)
{
    const uint64_t gigabyte = UINT64_C(1) << 30, runs = 10 * 1000 * 1000;
    story t;
    story_open(&t);
    uint32_t x = story_new_of(&t, 100 * gigabyte, 4);
    for (uint64_t i = 0; i < 8; i++) {
        story_call(&t, GML_API_COPY);
        story_access(&t, x, WRITES);
        story_runs(&t, 0, 4, 8192 + 4 * i, runs);
        story_runs(&t, 4, 4, 8192 + 4 * i, runs);
    }
    story_free(&t, x);
    CHECK_OK(story_diagnose(&t, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_EQ(story_total(&t, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK_EQ(story_total(&t, GML_PATTERN_DEAD_WRITE), 0);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    story_close(&t);
}

/* ---- structured access ----------------------------------------------------------------------- */

STORY(disjoint_parts_are_structured_access)
{
    uint32_t x = story_new(s, 100);
    uint64_t first = read_run(s, x, 0, 30);
    read_run(s, x, 30, 50);
    uint64_t last = read_run(s, x, 80, 20);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.pieces, 3);
    CHECK_EQ(found.bytes, 50);
    CHECK(is_near(found.percent, 50));
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, last);
    CHECK_EQ(found.distance, 2);
}

STORY(one_shared_element_joins_two_slices)
{
    uint32_t x = story_new(s, 100);
    read_run(s, x, 0, 51);
    read_run(s, x, 50, 50);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
    s->ranges[0].size_bytes = 50;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_STRUCTURED_ACCESS).pieces, 2);
}

/* The paper's own example: three kernels of an iteration work on one row. */
STORY(apis_that_overlap_share_a_slice)
{
    uint32_t x = story_new(s, 100);
    for (uint64_t row = 0; row < 10; row++) {
        read_run(s, x, 10 * row, 1);
        read_run(s, x, 10 * row, 10);
        read_run(s, x, 10 * row + 5, 2);
    }
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, 10);
    CHECK_EQ(found.bytes, 90);
}

STORY(two_parts_of_one_api_are_one_slice)
{
    uint32_t x = story_new(s, 100);
    read_run(s, x, 0, 50);
    story_access(s, x, WRITES);
    story_range(s, 50, 50);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0); /* it takes two APIs */
}

STORY(a_set_of_the_whole_object_joins_all_slices)
{
    uint32_t x = story_new(s, 100);
    read_run(s, x, 0, 50);
    read_run(s, x, 50, 50);
    story_call(s, GML_API_SET);
    story_access(s, x, WRITES);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
}

STORY(what_outlives_the_trace_has_no_slices_of_its_own)
{
    uint32_t x = story_new(s, 100);
    read_run(s, x, 0, 50);
    read_run(s, x, 50, 50);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 1);
    s->objects[x].flags = GML_OBJECT_KEPT;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
}

STORY(slices_on_several_streams_run_from_first_to_last)
{
    uint32_t x = story_new(s, 100);
    s->stream = 1;
    uint64_t left = read_run(s, x, 0, 50);
    s->stream = 2;
    uint64_t right = read_run(s, x, 50, 50);
    s->stream = 0;
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, 2);
    CHECK_EQ(s->diagnosis.times[left], s->diagnosis.times[right]);
    CHECK_EQ(found.distance, 0); /* both run at the same time */
}

/* While y lives, the first slice is in use still, and the second not yet. */
STORY(a_slice_lives_from_its_earliest_to_its_latest_access)
{
    uint32_t x = story_new(s, 1000);
    read_run(s, x, 0, 400);
    uint32_t y = story_new(s, 1000);
    story_kernel(s, y, WRITES);
    story_free(s, y);
    read_run(s, x, 100, 300);
    read_run(s, x, 400, 600);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 2000);
    CHECK_EQ(story_only(s, GML_PATTERN_STRUCTURED_ACCESS).saving_bytes, 600);
}

STORY(what_is_kept_and_scattered_is_hard_to_shrink)
{
    uint32_t x = story_new(s, 100);
    for (uint64_t row = 0; row < 10; row++) {
        read_run(s, x, 10 * row, 5);
    }
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 1);
    CHECK_EQ(story_total(s, GML_PATTERN_OVERALLOCATION), 0);
    s->objects[x].flags = GML_OBJECT_KEPT;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 0);
    CHECK_EQ(story_only(s, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
}

/* ---- non-uniform access frequency ------------------------------------------------------------ */

STORY(uneven_rows_of_one_api_are_non_uniform)
{
    uint32_t x = story_new_of(s, 400, 4);
    read_run(s, x, 0, 400);
    uint64_t api = story_kernel(s, x, READS);
    story_weighted(s, 0, 40, 1);
    story_weighted(s, 40, 40, 3); /* mean 2, deviation 1 */
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    gml_finding found = story_only(s, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.from_api, api);
    CHECK_EQ(found.to_api, api);
    CHECK_EQ(found.distance, 0);
    CHECK_EQ(found.bytes, 400);
    CHECK(is_near(found.percent, 50));
}

STORY(the_threshold_itself_is_uniform)
{
    uint32_t x = story_new(s, 100);
    story_kernel(s, x, READS);
    story_weighted(s, 0, 50, 4);
    story_weighted(s, 50, 50, 6); /* 20 % */
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    s->ranges[1].size_bytes = 49;
    s->ranges[1].weight = 7;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 1);
}

/* Counts start anew with each API, and what it does not access does not count. */
STORY(apis_are_measured_alone)
{
    uint32_t x = story_new(s, 100);
    for (int i = 0; i < 50; i++) {
        read_run(s, x, 0, 10);
    }
    read_run(s, x, 0, 100);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
}

STORY(ranges_and_accesses_that_overlap_add_up)
{
    uint32_t x = story_new(s, 90);
    uint64_t api = story_kernel(s, x, READS);
    story_range(s, 0, 60);
    story_access(s, x, WRITES);
    story_runs(s, 30, 10, 20, 3); /* 30..40, 50..60, 70..80 */
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    /* twice: 20, once: 50. Mean 90/70, variance 130/70 - (90/70)^2 = 0.204 */
    gml_finding found = story_only(s, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.from_api, api);
    CHECK(is_near(found.percent, 35.13641844631533));
}

STORY(the_most_uneven_api_is_named)
{
    uint32_t x = story_new(s, 100);
    uint64_t worst = 0;
    for (uint64_t weight = 2; weight < 6; weight++) {
        uint64_t api = story_call(s, GML_API_KERNEL);
        worst = weight == 5 ? api : worst;
        story_access(s, x, READS);
        story_weighted(s, 0, 50, 1);
        story_weighted(s, 50, 50, weight);
    }
    read_run(s, x, 0, 100);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_only(s, GML_PATTERN_NON_UNIFORM_FREQUENCY).from_api, worst);
}

STORY(how_often_a_touch_is_one_is_not_known)
{
    uint32_t x = story_new(s, 100);
    story_kernel(s, x, TOUCHES);
    story_weighted(s, 0, 50, 1);
    story_weighted(s, 50, 50, 9);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
}

STORY(how_often_slices_are_touched_is_not_known)
{
    uint32_t x = story_new(s, 100);
    read_run(s, x, 0, 90);
    read_run(s, x, 90, 10);
    story_free(s, x);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 1);
    s->accesses[0].flags = TOUCHES;
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(story_total(s, GML_PATTERN_STRUCTURED_ACCESS), 1);
    CHECK_EQ(story_total(s, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
}

/* R of GramSchmidt: of row k the kernels access N - k elements. 1 / sqrt(3) for large N. */
TEST(slices_of_a_triangle_are_non_uniform)
{
    const uint64_t n = 2000;
    story t;
    story_open(&t);
    uint32_t r = story_new_of(&t, n * n * 4, 4);
    uint64_t first = 0, last = 0;
    for (uint64_t k = 0; k < n; k++) {
        last = read_run(&t, r, 4 * (k * n + k), 4 * (n - k));
        first = k == 0 ? last : first;
    }
    story_free(&t, r);
    CHECK_OK(story_diagnose(&t, STORY_EVERY_PATTERN));
    gml_finding found = story_only(&t, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, last);
    CHECK(found.percent > 57.6 && found.percent < 57.8);
    found = story_only(&t, GML_PATTERN_STRUCTURED_ACCESS);
    CHECK_EQ(found.pieces, n);
    CHECK_EQ(found.bytes, n * n * 4 - n * 4);
    /* Half of it is never accessed, row by row: slices of their own give that back as well. */
    CHECK_EQ(story_total(&t, GML_PATTERN_OVERALLOCATION), 0);
    CHECK_OK(story_diagnose(&t, 1u << GML_PATTERN_OVERALLOCATION));
    CHECK_EQ(story_only(&t, GML_PATTERN_OVERALLOCATION).guidance, GML_GUIDANCE_HARD);
    story_close(&t);
}
