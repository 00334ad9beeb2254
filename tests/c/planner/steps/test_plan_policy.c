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
    gml_plan_stats stats;
    CHECK_OK(gml_lake_plan_stats(self.lake, &stats));
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

/* Small ones, too: where none of an earlier step lies among them. */
TEST(requests_of_every_size) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address lasting = trainer_take(lake, 700, 0);
    gml_step_report report = {0};
    for (int step = 0; step < 6; step++) {
        gml_address blocks[40];
        CHECK_OK(gml_lake_begin_step(lake, 0));
        for (uint64_t i = 0; i < 40; i++) {
            blocks[i] = trainer_take(lake, 1 + (i * 7919 % 40) * 90000, 0);
        }
        for (size_t i = 0; i < 40; i++) {
            CHECK_OK(gml_lake_free(lake, blocks[i]));
        }
        CHECK_OK(gml_lake_end_step(lake, &report));
        CHECK_OK(gml_lake_check(lake));
    }
    trainer_check_whole(&report);
    CHECK(report.served > 25);
    CHECK(report.left > 0); /* beside what lasts */
    CHECK_OK(gml_lake_free(lake, lasting));
    trainer_close(lake);
}

/* A block of each step lives until the next has made its own: two places, in turn. */
TEST(what_lives_into_the_next_step) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_address kept = 0;
    for (int step = 0; step < 14; step++) {
        gml_step_report report;
        CHECK_OK(gml_lake_begin_step(lake, 0));
        gml_address work = trainer_take(lake, 7 * MIB, 0);
        gml_address next = trainer_take(lake, 5 * MIB, 0);
        CHECK_OK(gml_lake_free(lake, work));
        work = trainer_take(lake, 9 * MIB, 0);
        CHECK_OK(gml_lake_free(lake, kept));
        CHECK_OK(gml_lake_free(lake, work));
        kept = next;
        CHECK_OK(gml_lake_end_step(lake, &report));
        CHECK(step < 8 || report.served == 3);
    }
    CHECK_OK(gml_lake_free(lake, kept));
    trainer_close(lake);
}

/* ---- steps that differ ----------------------------------------------------------------------- */

TEST(an_evaluation_between) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer training = {.lake = lake, .scale = 1, .kind = 0};
    trainer evaluation = {.lake = lake, .scale = 2, .kind = 1};
    uint64_t calls = 0, reserved_bytes = 0;
    for (int round = 0; round < 8; round++) {
        gml_step_report report = {0};
        for (int step = 0; step < 3; step++) {
            report = trainer_step(&training);
        }
        trainer_drop_gradients(&training);
        if (round > 4) {
            trainer_check_whole(&report);
        }
        report = trainer_step(&evaluation);
        trainer_drop_gradients(&evaluation);
        if (round > 4) {
            trainer_check_whole(&report);
            CHECK_EQ(trainer_calls(lake), calls);
            CHECK_EQ(trainer_stats(lake).reserved_bytes, reserved_bytes);
        }
        calls = trainer_calls(lake);
        reserved_bytes = trainer_stats(lake).reserved_bytes;
    }
    trainer_close(lake);
}

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
    gml_plan_stats stats;
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK_EQ(stats.plans_made, LENGTHS);
    CHECK_OK(gml_lake_drop_plans(lake, 0));
    CHECK_EQ(trainer_step(&self).served, 0);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* The plan is left where the step differs, and comes back with the step that it was made of. */
TEST(a_step_leaves_its_plan) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1, .random = {1}};
    gml_step_report report = trainer_learn(&self);
    uint64_t fingerprint = report.fingerprint;
    CHECK(fingerprint != 0);
    self.drift_percent = 10;
    report = trainer_step(&self);
    CHECK(report.served > 0);
    CHECK(report.served < report.requests);
    CHECK(strncmp(report.why, "left", 4) == 0);
    CHECK(report.fingerprint != fingerprint);
    self.drift_percent = 0;
    while (self.extra_count) {
        trainer_drop(&self, &self.extras[--self.extra_count]);
    }
    report = trainer_learn(&self);
    CHECK_EQ(report.fingerprint, fingerprint);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

TEST(a_step_ends_before_its_plan) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_step_report report = {0};
    for (int step = 0; step < 7; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 0));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 3 * MIB, 0)));
        if (step < 6) {
            CHECK_OK(gml_lake_free(lake, trainer_take(lake, 4 * MIB, 0)));
        }
        CHECK_OK(gml_lake_end_step(lake, &report));
        CHECK_EQ(report.served, step < 3 ? 0 : step < 6 ? 2 : 1);
    }
    CHECK(strstr(report.why, "ended before"));
    trainer_close(lake);
}

/* Steps that begin alike and go on in two ways. */
TEST(the_plan_changes_on_the_way) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_step_report report = {0};
    uint64_t whole = 0;
    for (int step = 0; step < 40; step++) {
        uint64_t last = step * 7 % 5 < 2 ? 9 : 4;
        gml_address blocks[4];
        CHECK_OK(gml_lake_begin_step(lake, 0));
        for (uint64_t i = 0; i < 4; i++) {
            blocks[i] = trainer_take(lake, (i == 3 ? last : i + 2) * MIB, 0);
        }
        for (size_t i = 0; i < 4; i++) {
            CHECK_OK(gml_lake_free(lake, blocks[i]));
        }
        CHECK_OK(gml_lake_end_step(lake, &report));
        whole += step >= 20 && report.served == 4;
    }
    CHECK_EQ(whole, 20);
    trainer_close(lake);
}

/* A plan that never lasts is made less and less often. */
TEST(planning_in_vain_becomes_rare) {
    enum { STEPS = 1000 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_plan_stats stats;
    check_random random = {7};
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 0));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 30 * MIB, 0)));
        if (check_below(&random, 3) == 0) { /* begins like the others, and is like none */
            uint64_t size_bytes = 2 * MIB + 512 * check_below(&random, 50000);
            CHECK_OK(gml_lake_free(lake, trainer_take(lake, size_bytes, 0)));
        }
        CHECK_OK(gml_lake_end_step(lake, NULL));
    }
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK(stats.plans_made > 2);
    CHECK(stats.plans_made < STEPS / 10);
    trainer_close(lake);
}

/* ---- what is held ---------------------------------------------------------------------------- */

/* Requests outside of steps, which the plan knows nothing of, get all that is idle. */
TEST(what_is_held_gives_way) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_learn(&self);
    gml_stats stats = trainer_stats(lake);
    gml_address rest = trainer_take(lake, stats.reserved_bytes - stats.live_bytes - 24 * MIB, 0);
    CHECK_EQ(trainer_stats(lake).reserved_bytes, stats.reserved_bytes);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_free(lake, rest));
    gml_step_report report = trainer_step(&self);
    trainer_check_whole(&report);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

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

/* No more views are kept than allowed, but for those that a plan names. */
TEST(views_of_plans_are_kept) {
    static const gml_setting settings[] = {{"chunk_size", 2 * MIB}, {"max_views", 2}};
    gml_lake_config config = {
        .driver = "sim", .policy = "plan", .settings = settings, .setting_count = 2};
    gml_lake *lake = NULL;
    CHECK_OK(gml_lake_open(&config, &lake, NULL, 0));
    trainer self = {.lake = lake, .scale = 1};
    for (int i = 0; i < 30; i++) {
        (void)trainer_step(&self);
        gml_address other = trainer_take(lake, (30 + (uint64_t)i) * MIB, 0);
        CHECK_OK(gml_lake_free(lake, other));
        CHECK_OK(gml_lake_check(lake));
    }
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* ---- plans of a file ------------------------------------------------------------------------- */

/* Every block begins where the plan says, from the first step on, with no call after the first. */
TEST(a_loaded_plan_serves_at_once) {
    enum { BLOCKS = 6 };
    gml_plan *plan = NULL;
    for (int process = 0; process < 2; process++) {
        gml_lake *lake = trainer_open_lake("sim", "plan", 0);
        if (process) {
            CHECK_OK(gml_lake_add_plan(lake, 3, plan));
        }
        for (int step = 0; step < 3; step++) {
            gml_address addresses[BLOCKS];
            gml_step_report report;
            CHECK_OK(gml_lake_begin_step(lake, 3));
            uint64_t calls = trainer_calls(lake);
            for (uint64_t i = 0; i < BLOCKS; i++) {
                addresses[i] = trainer_take(lake, (i + 1) * 700 * 1024, 5);
            }
            for (size_t i = 0; i < BLOCKS && process; i++) {
                gml_plan_request first, request;
                gml_plan_request_at(plan, 0, &first);
                gml_plan_request_at(plan, i, &request);
                CHECK_EQ(addresses[i] - addresses[0], request.offset - first.offset);
                CHECK_EQ(trainer_state(lake, addresses[i]), GML_STATE_PLAN);
            }
            for (size_t i = 0; i < BLOCKS; i++) {
                CHECK_OK(gml_lake_free(lake, addresses[i]));
            }
            CHECK(!process || calls == trainer_calls(lake));
            CHECK_OK(gml_lake_end_step(lake, &report));
            CHECK(!process || report.served == BLOCKS);
        }
        plan = process ? plan : trainer_plan(lake, 3);
        trainer_close(lake);
    }
    gml_plan_release(plan);
}

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
    gml_plan_release(plan);
    trainer_close(lake);
}

/* Steps begin as the plan of a file says and go on in another way, which is learned: nobody knows
 * where the plan would have put what it left. */
TEST(what_a_loaded_plan_left_has_no_place) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_begin_step(lake, 0));
    gml_address work = trainer_take(lake, 30 * MIB, 0);
    gml_address lasting = trainer_take(lake, 10 * MIB, 0);
    CHECK_OK(gml_lake_free(lake, work));
    CHECK_OK(gml_lake_end_step(lake, NULL));
    gml_plan *plan = trainer_plan(lake, 0);
    CHECK_OK(gml_lake_free(lake, lasting));
    CHECK_OK(gml_lake_add_plan(lake, 0, plan));
    gml_step_report report;
    for (int step = 0; step < 12; step++) {
        CHECK_OK(gml_lake_begin_step(lake, 0));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 30 * MIB, 0)));
        gml_address left = trainer_take(lake, 10 * MIB, 0);
        gml_address unknown = trainer_take(lake, 4 * MIB, 0);
        CHECK(unknown >= left + 10 * MIB || left >= unknown + 4 * MIB);
        CHECK_OK(gml_lake_check(lake));
        CHECK_OK(gml_lake_free(lake, left));
        CHECK_OK(gml_lake_free(lake, unknown));
        CHECK_OK(gml_lake_end_step(lake, &report));
    }
    CHECK_EQ(report.served + report.left, 3);
    gml_plan_release(plan);
    trainer_close(lake);
}

TEST(plans_may_go_while_they_serve) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_step(&self);
    gml_plan *plan = trainer_plan(lake, 0);
    (void)trainer_learn(&self);
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

/* ---- for the lake ---------------------------------------------------------------------------- */

TEST(marks_are_enough) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_plan_stats stats;
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gml_lake_mark(lake));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 3 * MIB, 0)));
    }
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
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
    gml_plan_stats stats;
    CHECK_STATUS(gml_lake_begin_step(lake, 0), GML_MISUSE);
    CHECK_STATUS(gml_lake_plan_stats(lake, &stats), GML_MISUSE);
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

/* What another stream still uses ends as a block of the policy that watches, which sees the slab
 * go. */
TEST(watching_begins_while_a_stream_uses_what_was_freed) {
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    gml_address small = trainer_take(lake, 4096, 0);
    CHECK_OK(gml_lake_record_stream(lake, small, 4));
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 3 * MIB, 0)));
    CHECK_OK(gml_lake_free(lake, small));
    CHECK_OK(gml_lake_watch_steps(lake));
    CHECK_OK(gml_lake_check(lake));
    gml_address cached = trainer_take(lake, 3 * MIB, 0);
    CHECK_EQ(trainer_stats(lake).live_bytes, 3 * MIB);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_free(lake, cached));
    trainer_close(lake);
}
