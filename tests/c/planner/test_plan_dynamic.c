/* Dynamic requests: visits of scopes, and the addresses that stay idle for as long as one may live.
 */
#include "planner/plan.h"
#include "support/check.h"
#include "support/tape.h"
#include "support/training.h"

#include <stdlib.h>
#include <string.h>

enum { MIB = 1024 * 1024 };

static gml_plan *
build_around(const step_tape *tape, const gml_taken *taken)
{
    gml_profile *profile = tape_profile(tape);
    profile->taken = calloc(1, sizeof *profile->taken);
    if (!profile->taken) {
        abort();
    }
    profile->taken[0] = *taken;
    profile->taken_count = 1;
    gml_plan *plan = tape_build(profile);
    gml_profile_free(profile);
    return plan;
}

static gml_plan_info
describe(const gml_plan *plan)
{
    gml_plan_info info;
    gml_plan_describe(plan, &info);
    return info;
}

/* A program with experts, which the tape serves from idle spans: whatever a dynamic request may use
 * stays idle for as long as it really lives. */
TEST(dynamic_requests_get_what_stays_idle)
{
    training program = {.layers = 16,
                        .keeps_gradients = true,
                        .has_experts = true,
                        .has_side_stream = true,
                        .has_phases = true,
                        .seed = 5};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 2);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.dynamic, 4 * 2 * 2);
        CHECK_EQ(plan->visit_count, 8);
        CHECK_EQ(plan->visits[0].scope, 4);
        CHECK_EQ(plan->visits[4].scope, 116);
        CHECK_EQ(plan->visits[1].request_count, 2);
        CHECK_EQ(info.placed, info.requests);
        size_t with_spans = 0;
        for (size_t i = 0; i < plan->dynamic_count; i++) {
            with_spans += plan->dynamic[i].span_count > 0;
        }
        CHECK(with_spans >= plan->dynamic_count / 2);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

TEST(dynamic_requests_of_two_steps)
{
    training program = {.layers = 16,
                        .keeps_gradients = true,
                        .has_experts = true,
                        .batch_bytes = 5 * MIB,
                        .seed = 6};
    step_tape tape = {.step_count = 0};
    gml_plan *plan = training_plan(&program, &tape, 3);
    if (plan) {
        CHECK_EQ(plan->steps, 2);
        CHECK_EQ(plan->dynamic_count, 2 * 16);
        CHECK_EQ(plan->visit_count, 2 * 8);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* A visit without requests counts as one; one that no mark announced is found by its requests. */
TEST(visits_are_enterings)
{
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    size_t first = tape_request(&tape, MIB, 0);
    tape_scope(&tape, 5);
    tape_scope(&tape, 0);
    tape_scope(&tape, 5);
    size_t inside = tape_request(&tape, MIB, 0);
    tape.scope = 6;
    size_t unannounced = tape_request(&tape, MIB, 0);
    tape_scope(&tape, 0);
    tape_release(&tape, inside);
    tape_release(&tape, unannounced);
    tape_release(&tape, first);
    tape_end(&tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan && CHECK_EQ(plan->visit_count, 3)) {
        CHECK_EQ(plan->visits[0].request_count, 0);
        CHECK_EQ(plan->visits[1].request_count, 1);
        CHECK_EQ(plan->visits[2].scope, 6);
        CHECK_EQ(plan->visits[2].first_request, 1);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* A dynamic request whose end nobody knows may use only what is idle in the whole step. */
TEST(an_unknown_end_means_the_whole_period)
{
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    size_t early = tape_request(&tape, 2 * MIB, 0);
    size_t beside = tape_request(&tape, MIB, 0);
    tape_release(&tape, early);
    tape_scope(&tape, 1);
    size_t known = tape_request(&tape, MIB, 0);
    (void)tape_request(&tape, MIB, 0);
    tape_scope(&tape, 0);
    tape_release(&tape, known);
    tape_release(&tape, beside);
    tape_end(&tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan && CHECK_EQ(plan->dynamic_count, 2)) {
        CHECK_EQ(plan->dynamic[0].span_count, 1);
        CHECK_EQ(plan->spans[plan->dynamic[0].first_span].size_bytes, 2 * MIB);
        CHECK_EQ(plan->dynamic[1].span_count, 0);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

TEST(a_step_of_dynamic_requests_only)
{
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    tape_scope(&tape, 1);
    tape_release(&tape, tape_request(&tape, MIB, 3));
    tape_end(&tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan) {
        gml_plan_info info = describe(plan);
        CHECK_EQ(info.requests, 0);
        CHECK_EQ(info.dynamic, 1);
        CHECK_EQ(info.peak_bytes, 0);
        CHECK_EQ(plan->dynamic[0].span_count, 0);
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* ---- bounds -------------------------------------------------------------------------------------
 *
 * Steps with one dynamic request, in which 2 MiB are idle while it lives, and 1 MiB is not.
 */

static uint64_t
idle_bytes(const gml_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; plan && i < plan->dynamic[0].span_count; i++) {
        bytes += plan->spans[plan->dynamic[0].first_span + i].size_bytes;
    }
    return bytes;
}

static void
expect_idle(step_tape *tape, uint64_t bytes)
{
    gml_plan *plan = tape_plan(tape);
    CHECK_EQ(idle_bytes(plan), bytes);
    gml_plan_release(plan);
    tape_close(tape);
}

/* Another time the module may ask before it frees. */
TEST(idleness_begins_with_the_scope)
{
    for (int frees_inside = 0; frees_inside < 2; frees_inside++) {
        step_tape tape = {.step_count = 0};
        tape_begin(&tape);
        size_t early = tape_request(&tape, 2 * MIB, 0), always = tape_request(&tape, MIB, 0);
        if (!frees_inside) {
            tape_release(&tape, early);
        }
        tape_scope(&tape, 1);
        if (frees_inside) {
            tape_release(&tape, early);
        }
        size_t dynamic = tape_request(&tape, MIB, 0);
        tape_release(&tape, dynamic);
        tape_scope(&tape, 0);
        tape_release(&tape, always);
        tape_end(&tape);
        expect_idle(&tape, frees_inside ? 0 : 2 * MIB);
    }
}

/* A dynamic request that dies in another module, which then asks for `late`, or asks afterwards. */
static void
try_end(bool dies_in_scope, bool asks_inside)
{
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    size_t always = tape_request(&tape, MIB, 0);
    tape_scope(&tape, 1);
    size_t dynamic = tape_request(&tape, MIB, 0);
    tape_scope(&tape, 0);
    if (dies_in_scope) {
        tape_scope(&tape, 2);
    }
    tape_release(&tape, dynamic);
    if (!asks_inside) {
        if (dies_in_scope) {
            tape_phase(&tape, 3);
            tape_scope(&tape, 0);
        } else {
            tape_phase(&tape, 3);
        }
    }
    tape.scope = 0;
    tape_release(&tape, tape_request(&tape, 2 * MIB, 0));
    tape_scope(&tape, 0);
    tape_release(&tape, always);
    tape_end(&tape);
    expect_idle(&tape, asks_inside ? 0 : 2 * MIB);
}

TEST(idleness_ends_with_the_scope_of_the_free)
{
    try_end(true, true);
    try_end(true, false);
}

TEST(idleness_ends_with_the_next_mark_outside_of_scopes)
{
    try_end(false, true);
    try_end(false, false);
}

TEST(taken_memory_is_not_idle)
{
    for (gml_stream stream = 0; stream < 2; stream++) {
        step_tape tape = {.step_count = 0};
        tape_begin(&tape);
        tape_release(&tape, tape_request(&tape, 4 * MIB, 0));
        tape_scope(&tape, 1);
        tape_release(&tape, tape_request(&tape, MIB, 0));
        tape_scope(&tape, 0);
        tape_end(&tape);
        const gml_taken taken = {stream, {0, MIB}};
        gml_plan *plan = build_around(&tape, &taken);
        CHECK_EQ(idle_bytes(plan), 4 * MIB);
        CHECK(plan && plan->spans[0].offset == (stream == 0 ? MIB : 0));
        gml_plan_release(plan);
        tape_close(&tape);
    }
}

/* Requests with the same bounds share one list. */
TEST(requests_of_a_visit_share_a_list)
{
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    tape_release(&tape, tape_request(&tape, 4 * MIB, 0));
    for (uint32_t scope = 1; scope <= 3; scope++) {
        tape_scope(&tape, scope);
        for (size_t i = 0; i < 5; i++) {
            tape_release(&tape, tape_request(&tape, MIB, 0));
        }
        tape_scope(&tape, 0);
    }
    tape_end(&tape);
    gml_plan *plan = tape_plan(&tape);
    if (plan && CHECK_EQ(plan->dynamic_count, 15)) {
        CHECK_EQ(plan->span_count, 3);
        for (size_t i = 0; i < 15; i++) {
            CHECK_EQ(plan->dynamic[i].span_count, 1);
            CHECK_EQ(plan->dynamic[i].first_span, plan->dynamic[i / 5 * 5].first_span);
        }
    }
    gml_plan_release(plan);
    tape_close(&tape);
}

/* ---- how much is kept ------------------------------------------------------------------------ */

enum { HOLES = 200 };

/* Taken memory leaves holes of 1 to 200 KiB, not in that order, in which nothing is placed. */
static gml_plan *
build_among_holes(const step_tape *tape)
{
    gml_profile *profile = tape_profile(tape);
    profile->taken = calloc(HOLES, sizeof *profile->taken);
    if (!profile->taken) {
        abort();
    }
    profile->taken_count = HOLES;
    for (uint64_t i = 0; i < HOLES; i++) {
        uint64_t hole = (1 + i * 77 % HOLES) * 1024;
        profile->taken[i].span = (gml_span){i * MIB + hole, MIB - hole};
    }
    gml_plan *plan = tape_build(profile);
    gml_profile_free(profile);
    return plan;
}

TEST(the_largest_spans_are_kept)
{
    enum { KEPT = 128 };
    step_tape tape = {.step_count = 0};
    tape_begin(&tape);
    tape_release(&tape, tape_request(&tape, 4 * MIB, 0));
    tape_scope(&tape, 1);
    tape_release(&tape, tape_request(&tape, 1024, 0));
    tape_scope(&tape, 0);
    tape_end(&tape);
    gml_plan *plan = build_among_holes(&tape);
    if (plan && CHECK_EQ(plan->dynamic[0].span_count, KEPT)) {
        const gml_span *spans = &plan->spans[plan->dynamic[0].first_span];
        for (size_t k = 0; k < KEPT; k++) { /* the place of what is planned, and holes */
            CHECK(spans[k].size_bytes >= (HOLES + 2 - KEPT) * 1024);
            CHECK(k == 0 || spans[k].offset > spans[k - 1].offset);
        }
    }
    gml_plan_release(plan);
    tape_close(&tape);
}
