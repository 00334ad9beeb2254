/* Each piece of host memory that steps ask for is refused once: requests are served or refused,
 * what was taken is given back, and later steps are planned as ever. */
#include "planner/support/stepping.h"
#include "support/host_memory.h"

/* ---- steps ----------------------------------------------------------------------------------- */

enum { BY_FILE = 1, LARGE = 3, OTHERS = 100 };

typedef struct program {
    gml_lake *lake;
    gml_plan *plan;
    uint64_t served;
} program;

static void check_may_lack(gml_status status) {
    CHECK(status == GML_OK || (is_armed && status == GML_NO_HOST_MEMORY));
}

static gml_address take(program *self, uint64_t size_bytes) {
    gml_address address = 0;
    gml_status status = gml_lake_allocate(self->lake, size_bytes, 0, &address);
    check_may_lack(status);
    return address;
}

/* A view over what two requests left, and more requests than notes have room for at first. */
static void run_step(program *self, uint64_t kind, uint64_t drift_bytes) {
    gml_address large[LARGE], others[OTHERS], view;
    gml_step_report report = {0};
    gml_status status = gml_lake_begin_step(self->lake, kind);
    check_may_lack(status);
    for (size_t i = 0; i < LARGE; i++) {
        large[i] = take(self, 12 * MIB);
    }
    CHECK_OK(gml_lake_free(self->lake, large[0]));
    CHECK_OK(gml_lake_free(self->lake, large[2]));
    view = take(self, 24 * MIB + drift_bytes);
    CHECK_OK(gml_lake_free(self->lake, large[1]));
    for (size_t i = 0; i < OTHERS; i++) {
        others[i] = take(self, i % 4 ? 2 * MIB : 512 * (i + 1));
    }
    for (size_t i = 0; i < OTHERS; i++) {
        CHECK_OK(gml_lake_free(self->lake, others[i]));
    }
    CHECK_OK(gml_lake_free(self->lake, view));
    if (status == GML_OK) {
        CHECK_OK(gml_lake_end_step(self->lake, &report));
    }
    self->served += report.served;
}

/* What is watched, learned, served, left and dropped. */
static void run_steps(program *self) {
    gml_profile *profile = NULL;
    for (uint64_t step = 0; step < 5; step++) {
        run_step(self, 0, 0);
    }
    run_step(self, 0, 2 * MIB);
    check_may_lack(gml_lake_profile(self->lake, 0, &profile));
    gml_profile_free(profile);
    check_may_lack(gml_lake_add_plan(self->lake, BY_FILE, self->plan));
    run_step(self, BY_FILE, 0);
    run_step(self, BY_FILE, 0);
    run_step(self, BY_FILE, 2 * MIB);
    check_may_lack(gml_lake_check(self->lake));
    check_may_lack(gml_lake_drop_plans(self->lake, 0));
    check_may_lack(gml_lake_trim(self->lake, NULL));
}

static gml_plan *make_plan(void) {
    program self = {.lake = trainer_open_lake("sim", "plan", 0)};
    run_step(&self, 0, 0);
    self.plan = trainer_plan(self.lake, 0);
    trainer_close(self.lake);
    return self.plan;
}

/* How often memory was asked for. */
static uint64_t run_refused(gml_plan *plan, uint64_t which) {
    enum { SERVED = 3 * 80 + 2 * 104 + 2 * 3 }; /* by the second round, whatever the first lacked */
    int64_t before = host_pieces;
    program self = {.lake = trainer_open_lake("sim", "plan", 0), .plan = plan};
    asked = 0;
    refused_one = which;
    is_armed = true;
    run_steps(&self);
    is_armed = false;
    CHECK_OK(gml_lake_check(self.lake));
    self.served = 0;
    run_steps(&self);
    CHECK_EQ(self.served, SERVED);
    trainer_close(self.lake);
    CHECK_EQ(host_pieces, before);
    return asked;
}

TEST(each_piece_is_refused) {
    gml_plan *plan = make_plan();
    uint64_t count = run_refused(plan, 0);
    CHECK(count > 40);
    for (uint64_t which = 1; which <= count; which++) {
        (void)run_refused(plan, which);
    }
    gml_plan_free(plan);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Closes amid a step that is served, with no host memory from that time on; how often it was asked
 * for. */
static uint64_t close_without(uint64_t from) {
    int64_t before = host_pieces;
    program self = {.lake = trainer_open_lake("sim", "plan", 0)};
    for (uint64_t step = 0; step < 5; step++) {
        run_step(&self, 0, 0);
    }
    CHECK_OK(gml_lake_begin_step(self.lake, 0));
    for (size_t i = 0; i < LARGE; i++) {
        (void)take(&self, 12 * MIB);
    }
    asked = 0;
    refused_from = from;
    is_armed = true;
    CHECK_OK(gml_lake_close(self.lake));
    is_armed = false;
    refused_from = 0;
    CHECK_EQ(host_pieces, before);
    return asked;
}

TEST(a_step_that_is_served_ends_without_host_memory) {
    for (uint64_t from = 1; close_without(from) >= from; from++) {
    }
}
