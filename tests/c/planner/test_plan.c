/* From watched steps to plans. A plan is right if the program, run on for many steps, gets no
 * address from it that something else still holds; tape.h runs it and looks. */
#include "planner/plan.h"
#include "planner/support/tape.h"
#include "planner/support/training.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { KIB = 1024, MIB = 1024 * 1024 };

static gml_plan_info describe(const gml_plan *plan) {
    gml_plan_info info;
    gml_plan_describe(plan, &info);
    return info;
}

/* ---- training -------------------------------------------------------------------------------- */

TEST(a_step_that_frees_what_it_makes) {
    training program = {.layers = 12};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 1);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.steps, 1);
        CHECK_EQ(info.lanes, 1);
        CHECK_EQ(info.requests, 12 * 6);
        CHECK_EQ(info.placed, info.requests);
        CHECK_EQ(info.peak_bytes, info.lower_bound_bytes);
        CHECK_EQ(tape.served, info.requests * SERVED_STEPS);
        for (size_t i = 0; i < plan->entry_count; i++) {
            CHECK(plan->entries[i].end <= plan->period);
        }
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

static uint64_t live_after(const gml_plan *plan, size_t first_entry) {
    uint64_t live = 0;
    for (size_t i = first_entry; i < plan->entry_count; i++) {
        live += plan->entries[i].end >= plan->period ? plan->entries[i].size_bytes : 0;
    }
    return live;
}

TEST(gradients_wrap_around_the_step) {
    training program = {.layers = 10, .keeps_gradients = true};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 2);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.steps, 1);
        CHECK_EQ(info.placed, info.requests);
        CHECK_EQ(tape.served, info.requests * SERVED_STEPS);
        CHECK_EQ(live_after(plan, 0), 10 * 304 * KIB);
        CHECK_EQ(info.peak_bytes, info.lower_bound_bytes);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* The profile of one step cannot tell when its gradients are freed, so they have no place. */
TEST(one_watched_step_leaves_what_outlives_it) {
    training program = {.layers = 10, .keeps_gradients = true};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 1);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.requests - info.placed, 10);
        CHECK_EQ(tape.left, 10 * SERVED_STEPS);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* The same profile taken a step later knows of the frees. */
TEST(frees_in_a_later_step_are_known) {
    training program = {.layers = 10, .keeps_gradients = true};
    step_tape tape = {.step_count = 0};
    training_step(&program, &tape);
    training_step(&program, &tape);
    gml_profile *profile = tape_profile(&tape);
    gml_step last = profile->last;
    profile->last = profile->previous;
    profile->previous = (gml_step){.request_count = 0};
    gml_plan *plan = tape_build(profile);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.placed, info.requests);
        CHECK_EQ(live_after(plan, 0), 10 * 304 * KIB);
    }
    gml_plan_release(plan);
    free(last.requests);
    gml_profile_free(profile);
    tape_close(&tape);
}

TEST(a_second_batch_takes_a_period_of_two_steps) {
    training program = {.layers = 8, .keeps_gradients = true, .batch_bytes = 3 * MIB};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 3);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.steps, 2);
        CHECK_EQ(info.placed, info.requests);
        CHECK_EQ(info.requests, 2 * tape.steps[2].request_count);
        CHECK(plan->entries[0].offset != plan->entries[info.requests / 2].offset);
        gml_plan_request request;
        gml_plan_request_at(plan, info.requests / 2, &request);
        CHECK_EQ(request.step, 1);
        CHECK_EQ(request.size_bytes, 3 * MIB);
        CHECK_EQ(tape.left, 0);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

TEST(a_small_batch_is_not_worth_two_steps) {
    training program = {.layers = 8, .keeps_gradients = true, .batch_bytes = 4 * KIB};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 3);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.steps, 1);
        CHECK_EQ(info.requests - info.placed, 1);
        CHECK_EQ(plan->entries[0].offset, GML_NO_OFFSET);
        CHECK(plan->entries[0].end == plan->entries[0].start + plan->period);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* The first step makes the optimizer's state between everything else; the second knows its
 * gradients all the same, by their twins in the first. */
TEST(a_first_step_with_optimizer_state_still_tells) {
    training program = {.layers = 20, .keeps_gradients = true, .state_bytes = 600 * KIB};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 2);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.placed, info.requests);
        CHECK_EQ(info.steps, 1);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

TEST(optimizer_state_of_the_planned_step_is_left) {
    training program = {.layers = 20, .state_bytes = 600 * KIB};
    step_tape tape = {.step_count = 0};
    training_step(&program, &tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.requests - info.placed, 20);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* What is freed between the steps is still live in a profile that is taken when the step ends. */
TEST(what_is_freed_between_steps_ends_with_the_step) {
    step_tape tape = {.step_count = 0};
    size_t kept[3];
    for (size_t step = 0; step < 3; step++) {
        tape_begin(&tape);
        size_t other = tape_request(&tape, MIB, 0);
        kept[step] = tape_request(&tape, 2 * MIB, 0);
        tape_release(&tape, other);
        tape_end(&tape);
        if (step < 2) {
            tape_release(&tape, kept[step]);
        }
    }
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        CHECK_EQ(plan->placed_count, 2);
        CHECK_EQ(plan->entries[1].end, plan->period);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* Its like in the step before was freed at once, so nothing tells how long this one will live. */
TEST(what_outlives_its_step_unlike_before_is_left) {
    step_tape tape = {.step_count = 0};
    for (size_t step = 0; step < 2; step++) {
        tape_begin(&tape);
        size_t block = tape_request(&tape, 2 * MIB, 0);
        size_t other = tape_request(&tape, MIB, 0);
        if (step == 0) {
            tape_release(&tape, block);
        }
        tape_release(&tape, other);
        tape_end(&tape);
    }
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        CHECK_EQ(plan->entries[0].offset, GML_NO_OFFSET);
        CHECK_EQ(plan->placed_count, 1);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* What lives a little longer than two steps would need three. */
TEST(what_lives_longer_than_two_steps_is_left) {
    step_tape tape = {.step_count = 0};
    size_t kept[6];
    for (size_t step = 0; step < 6; step++) {
        tape_begin(&tape);
        kept[step] = tape_request(&tape, 2 * MIB, 0);
        if (step >= 2) {
            tape_release(&tape, kept[step - 2]);
        }
        tape_release(&tape, tape_request(&tape, MIB, 0));
        tape_end(&tape);
    }
    gml_profile *profile = tape_profile(&tape);
    gml_step second = tape.steps[2];
    gml_step last = profile->last;
    profile->last = second;
    gml_step previous = profile->previous;
    profile->previous = (gml_step){.request_count = 0};
    gml_plan *plan = tape_build(profile);
    if (plan) {
        CHECK_EQ(plan->steps, 1);
        CHECK_EQ(plan->entries[0].offset, GML_NO_OFFSET);
    }
    gml_plan_release(plan);
    profile->last = last;
    profile->previous = previous;
    gml_profile_free(profile);
    tape_close(&tape);
}

TEST(each_stream_has_a_lane) {
    training program = {.layers = 10, .keeps_gradients = true, .has_side_stream = true};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 2);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.lanes, 2);
        CHECK_EQ(plan->lanes[0].stream, 0);
        CHECK_EQ(plan->lanes[1].stream, 7);
        CHECK_EQ(plan->lanes[1].peak_bytes, 400 * KIB);
        CHECK_EQ(info.peak_bytes, plan->lanes[0].peak_bytes + 400 * KIB);
        CHECK_EQ(info.placed, info.requests);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* ---- random programs ----------------------------------------------------------------------------
 *
 * A step is a fixed list of (request, free how many events later), which may reach into the next
 * one or two steps.
 */

enum { RANDOM_REQUESTS = 60 };

typedef struct random_program {
    uint64_t sizes[RANDOM_REQUESTS];
    gml_stream streams[RANDOM_REQUESTS];
    size_t delays[RANDOM_REQUESTS]; /* in requests, of this step and those behind it */
    size_t blocks[3 * RANDOM_REQUESTS];
    size_t made;
} random_program;

static random_program invent(check_random *random, size_t longest) {
    random_program program = {.made = 0};
    for (size_t i = 0; i < RANDOM_REQUESTS; i++) {
        program.sizes[i] = 512 * (1 + check_below(random, check_below(random, 4) ? 8 : 200));
        program.streams[i] = check_below(random, 6) == 0 ? 42 : 0;
        size_t most = check_below(random, 5) ? 6 : longest;
        program.delays[i] = 1 + check_below(random, most);
    }
    return program;
}

static void run_random_step(random_program *program, step_tape *tape) {
    enum { KEPT = 3 * RANDOM_REQUESTS };
    tape_begin(tape);
    for (size_t i = 0; i < RANDOM_REQUESTS; i++) {
        size_t now = program->made++;
        for (size_t back = 1; back < KEPT && back <= now; back++) {
            if (program->delays[(now - back) % RANDOM_REQUESTS] == back) {
                tape_release(tape, program->blocks[(now - back) % KEPT]);
            }
        }
        program->blocks[now % KEPT] = tape_request(tape, program->sizes[i], program->streams[i]);
    }
    tape_end(tape);
}

static void try_random(uint64_t seed, size_t longest) {
    check_random random = {seed};
    random_program program = invent(&random, longest);
    step_tape tape = {.step_count = 0};
    for (size_t i = 0; i < 4; i++) {
        run_random_step(&program, &tape);
    }
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK(info.lower_bound_bytes <= info.peak_bytes);
        tape_serve(&tape, plan);
        for (size_t i = 0; i < SERVED_STEPS; i++) {
            run_random_step(&program, &tape);
        }
        CHECK_EQ(tape.overlaps, 0);
        CHECK_EQ(tape.mismatches, 0);
        if (longest < RANDOM_REQUESTS) {
            CHECK_EQ(tape.left, 0);
        }
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

TEST(random_steps_never_overlap) {
    for (uint64_t seed = 1; seed <= 40; seed++) {
        try_random(seed, seed % 2 ? RANDOM_REQUESTS - 1 : 2 * RANDOM_REQUESTS + 20);
    }
}

/* ---- fingerprints ---------------------------------------------------------------------------- */

TEST(a_fingerprint_is_of_sizes_and_lanes_in_order) {
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    size_t a = tape_request(&tape, 1000, 5);
    size_t b = tape_request(&tape, 2048, 3);
    size_t d = tape_request(&tape, 512, 5);
    tape_release(&tape, a);
    tape_release(&tape, b);
    tape_release(&tape, d);
    tape_end(&tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        uint64_t expected = gml_fingerprint_add(GML_FINGERPRINT_SEED, 1024, 0);
        expected = gml_fingerprint_add(expected, 2048, 1);
        expected = gml_fingerprint_add(expected, 512, 0);
        CHECK_EQ(describe(plan).fingerprint, expected);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

TEST(the_same_profile_gives_the_same_plan) {
    training program = {.layers = 16, .keeps_gradients = true};
    step_tape tape = {.step_count = 0};
    training_step(&program, &tape);
    training_step(&program, &tape);
    gml_plan *one = tape_plan(&tape), *two = tape_plan(&tape);
    if (one && two && CHECK_EQ(one->entry_count, two->entry_count)) {
        CHECK(memcmp(one->entries, two->entries, one->entry_count * sizeof *one->entries) == 0);
    }
    gml_plan_release(one);
    gml_plan_release(two);
    tape_close(&tape);
}

TEST(a_plan_lives_as_long_as_it_is_held) {
    training program = {.layers = 2};
    step_tape tape = {.step_count = 0};
    training_step(&program, &tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        CHECK(gml_plan_retain(plan) == plan);
        gml_plan_release(plan);
        CHECK_EQ(describe(plan).requests, 12);
    }
    gml_plan_release(plan);
    gml_plan_release(NULL);
    gml_profile_free(NULL);
    tape_close(&tape);
}
