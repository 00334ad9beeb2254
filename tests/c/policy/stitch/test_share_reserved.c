/* Lending between streams costs no memory: the same program, with and without it, at any pace of
 * the streams. Without it each stream keeps what it once had.
 *
 * Where every size is a whole number of chunks this holds exactly. Otherwise parts of chunks are
 * packed in another order, since other chunks are there to pack them into, and the peak may be
 * higher by a few chunks. */
#include "support/sharing.h"

enum { MOST_LIVE = 40, STEPS = 600, PROGRAMS = 200 };

typedef struct random_program {
    uint64_t seed, streams;
    uint64_t largest_bytes; /* of stream 1; the others take an `aside`th of that at most */
    uint64_t aside;
    uint64_t granule_bytes; /* of sizes */
    uint64_t pace;          /* of 16 steps, those after which a stream comes on; 16: at once */
} random_program;

typedef struct outcome {
    uint64_t peak_bytes, last_bytes,
        live_bytes; /* reserved, reserved, and the peak of what lived */
} outcome;

static uint64_t draw_size(const random_program *program, check_random *random, gml_stream stream) {
    uint64_t most = stream == 1 ? program->largest_bytes : program->largest_bytes / program->aside;
    uint64_t size_bytes = 1 + check_below(random, most);
    uint64_t granule = program->granule_bytes;
    return (size_bytes + granule - 1) / granule * granule;
}

static void run_steps(gml_lake *lake, const random_program *program, outcome *out) {
    check_random random = {program->seed};
    gml_address live[MOST_LIVE];
    size_t count = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t kind = check_below(&random, 100);
        uint64_t at = check_next(&random);
        gml_stream stream = 1 + check_below(&random, program->streams);
        uint64_t size_bytes = draw_size(program, &random, stream);
        uint64_t most = step / 100 % 2 ? MOST_LIVE / 8 : MOST_LIVE;
        if (count < most && (kind < 60 || !count)) {
            live[count++] = sharing_take(lake, size_bytes, stream);
        } else {
            sharing_give(lake, live[at % count]);
            live[at % count] = live[count - 1];
            count--;
        }
        if (kind % 16 < program->pace) {
            sharing_run(lake, stream);
        }
    }
    while (count) {
        sharing_give(lake, live[--count]);
    }
    gml_stats stats = lake_stats_of(lake);
    out->peak_bytes = stats.peak_reserved_bytes;
    out->live_bytes = stats.peak_live_bytes;
}

static outcome run_program(const random_program *program, bool is_lending) {
    static const gml_setting off[] = {{"reuse_allow_opportunistic", 0},
                                      {"reuse_allow_internal_dependencies", 0}};
    outcome found = {0};
    gml_lake *lake = sharing_open(&(sharing_config){
        .settings = off, .setting_count = is_lending ? 0 : 2, .runs_at_once = program->pace == 16});
    run_steps(lake, program, &found);
    sharing_finish(lake);
    return found;
}

typedef struct comparison {
    uint64_t most_excess_bytes;         /* of a program's peak with lending */
    uint64_t with_bytes, without_bytes; /* sums of the peaks */
} comparison;

static void compare(const random_program *program, comparison *sums) {
    outcome with = run_program(program, true), without = run_program(program, false);
    if (!CHECK(with.peak_bytes <= without.peak_bytes + sums->most_excess_bytes)) {
        fprintf(stderr,
                "seed %" PRIu64 ", %" PRIu64 " streams, pace %" PRIu64 ": %" PRIu64
                " MiB with, %" PRIu64 " MiB without\n",
                program->seed, program->streams, program->pace, with.peak_bytes / MIB,
                without.peak_bytes / MIB);
    }
    CHECK(with.peak_bytes >= with.live_bytes);
    sums->with_bytes += with.peak_bytes;
    sums->without_bytes += without.peak_bytes;
}

static void compare_many(uint64_t aside, uint64_t granule_bytes, uint64_t most_excess_bytes) {
    static const uint64_t paces[] = {16, 8, 1, 0};
    comparison sums = {.most_excess_bytes = most_excess_bytes};
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        const random_program program = {.seed = seed,
                                        .streams = 2 + seed % 5,
                                        .largest_bytes = (seed % 3 ? 16 : 80) * MIB,
                                        .aside = aside,
                                        .granule_bytes = granule_bytes,
                                        .pace = paces[seed % 4]};
        compare(&program, &sums);
    }
    CHECK(sums.with_bytes < sums.without_bytes);
}

TEST(streams_of_like_size_with_whole_chunks) {
    compare_many(1, 2 * MIB, 0);
}

TEST(streams_of_like_size_with_any_size) {
    compare_many(1, 1, 4 * MIB);
}
