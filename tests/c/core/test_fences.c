/* Fences and events alone: what a free costs, what a wait covers, where no call may be made, and,
 * under programs at random, that what is passed has run. */
#include "support/fence_bench.h"

#include <string.h>

enum { UNSEEN = SEEKERS }; /* a stream that never asks */

TEST(events_are_made_once_and_destroyed_at_the_end) {
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

TEST(a_free_and_a_streams_own_memory_cost_no_call) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t last = 0;
    for (size_t i = 0; i < 1000; i++) {
        uint64_t instant = bench_free(&self, i % SEEKERS);
        CHECK(instant > last);
        last = instant;
        CHECK(bench_passes(&self, i % SEEKERS, i % SEEKERS, instant, GML_URGENT));
        CHECK(!bench_passes(&self, (i + 1) % SEEKERS, i % SEEKERS, instant, GML_KNOWN));
        gml_fence_poll(&self.fences);
    }
    CHECK_EQ(bench_all_calls(&self), 0);
    bench_close(&self);
}

/* ---- marks ----------------------------------------------------------------------------------- */

TEST(a_mark_covers_every_earlier_free_once_every_stream_has_passed_it) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_free(&self, 0), second = bench_free(&self, UNSEEN);
    CHECK_OK(gml_fence_mark(&self.fences));
    CHECK_OK(gml_fence_mark(&self.fences));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), 1);
    uint64_t third = bench_free(&self, 0);
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences);
    CHECK(!bench_passes(&self, 1, 0, first, GML_KNOWN));
    bench_advance(&self, UNSEEN, UINT64_MAX);
    gml_fence_poll(&self.fences);
    CHECK(bench_passes(&self, 1, 0, first, GML_KNOWN));
    CHECK(bench_passes(&self, 2, 0, second, GML_KNOWN));
    CHECK(!bench_passes(&self, 1, 0, third, GML_KNOWN));
    CHECK_EQ(self.fences.completed, second);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_CREATE), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 0);
    uint64_t calls = bench_all_calls(&self);
    gml_fence_poll(&self.fences); /* what is complete is asked no more */
    CHECK_EQ(bench_all_calls(&self), calls);
    gml_fence_complete(&self.fences);
    CHECK(bench_passes(&self, 1, 0, third, GML_KNOWN));
    CHECK_EQ(bench_all_calls(&self), calls);
    bench_close(&self);
}

TEST(a_device_that_never_comes_on_holds_few_events) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_free(&self, 0), last = first;
    for (size_t i = 0; i < 1000; i++) {
        CHECK_OK(gml_fence_mark(&self.fences));
        last = bench_free(&self, i % STREAMS);
    }
    CHECK_OK(gml_fence_mark(&self.fences));
    CHECK(self.fences.events.count < 40);
    uint64_t recorded = bench_calls(&self, GML_CALL_EVENT_RECORD_ALL);
    CHECK(bench_passes(&self, 1, 0, last, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), recorded);
    bench_advance(&self, 0, 2);
    gml_fence_poll(&self.fences);
    CHECK(bench_passes(&self, 2, 0, first, GML_KNOWN));
    CHECK_OK(gml_streams_synchronize_all(self.queues));
    gml_fence_poll(&self.fences);
    CHECK(bench_passes(&self, 2, 0, last, GML_KNOWN));
    bench_close(&self);
}

/* ---- waits ----------------------------------------------------------------------------------- */

TEST(a_wait_is_one_record_one_wait_and_is_remembered) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t first = bench_free(&self, 0), second = bench_free(&self, 2);
    CHECK(bench_passes(&self, 1, 0, first, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 1);
    uint64_t calls = bench_all_calls(&self);
    CHECK(bench_passes(&self, 1, 2, second, GML_KNOWN)); /* the mark covers all streams */
    CHECK(bench_passes(&self, 1, 0, first, GML_WAIT));
    CHECK(!bench_passes(&self, 3, 0, first, GML_KNOWN));
    CHECK_EQ(bench_all_calls(&self), calls);
    CHECK(bench_passes(&self, 3, 0, first, GML_WAIT)); /* another stream, the same event */
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 2);
    uint64_t third = bench_free(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, third, GML_KNOWN));
    CHECK(bench_passes(&self, 1, 0, third, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), 2);
    CHECK_EQ(self.fences.waits, 3);
    CHECK(!bench_passes(&self, 0, 1, bench_free(&self, 1), GML_KNOWN)); /* one way only */
    bench_close(&self);
}

TEST(an_idle_device_is_not_waited_for) {
    bench self;
    bench_open(&self, bench_all_rules);
    CHECK_OK(gml_streams_set_manual(self.queues, false));
    CHECK(bench_passes(&self, 1, 0, bench_free(&self, 0), GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), 1);
    CHECK_EQ(self.fences.waits, 0);
    bench_close(&self);
}

TEST(waits_are_limited_per_stream_and_stretch_of_its_requests) {
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.most_waits = 2;
    bench_open(&self, rules);
    for (size_t owner = 0; owner < 4; owner += 2) {
        CHECK(bench_passes(&self, 1, owner, bench_free(&self, owner), GML_WAIT));
    }
    uint64_t instant = bench_free(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_WAIT)); /* another attempt of one request */
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 2);
    CHECK_EQ(bench_pair(&self)->refused_waits, 1);
    CHECK_EQ(bench_pair(&self)->waits, 1);
    CHECK(bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(bench_passes(&self, 2, 0, instant, GML_WAIT)); /* another stream */
    instant = bench_free(&self, 0);
    self.seekers[1].requests += GML_WAIT_WINDOW;
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    bench_close(&self);
}

/* ---- rules ----------------------------------------------------------------------------------- */

TEST(without_waits_only_what_is_complete_passes) {
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.may_wait = false;
    bench_open(&self, rules);
    uint64_t instant = bench_free(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK_EQ(bench_all_calls(&self), 0);
    CHECK_OK(gml_fence_mark(&self.fences));
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences);
    CHECK(bench_passes(&self, 1, 0, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(without_opportunism_completion_alone_is_not_enough) {
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.is_opportunistic = false;
    bench_open(&self, rules);
    uint64_t instant = bench_free(&self, 0);
    gml_fence_complete(&self.fences);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_KNOWN));
    instant = bench_free(&self, 0);
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(bench_passes(&self, 1, 0, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(without_following_a_wait_is_not_used_again) {
    bench self;
    gml_fence_rules rules = bench_all_rules;
    rules.follows_events = false;
    bench_open(&self, rules);
    uint64_t instant = bench_free(&self, 0);
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(another_stream_of_the_same_handle_inherits_nothing) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t instant = bench_free(&self, 1);
    CHECK(bench_passes(&self, 0, 1, instant, GML_WAIT));
    gml_seeker_close(&self.fences, &self.seekers[0]);
    gml_seeker_open(&self.fences, &self.seekers[0], FIRST_STREAM);
    CHECK(!bench_passes(&self, 0, 1, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(borrows_are_counted_by_pair) {
    bench self;
    bench_open(&self, bench_all_rules);
    gml_fence_count(&self.fences, &self.seekers[1], &self.seekers[0], 100);
    gml_fence_count(&self.fences, &self.seekers[1], &self.seekers[0], 11);
    CHECK_EQ(bench_pair(&self)->borrows, 2);
    CHECK_EQ(bench_pair(&self)->borrowed_bytes, 111);
    CHECK_EQ(bench_pair(&self)->owner, FIRST_STREAM);
    CHECK_EQ(bench_pair(&self)->borrower, FIRST_STREAM + 1);
    gml_fence_count(&self.fences, &self.seekers[0], &self.seekers[1], 1);
    CHECK_EQ(self.fences.borrowed_bytes, 112);
    bench_close(&self);
}

/* ---- where no mark can be made --------------------------------------------------------------- */

TEST(an_old_driver_is_asked_once_and_lends_what_the_host_has_waited_for) {
    bench self;
    bench_open(&self, bench_all_rules);
    bench_make_old(self.driver);
    uint64_t instant = bench_free(&self, 0);
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(self.fences.cannot_mark);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD_ALL), 1);
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 0);
    gml_fence_complete(&self.fences);
    CHECK(bench_passes(&self, 1, 0, instant, GML_KNOWN));
    CHECK(!bench_passes(&self, 1, 0, bench_free(&self, 0), GML_KNOWN));
    bench_close(&self);
}

TEST(the_stream_of_each_thread_is_lent_what_is_complete) {
    bench self;
    bench_open(&self, bench_all_rules);
    self.driver->per_thread_stream = FIRST_STREAM;
    uint64_t instant = bench_free(&self, 1);
    CHECK(!bench_passes(&self, 0, 1, instant, GML_URGENT)); /* which thread would wait? */
    CHECK(bench_passes(&self, 2, 0, bench_free(&self, 0), GML_WAIT));
    CHECK_OK(gml_streams_synchronize_all(self.queues));
    gml_fence_poll(&self.fences);
    CHECK(bench_passes(&self, 0, 1, instant, GML_KNOWN));
    bench_close(&self);
}

TEST(while_a_stream_captures_nothing_is_marked_and_it_waits_for_nobody) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t marked = bench_free(&self, 0);
    CHECK_OK(gml_fence_mark(&self.fences));
    uint64_t instant = bench_free(&self, 0);
    for (size_t capturing = 0; capturing <= UNSEEN; capturing += UNSEEN) {
        CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM + capturing, true));
        CHECK_OK(gml_fence_mark_for(&self.fences, &self.seekers[0]));
        CHECK(!bench_passes(&self, 0, 1, instant, GML_URGENT));
        CHECK(!bench_passes(&self, 2, 1, instant, GML_URGENT));
        CHECK_EQ(bench_passes(&self, 0, 1, marked, GML_URGENT), capturing == UNSEEN);
        CHECK_EQ(self.fences.marked, marked);
        CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM + capturing, false));
    }
    CHECK_EQ(self.fences.waits, 1);
    CHECK(bench_passes(&self, 0, 1, instant, GML_WAIT));
    bench_close(&self);
}

TEST(a_frozen_driver_is_not_called) {
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t known = bench_free(&self, 0);
    CHECK(bench_passes(&self, 1, 0, known, GML_WAIT));
    uint64_t marked = bench_free(&self, 0);
    CHECK_OK(gml_fence_mark(&self.fences));
    uint64_t instant = bench_free(&self, 0), calls = bench_all_calls(&self);
    self.driver->device->captures = 1;
    self.driver->reason[0] = '\0';
    gml_fence_poll(&self.fences);
    CHECK_OK(gml_fence_mark_for(&self.fences, &self.seekers[0]));
    CHECK(bench_passes(&self, 1, 0, known, GML_URGENT));
    CHECK(!bench_passes(&self, 1, 0, marked, GML_URGENT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK_EQ(bench_all_calls(&self), calls);
    CHECK_EQ(self.driver->reason[0], '\0'); /* nor was it asked and refused */
    self.driver->device->captures = 0;
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    bench_close(&self);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Everything once, twice; whether the call of that number was there to fail. */
static bool survives(uint64_t fail_call) {
    bench self;
    bench_open_failing(&self, &bench_all_rules, fail_call);
    uint64_t failed = 0;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t instant = bench_free(&self, 0);
        bool is_passed = false;
        gml_status status = gml_fence_pass(&self.fences, &self.seekers[1], &self.seekers[0],
                                           instant, GML_WAIT, &is_passed);
        CHECK(is_passed == (status == GML_OK));
        failed += status != GML_OK;
        CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT) || status == GML_OK);
        CHECK_EQ(self.fences.waits, i + 1);
        CHECK_OK(gml_streams_synchronize_all(self.queues));
        gml_fence_poll(&self.fences);
        gml_fence_poll(&self.fences);
        CHECK_EQ(self.fences.completed, instant);
    }
    CHECK(failed <= 1);
    bool has_failed = self.driver->reason[0] != '\0';
    bench_close(&self);
    return has_failed;
}

TEST(each_call_may_fail) {
    uint64_t fail_call = 1;
    while (survives(fail_call)) {
        fail_call++;
    }
    CHECK(fail_call > 8);
}

/* ---- whatever passes has run ----------------------------------------------------------------- */

enum { STEPS = 40000, KNOWN = 16 };

static bool has_run[STEPS];         /* by number of the work, on whichever stream */
static size_t queued, all_run;      /* works so far; those before it have all run */
static size_t queued_at[STEPS + 1]; /* by instant */
static uint64_t looks;

static void note_run(void *context) {
    *(bool *)context = true;
    while (all_run < queued && has_run[all_run]) {
        all_run++;
    }
}

static void expect_run(void *context) {
    looks++;
    CHECK(all_run >= *(const size_t *)context);
}

/* Calls of every kind at random, work on every stream, those among them that never ask: where a
 * fence is passed, work that is queued then finds that all that was queued anywhere before the free
 * has run. */
static void run_random(uint64_t seed, gml_fence_rules rules, uint64_t *passed) {
    bench self;
    check_random random = {seed};
    bench_open(&self, rules);
    memset(has_run, 0, sizeof has_run);
    queued = all_run = 0;
    for (int step = 0; step < STEPS; step++) {
        size_t stream = check_below(&random, STREAMS);
        size_t borrower = check_below(&random, SEEKERS), owner = check_below(&random, SEEKERS);
        uint64_t kind = check_below(&random, 100), clock = self.fences.clock;
        if (kind < 20) {
            CHECK_OK(gml_streams_enqueue(self.queues, FIRST_STREAM + stream, note_run,
                                         &has_run[queued++]));
        } else if (kind < 35) {
            queued_at[gml_fence_now(&self.fences)] = queued;
        } else if (kind < 70 && clock && owner != borrower) {
            uint64_t instant = clock - check_below(&random, clock < KNOWN ? clock : KNOWN);
            self.seekers[borrower].requests++;
            if (bench_passes(&self, borrower, owner, instant,
                             (gml_effort)check_below(&random, 3))) {
                (*passed)++;
                CHECK_OK(gml_streams_enqueue(self.queues, FIRST_STREAM + borrower, expect_run,
                                             &queued_at[instant]));
            }
        } else if (kind < 73) {
            CHECK_OK(gml_fence_mark(&self.fences));
        } else if (kind < 78) {
            gml_fence_poll(&self.fences);
        } else if (kind == 78) {
            CHECK_OK(gml_streams_synchronize_all(self.queues));
            gml_fence_complete(&self.fences);
        } else {
            bench_advance(&self, stream, check_below(&random, 6));
        }
    }
    CHECK_OK(gml_streams_synchronize_all(self.queues));
    bench_close(&self);
}

TEST(whatever_passes_has_run) {
    uint64_t passed = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        gml_fence_rules rules = {.follows_events = seed & 1,
                                 .is_opportunistic = seed & 2,
                                 .may_wait = seed & 4,
                                 .most_waits = seed % 3 ? GML_WAIT_WINDOW : 100};
        run_random(seed, rules, &passed);
    }
    CHECK_EQ(looks, passed);
    CHECK(passed > STEPS / 2);
}
