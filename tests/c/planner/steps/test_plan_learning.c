/* When a plan is tried again, which one is predicted, and what gives way when memory ends. */
#include "planner/support/stepping.h"

#include <string.h>

/* A step of two requests; the second tells it from others. */
static gml_step_report run_step(gml_lake *lake, uint64_t second_bytes) {
    gml_step_report report;
    CHECK_OK(gml_lake_begin_step(lake, 0));
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 3 * MIB, 0)));
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, second_bytes, 0)));
    CHECK_OK(gml_lake_end_step(lake, &report));
    return report;
}

/* Four steps that leave it drop a plan. Each time it is tried again after twice as many steps. */
TEST(backoff_doubles_until_a_plan_serves) {
    enum { ROUNDS = 9, SERVED = 7, FAILURES = 4 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    uint64_t others = 0, backoff = 1;
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 64 * MIB, 0)));
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t later = 0;
        gml_step_report report = run_step(lake, 4 * MIB);
        while (!strstr(report.why, "will be served")) {
            later += strstr(report.why, "tried later") != NULL;
            CHECK_EQ(report.served, 0);
            report = run_step(lake, 4 * MIB);
        }
        if (round) {
            CHECK_EQ(later, backoff - 1);
            backoff *= 2;
        }
        if (round == SERVED) {
            CHECK_EQ(run_step(lake, 4 * MIB).served, 2);
            backoff = 1;
        }
        for (uint64_t left = 0; left < FAILURES; left += report.served) {
            report = run_step(lake, 5 * MIB + 512 * ++others);
            CHECK(report.served <= 1);
        }
    }
    trainer_close(lake);
}

/* Two places in turn for what lives into the next step: a file has a layout for each, and nothing
 * that happened before tells which is next. */
TEST(the_layout_used_least_lately_is_next) {
    gml_plan *plan = NULL;
    for (int process = 0; process < 2; process++) {
        gml_lake *lake = trainer_open_lake("sim", "plan", 0);
        gml_address kept = 0;
        if (process) {
            CHECK_OK(gml_lake_add_plan(lake, 0, plan));
        }
        for (int step = 0; step < 6; step++) {
            gml_step_report report;
            CHECK_OK(gml_lake_begin_step(lake, 0));
            gml_address work = trainer_take(lake, 7 * MIB, 0);
            gml_address next = trainer_take(lake, 5 * MIB, 0);
            CHECK_OK(gml_lake_free(lake, work));
            CHECK_OK(gml_lake_free(lake, kept));
            kept = next;
            if (step == 3 && !process) {
                CHECK_OK(gml_lake_end_step(lake, &report));
                plan = trainer_plan(lake, 0);
                continue;
            }
            CHECK_OK(gml_lake_end_step(lake, &report));
            CHECK(!process || report.served == 2);
        }
        CHECK_OK(gml_lake_free(lake, kept));
        trainer_close(lake);
    }
    gml_plan_release(plan);
}

/* After one step of another sort in a long row, the plan serves all that follow. */
TEST(one_other_step_does_not_stop_a_plan) {
    enum { ROW = 20 };
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 64 * MIB, 0)));
    for (int step = 0; step < ROW; step++) {
        CHECK_EQ(run_step(lake, 4 * MIB).served, step < 2 ? 0 : 2);
    }
    CHECK_EQ(run_step(lake, 5 * MIB).served, 1);
    for (int step = 0; step < 2 * ROW; step++) {
        CHECK_EQ(run_step(lake, 4 * MIB).served, 2);
    }
    trainer_close(lake);
}

/* Of the only step like the last one, what came next was not planned: it is watched again, though a
 * plan would begin like it. */
TEST(what_is_predicted_is_learned_first) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 64 * MIB, 0)));
    CHECK_EQ(run_step(lake, 4 * MIB).served, 0);
    CHECK_EQ(run_step(lake, 5 * MIB).served, 0);
    CHECK(strstr(run_step(lake, 4 * MIB).why, "will be served"));
    CHECK(strstr(run_step(lake, 5 * MIB).why, "will be served"));
    for (uint64_t step = 0; step < 6; step++) {
        CHECK_EQ(run_step(lake, (4 + step % 2) * MIB).served, 2);
    }
    trainer_close(lake);
}

/* What the plan of a file leaves lies beside its pool, unless only the pool has room for it. */
TEST(the_pool_gives_way_where_memory_ends) {
    gml_plan *plan = NULL;
    for (int process = 0; process < 2; process++) {
        gml_step_report report;
        gml_lake *lake = trainer_open_lake("sim", "plan", process ? 40 * MIB : 0);
        if (process) {
            CHECK_OK(gml_lake_add_plan(lake, 0, plan));
        }
        CHECK_OK(gml_lake_begin_step(lake, 0));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 30 * MIB, 0)));
        gml_address lasting = trainer_take(lake, 24 * MIB, 0);
        CHECK_OK(gml_lake_end_step(lake, &report));
        plan = plan ? plan : trainer_plan(lake, 0);
        CHECK_EQ(report.served, process);
        CHECK_EQ(report.left, process);
        CHECK_OK(gml_lake_free(lake, lasting));
        trainer_close(lake);
    }
    gml_plan_release(plan);
}
