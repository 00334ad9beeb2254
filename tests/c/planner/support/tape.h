/* A program of training steps, watched as a lake watches it, and served by a plan as a lake would
 * serve it: the k-th request of a step gets the k-th offset. What overlaps is counted.
 */
#ifndef GML_TEST_TAPE_H
#define GML_TEST_TAPE_H

#include "gmlake_plan.h"

enum { TAPE_MOST_STEPS = 16 };

typedef struct tape_block {
    uint64_t size_bytes, offset;
    gml_stream stream;
    size_t step, request; /* step SIZE_MAX: made outside of steps */
    bool is_live, is_served;
} tape_block;

typedef struct step_tape {
    gml_step steps[TAPE_MOST_STEPS];
    size_t step_count; /* begun */
    bool is_open;      /* the last of them has not ended */
    tape_block *blocks;
    size_t block_count;
    const gml_plan *plan;
    size_t plan_begin; /* steps[plan_begin] was the first to be served */
    size_t next_entry;
    size_t served, left, overlaps, mismatches;
} step_tape;

void tape_close(step_tape *tape);

void tape_begin(step_tape *tape);
void tape_end(step_tape *tape);
size_t tape_request(step_tape *tape, uint64_t size_bytes, gml_stream stream); /* returns a block */
void tape_release(step_tape *tape, size_t block);

/* The last step that ended and the one before it, to be given to gml_profile_free(). */
gml_profile *tape_profile(const step_tape *tape);

/* Serves from the next step on. The plan stays the caller's. */
void tape_serve(step_tape *tape, const gml_plan *plan);

/* A plan made in a short time; NULL after a failed check. */
gml_plan *tape_build(const gml_profile *profile);

/* The same from tape_profile(). */
gml_plan *tape_plan(const step_tape *tape);

#endif
