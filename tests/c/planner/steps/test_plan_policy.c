/* Steps that repeat are served as the policy `stitch` served them, and others as ever. */
#include "planner/support/stepping.h"
#include "support/census.h"

#include <string.h>

/* ---- steps that repeat ----------------------------------------------------------------------- */

static void repeat_steps(const char *policy, gml_stream stream) {
    trainer self = {.lake = trainer_open_lake("sim", policy, 0), .scale = 1, .stream = stream};
    CHECK_OK(gml_lake_watch_steps(self.lake));
    CHECK_OK(gml_lake_watch_steps(self.lake));
    gml_step_report report = trainer_step(&self);
    CHECK_EQ(report.served, 0);
    CHECK(strncmp(report.why, "watched", 7) == 0);
    report = trainer_learn(&self);
    CHECK(strncmp(report.why, "planned", 7) == 0);
    uint64_t serial = report.serial, reserved_bytes = trainer_stats(self.lake).reserved_bytes;
    for (uint64_t i = 1; i <= 5; i++) {
        uint64_t calls = trainer_calls(self.lake);
        report = trainer_step(&self);
        trainer_check_whole(&report);
        CHECK_EQ(report.left, 0);
        CHECK_EQ(trainer_calls(self.lake), calls);
        CHECK_EQ(report.driver_calls, 0);
        CHECK_EQ(trainer_stats(self.lake).reserved_bytes, reserved_bytes);
        CHECK_EQ(report.serial, serial + i);
    }
    gml_step_stats stats;
    CHECK_OK(gml_lake_step_stats(self.lake, &stats));
    CHECK_EQ(stats.steps, serial + 5);
    CHECK_EQ(stats.planned_steps, 6);
    CHECK_EQ(stats.requests, 6 * report.requests);
    CHECK_EQ(stats.served, 6 * report.requests);
    CHECK_EQ(stats.plans_made, 1);
    CHECK_EQ(trainer_state(self.lake, self.gradients[0].address), GML_STATE_PLAN);
    trainer_drop_gradients(&self);
    trainer_close(self.lake);
}

TEST(repeated_steps) {
    repeat_steps("plan", 7);
    repeat_steps("stitch", 0);
}

/* ---- steps that differ ----------------------------------------------------------------------- */

/* The first request tells which of the plans it is. */
TEST(the_plan_that_fits_serves) {
    enum { LENGTHS = 5 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake};
    check_random random = {5};
    for (int i = 0; i < 90; i++) {
        self.scale = 1 + check_below(&random, LENGTHS);
        gml_step_report report = trainer_step(&self);
        trainer_drop_gradients(&self);
        if (i >= 50) {
            trainer_check_whole(&report);
        }
    }
    gml_step_stats stats;
    CHECK_OK(gml_lake_step_stats(lake, &stats));
    CHECK_EQ(stats.plans_made, LENGTHS);
    CHECK_OK(gml_lake_drop_plans(lake, 0));
    CHECK_EQ(trainer_step(&self).served, 0);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* ---- what is held ---------------------------------------------------------------------------- */

TEST(trimming_takes_what_is_idle) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_learn(&self);
    uint64_t released_bytes = 0, reserved_bytes = trainer_stats(lake).reserved_bytes;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK(released_bytes > reserved_bytes / 2); /* gradients live */
    CHECK_OK(gml_lake_check(lake));
    CHECK_EQ(trainer_step(&self).served, 0);
    (void)trainer_learn(&self);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

TEST(a_walk_sees_planned_blocks) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    gml_step_report report = trainer_learn(&self);
    census seen = census_of(lake);
    CHECK_EQ(seen.requests, self.gradient_count);
    CHECK_EQ(seen.physical_bytes, trainer_stats(lake).reserved_bytes);
    report = trainer_step(&self);
    trainer_check_whole(&report);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* ---- plans of a file ------------------------------------------------------------------------- */

/* What the plan leaves lasts, and lies beside the pool; what it does not know ends it. */
TEST(a_loaded_plan_leaves_what_lasts) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address lasting = 0, work = 0;
    gml_plan *plan = NULL;
    gml_step_report report;
    for (int process = 0; process < 2; process++) {
        if (process) {
            trainer_close(lake);
            lake = trainer_open_lake("sim", "plan", 0);
            CHECK_OK(gml_lake_add_plan(lake, 0, plan));
            CHECK_OK(gml_lake_add_plan(lake, 1, plan));
        }
        CHECK_OK(gml_lake_begin_step(lake, 0));
        work = trainer_take(lake, 30 * MIB, 0);
        lasting = trainer_take(lake, 10 * MIB, 0);
        CHECK_OK(gml_lake_free(lake, work));
        CHECK_OK(gml_lake_end_step(lake, &report));
        plan = plan ? plan : trainer_plan(lake, 0);
        if (!process) {
            CHECK_OK(gml_lake_free(lake, lasting));
        }
    }
    CHECK_EQ(report.served, 1);
    CHECK_EQ(report.left, 1);
    CHECK_EQ(trainer_stats(lake).reserved_bytes, 40 * MIB);
    CHECK_OK(gml_lake_begin_step(lake, 1));
    work = trainer_take(lake, 30 * MIB, 0);
    gml_address unknown = trainer_take(lake, 4 * MIB, 0);
    CHECK_OK(gml_lake_free(lake, work));
    CHECK_OK(gml_lake_free(lake, unknown));
    CHECK_OK(gml_lake_end_step(lake, &report));
    CHECK_EQ(report.served, 1);
    CHECK(strstr(report.why, "a request came"));
    CHECK_OK(gml_lake_free(lake, lasting));
    gml_plan_free(plan);
    trainer_close(lake);
}

/* ---- for the lake ---------------------------------------------------------------------------- */

TEST(marks_are_enough) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_step_stats stats;
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gml_lake_mark(lake));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 3 * MIB, 0)));
    }
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_step_stats(lake, &stats));
    CHECK_EQ(stats.steps, 8);
    CHECK_EQ(stats.planned_steps, 5);
    CHECK_EQ(stats.plans_made, 1);
    gml_profile *profile;
    CHECK_STATUS(gml_lake_profile(lake, 1, &profile), GML_MISUSE);
    CHECK_OK(gml_lake_profile(lake, 0, &profile)); /* they are steps of that kind */
    gml_profile_free(profile);
    trainer_close(lake);
}

/* Small requests cut the place of a large one into more parts than a word has bits. */
TEST(a_place_of_many_parts) {
    enum { PARTS = 300 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address parts[PARTS];
    gml_step_report report = {0};
    for (int step = 0; step < 8; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 1));
        for (int round = 0; round < 2; round++) {
            CHECK_OK(gml_lake_free(lake, trainer_take(lake, PARTS * 2 * MIB, 0)));
            for (size_t i = 0; i < PARTS; i++) {
                parts[i] = trainer_take(lake, 2 * MIB, 0);
            }
            for (size_t i = 0; i < PARTS; i++) {
                CHECK_OK(gml_lake_free(lake, parts[i]));
            }
        }
        CHECK_OK(gml_lake_end_step(lake, &report));
    }
    CHECK_EQ(report.served, 2 * (PARTS + 1));
    CHECK_EQ(trainer_stats(lake).reserved_bytes, PARTS * 2 * MIB);
    trainer_close(lake);
}

TEST(what_is_refused) {
    gml_lake *lake = trainer_open_lake("sim", "caching", 0);
    CHECK_STATUS(gml_lake_watch_steps(lake), GML_UNSUPPORTED);
    CHECK_STATUS(gml_lake_begin_step(lake, 0), GML_MISUSE);
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_close(lake));
    lake = trainer_open_lake("sim", "stitch", 0);
    gml_step_stats stats;
    CHECK_STATUS(gml_lake_begin_step(lake, 0), GML_MISUSE);
    CHECK_STATUS(gml_lake_step_stats(lake, &stats), GML_MISUSE);
    CHECK_OK(gml_lake_watch_steps(lake));
    CHECK_OK(gml_lake_mark(lake)); /* nothing: it does not plan by itself */
    CHECK_STATUS(gml_lake_end_step(lake, NULL), GML_MISUSE);
    gml_profile *profile;
    CHECK_STATUS(gml_lake_profile(lake, 0, &profile), GML_MISUSE);
    CHECK_OK(gml_lake_close(lake));
}

/* ---- what is watched ------------------------------------------------------------------------- */

TEST(a_profile_tells_what_was_watched) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address kept = 0, blocks[3];
    for (uint64_t step = 1; step <= 2; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 8));
        blocks[0] = trainer_take(lake, 1000, 0);
        CHECK_OK(gml_lake_free(lake, kept));
        blocks[1] = trainer_take(lake, 3 * MIB, 9);
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
    CHECK_EQ(last->requests[0].size_bytes, 1024);
    CHECK_EQ(last->requests[0].birth, 0);
    CHECK_EQ(last->requests[0].death, 5);
    CHECK_EQ(last->requests[0].death_serial, 2);
    CHECK_EQ(last->requests[1].stream, 9);
    CHECK_EQ(last->requests[1].birth, 2);
    CHECK_EQ(last->requests[1].death, 3);
    CHECK_EQ(last->requests[2].death, GML_STILL_LIVE);
    CHECK_EQ(previous->requests[0].death, previous->event_count);
    CHECK_EQ(previous->requests[2].death, 1);
    CHECK_EQ(previous->requests[2].death_serial, 2);
    gml_profile_free(profile);
    CHECK_OK(gml_lake_free(lake, kept));
    trainer_close(lake);
}

/* A lake that is at work already: its blocks, and those in use by other streams. */
TEST(watching_begins_late) {
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    gml_address blocks[6];
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = trainer_take(lake, i == 2 ? 4096 : (5 - i) * MIB, 0);
    }
    CHECK_OK(gml_lake_record_stream(lake, blocks[0], 4));
    CHECK_OK(gml_lake_record_stream(lake, blocks[1], 4));
    blocks[3] = trainer_take(lake, 3 * MIB, 0);
    CHECK_OK(gml_lake_free(lake, blocks[1]));
    CHECK_OK(gml_lake_watch_steps(lake));
    CHECK_OK(gml_lake_check(lake));
    blocks[4] = trainer_take(lake, 60 * MIB, 0);
    CHECK_OK(gml_lake_check(lake));
    blocks[5] = trainer_take(lake, 2 * MIB, 0);
    for (size_t i = 0; i < 6; i++) {
        if (i != 1) {
            CHECK_OK(gml_lake_free(lake, blocks[i]));
            CHECK_OK(gml_lake_check(lake));
        }
    }
    trainer_close(lake);
}
