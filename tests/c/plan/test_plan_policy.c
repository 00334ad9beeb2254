/* Serving plans: steps that repeat, of several kinds, on several streams, with plans that do not
 * fit.
 */
#include "support/census.h"
#include "support/trainer.h"

#include <stdlib.h>

/* ---- steps that repeat ----------------------------------------------------------------------- */

static void
repeat_steps(const char *policy)
{
    trainer self = {.lake = trainer_open_lake("sim", policy, 0), .scale = 1, .stream = 7};
    CHECK_OK(gml_lake_watch_steps(self.lake));
    CHECK_OK(gml_lake_watch_steps(self.lake));
    CHECK(!trainer_step(&self).is_planned);
    CHECK(!trainer_step(&self).is_planned);
    uint64_t watched_bytes = trainer_stats(self.lake).reserved_bytes;
    trainer_add_plan(self.lake, 0);
    gml_step_report report = trainer_step(&self);
    trainer_check_whole(&report);
    CHECK_OK(gml_lake_check(self.lake));
    uint64_t reserved_bytes = trainer_stats(self.lake).reserved_bytes;
    CHECK(reserved_bytes <= watched_bytes + 24 * MIB); /* gradients lay among activations */
    for (int i = 0; i < 5; i++) {
        uint64_t calls = trainer_calls(self.lake);
        report = trainer_step(&self);
        trainer_check_whole(&report);
        CHECK_EQ(trainer_calls(self.lake), calls);
        CHECK_EQ(report.driver_calls, 0);
        CHECK_EQ(trainer_stats(self.lake).reserved_bytes, reserved_bytes);
        CHECK_EQ(report.serial, 4 + (uint64_t)i);
    }
    gml_plan_stats stats;
    CHECK_OK(gml_lake_plan_stats(self.lake, &stats));
    CHECK_EQ(stats.steps, 8);
    CHECK_EQ(stats.planned_steps, 6);
    CHECK_EQ(stats.served, stats.requests);
    CHECK_EQ(stats.pool_bytes, report.pool_bytes);
    CHECK_EQ(trainer_state(self.lake, self.gradients[0].address), GML_STATE_PLAN);
    trainer_drop_gradients(&self);
    trainer_close(self.lake);
}

TEST(repeated_steps)
{
    repeat_steps("plan");
    repeat_steps("stitch");
}

/* Every block begins where the plan says, in the order of the plan. */
TEST(addresses_are_those_of_the_plan)
{
    enum { BLOCKS = 6 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address addresses[BLOCKS];
    for (int step = 0; step < 2; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 3));
        for (uint64_t i = 0; i < BLOCKS; i++) {
            addresses[i] = trainer_take(lake, (i + 1) * 700 * 1024, 0);
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            CHECK_OK(gml_lake_free(lake, addresses[i]));
        }
        CHECK_OK(gml_lake_end_step(lake, NULL));
    }
    gml_plan *plan = trainer_plan(lake, 3);
    CHECK_OK(gml_lake_add_plan(lake, 3, plan));
    CHECK_OK(gml_lake_begin_step(lake, 3));
    gml_plan_request first;
    gml_plan_request_at(plan, 0, &first);
    for (size_t i = 0; i < BLOCKS; i++) {
        gml_plan_request request;
        gml_plan_request_at(plan, i, &request);
        addresses[i] = trainer_take(lake, (i + 1) * 700 * 1024, 0);
        CHECK_EQ(addresses[i] - addresses[0], request.offset - first.offset);
        CHECK_EQ(trainer_state(lake, addresses[i]), GML_STATE_PLAN);
    }
    census seen = census_of(lake);
    CHECK_EQ(seen.requests, BLOCKS);
    CHECK_EQ(seen.physical_bytes, trainer_stats(lake).reserved_bytes);
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_OK(gml_lake_free(lake, addresses[i]));
    }
    CHECK_OK(gml_lake_end_step(lake, NULL));
    gml_plan_release(plan);
    trainer_close(lake);
}

/* ---- kinds and plans ------------------------------------------------------------------------- */

TEST(an_evaluation_between)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer training = {.lake = lake, .scale = 1, .kind = 0};
    trainer evaluation = {.lake = lake, .scale = 2, .kind = 1};
    uint64_t calls = 0, reserved_bytes = 0;
    for (int round = 0; round < 6; round++) {
        gml_step_report report = {0};
        for (int step = 0; step < 3; step++) {
            report = trainer_step(&training);
            if (round == 0 && step == 2) {
                trainer_add_plan(lake, 0);
            }
        }
        CHECK_EQ(report.is_planned, round > 0);
        report = trainer_step(&evaluation);
        trainer_drop_gradients(&evaluation);
        CHECK_EQ(report.is_planned, round > 1);
        if (round == 1) {
            trainer_add_plan(lake, 1);
            CHECK(report.borrowed > 0); /* from the pool of the training steps */
        }
        if (round == 5) {
            trainer_check_whole(&report);
            CHECK_EQ(trainer_calls(lake), calls);
            CHECK_EQ(trainer_stats(lake).reserved_bytes, reserved_bytes);
        }
        calls = trainer_calls(lake);
        reserved_bytes = trainer_stats(lake).reserved_bytes;
        CHECK_OK(gml_lake_check(lake));
    }
    trainer_drop_gradients(&training);
    trainer_close(lake);
}

/* The first request tells which of the plans it is; equal fingerprints replace each other. */
TEST(the_plan_that_fits_serves)
{
    enum { LENGTHS = 5 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake};
    for (uint64_t scale = 1; scale <= LENGTHS; scale++) {
        self.scale = scale;
        for (int i = 0; i < 2; i++) {
            (void)trainer_step(&self);
            trainer_drop_gradients(&self);
        }
        trainer_add_plan(lake, 0);
        trainer_add_plan(lake, 0);
    }
    check_random random = {5};
    for (int i = 0; i < 40; i++) {
        self.scale = 1 + check_below(&random, LENGTHS);
        gml_step_report report = trainer_step(&self);
        trainer_drop_gradients(&self);
        trainer_check_whole(&report);
    }
    CHECK_OK(gml_lake_drop_plans(lake, 0));
    CHECK(!trainer_step(&self).is_planned);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* One block of 40 MiB, then one of each of the sizes, all live to the end. The phase is entered at
 * the beginning, and again at each size of 0. */
static gml_step_report
run_sizes(gml_lake *lake, const uint64_t *mib, size_t count)
{
    gml_address blocks[16];
    size_t live = 0;
    gml_step_report report;
    CHECK_OK(gml_lake_begin_step(lake, 0));
    CHECK_OK(gml_lake_enter_phase(lake, 1));
    blocks[live++] = trainer_take(lake, 40 * MIB, 0);
    for (size_t i = 0; i < count; i++) {
        if (mib[i]) {
            blocks[live++] = trainer_take(lake, mib[i] * MIB, 0);
        } else {
            CHECK_OK(gml_lake_enter_phase(lake, 1));
        }
    }
    while (live) {
        CHECK_OK(gml_lake_free(lake, blocks[--live]));
    }
    CHECK_OK(gml_lake_end_step(lake, &report));
    return report;
}

/* A plan that takes a step over has seen the phases so far: the next one is not taken for the
 * first, which would lead matching back. */
TEST(the_plan_that_takes_over_knows_the_phases)
{
    static const uint64_t one[] = {6, 7, 0, 6, 7, 0, 6, 7, 8, 9};
    static const uint64_t other[] = {3, 2};
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    (void)run_sizes(lake, one, 10);
    (void)run_sizes(lake, one, 10);
    trainer_add_plan(lake, 0);
    (void)run_sizes(lake, other, 2);
    (void)run_sizes(lake, other, 2);
    trainer_add_plan(lake, 0);
    gml_step_report report = run_sizes(lake, other, 2);
    trainer_check_whole(&report);
    for (int i = 0; i < 3; i++) {
        report = run_sizes(lake, one, 10);
        trainer_check_whole(&report);
        report = run_sizes(lake, other, 2);
        trainer_check_whole(&report);
    }
    trainer_close(lake);
}

TEST(plans_may_go_while_they_serve)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    gml_plan *plan = trainer_plan(lake, 0);
    CHECK_OK(gml_lake_add_plan(lake, 0, plan));
    CHECK_OK(gml_lake_begin_step(lake, 0));
    trainer_drop_gradients(&self);
    item first, second;
    CHECK(trainer_request(&self, 2 * MIB, &first));
    CHECK_EQ(trainer_state(lake, first.address), GML_STATE_PLAN);
    CHECK_OK(gml_lake_drop_plans(lake, 0));
    CHECK_OK(gml_lake_add_plan(lake, 0, plan));
    CHECK_OK(gml_lake_drop_plans(lake, 0));
    CHECK(trainer_request(&self, 3 * MIB / 2, &second));
    trainer_drop(&self, &first);
    trainer_drop(&self, &second);
    CHECK_OK(gml_lake_begin_step(lake, 0)); /* ends the open one */
    CHECK_OK(gml_lake_end_step(lake, NULL));
    for (uint64_t kind = 10; kind < 40; kind++) { /* more plans than are kept */
        CHECK_OK(gml_lake_add_plan(lake, 0, plan));
        CHECK_OK(gml_lake_add_plan(lake, kind, plan));
    }
    gml_plan_release(plan);
    trainer_close(lake);
}

TEST(what_is_refused)
{
    gml_lake *lake = trainer_open_lake("sim", "caching", 0);
    CHECK_STATUS(gml_lake_watch_steps(lake), GML_UNSUPPORTED);
    CHECK_STATUS(gml_lake_begin_step(lake, 0), GML_MISUSE);
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_close(lake));
    lake = trainer_open_lake("sim", "stitch", 0);
    gml_plan_stats stats;
    CHECK_STATUS(gml_lake_begin_step(lake, 0), GML_MISUSE);
    CHECK_STATUS(gml_lake_plan_stats(lake, &stats), GML_MISUSE);
    CHECK_OK(gml_lake_watch_steps(lake));
    CHECK_OK(gml_lake_mark(lake)); /* nothing: it does not plan by itself */
    CHECK_STATUS(gml_lake_end_step(lake, NULL), GML_MISUSE);
    gml_profile *profile;
    CHECK_STATUS(gml_lake_profile(lake, 0, &profile), GML_MISUSE);
    CHECK_OK(gml_lake_enter_phase(lake, 4));
    CHECK_OK(gml_lake_enter_scope(lake, 4));
    CHECK_OK(gml_lake_close(lake));
}

/* ---- what is watched ------------------------------------------------------------------------- */

TEST(a_profile_tells_what_was_watched)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address kept = 0, blocks[3];
    for (uint64_t step = 1; step <= 2; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 8));
        CHECK_OK(gml_lake_enter_phase(lake, 5));
        blocks[0] = trainer_take(lake, 1000, 0);
        CHECK_OK(gml_lake_free(lake, kept));
        CHECK_OK(gml_lake_enter_scope(lake, 6));
        blocks[1] = trainer_take(lake, 3 * MIB, 9);
        CHECK_OK(gml_lake_enter_scope(lake, 0));
        CHECK_OK(gml_lake_enter_phase(lake, 7));
        CHECK_OK(gml_lake_free(lake, blocks[1]));
        blocks[2] = trainer_take(lake, MIB, 0);
        CHECK_OK(gml_lake_end_step(lake, NULL));
        if (step == 1) { /* between two steps, or in one of another kind */
            CHECK_OK(gml_lake_free(lake, blocks[0]));
        }
        CHECK_OK(gml_lake_begin_step(lake, 1));
        if (step == 2) {
            CHECK_OK(gml_lake_free(lake, trainer_take(lake, MIB, 0)));
            CHECK_OK(gml_lake_free(lake, blocks[0]));
        }
        CHECK_OK(gml_lake_end_step(lake, NULL));
        kept = blocks[2];
    }
    /* One outside of steps, where one of a step was. */
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 3 * MIB, 9)));
    gml_profile *profile;
    CHECK_OK(gml_lake_profile(lake, 8, &profile));
    const gml_step *last = &profile->last, *previous = &profile->previous;
    CHECK_EQ(last->serial, 2);
    CHECK_EQ(previous->serial, 1);
    CHECK_EQ(last->request_count, 3);
    CHECK_EQ(last->event_count, 5);
    CHECK_EQ(last->mark_count, 4);
    CHECK_EQ(last->requests[0].size_bytes, 1024);
    CHECK_EQ(last->requests[0].birth, 0);
    CHECK_EQ(last->requests[0].death, 5);
    CHECK_EQ(last->requests[0].death_serial, 2);
    CHECK_EQ(last->requests[1].scope_birth, 6);
    CHECK_EQ(last->requests[1].stream, 9);
    CHECK_EQ(last->requests[1].birth, 2);
    CHECK_EQ(last->requests[1].death, 3);
    CHECK_EQ(last->requests[1].phase_birth, 5);
    CHECK_EQ(last->requests[1].phase_death, 7);
    CHECK_EQ(last->requests[2].death, GML_STILL_LIVE);
    CHECK_EQ(last->marks[3].time, 3);
    CHECK_EQ(last->marks[3].request, 2);
    CHECK_EQ(last->marks[3].id, 7);
    CHECK_EQ(previous->requests[0].death, previous->event_count);
    CHECK_EQ(previous->requests[2].death, 1);
    CHECK_EQ(previous->requests[2].death_serial, 2);
    gml_profile_free(profile);
    CHECK_OK(gml_lake_free(lake, kept));
    trainer_close(lake);
}

/* A block that outlives the memory of its step changes no other step. */
TEST(old_blocks_are_forgotten)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address old = 0, young[10];
    for (size_t step = 0; step < 10; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 0));
        young[step] = trainer_take(lake, 3 * MIB, 0);
        CHECK_OK(gml_lake_end_step(lake, NULL));
    }
    old = young[0];
    CHECK_OK(gml_lake_begin_step(lake, 1));
    CHECK_OK(gml_lake_free(lake, old));
    CHECK_OK(gml_lake_free(lake, young[9]));
    CHECK_OK(gml_lake_end_step(lake, NULL));
    gml_profile *profile;
    CHECK_OK(gml_lake_profile(lake, 0, &profile));
    CHECK_EQ(profile->last.requests[0].death_serial, 10);
    CHECK_EQ(profile->previous.requests[0].death, GML_STILL_LIVE);
    gml_profile_free(profile);
    CHECK_OK(gml_lake_begin_step(lake, 0));
    for (size_t step = 1; step < 5; step++) {
        CHECK_OK(gml_lake_free(lake, young[step]));
    }
    CHECK_OK(gml_lake_end_step(lake, NULL));
    CHECK_OK(gml_lake_profile(lake, 0, &profile));
    CHECK_EQ(profile->previous.requests[0].death_serial, 10); /* what it was */
    gml_profile_free(profile);
    for (size_t step = 5; step < 9; step++) {
        CHECK_OK(gml_lake_free(lake, young[step]));
    }
    trainer_close(lake);
}

/* Buffers that are freed in the next step only after that has made its own: a period of 2 steps. */
TEST(what_lives_two_steps)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address kept = 0, next, work;
    uint64_t calls = 0;
    for (int step = 0; step < 12; step++) {
        gml_step_report report;
        CHECK_OK(gml_lake_begin_step(lake, 0));
        work = trainer_take(lake, 7 * MIB, 0);
        next = trainer_take(lake, 5 * MIB, 0);
        CHECK_OK(gml_lake_free(lake, work));
        work = trainer_take(lake, 9 * MIB, 0);
        CHECK_OK(gml_lake_free(lake, kept));
        CHECK_OK(gml_lake_free(lake, work));
        kept = next;
        CHECK_OK(gml_lake_end_step(lake, &report));
        CHECK_EQ(report.served, step < 3 ? 0 : 3);
        CHECK(step < 6 || trainer_calls(lake) == calls);
        calls = trainer_calls(lake);
        if (step == 2) {
            gml_plan *plan = trainer_plan(lake, 0);
            gml_plan_info info;
            gml_plan_describe(plan, &info);
            CHECK_EQ(info.steps, 2);
            CHECK_OK(gml_lake_add_plan(lake, 0, plan));
            gml_plan_release(plan);
        }
    }
    CHECK_OK(gml_lake_free(lake, kept));
    trainer_close(lake);
}

/* A lake that is at work already: its blocks, those in use by other streams, and its guest's. */
TEST(watching_begins_late)
{
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    gml_address blocks[6];
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = trainer_take(lake, i == 2 ? 4096 : (5 - i) * MIB, 0);
    }
    CHECK_OK(gml_lake_record_stream(lake, blocks[0], 4));
    CHECK_OK(gml_lake_record_stream(lake, blocks[1], 4));
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_CACHING));
    blocks[3] = trainer_take(lake, 3 * MIB, 0);
    CHECK_OK(gml_lake_free(lake, blocks[1]));
    CHECK_OK(gml_lake_watch_steps(lake));
    CHECK_OK(gml_lake_check(lake));
    blocks[4] = trainer_take(lake, 60 * MIB, 0); /* the guest asks the policy around its host */
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_POLICY));
    blocks[5] = trainer_take(lake, 2 * MIB, 0);
    for (size_t i = 0; i < 6; i++) {
        if (i != 1) {
            CHECK_OK(gml_lake_free(lake, blocks[i]));
            CHECK_OK(gml_lake_check(lake));
        }
    }
    trainer_close(lake);
}

/* A block of another kind, and one borrowed long ago, are where they are. */
TEST(a_profile_tells_what_is_taken)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    trainer_add_plan(lake, 0);
    (void)trainer_step(&self);
    CHECK_OK(gml_lake_begin_step(lake, 4));
    item borrowed;
    CHECK(trainer_request(&self, 24 * MIB, &borrowed));
    CHECK_EQ(trainer_state(lake, borrowed.address), GML_STATE_PLAN);
    CHECK_OK(gml_lake_end_step(lake, NULL));
    (void)trainer_step(&self);
    gml_profile *profile;
    CHECK_OK(gml_lake_profile(lake, 0, &profile));
    if (CHECK_EQ(profile->taken_count, 1)) {
        CHECK_EQ(profile->taken[0].span.size_bytes, 24 * MIB);
    }
    gml_profile_free(profile);
    trainer_add_plan(lake, 0);
    gml_step_report report = trainer_step(&self);
    report = trainer_step(&self);
    trainer_check_whole(&report); /* around the block */
    trainer_drop(&self, &borrowed);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* ---- dynamic scopes -------------------------------------------------------------------------- */

/* Two visits of a module whose requests change their sizes, between requests that do not. */
static gml_step_report
run_experts(gml_lake *lake, check_random *random)
{
    enum { EXPERTS = 6 };
    gml_step_report report;
    CHECK_OK(gml_lake_begin_step(lake, 0));
    gml_address weights = trainer_take(lake, 24 * MIB, 0);
    for (uint32_t visit = 0; visit < 2; visit++) {
        gml_address experts[EXPERTS];
        CHECK_OK(gml_lake_enter_scope(lake, 1 + visit));
        for (size_t i = 0; i < EXPERTS; i++) {
            experts[i] = trainer_take(lake, 2 * MIB + check_below(random, 2 * MIB), 0);
        }
        for (size_t i = 0; i < EXPERTS; i++) {
            CHECK_OK(gml_lake_free(lake, experts[i]));
        }
        CHECK_OK(gml_lake_enter_scope(lake, 0));
        gml_address dense[2] = {trainer_take(lake, 20 * MIB, 0), trainer_take(lake, 10 * MIB, 0)};
        CHECK_OK(gml_lake_free(lake, dense[1]));
        CHECK_OK(gml_lake_free(lake, dense[0]));
    }
    CHECK_OK(gml_lake_free(lake, weights));
    CHECK_OK(gml_lake_end_step(lake, &report));
    return report;
}

TEST(dynamic_requests_use_idle_space)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    check_random random = {3};
    (void)run_experts(lake, &random);
    (void)run_experts(lake, &random);
    gml_plan *plan = trainer_plan(lake, 0);
    gml_plan_info info;
    gml_plan_describe(plan, &info);
    CHECK_OK(gml_lake_add_plan(lake, 0, plan));
    gml_plan_release(plan);
    uint64_t calls = 0;
    for (int i = 0; i < 20; i++) {
        gml_step_report report = run_experts(lake, &random);
        CHECK_EQ(report.dynamic, 12);
        CHECK_EQ(report.fingerprint, info.fingerprint);
        CHECK_EQ(report.dynamic_served, 12);
        CHECK_EQ(report.served, 5);
        CHECK(report.pool_bytes <= 54 * MIB);
        CHECK(i < 4 || calls == trainer_calls(lake));
        calls = trainer_calls(lake);
    }
    trainer_close(lake);
}

/* ---- streams --------------------------------------------------------------------------------- */

/* A plan whose lanes belong to other streams, as one from a file does, finds them again. */
TEST(lanes_find_their_streams)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_plan *plan = NULL;
    for (uint64_t run = 0; run < 2; run++) {
        gml_stream streams[3] = {0, 100 + run * 5, 200 + run * 5};
        for (int step = 0; step < 3; step++) {
            gml_address blocks[9];
            gml_step_report report;
            CHECK_OK(gml_lake_begin_step(lake, run));
            for (size_t i = 0; i < 9; i++) {
                blocks[i] = trainer_take(lake, (i + 2) * MIB, streams[i % 3]);
            }
            for (size_t i = 0; i < 9; i++) {
                CHECK_OK(gml_lake_free(lake, blocks[i]));
            }
            CHECK_OK(gml_lake_end_step(lake, &report));
            CHECK_EQ(report.served, run || step == 2 ? 9 : 0);
            if (run == 0 && step == 1) {
                plan = trainer_plan(lake, 0);
                CHECK_OK(gml_lake_add_plan(lake, 0, plan));
                CHECK_OK(gml_lake_add_plan(lake, 1, plan));
            }
        }
    }
    gml_plan_release(plan);
    trainer_close(lake);
}
