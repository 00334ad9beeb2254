/* What one more request costs as a program goes on and grows: policy by policy, on `sim`.
 *
 * Each curve is one pattern at several lengths. Where the times of a curve rise with the length,
 * something grows without end. Prints one JSON object: curve -> policy -> length -> ns.
 *
 *   pairs_64       free one of 1,000 live blocks of 64 sizes and allocate another, after so many
 *                  thousand pairs
 *   pairs_unique   the same where no size repeats
 *   waiting        one block of 1 GiB that comes and goes, beside so many sizes that were served
 *                  from its memory while it was away
 *   streams        a new size on one stream, beside so many streams that each hold an idle block
 *   fragments      a new size, eight times the largest of so many free fragments
 *   smaller        a new size below that of so many free fragments
 *   pools          begin and end one of so many pools
 */
#include "bench.h"

enum { ROUNDS = 3, LENGTHS = 3, LIVE = 1000, NEW_SIZES = 32 };

/* The patterns, at one length. They return the ns of one request, or pair. */
typedef double curve_run(gml_lake *lake, uint64_t length);

static gml_address take(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    gml_address address;
    bench_check(gml_lake_allocate(lake, size_bytes, stream, &address), "an allocation failed");
    return address;
}

static void give(gml_lake *lake, gml_address address) {
    bench_check(gml_lake_free(lake, address), "a free failed");
}

static void touch(gml_lake *lake, uint64_t size_bytes, gml_stream stream) {
    give(lake, take(lake, size_bytes, stream));
}

/* `thousands` of pairs, of which the last 20,000 are timed. size_count 0: sizes never repeat. */
static double exchange(gml_lake *lake, uint64_t thousands, uint64_t size_count) {
    enum { TIMED = 20000 };
    uint64_t state = 88172645463325252u, sizes[64], begin_ns = 0;
    static gml_address live[LIVE];
    for (size_t i = 0; i < 64; i++) {
        sizes[i] = MIB + 1 + bench_random(&state) % (63 * MIB);
    }
    for (size_t i = 0; i < LIVE; i++) {
        live[i] = take(lake, sizes[i % 64], 0);
    }
    for (uint64_t i = 0; i < 1000 * thousands; i++) {
        if (i == 1000 * thousands - TIMED) {
            begin_ns = gml_clock_ns();
        }
        gml_address *block = &live[bench_random(&state) % LIVE];
        uint64_t drawn = bench_random(&state);
        give(lake, *block);
        *block =
            take(lake, size_count ? sizes[drawn % size_count] : MIB + 1 + drawn % (63 * MIB), 0);
    }
    return (double)(gml_clock_ns() - begin_ns) / TIMED;
}

static double run_pairs_64(gml_lake *lake, uint64_t length) {
    return exchange(lake, length, 64);
}

static double run_pairs_unique(gml_lake *lake, uint64_t length) {
    return exchange(lake, length, 0);
}

static double run_waiting(gml_lake *lake, uint64_t length) {
    enum { TIMED = 2000 };
    for (uint64_t i = 1; i <= length; i++) {
        touch(lake, 2 * MIB + 512 * i, 0);
    }
    gml_address large = take(lake, 1024 * MIB, 0);
    for (uint64_t i = 1; i <= length; i++) {
        touch(lake, 2 * MIB + 512 * i, 0);
    }
    give(lake, large);
    uint64_t begin_ns = gml_clock_ns();
    for (int i = 0; i < TIMED; i++) {
        touch(lake, 1024 * MIB, 0);
    }
    return (double)(gml_clock_ns() - begin_ns) / TIMED;
}

/* New sizes, each asked for once. */
static double ask_for_new(gml_lake *lake, uint64_t first_bytes, uint64_t step_bytes,
                          gml_stream stream) {
    gml_address blocks[NEW_SIZES];
    uint64_t begin_ns = gml_clock_ns();
    for (uint64_t i = 0; i < NEW_SIZES; i++) {
        blocks[i] = take(lake, first_bytes + i * step_bytes, stream);
    }
    double each_ns = (double)(gml_clock_ns() - begin_ns) / NEW_SIZES;
    for (size_t i = 0; i < NEW_SIZES; i++) {
        give(lake, blocks[i]);
    }
    return each_ns;
}

static double run_streams(gml_lake *lake, uint64_t length) {
    for (uint64_t i = 1; i <= length; i++) {
        touch(lake, 4 * MIB, i);
    }
    return ask_for_new(lake, 6 * MIB, MIB, 1);
}

/* Leaves `length` holes of 3 MiB between blocks that live on. */
static void fragment(gml_lake *lake, uint64_t length) {
    gml_address *blocks = calloc(2 * length, sizeof *blocks);
    if (!blocks) {
        bench_die("no memory");
    }
    for (uint64_t i = 0; i < 2 * length; i++) {
        blocks[i] = take(lake, 3 * MIB, 0);
    }
    for (uint64_t i = 0; i < length; i++) {
        give(lake, blocks[2 * i]);
    }
    free(blocks);
}

static double run_fragments(gml_lake *lake, uint64_t length) {
    fragment(lake, length);
    return ask_for_new(lake, 24 * MIB, 512, 0);
}

static double run_smaller(gml_lake *lake, uint64_t length) {
    fragment(lake, length);
    return ask_for_new(lake, 3 * MIB / 2, 512, 0);
}

static double run_pools(gml_lake *lake, uint64_t length) {
    uint64_t begin_ns = gml_clock_ns();
    for (uint64_t i = 1; i <= length; i++) {
        bench_check(gml_lake_begin_pool(lake, (gml_pool_id){i, 0}), "a pool did not begin");
        bench_check(gml_lake_end_pool(lake, (gml_pool_id){i, 0}), "a pool did not end");
    }
    return (double)(gml_clock_ns() - begin_ns) / (double)length;
}

typedef struct curve {
    const char *name;
    uint64_t lengths[LENGTHS];
    curve_run *run;
} curve;

static const curve curves[] = {
    {"pairs_64", {50, 250, 1000}, run_pairs_64},
    {"pairs_unique", {50, 250, 1000}, run_pairs_unique},
    {"waiting", {1024, 16384, 65536}, run_waiting},
    {"streams", {100, 1000, 10000}, run_streams},
    {"fragments", {100, 1000, 10000}, run_fragments},
    {"smaller", {100, 1000, 10000}, run_smaller},
    {"pools", {100, 1000, 10000}, run_pools},
};

static double run_once(const curve *drawn, const char *policy, uint64_t length) {
    const gml_lake_config config = {
        .driver = "sim", .policy = policy, .capacity_bytes = UINT64_C(1) << 40};
    char reason[256];
    gml_lake *lake;
    if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
        bench_die(reason);
    }
    double each_ns = drawn->run(lake, length);
    gml_lake_close(lake);
    return each_ns;
}

int main(void) {
    static const char *const policies[] = {"caching", "expandable", "stitch"};
    size_t curve_count = sizeof curves / sizeof *curves;
    size_t policy_count = sizeof policies / sizeof *policies;
    printf("{\n  \"unit\": \"ns\", \"rounds\": %d,\n  \"curves\": {\n", ROUNDS);
    for (size_t i = 0; i < curve_count; i++) {
        printf("    \"%s\": {", curves[i].name);
        for (size_t j = 0; j < policy_count; j++) {
            printf("%s\"%s\": {", j ? ", " : "", policies[j]);
            for (size_t k = 0; k < LENGTHS; k++) {
                double times[ROUNDS];
                for (size_t round = 0; round < ROUNDS; round++) {
                    times[round] = run_once(&curves[i], policies[j], curves[i].lengths[k]);
                }
                printf("%s\"%llu\": %.0f", k ? ", " : "", (unsigned long long)curves[i].lengths[k],
                       bench_median(times, ROUNDS));
            }
            printf("}");
        }
        printf("}%s\n", i + 1 < curve_count ? "," : "");
        (void)fflush(stdout);
    }
    printf("  }\n}\n");
    return 0;
}
