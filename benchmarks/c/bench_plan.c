/* ns per request of what serves a plan: matching, and the guard of planned addresses.
 *
 * Each scenario runs in rounds over the same requests; the median round is reported. Prints one
 * JSON object.
 *
 *   meet_equal      requests that agree with the plan, 4,096 entries
 *   meet_one_in_64  of every 64 requests one is missing
 *   meet_foreign    requests of sizes that the plan has not, so that every look covers the window
 *   guard_*         is_free, take and give of blocks of that size, in turn at 1,024 places
 */
#include "bench.h"
#include "plan/occupancy.h"
#include "planner/matcher.h"

#define KIB (UINT64_C(1) << 10)

enum { ROUNDS = 21, ENTRIES = 4096, PLACES = 1024, REPEATS = 16 };

static void
print_median(const char *name, double *times, const char *comma)
{
    double median = bench_median(times, ROUNDS);
    printf("    \"%s\": {\"median_ns\": %.1f, \"least_ns\": %.1f}%s\n", name, median, times[0],
           comma);
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Layers of 40 requests with 12 sizes. */
static void
make_plan(gml_plan *plan, gml_plan_entry *entries)
{
    *plan = (gml_plan){.steps = 1, .entries = entries, .entry_count = ENTRIES};
    plan->step_entry[1] = ENTRIES;
    for (uint64_t i = 0; i < ENTRIES; i++) {
        uint64_t kind = (i % 40 * 7 + i % 40 / 5) % 12;
        entries[i] = (gml_plan_entry){.size_bytes = 512 * (1 + kind * kind * 100)};
    }
}

/* Every `missing`-th request is left out; `more` is added to each size. */
static double
time_meets(gml_matcher *matcher, uint64_t missing, uint64_t more)
{
    const gml_plan_entry *entries = matcher->plan->entries;
    uint64_t count = 0, met = 0, begin_ns = gml_clock_ns();
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        gml_matcher_begin_step(matcher, 0);
        for (uint64_t i = 0; i < ENTRIES; i++) {
            if (missing && i % missing == missing / 2) {
                continue;
            }
            met += gml_matcher_meet(matcher, entries[i].size_bytes + more, 0) != GML_NO_ENTRY;
            count++;
        }
    }
    uint64_t spent_ns = gml_clock_ns() - begin_ns;
    if (met != (more ? 0 : count)) {
        bench_die("a request met no entry, or met a foreign one");
    }
    return (double)spent_ns / (double)count;
}

static void
bench_meets(const char *name, uint64_t missing, uint64_t more)
{
    static gml_plan_entry entries[ENTRIES];
    static gml_plan plan;
    double times[ROUNDS];
    gml_matcher matcher;
    make_plan(&plan, entries);
    if (gml_matcher_open(&matcher, &plan, 256) != GML_OK) {
        bench_die("out of memory");
    }
    for (int round = 0; round < ROUNDS; round++) {
        times[round] = time_meets(&matcher, missing, more);
    }
    gml_matcher_close(&matcher);
    print_median(name, times, ",");
}

/* ---- the guard ------------------------------------------------------------------------------- */

static double
time_guard(gml_occupancy *occupancy, uint64_t size_bytes, uint64_t stride_bytes)
{
    uint64_t begin_ns = gml_clock_ns();
    for (uint64_t i = 0; i < PLACES; i++) {
        uint64_t offset = i * 389 % PLACES * stride_bytes;
        if (!gml_occupancy_is_free(occupancy, offset, size_bytes) ||
            gml_occupancy_prepare(occupancy, offset, size_bytes) != GML_OK) {
            bench_die("a planned address is not free");
        }
        gml_occupancy_take(occupancy, offset, size_bytes);
        gml_occupancy_give(occupancy, offset, size_bytes);
    }
    return (double)(gml_clock_ns() - begin_ns) / PLACES;
}

static void
bench_guard(const char *name, uint64_t size_bytes, const char *comma)
{
    double times[ROUNDS];
    gml_occupancy occupancy;
    gml_occupancy_init(&occupancy, 2 * MIB);
    uint64_t stride_bytes = size_bytes + UINT64_C(37) * 512; /* all alignments within a chunk */
    (void)time_guard(&occupancy, size_bytes, stride_bytes);
    for (int round = 0; round < ROUNDS; round++) {
        times[round] = time_guard(&occupancy, size_bytes, stride_bytes);
    }
    gml_occupancy_close(&occupancy);
    print_median(name, times, comma);
}

int
main(void)
{
    printf("{\n  \"unit\": \"ns per request\", \"rounds\": %d,\n  \"scenarios\": {\n", ROUNDS);
    bench_meets("meet_equal", 0, 0);
    bench_meets("meet_one_in_64", 64, 0);
    bench_meets("meet_foreign", 0, 512);
    bench_guard("guard_512", 512, ",");
    bench_guard("guard_64KiB", 64 * KIB, ",");
    bench_guard("guard_1MiB", MIB, ",");
    bench_guard("guard_20MiB", 20 * MIB, ",");
    bench_guard("guard_500MiB", 500 * MIB, "");
    printf("  }\n}\n");
    return 0;
}
