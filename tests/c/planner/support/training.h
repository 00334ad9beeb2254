/* Training steps of a made-up model, run on a tape. What the options add is what makes lifetimes of
 * real programs odd. */
#ifndef GML_TEST_TRAINING_H
#define GML_TEST_TRAINING_H

#include "planner/support/tape.h"

enum { TRAINING_MOST_LAYERS = 64 };

typedef struct training {
    size_t layers;        /* up to TRAINING_MOST_LAYERS */
    uint64_t batch_bytes; /* not 0: the next batch is made before the last one is freed */
    uint64_t state_bytes; /* not 0: the first step makes an optimizer state per layer, for ever */
    bool keeps_gradients; /* until the next step begins */
    bool has_side_stream; /* gradients are reduced on stream 7 */
    size_t step;          /* from here on the program's own */
    size_t batch;
    size_t gradients[TRAINING_MOST_LAYERS];
} training;

/* One step, from begin to end. */
void training_step(training *program, step_tape *tape);

/* Watches some steps, plans, and serves SERVED_STEPS more. The caller closes the tape and releases
 * the plan; NULL after a failed check. */
enum { SERVED_STEPS = 7 };
gml_plan *training_plan(training *program, step_tape *tape, size_t watched);

#endif
