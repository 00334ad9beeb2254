#include "planner/support/training.h"

#include "support/check.h"

enum { KIB = 1024, SIDE_STREAM = 7 };

/* Returns the activation. */
static size_t forward(step_tape *tape, size_t index) {
    size_t workspace = tape_request(tape, 700 * KIB + 4 * KIB * (index % 3), 0);
    size_t activation = tape_request(tape, 1000 * KIB + 100 * KIB * (index % 5), 0);
    tape_release(tape, workspace);
    return activation;
}

static void backward(training *program, step_tape *tape, size_t index, size_t activation) {
    gml_stream stream = program->has_side_stream ? SIDE_STREAM : 0;
    size_t upstream = tape_request(tape, 1000 * KIB + 100 * KIB * (index % 5), 0);
    program->gradients[index] = tape_request(tape, 300 * KIB + 8 * KIB * (index % 2), 0);
    size_t bucket = tape_request(tape, 400 * KIB, stream);
    tape_release(tape, activation);
    tape_release(tape, bucket);
    tape_release(tape, upstream);
}

static void begin_with_batch(training *program, step_tape *tape) {
    if (program->batch_bytes) {
        size_t batch = tape_request(tape, program->batch_bytes, 0);
        if (program->step > 0) {
            tape_release(tape, program->batch);
        }
        program->batch = batch;
    }
    for (size_t i = 0; i < program->layers && program->keeps_gradients && program->step > 0; i++) {
        tape_release(tape, program->gradients[i]);
    }
}

static void optimize(training *program, step_tape *tape) {
    for (size_t i = 0; i < program->layers; i++) {
        size_t update = tape_request(tape, 300 * KIB, 0);
        if (program->state_bytes && program->step == 0) {
            (void)tape_request(tape, program->state_bytes, 0);
        }
        tape_release(tape, update);
        if (!program->keeps_gradients) {
            tape_release(tape, program->gradients[i]);
        }
    }
}

void training_step(training *program, step_tape *tape) {
    size_t activations[TRAINING_MOST_LAYERS];
    tape_begin(tape);
    begin_with_batch(program, tape);
    for (size_t i = 0; i < program->layers; i++) {
        activations[i] = forward(tape, i);
    }
    for (size_t i = program->layers; i-- > 0;) {
        backward(program, tape, i, activations[i]);
    }
    optimize(program, tape);
    tape_end(tape);
    program->step++;
}

gml_plan *training_plan(training *program, step_tape *tape, size_t watched) {
    for (size_t i = 0; i < watched; i++) {
        training_step(program, tape);
    }
    gml_plan *plan = tape_plan(tape);
    if (plan) {
        tape_serve(tape, plan);
        for (size_t i = 0; i < SERVED_STEPS; i++) {
            training_step(program, tape);
        }
        CHECK_EQ(tape->overlaps, 0);
        CHECK_EQ(tape->mismatches, 0);
    }
    return plan;
}
