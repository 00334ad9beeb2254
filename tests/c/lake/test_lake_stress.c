/* Everything that a program may tell its lakes, at random: four lakes on two devices, plain ones,
 * arenas, windows and regions that sleep and wake; streams that end and whose handles come back,
 * elastic buffers, captures, graphs that take turns, marks, trims, memory given away, limits,
 * margins, refusals, failing calls, alone and by four threads that hand each other blocks. The
 * driver checks the order of streams, and on `host` every block keeps its content. See
 * support/stress.h.
 *
 * GMLAKE_STRESS_OPERATIONS, GMLAKE_STRESS_THREADED_OPERATIONS: how many for each policy and driver,
 * of one thread and of four together; GMLAKE_STRESS_SEED: where to begin; GMLAKE_STRESS_FAILING: of
 * four seeds in a row, how many have calls of the driver that fail.
 */
#include "support/policies.h"
#include "support/stress.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if IS_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    SEED_OPERATIONS = 2500,
    STEP_OPERATIONS = 64, /* of those that may repeat, where lakes are looked at once in each */
    GROUP_STEPS = 10,     /* of one kind; two kinds take turns */
    SAME_STEPS = 8,       /* of those: nothing but requests, work and, now and then, drift */
    DRIFT_EVERY = 1500,
    CARRIED_BLOCKS = 6, /* into the others */
};

static uint64_t from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void operate(stress *self) {
    uint64_t choice = check_below(&self->random, 100);
    if (choice < 48 && self->count < STRESS_LIVE) {
        stress_begin_block(self);
    } else if (choice < 82 && self->count) {
        stress_end_block(self, check_below(&self->random, self->count));
    } else if (choice < 84 && self->count && !self->repeats) {
        stress_exchange_block(self);
    } else if (choice < 90 && !self->repeats) {
        stress_change_buffer(self);
    } else if (choice < 93 && !self->repeats) {
        stress_change_sleep(self);
    } else {
        stress_tell(self);
    }
}

static void begin_step(stress *self, size_t number) {
    self->repeats = number % GROUP_STEPS < SAME_STEPS;
    while (self->count > (self->repeats ? 0 : CARRIED_BLOCKS)) {
        stress_end_block(self, self->count - 1);
    }
    if (self->repeats) {
        stress_end_capture(self);
    }
    for (size_t i = 0; i < STRESS_LAKES; i++) {
        stress_lake *at = &self->shared->lakes[i];
        CHECK_OK(gml_lake_set_limit(at->lake, 0));
        CHECK_OK(gml_lake_set_margin(at->lake, 0));
        if (self->repeats) {
            stress_wake_finally(self, at);
            CHECK_OK(gml_streams_synchronize_all(stress_streams(at)));
        }
        stress_expect(self, gml_lake_mark(at->lake));
    }
    self->random = (check_random){self->seed + number / GROUP_STEPS % 2};
}

static void *run_thread(void *context) {
    stress *self = context;
    for (size_t i = 0; i < self->operations; i++) {
        if (self->shared->repeats && i % STEP_OPERATIONS == 0) {
            begin_step(self, i / STEP_OPERATIONS);
        }
        if (self->shared->repeats && i % DRIFT_EVERY == 0 && self->count < STRESS_LIVE) {
            stress_begin_block(self);
        }
        operate(self);
        if (i % 64 == 0) {
            CHECK_OK(gml_lake_check(stress_any_lake(self)->lake));
        }
    }
    return NULL;
}

/* Whatever it has left is whole. pre: no lake sleeps. */
static void finish(stress *self) {
    stress_close_buffers(self);
    while (self->count) {
        stress_end_block(self, self->count - 1);
    }
    stress_release_captures(self);
}

/* ---- one run --------------------------------------------------------------------------------- */

static uint64_t current; /* the seed of the run */

/* Also where a sanitizer ends the program. */
static void name_seed(void) {
    fprintf(stderr, "the stress of seed %" PRIu64 ", %s over %s, failed\n", current,
            contract_policy, contract_driver);
}

/* Lakes from their opening to their end. `operations`: of each thread. */
static void run_seed(uint64_t seed, size_t threads, size_t operations) {
    static stress_lakes shared;
    static stress runs[STRESS_THREADS];
    pthread_t others[STRESS_THREADS];
    stress_open(&shared, seed, threads == 1,
                seed % 4 + from_environment("GMLAKE_STRESS_FAILING", 1) >= 4);
    for (size_t i = 0; i < threads; i++) {
        runs[i] = (stress){.shared = &shared,
                           .number = i,
                           .operations = operations,
                           .seed = seed * STRESS_THREADS + i,
                           .random = {seed * STRESS_THREADS + i}};
    }
    for (size_t i = 1; i < threads; i++) {
        CHECK(pthread_create(&others[i], NULL, run_thread, &runs[i]) == 0);
    }
    (void)run_thread(runs);
    for (size_t i = 1; i < threads; i++) {
        (void)pthread_join(others[i], NULL);
    }
    stress_calm(&shared);
    for (size_t i = 0; i < threads; i++) {
        stress_end_capture(&runs[i]);
    }
    for (size_t i = 0; i < threads; i++) {
        for (size_t j = 0; j < STRESS_LAKES; j++) {
            stress_wake_finally(&runs[i], &shared.lakes[j]);
        }
    }
    for (size_t i = 0; i < threads; i++) {
        finish(&runs[i]);
    }
    stress_close(&shared);
}

static void run_seeds(uint64_t operations, size_t threads) {
    current = from_environment("GMLAKE_STRESS_SEED", 1);
    for (uint64_t done = 0; done < operations; done += SEED_OPERATIONS, current++) {
        int before = check_failures();
        run_seed(current, threads, SEED_OPERATIONS / threads);
        if (check_failures() != before) {
            name_seed();
        }
    }
}

TEST(whatever_a_program_tells_its_lakes) {
    uint64_t operations = from_environment("GMLAKE_STRESS_OPERATIONS", 10000);
    stress_counts.planned = 0;
    run_seeds(operations, 1);
    if (!policy_has_steps(contract_policy)) {
        CHECK_EQ(stress_counts.planned, 0);
    } else if (operations > SEED_OPERATIONS) { /* of two seeds in a row one has steps */
        CHECK(stress_counts.planned > 0);
    }
}

TEST(whatever_four_threads_tell_their_lakes) {
    run_seeds(from_environment("GMLAKE_STRESS_THREADED_OPERATIONS", 5000), STRESS_THREADS);
}

/* That it happened at all, over all policies and drivers. */
static void look_at_census(void) {
    const stress_census *of = &stress_counts;
    printf("sleeps without backup: %" PRIu64 ", to the host: %" PRIu64 ", to disk: %" PRIu64
           ", that failed: %" PRIu64 ", of these asleep: %" PRIu64 ", wakes: %" PRIu64
           ", wakes that failed: %" PRIu64 ", saved blocks read: %" PRIu64
           ", buffers grown: %" PRIu64 ", shrunk: %" PRIu64 ", requests refused: %" PRIu64
           ", memory given: %" PRIu64 ", captures: %" PRIu64 ", in turn: %" PRIu64
           ", of these failed: %" PRIu64 ", graphs spoiled: %" PRIu64
           ", driver calls that failed: %" PRIu64 "\n",
           of->sleeps[0], of->sleeps[1], of->sleeps[2], of->failed_sleeps, of->half_sleeps,
           of->wakes, of->failed_wakes, of->saved, of->grown, of->shrunk, of->refused, of->given,
           of->captures, of->turns, of->failed_turns, of->spoiled, of->struck);
    if (current - from_environment("GMLAKE_STRESS_SEED", 1) < 2) {
        return; /* in a seed or two something may not happen */
    }
    CHECK(of->sleeps[0] && of->sleeps[1] && of->sleeps[2] && of->wakes && of->saved);
    CHECK(of->grown && of->shrunk && of->refused && of->given && of->captures);
    CHECK(of->turns && of->spoiled);
}

int main(void) {
#if IS_SANITIZED
    __sanitizer_set_death_callback(name_seed);
#endif
    for (const check_test *test = check_tests(); test; test = test->next) {
        contract_run(test->name, test->run);
    }
    check_run("everything happened", look_at_census);
    return report();
}
