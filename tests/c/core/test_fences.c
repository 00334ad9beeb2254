/* Fences and events alone: what a free costs, what a wait covers, where no call may be made, and,
 * under programs at random, that what is passed has run. */
#include "support/fence_bench.h"

#include <string.h>

enum { UNSEEN = SEEKERS }; /* a stream that never asks */

/* ---- where no mark can be made --------------------------------------------------------------- */

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
        CHECK_OK(gml_streams_device_synchronize(self.queues));
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
            CHECK_OK(gml_streams_device_synchronize(self.queues));
            gml_fence_complete(&self.fences);
        } else {
            bench_advance(&self, stream, check_below(&random, 6));
        }
    }
    CHECK_OK(gml_streams_device_synchronize(self.queues));
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
