/* A place that a plan names is not given while a block lives in a part of it. */
#include "planner/support/stepping.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BY_FILE = 1, LEARNED = 2, MOST_STEPS = 8 };

static uint64_t published_bytes(const char *path) {
    gml_published seen = {0};
    int file = open(path, O_RDONLY);
    CHECK(file >= 0 && read(file, &seen, sizeof seen) == (ssize_t)sizeof seen);
    close(file);
    return seen.reserved_bytes;
}

/* A step may take memory for its plan before the first request: who watches sees it at once. */
TEST(what_a_step_takes_is_published) {
    char folder[] = "/tmp/gmlake-plan-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/lake", folder);
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_begin_step(lake, BY_FILE));
    CHECK_OK(gml_lake_free(lake, trainer_take(lake, 12 * MIB, 0)));
    CHECK_OK(gml_lake_end_step(lake, NULL));
    gml_plan *plan = trainer_plan(lake, BY_FILE);
    trainer_close(lake);
    lake = trainer_open_lake("sim", "plan", 0);
    CHECK_OK(gml_lake_publish(lake, path));
    CHECK_OK(gml_lake_add_plan(lake, BY_FILE, plan));
    CHECK_OK(gml_lake_begin_step(lake, BY_FILE));
    CHECK_EQ(published_bytes(path), 12 * MIB);
    CHECK_OK(gml_lake_end_step(lake, NULL));
    CHECK_OK(gml_lake_close(lake));
    gml_plan_release(plan);
    CHECK_EQ(rmdir(folder), 0);
}
