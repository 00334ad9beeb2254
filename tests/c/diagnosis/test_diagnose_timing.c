/* The five patterns of time: early allocation, late deallocation, unused allocation, memory leak
 * and temporary idleness. */
#include "diagnosis/story.h"

enum {
    READS = GML_ACCESS_READS,
    WRITES = GML_ACCESS_WRITES,
    TOUCHES = GML_ACCESS_TOUCHES,
    EARLY = GML_PATTERN_EARLY_ALLOCATION,
    LATE = GML_PATTERN_LATE_DEALLOCATION,
    UNUSED = GML_PATTERN_UNUSED_ALLOCATION,
    LEAK = GML_PATTERN_MEMORY_LEAK,
    IDLE = GML_PATTERN_TEMPORARY_IDLENESS,
    TIMING = 1 << EARLY | 1 << LATE | 1 << UNUSED | 1 << LEAK | 1 << IDLE
};

#define BYTES UINT64_C(1000)

/* ---- early allocation ------------------------------------------------------------------------ */

/* Figure 2 of the paper: B is allocated at 2, accessed from 7 to 9 and freed at 12; C leaks and is
 * idle. */
STORY(figure_2)
{
    uint32_t a = story_new(s, BYTES), c = story_new(s, BYTES), b = story_new(s, BYTES);
    uint64_t c_before = story_kernel(s, c, WRITES);
    story_kernel(s, a, WRITES);
    story_kernel(s, a, READS);
    story_kernel(s, a, READS);
    CHECK_EQ(story_kernel(s, b, WRITES), 7);
    story_kernel(s, b, WRITES);
    CHECK_EQ(story_kernel(s, b, READS), 9);
    uint64_t c_after = story_kernel(s, c, READS);
    story_free(s, a);
    CHECK_EQ(story_free(s, b), 12);
    CHECK_OK(story_diagnose(s, TIMING));
    story_expect(s, EARLY, b, 2, 7);
    story_expect(s, LATE, b, 9, 12);
    story_expect(s, LEAK, c, c_after, GML_NO_API);
    story_expect(s, IDLE, c, c_before, c_after);
    CHECK_EQ(story_count(s, LEAK, b), 0);
    CHECK_EQ(story_count(s, IDLE, b), 0);
    CHECK_EQ(story_count(s, LATE, c), 0); /* it has no free */
    CHECK_EQ(story_find(s, EARLY, b)->distance, 5);
    s->options.early_apis = 4; /* four APIs lie between, and two */
    s->options.late_apis = 2;
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, EARLY, b), 1);
    CHECK_EQ(story_count(s, LATE, b), 1);
    s->options.early_apis = 5;
    s->options.late_apis = 3;
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, EARLY, b), 0);
    CHECK_EQ(story_count(s, LATE, b), 0);
}

/* Section 7.1: three APIs lie between d_data_out1's allocation and its first access, so that the
 * difference of their times is four; and four make d_data_in1 idle. */
STORY(simple_multi_copy)
{
    uint32_t in1 = story_new(s, BYTES);
    uint64_t set = story_call(s, GML_API_SET);
    story_access(s, in1, WRITES);
    uint32_t out1 = story_new(s, BYTES), in2 = story_new(s, BYTES);
    story_call(s, GML_API_SET);
    story_access(s, in2, WRITES);
    uint32_t out2 = story_new(s, BYTES);
    uint64_t kernel = story_kernel(s, in1, READS);
    story_access(s, out1, WRITES);
    s->stream = 1;
    story_kernel(s, in2, READS);
    story_access(s, out2, WRITES);
    s->stream = 0;
    CHECK_OK(story_diagnose(s, TIMING));
    story_expect(s, EARLY, out1, set + 1, kernel);
    CHECK_EQ(story_find(s, EARLY, out1)->distance, 4);
    story_expect(s, IDLE, in1, set, kernel);
    s->options.early_apis = 3;
    s->options.idle_apis = 4;
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, EARLY, out1), 1);
    CHECK_EQ(story_count(s, IDLE, in1), 1);
    s->options.early_apis = 4;
    s->options.idle_apis = 5;
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, EARLY, out1), 0);
    CHECK_EQ(story_count(s, IDLE, in1), 0);
}

STORY(an_object_used_at_once_is_not_early)
{
    uint32_t o = story_new(s, BYTES);
    uint64_t first = story_kernel(s, o, TOUCHES); /* a touch is an access */
    story_pause(s, 3);
    story_kernel(s, o, READS);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, EARLY, o), 0);
    CHECK_EQ(s->diagnosis.lives[o].first, first);
}

STORY(an_object_from_before_is_not_early)
{
    uint32_t o = story_object(s, BYTES, GML_OBJECT_BEFORE);
    story_pause(s, 5);
    story_kernel(s, o, READS);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
}

/* Every object of a batch but the last is early: what counts is how large it is for how long. */
STORY(a_batch_of_allocations_is_ranked)
{
    uint32_t batch[4];
    for (uint64_t i = 0; i < 4; i++) {
        batch[i] = story_new(s, i == 2 ? 10 * BYTES : BYTES);
    }
    for (size_t i = 0; i < 4; i++) {
        story_kernel(s, batch[i], WRITES);
    }
    story_pause(s, 1);
    for (size_t i = 0; i < 4; i++) {
        story_free(s, batch[i]);
    }
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(s->diagnosis.finding_count, 4);
    for (size_t i = 1; i < s->diagnosis.finding_count; i++) {
        const gml_finding *a = &s->diagnosis.findings[i - 1], *b = &s->diagnosis.findings[i];
        CHECK(a->saving_bytes >= b->saving_bytes);
        if (a->saving_bytes == b->saving_bytes) {
            CHECK(a->bytes * a->distance >= b->bytes * b->distance);
        }
    }
    CHECK_EQ(s->diagnosis.findings[0].object, batch[2]);
}

/* Stream 2 waits for nothing but the object: its kernel runs at level 1, whatever stream 1 did
 * meanwhile. */
STORY(another_streams_work_does_not_make_an_object_early)
{
    s->stream = 2;
    uint32_t o = story_new(s, BYTES);
    s->stream = 1;
    story_pause(s, 1);
    s->stream = 2;
    uint64_t first = story_kernel(s, o, WRITES);
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(s->diagnosis.times[first], 1);
    CHECK_EQ(story_count(s, EARLY, o), 0);
}

/* ---- late deallocation ----------------------------------------------------------------------- */

STORY(an_object_freed_at_once_is_not_late)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    uint64_t last = story_kernel(s, o, READS);
    story_free(s, o);
    uint32_t kept = story_object(s, BYTES, GML_OBJECT_KEPT);
    story_alloc(s, kept);
    story_kernel(s, kept, WRITES);
    story_pause(s, 4);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    CHECK_EQ(s->diagnosis.lives[o].last, last);
}

STORY(an_object_from_before_can_be_late)
{
    uint32_t o = story_object(s, BYTES, GML_OBJECT_BEFORE);
    uint64_t last = story_kernel(s, o, READS);
    story_pause(s, 1);
    uint64_t end = story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    story_expect(s, LATE, o, last, end);
    CHECK_EQ(s->diagnosis.findings[0].bytes, BYTES);
    CHECK_EQ(s->diagnosis.findings[0].distance, 2);
    CHECK_EQ(s->diagnosis.findings[0].other, GML_NO_OBJECT);
}

/* Two streams read; the free waits for the later one of both in time, which was invoked first. */
STORY(the_last_access_is_the_last_in_time)
{
    s->stream = 1;
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    story_pause(s, 3);
    uint64_t late = story_kernel(s, o, READS); /* level 5 */
    s->stream = 2;
    uint64_t soon = story_kernel(s, o, READS); /* level 2 */
    s->stream = 1;
    uint64_t end = story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.times[late], 5);
    CHECK_EQ(s->diagnosis.times[soon], 2);
    CHECK_EQ(s->diagnosis.times[end], 6);
    CHECK_EQ(s->diagnosis.lives[o].last, late);
    CHECK_EQ(s->diagnosis.lives[o].latest, soon);
    CHECK_EQ(story_count(s, LATE, o), 0);
}

STORY(a_free_that_waits_in_another_stream_is_late)
{
    s->stream = 1;
    uint32_t o = story_new(s, BYTES);
    uint64_t last = story_kernel(s, o, WRITES);
    s->stream = 2;
    story_pause(s, 4);
    uint64_t end = story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    story_expect(s, LATE, o, last, end); /* levels 1 and 4 */
    CHECK_EQ(story_find(s, LATE, o)->distance, 3);
    s->options.late_apis = 3; /* levels 2 and 3 have an API each */
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, LATE, o), 0);
}

/* ---- unused allocation ----------------------------------------------------------------------- */

STORY(an_object_that_nothing_accesses_is_unused)
{
    uint32_t o = story_object(s, BYTES, 0);
    uint64_t begin = story_alloc(s, o);
    story_pause(s, 2);
    uint64_t end = story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 1); /* neither early nor late */
    story_expect(s, UNUSED, o, begin, end);
    CHECK_EQ(s->diagnosis.lives[o].first, GML_NO_API);
    CHECK_EQ(s->diagnosis.lives[o].latest, GML_NO_API);
}

STORY(one_access_makes_an_object_used)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, TOUCHES);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
}

STORY(an_unused_object_can_leak_as_well)
{
    uint32_t o = story_object(s, BYTES, 0);
    uint64_t begin = story_alloc(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    story_expect(s, UNUSED, o, begin, GML_NO_API);
    story_expect(s, LEAK, o, begin, GML_NO_API);
}

STORY(what_may_be_used_outside_the_trace_is_not_unused)
{
    uint32_t before = story_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t kept = story_object(s, BYTES, GML_OBJECT_KEPT);
    uint32_t both = story_object(s, BYTES, GML_OBJECT_KEPT | GML_OBJECT_BEFORE);
    story_alloc(s, kept);
    story_free(s, before);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    story_free(s, kept); /* so it was not kept after all */
    story_free(s, both);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    CHECK_EQ(story_count(s, UNUSED, kept), 1);
}

STORY(unused_objects_of_several_streams)
{
    for (uint32_t o = 0; o < 3; o++) {
        s->stream = o;
        story_new(s, BYTES);
    }
    story_kernel(s, 1, WRITES);
    for (uint32_t o = 3; o-- > 0;) {
        s->stream = o;
        story_free(s, o);
    }
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, UNUSED, 0), 1);
    CHECK_EQ(story_count(s, UNUSED, 1), 0);
    CHECK_EQ(story_count(s, UNUSED, 2), 1);
}

/* ---- memory leak ----------------------------------------------------------------------------- */

/* A trace of tensors says which of them are kept: the weights that a library holds are no leak. */
STORY(an_object_that_is_kept_is_no_leak)
{
    uint32_t weights = story_object(s, BYTES, GML_OBJECT_KEPT);
    uint32_t forgotten = story_object(s, BYTES, 0);
    story_alloc(s, weights);
    story_kernel(s, weights, WRITES);
    story_alloc(s, forgotten);
    uint64_t last = story_kernel(s, forgotten, WRITES);
    story_kernel(s, weights, READS);
    CHECK_OK(story_diagnose(s, 1 << LEAK));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    story_expect(s, LEAK, forgotten, last, GML_NO_API);
    CHECK_EQ(s->diagnosis.findings[0].distance, 0);
    CHECK_EQ(s->diagnosis.findings[0].bytes, BYTES);
}

STORY(an_object_that_the_last_api_frees_is_no_leak)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, LEAK, o), 1);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, LEAK, o), 0);
}

STORY(an_object_from_before_can_leak)
{
    uint32_t used = story_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t idle = story_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t kept = story_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    uint64_t last = story_kernel(s, used, READS);
    story_access(s, kept, READS);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    story_expect(s, LEAK, used, last, GML_NO_API);
    story_expect(s, LEAK, idle, GML_NO_API, GML_NO_API);
}

STORY(a_leak_begins_at_the_last_access_in_time)
{
    s->stream = 1;
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    story_pause(s, 2);
    uint64_t last = story_kernel(s, o, READS);
    s->stream = 2;
    story_kernel(s, o, READS);
    CHECK_OK(story_diagnose(s, TIMING));
    story_expect(s, LEAK, o, last, GML_NO_API);
}

/* ---- temporary idleness ---------------------------------------------------------------------- */

TEST(two_apis_between_accesses_make_an_object_idle)
{
    for (uint64_t pause = 0; pause < 5; pause++) {
        for (uint64_t least = 1; least < 5; least++) {
            story s;
            story_open(&s);
            uint32_t o = story_new(&s, BYTES);
            uint64_t from = story_kernel(&s, o, WRITES);
            story_pause(&s, pause);
            uint64_t to = story_kernel(&s, o, READS);
            story_free(&s, o);
            s.options.idle_apis = least;
            CHECK_OK(story_diagnose(&s, TIMING));
            CHECK_EQ(story_count(&s, IDLE, o), pause >= least);
            CHECK_EQ(s.diagnosis.finding_count, pause >= least);
            if (pause >= least) {
                story_expect(&s, IDLE, o, from, to);
            }
            story_close(&s);
        }
    }
}

STORY(every_stretch_is_a_finding)
{
    uint32_t o = story_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    for (size_t pause = 0; pause < 6; pause++) {
        story_kernel(s, o, READS);
        story_pause(s, pause);
    }
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, IDLE, o), 3); /* 2, 3 and 4; nothing follows 5 */
    CHECK_EQ(s->diagnosis.finding_count, 3);
}

/* An API that reads one part and writes another accesses the object once. */
STORY(two_accesses_of_one_api_are_not_apart)
{
    uint32_t o = story_new(s, BYTES);
    for (size_t i = 0; i < 2; i++) {
        story_kernel(s, o, WRITES);
        story_range(s, 0, 10);
        story_access(s, o, READS);
        story_range(s, 10, 10);
        story_access(s, o, READS | WRITES);
        story_range(s, 20, 10);
        story_pause(s, 2 * i);
    }
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << IDLE));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    CHECK_EQ(s->diagnosis.lives[o].access_count, 6);
}

/* Stream 2 reads at level 2 what stream 1 reads at level 6: in between, it is idle. */
STORY(idleness_counts_levels)
{
    s->stream = 1;
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    s->stream = 2;
    uint64_t from = story_kernel(s, o, READS);
    s->stream = 1;
    story_pause(s, 4);
    uint64_t to = story_kernel(s, o, READS);
    CHECK_OK(story_diagnose(s, TIMING));
    story_expect(s, IDLE, o, from, to);
    CHECK_EQ(story_find(s, IDLE, o)->distance, 4);
    s->options.idle_apis = 3; /* levels 3, 4 and 5 */
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, IDLE, o), 1);
    s->options.idle_apis = 4;
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, IDLE, o), 0);
}

/* In time, the read of stream 2 comes before that of stream 1; it was invoked after it. There is no
 * point in between where the object could leave. */
STORY(accesses_in_another_order_than_invoked_leave_no_gap)
{
    s->stream = 1;
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    story_pause(s, 5);
    story_kernel(s, o, READS);
    s->stream = 2;
    story_kernel(s, o, READS);
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(story_count(s, IDLE, o), 0);
}

/* The read of stream 2 lies between two others in order of invocation, though not in time. */
STORY(an_access_invoked_in_between_fills_a_gap)
{
    s->stream = 1;
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    story_pause(s, 2);
    story_kernel(s, o, READS); /* level 4 */
    s->stream = 2;
    uint64_t other = story_kernel(s, o, READS); /* level 2 */
    s->stream = 1;
    story_pause(s, 5);
    story_kernel(s, o, READS); /* level 10 */
    CHECK_OK(story_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.times[other], 2);
    CHECK_EQ(story_count(s, IDLE, o), 0);
}
