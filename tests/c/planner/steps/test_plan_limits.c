/* Planned steps where something gives way: the driver, the host's memory, the device. */
#include "hooks/test_hooks.h"
#include "planner/support/stepping.h"
#include "policy/steps/planned.h"

#include <string.h>

/* ---- byte patterns in every block ------------------------------------------------------------ */

static void train_with_drift(const char *policy, uint64_t capacity_bytes, uint64_t seed) {
    enum { STEPS = 100 };
    trainer self = {.lake = trainer_open_lake("host", policy, capacity_bytes),
                    .scale = 1,
                    .random = {seed},
                    .fills = true};
    CHECK_OK(gml_lake_watch_steps(self.lake));
    for (int i = 0; i < STEPS; i++) {
        self.drift_percent = i % 8 == 7 ? 4 : 0;
        self.kind = i % 10 == 9;
        (void)trainer_step(&self);
        while (self.extra_count) {
            trainer_drop(&self, &self.extras[--self.extra_count]);
        }
        CHECK_OK(gml_lake_check(self.lake));
    }
    gml_step_stats stats;
    CHECK_OK(gml_lake_step_stats(self.lake, &stats));
    CHECK(stats.served * 10 > stats.requests);
    trainer_drop_gradients(&self);
    trainer_close(self.lake);
}

TEST(contents_with_drift) {
    train_with_drift("plan", 0, 1);
    train_with_drift("stitch", 0, 2);
}

/* ---- every driver call fails once ------------------------------------------------------------ */

/* Returns how many calls there were. */
static uint64_t train_with_failure(const char *driver, uint64_t fail_call,
                                   uint64_t fail_per_million) {
    gml_lake_config config = {.driver = driver,
                              .policy = "plan",
                              .hooks = GML_HOOKS(.fail_call = fail_call,
                                                 .fail_per_million = fail_per_million,
                                                 .fail_seed = fail_per_million)};
    trainer self = {.scale = 1, .fills = strcmp(driver, "host") == 0};
    if (gml_lake_open(&config, &self.lake, NULL, 0) != GML_OK) {
        return 0;
    }
    self.may_fail = true;
    for (int i = 0; i < 9; i++) {
        (void)trainer_step(&self);
        CHECK_OK(gml_lake_check(self.lake));
        if (i == 6) {
            (void)gml_lake_trim(self.lake, NULL);
            CHECK_OK(gml_lake_check(self.lake));
            trainer_add_plan(self.lake, 0);
        }
    }
    trainer_drop_gradients(&self);
    CHECK(fail_per_million || self.failed <= 1);
    (void)gml_lake_trim(self.lake, NULL);
    CHECK(gml_lake_trim(self.lake, NULL) == GML_OK || fail_per_million);
    CHECK(fail_per_million || trainer_stats(self.lake).reserved_bytes == 0);
    CHECK_OK(gml_lake_check(self.lake));
    uint64_t calls = trainer_calls(self.lake);
    gml_status status = gml_lake_close(self.lake);
    CHECK(status == GML_OK || fail_per_million || fail_call > calls);
    return calls;
}

TEST(each_call_fails) {
    enum { SIM_RUNS = 200, HOST_RUNS = 8, RANDOM_RUNS = 100 };
    uint64_t calls = train_with_failure("sim", 0, 0);
    for (uint64_t i = 0; i < SIM_RUNS; i++) {
        (void)train_with_failure("sim", 1 + calls * i / SIM_RUNS, 0);
    }
    for (uint64_t i = 0; i < HOST_RUNS; i++) {
        (void)train_with_failure("host", 1 + calls * (2 * i + 1) / (2 * HOST_RUNS), 0);
    }
    for (uint64_t i = 1; i <= RANDOM_RUNS; i++) {
        (void)train_with_failure("sim", 0, i * 4000);
    }
}

/* ---- a step that does not end ---------------------------------------------------------------- */

/* A step is too long to be planned, and the next one is not. */
TEST(a_step_of_too_many_requests) {
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_step_report report;
    CHECK_OK(gml_lake_begin_step(lake, 0));
    for (size_t i = 0; i <= GML_MOST_REQUESTS; i++) {
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 512, 0)));
    }
    CHECK_OK(gml_lake_end_step(lake, &report));
    CHECK_EQ(report.fingerprint, 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_learn(&self);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}
