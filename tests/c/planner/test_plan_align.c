/* Which request is which: steps that were edited, and what was edited is known. */
#include "planner/align.h"
#include "support/check.h"

#include <stdlib.h>

enum { LONG_STEP = 4000, FEW_SIZES = 24 };

typedef struct edited_step {
    gml_step step;
    size_t *origin; /* of each request, in the first step; SIZE_MAX: inserted */
} edited_step;

static edited_step
empty_step(void)
{
    edited_step made = {.step = {.request_count = 0},
                        .origin = calloc((size_t)2 * LONG_STEP, sizeof(size_t))};
    made.step.requests = calloc((size_t)2 * LONG_STEP, sizeof(gml_step_request));
    if (!made.origin || !made.step.requests) {
        abort();
    }
    return made;
}

static void
add_request(edited_step *made, uint64_t size_bytes, size_t origin)
{
    size_t at = made->step.request_count++;
    made->step.requests[at] = (gml_step_request){.size_bytes = size_bytes, .birth = at};
    made->origin[at] = origin;
}

static void
close_edited(edited_step *made)
{
    free(made->step.requests);
    free(made->origin);
}

/* Sizes as layers give them: few, and in an order that repeats. */
static edited_step
layered_step(check_random *random)
{
    edited_step made = empty_step();
    for (size_t i = 0; i < LONG_STEP; i++) {
        bool is_odd = check_below(random, 12) == 0;
        add_request(&made, 512 * (1 + (is_odd ? check_below(random, 500) : i % FEW_SIZES)), i);
    }
    return made;
}

static edited_step
edit(const edited_step *from, size_t edits, check_random *random)
{
    edited_step made = empty_step();
    size_t chance = LONG_STEP / edits;
    for (size_t i = 0; i < from->step.request_count; i++) {
        uint64_t size = from->step.requests[i].size_bytes;
        uint64_t what = check_below(random, chance) ? 9 : check_below(random, 4);
        if (what == 0) {
            continue;
        }
        if (what == 1) {
            for (uint64_t k = check_below(random, 90) + 1; k > 0; k--) {
                add_request(&made, 512 * (1000 + check_below(random, 9)), SIZE_MAX);
            }
        }
        add_request(&made, what == 2 ? size + 5120 * 512 : size, what == 2 ? SIZE_MAX : i);
    }
    return made;
}

/* Nearly all twins are found, whatever was done to the step. */
static void
try_edits(size_t edits, uint64_t seed)
{
    check_random random = {seed};
    edited_step previous = layered_step(&random);
    edited_step last = edit(&previous, edits, &random);
    size_t *twins = calloc((size_t)2 * LONG_STEP, sizeof *twins);
    size_t right = 0, wrong = 0, latest = 0;
    bool ascends = true;
    if (twins && CHECK_OK(gml_align_steps(&last.step, &previous.step, twins))) {
        for (size_t i = 0; i < last.step.request_count; i++) {
            if (twins[i] != GML_NO_TWIN) {
                right += twins[i] == last.origin[i];
                wrong += twins[i] != last.origin[i];
                ascends = ascends && twins[i] >= latest;
                latest = twins[i] + 1;
            }
        }
    }
    CHECK(ascends);
    CHECK(right >= LONG_STEP - 10 * edits);
    CHECK(wrong <= 4 * edits);
    free(twins);
    close_edited(&last);
    close_edited(&previous);
}

TEST(twins_are_found_after_edits)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        try_edits(1, seed);
        try_edits(20, seed);
    }
}

/* Hundreds of requests in a row that only one of the steps has. */
TEST(twins_are_found_behind_a_long_insertion)
{
    check_random random = {3};
    edited_step previous = layered_step(&random), last = empty_step();
    for (size_t i = 0; i < LONG_STEP; i++) {
        for (size_t k = 0; i == 1000 && k < 700; k++) {
            add_request(&last, 512 * (600 + k % 3), SIZE_MAX);
        }
        add_request(&last, previous.step.requests[i].size_bytes, i);
    }
    size_t *twins = calloc((size_t)2 * LONG_STEP, sizeof *twins);
    size_t right = 0;
    if (twins && CHECK_OK(gml_align_steps(&last.step, &previous.step, twins))) {
        for (size_t i = 0; i < last.step.request_count; i++) {
            right += twins[i] != GML_NO_TWIN && twins[i] == last.origin[i];
        }
    }
    CHECK(right >= LONG_STEP - 10);
    free(twins);
    close_edited(&last);
    close_edited(&previous);
}

/* Where one request has another size, no other loses its twin. */
TEST(a_resized_request_costs_one_twin)
{
    for (int resized_in_last = 0; resized_in_last < 2; resized_in_last++) {
        edited_step previous = empty_step(), last = empty_step();
        for (size_t i = 0; i < 40; i++) {
            add_request(&previous, 512 * (1 + i % 5), i);
            add_request(&last, 512 * (1 + i % 5), i);
        }
        (resized_in_last ? &last : &previous)->step.requests[11].size_bytes = 512 * 9;
        size_t twins[40];
        CHECK_OK(gml_align_steps(&last.step, &previous.step, twins));
        for (size_t i = 0; i < 40; i++) {
            CHECK(i == 11 || twins[i] == i);
        }
        close_edited(&last);
        close_edited(&previous);
    }
}

/* Dynamic requests are told by their scope, since their sizes are never the same. */
TEST(dynamic_requests_have_twins_by_scope)
{
    edited_step previous = empty_step(), last = empty_step();
    for (size_t i = 0; i < 40; i++) {
        add_request(&previous, 512 * (1 + i % 7), i);
        add_request(&last, 512 * (1 + (i % 4 ? i % 7 : i)), i);
        last.step.requests[i].scope_birth = i % 4 ? 0 : 3;
        previous.step.requests[i].scope_birth = last.step.requests[i].scope_birth;
    }
    size_t twins[40];
    CHECK_OK(gml_align_steps(&last.step, &previous.step, twins));
    for (size_t i = 0; i < 40; i++) {
        CHECK_EQ(twins[i], i);
    }
    close_edited(&last);
    close_edited(&previous);
}

TEST(steps_with_nothing_in_common_have_no_twins)
{
    edited_step previous = empty_step(), last = empty_step();
    for (size_t i = 0; i < LONG_STEP; i++) {
        add_request(&previous, 512 * (1 + i % 7), i);
        add_request(&last, 512 * (100 + i % 5), i);
    }
    size_t *twins = calloc((size_t)2 * LONG_STEP, sizeof *twins);
    size_t found = 0;
    if (twins && CHECK_OK(gml_align_steps(&last.step, &previous.step, twins))) {
        for (size_t i = 0; i < last.step.request_count; i++) {
            found += twins[i] != GML_NO_TWIN;
        }
    }
    CHECK_EQ(found, 0);
    free(twins);
    close_edited(&last);
    close_edited(&previous);
}
