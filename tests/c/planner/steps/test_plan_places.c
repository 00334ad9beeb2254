/* A place that a plan names is not given while a block lives in a part of it. */
#include "planner/support/stepping.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BY_FILE = 1, LEARNED = 2, MOST_STEPS = 8 };

/* A lake with so much idle memory in one piece, all of which the only request of a file's plan
 * takes in steps of the kind BY_FILE. */
static gml_lake *open_with_plan(uint64_t size_bytes) {
    gml_plan *plan = NULL;
    gml_lake *lake = NULL;
    for (int process = 0; process < 2; process++) {
        lake = trainer_open_lake("sim", "plan", 0);
        CHECK_OK(gml_lake_begin_step(lake, BY_FILE));
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, size_bytes, 0)));
        CHECK_OK(gml_lake_end_step(lake, NULL));
        if (process == 0) {
            plan = trainer_plan(lake, BY_FILE);
            trainer_close(lake);
        }
    }
    CHECK_OK(gml_lake_add_plan(lake, BY_FILE, plan));
    gml_plan_release(plan);
    return lake;
}

/* A step by the file's plan, whose place is in use. */
static void check_place_in_use(gml_lake *lake, uint64_t size_bytes) {
    gml_step_report report;
    CHECK_OK(gml_lake_begin_step(lake, BY_FILE));
    gml_address whole = trainer_take(lake, size_bytes, 0);
    CHECK(trainer_state(lake, whole) != GML_STATE_PLAN);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_free(lake, whole));
    CHECK_OK(gml_lake_end_step(lake, &report));
    CHECK_EQ(report.served, 0);
    CHECK(strstr(report.why, "was in use"));
}

/* The parts of a place are bits: of a first word, of those between, of a last. */
TEST(a_block_in_any_part) {
    enum { PARTS = 200 };
    static const size_t lasting[] = {0, 63, 64, 130, 191, 192, PARTS - 1};
    for (size_t at = 0; at < sizeof lasting / sizeof *lasting; at++) {
        gml_address parts[PARTS];
        gml_step_report report = {0};
        gml_lake *lake = open_with_plan(PARTS * 2 * MIB);
        for (int step = 0; step < MOST_STEPS && !report.served; step++) {
            CHECK_OK(gml_lake_begin_step(lake, LEARNED));
            for (size_t i = 0; i < PARTS; i++) {
                parts[i] = trainer_take(lake, 2 * MIB, 0);
            }
            for (size_t i = 0; i < PARTS; i++) {
                CHECK_OK(gml_lake_free(lake, i == lasting[at] ? 0 : parts[i]));
            }
            CHECK_OK(gml_lake_end_step(lake, &report));
            if (!report.served) {
                CHECK_OK(gml_lake_free(lake, parts[lasting[at]]));
            }
        }
        trainer_check_whole(&report);
        check_place_in_use(lake, PARTS * 2 * MIB);
        CHECK_OK(gml_lake_free(lake, parts[lasting[at]]));
        trainer_close(lake);
    }
}

/* It is a view over the first and the last third of the place. */
TEST(a_view) {
    gml_address thirds[3], view = 0;
    gml_step_report report = {0};
    gml_lake *lake = open_with_plan(36 * MIB);
    for (int step = 0; step < MOST_STEPS && !report.served; step++) {
        CHECK_OK(gml_lake_free(lake, view));
        CHECK_OK(gml_lake_begin_step(lake, LEARNED));
        for (size_t i = 0; i < 3; i++) {
            thirds[i] = trainer_take(lake, 12 * MIB, 0);
        }
        CHECK_OK(gml_lake_free(lake, thirds[0]));
        CHECK_OK(gml_lake_free(lake, thirds[2]));
        view = trainer_take(lake, 24 * MIB, 0);
        CHECK_OK(gml_lake_free(lake, thirds[1]));
        CHECK_OK(gml_lake_end_step(lake, &report));
    }
    trainer_check_whole(&report);
    CHECK_EQ(trainer_stats(lake).reserved_bytes, 36 * MIB);
    check_place_in_use(lake, 36 * MIB);
    CHECK_OK(gml_lake_free(lake, view));
    trainer_close(lake);
}

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
