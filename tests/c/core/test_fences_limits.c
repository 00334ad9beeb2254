/* Fences where no call may be made, where calls fail, and under programs at random: what is passed
 * has run. */
#include "support/fence_bench.h"

/* ---- streams on which no call may be made ---------------------------------------------------- */

TEST(a_stream_that_is_forgotten_is_marked_once_more_and_never_called)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t before = bench_now(&self, 0);
    gml_fence_forget(&self.fences, &self.lines[0]);
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    uint64_t late = bench_now(&self, 0); /* a block that lived on */
    CHECK(late >= before);
    CHECK(!bench_passes(&self, 1, 0, late, GML_KNOWN));
    CHECK(bench_passes(&self, 1, 0, late, GML_WAIT));
    CHECK_EQ(bench_calls(&self, GML_CALL_STREAM_WAIT), 1);
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(bench_passes(&self, 2, 0, bench_now(&self, 0), GML_KNOWN));
    CHECK(gml_timeline_is_complete(&self.lines[0]));
    CHECK_EQ(bench_calls(&self, GML_CALL_EVENT_RECORD), 1);
    bench_close(&self);
}

TEST(a_live_block_of_a_forgotten_stream_has_a_fence_too)
{
    bench self;
    bench_open(&self, bench_all_rules);
    gml_fence_forget(&self.fences, &self.lines[0]); /* it has freed nothing so far */
    CHECK(!bench_passes(&self, 1, 0, bench_now(&self, 0), GML_KNOWN));
    bench_advance(&self, 0, UINT64_MAX);
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(bench_passes(&self, 1, 0, bench_now(&self, 0), GML_KNOWN));
    bench_close(&self);
}

/* Where the last mark cannot be made, only a wait for the device ends it. */
TEST(a_stream_that_is_forgotten_while_it_captures_needs_the_device)
{
    for (uint64_t is_frozen = 0; is_frozen < 2; is_frozen++) {
        bench self;
        bench_open(&self, bench_all_rules);
        uint64_t instant = bench_now(&self, 0);
        self.driver->device->captures = is_frozen;
        CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, true));
        gml_fence_forget(&self.fences, &self.lines[0]);
        CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, false));
        self.driver->device->captures = 0;
        uint64_t calls = bench_all_calls(&self);
        CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
        CHECK(!bench_waits(&self, 0));
        CHECK_EQ(bench_all_calls(&self), calls);
        gml_fence_complete(&self.fences, &self.lines[0]);
        CHECK(bench_passes(&self, 1, 0, instant, GML_KNOWN));
        CHECK(!bench_passes(&self, 1, 0, bench_now(&self, 0), GML_URGENT));
        bench_close(&self);
    }
}

TEST(the_stream_of_each_thread_takes_no_part)
{
    bench self;
    bench_open(&self, bench_all_rules);
    gml_timeline own;
    self.driver->per_thread_stream = 2;
    gml_timeline_open(&self.fences, &own, 2);
    uint64_t instant = gml_fence_now(&self.fences, &own), other = bench_now(&self, 0);
    bool is_true = true;
    CHECK_OK(gml_fence_mark(&self.fences, &own, &is_true));
    CHECK(!is_true);
    CHECK_OK(gml_fence_pass(&self.fences, &self.lines[0], &own, instant, GML_URGENT, &is_true));
    CHECK(!is_true);
    CHECK_OK(gml_fence_pass(&self.fences, &own, &self.lines[0], other, GML_URGENT, &is_true));
    CHECK(!is_true);
    CHECK_OK(gml_fence_wait(&self.fences, &own, &is_true));
    CHECK(!is_true);
    CHECK_EQ(bench_all_calls(&self), 0);
    gml_timeline_close(&self.fences, &own);
    bench_close(&self);
}

TEST(while_a_stream_captures_nothing_is_recorded_on_it_and_it_waits_for_nobody)
{
    bench self;
    bench_open(&self, bench_all_rules);
    CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, true));
    uint64_t instant = bench_now(&self, 0), other = bench_now(&self, 1);
    CHECK(!bench_marks(&self, 0));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(!bench_passes(&self, 0, 1, other, GML_URGENT));
    CHECK(!bench_waits(&self, 0));
    CHECK_EQ(self.fences.waits, 0);
    CHECK_OK(gml_streams_set_capturing(self.queues, FIRST_STREAM, false));
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    CHECK(bench_passes(&self, 0, 1, other, GML_WAIT));
    bench_close(&self);
}

TEST(a_frozen_driver_is_not_called)
{
    bench self;
    bench_open(&self, bench_all_rules);
    uint64_t known = bench_now(&self, 0);
    CHECK(bench_passes(&self, 1, 0, known, GML_WAIT));
    uint64_t marked = bench_now(&self, 0);
    CHECK(bench_marks(&self, 0));
    uint64_t instant = bench_now(&self, 0), calls = bench_all_calls(&self);
    self.driver->device->captures = 1;
    self.driver->reason[0] = '\0';
    gml_fence_poll(&self.fences, &self.lines[0]);
    CHECK(!bench_marks(&self, 0));
    CHECK(bench_passes(&self, 1, 0, known, GML_URGENT));
    CHECK(!bench_passes(&self, 1, 0, marked, GML_URGENT));
    CHECK(!bench_passes(&self, 1, 0, instant, GML_URGENT));
    CHECK(!bench_waits(&self, 0));
    CHECK_EQ(bench_all_calls(&self), calls);
    CHECK_EQ(self.driver->reason[0], '\0'); /* nor was it asked and refused */
    self.driver->device->captures = 0;
    CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT));
    bench_close(&self);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Everything once, twice; whether the call of that number was there to fail. */
static bool
survives(uint64_t fail_call)
{
    bench self;
    bench_open_failing(&self, &bench_all_rules, fail_call);
    uint64_t failed = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t instant = bench_now(&self, 0);
        bool is_passed = false;
        gml_status status = gml_fence_pass(&self.fences, &self.lines[1], &self.lines[0], instant,
                                           GML_WAIT, &is_passed);
        CHECK(is_passed == (status == GML_OK));
        failed += status != GML_OK;
        CHECK(bench_passes(&self, 1, 0, instant, GML_WAIT) || status == GML_OK);
        CHECK_EQ(self.fences.waits, (uint64_t)i + 1);
        instant = bench_now(&self, 2);
        bool is_done = false;
        status = gml_fence_wait(&self.fences, &self.lines[2], &is_done);
        CHECK(is_done == (status == GML_OK));
        failed += status != GML_OK;
        CHECK(bench_waits(&self, 2));
        CHECK(bench_passes(&self, 3, 2, instant, GML_KNOWN));
    }
    CHECK(failed <= 1);
    bool has_failed = self.driver->reason[0] != '\0';
    bench_close(&self);
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

/* ---- whatever passes has run ----------------------------------------------------------------- */

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
    uint64_t instant = bench_now(self, line);
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
    bench_open(&self, rules);
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
            if (bench_passes(&self, line, other, instant, (gml_effort)check_below(&random, 3))) {
                (*passed)++;
                CHECK_OK(gml_streams_enqueue(self.queues, FIRST_STREAM + line, expect_run,
                                             &has_run[instant]));
            }
        } else if (kind < 72 && line != other) {
            random_tell(&self, line, other);
        } else if (kind < 80) {
            (void)bench_marks(&self, line);
        } else if (kind < 88) {
            gml_fence_poll(&self.fences, &self.lines[line]);
        } else if (kind == 88) {
            (void)bench_waits(&self, line);
        } else {
            bench_advance(&self, line, check_below(&random, 6));
        }
    }
    CHECK_OK(gml_streams_synchronize_all(self.queues));
    bench_close(&self);
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
