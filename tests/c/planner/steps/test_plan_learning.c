/* When a plan is tried again, which one is predicted, and what gives way when memory ends. */
#include "planner/support/stepping.h"

#include <string.h>

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
    gml_plan_free(plan);
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
    gml_plan_free(plan);
}
