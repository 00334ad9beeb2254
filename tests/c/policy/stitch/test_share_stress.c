/* Streams that lend each other memory, under random programs: no memory moves without an order, no
 * byte is lost, nothing is held beyond the capacity, and all of it goes back.
 *
 *     test_share_stress [operations [seed]]
 *
 * `operations` is how many there are over all programs; without arguments GMLAKE_STRESS_OPERATIONS
 * says so. A failure prints the seed of its program: the same seed begins with it. */
#include "hooks/test_hooks.h"
#include "support/check.h"
#include "support/policies.h"
#include "support/stream_program.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum {
    DEFAULT_OPERATIONS = IS_SANITIZED ? 400000 : 1000000,
    PROGRAM_OPERATIONS = 4000,
    STEP_OPERATIONS = 200,
    PLANTED_PROGRAMS = 12,
    MOST_SETTINGS = 16
};

static uint64_t operations = DEFAULT_OPERATIONS;
static uint64_t first_seed = 1;

/* ---- what a seed stands for ------------------------------------------------------------------ */

typedef struct choice {
    const char *name;
    size_t count;
    uint64_t values[5];
} choice;

/* Each knob at random, now and then at values where its rule always or never applies. */
static const choice choices[] = {
    {"reuse_follow_event_dependencies", 4, {1, 1, 1, 0}},
    {"reuse_allow_opportunistic", 4, {1, 1, 1, 0}},
    {"reuse_allow_internal_dependencies", 4, {1, 1, 1, 0}},
    {"borrow_waits", 5, {256, 1024, 16, 1, 0}},
    {"optimize_for", 3, {0, 1, 2}},
    {"chunk_size", 4, {0, 2 * MIB, 4 * MIB, 16 * MIB}},
    {"growth", 3, {0, 0, 24 * MIB}},
    {"max_views", 3, {16384, 4, 64}},
    {"frag_limit", 3, {0, 0, 12 * MIB}},
};

typedef struct stress {
    gml_setting settings[MOST_SETTINGS];
    gml_lake_config lake;
    stream_program_config program;
} stress;

/* Only pointers into *out are kept. */
static void draw_stress(uint64_t seed, const char *driver, const char *policy, stress *out) {
    check_random random = {seed};
    bool is_host = strcmp(driver, "host") == 0, has_steps = policy_has_steps(policy);
    size_t count = sizeof choices / sizeof *choices;
    for (size_t i = 0; i < count; i++) {
        const choice *knob = &choices[i];
        out->settings[i] =
            (gml_setting){knob->name, knob->values[check_below(&random, knob->count)]};
    }
    uint64_t capacity_bytes = (is_host ? 96 : 128 + check_below(&random, 4) * 128) * MIB;
    out->lake = (gml_lake_config){.driver = driver,
                                  .policy = policy,
                                  .capacity_bytes = capacity_bytes,
                                  .settings = out->settings,
                                  .setting_count = count,
                                  .hooks = GML_HOOKS(.check_order = true)};
    out->program = (stream_program_config){
        .lake = &out->lake,
        .seed = seed,
        /* No step is served as before where many lend each other memory. */
        .streams = (size_t)(1 + check_below(&random, has_steps ? 4 : 16)),
        .largest_bytes = is_host ? 24 * MIB : 64 * MIB,
        .live_bytes = capacity_bytes / 8 * (3 + check_below(&random, 5)),
        .steps_of = has_steps ? STEP_OPERATIONS : 0,
        .has_captures = check_below(&random, 4) == 0,
        .is_old = check_below(&random, 8) == 0,
    };
}

/* Runs one program and adds its sums; returns whether all was well, else `why` says what was not.
 */
static bool run_program(const stress *what, uint64_t count, stream_program_sums *sums, char *why,
                        size_t why_bytes) {
    stream_program *program = NULL;
    gml_status status = stream_program_open(&what->program, &program);
    if (status != GML_OK) {
        snprintf(why, why_bytes, "the lake does not open: %s", gml_status_text(status));
        return false;
    }
    stream_program_run(program, count);
    stream_program_close(program);
    stream_program_sums added = stream_program_count(program);
    sums->operations += added.operations;
    sums->allocations += added.allocations;
    sums->refused += added.refused;
    sums->checks += added.checks;
    sums->waits += added.waits;
    sums->borrowed_bytes += added.borrowed_bytes;
    sums->planned += added.planned;
    snprintf(why, why_bytes, "%s", stream_program_fault(program));
    stream_program_free(program);
    return !why[0];
}

static stream_program_sums run_seeds(const char *driver, const char *policy, uint64_t share,
                                     uint64_t offset) {
    stream_program_sums sums = {0};
    char why[400];
    bool is_good = true;
    for (uint64_t seed = first_seed + offset; sums.operations < share && is_good; seed++) {
        stress what;
        draw_stress(seed, driver, policy, &what);
        is_good = CHECK(run_program(&what, PROGRAM_OPERATIONS, &sums, why, sizeof why));
        if (!is_good) {
            fprintf(stderr, "%s over %s, seed %" PRIu64 ": %s\n", policy, driver, seed - offset,
                    why);
        }
    }
    return sums;
}

/* ---- the stress ------------------------------------------------------------------------------ */

/* That the programs do what they are for. */
static void check_worth(const stream_program_sums *sums) {
    CHECK(sums->refused * 3 <= sums->allocations);
    CHECK(sums->waits * 200 > sums->allocations);
    CHECK(sums->borrowed_bytes / MIB * 4 > sums->allocations);
}

TEST(stitch_without_bytes) {
    stream_program_sums sums = run_seeds("sim", "stitch", operations / 10 * 6, 0);
    check_worth(&sums);
}

TEST(stitch_with_bytes) {
    stream_program_sums sums = run_seeds("host", "stitch", operations / 10, 10000);
    CHECK(sums.checks * 10 > sums.operations);
    check_worth(&sums);
}

TEST(steps_without_bytes) {
    if (policy_with_steps()) {
        stream_program_sums sums =
            run_seeds("sim", policy_with_steps(), operations / 10 * 2, 20000);
        CHECK(sums.planned * 20 > sums.allocations);
    }
}

TEST(steps_with_bytes) {
    if (policy_with_steps()) {
        stream_program_sums sums = run_seeds("host", policy_with_steps(), operations / 10, 30000);
        CHECK(sums.checks * 10 > sums.operations);
        CHECK(sums.planned * 50 > sums.allocations);
    }
}

/* ---- the stress finds what it is for --------------------------------------------------------- */

/* How many of some programs go wrong where the lake's calls of one kind are not made. */
static uint64_t count_faults(const char *driver, gml_driver_call skipped, bool checks_order,
                             const char *expected) {
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= PLANTED_PROGRAMS; seed++) {
        stress what;
        stream_program_sums sums = {0};
        char why[400];
        draw_stress(seed, driver, "stitch", &what);
        what.program.streams = 4;
        what.program.has_captures = what.program.is_old = false;
        what.lake.setting_count = 3; /* that borrowing is allowed stays */
        for (size_t i = 0; i < 3; i++) {
            what.settings[i].value = 1;
        }
        what.lake.hooks =
            GML_HOOKS(.skip_calls = UINT64_C(1) << skipped, .check_order = checks_order);
        found += !run_program(&what, PROGRAM_OPERATIONS, &sums, why, sizeof why) &&
                 strstr(why, expected) != NULL;
    }
    return found;
}

TEST(a_wait_that_is_not_made_is_found) {
    CHECK(count_faults("sim", GML_CALL_STREAM_WAIT, true, "stream") > PLANTED_PROGRAMS / 2);
    CHECK(count_faults("host", GML_CALL_STREAM_WAIT, false, "the bytes of another") >
          PLANTED_PROGRAMS / 2);
}

TEST(a_mark_that_is_not_made_is_found) {
    /* Not over `host` with its bytes: memory is unmapped as well then, under work that reads it. */
    CHECK(count_faults("sim", GML_CALL_EVENT_QUERY, true, "stream") > PLANTED_PROGRAMS / 2);
    CHECK(count_faults("sim", GML_CALL_EVENT_RECORD_ALL, true, "stream") > PLANTED_PROGRAMS / 2);
}

int main(int argc, char **argv) {
    const char *text = getenv("GMLAKE_STRESS_OPERATIONS");
    if (argc > 1 || text) {
        operations = strtoull(argc > 1 ? argv[1] : text, NULL, 10);
    }
    if (argc > 2) {
        first_seed = strtoull(argv[2], NULL, 10);
    }
    return check_all();
}
