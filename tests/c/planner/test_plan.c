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
    gml_plan_free(plan);
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
    gml_plan_free(plan);
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
    gml_plan_free(plan);
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
    gml_plan_free(plan);
    tape_close(&tape);
}
