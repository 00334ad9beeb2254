/* Threads that take memory of a lake which plans steps, beside one that plans them. */
#include "planner/support/stepping.h"
#include "policy/steps/planned.h"

#include <pthread.h>

enum { STEPS = 60, ROUNDS = 1500 };

static void *train(void *context) {
    trainer *self = context;
    for (int i = 0; i < STEPS; i++) {
        (void)trainer_step(self);
    }
    trainer_drop_gradients(self);
    return NULL;
}

static void *load_data(void *context) {
    trainer *self = context;
    check_random random = {3};
    for (int i = 0; i < ROUNDS; i++) {
        gml_address address = trainer_take(self->lake, 1 + check_below(&random, 4 * MIB), 2);
        CHECK_OK(gml_lake_record_stream(self->lake, address, self->stream));
        CHECK_OK(gml_lake_free(self->lake, address));
    }
    return NULL;
}

static void *plan_beside(void *context) {
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
        gml_plan_free(plan);
        CHECK_OK(gml_lake_check(self->lake));
        if (i % 10 == 9) {
            CHECK_OK(gml_lake_trim(self->lake, NULL));
            CHECK_OK(gml_lake_drop_plans(self->lake, self->kind));
        }
    }
    return NULL;
}

TEST(threads_share_a_lake_with_steps) {
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
