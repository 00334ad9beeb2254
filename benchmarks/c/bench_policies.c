/* ns per allocate+free pair, for each policy side by side in one run, on the `sim` driver.
 *
 * Each scenario is timed in rounds that alternate between the policies, so that a change of the
 * machine's speed meets all of them; the median round is reported. Prints one JSON object.
 *
 * small: 4 KiB, the same size again and again. exact: the same with 20 MiB.
 *
 * split_merge: allocate and free a block of 1 to 32 MiB, another size each time, in a space with
 * 10,000 live blocks of such sizes and holes where 2,500 others were.
 *
 * churn: 10,000 live blocks; free one at random, allocate another size, so that memory is always
 * full and no size repeats. churn_64: the same with 64 sizes.
 *
 * view_8, view_512, view_4096: a block of that many 2 MiB chunks in a space of which every other
 * chunk is in use.
 */
#include "bench.h"

#include <inttypes.h>
#include <string.h>

#define CAPACITY (UINT64_C(1) << 40)

enum { ROUNDS = 11, LIVE_BLOCKS = 10000, MAX_POLICIES = 8 };

typedef struct bench_state {
    gml_lake *lake;
    gml_address live[LIVE_BLOCKS];
    uint64_t random;
    uint64_t sizes[64];
    uint64_t size_bytes;
} bench_state;

static void open_lake(bench_state *bench, const char *policy) {
    const gml_lake_config config = {
        .driver = "sim",
        .policy = policy,
        .capacity_bytes = CAPACITY,
    };
    char reason[256];
    if (gml_lake_open(&config, &bench->lake, reason, sizeof reason) != GML_OK) {
        bench_die(reason);
    }
    bench->random = 88172645463325252u;
}

static gml_address allocate(bench_state *bench, uint64_t size_bytes) {
    gml_address address;
    if (gml_lake_allocate(bench->lake, size_bytes, 0, &address) != GML_OK) {
        bench_die("an allocation failed");
    }
    return address;
}

static void release(bench_state *bench, gml_address address) {
    if (gml_lake_free(bench->lake, address) != GML_OK) {
        bench_die("a free failed");
    }
}

static double time_pairs(bench_state *bench, int pairs) {
    uint64_t begin_ns = gml_clock_ns();
    for (int i = 0; i < pairs; i++) {
        release(bench, allocate(bench, bench->size_bytes));
    }
    return (double)(gml_clock_ns() - begin_ns) / pairs;
}

static uint64_t random_size(bench_state *bench) {
    uint64_t random = bench_random(&bench->random) >> 16;
    return bench->sizes[0] ? bench->sizes[random % 64] : MIB + random % (31 * MIB);
}

static double time_exchanges(bench_state *bench, int pairs) {
    uint64_t begin_ns = gml_clock_ns();
    for (int i = 0; i < pairs; i++) {
        gml_address *slot = &bench->live[bench_random(&bench->random) % LIVE_BLOCKS];
        release(bench, *slot);
        *slot = allocate(bench, random_size(bench));
    }
    return (double)(gml_clock_ns() - begin_ns) / pairs;
}

static double time_random_pairs(bench_state *bench, int pairs) {
    uint64_t begin_ns = gml_clock_ns();
    for (int i = 0; i < pairs; i++) {
        release(bench, allocate(bench, random_size(bench)));
    }
    return (double)(gml_clock_ns() - begin_ns) / pairs;
}

/* LIVE_BLOCKS live blocks, and holes where `holes` others were. */
static void fill(bench_state *bench, bool few_sizes, int holes) {
    for (int i = 0; i < 64 && few_sizes; i++) {
        bench->sizes[i] = MIB + bench_random(&bench->random) % (31 * MIB);
    }
    gml_address *others = calloc((size_t)holes + 1, sizeof *others);
    if (!others) {
        bench_die("out of memory");
    }
    for (int i = 0; i < LIVE_BLOCKS; i++) {
        bench->live[i] = allocate(bench, random_size(bench));
        if (i < holes * 4 && i % 4 == 0) {
            others[i / 4] = allocate(bench, random_size(bench));
        }
    }
    for (int i = 0; i < holes; i++) {
        release(bench, others[i]);
    }
    free(others);
}

/* Every other of 2 * chunks chunks stays in use. */
static void fragment(bench_state *bench, uint64_t chunks) {
    gml_address *all = malloc(2 * chunks * sizeof *all);
    if (!all) {
        bench_die("out of memory");
    }
    for (uint64_t i = 0; i < 2 * chunks; i++) {
        all[i] = allocate(bench, 2 * MIB);
    }
    for (uint64_t i = 0; i < 2 * chunks; i += 2) {
        release(bench, all[i]);
    }
    free(all);
    bench->size_bytes = chunks * 2 * MIB;
}

typedef struct bench_scenario {
    const char *name;
    int pairs; /* per round */
    uint64_t chunks;
    bool is_full, exchanges, few_sizes;
    int holes;
    uint64_t size_bytes;
} bench_scenario;

static const bench_scenario scenarios[] = {
    {.name = "small", .pairs = 200000, .size_bytes = 4096},
    {.name = "exact", .pairs = 200000, .size_bytes = 20 * MIB},
    {.name = "split_merge", .pairs = 20000, .is_full = true, .holes = LIVE_BLOCKS / 4},
    {.name = "split_merge_64",
     .pairs = 20000,
     .is_full = true,
     .few_sizes = true,
     .holes = LIVE_BLOCKS / 4},
    {.name = "churn", .pairs = 20000, .is_full = true, .exchanges = true},
    {.name = "churn_64", .pairs = 20000, .is_full = true, .exchanges = true, .few_sizes = true},
    {.name = "view_8", .pairs = 100000, .chunks = 8},
    {.name = "view_512", .pairs = 100000, .chunks = 512},
    {.name = "view_4096", .pairs = 100000, .chunks = 4096},
};

static void prepare(bench_state *bench, const bench_scenario *scenario, const char *policy) {
    open_lake(bench, policy);
    bench->size_bytes = scenario->size_bytes;
    if (scenario->is_full) {
        memset(bench->sizes, 0, sizeof bench->sizes);
        fill(bench, scenario->few_sizes, scenario->holes);
        (void)(scenario->exchanges ? time_exchanges : time_random_pairs)(bench, 2 * LIVE_BLOCKS);
    } else if (scenario->chunks) {
        fragment(bench, scenario->chunks);
    }
    if (!scenario->is_full) {
        (void)time_pairs(bench, 100);
    }
}

/* One round of one scenario for one policy. */
static double run_round(bench_state *bench, const bench_scenario *scenario) {
    if (scenario->is_full) {
        return (scenario->exchanges ? time_exchanges : time_random_pairs)(bench, scenario->pairs);
    }
    return time_pairs(bench, scenario->pairs);
}

static void run_scenario(const bench_scenario *scenario, bool is_last) {
    static bench_state benches[MAX_POLICIES];
    double times[MAX_POLICIES][ROUNDS];
    size_t count = 0;
    for (; gml_policy_name(count) && count < MAX_POLICIES; count++) {
        prepare(&benches[count], scenario, gml_policy_name(count));
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < count; i++) {
            times[i][round] = run_round(&benches[i], scenario);
        }
    }
    printf("    \"%s\": {", scenario->name);
    for (size_t i = 0; i < count; i++) {
        double median = bench_median(times[i], ROUNDS);
        printf("%s\"%s\": {\"median_ns\": %.1f, \"least_ns\": %.1f}", i ? ", " : "",
               gml_policy_name(i), median, times[i][0]);
        (void)gml_lake_close(benches[i].lake);
    }
    printf("}%s\n", is_last ? "" : ",");
    fflush(stdout);
}

int main(void) {
    size_t count = sizeof scenarios / sizeof *scenarios;
    printf("{\n  \"unit\": \"ns per allocate+free pair\", \"rounds\": %d,\n  \"scenarios\": {\n",
           ROUNDS);
    for (size_t i = 0; i < count; i++) {
        run_scenario(&scenarios[i], i + 1 == count);
    }
    printf("  }\n}\n");
    return 0;
}
