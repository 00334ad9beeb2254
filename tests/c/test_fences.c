/* Fences and events alone: what a free costs, what a wait covers, and what may never be passed. */
#include "core/fences.h"
#include "driver/streams.h"
#include "support/check.h"

#include <stdlib.h>

enum { STREAMS = 4, FIRST_STREAM = 10 };

typedef struct bench {
    gml_driver *driver;
    gml_streams *queues;
    gml_fences fences;
    gml_timeline lines[STREAMS]; /* of the streams FIRST_STREAM and up */
} bench;

static const gml_fence_rules ALL_RULES = {.follows_events = true,
                                          .is_opportunistic = true,
                                          .may_wait = true,
                                          .most_waits = GML_WAIT_WINDOW};

static void
open_failing(bench *self, const gml_fence_rules *rules, uint64_t fail_call)
{
    gml_driver *inner = NULL;
    char reason[GML_REASON_BYTES];
    *self = (bench){0};
    CHECK_OK(gml_driver_open("sim", 0, 0, &inner, reason, sizeof reason));
    CHECK_OK(gml_fault_driver_open(inner, fail_call, 0, 0, &self->driver));
    self->queues = gml_driver_streams(self->driver);
    CHECK_OK(gml_streams_set_manual(self->queues, true));
    gml_fences_init(&self->fences, self->driver, rules);
    for (size_t i = 0; i < STREAMS; i++) {
        gml_timeline_open(&self->fences, &self->lines[i], FIRST_STREAM + i);
    }
}

static void
open_bench(bench *self, gml_fence_rules rules)
{
    open_failing(self, &rules, 0);
}

static void
close_bench(bench *self)
{
    for (size_t i = 0; i < STREAMS; i++) {
        gml_timeline_close(&self->fences, &self->lines[i]);
    }
    CHECK_EQ(self->fences.events.idle_count, self->fences.events.count);
    CHECK(gml_list_is_empty(&self->fences.all_pairs));
    gml_fences_close(&self->fences);
    /* One of either may have failed on purpose. */
    CHECK(self->driver->calls[GML_CALL_EVENT_DESTROY] + 1 >=
          self->driver->calls[GML_CALL_EVENT_CREATE]);
    gml_driver_close(self->driver);
}

static uint64_t
calls_of(const bench *self, gml_driver_call call)
{
    return self->driver->calls[call];
}

static uint64_t
all_calls(const bench *self)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        calls += self->driver->calls[i];
    }
    return calls;
}

static uint64_t
now(bench *self, size_t line)
{
    return gml_fence_now(&self->fences, &self->lines[line]);
}

static bool
passes(bench *self, size_t borrower, size_t owner, uint64_t instant, gml_effort effort)
{
    bool is_passed = false;
    CHECK_OK(gml_fence_pass(&self->fences, &self->lines[borrower], &self->lines[owner], instant,
                            effort, &is_passed));
    return is_passed;
}

static bool
marks(bench *self, size_t line)
{
    bool is_marked = false;
    CHECK_OK(gml_fence_mark(&self->fences, &self->lines[line], &is_marked));
    return is_marked;
}

static bool
settles(bench *self, size_t line)
{
    bool is_done = false;
    CHECK_OK(gml_fence_settle(&self->fences, &self->lines[line], &is_done));
    return is_done;
}

static void
advance(bench *self, size_t line, uint64_t count)
{
    CHECK_OK(gml_streams_advance(self->queues, FIRST_STREAM + line, count, NULL));
}

static const gml_pair *
only_pair(bench *self)
{
    return gml_pair_of_link(self->fences.all_pairs.next);
}

/* ---- events ------------------------------------------------------------------------------------
 */

TEST(events_are_made_once_and_destroyed_at_the_end)
{
    enum { MANY = 100 };
    bench self;
    open_bench(&self, ALL_RULES);
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
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_CREATE), MANY);
    CHECK_EQ(events->count, MANY);
    gml_events_close(events);
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_DESTROY), MANY);
    close_bench(&self);
}

/* ---- what costs nothing ------------------------------------------------------------------------
 */

TEST(a_free_and_a_streams_own_memory_cost_no_call)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t last = 0;
    for (size_t i = 0; i < 1000; i++) {
        size_t line = i % STREAMS;
        uint64_t instant = now(&self, line);
        CHECK(instant > last);
        last = instant;
        CHECK(passes(&self, line, line, instant, GML_KNOWN));
        CHECK(!passes(&self, (line + 1) % STREAMS, line, instant, GML_KNOWN));
        gml_fence_poll(&self.fences, &self.lines[line]);
    }
    CHECK_EQ(all_calls(&self), 0);
    close_bench(&self);
}

TEST(a_stream_that_freed_nothing_is_complete)
{
    bench self;
    open_bench(&self, ALL_RULES);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK(marks(&self, 0));
    CHECK(settles(&self, 0));
    CHECK(passes(&self, 1, 0, 0, GML_KNOWN));
    CHECK_EQ(all_calls(&self), 0);
    close_bench(&self);
}

/* ---- marks -------------------------------------------------------------------------------------
 */

TEST(one_mark_covers_every_earlier_free)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t first = now(&self, 0);
    uint64_t second = now(&self, 0);
    CHECK(marks(&self, 0));
    CHECK(marks(&self, 0));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    uint64_t third = now(&self, 0);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(!passes(&self, 1, 0, first, GML_KNOWN));
    advance(&self, 0, 1);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(passes(&self, 1, 0, first, GML_KNOWN));
    CHECK(passes(&self, 2, 0, second, GML_KNOWN));
    CHECK(!passes(&self, 1, 0, third, GML_KNOWN));
    CHECK(!gml_timeline_is_complete(&self.lines[0]));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_CREATE), 1);
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 0);
    close_bench(&self);
}

TEST(marks_complete_in_order_and_are_asked_no_more)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t instants[3];
    for (size_t i = 0; i < 3; i++) {
        instants[i] = now(&self, 0);
        CHECK(marks(&self, 0));
    }
    uint64_t progress = self.fences.progress;
    advance(&self, 0, 2);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_QUERY), 3);
    CHECK(self.fences.progress > progress);
    CHECK(passes(&self, 1, 0, instants[1], GML_KNOWN));
    CHECK(!passes(&self, 1, 0, instants[2], GML_KNOWN));
    advance(&self, 0, 1);
    gml_fence_poll(&self.fences, &self.lines[0]);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_QUERY), 4);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    close_bench(&self);
}

TEST(a_stream_that_never_comes_on_holds_few_events)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t first = now(&self, 0), last = first;
    CHECK(marks(&self, 0));
    for (int i = 0; i < 1000; i++) {
        last = now(&self, 0);
        CHECK(marks(&self, 0));
    }
    CHECK(self.fences.events.count < 40);
    uint64_t recorded = calls_of(&self, GML_CALL_EVENT_RECORD);
    CHECK(passes(&self, 1, 0, last, GML_WAIT));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), recorded);
    advance(&self, 0, 1);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(passes(&self, 2, 0, first, GML_KNOWN));
    advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(passes(&self, 2, 0, last, GML_KNOWN));
    close_bench(&self);
}

/* ---- waits -------------------------------------------------------------------------------------
 */

TEST(a_wait_is_one_record_one_wait_and_is_remembered)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t first = now(&self, 0), second = now(&self, 0);
    CHECK(passes(&self, 1, 0, first, GML_WAIT));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 1);
    CHECK_EQ(self.fences.waits, 1);
    uint64_t calls = all_calls(&self);
    CHECK(passes(&self, 1, 0, second, GML_KNOWN)); /* the event covers it as well */
    CHECK(passes(&self, 1, 0, first, GML_WAIT));
    CHECK(!passes(&self, 2, 0, first, GML_KNOWN));
    CHECK_EQ(all_calls(&self), calls);
    CHECK(passes(&self, 2, 0, first, GML_WAIT)); /* another stream, the same event */
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 2);
    uint64_t third = now(&self, 0);
    CHECK(!passes(&self, 1, 0, third, GML_KNOWN));
    CHECK(passes(&self, 1, 0, third, GML_WAIT));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 2);
    CHECK(!passes(&self, 0, 1, now(&self, 1), GML_KNOWN)); /* one way only */
    close_bench(&self);
}

TEST(an_idle_stream_is_not_waited_for)
{
    bench self;
    open_bench(&self, ALL_RULES);
    CHECK_OK(gml_streams_set_manual(self.queues, false));
    CHECK(passes(&self, 1, 0, now(&self, 0), GML_WAIT));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 0);
    CHECK_EQ(self.fences.waits, 0);
    close_bench(&self);
}

TEST(waits_are_limited_per_pair_and_stretch_of_requests)
{
    bench self;
    gml_fence_rules rules = ALL_RULES;
    rules.most_waits = 2;
    open_bench(&self, rules);
    for (int i = 0; i < 2; i++) {
        CHECK(passes(&self, 1, 0, now(&self, 0), GML_WAIT));
    }
    uint64_t instant = now(&self, 0);
    CHECK(!passes(&self, 1, 0, instant, GML_WAIT));
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 2);
    CHECK_EQ(only_pair(&self)->refused_waits, 1);
    CHECK_EQ(only_pair(&self)->waits, 2);
    CHECK(passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(passes(&self, 2, 0, instant, GML_WAIT)); /* another pair */
    instant = now(&self, 0);
    self.lines[1].requests += GML_WAIT_WINDOW;
    CHECK(passes(&self, 1, 0, instant, GML_WAIT));
    close_bench(&self);
}

TEST(an_ordering_by_the_program_covers_what_was_freed_by_then)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t before = now(&self, 0);
    uint64_t progress = self.fences.progress;
    CHECK_OK(gml_fence_tell(&self.fences, &self.lines[1], &self.lines[0]));
    CHECK(self.fences.progress > progress);
    uint64_t after = now(&self, 0);
    CHECK(passes(&self, 1, 0, before, GML_KNOWN));
    CHECK(!passes(&self, 1, 0, after, GML_KNOWN));
    CHECK(!passes(&self, 2, 0, before, GML_KNOWN));
    CHECK_EQ(all_calls(&self), 0);
    close_bench(&self);
}

/* ---- rules -------------------------------------------------------------------------------------
 */

TEST(without_waits_only_what_is_complete_passes)
{
    bench self;
    gml_fence_rules rules = ALL_RULES;
    rules.may_wait = false;
    open_bench(&self, rules);
    uint64_t instant = now(&self, 0);
    CHECK(!passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(!passes(&self, 1, 0, instant, GML_URGENT));
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 0);
    CHECK(marks(&self, 0));
    advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(passes(&self, 1, 0, instant, GML_KNOWN));
    close_bench(&self);
}

TEST(without_opportunism_completion_alone_is_not_enough)
{
    bench self;
    gml_fence_rules rules = ALL_RULES;
    rules.is_opportunistic = false;
    rules.may_wait = false;
    open_bench(&self, rules);
    uint64_t instant = now(&self, 0);
    CHECK(marks(&self, 0));
    advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(!passes(&self, 1, 0, instant, GML_KNOWN));
    CHECK_OK(gml_fence_tell(&self.fences, &self.lines[1], &self.lines[0]));
    CHECK(passes(&self, 1, 0, instant, GML_KNOWN));
    close_bench(&self);
}

TEST(without_following_an_ordering_is_not_used_again)
{
    bench self;
    gml_fence_rules rules = ALL_RULES;
    rules.follows_events = false;
    open_bench(&self, rules);
    uint64_t instant = now(&self, 0);
    CHECK_OK(gml_fence_tell(&self.fences, &self.lines[1], &self.lines[0]));
    CHECK(!passes(&self, 1, 0, instant, GML_KNOWN));
    CHECK(passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(!passes(&self, 1, 0, instant, GML_KNOWN));
    close_bench(&self);
}

/* ---- streams on which no call may be made ------------------------------------------------------
 */

TEST(a_stream_that_is_forgotten_is_marked_once_more_and_never_called)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t before = now(&self, 0);
    gml_fence_forget(&self.fences, &self.lines[0]);
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    uint64_t late = now(&self, 0); /* a block that lived on */
    CHECK(late >= before);
    CHECK(!passes(&self, 1, 0, late, GML_KNOWN));
    CHECK(passes(&self, 1, 0, late, GML_WAIT));
    CHECK_EQ(calls_of(&self, GML_CALL_STREAM_WAIT), 1);
    advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(passes(&self, 2, 0, now(&self, 0), GML_KNOWN));
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_RECORD), 1);
    close_bench(&self);
}

TEST(a_live_block_of_a_forgotten_stream_has_a_fence_too)
{
    bench self;
    open_bench(&self, ALL_RULES);
    gml_fence_forget(&self.fences, &self.lines[0]); /* it has freed nothing so far */
    CHECK(!passes(&self, 1, 0, now(&self, 0), GML_KNOWN));
    advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(passes(&self, 1, 0, now(&self, 0), GML_KNOWN));
    close_bench(&self);
}

/* Where the last mark cannot be made, only a wait for the device ends it. */
TEST(a_stream_that_is_forgotten_while_it_captures_needs_the_device)
{
    for (int is_frozen = 0; is_frozen < 2; is_frozen++) {
        bench self;
        open_bench(&self, ALL_RULES);
        uint64_t instant = now(&self, 0);
        self.driver->is_frozen = is_frozen;
        CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, true));
        gml_fence_forget(&self.fences, &self.lines[0]);
        CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, false));
        self.driver->is_frozen = false;
        uint64_t calls = all_calls(&self);
        CHECK(!passes(&self, 1, 0, instant, GML_URGENT));
        CHECK(!settles(&self, 0));
        CHECK_EQ(all_calls(&self), calls);
        gml_fence_complete(&self.fences, &self.lines[0]);
        CHECK(passes(&self, 1, 0, instant, GML_KNOWN));
        CHECK(!passes(&self, 1, 0, now(&self, 0), GML_URGENT));
        close_bench(&self);
    }
}

TEST(the_stream_of_each_thread_takes_no_part)
{
    bench self;
    open_bench(&self, ALL_RULES);
    gml_timeline own;
    self.driver->per_thread_stream = 2;
    gml_timeline_open(&self.fences, &own, 2);
    uint64_t instant = gml_fence_now(&self.fences, &own), other = now(&self, 0);
    bool is_true = true;
    CHECK_OK(gml_fence_mark(&self.fences, &own, &is_true));
    CHECK(!is_true);
    CHECK_OK(gml_fence_pass(&self.fences, &self.lines[0], &own, instant, GML_URGENT, &is_true));
    CHECK(!is_true);
    CHECK_OK(gml_fence_pass(&self.fences, &own, &self.lines[0], other, GML_URGENT, &is_true));
    CHECK(!is_true);
    CHECK_OK(gml_fence_settle(&self.fences, &own, &is_true));
    CHECK(!is_true);
    CHECK_EQ(all_calls(&self), 0);
    gml_timeline_close(&self.fences, &own);
    close_bench(&self);
}

TEST(while_a_stream_captures_nothing_is_recorded_on_it_and_it_waits_for_nobody)
{
    bench self;
    open_bench(&self, ALL_RULES);
    CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, true));
    uint64_t instant = now(&self, 0), other = now(&self, 1);
    CHECK(!marks(&self, 0));
    CHECK(!passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(!passes(&self, 0, 1, other, GML_URGENT));
    CHECK(!settles(&self, 0));
    CHECK_EQ(self.fences.waits, 0);
    CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, false));
    CHECK(passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(passes(&self, 0, 1, other, GML_WAIT));
    close_bench(&self);
}

TEST(a_frozen_driver_is_not_called)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t known = now(&self, 0);
    CHECK(passes(&self, 1, 0, known, GML_WAIT));
    uint64_t marked = now(&self, 0);
    CHECK(marks(&self, 0));
    uint64_t instant = now(&self, 0), calls = all_calls(&self);
    self.driver->is_frozen = true;
    self.driver->reason[0] = '\0';
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(!marks(&self, 0));
    CHECK(passes(&self, 1, 0, known, GML_URGENT));
    CHECK(!passes(&self, 1, 0, marked, GML_URGENT));
    CHECK(!passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(!settles(&self, 0));
    CHECK_EQ(all_calls(&self), calls);
    CHECK_EQ(self.driver->reason[0], '\0'); /* nor was it asked and refused */
    self.driver->is_frozen = false;
    CHECK(passes(&self, 1, 0, instant, GML_WAIT));
    close_bench(&self);
}

/* ---- the host waits ----------------------------------------------------------------------------
 */

TEST(settling_waits_for_all_that_was_freed)
{
    bench self;
    open_bench(&self, ALL_RULES);
    uint64_t first = now(&self, 0);
    CHECK(marks(&self, 0));
    uint64_t second = now(&self, 0);
    CHECK(settles(&self, 0));
    CHECK_EQ(calls_of(&self, GML_CALL_EVENT_SYNCHRONIZE), 1);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK(passes(&self, 1, 0, first, GML_KNOWN) && passes(&self, 1, 0, second, GML_KNOWN));
    uint64_t calls = all_calls(&self);
    CHECK(settles(&self, 0));
    CHECK_EQ(all_calls(&self), calls);
    close_bench(&self);
}

TEST(another_stream_of_the_same_handle_inherits_nothing)
{
    bench self;
    open_bench(&self, ALL_RULES);
    CHECK(passes(&self, 1, 0, now(&self, 0), GML_WAIT));
    CHECK(passes(&self, 0, 1, now(&self, 1), GML_WAIT));
    gml_timeline_close(&self.fences, &self.lines[0]);
    gml_timeline_open(&self.fences, &self.lines[0], FIRST_STREAM);
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK(!passes(&self, 1, 0, now(&self, 0), GML_KNOWN));
    CHECK(!passes(&self, 0, 1, self.lines[1].last, GML_KNOWN));
    close_bench(&self);
}

TEST(borrows_are_counted_by_pair)
{
    bench self;
    open_bench(&self, ALL_RULES);
    gml_fence_count(&self.fences, &self.lines[1], &self.lines[0], 100);
    gml_fence_count(&self.fences, &self.lines[1], &self.lines[0], 11);
    CHECK_EQ(only_pair(&self)->borrows, 2);
    CHECK_EQ(only_pair(&self)->borrowed_bytes, 111);
    CHECK_EQ(only_pair(&self)->owner, FIRST_STREAM);
    CHECK_EQ(only_pair(&self)->borrower, FIRST_STREAM + 1);
    gml_fence_count(&self.fences, &self.lines[0], &self.lines[1], 1);
    CHECK_EQ(self.fences.borrowed_bytes, 112);
    close_bench(&self);
}

/* ---- failures ----------------------------------------------------------------------------------
 */

/* Everything once, twice; whether the call of that number was there to fail. */
static bool
survives(uint64_t fail_call)
{
    bench self;
    open_failing(&self, &ALL_RULES, fail_call);
    uint64_t failed = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t instant = now(&self, 0);
        bool is_passed = false;
        gml_status status = gml_fence_pass(&self.fences, &self.lines[1], &self.lines[0], instant,
                                           GML_WAIT, &is_passed);
        CHECK(is_passed == (status == GML_OK));
        failed += status != GML_OK;
        CHECK(passes(&self, 1, 0, instant, GML_WAIT) || status == GML_OK);
        CHECK_EQ(self.fences.waits, (uint64_t)i + 1);
        instant = now(&self, 2);
        bool is_done = false;
        status = gml_fence_settle(&self.fences, &self.lines[2], &is_done);
        CHECK(is_done == (status == GML_OK));
        failed += status != GML_OK;
        CHECK(settles(&self, 2));
        CHECK(passes(&self, 3, 2, instant, GML_KNOWN));
    }
    CHECK(failed <= 1);
    bool has_failed = self.driver->reason[0] != '\0';
    close_bench(&self);
    return has_failed;
}

TEST(each_call_may_fail)
{
    uint64_t fail_call = 1;
    while (survives(fail_call)) {
        fail_call++;
    }
    CHECK(fail_call > 8);
}

/* ---- whatever passes has run -------------------------------------------------------------------
 */

enum { STEPS = 40000, MOST_FREES = STEPS };

static bool has_run[MOST_FREES + 1]; /* the work before each instant */
static uint64_t looks;

static void
note_run(void *context)
{
    *(bool *)context = true;
}

static void
expect_run(void *context)
{
    looks++;
    CHECK(*(const bool *)context);
}

/* A free: the work before it, then the instant. */
static void
random_free(bench *self, uint64_t instants[STREAMS][16], size_t counts[STREAMS], size_t line)
{
    uint64_t instant = now(self, line);
    CHECK_OK(gml_streams_enqueue(self->queues, FIRST_STREAM + line, note_run, &has_run[instant]));
    /* The work was there before the free: the clock is read without a call in between. */
    instants[line][counts[line]++ % 16] = instant;
}

static void
random_tell(bench *self, size_t later, size_t earlier)
{
    gml_event event;
    CHECK_OK(gml_streams_event_create(self->queues, &event));
    CHECK_OK(gml_streams_event_record(self->queues, event, FIRST_STREAM + earlier));
    CHECK_OK(gml_streams_wait(self->queues, FIRST_STREAM + later, event));
    CHECK_OK(gml_streams_event_destroy(self->queues, event));
    CHECK_OK(gml_fence_tell(&self->fences, &self->lines[later], &self->lines[earlier]));
}

/* Calls of every kind at random: where a fence is passed, work that is queued then finds that what
 * came before the fence has run. */
static void
run_random(uint64_t seed, gml_fence_rules rules, uint64_t *passed)
{
    bench self;
    check_random random = {seed};
    uint64_t instants[STREAMS][16];
    size_t counts[STREAMS] = {0};
    open_bench(&self, rules);
    for (size_t i = 0; i <= MOST_FREES; i++) {
        has_run[i] = false;
    }
    for (int step = 0; step < STEPS; step++) {
        size_t line = check_below(&random, STREAMS), other = check_below(&random, STREAMS);
        uint64_t kind = check_below(&random, 100);
        if (kind < 30) {
            random_free(&self, instants, counts, line);
        } else if (kind < 70 && counts[other]) {
            size_t known = counts[other] < 16 ? counts[other] : 16;
            uint64_t instant = instants[other][check_below(&random, known)];
            self.lines[line].requests++;
            if (passes(&self, line, other, instant, (gml_effort)check_below(&random, 3))) {
                (*passed)++;
                CHECK_OK(gml_streams_enqueue(self.queues, FIRST_STREAM + line, expect_run,
                                             &has_run[instant]));
            }
        } else if (kind < 72 && line != other) {
            random_tell(&self, line, other);
        } else if (kind < 80) {
            (void)marks(&self, line);
        } else if (kind < 88) {
            gml_fence_poll(&self.fences, &self.lines[line]);
        } else if (kind == 88) {
            (void)settles(&self, line);
        } else {
            advance(&self, line, check_below(&random, 6));
        }
    }
    CHECK_OK(gml_streams_synchronize_all(self.queues));
    close_bench(&self);
}

TEST(whatever_passes_has_run)
{
    uint64_t passed = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        gml_fence_rules rules = {.follows_events = seed & 1,
                                 .is_opportunistic = seed & 2,
                                 .may_wait = seed & 4,
                                 .most_waits = seed % 3 ? GML_WAIT_WINDOW : 100};
        run_random(seed, rules, &passed);
    }
    CHECK_EQ(looks, passed);
    CHECK(passed > STEPS);
}

int
main(void)
{
    RUN(events_are_made_once_and_destroyed_at_the_end);
    RUN(a_free_and_a_streams_own_memory_cost_no_call);
    RUN(a_stream_that_freed_nothing_is_complete);
    RUN(one_mark_covers_every_earlier_free);
    RUN(marks_complete_in_order_and_are_asked_no_more);
    RUN(a_stream_that_never_comes_on_holds_few_events);
    RUN(a_wait_is_one_record_one_wait_and_is_remembered);
    RUN(an_idle_stream_is_not_waited_for);
    RUN(waits_are_limited_per_pair_and_stretch_of_requests);
    RUN(an_ordering_by_the_program_covers_what_was_freed_by_then);
    RUN(without_waits_only_what_is_complete_passes);
    RUN(without_opportunism_completion_alone_is_not_enough);
    RUN(without_following_an_ordering_is_not_used_again);
    RUN(a_stream_that_is_forgotten_is_marked_once_more_and_never_called);
    RUN(a_live_block_of_a_forgotten_stream_has_a_fence_too);
    RUN(a_stream_that_is_forgotten_while_it_captures_needs_the_device);
    RUN(the_stream_of_each_thread_takes_no_part);
    RUN(while_a_stream_captures_nothing_is_recorded_on_it_and_it_waits_for_nobody);
    RUN(a_frozen_driver_is_not_called);
    RUN(settling_waits_for_all_that_was_freed);
    RUN(another_stream_of_the_same_handle_inherits_nothing);
    RUN(borrows_are_counted_by_pair);
    RUN(each_call_may_fail);
    RUN(whatever_passes_has_run);
    return report();
}
