#include "planner/support/tape.h"

#include "planner/plan.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

/* Tests have memory, or end. */
static void *grown(void *array, size_t count, size_t item_bytes) {
    bool is_full = count == 0 || (count >= 8 && (count & (count - 1)) == 0);
    void *larger = array;
    if (is_full) {
        larger = realloc(array, (count < 8 ? 8 : 2 * count) * item_bytes);
    }
    if (!larger) {
        abort();
    }
    return larger;
}

static gml_step *last_step(step_tape *tape) {
    return &tape->steps[tape->step_count - 1];
}

void tape_close(step_tape *tape) {
    for (size_t i = 0; i < tape->step_count; i++) {
        free(tape->steps[i].requests);
    }
    free(tape->blocks);
    *tape = (step_tape){.step_count = 0};
}

/* ---- serving --------------------------------------------------------------------------------- */

static bool blocks_meet(const tape_block *a, const tape_block *b) {
    return a->stream == b->stream && a->offset < b->offset + b->size_bytes &&
           b->offset < a->offset + a->size_bytes;
}

static void serve(step_tape *tape, tape_block *block) {
    const gml_plan *plan = tape->plan;
    const gml_plan_entry *entry = &plan->entries[tape->next_entry++];
    tape->mismatches +=
        entry->size_bytes != block->size_bytes || plan->lanes[entry->lane].stream != block->stream;
    block->offset = entry->offset;
    block->is_served = entry->offset != GML_NO_OFFSET;
    tape->left += !block->is_served;
    tape->served += block->is_served;
    for (size_t i = 0; i < tape->block_count && block->is_served; i++) {
        const tape_block *other = &tape->blocks[i];
        if (other != block && other->is_live && other->is_served) {
            tape->overlaps += blocks_meet(block, other);
        }
    }
}

void tape_serve(step_tape *tape, const gml_plan *plan) {
    tape->plan = plan;
    tape->plan_begin = tape->step_count;
}

static void begin_serving(step_tape *tape) {
    const gml_plan *plan = tape->plan;
    size_t step = (tape->step_count - 1 - tape->plan_begin) % plan->steps;
    tape->mismatches += step == 0 && tape->step_count - 1 > tape->plan_begin &&
                        tape->next_entry != plan->entry_count;
    tape->next_entry = plan->step_entry[step];
}

/* ---- watching -------------------------------------------------------------------------------- */

void tape_begin(step_tape *tape) {
    if (tape->step_count == TAPE_MOST_STEPS) {
        abort();
    }
    tape->steps[tape->step_count] = (gml_step){.serial = tape->step_count};
    tape->step_count++;
    tape->is_open = true;
    if (tape->plan) {
        begin_serving(tape);
    }
}

void tape_end(step_tape *tape) {
    tape->is_open = false;
}

static void watch(step_tape *tape, tape_block *block) {
    gml_step *step = last_step(tape);
    step->requests = grown(step->requests, step->request_count, sizeof *step->requests);
    block->step = tape->step_count - 1;
    block->request = step->request_count;
    step->requests[step->request_count++] = (gml_step_request){
        .size_bytes = block->size_bytes,
        .stream = block->stream,
        .birth = step->event_count++,
        .death = GML_STILL_LIVE,
    };
}

size_t tape_request(step_tape *tape, uint64_t size_bytes, gml_stream stream) {
    tape->blocks = grown(tape->blocks, tape->block_count, sizeof *tape->blocks);
    tape_block *block = &tape->blocks[tape->block_count++];
    *block = (tape_block){.size_bytes = (size_bytes + 511) / 512 * 512,
                          .stream = stream,
                          .step = SIZE_MAX,
                          .is_live = true};
    if (tape->is_open) {
        watch(tape, block);
        if (tape->plan) {
            serve(tape, block);
        }
    }
    return tape->block_count - 1;
}

void tape_release(step_tape *tape, size_t index) {
    tape_block *block = &tape->blocks[index];
    block->is_live = false;
    uint64_t time = 0;
    if (tape->step_count > 0) {
        time = tape->is_open ? last_step(tape)->event_count++ : last_step(tape)->event_count;
    }
    if (block->step != SIZE_MAX) {
        gml_step_request *request = &tape->steps[block->step].requests[block->request];
        request->death = time;
        request->death_serial = tape->step_count - 1;
    }
}

/* ---- profiles -------------------------------------------------------------------------------- */

static void *copied(const void *array, size_t bytes) {
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy) {
        abort();
    }
    if (bytes) {
        memcpy(copy, array, bytes);
    }
    return copy;
}

static gml_step copy_step(const gml_step *step) {
    gml_step copy = *step;
    copy.requests = copied(step->requests, step->request_count * sizeof *step->requests);
    return copy;
}

gml_profile *tape_profile(const step_tape *tape) {
    gml_profile *profile = calloc(1, sizeof *profile);
    if (!profile) {
        abort();
    }
    size_t ended = tape->step_count - (tape->is_open ? 1 : 0);
    profile->last = copy_step(&tape->steps[ended - 1]);
    if (ended > 1) {
        profile->previous = copy_step(&tape->steps[ended - 2]);
    }
    return profile;
}

gml_plan *tape_build(const gml_profile *profile) {
    const gml_planner_options quick = {.budget_ms = 20};
    gml_plan *plan = NULL;
    char reason[256] = "";
    if (!CHECK_OK(gml_plan_build(profile, &quick, &plan, reason, sizeof reason))) {
        printf("    %s\n", reason);
    }
    return plan;
}

gml_plan *tape_plan(const step_tape *tape) {
    gml_profile *profile = tape_profile(tape);
    gml_plan *plan = tape_build(profile);
    gml_profile_free(profile);
    return plan;
}
