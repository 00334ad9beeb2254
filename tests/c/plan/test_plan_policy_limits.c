/* Serving plans where something gives way: the driver, the host's memory, the device. */
#include "plan/record.h"
#include "plan/steps.h"
#include "planner/plan.h"
#include "support/rig.h"
#include "support/trainer.h"

#include <pthread.h>

/* A device so small that pools are made of single chunks of 2 MiB. */
#define SMALL_CELLS (UINT64_C(1) << 30)

enum { BLOCKS = 5, BLOCK_MIB = 6 };

/* ---- a mapping that the driver does not take back -------------------------------------------- */

static gml_status
refuse(gml_driver *self, gml_address address, uint64_t size_bytes)
{
    (void)address;
    return gml_driver_fail(self, GML_DRIVER_FAILED, "%" PRIu64 " bytes refused", size_bytes);
}

static void
run_blocks(gml_policy *policy, gml_state state)
{
    gml_block *blocks[BLOCKS];
    CHECK_OK(gml_steps_begin(policy, 0));
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK_OK(policy->ops->allocate(policy, BLOCK_MIB * MIB, 0, &blocks[i]));
        CHECK(state == GML_STATE_COUNT || blocks[i]->state == state);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        policy->ops->free(policy, blocks[i]);
    }
    CHECK_OK(gml_steps_end(policy, NULL));
}

static void
plan_blocks(gml_policy *policy)
{
    gml_profile *profile = NULL;
    gml_plan *plan = NULL;
    CHECK_OK(gml_steps_profile(policy, 0, &profile));
    CHECK_OK(gml_plan_build(profile, NULL, &plan, NULL, 0));
    CHECK_OK(gml_steps_add_plan(policy, 0, plan));
    gml_plan_release(plan);
    gml_profile_free(profile);
}

/* The chunks of an attachment that failed are served elsewhere while they are still mapped; before
 * they go to the driver, and before anything else is mapped there, that mapping ends. */
static void
leave_mapping(bool trims)
{
    test_rig rig;
    CHECK_OK(rig_open(
        &rig,
        &(rig_config){.driver = "sim", .policy = &gml_plan_policy, .capacity_bytes = SMALL_CELLS}));
    gml_policy *policy = rig.policy;
    run_blocks(policy, GML_STATE_COUNT);
    run_blocks(policy, GML_STATE_COUNT);
    plan_blocks(policy);
    const gml_driver_ops *ops = rig.driver->ops;
    gml_driver_ops refusing = *ops;
    refusing.set_access = refuse;
    refusing.unmap = refuse;
    rig.driver->ops = &refusing;
    uint64_t mappings = shadow_count(rig.shadow).mappings;
    run_blocks(policy, GML_STATE_COUNT); /* as if there were no plan */
    rig.driver->ops = ops;
    CHECK(shadow_count(rig.shadow).mappings > mappings);
    CHECK_OK(policy->ops->check(policy));
    if (trims) {
        uint64_t released_bytes;
        CHECK_OK(policy->ops->trim(policy, &released_bytes));
        CHECK_EQ(policy->reserved_bytes, 0);
        CHECK_EQ(shadow_count(rig.shadow).mappings, 0);
        CHECK_EQ(shadow_count(rig.shadow).held_bytes, 0);
    }
    run_blocks(policy, GML_STATE_PLAN);
    CHECK_OK(policy->ops->check(policy));
    CHECK_OK(rig_destroy_policy(&rig));
    CHECK_EQ(rig_leftovers(&rig), 0);
    CHECK_EQ(shadow_breach(rig.shadow)[0], 0);
    rig_close(&rig);
}

TEST(stuck_mappings_end)
{
    leave_mapping(true);
    leave_mapping(false);
}

/* ---- while a graph is captured --------------------------------------------------------------- */

TEST(a_frozen_driver_keeps_the_pool)
{
    test_rig rig;
    CHECK_OK(rig_open(&rig, &(rig_config){.driver = "sim",
                                          .policy = &gml_plan_policy,
                                          .capacity_bytes = BLOCKS * BLOCK_MIB * MIB}));
    gml_policy *policy = rig.policy;
    gml_block *block = NULL;
    uint64_t released_bytes;
    run_blocks(policy, GML_STATE_COUNT);
    run_blocks(policy, GML_STATE_COUNT);
    plan_blocks(policy);
    rig.driver->is_frozen = true;
    run_blocks(policy, GML_STATE_PLAN);
    uint64_t calls = rig_calls(&rig);
    CHECK_OK(policy->ops->trim(policy, &released_bytes));
    CHECK_STATUS(policy->ops->allocate(policy, BLOCK_MIB * MIB, 5, &block), GML_OUT_OF_MEMORY);
    run_blocks(policy, GML_STATE_PLAN);
    CHECK_EQ(rig.driver->calls[GML_CALL_UNMAP], 0);
    CHECK_EQ(rig.driver->calls[GML_CALL_DEVICE_SYNCHRONIZE], 0);
    CHECK(rig_calls(&rig) <= calls + 2); /* the attempts to create */
    rig.driver->is_frozen = false;
    CHECK_OK(policy->ops->allocate(policy, BLOCK_MIB * MIB, 5, &block));
    CHECK_OK(policy->ops->check(policy));
    policy->ops->free(policy, block);
    CHECK_OK(rig_destroy_policy(&rig));
    CHECK_EQ(rig_leftovers(&rig), 0);
    rig_close(&rig);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* The lake makes room and asks again: that is the same request, not the next. */
TEST(a_request_asked_again_meets_its_entry)
{
    test_rig rig;
    CHECK_OK(rig_open(
        &rig,
        &(rig_config){.driver = "sim", .policy = &gml_plan_policy, .capacity_bytes = SMALL_CELLS}));
    gml_policy *policy = rig.policy;
    gml_block *blocks[BLOCKS];
    gml_step_report report;
    uint64_t released_bytes;
    run_blocks(policy, GML_STATE_COUNT);
    run_blocks(policy, GML_STATE_COUNT);
    plan_blocks(policy);
    CHECK_OK(policy->ops->trim(policy, &released_bytes));
    rig.driver->limit_bytes = 2 * BLOCK_MIB * MIB;
    CHECK_OK(gml_steps_begin(policy, 0));
    for (size_t i = 0; i < BLOCKS; i++) {
        gml_status status = policy->ops->allocate(policy, BLOCK_MIB * MIB, 0, &blocks[i]);
        if (i == 2 && CHECK_STATUS(status, GML_OUT_OF_MEMORY)) {
            rig.driver->limit_bytes = 0;
            status = policy->ops->allocate(policy, BLOCK_MIB * MIB, 0, &blocks[i]);
        }
        CHECK_OK(status);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        policy->ops->free(policy, blocks[i]);
    }
    CHECK_OK(gml_steps_end(policy, &report));
    CHECK_EQ(report.requests, BLOCKS);
    CHECK_EQ(report.served, BLOCKS);
    rig_close(&rig);
}

/* ---- what is larger than the device ---------------------------------------------------------- */

TEST(a_plan_beyond_the_device_serves_what_it_can)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 6};
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    gml_plan *plan = trainer_plan(lake, 0);
    gml_plan_info info;
    gml_plan_describe(plan, &info);
    trainer_drop_gradients(&self);
    trainer_close(lake);

    uint64_t capacity_bytes = info.peak_bytes / 2 / (2 * MIB) * (2 * MIB);
    self = (trainer){.lake = trainer_open_lake("sim", "plan", capacity_bytes), .scale = 6};
    CHECK_OK(gml_lake_add_plan(self.lake, 0, plan));
    gml_plan_release(plan);
    for (int i = 0; i < 3; i++) {
        gml_step_report report = trainer_step(&self);
        CHECK(report.served > 0);
        CHECK(self.refused > 0);
        CHECK(trainer_stats(self.lake).reserved_bytes <= capacity_bytes);
        CHECK_OK(gml_lake_check(self.lake));
    }
    trainer_drop_gradients(&self);
    trainer_close(self.lake);
}

/* ---- a step that does not end ---------------------------------------------------------------- */

TEST(a_step_without_an_end_is_forgotten)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    gml_profile *profile = NULL;
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    trainer_add_plan(lake, 0);
    CHECK_OK(gml_lake_begin_step(lake, 0));
    gml_address before = trainer_take(lake, 3 * MIB, 0);
    for (size_t i = 0; i <= GML_RECORD_MOST; i++) {
        CHECK_OK(gml_lake_enter_phase(lake, 9));
    }
    gml_address behind = trainer_take(lake, 3 * MIB, 0);
    CHECK_OK(gml_lake_free(lake, before));
    CHECK_OK(gml_lake_end_step(lake, NULL));
    CHECK_OK(gml_lake_profile(lake, 0, &profile));
    CHECK_EQ(profile->last.request_count, 0);
    gml_profile_free(profile);
    CHECK_OK(gml_lake_free(lake, behind));
    gml_step_report report = trainer_step(&self);
    report = trainer_step(&self);
    trainer_check_whole(&report);
    CHECK_OK(gml_lake_profile(lake, 0, &profile));
    gml_profile_free(profile);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { STEPS = 60, ROUNDS = 1500 };

static void *
train(void *context)
{
    trainer *self = context;
    for (int i = 0; i < STEPS; i++) {
        (void)trainer_step(self);
    }
    trainer_drop_gradients(self);
    return NULL;
}

static void *
load_data(void *context)
{
    trainer *self = context;
    check_random random = {3};
    for (int i = 0; i < ROUNDS; i++) {
        gml_address address = trainer_take(self->lake, 1 + check_below(&random, 4 * MIB), 2);
        CHECK_OK(gml_lake_record_stream(self->lake, address, self->stream));
        CHECK_OK(gml_lake_free(self->lake, address));
    }
    return NULL;
}

static void *
plan_beside(void *context)
{
    trainer *self = context;
    for (int i = 0; i < STEPS; i++) {
        gml_profile *profile = NULL;
        gml_plan *plan = NULL;
        const gml_planner_options options = {.budget_ms = 1};
        if (gml_lake_profile(self->lake, self->kind, &profile) == GML_OK) {
            CHECK_OK(gml_plan_build(profile, &options, &plan, NULL, 0));
            CHECK_OK(gml_lake_add_plan(self->lake, self->kind, plan));
        }
        gml_profile_free(profile);
        gml_plan_release(plan);
        CHECK_OK(gml_lake_check(self->lake));
        if (i % 10 == 9) {
            CHECK_OK(gml_lake_trim(self->lake, NULL));
            CHECK_OK(gml_lake_drop_plans(self->lake, self->kind));
        }
    }
    return NULL;
}

TEST(threads_share_a_lake_with_steps)
{
    static void *(*const works[])(void *) = {train, load_data, plan_beside};
    trainer self = {.lake = trainer_open_lake("sim", "stitch", 0), .scale = 1};
    CHECK_OK(gml_lake_watch_steps(self.lake));
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, works[i], &self), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    trainer_close(self.lake);
}

/* ---- what earlier steps leave ---------------------------------------------------------------- */

enum { GRADIENTS = 4, TEMPORARIES = 6 };

/* One micro-batch: temporaries and gradients. The gradients stay until the next one ends, which
 * begins in the same way, adds its own to them at once, and asks for something more. */
static gml_step_report
micro_batch(gml_lake *lake, uint64_t kind, bool is_update, gml_address *gradients)
{
    gml_address temporaries[TEMPORARIES];
    gml_step_report report;
    CHECK_OK(gml_lake_begin_step(lake, kind));
    for (uint64_t i = 0; i < TEMPORARIES; i++) {
        temporaries[i] = trainer_take(lake, (3 + i) * MIB, 0);
    }
    for (size_t i = 0; i < GRADIENTS; i++) {
        gml_address gradient = trainer_take(lake, 5 * MIB, 0);
        if (is_update) {
            CHECK_OK(gml_lake_free(lake, gradient));
        } else {
            gradients[i] = gradient;
        }
    }
    for (size_t i = 0; i < TEMPORARIES; i++) {
        CHECK_OK(gml_lake_free(lake, temporaries[i]));
    }
    if (is_update) {
        CHECK_OK(gml_lake_free(lake, trainer_take(lake, 9 * MIB, 0)));
        for (size_t i = 0; i < GRADIENTS; i++) {
            CHECK_OK(gml_lake_free(lake, gradients[i]));
        }
    }
    CHECK_OK(gml_lake_end_step(lake, &report));
    return report;
}

/* A step for each micro-batch. The plan of the second finds the gradients of the first in its pool,
 * and is made around them; both begin alike, so only what came before tells which of them comes. */
static void
accumulate(uint64_t kind_of_updates)
{
    gml_lake *lake = trainer_open_lake("sim", "stitch", 0);
    gml_address gradients[GRADIENTS];
    gml_step_report report = {0};
    CHECK_OK(gml_lake_watch_steps(lake));
    for (int i = 0; i < 16; i++) {
        uint64_t kind = i % 2 ? kind_of_updates : 0;
        report = micro_batch(lake, kind, i % 2, gradients);
        if (i < 6 || report.served + report.left < report.requests) {
            trainer_add_plan(lake, kind);
        }
        if (i >= 12) {
            CHECK_EQ(report.served + report.left, report.requests);
            CHECK(report.served >= TEMPORARIES);
            CHECK_EQ(report.driver_calls, 0);
        }
    }
    trainer_close(lake);
}

TEST(plans_are_made_around_what_other_steps_leave)
{
    accumulate(0);
    accumulate(1);
}
