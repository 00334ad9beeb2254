/* Fences and events alone: what a free costs, what a wait covers, and what may never be passed. */
#include "support/fence_bench.h"

/* ---- events ---------------------------------------------------------------------------------- */

TEST(events_are_made_once_and_destroyed_at_the_end)
{
    enum { MANY = 100 };
    bench self;
    bench_open(&self, bench_all_rules);
    gml_events *events = &self.fences.events;
    gml_event taken[MANY];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i++) {
            CHECK_OK(gml_events_take(events, &taken[i]));
            for (size_t k = 0; k < i; k++) {
                CHECK(taken[k] != taken[i]);
            }
        }
        for (size_t i = 0; i < MANY; i++) {
            gml_events_give(events, taken[i]);
        }
    }
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_CREATE), MANY);
    CHECK_EQ(events->count, MANY);
    gml_events_close(events);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_DESTROY), MANY);
    bench_close(&self);
}

/* ---- what costs nothing ---------------------------------------------------------------------- */

TEST(a_free_and_a_streams_own_memory_cost_no_call)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t last = 0;
    for (size_t i = 0; i < 1000; i++) {
        size_t line = i % STREAMS;
        uint64_t instant = bench_now(&self, line);
        CHECK(instant > last);
        last = instant;
        CHECK(bench_passes(&self, line, line, instant, GML_KNOWN));
        CHECK(!bench_passes(&self, (line + 1) % STREAMS, line, instant, GML_KNOWN));
        gml_fence_poll(&self.fences, &self.lines[line]);
    }
    CHECK_EQ(bench_all_calls(&self), 0);
    bench_close(&self);
}

TEST(a_stream_that_freed_nothing_is_complete)
{
    bench self;
    bench_open(&self, bench_all_rules);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK(bench_marks(&self, 0));
    CHECK(bench_waits(&self, 0));
    CHECK(bench_passes(&self, 1, 0, 0, GML_KNOWN));
    CHECK_EQ(bench_all_calls(&self), 0);
    bench_close(&self);
}

/* ---- marks ----------------------------------------------------------------------------------- */

TEST(one_mark_covers_every_earlier_free)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_now(&self, 0);
    uint64_t second = bench_now(&self, 0);
    CHECK(bench_marks(&self, 0));
    CHECK(bench_marks(&self, 0));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    uint64_t third = bench_now(&self, 0);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(!bench_passes(&self, 1, 0, first, GML_KNOWN));
    bench_advance(&self, 0, 1);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(bench_passes(&self, 1, 0, first, GML_KNOWN));
    CHECK(bench_passes(&self, 2, 0, second, GML_KNOWN));
    CHECK(!bench_passes(&self, 1, 0, third, GML_KNOWN));
    CHECK(!gml_timeline_is_complete(&self.lines[0]));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_CREATE), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 0);
    bench_close(&self);
}

TEST(marks_complete_in_order_and_are_asked_no_more)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t instants[3];
    for (size_t i = 0; i < 3; i++) {
        instants[i] = bench_now(&self, 0);
        CHECK(bench_marks(&self, 0));
    }
    bench_advance(&self, 0, 2);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_QUERY), 3);
    CHECK(bench_passes(&self, 1, 0, instants[1], GML_KNOWN));
    CHECK(!bench_passes(&self, 1, 0, instants[2], GML_KNOWN));
    bench_advance(&self, 0, 1);
    gml_fence_poll(&self.fences, &self.lines[0]);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_QUERY), 4);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    bench_close(&self);
}

TEST(a_stream_that_never_comes_on_holds_few_events)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_now(&self, 0), last = first;
    CHECK(bench_marks(&self, 0));
    for (int i = 0; i < 1000; i++) {
        last = bench_now(&self, 0);
        CHECK(bench_marks(&self, 0));
    }
    CHECK(self.fences.events.count < 40);
    uint64_t recorded = bench_calls(&self, GML_CALL_EVENT_RECORD);
    CHECK(bench_passes(&self, 1, 0, last, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), recorded);
    bench_advance(&self, 0, 1);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(bench_passes(&self, 2, 0, first, GML_KNOWN));
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(bench_passes(&self, 2, 0, last, GML_KNOWN));
    bench_close(&self);
}

/* ---- waits ----------------------------------------------------------------------------------- */

TEST(a_wait_is_one_record_one_wait_and_is_remembered)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_now(&self, 0), second = bench_now(&self, 0);
    CHECK(bench_passes(&self, 1, 0, first, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 1);
    CHECK_EQ(self.fences.waits, 1);
    uint64_t calls = bench_all_calls(&self);
    CHECK(bench_passes(&self, 1, 0, second, GML_KNOWN)); /* the event covers it as well */
    CHECK(bench_passes(&self, 1, 0, first, GML_WAIT));
    CHECK(!bench_passes(&self, 2, 0, first, GML_KNOWN));
    CHECK_EQ(bench_all_calls(&self), calls);
    CHECK(bench_passes(&self, 2, 0, first, GML_WAIT)); /* another stream, the same event */
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 2);
    uint64_t third = bench_now(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, third, GML_KNOWN));
    CHECK(bench_passes(&self, 1, 0, third, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 2);
    CHECK(!bench_passes(&self, 0, 1, bench_now(&self, 1), GML_KNOWN)); /* one way only */
    bench_close(&self);
}

TEST(an_idle_stream_is_not_waited_for)
{
    bench self;
    bench_open(&self, bench_all_rules);
    CHECK_OK(gml_streams_set_manual(self.queues, false));
    CHECK(bench_passes(&self, 1, 0, bench_now(&self, 0), GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 0);
    CHECK_EQ(self.fences.waits, 0);
    bench_close(&self);
}

TEST(waits_are_limited_per_pair_and_stretch_of_requests)
{
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.most_waits = 2;
    bench_open(&self, rules);
    for (int i = 0; i < 2; i++) {
        CHECK(bench_passes(&self, 1, 0, bench_now(&self, 0), GML_WAIT));
    }
    uint64_t instant = bench_now(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 2);
    CHECK_EQ(bench_pair(&self)->refused_waits, 1);
    CHECK_EQ(bench_pair(&self)->waits, 2);
    CHECK(bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(bench_passes(&self, 2, 0, instant, GML_WAIT)); /* another pair */
    instant = bench_now(&self, 0);
    self.lines[1].requests += GML_WAIT_WINDOW;
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    bench_close(&self);
}

TEST(an_ordering_by_the_program_covers_what_was_freed_by_then)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t before = bench_now(&self, 0);
    CHECK_OK(gml_fence_tell(&self.fences, &self.lines[1], &self.lines[0]));
    uint64_t after = bench_now(&self, 0);
    CHECK(bench_passes(&self, 1, 0, before, GML_KNOWN));
    CHECK(!bench_passes(&self, 1, 0, after, GML_KNOWN));
    CHECK(!bench_passes(&self, 2, 0, before, GML_KNOWN));
    CHECK_EQ(bench_all_calls(&self), 0);
    bench_close(&self);
}

/* ---- rules ----------------------------------------------------------------------------------- */

TEST(without_waits_only_what_is_complete_passes)
{
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.may_wait = false;
    bench_open(&self, rules);
    uint64_t instant = bench_now(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 0);
    CHECK(bench_marks(&self, 0));
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(bench_passes(&self, 1, 0, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(without_opportunism_completion_alone_is_not_enough)
{
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.is_opportunistic = false;
    rules.may_wait = false;
    bench_open(&self, rules);
    uint64_t instant = bench_now(&self, 0);
    CHECK(bench_marks(&self, 0));
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_KNOWN));
    CHECK_OK(gml_fence_tell(&self.fences, &self.lines[1], &self.lines[0]));
    CHECK(bench_passes(&self, 1, 0, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(without_following_an_ordering_is_not_used_again)
{
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.follows_events = false;
    bench_open(&self, rules);
    uint64_t instant = bench_now(&self, 0);
    CHECK_OK(gml_fence_tell(&self.fences, &self.lines[1], &self.lines[0]));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_KNOWN));
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_KNOWN));
    bench_close(&self);
}

/* ---- the host waits -------------------------------------------------------------------------- */

TEST(settling_waits_for_all_that_was_freed)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_now(&self, 0);
    CHECK(bench_marks(&self, 0));
    uint64_t second = bench_now(&self, 0);
    CHECK(bench_waits(&self, 0));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_SYNCHRONIZE), 1);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK(bench_passes(&self, 1, 0, first, GML_KNOWN) &&
          bench_passes(&self, 1, 0, second, GML_KNOWN));
    uint64_t calls = bench_all_calls(&self);
    CHECK(bench_waits(&self, 0));
    CHECK_EQ(bench_all_calls(&self), calls);
    bench_close(&self);
}

TEST(another_stream_of_the_same_handle_inherits_nothing)
{
    bench self;
    bench_open(&self, bench_all_rules);
    CHECK(bench_passes(&self, 1, 0, bench_now(&self, 0), GML_WAIT));
    CHECK(bench_passes(&self, 0, 1, bench_now(&self, 1), GML_WAIT));
    gml_timeline_close(&self.fences, &self.lines[0]);
    gml_timeline_open(&self.fences, &self.lines[0], FIRST_STREAM);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK(!bench_passes(&self, 1, 0, bench_now(&self, 0), GML_KNOWN));
    CHECK(!bench_passes(&self, 0, 1, self.lines[1].last, GML_KNOWN));
    bench_close(&self);
}

TEST(borrows_are_counted_by_pair)
{
    bench self;
    bench_open(&self, bench_all_rules);
    gml_fence_count(&self.fences, &self.lines[1], &self.lines[0], 100);
    gml_fence_count(&self.fences, &self.lines[1], &self.lines[0], 11);
    CHECK_EQ(bench_pair(&self)->borrows, 2);
    CHECK_EQ(bench_pair(&self)->borrowed_bytes, 111);
    CHECK_EQ(bench_pair(&self)->owner, FIRST_STREAM);
    CHECK_EQ(bench_pair(&self)->borrower, FIRST_STREAM + 1);
    gml_fence_count(&self.fences, &self.lines[0], &self.lines[1], 1);
    CHECK_EQ(self.fences.borrowed_bytes, 112);
    bench_close(&self);
}
