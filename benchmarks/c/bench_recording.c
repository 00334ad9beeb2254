/* ns per allocate+free pair with recording on against off, policy `stitch` on the `sim` driver.
 *
 * The ways take turns in rounds, so that a change of the machine's speed meets all of them. Each
 * way has a lake of its own, in the same state. Prints one JSON object: the ns of every round.
 *
 *   small     4 KiB, the same size again and again
 *   exact     20 MiB, the same size again and again
 *   steps     64 blocks of 8 sizes from 1 to 32 MiB, all allocated, all freed
 */
#include "bench.h"

#include <inttypes.h>
#include <unistd.h>

enum { ROUNDS = 101, PAIRS = 6400, LIVE_BLOCKS = 64, SIZES = 8 };

typedef struct bench_way {
    const char *name;
    size_t max_events; /* of the history; 0: none */
    bool is_published;
} bench_way;

static const bench_way ways[] = {
    {"off", 0, false},      {"history_65536", 1 << 16, false}, {"history_1048576", 1 << 20, false},
    {"published", 0, true}, {"both", 1 << 16, true},
};

enum { WAYS = sizeof ways / sizeof *ways };

typedef struct bench_lake {
    gml_lake *lake;
    gml_address live[LIVE_BLOCKS];
    uint64_t sizes[SIZES];
    uint64_t random;
} bench_lake;

typedef void (*bench_pairs)(bench_lake *bench, int pairs, uint64_t size_bytes);

static gml_address allocate(bench_lake *bench, uint64_t size_bytes) {
    gml_address address;
    if (gml_lake_allocate(bench->lake, size_bytes, 0, &address) != GML_OK) {
        bench_die("an allocation failed");
    }
    return address;
}

static void release(bench_lake *bench, gml_address address) {
    if (gml_lake_free(bench->lake, address) != GML_OK) {
        bench_die("a free failed");
    }
}

static void run_same_size(bench_lake *bench, int pairs, uint64_t size_bytes) {
    for (int i = 0; i < pairs; i++) {
        release(bench, allocate(bench, size_bytes));
    }
}

static void run_steps(bench_lake *bench, int pairs, uint64_t size_bytes) {
    (void)size_bytes;
    for (int step = 0; step < pairs / LIVE_BLOCKS; step++) {
        for (int i = 0; i < LIVE_BLOCKS; i++) {
            bench->live[i] = allocate(bench, bench->sizes[i % SIZES]);
        }
        for (int i = 0; i < LIVE_BLOCKS; i++) {
            release(bench, bench->live[i]);
        }
    }
}

static const struct {
    const char *name;
    bench_pairs run;
    uint64_t size_bytes;
} scenarios[] = {
    {"small", run_same_size, 4096},
    {"exact", run_same_size, 20 * MIB},
    {"steps", run_steps, 0},
};

static void publish(gml_lake *lake, const char *folder, const char *name) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (gml_lake_publish(lake, path) != GML_OK) {
        bench_die("the counters cannot be published");
    }
}

static void open_lake(bench_lake *bench, const bench_way *way, const char *folder) {
    const gml_lake_config config = {
        .driver = "sim", .policy = "stitch", .capacity_bytes = UINT64_C(1) << 40};
    char reason[256];
    if (gml_lake_open(&config, &bench->lake, reason, sizeof reason) != GML_OK) {
        bench_die(reason);
    }
    bench->random = 88172645463325252u;
    for (int i = 0; i < SIZES; i++) {
        bench->sizes[i] = MIB + bench_random(&bench->random) % (31 * MIB);
    }
    if (gml_lake_keep_history(bench->lake, way->max_events) != GML_OK) {
        bench_die("no host memory for a history");
    }
    if (way->is_published) {
        publish(bench->lake, folder, way->name);
    }
    /* Every page of the ring is there, and the policy has seen what comes. */
    run_steps(bench, PAIRS, 0);
    run_same_size(bench, (int)(way->max_events / 3) + 1, 4096);
}

static double time_round(bench_lake *bench, size_t scenario) {
    uint64_t begin_ns = gml_clock_ns();
    scenarios[scenario].run(bench, PAIRS, scenarios[scenario].size_bytes);
    return (double)(gml_clock_ns() - begin_ns) / PAIRS;
}

static void print_rounds(const char *name, const double *ns, bool is_last) {
    printf("\"%s\": [", name);
    for (int i = 0; i < ROUNDS; i++) {
        printf("%s%.1f", i ? ", " : "", ns[i]);
    }
    printf("]%s", is_last ? "" : ", ");
}

static void run_scenario(bench_lake *lakes, size_t scenario) {
    static double ns[WAYS][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WAYS; i++) {
            int way = (i + round) % WAYS; /* none is always the first */
            ns[way][round] = time_round(&lakes[way], scenario);
        }
    }
    printf("\"%s\": {", scenarios[scenario].name);
    for (int way = 0; way < WAYS; way++) {
        print_rounds(ways[way].name, ns[way], way + 1 == WAYS);
    }
}

int main(void) {
    static bench_lake lakes[WAYS];
    char folder[] = "/tmp/gmlake-bench-XXXXXX";
    if (!mkdtemp(folder)) {
        bench_die("no folder in /tmp");
    }
    for (int way = 0; way < WAYS; way++) {
        open_lake(&lakes[way], &ways[way], folder);
    }
    size_t count = sizeof scenarios / sizeof *scenarios;
    printf("{");
    for (size_t scenario = 0; scenario < count; scenario++) {
        run_scenario(lakes, scenario);
        printf("}%s", scenario + 1 < count ? ", " : "");
    }
    printf("}\n");
    for (int way = 0; way < WAYS; way++) {
        (void)gml_lake_close(lakes[way].lake);
    }
    (void)rmdir(folder);
    return 0;
}
