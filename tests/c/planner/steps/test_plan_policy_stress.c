/* The policy `plan` under programs and plans that nobody would write: every address is checked by a
 * driver that knows who uses which byte, and which stream is ordered after which. */
#include "planner/plan.h"
#include "policy/steps/steps.h"
#include "support/check.h"
#include "support/harness.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CAPACITY (160 * MIB)

enum { MOST_BLOCKS = 48, KINDS = 3, STREAMS = 3, STEP_OPERATIONS = 90, OPERATIONS = 9000 };

typedef struct stress {
    test_harness harness;
    check_random random, step; /* `step` repeats itself from step to step */
    gml_block *blocks[MOST_BLOCKS];
    size_t count;
    uint64_t kind, served;
    bool may_fail;
    const char *fault; /* NULL while all is well */
} stress;

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t draw_size(check_random *random) {
    static const uint64_t most[] = {4096, MIB, 8 * MIB, 30 * MIB};
    return 1 + check_below(random, most[check_below(random, 4)]);
}

static void begin_block(stress *self) {
    gml_policy *policy = self->harness.policy;
    uint64_t size_bytes = draw_size(&self->step);
    gml_stream stream = check_below(&self->step, STREAMS);
    gml_block *block = NULL;
    gml_status status = policy->ops->allocate(policy, size_bytes, stream, &block);
    if (status == GML_OK) {
        self->blocks[self->count++] = block;
        if (!harness_begin(&self->harness, block)) {
            self->fault = self->harness.checker->reason;
        }
    } else if (status == GML_CORRUPT || (status != GML_OUT_OF_MEMORY && !self->may_fail)) {
        self->fault = "an allocation failed for another reason than lack of memory";
    }
}

static void end_block(stress *self) {
    size_t at = (size_t)check_below(&self->step, self->count);
    gml_block *block = self->blocks[at];
    self->blocks[at] = self->blocks[--self->count];
    harness_end(&self->harness, block);
    self->harness.policy->ops->free(self->harness.policy, block);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* What no check would let pass: places and spans anywhere, up to far beyond the device. */
static void spoil(gml_plan *plan, check_random *random) {
    for (size_t i = 0; i < plan->entry_count; i++) {
        if (check_below(random, 3) == 0) {
            uint64_t offset = check_next(random) >> (37 + check_below(random, 27));
            plan->entries[i].offset = offset / 512 * 512;
        }
    }
    for (size_t i = 0; i < plan->lane_count; i++) {
        plan->lanes[i].stream = check_below(random, 2) ? check_below(random, 5) : UINT64_MAX;
    }
}

static bool add_plan(gml_policy *policy, uint64_t kind, const gml_plan *plan) {
    bool is_added = true;
    for (unsigned step = plan->steps; step-- > 0;) {
        size_t count;
        gml_placed_request *places = gml_plan_places(plan, step, &count);
        is_added &= places && gml_steps_add_places(policy, kind, places, count) == GML_OK;
        free(places);
    }
    return is_added;
}

static void make_plan(stress *self) {
    gml_profile *profile = NULL;
    gml_plan *plan = NULL;
    gml_policy *policy = self->harness.policy;
    if (gml_steps_profile(policy, check_below(&self->random, KINDS), &profile) != GML_OK) {
        return;
    }
    const gml_planner_options options = {.budget_ms = 1};
    if (profile->last.request_count &&
        gml_plan_build(profile, &options, &plan, NULL, 0) != GML_OK) {
        self->fault = "a profile could not be planned for";
    }
    gml_profile_free(profile);
    if (plan && check_below(&self->random, 4) == 0) {
        spoil(plan, &self->random);
    }
    if (plan && !add_plan(policy, check_below(&self->random, KINDS), plan)) {
        self->fault = "a plan was not taken";
    }
    gml_plan_free(plan);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void change_step(stress *self) {
    gml_policy *policy = self->harness.policy;
    gml_step_report report = {0};
    gml_status status = gml_steps_end(policy, &report);
    self->served += report.served;
    if (status != GML_OK && status != GML_MISUSE) {
        self->fault = "a step could not end";
    }
    if (check_below(&self->random, 3) == 0) {
        make_plan(self);
    }
    if (check_below(&self->random, 12) == 0) {
        (void)gml_steps_drop_plans(policy, check_below(&self->random, KINDS));
    }
    size_t carried = check_below(&self->random, 4) ? 0 : 6;
    while (self->count > carried) {
        end_block(self);
    }
    self->kind = check_below(&self->random, KINDS);
    self->step = (check_random){self->kind};
    if (check_below(&self->random, 8) && gml_steps_begin(policy, self->kind) != GML_OK) {
        self->fault = "a step could not begin";
    }
}

/* What happens to a program from outside. */
static void disturb(stress *self) {
    gml_policy *policy = self->harness.policy;
    uint64_t released_bytes;
    switch (check_below(&self->random, 8)) {
    case 0:
        if (policy->ops->trim(policy, &released_bytes) == GML_CORRUPT) {
            self->fault = self->harness.driver->reason;
        }
        break;
    case 1: /* a graph is captured, or no longer */
        self->harness.driver->device->captures = !gml_driver_is_frozen(self->harness.driver);
        break;
    case 2:
        self->harness.driver->device->limit_bytes =
            check_below(&self->random, 3) ? 0 : CAPACITY / 2;
        break;
    case 3:
        make_plan(self);
        break;
    case 4:
        (void)check_next(&self->step); /* the rest of the step is another */
        break;
    case 5:
        (void)gml_steps_begin(policy, self->kind); /* ends the open one */
        break;
    default:
        begin_block(self);
        break;
    }
}

static void operate(stress *self, uint64_t at) {
    if (at % STEP_OPERATIONS == 0) {
        change_step(self);
    }
    if (check_below(&self->random, 300) == 0 && self->count < MOST_BLOCKS) {
        disturb(self);
    }
    uint64_t what = check_below(&self->step, 100);
    if (what < 57 && self->count < MOST_BLOCKS) {
        begin_block(self);
    } else if (self->count) {
        end_block(self);
    }
    (void)gml_streams_advance(harness_streams(&self->harness), check_below(&self->random, STREAMS),
                              check_below(&self->random, 6), NULL);
}

static void look(stress *self, uint64_t at) {
    gml_policy *policy = self->harness.policy;
    if (policy->reserved_bytes != self->harness.driver->held_bytes) {
        self->fault = "reserved bytes are not what the driver was asked for";
    } else if (at % 64 == 0 && policy->ops->check(policy) != GML_OK) {
        self->fault = self->harness.driver->reason;
    }
}

static uint64_t run_stress(uint64_t seed, uint64_t fail_per_million, uint64_t arena_bytes) {
    stress self = {.random = {seed}, .may_fail = fail_per_million != 0};
    if (harness_open(&self.harness, &(harness_config){.driver = "sim",
                                                      .policy = &gml_steps_policy,
                                                      .capacity_bytes = CAPACITY,
                                                      .arena_bytes = arena_bytes,
                                                      .fail_per_million = fail_per_million,
                                                      .fail_seed = seed}) != GML_OK) {
        harness_close(&self.harness);
        return 0;
    }
    CHECK_OK(gml_streams_set_manual(harness_streams(&self.harness), true));
    for (uint64_t i = 0; i < OPERATIONS && !self.fault; i++) {
        operate(&self, i);
        look(&self, i);
    }
    self.harness.driver->device->captures = false;
    gml_status status = self.fault ? GML_OK : harness_destroy_policy(&self.harness);
    if (!self.fault && status == GML_OK && harness_leftovers(&self.harness)) {
        self.fault = "memory or addresses were left behind";
    }
    CHECK(status == GML_OK || fail_per_million);
    if (!CHECK(!self.fault)) {
        fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, self.fault);
    }
    harness_close(&self.harness);
    return self.served;
}

TEST(nothing_overlaps_and_nothing_is_lost) {
    uint64_t served = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        served += run_stress(seed, 0, 0);
    }
    CHECK(served > 2000);
}

TEST(nor_in_an_arena) {
    uint64_t served = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        served += run_stress(200 + seed, seed % 2 * 2000, CAPACITY);
    }
    CHECK(served > 200);
}

TEST(nor_when_driver_calls_fail) {
    for (uint64_t seed = 1; seed <= 12; seed++) {
        (void)run_stress(100 + seed, seed * 4000, 0);
    }
}
