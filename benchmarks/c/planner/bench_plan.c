/* ns per request of a step that repeats, a request and its end: served by the policy `stitch`, and
 * by a plan.
 *
 * A step is 4,096 requests in layers, forward and back, over a base range that what lasts has cut
 * up. The median of 21 rounds of 16 steps each is reported. Prints one JSON object.
 */
#include "bench.h"
#include "gmlake_plan.h"

#include <time.h>

enum { ROUNDS = 21, REPEATS = 16, REQUESTS = 4096, PER_LAYER = 16, LASTING = 64 };

typedef struct program {
    gml_lake *lake;
    gml_address live[REQUESTS];
    uint64_t least_bytes;
} program;

/* Of this thread, so that other processes do not count. */
static uint64_t now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static gml_address take(program *self, uint64_t size_bytes) {
    gml_address address;
    if (gml_lake_allocate(self->lake, size_bytes, 0, &address) != GML_OK) {
        bench_die("out of memory");
    }
    return address;
}

static void drop(program *self, gml_address address) {
    if (gml_lake_free(self->lake, address) != GML_OK) {
        bench_die("a block is not there");
    }
}

/* Three of four requests end within their layer, the others live to the way back. */
static void run_step(program *self) {
    for (uint64_t i = 0; i < REQUESTS; i++) {
        uint64_t size_bytes = self->least_bytes * (1 + i % PER_LAYER * 7 % 12) + 512 * (i % 5);
        self->live[i] = take(self, size_bytes);
        if (i % PER_LAYER == PER_LAYER - 1) {
            for (uint64_t j = i - PER_LAYER + 1; j <= i; j++) {
                if (j % 4) {
                    drop(self, self->live[j]);
                }
            }
        }
    }
    for (uint64_t i = REQUESTS; i > 0; i--) {
        if ((i - 1) % 4 == 0) {
            drop(self, self->live[i - 1]);
        }
    }
}

static void open_program(program *self, uint64_t least_bytes) {
    const gml_lake_config config = {.driver = "sim", .policy = "stitch"};
    gml_address lasting[LASTING];
    *self = (program){.least_bytes = least_bytes};
    if (gml_lake_open(&config, &self->lake, NULL, 0) != GML_OK) {
        bench_die("no lake");
    }
    for (uint64_t i = 0; i < LASTING; i++) {
        lasting[i] = take(self, (3 + i % 7) * MIB + 512 * i);
    }
    for (uint64_t i = 0; i < LASTING; i += 2) {
        drop(self, lasting[i]);
    }
}

static double time_steps(program *self, bool is_planned) {
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t spent_ns = 0;
        for (int repeat = 0; repeat < REPEATS; repeat++) {
            if (is_planned && gml_lake_begin_step(self->lake, 0) != GML_OK) {
                bench_die("no step");
            }
            uint64_t begin_ns = now_ns();
            run_step(self);
            spent_ns += now_ns() - begin_ns;
            gml_step_report report;
            if (is_planned && gml_lake_end_step(self->lake, &report) != GML_OK) {
                bench_die("no step");
            }
            if (is_planned && round && report.served + report.left != REQUESTS) {
                bench_die(report.why);
            }
        }
        times[round] = (double)spent_ns / (REPEATS * REQUESTS);
    }
    return bench_median(times, ROUNDS);
}

static void bench(const char *name, uint64_t least_bytes, const char *comma) {
    program self;
    open_program(&self, least_bytes);
    double stitched_ns = time_steps(&self, false);
    if (gml_lake_watch_steps(self.lake) != GML_OK) {
        bench_die("steps are not watched");
    }
    double planned_ns = time_steps(&self, true);
    printf("    \"%s\": {\"stitched_ns\": %.1f, \"planned_ns\": %.1f}%s\n", name, stitched_ns,
           planned_ns, comma);
    (void)gml_lake_close(self.lake);
}

int main(void) {
    printf("{\n  \"unit\": \"ns per request, with its end\", \"rounds\": %d,\n  \"scenarios\": {\n",
           ROUNDS);
    bench("from_1MiB", MIB, ",");
    bench("from_8MiB", 8 * MIB, "");
    printf("  }\n}\n");
    return 0;
}
