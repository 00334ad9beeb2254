/* Streams that lend each other memory while driver calls fail: each call in turn, and at random.
 * The call that asked fails cleanly or succeeds another way; no order is lost, no byte, no memory.
 */
#include "hooks/test_hooks.h"
#include "support/check.h"
#include "support/policies.h"
#include "support/stream_program.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* Where failing every call would take too long, an even sample of this many calls is failed. */
#if HAS_THREAD_SANITIZER
enum { SIM_RUNS = 40, HOST_RUNS = 15 }; /* one thread: nothing to see for this sanitizer */
#elif HAS_ADDRESS_SANITIZER
enum { SIM_RUNS = 250, HOST_RUNS = 60 };
#else
enum { SIM_RUNS = 1 << 20, HOST_RUNS = 250 };
#endif

enum { OPERATIONS = 700, STEP_OPERATIONS = 140, LEAST_CALLS = 250, RANDOM_SEEDS = 60 };

static const char *policy_name;
static const char *driver_name;

/* Few views, so that some go under load. */
static const gml_setting settings[] = {{"max_views", 6}};

static stream_program_config program_over(const gml_lake_config *lake, uint64_t seed) {
    gml_test_options options = gml_test_options_of(lake->hooks);
    return (stream_program_config){
        .lake = lake,
        .seed = seed,
        .streams = 4,
        .largest_bytes = 16 * MIB,
        .live_bytes = lake->capacity_bytes / 4 * 3,
        .steps_of = policy_has_steps(policy_name) ? STEP_OPERATIONS : 0,
        .has_captures = seed % 2,
        .may_fail = options.fail_call || options.fail_per_million,
    };
}

static gml_lake_config lake_over(uint64_t capacity_bytes) {
    return (gml_lake_config){.driver = driver_name,
                             .policy = policy_name,
                             .capacity_bytes = capacity_bytes,
                             .settings = settings,
                             .setting_count = sizeof settings / sizeof *settings,
                             .hooks = GML_HOOKS(.check_order = true)};
}

/* Whether all was well; the sums are those of a program that could begin. */
static bool run_once(const gml_lake_config *lake, uint64_t seed, stream_program_sums *sums) {
    stream_program *program = NULL;
    stream_program_config config = program_over(lake, seed);
    gml_status status = stream_program_open(&config, &program);
    *sums = (stream_program_sums){0};
    if (status != GML_OK) {
        return CHECK(config.may_fail &&
                     (status == GML_OUT_OF_MEMORY || status == GML_DRIVER_FAILED));
    }
    stream_program_run(program, OPERATIONS);
    stream_program_close(program);
    *sums = stream_program_count(program);
    if (stream_program_fault(program)[0]) {
        gml_test_options options = gml_test_options_of(lake->hooks);
        fprintf(stderr, "call %" PRIu64 " failing, %" PRIu64 " per million, seed %" PRIu64 ": %s\n",
                options.fail_call, options.fail_per_million, seed, stream_program_fault(program));
    }
    bool is_good = CHECK(!stream_program_fault(program)[0]);
    stream_program_free(program);
    return is_good;
}

static void fail_each_call(uint64_t capacity_bytes, uint64_t seed) {
    gml_lake_config lake = lake_over(capacity_bytes);
    stream_program_sums without;
    bool is_good = run_once(&lake, seed, &without);
    is_good &= CHECK(without.driver_calls >= LEAST_CALLS);
    is_good &= CHECK(without.waits > 5 && without.borrowed_bytes > 50 * MIB);
    uint64_t runs = strcmp(driver_name, "host") == 0 ? HOST_RUNS : SIM_RUNS;
    uint64_t stride = (without.driver_calls + runs - 1) / runs;
    for (uint64_t call = 1; call <= without.driver_calls && is_good; call += stride) {
        stream_program_sums sums;
        lake.hooks = GML_HOOKS(.fail_call = call, .check_order = true);
        is_good = run_once(&lake, seed, &sums);
        is_good &= CHECK(sums.failed <= 1); /* one call failed, so one request suffers at most */
    }
}

TEST(each_call_with_room) {
    fail_each_call(256 * MIB, 2);
}

TEST(each_call_with_little_room) {
    fail_each_call(48 * MIB, 3);
}

TEST(calls_at_random) {
    bool is_good = true;
    for (uint64_t seed = 1; seed <= RANDOM_SEEDS && is_good; seed++) {
        gml_lake_config lake = lake_over((seed % 2 ? 256 : 48) * MIB);
        stream_program_sums sums;
        lake.hooks = GML_HOOKS(.fail_per_million = seed % 4 < 2 ? 5000 : 60000, .fail_seed = seed,
                               .check_order = true);
        is_good = run_once(&lake, seed, &sums);
    }
}

int main(void) {
    static const char *const drivers[] = {"sim", "host"};
    for (size_t p = 0; lending_policy(p); p++) {
        for (size_t d = 0; d < 2; d++) {
            policy_name = lending_policy(p);
            driver_name = drivers[d];
            for (const check_test *test = check_tests(); test; test = test->next) {
                char name[160];
                snprintf(name, sizeof name, "%s over %s: %s", policy_name, driver_name, test->name);
                check_run(name, test->run);
            }
        }
    }
    return report();
}
