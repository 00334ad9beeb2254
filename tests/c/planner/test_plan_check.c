/* A plan that was changed in one place must not pass: each change here is one that a file, or a
 * mistake in what builds plans, could make. */
#include "planner/plan.h"
#include "planner/support/tape.h"
#include "planner/support/training.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

static const gml_planner_options quick = {.budget_ms = 10};

/* Of two steps, with everything that a plan can have. */
static gml_plan *make_plan(void) {
    training program = {
        .layers = 8, .batch_bytes = 3 << 20, .keeps_gradients = true, .has_side_stream = true};
    step_tape tape = {.step_count = 0};
    for (size_t i = 0; i < 3; i++) {
        training_step(&program, &tape);
    }
    gml_profile *profile = tape_profile(&tape);
    gml_plan *plan = NULL;
    if (!CHECK_OK(gml_plan_build(profile, &quick, &plan, NULL, 0))) {
        abort();
    }
    gml_profile_free(profile);
    tape_close(&tape);
    return plan;
}

static void expect_corrupt(const gml_plan *plan, const char *what) {
    char reason[200] = "";
    if (!CHECK_STATUS(gml_plan_check(plan, reason, sizeof reason), GML_CORRUPT) ||
        !CHECK(reason[0] != '\0')) {
        printf("    %s\n", what);
    }
    CHECK_STATUS(gml_plan_check(plan, NULL, 0), GML_CORRUPT);
}

/* What is changed is put back. */
#define CORRUPT(place, value)                                                                      \
    do {                                                                                           \
        uint64_t kept = (uint64_t)(place);                                                         \
        (place) = (value);                                                                         \
        expect_corrupt(plan, #place " = " #value);                                                 \
        memcpy(&(place), &kept, sizeof(place));                                                    \
    } while (0)

TEST(a_plan_as_built_passes) {
    gml_plan *plan = make_plan();
    CHECK_OK(gml_plan_check(plan, NULL, 0));
    CHECK_EQ(plan->steps, 2);
    gml_plan_free(plan);
}

TEST(shapes_that_do_not_fit) {
    gml_plan *plan = make_plan();
    CORRUPT(plan->steps, 0);
    CORRUPT(plan->steps, 1);
    CORRUPT(plan->steps, 3);
    CORRUPT(plan->period, 0);
    CORRUPT(plan->period, plan->period + 2);
    CORRUPT(plan->period, UINT64_MAX - 1);
    CORRUPT(plan->step_time[1], plan->step_time[1] - 1);
    CORRUPT(plan->step_entry[1], plan->step_entry[1] - 1);
    CORRUPT(plan->lane_count, 1);
    CORRUPT(plan->lane_count, 100000);
    CORRUPT(plan->placed_count, plan->placed_count - 1);
    CORRUPT(plan->fingerprint, plan->fingerprint ^ 1);
    CHECK_OK(gml_plan_check(plan, NULL, 0));
    gml_plan_free(plan);
}

TEST(entries_that_contradict_each_other) {
    gml_plan *plan = make_plan();
    gml_plan_entry *entries = plan->entries;
    size_t half = plan->step_entry[1];
    CORRUPT(entries[3].size_bytes, 0);
    CORRUPT(entries[3].size_bytes, entries[3].size_bytes + 1);
    CORRUPT(entries[3].size_bytes, UINT64_C(1) << 49);
    CORRUPT(entries[half + 3].size_bytes, entries[3].size_bytes + 512);
    CORRUPT(entries[3].lane, 7);
    CORRUPT(entries[0].lane, 1);
    CORRUPT(entries[half + 3].lane, 1);
    CORRUPT(entries[3].start, entries[2].start);
    CORRUPT(entries[3].end, entries[3].start);
    CORRUPT(entries[3].end, entries[3].start + plan->period + 1);
    CORRUPT(entries[half + 3].end, entries[half + 3].end + 1);
    CORRUPT(entries[half - 1].start, plan->step_time[1]);
    CORRUPT(entries[3].offset, entries[3].offset + 1);
    CORRUPT(entries[3].offset, entries[0].offset);
    CORRUPT(entries[3].offset, GML_NO_OFFSET);
    CORRUPT(entries[3].offset, GML_NO_OFFSET - 511);
    CHECK_OK(gml_plan_check(plan, NULL, 0));
    gml_plan_free(plan);
}

/* Lanes are numbered by their first request, or equal steps would have different fingerprints. */
TEST(lanes_in_another_order) {
    gml_plan *plan = make_plan();
    gml_plan_lane first = plan->lanes[0];
    plan->lanes[0] = plan->lanes[1];
    plan->lanes[1] = first;
    for (size_t i = 0; i < plan->entry_count; i++) {
        plan->entries[i].lane = 1 - plan->entries[i].lane;
    }
    plan->fingerprint = gml_plan_fingerprint(plan);
    expect_corrupt(plan, "swapped lanes");
    gml_plan_free(plan);
}
