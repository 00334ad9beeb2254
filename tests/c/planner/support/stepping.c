#include "planner/support/stepping.h"

/* One step; gradients of the one before end behind its first layer. */
gml_step_report trainer_step(trainer *self) {
    gml_step_report report = {0};
    CHECK_OK(gml_lake_begin_step(self->lake, self->kind));
    trainer_drop_gradients(self);
    trainer_forward(self);
    trainer_backward(self);
    CHECK_OK(gml_lake_end_step(self->lake, &report));
    return report;
}

gml_plan *trainer_plan(gml_lake *lake, uint64_t kind) {
    gml_profile *profile = NULL;
    gml_plan *plan = NULL;
    char reason[256] = "";
    CHECK_OK(gml_lake_profile(lake, kind, &profile));
    const gml_planner_options options = {.budget_ms = 50};
    if (!CHECK_OK(gml_plan_build(profile, &options, &plan, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
    }
    gml_profile_free(profile);
    return plan;
}

void trainer_add_plan(gml_lake *lake, uint64_t kind) {
    gml_plan *plan = trainer_plan(lake, kind);
    CHECK_OK(gml_lake_add_plan(lake, kind, plan));
    gml_plan_free(plan);
}

void trainer_check_whole(const gml_step_report *report) {
    if (!CHECK(report->requests && report->served + report->left == report->requests)) {
        fprintf(stderr, "%" PRIu64 " of %" PRIu64 " were served: %s\n", report->served,
                report->requests, report->why);
    }
}

gml_step_report trainer_learn(trainer *self) {
    gml_step_report report = {0};
    for (int i = 0; i < 12 && !report.served; i++) {
        report = trainer_step(self);
    }
    trainer_check_whole(&report);
    return report;
}
