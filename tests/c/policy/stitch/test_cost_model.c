/* What the setting `optimize_for` promises: how large chunks are, and how much more is reserved
 * than the program needs. */
#include "gmlake_elastic.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/contract.h"

#include <stdio.h>
#include <stdlib.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum { TIME, BALANCED, MEMORY };

static gml_lake *open_with(uint64_t capacity_bytes, const gml_setting *settings, size_t count) {
    const gml_lake_config config = {.driver = "sim",
                                    .policy = "stitch",
                                    .capacity_bytes = capacity_bytes,
                                    .settings = settings,
                                    .setting_count = count};
    return lake_open_by(&config);
}

static gml_lake *open_for(uint64_t capacity_bytes, uint64_t costs) {
    return open_with(capacity_bytes, &(gml_setting){"optimize_for", costs}, 1);
}

static void close_lake(gml_lake *lake) {
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

static uint64_t count_chunks(gml_lake *lake) {
    return lake_stats_of(lake).driver_calls[GML_CALL_CREATE];
}

/* How many chunks so many bytes more consist of, taken a bit at a time. */
static uint64_t chunks_of(gml_lake *lake, uint64_t more_bytes) {
    uint64_t before = count_chunks(lake);
    for (uint64_t taken = 0; taken < more_bytes; taken += 64 * MIB) {
        (void)lake_take(lake, 64 * MIB, 0);
    }
    return count_chunks(lake) - before;
}

static gml_lake *open_shared(gml_device *device, uint64_t capacity_bytes,
                             const gml_setting *setting) {
    *device = (gml_device){.lock = PTHREAD_MUTEX_INITIALIZER, .spare_bytes = 256 * MIB};
    const gml_lake_config config = {.driver = "sim",
                                    .policy = "stitch",
                                    .capacity_bytes = capacity_bytes,
                                    .settings = setting,
                                    .setting_count = setting != NULL,
                                    .shared = device};
    return lake_open_by(&config);
}

/* Whatever other processes hold of it: they may give it. */
TEST(chunks_are_large_on_a_device_that_is_shared) {
    const gml_setting fixed = {"chunk_size", 2 * MIB}, memory = {"optimize_for", MEMORY};
    const struct {
        const gml_setting *setting;
        uint64_t chunks; /* of the last GiB */
    } cases[] = {{NULL, 8}, {&fixed, 512}, {&memory, 512}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gml_device device;
        gml_lake *lake = open_shared(&device, 192 * GIB, cases[i].setting);
        (void)chunks_of(lake, 8 * GIB);
        lake->driver->info.free_bytes = lake->driver->held_when_told = 0;
        CHECK_EQ(chunks_of(lake, GIB), cases[i].chunks);
        close_lake(lake);
    }
}

/* There, chunks stay large at the end of the device, unless the user chose otherwise. */
TEST(chunks_are_no_smaller_where_little_is_left) {
    const gml_setting fixed = {"chunk_size", 2 * MIB}, memory = {"optimize_for", MEMORY};
    const struct {
        const gml_setting *setting;
        uint64_t held_bytes, chunks; /* of 64 MiB, of 48 GiB in all */
    } cases[] = {{NULL, 44 * GIB, 1}, {&fixed, GIB, 32}, {&memory, GIB, 32}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gml_device device;
        gml_lake *lake = open_shared(&device, 48 * GIB, cases[i].setting);
        (void)chunks_of(lake, cases[i].held_bytes);
        CHECK_EQ(chunks_of(lake, 64 * MIB), cases[i].chunks);
        close_lake(lake);
    }
}

static uint64_t give_all(gml_lake *lake) {
    uint64_t given_bytes = 0;
    bool is_pending;
    CHECK_OK(gml_lake_give(lake, UINT64_MAX / 2, NULL, false, &given_bytes, &is_pending));
    return given_bytes;
}

enum { PAIRS = 24 };

/* There, what small blocks keep, and how many chunks large ones have beside them. Of 192 GiB a
 * large chunk has 128 MiB, a small one 32 MiB. */
TEST(small_blocks_lie_apart_on_a_device_that_is_shared) {
    gml_device device;
    gml_lake *lake = open_shared(&device, 192 * GIB, NULL);
    gml_address large[PAIRS];
    const uint64_t small_chunks = PAIRS / 4 + 1;
    for (int i = 0; i < PAIRS; i++) {
        large[i] = lake_take(lake, 128 * MIB, 0);
        (void)lake_take(lake, i % 2 ? MIB / 4 : 16 * MIB, 0);
    }
    CHECK_EQ(count_chunks(lake), PAIRS + small_chunks);
    for (int i = 0; i < PAIRS; i++) {
        lake_give(lake, large[i]);
    }
    CHECK_EQ(give_all(lake), PAIRS * 128 * MIB);
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, small_chunks * 32 * MIB);
    (void)lake_take(lake, PAIRS * 128 * MIB, 0); /* where large ones were */
    CHECK_EQ(count_chunks(lake), 2 * PAIRS + small_chunks);
    close_lake(lake);
}

/* They use what they have, and what is idle anyway before they are refused. */
TEST(small_blocks_take_no_more_than_there_is) {
    gml_device device;
    gml_lake *lake = open_shared(&device, 192 * GIB, NULL);
    lake_give(lake, lake_take(lake, 128 * MIB, 0));
    uint64_t chunks = count_chunks(lake);
    (void)lake_take(lake, 16 * MIB, 0);
    (void)lake_take(lake, 16 * MIB, 0);
    CHECK_EQ(count_chunks(lake), chunks + 1);
    device.limit_bytes = device.held_bytes;
    (void)lake_take(lake, 16 * MIB, 0);
    CHECK_EQ(count_chunks(lake), chunks + 1);
    close_lake(lake);
    lake = open_shared(&device, 192 * GIB, &(gml_setting){"chunk_size", 64 * MIB});
    (void)lake_take(lake, 16 * MIB, 0);
    (void)lake_take(lake, 16 * MIB, 0);
    CHECK_EQ(count_chunks(lake), 1);
    close_lake(lake);
}

/* A server of 16 GiB of weights and a cache of 109 GiB: each chunk costs a sleep, and a wake,
 * calls.
 */
TEST(memory_that_sleeps_lies_in_few_chunks) {
    const gml_lake_config config = {
        .driver = "sim", .policy = "stitch", .capacity_bytes = 140 * GIB, .can_sleep = true};
    gml_lake *lake = lake_open_by(&config);
    (void)chunks_of(lake, 16 * GIB);
    for (int layer = 0; layer < 32; layer++) {
        (void)lake_take(lake, 3488 * MIB, 0);
    }
    CHECK(count_chunks(lake) <= 600);
    CHECK(lake_stats_of(lake).reserved_bytes <= 126 * GIB);
    close_lake(lake);
}

/* No view joins what lies behind a gap to what lies before it. */
TEST(an_arena_has_no_gaps_where_its_device_is_shared) {
    gml_device device;
    gml_lake *lake = open_shared(&device, 128 * GIB, &(gml_setting){"arena", 64 * GIB});
    (void)lake_take(lake, 16 * MIB, 0);
    CHECK(lake_take(lake, 64 * GIB - 96 * MIB, 0) != 0);
    close_lake(lake);
}

enum { PROGRAMS = 200, OPERATIONS = 3000, MOST_LIVE = 2048 };

/* What a program of random sizes does next, given its live bytes: one stays at a level, one has few
 * sizes, one has phases, one builds up and tears down, the last first. */
typedef struct random_program {
    check_random random;
    uint64_t kind, level_bytes, wanted_bytes, few[16];
} random_program;

static bool does_allocate(random_program *program, int turn, uint64_t live_bytes) {
    if (program->kind == 2 && turn % 400 == 0) {
        program->wanted_bytes =
            program->level_bytes / 4 + check_below(&program->random, program->level_bytes / 4 * 3);
    }
    bool is_below = live_bytes < program->wanted_bytes;
    if (program->kind == 3) {
        return turn / 300 % 2 ? live_bytes <= program->level_bytes / 8 : is_below;
    }
    return check_below(&program->random, 100) < (is_below ? 80u : 20u);
}

static size_t next_to_free(random_program *program, size_t count) {
    bool is_last = program->kind == 2 && check_below(&program->random, 2);
    size_t among = program->kind == 3 && count > 8 ? 8 : count;
    return is_last ? count - 1 : count - 1 - check_below(&program->random, among);
}

static random_program open_program(uint64_t seed) {
    random_program program = {.random = {seed}, .kind = seed % 4};
    program.level_bytes = (2 + check_below(&program.random, 60)) * GIB;
    program.level_bytes /= 1 + check_below(&program.random, 3);
    program.wanted_bytes = program.level_bytes;
    for (int i = 0; i < 16; i++) {
        program.few[i] = 512 * (2048 + check_below(&program.random, 95 * 2048));
    }
    return program;
}

/* The most bytes by which reserved memory ever exceeded a part more than the peak of live bytes so
 * far. */
static uint64_t most_above(uint64_t costs, uint64_t per_mille, uint64_t *driver_ns) {
    static gml_address live[MOST_LIVE];
    static uint64_t sizes[MOST_LIVE];
    uint64_t most = 0;
    *driver_ns = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        gml_lake *lake = open_for(80 * GIB, costs);
        random_program program = open_program(seed);
        size_t count = 0;
        uint64_t live_bytes = 0, peak_bytes = 0;
        for (int i = 0; i < OPERATIONS; i++) {
            bool allocates = does_allocate(&program, i, live_bytes);
            if (!count || (allocates && count < MOST_LIVE)) {
                uint64_t any = 512 * (2048 + check_below(&program.random, 95 * 2048));
                sizes[count] =
                    program.kind == 1 ? program.few[check_below(&program.random, 16)] : any;
                live[count] = lake_take(lake, sizes[count], 0);
                live_bytes += sizes[count++];
            } else {
                size_t k = next_to_free(&program, count);
                lake_give(lake, live[k]);
                live_bytes -= sizes[k];
                live[k] = live[--count];
                sizes[k] = sizes[count];
            }
            peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
            uint64_t allowed = peak_bytes + peak_bytes / 1000 * per_mille;
            uint64_t reserved = lake_stats_of(lake).reserved_bytes;
            most = reserved > allowed + most ? reserved - allowed : most;
        }
        *driver_ns += lake_stats_of(lake).driver_time_ns;
        close_lake(lake);
    }
    return most;
}

TEST(random_sizes_reserve_no_more_than_the_costs_says) {
    uint64_t time_ns, balanced_ns, memory_ns;
    CHECK(most_above(TIME, 100, &time_ns) < 192 * MIB);
    CHECK(most_above(BALANCED, 10, &balanced_ns) < 128 * MIB);
    CHECK(most_above(MEMORY, 10, &memory_ns) < 64 * MIB);
    CHECK(time_ns * 6 < balanced_ns);
    CHECK(balanced_ns * 3 < memory_ns * 2);
}
