/* Everything that a program may tell its lakes, at random, while anything may fail that can: four
 * lakes on two devices, plain ones, arenas and regions that sleep and wake; streams that
 * end and whose handles come back, elastic buffers, captures, graphs that take turns, pools that
 * are put back, marks, trims, memory given away, limits, margins and refusals, by one thread or by
 * four that hand each other blocks. See support/stress.h.
 *
 * A number names a program. What it leaves open is drawn from it, so that it is the same on every
 * day and machine; a failure prints the line that repeats it alone. Each of these is an argument
 * name=value, or the variable GMLAKE_STRESS_NAME of the environment:
 *
 *     seed        the first program
 *     programs    how many
 *     policy, driver
 *     threads     1 or 4
 *     fault       none; call, pair: calls of the driver by number; random: calls at random;
 *                 piece: a request for the host's memory; pieces: all from one on, to the end
 *     at, and     those numbers; 0: it is only counted how many there are
 *     operations  of each thread
 *     skip        the number of a driver call that is not made: see what notices
 */
#include "base/mix.h"
#include "support/host_memory.h"
#include "support/policies.h"
#include "support/stress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if IS_SANITIZED
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    PROGRAMS = 110,
    OPERATIONS = 1200,
    NUMBERED_OPERATIONS = 250, /* of programs that are run again and again */
    SHOTS = 6,                 /* so often */
    SIM_TIMES = 3,             /* as many of all on `sim`, which has no pages to fill */
    STEP_OPERATIONS = 64, /* of those that may repeat, where lakes are looked at once in each */
    GROUP_STEPS = 10,     /* of one kind; two kinds take turns */
    SAME_STEPS = 8,       /* of those: nothing but requests, work and, now and then, drift */
    DRIFT_EVERY = 1500,
    CARRIED_BLOCKS = 6, /* into the others */
    LOOK_EVERY = 32,
    NEAR = 12, /* calls between two that fail, as a rule */
};

static const char *const fault_names[STRESS_FAULTS] = {"none",   "call",  "pair",
                                                       "random", "piece", "pieces"};

typedef struct program {
    uint64_t seed;
    stress_fault fault;
    size_t threads, operations;
    uint64_t at[STRIKES_NUMBERS];
    uint64_t skips;
} program;

static program current; /* the one that runs */

/* ---- what was asked for ---------------------------------------------------------------------- */

static char **arguments;

static const char *asked_for(const char *name) {
    char variable[64];
    size_t length = strlen(name);
    for (char **at = arguments + 1; *at; at++) {
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=') {
            return *at + length + 1;
        }
    }
    size_t used = (size_t)snprintf(variable, sizeof variable, "GMLAKE_STRESS_%s", name);
    for (size_t i = used - length; i < used; i++) {
        variable[i] = (char)(variable[i] - ('a' - 'A'));
    }
    return getenv(variable);
}

static uint64_t number_of(const char *name, uint64_t otherwise) {
    const char *text = asked_for(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* The line that repeats it. Also where a signal or a sanitizer ends the program, which is over
 * then, whatever becomes of the line. */
static void name_program(void) {
    char line[320];
    int length =
        /* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c,cert-msc54-cpp) */
        snprintf(line, sizeof line,
                 "\nfailed: test_lake_stress seed=%" PRIu64
                 " programs=1 policy=%s driver=%s threads=%zu fault=%s at=%" PRIu64 " and=%" PRIu64
                 " operations=%zu\n",
                 current.seed, contract_policy, contract_driver, current.threads,
                 fault_names[current.fault], current.at[0], current.at[1], current.operations);
    (void)!write(STDERR_FILENO, line, (size_t)length);
}

/* ---- one thread ------------------------------------------------------------------------------ */

static void operate(stress *self) {
    uint64_t choice = check_below(&self->random, 100);
    bool is_plain = self->repeats || self->shared->is_plain;
    if (choice < 42 && self->count < STRESS_LIVE) {
        stress_begin_block(self);
    } else if (choice < 74 && self->count) {
        stress_end_block(self, check_below(&self->random, self->count));
    } else if (choice < 76 && self->count && !is_plain) {
        stress_exchange_block(self);
    } else if (choice < 81 && !is_plain) {
        stress_change_buffer(self);
    } else if (choice < 84 && !is_plain) {
        stress_change_sleep(self);
    } else if (choice < 88 && !is_plain) {
        stress_change_pool(self, stress_any_lake(self));
    } else {
        stress_tell(self);
    }
    if (self->shared->is_manual && check_below(&self->random, 4) == 0) {
        stress_advance(self);
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
    for (size_t i = 0; i < self->shared->lake_count; i++) {
        stress_lake *at = &self->shared->lakes[i];
        CHECK_OK(gml_lake_set_limit(at->lake, 0));
        CHECK_OK(gml_lake_set_margin(at->lake, 0));
        if (self->repeats) {
            stress_wake_finally(self, at);
            CHECK_OK(gml_streams_device_synchronize(stress_streams(at)));
        }
        stress_expect(self, ASK(gml_lake_mark(at->lake)));
    }
    self->random = (check_random){self->seed + number / GROUP_STEPS % 2};
}

/* Until something is wrong, which leaves nothing to rely on. */
static void *run_thread(void *context) {
    stress *self = context;
    int before = check_failures();
    for (size_t i = 0; i < self->operations && check_failures() == before; i++) {
        if (self->shared->repeats && i % STEP_OPERATIONS == 0) {
            begin_step(self, i / STEP_OPERATIONS);
        }
        if (self->shared->repeats && i % DRIFT_EVERY == 0 && self->count < STRESS_LIVE) {
            stress_begin_block(self);
        }
        operate(self);
        if (i % LOOK_EVERY == 0) {
            stress_look(self, stress_any_lake(self));
        }
    }
    return NULL;
}

/* Whatever it has left is whole. */
static void finish(stress *self) {
    stress_close_buffers(self);
    while (self->count) {
        stress_end_block(self, self->count - 1);
    }
    stress_release_pools(self);
}

static void finish_all(stress_lakes *shared, stress *runs, size_t threads) {
    stress_calm(shared);
    for (size_t i = 0; i < threads; i++) {
        stress_end_capture(&runs[i]);
    }
    for (size_t i = 0; i < threads; i++) {
        for (size_t j = 0; j < shared->lake_count; j++) {
            stress_wake_finally(&runs[i], &shared->lakes[j]);
        }
    }
    for (size_t i = 0; i < threads; i++) {
        finish(&runs[i]);
    }
    stress_close(shared);
}

/* ---- one program ----------------------------------------------------------------------------- */

static void arm(bool arms) {
    atomic_store_explicit(&is_armed, arms && current.fault >= STRESS_PIECE, memory_order_relaxed);
}

static void begin_faults(stress_lakes *shared, const program *of) {
    asked = refused_one = refused_from = refusals = 0;
    if (of->fault == STRESS_PIECE) {
        refused_one = of->at[0];
    } else if (of->fault == STRESS_PIECES) {
        refused_from = of->at[0];
    } else {
        memcpy(shared->plan.numbers, of->at, sizeof shared->plan.numbers);
    }
}

/* One call or request failed, so one answer says so at most. */
static void check_explained(const stress_lakes *shared) {
    uint64_t failed = refusals;
    for (size_t i = 0; i < shared->lake_count; i++) {
        failed += shared->lakes[i].strikes.struck;
    }
    bool counts = shared->fault == STRESS_CALL || shared->fault == STRESS_PAIR ||
                  shared->fault == STRESS_PIECE;
    CHECK(!counts || shared->explained <= failed);
}

/* Lakes from their opening to their end. How many calls of the driver were made by then, or how
 * often the host's memory was asked for. */
static uint64_t run_program(const program *of) {
    static stress_lakes shared;
    static stress runs[STRESS_THREADS];
    static bool has_run; /* the first one takes what the process keeps */
    pthread_t others[STRESS_THREADS];
    int before = check_failures();
    current = *of;
    shared = (stress_lakes){.fault = of->fault, .is_alone = of->threads == 1};
    int64_t pieces = host_pieces;
    begin_faults(&shared, of);
    stress_open(&shared, of->seed, of->skips);
    for (size_t i = 0; i < of->threads; i++) {
        runs[i] = (stress){.shared = &shared, .number = i, .operations = of->operations};
        runs[i].random.state = runs[i].seed = gml_mix(of->seed) * STRESS_THREADS + i;
    }
    for (size_t i = 1; i < of->threads && check_failures() == before; i++) {
        CHECK(pthread_create(&others[i], NULL, run_thread, &runs[i]) == 0);
    }
    if (check_failures() == before || of->threads > 1) {
        (void)run_thread(runs);
    }
    for (size_t i = 1; i < of->threads; i++) {
        (void)pthread_join(others[i], NULL);
    }
    if (check_failures() == before) {
        finish_all(&shared, runs, of->threads);
        check_explained(&shared);
        CHECK(!has_run || of->threads > 1 || pieces == host_pieces);
    }
    has_run = true;
    stress_counts.starved += refusals;
    return of->fault >= STRESS_PIECE ? asked : shared.plan.made;
}

/* ---- which programs -------------------------------------------------------------------------- */

/* Those that lend memory between streams have most to get wrong. */
static const char *draw_policy(check_random *random) {
    uint64_t count = 0, lending = 0;
    while (gml_policy_name(count)) {
        count++;
    }
    while (lending_policy(lending)) {
        lending++;
    }
    uint64_t drawn = check_below(random, count + 2 * lending);
    return drawn < count || !lending ? gml_policy_name(drawn)
                                     : lending_policy((drawn - count) % lending);
}

static stress_fault draw_fault(check_random *random, bool is_shared) {
    static const stress_fault faults[] = {STRESS_NONE,   STRESS_NONE,  STRESS_CALL,
                                          STRESS_PAIR,   STRESS_PAIR,  STRESS_RANDOM,
                                          STRESS_RANDOM, STRESS_PIECE, STRESS_PIECES};
    stress_fault drawn = faults[check_below(random, sizeof faults / sizeof *faults)];
    bool has_numbers = drawn != STRESS_NONE && drawn != STRESS_RANDOM; /* of what one thread does */
    return is_shared && has_numbers ? STRESS_RANDOM : drawn;
}

static program draw_program(uint64_t seed) {
    check_random random = {seed};
    program drawn = {.seed = seed, .threads = 1};
    const char *policy = draw_policy(&random), *asked_policy = asked_for("policy");
    const char *driver = check_below(&random, 5) < 2 ? "host" : "sim";
    const char *asked_driver = asked_for("driver"), *asked_fault = asked_for("fault");
    contract_policy = asked_policy ? asked_policy : policy;
    contract_driver = asked_driver ? asked_driver : driver;
    drawn.fault = draw_fault(&random, number_of("threads", 1) > 1);
    for (size_t i = 0; asked_fault && i < STRESS_FAULTS; i++) {
        drawn.fault = strcmp(fault_names[i], asked_fault) == 0 ? (stress_fault)i : drawn.fault;
    }
    bool may_share = drawn.fault == STRESS_NONE || drawn.fault == STRESS_RANDOM;
    drawn.threads = may_share && check_below(&random, 4) == 0 ? STRESS_THREADS : 1;
    drawn.threads = (size_t)number_of("threads", drawn.threads);
    if (drawn.threads > STRESS_THREADS || !may_share) {
        drawn.threads = 1;
    }
    size_t operations = may_share ? OPERATIONS / drawn.threads : NUMBERED_OPERATIONS;
    operations *= lake_is_host() ? 1 : SIM_TIMES;
    drawn.operations = (size_t)number_of("operations", operations);
    drawn.skips = asked_for("skip") ? UINT64_C(1) << number_of("skip", 0) : 0;
    return drawn;
}

/* The same program, with another call or request that fails each time. */
static void run_shots(program of, uint64_t count) {
    check_random random = {of.seed};
    int before = check_failures();
    int shots = lake_is_host() ? SHOTS : SHOTS * SIM_TIMES;
    for (int i = 0; i < shots && count && check_failures() == before; i++) {
        of.at[0] = 1 + check_below(&random, count);
        of.at[1] = 0;
        if (of.fault == STRESS_PAIR) {
            bool is_near = check_below(&random, 4);
            of.at[1] = of.at[0] + 1 + check_below(&random, is_near ? NEAR : count);
        }
        (void)run_program(&of);
    }
}

static void run_seed(uint64_t seed) {
    program drawn = draw_program(seed);
    if (asked_for("at")) {
        drawn.at[0] = number_of("at", 0);
        drawn.at[1] = number_of("and", 0);
        (void)run_program(&drawn);
        return;
    }
    int before = check_failures();
    uint64_t count = run_program(&drawn);
    bool has_numbers = drawn.fault != STRESS_NONE && drawn.fault != STRESS_RANDOM;
    if (has_numbers && check_failures() == before) {
        run_shots(drawn, count);
    }
}

TEST(whatever_programs_tell_their_lakes) {
    uint64_t first = number_of("seed", 1), programs = number_of("programs", PROGRAMS);
    int before = check_failures();
    for (uint64_t seed = first; seed < first + programs && check_failures() == before; seed++) {
        run_seed(seed);
    }
    if (check_failures() != before) {
        name_program();
    }
}

/* ---- that it is worth something -------------------------------------------------------------- */

static bool is_whole(void) {
    return number_of("programs", PROGRAMS) >= PROGRAMS && !asked_for("policy") &&
           !asked_for("driver") && !asked_for("fault") && !asked_for("threads") &&
           !asked_for("skip");
}

TEST(everything_happened) {
    const char *separator = "";
#define LOOK(field, text)                                                                          \
    printf("%s" text ": %" PRIu64, separator, (uint64_t)stress_counts.field);                      \
    separator = ", ";                                                                              \
    CHECK(stress_counts.field || !is_whole());
    STRESS_COUNTS(LOOK)
#undef LOOK
    printf(", blocks planned: %" PRIu64 "\n", (uint64_t)stress_counts.planned);
    CHECK(stress_counts.planned || !is_whole() || !policy_with_steps());
}

#if !IS_SANITIZED
static void die(int number) {
    name_program();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}
#endif

int main(int argc, char **argv) {
    (void)argc;
    arguments = argv;
    stress_arm = arm;
#if IS_SANITIZED
    __sanitizer_set_death_callback(name_program);
#else
    (void)signal(SIGSEGV, die);
    (void)signal(SIGBUS, die);
    (void)signal(SIGABRT, die);
#endif
    return check_all();
}
