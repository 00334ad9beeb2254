/* Steps that are not what was planned: contents, memory, and how soon the plan serves again. */
#include "aids/aids.h"
#include "support/trainer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- a training with drift, byte patterns in every block ------------------------------------- */

static void
train_with_drift(const char *policy, uint64_t capacity_bytes, uint64_t seed, uint64_t *refused)
{
    enum { STEPS = 100 };
    trainer self = {.lake = trainer_open_lake("host", policy, capacity_bytes),
                    .scale = 1,
                    .random = {seed},
                    .fills = true};
    CHECK_OK(gml_lake_watch_steps(self.lake));
    for (int i = 0; i < STEPS; i++) {
        self.drift_percent = i < 3 || i % 4 == 3 ? 0 : 4;
        self.kind = i % 10 == 9;
        gml_step_report report = trainer_step(&self);
        CHECK_EQ(report.is_planned, self.kind ? i > 9 : i >= 3);
        if (i == 2 || i == 9) {
            trainer_add_plan(self.lake, self.kind);
        }
        CHECK_OK(gml_lake_check(self.lake));
    }
    gml_plan_stats stats;
    CHECK_OK(gml_lake_plan_stats(self.lake, &stats));
    CHECK(*refused || stats.served * 10 > stats.requests * 9);
    CHECK(stats.served * 2 > stats.requests);
    *refused = self.refused;
    while (self.extra_count) {
        trainer_drop(&self, &self.extras[--self.extra_count]);
    }
    trainer_drop_gradients(&self);
    trainer_close(self.lake);
}

TEST(contents_with_drift)
{
    uint64_t refused = 0;
    train_with_drift("plan", 0, 1, &refused);
    train_with_drift("stitch", 0, 2, &refused);
    CHECK_EQ(refused, 0);
}

TEST(contents_with_little_memory)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        uint64_t refused = 1;
        train_with_drift("plan", 164 * MIB, seed, &refused);
    }
}

/* ---- edits of a step ------------------------------------------------------------------------- */

enum { REQUESTS = 300, MOST_OPERATIONS = 2 * REQUESTS + 2, WINDOW = 64, EDITS = 1000 };

typedef struct operation {
    size_t id;
    uint64_t size_bytes; /* 0: a free */
    gml_stream stream;
} operation;

typedef struct program {
    operation operations[MOST_OPERATIONS];
    size_t count, id_count;
} program;

/* Requests that live for some while, and all end within the step. */
static program
draw_program(check_random *random)
{
    static size_t dying[3 * REQUESTS + 1][8];
    static size_t dying_count[3 * REQUESTS + 1];
    memset(dying_count, 0, sizeof dying_count);
    program drawn = {.id_count = REQUESTS + 1};
    for (size_t i = 0; i < REQUESTS || drawn.count < 2 * (size_t)REQUESTS; i++) {
        if (i < REQUESTS) {
            uint64_t odd = check_below(random, 3) ? 0 : check_below(random, 2 * MIB);
            drawn.operations[drawn.count++] = (operation){
                i, (1 + check_below(random, 12)) * MIB / 2 + odd, check_below(random, 8) ? 0 : 5};
            size_t end = i + 1 + check_below(random, check_below(random, 4) ? 12 : 150);
            while (dying_count[end] == 8) {
                end++;
            }
            dying[end][dying_count[end]++] = i;
        }
        for (size_t k = 0; k < dying_count[i]; k++) {
            drawn.operations[drawn.count++] = (operation){.id = dying[i][k]};
        }
    }
    return drawn;
}

static void
insert_at(program *edited, size_t at, operation inserted)
{
    memmove(&edited->operations[at + 1], &edited->operations[at],
            (edited->count - at) * sizeof(operation));
    edited->operations[at] = inserted;
    edited->count++;
}

static void
remove_at(program *edited, size_t at)
{
    edited->count--;
    memmove(&edited->operations[at], &edited->operations[at + 1],
            (edited->count - at) * sizeof(operation));
}

static size_t
draw_request(const program *edited, check_random *random)
{
    size_t at;
    do {
        at = (size_t)check_below(random, edited->count);
    } while (!edited->operations[at].size_bytes);
    return at;
}

static size_t
free_of(const program *edited, size_t id)
{
    size_t at = 0;
    while (edited->operations[at].id != id || edited->operations[at].size_bytes) {
        at++;
    }
    return at;
}

/* One edit at random. */
static program
edit(const program *whole, check_random *random)
{
    program edited = *whole;
    size_t at = draw_request(&edited, random), other = draw_request(&edited, random);
    operation *request = &edited.operations[at];
    switch (check_below(random, 5)) {
    case 0: {
        size_t end = at + 1 + check_below(random, edited.count - at);
        insert_at(&edited, end, (operation){.id = REQUESTS});
        insert_at(&edited, at, (operation){REQUESTS, 1 + check_below(random, 8 * MIB), 0});
        break;
    }
    case 1:
        remove_at(&edited, free_of(&edited, request->id));
        remove_at(&edited, at);
        break;
    case 2: {
        uint64_t size_bytes = request->size_bytes;
        request->size_bytes = edited.operations[other].size_bytes;
        edited.operations[other].size_bytes = size_bytes;
        break;
    }
    case 3:
        request->size_bytes = 1 + check_below(random, 8 * MIB);
        break;
    default:
        request->stream = request->stream ? 0 : 5;
    }
    return edited;
}

typedef struct live_range {
    gml_address address;
    uint64_t size_bytes;
} live_range;

/* Runs a step; no two live blocks overlap. `lake` may be without steps. */
static gml_step_report
run(gml_lake *lake, const program *self, bool has_steps)
{
    live_range live[REQUESTS + 1] = {{0}};
    gml_step_report report = {0};
    if (has_steps) {
        CHECK_OK(gml_lake_begin_step(lake, 0));
    }
    for (size_t i = 0; i < self->count; i++) {
        const operation *next = &self->operations[i];
        if (!next->size_bytes) {
            CHECK_OK(gml_lake_free(lake, live[next->id].address));
            live[next->id] = (live_range){0};
            continue;
        }
        gml_address address = trainer_take(lake, next->size_bytes, next->stream);
        for (size_t k = 0; k <= REQUESTS; k++) {
            CHECK(address + next->size_bytes <= live[k].address ||
                  live[k].address + live[k].size_bytes <= address);
        }
        live[next->id] = (live_range){address, next->size_bytes};
    }
    if (has_steps) {
        CHECK_OK(gml_lake_end_step(lake, &report));
    }
    return report;
}

TEST(edits)
{
    check_random random = {11};
    program whole = draw_program(&random);
    gml_lake *planned = trainer_open_lake("sim", "plan", 0);
    gml_lake *alone = trainer_open_lake("sim", "stitch", 0);
    (void)run(planned, &whole, true);
    (void)run(planned, &whole, true);
    trainer_add_plan(planned, 0);
    gml_step_report report = run(planned, &whole, true);
    trainer_check_whole(&report);
    (void)run(alone, &whole, false);
    uint64_t unforeseen = 0, displaced = 0;
    for (int i = 0; i < EDITS; i++) {
        program edited = edit(&whole, &random);
        report = run(planned, &edited, true);
        (void)run(alone, &edited, false);
        CHECK(report.is_planned);
        CHECK(report.foreseen + WINDOW >= report.requests);
        CHECK(report.served + WINDOW >= report.requests);
        unforeseen += report.requests - report.foreseen;
        displaced += report.foreseen - report.served;
        gml_stats stats = trainer_stats(planned);
        CHECK(stats.reserved_bytes <= trainer_stats(alone).reserved_bytes + report.pool_bytes);
        if (i % 50 == 0) {
            CHECK_OK(gml_lake_check(planned));
            report = run(planned, &whole, true);
            trainer_check_whole(&report);
            CHECK_EQ(report.driver_calls, 0);
        }
    }
    CHECK(unforeseen <= 4 * EDITS);
    CHECK(displaced <= 8 * EDITS);
    trainer_close(planned);
    trainer_close(alone);
}

/* ---- memory runs out ------------------------------------------------------------------------- */

/* What the inner policy alone could serve is served, whatever the pool holds. */
TEST(the_pool_gives_way)
{
    enum { CAPACITY = 184 << 20 };
    gml_lake *lake = trainer_open_lake("sim", "plan", CAPACITY);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    trainer_add_plan(lake, 0);
    gml_step_report report = trainer_step(&self);
    trainer_check_whole(&report);
    trainer_drop_gradients(&self);
    gml_address borrowed = trainer_take(lake, 46 * MIB, 0); /* outside of steps */
    CHECK_EQ(trainer_state(lake, borrowed), GML_STATE_PLAN);
    CHECK_OK(gml_lake_check(lake));
    report = trainer_step(&self);
    CHECK(self.refused > 0); /* there is not enough for both */
    CHECK(report.served > 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_free(lake, borrowed));
    trainer_drop_gradients(&self);
    report = trainer_step(&self);
    report = trainer_step(&self);
    trainer_check_whole(&report);
    trainer_drop_gradients(&self);
    gml_address all = trainer_take(lake, CAPACITY - 2 * MIB, 3); /* another stream's */
    gml_plan_stats stats;
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK_EQ(stats.pool_bytes, 0);
    CHECK_OK(gml_lake_free(lake, all));
    trainer_close(lake);
}

/* No more than what is needed, and the plan is whole again afterwards. */
TEST(the_pool_gives_what_is_needed)
{
    enum { CAPACITY = 200 << 20 };
    gml_lake *lake = trainer_open_lake("sim", "plan", CAPACITY);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    trainer_add_plan(lake, 0);
    (void)trainer_step(&self);
    trainer_drop_gradients(&self);
    gml_plan_stats before, after;
    CHECK_OK(gml_lake_plan_stats(lake, &before));
    uint64_t rest_bytes = CAPACITY - before.pool_bytes;
    gml_address rest = trainer_take(lake, rest_bytes, 3);
    gml_address more = trainer_take(lake, 7 * MIB, 3);
    CHECK_OK(gml_lake_plan_stats(lake, &after));
    CHECK_EQ(before.pool_bytes - after.pool_bytes, 8 * MIB);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_free(lake, more));
    CHECK_OK(gml_lake_free(lake, rest));
    CHECK_OK(gml_lake_trim(lake, NULL));
    gml_step_report report = trainer_step(&self);
    trainer_check_whole(&report);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

TEST(trimming_takes_what_is_idle)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    trainer self = {.lake = lake, .scale = 1};
    (void)trainer_step(&self);
    (void)trainer_step(&self);
    trainer_add_plan(lake, 0);
    gml_step_report report = trainer_step(&self);
    uint64_t released_bytes = 0, reserved_bytes = trainer_stats(lake).reserved_bytes;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK(released_bytes > reserved_bytes / 2); /* gradients live */
    CHECK_OK(gml_lake_check(lake));
    report = trainer_step(&self);
    trainer_check_whole(&report);
    CHECK(report.driver_calls > 0);
    report = trainer_step(&self);
    CHECK_EQ(report.driver_calls, 0);
    trainer_drop_gradients(&self);
    trainer_close(lake);
}

/* ---- every driver call fails once ------------------------------------------------------------ */

/* Returns how many calls there were. */
static uint64_t
train_with_failure(const char *driver, uint64_t fail_call, uint64_t fail_per_million)
{
    gml_lake_config config = {.driver = driver,
                              .policy = "plan",
                              .aids = {gml_aids_wrap, .fail_call = fail_call,
                                       .fail_per_million = fail_per_million,
                                       .fail_seed = fail_per_million}};
    trainer self = {.scale = 1, .fills = strcmp(driver, "host") == 0};
    if (gml_lake_open(&config, &self.lake, NULL, 0) != GML_OK) {
        return 0;
    }
    self.may_fail = true;
    for (int i = 0; i < 5; i++) {
        (void)trainer_step(&self);
        CHECK_OK(gml_lake_check(self.lake));
        if (i == 1) {
            trainer_add_plan(self.lake, 0);
        }
        if (i == 3) {
            (void)gml_lake_trim(self.lake, NULL);
            CHECK_OK(gml_lake_check(self.lake));
        }
    }
    trainer_drop_gradients(&self);
    CHECK(fail_per_million || self.failed <= 1);
    (void)gml_lake_trim(self.lake, NULL);
    CHECK(gml_lake_trim(self.lake, NULL) == GML_OK || fail_per_million);
    CHECK(fail_per_million || trainer_stats(self.lake).reserved_bytes == 0);
    CHECK_OK(gml_lake_check(self.lake));
    uint64_t calls = trainer_calls(self.lake);
    gml_status status = gml_lake_close(self.lake);
    CHECK(status == GML_OK || fail_per_million || fail_call > calls);
    return calls;
}

TEST(each_call_fails)
{
    enum { SIM_RUNS = 200, HOST_RUNS = 8, RANDOM_RUNS = 100 };
    uint64_t calls = train_with_failure("sim", 0, 0);
    for (uint64_t i = 0; i < SIM_RUNS; i++) {
        (void)train_with_failure("sim", 1 + calls * i / SIM_RUNS, 0);
    }
    for (uint64_t i = 0; i < HOST_RUNS; i++) {
        (void)train_with_failure("host", 1 + calls * (2 * i + 1) / (2 * HOST_RUNS), 0);
    }
    for (uint64_t i = 1; i <= RANDOM_RUNS; i++) {
        (void)train_with_failure("sim", 0, i * 4000);
    }
}

/* ---- by itself ------------------------------------------------------------------------------- */

/* Steps by marks alone. */
static void
mark_and_run(gml_lake *lake, const program *self)
{
    CHECK_OK(gml_lake_mark(lake));
    (void)run(lake, self, false);
}

TEST(marks_are_enough)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    check_random random = {21};
    program first = draw_program(&random), second = draw_program(&random);
    gml_plan_stats stats, before;
    for (int i = 0; i < 6; i++) {
        mark_and_run(lake, &first);
    }
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK_EQ(stats.steps, 6);
    CHECK_EQ(stats.plans_made, 1);
    CHECK_EQ(stats.planned_steps, 4);
    CHECK_EQ(stats.served, 4 * REQUESTS);
    for (int i = 0; i < 3; i++) { /* steps that are different, then the same again */
        mark_and_run(lake, &second);
    }
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK_EQ(stats.plans_made, 2);
    before = stats;
    for (int i = 0; i < 4; i++) {
        mark_and_run(lake, i % 2 ? &first : &second);
    }
    CHECK_OK(gml_lake_mark(lake));
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK_EQ(stats.plans_made, 2);
    CHECK_EQ(stats.served - before.served, 4 * REQUESTS);
    trainer_close(lake);
}

typedef struct neighbour {
    gml_lake *lake;
    uint64_t steps; /* it is quiet until so many have ended: its requests would be part of them */
    atomic_bool is_marking, is_over;
    atomic_uint served; /* while a mark was on */
} neighbour;

static void *
serve_beside(void *context)
{
    neighbour *self = context;
    gml_plan_stats stats = {0};
    while (stats.steps < self->steps) {
        CHECK_OK(gml_lake_plan_stats(self->lake, &stats));
    }
    while (!atomic_load(&self->is_over)) {
        bool was_marking = atomic_load(&self->is_marking);
        gml_address block = trainer_take(self->lake, 64 * 1024, 7);
        CHECK_OK(gml_lake_free(self->lake, block));
        if (was_marking && atomic_load(&self->is_marking)) {
            atomic_fetch_add(&self->served, 1);
        }
    }
    return NULL;
}

/* Takes `count` blocks, each of which lives until 500 more were taken. */
static void
run_long_step(gml_lake *lake, check_random *random, size_t count)
{
    enum { LIVE = 500 };
    gml_address blocks[LIVE] = {0};
    for (size_t i = 0; i < count + LIVE; i++) {
        if (blocks[i % LIVE]) {
            CHECK_OK(gml_lake_free(lake, blocks[i % LIVE]));
        }
        uint64_t size_bytes = 512 * (1 + check_below(random, 20000));
        blocks[i % LIVE] = i < count ? trainer_take(lake, size_bytes, 0) : 0;
    }
}

/* Steps alike, each behind a mark, until the mark `last`; how many plans were made. */
static uint64_t
mark_and_run_long(gml_lake *lake, int last)
{
    gml_plan_stats stats = {0};
    for (int mark = 1; mark <= last; mark++) {
        check_random random = {5};
        CHECK_OK(gml_lake_mark(lake));
        run_long_step(lake, &random, 4000);
    }
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    return stats.plans_made;
}

/* The mark at which such a program is planned. */
static int
find_mark_that_plans(void)
{
    int mark = 1;
    for (uint64_t made = 0; !made && mark < 20; mark++) {
        gml_lake *lake = trainer_open_lake("sim", "plan", 0);
        made = mark_and_run_long(lake, mark);
        trainer_close(lake);
    }
    return mark - 1;
}

/* A plan takes a fifth of a second, which no other thread waits for. */
TEST(others_are_served_while_a_plan_is_made)
{
    int last = find_mark_that_plans();
    neighbour self = {.lake = trainer_open_lake("sim", "plan", 0), .steps = (uint64_t)last - 1};
    gml_plan_stats stats = {0};
    pthread_t thread;
    CHECK_EQ(mark_and_run_long(self.lake, last - 1), 0);
    CHECK_EQ(pthread_create(&thread, NULL, serve_beside, &self), 0);
    atomic_store(&self.is_marking, true);
    CHECK_OK(gml_lake_mark(self.lake));
    atomic_store(&self.is_marking, false);
    CHECK_OK(gml_lake_plan_stats(self.lake, &stats));
    CHECK_EQ(stats.plans_made, 1);
    CHECK(atomic_load(&self.served) > 100);
    atomic_store(&self.is_over, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    trainer_close(self.lake);
}

/* Requests that are always the same; either the first half of them lives on, or the second. */
static void
mark_and_run_half(gml_lake *lake, bool keeps_first)
{
    enum { COUNT = 40 };
    gml_address blocks[COUNT];
    size_t begin = keeps_first ? 0 : COUNT / 2, end = begin + COUNT / 2;
    CHECK_OK(gml_lake_mark(lake));
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = trainer_take(lake, 2 * MIB, 0);
        if (i < begin || i >= end) {
            CHECK_OK(gml_lake_free(lake, blocks[i]));
        }
    }
    for (size_t i = begin; i < end; i++) {
        CHECK_OK(gml_lake_free(lake, blocks[i]));
    }
}

/* Planning holds the program up, so it is tried less and less often where it does not help. */
TEST(planning_in_vain_becomes_rare)
{
    gml_lake *lake = trainer_open_lake("sim", "plan", 0);
    gml_plan_stats stats;
    for (int i = 0; i < 200; i++) { /* two of each in turn */
        mark_and_run_half(lake, i % 4 < 2);
    }
    CHECK_OK(gml_lake_plan_stats(lake, &stats));
    CHECK(stats.plans_made >= 3);
    CHECK(stats.plans_made <= 10);
    CHECK(stats.planned_steps >= 190);
    trainer_close(lake);
}
