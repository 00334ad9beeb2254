/* A place that a plan names is not given while a block lives in a part of it. */
#include "planner/support/stepping.h"

#include <stdlib.h>
#include <string.h>

enum { BY_FILE = 1, LEARNED = 2, MOST_STEPS = 8 };

/* A step may take memory for its plan before the first request: it is counted at once. */
TEST(what_a_step_takes_is_counted) {
    gml_stats stats;
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_begin_step(lake, BY_FILE));
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 12 * MIB, 0)));
    CHECK_OK(gml_lake_end_step(lake, NULL));
    gml_plan *plan = trainer_plan(lake, BY_FILE);
    trainer_close(lake);
    lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_add_plan(lake, BY_FILE, plan));
    CHECK_OK(gml_lake_begin_step(lake, BY_FILE));
    CHECK_OK(gml_lake_stats(lake, &stats));
    CHECK_EQ(stats.reserved_bytes, 12 * MIB);
    CHECK_OK(gml_lake_end_step(lake, NULL));
    CHECK_OK(gml_lake_close(lake));
    gml_plan_release(plan);
}
