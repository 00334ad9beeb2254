/* Everything that a program may tell its lakes, at random: two devices, streams that end and whose
 * handles come back, both servers, captures, marks, trims, limits, refusals, failing calls, alone
 * and by four threads that hand each other blocks. The driver checks the order of streams, and on
 * `host` every block keeps its content.
 *
 * GMLAKE_STORM_OPERATIONS, GMLAKE_STORM_THREADED_OPERATIONS: how many for each policy and driver,
 * of one thread and of four together; GMLAKE_STORM_SEED: where to begin.
 */
#include "driver/streams.h"
#include "gmlake_plan.h"
#include "lake/lake.h"
#include "support/contract.h"
#include "support/stamp.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CAPACITY (160 * MIB)

enum {
    LAKES = 2,
    MOST_THREADS = 4,
    MOST_LIVE = 100,
    STREAMS = 6, /* of each thread; 0 is everybody's */
    CAPTURER = STREAMS,
    EXCHANGED = 8,
    SEED_OPERATIONS = 2500,
    STEP_OPERATIONS = 64, /* of those that may repeat, where lakes are looked at once in each */
    GROUP_STEPS = 10,     /* of one kind; two kinds take turns */
    SAME_STEPS = 8,       /* of those: nothing but requests, work and, now and then, drift */
    DRIFT_EVERY = 1500,
    CARRIED_BLOCKS = 6,   /* into the others */
    STRIDE_BYTES = 65536, /* between stamps: what takes long on `host` is to fill pages */
};

typedef struct storm_block {
    live_block block;
    gml_lake *lake;
} storm_block;

/* What all threads of one run share. */
typedef struct storm_sea {
    gml_lake *lakes[LAKES];
    bool forgets;  /* streams end: not where a model serves whoever has the handle */
    bool may_fail; /* calls of the driver do */
    bool is_alone; /* one thread */
    bool repeats;  /* it comes in steps, which `plan` may foresee */
    pthread_mutex_t lock;
    storm_block
        exchange[EXCHANGED]; /* guarded by the lock: blocks on their way to whoever frees them */
} storm_sea;

typedef struct storm {
    storm_sea *sea;
    uint64_t number; /* of the thread, from 0 */
    size_t operations;
    uint64_t seed;
    check_random random;
    bool repeats; /* the open step is one of those that are the same */
    storm_block blocks[MOST_LIVE];
    size_t count;
    gml_lake *captured_on;    /* NULL: nothing is captured */
    uint64_t captures[LAKES]; /* uses of the pool that were not released */
} storm;

static uint64_t
from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* GML_OK, or what a failing driver explains. */
static void
expect(const storm *self, gml_status status)
{
    bool is_explained =
        self->sea->may_fail && (status == GML_DRIVER_FAILED || status == GML_OUT_OF_MEMORY);
    if (!is_explained) {
        CHECK_OK(status);
    }
}

static gml_streams *
streams_of(gml_lake *lake)
{
    return gml_driver_streams(lake->driver);
}

/* ---- what it tells them ---------------------------------------------------------------------- */

static gml_lake *
any_lake(storm *self)
{
    return self->sea->lakes[check_below(&self->random, LAKES)];
}

/* One of this thread's own streams that does not capture: it may end. */
static gml_stream
own_stream(storm *self)
{
    return self->number * STREAMS + 1 + check_below(&self->random, STREAMS - 1);
}

static gml_stream
capturing_stream(const storm *self)
{
    return self->number * STREAMS + CAPTURER;
}

/* Also everybody's, and where a graph is captured the stream that captures. */
static gml_stream
any_stream(storm *self, const gml_lake *lake)
{
    uint64_t choice = check_below(&self->random, 8);
    if (choice == 0) {
        return 0;
    }
    bool captures = choice < 5 && self->captured_on == lake;
    return captures ? capturing_stream(self) : own_stream(self);
}

static void
stamp(const storm_block *held)
{
    void *bytes;
    if (lake_is_host() && CHECK_OK(gml_lake_bytes(held->lake, held->block.address, &bytes))) {
        stamp_write(bytes, held->block.size_bytes, held->block.seed, STRIDE_BYTES);
    }
}

static void
check_stamp(const storm_block *held)
{
    void *bytes;
    if (lake_is_host() && CHECK_OK(gml_lake_bytes(held->lake, held->block.address, &bytes))) {
        CHECK(stamp_holds(bytes, held->block.size_bytes, held->block.seed, STRIDE_BYTES));
    }
}

static void
end_block(storm *self, size_t at)
{
    check_stamp(&self->blocks[at]);
    expect(self, gml_lake_free(self->blocks[at].lake, self->blocks[at].block.address));
    self->blocks[at] = self->blocks[--self->count];
}

/* Nothing that lay idle would have served it. */
static void
check_refusal(storm_block *held)
{
    live_block *block = &held->block;
    CHECK_OK(gml_lake_trim(held->lake, NULL));
    CHECK_STATUS(gml_lake_allocate(held->lake, block->size_bytes, block->stream, &block->address),
                 GML_OUT_OF_MEMORY);
}

static void
begin_block(storm *self)
{
    storm_block *held = &self->blocks[self->count];
    live_block *block = &held->block;
    held->lake = any_lake(self);
    block->size_bytes = lake_draw_size(&self->random);
    block->stream = any_stream(self, held->lake);
    block->seed = check_next(&self->random);
    gml_status status =
        gml_lake_allocate(held->lake, block->size_bytes, block->stream, &block->address);
    if (status == GML_OK) {
        self->count++;
        stamp(held);
        return;
    }
    if (status != GML_OUT_OF_MEMORY) {
        expect(self, status);
    } else if (self->sea->is_alone && !self->sea->may_fail && !self->captured_on) {
        check_refusal(held);
    }
    for (size_t i = self->count / 2; i > 0; i--) {
        end_block(self, check_below(&self->random, self->count));
    }
}

/* Somebody else may free it. */
static void
exchange_block(storm *self)
{
    storm_block *mine = &self->blocks[check_below(&self->random, self->count)];
    storm_sea *sea = self->sea;
    (void)pthread_mutex_lock(&sea->lock);
    storm_block *slot = &sea->exchange[check_below(&self->random, EXCHANGED)];
    storm_block theirs = *slot;
    *slot = *mine;
    (void)pthread_mutex_unlock(&sea->lock);
    *mine = theirs.lake ? theirs : self->blocks[--self->count];
}

static gml_pool_id
own_pool(const storm *self)
{
    return (gml_pool_id){1, 1 + self->number};
}

static void
begin_capture(storm *self, size_t at)
{
    gml_lake *lake = self->sea->lakes[at];
    if (gml_lake_begin_pool(lake, own_pool(self)) == GML_OK) {
        CHECK_OK(gml_streams_set_capturing(streams_of(lake), capturing_stream(self), true));
        self->captures[at]++;
        self->captured_on = lake;
    }
}

static void
end_capture(storm *self)
{
    gml_lake *lake = self->captured_on;
    CHECK_OK(gml_streams_set_capturing(streams_of(lake), capturing_stream(self), false));
    expect(self, gml_lake_end_pool(lake, own_pool(self)));
    self->captured_on = NULL;
}

static void
capture(storm *self)
{
    size_t at = check_below(&self->random, LAKES);
    if (self->captured_on) {
        end_capture(self);
    } else if (self->captures[at] && check_below(&self->random, 3)) {
        self->captures[at]--;
        expect(self, gml_lake_release_pool(self->sea->lakes[at], own_pool(self)));
    } else {
        begin_capture(self, at);
    }
}

static void
do_nothing(void *context)
{
    (void)context;
}

/* Something is queued, or comes to run. */
static void
work(storm *self, gml_lake *lake)
{
    gml_stream stream = own_stream(self);
    if (check_below(&self->random, 2)) {
        CHECK_OK(gml_streams_enqueue(streams_of(lake), stream, do_nothing, NULL));
    } else {
        CHECK_OK(
            gml_streams_advance(streams_of(lake), stream, 1 + check_below(&self->random, 4), NULL));
    }
}

static void
tell_something(storm *self)
{
    gml_lake *lake = any_lake(self);
    uint64_t first = self->repeats ? 10 : 0;
    switch (first + check_below(&self->random, 16 - first)) {
    case 0:
    case 1:
        if (self->sea->forgets) {
            expect(self, gml_lake_forget_stream(lake, own_stream(self)));
        }
        break;
    case 2:
    case 3:
        CHECK_OK(gml_lake_serve_with(lake, check_below(&self->random, 2) ? GML_SERVER_CACHING
                                                                         : GML_SERVER_POLICY));
        break;
    case 4:
        expect(self, gml_lake_trim(lake, NULL));
        break;
    case 5:
        expect(self, gml_lake_mark(lake));
        break;
    case 6:
        CHECK_OK(gml_lake_set_limit(lake, check_below(&self->random, 2) * (CAPACITY / 2)));
        break;
    case 7:
        expect(self, gml_lake_distrust_stream(lake, own_stream(self)));
        break;
    case 8:
    case 9:
        capture(self);
        break;
    case 10:
    case 11:
        work(self, lake);
        break;
    default:
        if (self->count) {
            const storm_block *held = &self->blocks[check_below(&self->random, self->count)];
            expect(self, gml_lake_record_stream(held->lake, held->block.address,
                                                any_stream(self, held->lake)));
        }
    }
}

static void
operate(storm *self)
{
    uint64_t choice = check_below(&self->random, 100);
    if (choice < 50 && self->count < MOST_LIVE) {
        begin_block(self);
    } else if (choice < 86 && self->count) {
        end_block(self, check_below(&self->random, self->count));
    } else if (choice < 88 && self->count && !self->repeats) {
        exchange_block(self);
    } else {
        tell_something(self);
    }
}

static void
begin_step(storm *self, size_t number)
{
    self->repeats = number % GROUP_STEPS < SAME_STEPS;
    while (self->count > (self->repeats ? 0 : CARRIED_BLOCKS)) {
        end_block(self, self->count - 1);
    }
    if (self->repeats && self->captured_on) {
        end_capture(self);
    }
    for (size_t i = 0; i < LAKES; i++) {
        gml_lake *lake = self->sea->lakes[i];
        CHECK_OK(gml_lake_serve_with(lake, GML_SERVER_POLICY));
        CHECK_OK(gml_lake_set_limit(lake, 0));
        if (self->repeats) {
            CHECK_OK(gml_streams_synchronize_all(streams_of(lake)));
        }
        expect(self, gml_lake_mark(lake));
    }
    self->random = (check_random){self->seed + number / GROUP_STEPS % 2};
}

static void *
run_thread(void *context)
{
    storm *self = context;
    for (size_t i = 0; i < self->operations; i++) {
        if (self->sea->repeats && i % STEP_OPERATIONS == 0) {
            begin_step(self, i / STEP_OPERATIONS);
        }
        if (self->sea->repeats && i % DRIFT_EVERY == 0 && self->count < MOST_LIVE) {
            begin_block(self);
        }
        operate(self);
        if (i % 64 == 0) {
            CHECK_OK(gml_lake_check(any_lake(self)));
        }
    }
    if (self->captured_on) {
        end_capture(self);
    }
    while (self->count) {
        end_block(self, self->count - 1);
    }
    for (size_t i = 0; i < LAKES; i++) {
        while (self->captures[i]) {
            self->captures[i]--;
            expect(self, gml_lake_release_pool(self->sea->lakes[i], own_pool(self)));
        }
    }
    return NULL;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* Whether the lakes are open; where calls fail, opening one may. */
static bool
open_sea(storm_sea *sea, uint64_t seed, bool is_alone)
{
    *sea = (storm_sea){.lock = PTHREAD_MUTEX_INITIALIZER, .is_alone = is_alone};
    sea->forgets = strcmp(contract_policy, "stitch") == 0 || strcmp(contract_policy, "plan") == 0;
    sea->may_fail = seed % 4 == 3;
    sea->repeats = is_alone && seed % 2 == 0;
    for (int i = 0; i < LAKES; i++) {
        gml_lake_config config = lake_config_of(CAPACITY);
        config.device = i;
        if (sea->may_fail) {
            config.aids.fail_per_million = 2000;
            config.aids.fail_seed = seed + (uint64_t)i;
        }
        gml_status status = gml_lake_open(&config, &sea->lakes[i], NULL, 0);
        if (status != GML_OK) {
            CHECK_STATUS(status, sea->may_fail ? GML_DRIVER_FAILED : GML_OK);
            return false;
        }
        CHECK_OK(gml_streams_set_manual(streams_of(sea->lakes[i]), seed % 3 != 0));
    }
    return true;
}

static uint64_t planned; /* requests that a plan served, in all runs of a pair */

static void
close_sea(storm_sea *sea)
{
    for (size_t i = 0; i < EXCHANGED; i++) {
        if (sea->exchange[i].lake) {
            storm last = {.sea = sea, .count = 1, .blocks = {sea->exchange[i]}};
            end_block(&last, 0);
        }
    }
    for (size_t i = 0; i < LAKES && sea->lakes[i]; i++) {
        CHECK_OK(gml_lake_check(sea->lakes[i]));
        planned += lake_stats_of(sea->lakes[i]).states[GML_STATE_PLAN];
        gml_status status = gml_lake_close(sea->lakes[i]);
        if (!sea->may_fail) {
            CHECK_OK(status);
        }
    }
}

/* Lakes from their opening to their end. `operations`: of each thread. */
static void
run_seed(uint64_t seed, size_t threads, size_t operations)
{
    storm_sea sea;
    if (!open_sea(&sea, seed, threads == 1)) {
        close_sea(&sea);
        return;
    }
    storm storms[MOST_THREADS];
    pthread_t others[MOST_THREADS];
    for (size_t i = 0; i < threads; i++) {
        storms[i] = (storm){.sea = &sea,
                            .number = i,
                            .operations = operations,
                            .seed = seed * MOST_THREADS + i,
                            .random = {seed * MOST_THREADS + i}};
    }
    for (size_t i = 1; i < threads; i++) {
        CHECK(pthread_create(&others[i], NULL, run_thread, &storms[i]) == 0);
    }
    (void)run_thread(storms);
    for (size_t i = 1; i < threads; i++) {
        (void)pthread_join(others[i], NULL);
    }
    close_sea(&sea);
}

static void
run_seeds(uint64_t operations, size_t threads)
{
    uint64_t seed = from_environment("GMLAKE_STORM_SEED", 1);
    for (uint64_t done = 0; done < operations; done += SEED_OPERATIONS) {
        run_seed(seed++, threads, SEED_OPERATIONS / threads);
    }
}

TEST(whatever_a_program_tells_its_lakes)
{
    uint64_t operations = from_environment("GMLAKE_STORM_OPERATIONS", 20000);
    planned = 0;
    run_seeds(operations, 1);
    bool foresees = operations && strcmp(contract_policy, "plan") == 0;
    CHECK((planned != 0) == foresees);
}

TEST(whatever_four_threads_tell_their_lakes)
{
    run_seeds(from_environment("GMLAKE_STORM_THREADED_OPERATIONS", 10000), MOST_THREADS);
}
int
main(void)
{
    return contract_main();
}
