/* Profiles that cannot be true: they come from programs, so they are refused, with a reason. */
#include "planner/plan.h"
#include "planner/support/tape.h"
#include "planner/support/training.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

static const gml_planner_options quick = {.budget_ms = 20};

static void expect_refusal(const gml_profile *profile, const char *word, const char *what) {
    gml_plan *plan = NULL;
    char reason[200] = "";
    gml_status status = gml_plan_build(profile, &quick, &plan, reason, sizeof reason);
    if (!CHECK_STATUS(status, GML_INVALID_ARGUMENT) || !CHECK(strstr(reason, word) != NULL) ||
        !CHECK(plan == NULL)) {
        printf("    %s: %s\n", what, reason);
    }
    gml_plan_free(plan);
    CHECK_STATUS(gml_plan_build(profile, &quick, &plan, NULL, 0), GML_INVALID_ARGUMENT);
}

#define REFUSED(word, change)                                                                      \
    do {                                                                                           \
        gml_profile *profile = tape_profile(&tape);                                                \
        gml_step *last = &profile->last;                                                           \
        (void)last;                                                                                \
        change;                                                                                    \
        expect_refusal(profile, word, #change);                                                    \
        gml_profile_free(profile);                                                                 \
    } while (0)

/* Each size is possible; their sum is not. */
static void make_huge(gml_step *step) {
    gml_step_request *requests = calloc(1 << 14, sizeof *requests);
    if (!requests) {
        abort();
    }
    for (size_t i = 0; i < 1 << 14; i++) {
        requests[i] = (gml_step_request){
            .size_bytes = UINT64_C(1) << 48, .birth = i, .death = GML_STILL_LIVE};
    }
    free(step->requests);
    step->requests = requests;
    step->request_count = 1 << 14;
    step->event_count = 1 << 14;
}

TEST(contradictions_are_refused) {
    training program = {.layers = 6, .keeps_gradients = true};
    step_tape tape = {.step_count = 0};
    training_step(&program, &tape);
    training_step(&program, &tape);
    REFUSED("no requests", last->request_count = 0);
    REFUSED("request", last->event_count = last->requests[5].birth);
    REFUSED("too many events", last->event_count = UINT64_MAX);
    REFUSED("request", last->requests[4].birth = last->requests[3].birth);
    REFUSED("request", last->requests[0].birth = UINT64_MAX);
    REFUSED("is freed", last->requests[3].death = last->requests[3].birth);
    REFUSED("is freed", last->requests[3].death = last->event_count + 1);
    REFUSED("is freed", (last->requests[3].death = 4, last->requests[3].death_serial = 0));
    REFUSED("is freed",
            (last->requests[3].death = UINT64_MAX - 1, last->requests[3].death_serial = 9));
    REFUSED("request", last->requests[7].size_bytes = 0);
    REFUSED("request", last->requests[7].size_bytes = UINT64_MAX);
    REFUSED("request", last->requests[7].size_bytes = (UINT64_C(1) << 48) + 1);
    REFUSED("not older", profile->previous.serial = last->serial);
    REFUSED("previous step", profile->previous.requests[2].size_bytes = 0);
    REFUSED("previous step", profile->previous.event_count = 0);
    REFUSED("too many bytes", make_huge(last));
    tape_close(&tape);
}

TEST(more_streams_than_any_program_has_are_refused) {
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    for (gml_stream stream = 0; stream < 300; stream++) {
        tape_release(&tape, tape_request(&tape, 512, stream));
    }
    tape_end(&tape);
    REFUSED("256 streams", (void)0);
    tape_close(&tape);
}
