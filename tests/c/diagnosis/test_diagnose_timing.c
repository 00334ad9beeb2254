/* The five patterns of time: early allocation, late deallocation, unused allocation, memory leak
 * and temporary idleness. */
#include "diagnosis/scenario.h"

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
SCENARIO(figure_2) {
    uint32_t a = scenario_new(s, BYTES), c = scenario_new(s, BYTES), b = scenario_new(s, BYTES);
    uint64_t c_before = scenario_kernel(s, c, WRITES);
    scenario_kernel(s, a, WRITES);
    scenario_kernel(s, a, READS);
    scenario_kernel(s, a, READS);
    CHECK_EQ(scenario_kernel(s, b, WRITES), 7);
    scenario_kernel(s, b, WRITES);
    CHECK_EQ(scenario_kernel(s, b, READS), 9);
    uint64_t c_after = scenario_kernel(s, c, READS);
    scenario_free(s, a);
    CHECK_EQ(scenario_free(s, b), 12);
    CHECK_OK(scenario_diagnose(s, TIMING));
    scenario_expect(s, EARLY, b, 2, 7);
    scenario_expect(s, LATE, b, 9, 12);
    scenario_expect(s, LEAK, c, c_after, GML_NO_API);
    scenario_expect(s, IDLE, c, c_before, c_after);
    CHECK_EQ(scenario_count(s, LEAK, b), 0);
    CHECK_EQ(scenario_count(s, IDLE, b), 0);
    CHECK_EQ(scenario_count(s, LATE, c), 0); /* it has no free */
    CHECK_EQ(scenario_find(s, EARLY, b)->distance, 5);
    s->options.early_apis = 4; /* four APIs lie between, and two */
    s->options.late_apis = 2;
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, EARLY, b), 1);
    CHECK_EQ(scenario_count(s, LATE, b), 1);
    s->options.early_apis = 5;
    s->options.late_apis = 3;
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, EARLY, b), 0);
    CHECK_EQ(scenario_count(s, LATE, b), 0);
}

/* Section 7.1: three APIs lie between d_data_out1's allocation and its first access, so that the
 * difference of their times is four; and four make d_data_in1 idle. */
SCENARIO(simple_multi_copy) {
    uint32_t in1 = scenario_new(s, BYTES);
    uint64_t set = scenario_call(s, GML_API_SET);
    scenario_access(s, in1, WRITES);
    uint32_t out1 = scenario_new(s, BYTES), in2 = scenario_new(s, BYTES);
    scenario_call(s, GML_API_SET);
    scenario_access(s, in2, WRITES);
    uint32_t out2 = scenario_new(s, BYTES);
    uint64_t kernel = scenario_kernel(s, in1, READS);
    scenario_access(s, out1, WRITES);
    s->stream = 1;
    scenario_kernel(s, in2, READS);
    scenario_access(s, out2, WRITES);
    s->stream = 0;
    CHECK_OK(scenario_diagnose(s, TIMING));
    scenario_expect(s, EARLY, out1, set + 1, kernel);
    CHECK_EQ(scenario_find(s, EARLY, out1)->distance, 4);
    scenario_expect(s, IDLE, in1, set, kernel);
    s->options.early_apis = 3;
    s->options.idle_apis = 4;
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, EARLY, out1), 1);
    CHECK_EQ(scenario_count(s, IDLE, in1), 1);
    s->options.early_apis = 4;
    s->options.idle_apis = 5;
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, EARLY, out1), 0);
    CHECK_EQ(scenario_count(s, IDLE, in1), 0);
}

SCENARIO(an_object_used_at_once_is_not_early) {
    uint32_t o = scenario_new(s, BYTES);
    uint64_t first = scenario_kernel(s, o, TOUCHES); /* a touch is an access */
    scenario_pause(s, 3);
    scenario_kernel(s, o, READS);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, EARLY, o), 0);
    CHECK_EQ(s->diagnosis.lives[o].first, first);
}

SCENARIO(an_object_from_before_is_not_early) {
    uint32_t o = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    scenario_pause(s, 5);
    scenario_kernel(s, o, READS);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
}

/* Every object of a batch but the last is early: what counts is how large it is for how long. */
SCENARIO(a_batch_of_allocations_is_ranked) {
    uint32_t batch[4];
    for (uint64_t i = 0; i < 4; i++) {
        batch[i] = scenario_new(s, i == 2 ? 10 * BYTES : BYTES);
    }
    for (size_t i = 0; i < 4; i++) {
        scenario_kernel(s, batch[i], WRITES);
    }
    scenario_pause(s, 1);
    for (size_t i = 0; i < 4; i++) {
        scenario_free(s, batch[i]);
    }
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
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
SCENARIO(another_streams_work_does_not_make_an_object_early) {
    s->stream = 2;
    uint32_t o = scenario_new(s, BYTES);
    s->stream = 1;
    scenario_pause(s, 1);
    s->stream = 2;
    uint64_t first = scenario_kernel(s, o, WRITES);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
    CHECK_EQ(s->diagnosis.times[first], 1);
    CHECK_EQ(scenario_count(s, EARLY, o), 0);
}

/* ---- late deallocation ----------------------------------------------------------------------- */

SCENARIO(an_object_freed_at_once_is_not_late) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    uint64_t last = scenario_kernel(s, o, READS);
    scenario_free(s, o);
    uint32_t kept = scenario_object(s, BYTES, GML_OBJECT_KEPT);
    scenario_alloc(s, kept);
    scenario_kernel(s, kept, WRITES);
    scenario_pause(s, 4);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    CHECK_EQ(s->diagnosis.lives[o].last, last);
}

SCENARIO(an_object_from_before_can_be_late) {
    uint32_t o = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    uint64_t last = scenario_kernel(s, o, READS);
    scenario_pause(s, 1);
    uint64_t end = scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    scenario_expect(s, LATE, o, last, end);
    CHECK_EQ(s->diagnosis.findings[0].bytes, BYTES);
    CHECK_EQ(s->diagnosis.findings[0].distance, 2);
    CHECK_EQ(s->diagnosis.findings[0].other, GML_NO_OBJECT);
}

/* Two streams read; the free waits for the later one of both in time, which was invoked first. */
SCENARIO(the_last_access_is_the_last_in_time) {
    s->stream = 1;
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 3);
    uint64_t late = scenario_kernel(s, o, READS); /* level 5 */
    s->stream = 2;
    uint64_t soon = scenario_kernel(s, o, READS); /* level 2 */
    s->stream = 1;
    uint64_t end = scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.times[late], 5);
    CHECK_EQ(s->diagnosis.times[soon], 2);
    CHECK_EQ(s->diagnosis.times[end], 6);
    CHECK_EQ(s->diagnosis.lives[o].last, late);
    CHECK_EQ(s->diagnosis.lives[o].latest, soon);
    CHECK_EQ(scenario_count(s, LATE, o), 0);
}

SCENARIO(a_free_that_waits_in_another_stream_is_late) {
    s->stream = 1;
    uint32_t o = scenario_new(s, BYTES);
    uint64_t last = scenario_kernel(s, o, WRITES);
    s->stream = 2;
    scenario_pause(s, 4);
    uint64_t end = scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    scenario_expect(s, LATE, o, last, end); /* levels 1 and 4 */
    CHECK_EQ(scenario_find(s, LATE, o)->distance, 3);
    s->options.late_apis = 3; /* levels 2 and 3 have an API each */
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, LATE, o), 0);
}

/* ---- unused allocation ----------------------------------------------------------------------- */

SCENARIO(an_object_that_nothing_accesses_is_unused) {
    uint32_t o = scenario_object(s, BYTES, 0);
    uint64_t begin = scenario_alloc(s, o);
    scenario_pause(s, 2);
    uint64_t end = scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 1); /* neither early nor late */
    scenario_expect(s, UNUSED, o, begin, end);
    CHECK_EQ(s->diagnosis.lives[o].first, GML_NO_API);
    CHECK_EQ(s->diagnosis.lives[o].latest, GML_NO_API);
}

SCENARIO(one_access_makes_an_object_used) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, TOUCHES);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
}

SCENARIO(an_unused_object_can_leak_as_well) {
    uint32_t o = scenario_object(s, BYTES, 0);
    uint64_t begin = scenario_alloc(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    scenario_expect(s, UNUSED, o, begin, GML_NO_API);
    scenario_expect(s, LEAK, o, begin, GML_NO_API);
}

SCENARIO(what_may_be_used_outside_the_trace_is_not_unused) {
    uint32_t before = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t kept = scenario_object(s, BYTES, GML_OBJECT_KEPT);
    uint32_t both = scenario_object(s, BYTES, GML_OBJECT_KEPT | GML_OBJECT_BEFORE);
    scenario_alloc(s, kept);
    scenario_free(s, before);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    scenario_free(s, kept); /* so it was not kept after all */
    scenario_free(s, both);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    CHECK_EQ(scenario_count(s, UNUSED, kept), 1);
}

SCENARIO(unused_objects_of_several_streams) {
    for (uint32_t o = 0; o < 3; o++) {
        s->stream = o;
        scenario_new(s, BYTES);
    }
    scenario_kernel(s, 1, WRITES);
    for (uint32_t o = 3; o-- > 0;) {
        s->stream = o;
        scenario_free(s, o);
    }
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, UNUSED, 0), 1);
    CHECK_EQ(scenario_count(s, UNUSED, 1), 0);
    CHECK_EQ(scenario_count(s, UNUSED, 2), 1);
}

/* ---- memory leak ----------------------------------------------------------------------------- */

/* A trace of tensors says which of them are kept: the weights that a library holds are no leak. */
SCENARIO(an_object_that_is_kept_is_no_leak) {
    uint32_t weights = scenario_object(s, BYTES, GML_OBJECT_KEPT);
    uint32_t forgotten = scenario_object(s, BYTES, 0);
    scenario_alloc(s, weights);
    scenario_kernel(s, weights, WRITES);
    scenario_alloc(s, forgotten);
    uint64_t last = scenario_kernel(s, forgotten, WRITES);
    scenario_kernel(s, weights, READS);
    CHECK_OK(scenario_diagnose(s, 1 << LEAK));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    scenario_expect(s, LEAK, forgotten, last, GML_NO_API);
    CHECK_EQ(s->diagnosis.findings[0].distance, 0);
    CHECK_EQ(s->diagnosis.findings[0].bytes, BYTES);
}

SCENARIO(an_object_that_the_last_api_frees_is_no_leak) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, LEAK, o), 1);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, LEAK, o), 0);
}

SCENARIO(an_object_from_before_can_leak) {
    uint32_t used = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t idle = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t kept = scenario_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    uint64_t last = scenario_kernel(s, used, READS);
    scenario_access(s, kept, READS);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    scenario_expect(s, LEAK, used, last, GML_NO_API);
    scenario_expect(s, LEAK, idle, GML_NO_API, GML_NO_API);
}

SCENARIO(a_leak_begins_at_the_last_access_in_time) {
    s->stream = 1;
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 2);
    uint64_t last = scenario_kernel(s, o, READS);
    s->stream = 2;
    scenario_kernel(s, o, READS);
    CHECK_OK(scenario_diagnose(s, TIMING));
    scenario_expect(s, LEAK, o, last, GML_NO_API);
}

/* ---- temporary idleness ---------------------------------------------------------------------- */

TEST(two_apis_between_accesses_make_an_object_idle) {
    for (uint64_t pause = 0; pause < 5; pause++) {
        for (uint64_t least = 1; least < 5; least++) {
            scenario s;
            scenario_open(&s);
            uint32_t o = scenario_new(&s, BYTES);
            uint64_t from = scenario_kernel(&s, o, WRITES);
            scenario_pause(&s, pause);
            uint64_t to = scenario_kernel(&s, o, READS);
            scenario_free(&s, o);
            s.options.idle_apis = least;
            CHECK_OK(scenario_diagnose(&s, TIMING));
            CHECK_EQ(scenario_count(&s, IDLE, o), pause >= least);
            CHECK_EQ(s.diagnosis.finding_count, pause >= least);
            if (pause >= least) {
                scenario_expect(&s, IDLE, o, from, to);
            }
            scenario_close(&s);
        }
    }
}

SCENARIO(every_stretch_is_a_finding) {
    uint32_t o = scenario_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    for (size_t pause = 0; pause < 6; pause++) {
        scenario_kernel(s, o, READS);
        scenario_pause(s, pause);
    }
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, IDLE, o), 3); /* 2, 3 and 4; nothing follows 5 */
    CHECK_EQ(s->diagnosis.finding_count, 3);
}

/* An API that reads one part and writes another accesses the object once. */
SCENARIO(two_accesses_of_one_api_are_not_apart) {
    uint32_t o = scenario_new(s, BYTES);
    for (size_t i = 0; i < 2; i++) {
        scenario_kernel(s, o, WRITES);
        scenario_range(s, 0, 10);
        scenario_access(s, o, READS);
        scenario_range(s, 10, 10);
        scenario_access(s, o, READS | WRITES);
        scenario_range(s, 20, 10);
        scenario_pause(s, 2 * i);
    }
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << IDLE));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    CHECK_EQ(s->diagnosis.lives[o].access_count, 6);
}

/* Stream 2 reads at level 2 what stream 1 reads at level 6: in between, it is idle. */
SCENARIO(idleness_counts_levels) {
    s->stream = 1;
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    s->stream = 2;
    uint64_t from = scenario_kernel(s, o, READS);
    s->stream = 1;
    scenario_pause(s, 4);
    uint64_t to = scenario_kernel(s, o, READS);
    CHECK_OK(scenario_diagnose(s, TIMING));
    scenario_expect(s, IDLE, o, from, to);
    CHECK_EQ(scenario_find(s, IDLE, o)->distance, 4);
    s->options.idle_apis = 3; /* levels 3, 4 and 5 */
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, IDLE, o), 1);
    s->options.idle_apis = 4;
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, IDLE, o), 0);
}

/* In time, the read of stream 2 comes before that of stream 1; it was invoked after it. There is no
 * point in between where the object could leave. */
SCENARIO(accesses_in_another_order_than_invoked_leave_no_gap) {
    s->stream = 1;
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 5);
    scenario_kernel(s, o, READS);
    s->stream = 2;
    scenario_kernel(s, o, READS);
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(scenario_count(s, IDLE, o), 0);
}

/* The read of stream 2 lies between two others in order of invocation, though not in time. */
SCENARIO(an_access_invoked_in_between_fills_a_gap) {
    s->stream = 1;
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 2);
    scenario_kernel(s, o, READS); /* level 4 */
    s->stream = 2;
    uint64_t other = scenario_kernel(s, o, READS); /* level 2 */
    s->stream = 1;
    scenario_pause(s, 5);
    scenario_kernel(s, o, READS); /* level 10 */
    CHECK_OK(scenario_diagnose(s, TIMING));
    CHECK_EQ(s->diagnosis.times[other], 2);
    CHECK_EQ(scenario_count(s, IDLE, o), 0);
}
