/* Elastic buffers: addresses stay, memory comes and goes, and serves everything else meanwhile. */
#include "gmlake_elastic.h"
#include "gmlake_share.h"
#include "gmlake_sleep.h"
#include "hooks/test_hooks.h"
#include "support/check.h"
#include "support/policies.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CHUNK (2 * MIB)

static gml_lake *open_lake(const char *driver, const char *policy, uint64_t capacity_bytes,
                           uint64_t fail_call) {
    const gml_lake_config config = {
        .driver = driver,
        .policy = policy,
        .capacity_bytes = capacity_bytes,
        .hooks = GML_HOOKS(.fail_call = fail_call, .check_order = true),
    };
    gml_lake *lake = NULL;
    char reason[240] = "";
    if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
        CHECK(fail_call != 0); /* that call was the one to fail */
        gml_lake_config again = config;
        again.hooks = GML_HOOKS(.check_order = true);
        CHECK_OK(gml_lake_open(&again, &lake, reason, sizeof reason));
    }
    return lake;
}

static gml_stats stats_of(gml_lake *lake) {
    gml_stats stats = {0};
    CHECK_OK(gml_lake_stats(lake, &stats));
    return stats;
}

static uint64_t calls(gml_lake *lake, gml_driver_call call) {
    return stats_of(lake).driver_calls[call];
}

static uint64_t memory_of(gml_lake *lake, gml_address buffer) {
    gml_elastic_info info = {0};
    CHECK_OK(gml_lake_elastic(lake, buffer, &info));
    CHECK_EQ(info.address, buffer);
    CHECK_EQ(info.chunk_bytes, CHUNK);
    return info.memory_bytes;
}

static gml_status resize_to(gml_lake *lake, gml_address buffer, uint64_t size_bytes) {
    uint64_t memory_bytes = 0;
    gml_status status = gml_lake_resize_elastic(lake, buffer, size_bytes, 0, &memory_bytes);
    if (status == GML_OK) {
        CHECK_EQ(memory_bytes, memory_of(lake, buffer));
    }
    return status;
}

static unsigned char byte_of(unsigned salt, uint64_t at) {
    return (unsigned char)(salt * 41 + at / 4096 % 251 + 1);
}

static void fill(gml_lake *lake, gml_address buffer, uint64_t begin, uint64_t end, unsigned salt) {
    void *bytes = NULL;
    if (end > begin) {
        CHECK_OK(gml_lake_elastic_bytes(lake, buffer, &bytes));
        for (uint64_t at = begin; at < end; at += 4096) {
            ((unsigned char *)bytes)[at] = byte_of(salt, at);
        }
    }
}

static void check_bytes(gml_lake *lake, gml_address buffer, uint64_t end, unsigned salt) {
    void *bytes = NULL;
    uint64_t wrong = 0;
    if (end) {
        CHECK_OK(gml_lake_elastic_bytes(lake, buffer, &bytes));
        for (uint64_t at = 0; at < end; at += 4096) {
            wrong += ((unsigned char *)bytes)[at] != byte_of(salt, at);
        }
    }
    CHECK_EQ(wrong, 0);
}

static void check_one_buffer(const char *driver, const char *policy) {
    bool has_bytes = strcmp(driver, "host") == 0;
    gml_lake *lake = open_lake(driver, policy, 256 * MIB, 0);
    gml_address buffer = 0;
    CHECK_OK(gml_lake_open_elastic(lake, 40 * MIB - 5, 3, &buffer));
    CHECK_EQ(memory_of(lake, buffer), 0);
    CHECK_EQ(stats_of(lake).reserved_bytes, 0);
    CHECK_OK(resize_to(lake, buffer, 5 * MIB));
    CHECK_EQ(memory_of(lake, buffer), 6 * MIB);
    CHECK_EQ(stats_of(lake).live_bytes, 6 * MIB);
    CHECK_EQ(stats_of(lake).reserved_bytes, 6 * MIB);
    if (has_bytes) {
        fill(lake, buffer, 0, 6 * MIB, 1);
    }
    CHECK_OK(resize_to(lake, buffer, 40 * MIB - 5));
    CHECK_EQ(memory_of(lake, buffer), 40 * MIB);
    if (has_bytes) {
        check_bytes(lake, buffer, 6 * MIB, 1);
        fill(lake, buffer, 0, 40 * MIB, 2);
    }
    CHECK_STATUS(resize_to(lake, buffer, 40 * MIB + 1), GML_INVALID_ARGUMENT);
    CHECK_OK(resize_to(lake, buffer, 7 * MIB));
    CHECK_EQ(memory_of(lake, buffer), 8 * MIB);
    CHECK_EQ(stats_of(lake).live_bytes, 8 * MIB);
    if (has_bytes) {
        check_bytes(lake, buffer, 8 * MIB, 2);
    }
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close_elastic(lake, buffer));
    CHECK_STATUS(resize_to(lake, buffer, 1), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_close_elastic(lake, buffer), GML_UNKNOWN_ADDRESS);
    CHECK_EQ(stats_of(lake).live_bytes, 0);
    uint64_t released_bytes = 0;
    CHECK_OK(gml_lake_trim(lake, &released_bytes));
    CHECK_EQ(stats_of(lake).reserved_bytes, 0);
    CHECK_OK(gml_lake_close(lake));
}

TEST(a_buffer_grows_and_shrinks_at_its_address) {
    for (size_t i = 0; lending_policy(i); i++) {
        check_one_buffer("host", lending_policy(i));
    }
    check_one_buffer("sim", "stitch");
}

/* What is free in large chunks alone goes back to the device before a buffer is refused. */
TEST(large_chunks_make_room) {
    const uint64_t most_bytes = 65536 * MIB;
    uint64_t memory_bytes = 0;
    gml_lake *lake = open_lake("sim", "stitch", most_bytes, 0);
    gml_address blocks[6] = {0}, buffer = 0;
    for (int i = 0; i < 6; i++) {
        CHECK_OK(gml_lake_allocate(lake, 10240 * MIB, 0, &blocks[i]));
    }
    CHECK(calls(lake, GML_CALL_CREATE) < 61440 / 2);
    for (int i = 0; i < 6; i++) {
        CHECK_OK(gml_lake_free(lake, blocks[i]));
    }
    CHECK_OK(gml_lake_open_elastic(lake, most_bytes, 0, &buffer));
    CHECK_OK(gml_lake_resize_elastic(lake, buffer, 20 * MIB, most_bytes, &memory_bytes));
    CHECK_EQ(memory_bytes, 20 * MIB); /* it is no reason to take more ahead */
    CHECK_EQ(calls(lake, GML_CALL_RELEASE), 0);
    CHECK_OK(resize_to(lake, buffer, most_bytes));
    CHECK(calls(lake, GML_CALL_RELEASE) > 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

TEST(other_lakes_and_sizes_are_refused) {
    gml_address buffer = 0;
    gml_lake *lake = open_lake("sim", "caching", 64 * MIB, 0);
    CHECK_STATUS(gml_lake_open_elastic(lake, MIB, 0, &buffer), GML_UNSUPPORTED);
    CHECK_OK(gml_lake_close(lake));
    lake = open_lake("sim", "stitch", 64 * MIB, 0);
    CHECK_STATUS(gml_lake_open_elastic(lake, 0, 0, &buffer), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_lake_open_elastic(lake, (UINT64_C(1) << 48) + 1, 0, &buffer),
                 GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_lake_open_elastic(lake, MIB, UINT64_MAX, &buffer), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_lake_close_elastic(lake, 0), GML_UNKNOWN_ADDRESS);
    CHECK_STATUS(gml_lake_close_elastic(lake, 12345), GML_UNKNOWN_ADDRESS);
    CHECK_OK(gml_lake_close(lake));
}

/* As a refused request does, and a second try that served. */
TEST(a_refusal_is_counted_and_noted) {
    enum { ROOM = 16 };
    gml_lake *lake = open_lake("sim", "stitch", 32 * MIB, 0);
    gml_address buffer = 0, block = 0;
    gml_request list[ROOM];
    gml_torch_stats torch = {0};
    uint64_t count = 0, total = 0, tried = 0;
    CHECK_OK(gml_lake_keep_history(lake, ROOM));
    CHECK_OK(gml_lake_open_elastic(lake, 60 * MIB, 7, &buffer));
    CHECK_STATUS(gml_lake_try_elastic(lake, buffer, 40 * MIB, 0, &tried), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.num_ooms, 0);
    CHECK_STATUS(resize_to(lake, buffer, 40 * MIB), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_torch_stats(lake, &torch));
    CHECK_EQ(torch.num_alloc_retries, 2);
    CHECK_EQ(torch.num_ooms, 1);
    CHECK_OK(gml_lake_history(lake, list, ROOM, &count, &total));
    CHECK_EQ(list[count - 1].kind, GML_REQUEST_OOM);
    CHECK_EQ(list[count - 1].size_bytes, 40 * MIB);
    CHECK_EQ(list[count - 1].stream, 7);
    /* What another stream left idle makes room. */
    CHECK_OK(gml_lake_allocate(lake, 24 * MIB + 512, 0, &block));
    CHECK_OK(gml_lake_free(lake, block));
    CHECK_OK(resize_to(lake, buffer, 30 * MIB));
    CHECK_OK(gml_lake_close(lake));
}

TEST(a_buffer_sleeps_with_its_lake) {
    const gml_lake_config config = {
        .driver = "host", .policy = "stitch", .capacity_bytes = 64 * MIB, .can_sleep = true};
    gml_lake *lake = NULL;
    char reason[240] = "";
    gml_address buffer = 0;
    gml_sleep_report report = {0};
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    CHECK_OK(gml_lake_open_elastic(lake, 20 * MIB, 0, &buffer));
    CHECK_OK(resize_to(lake, buffer, 12 * MIB));
    fill(lake, buffer, 0, 12 * MIB, 6);
    CHECK_OK(resize_to(lake, buffer, 10 * MIB));
    CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_HOST, &report));
    CHECK_EQ(report.saved_bytes, 10 * MIB);
    CHECK_STATUS(resize_to(lake, buffer, 14 * MIB), GML_UNSUPPORTED);
    CHECK_OK(resize_to(lake, buffer, 8 * MIB));
    CHECK_OK(gml_lake_wake(lake, &report));
    check_bytes(lake, buffer, 8 * MIB, 6);
    CHECK_OK(resize_to(lake, buffer, 14 * MIB));
    fill(lake, buffer, 8 * MIB, 14 * MIB, 6);
    check_bytes(lake, buffer, 14 * MIB, 6);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

/* ---- any order, and failures ----------------------------------------------------------------- */

enum { BUFFERS = 4, BLOCKS = 12, STEPS = 400 };

typedef struct crowd {
    gml_lake *lake;
    gml_address buffers[BUFFERS], blocks[BLOCKS];
    uint64_t written[BUFFERS]; /* bytes that hold what fill() wrote */
} crowd;

static uint64_t in_chunks(uint64_t size_bytes) {
    return (size_bytes + CHUNK - 1) / CHUNK * CHUNK;
}

static void resize(crowd *of, size_t i, uint64_t size_bytes, uint64_t ahead_bytes) {
    uint64_t before = memory_of(of->lake, of->buffers[i]), told = before;
    gml_status status =
        gml_lake_resize_elastic(of->lake, of->buffers[i], size_bytes, ahead_bytes, &told);
    uint64_t after = memory_of(of->lake, of->buffers[i]);
    CHECK_EQ(told, after);
    if (status != GML_OK) {
        CHECK_EQ(after, before);
    } else if (after != in_chunks(size_bytes)) {
        uint64_t wished = in_chunks(size_bytes + ahead_bytes);
        CHECK(after > before);
        CHECK_EQ(after, wished < 24 * MIB ? wished : 24 * MIB);
    }
    if (of->written[i] > after) {
        of->written[i] = after;
    }
    check_bytes(of->lake, of->buffers[i], of->written[i], (unsigned)i);
    fill(of->lake, of->buffers[i], of->written[i], after, (unsigned)i);
    of->written[i] = after;
}

static void swap_block(crowd *of, size_t i, uint64_t size_bytes, gml_stream stream) {
    CHECK_OK(gml_lake_free(of->lake, of->blocks[i]));
    of->blocks[i] = 0;
    if (gml_lake_allocate(of->lake, size_bytes, stream, &of->blocks[i]) == GML_OK) {
        void *bytes = NULL;
        CHECK_OK(gml_lake_bytes(of->lake, of->blocks[i], &bytes));
        memset(bytes, 0xff, size_bytes);
    }
}

/* Buffers and blocks of two streams take turns in little memory; now and then all is trimmed. */
static void run_crowd(crowd *of, uint64_t seed, int steps) {
    check_random random = {seed};
    for (size_t i = 0; i < BUFFERS; i++) {
        for (int j = 0; j < 20 && !of->buffers[i]; j++) {
            (void)gml_lake_open_elastic(of->lake, 24 * MIB, i % 2, &of->buffers[i]);
        }
        CHECK(of->buffers[i] != 0);
    }
    for (int step = 0; step < steps; step++) {
        uint64_t kind = check_below(&random, 20);
        size_t buffer = check_below(&random, BUFFERS);
        if (kind < 10) {
            uint64_t size_bytes = check_below(&random, 24 * MIB + 1);
            resize(of, buffer, size_bytes, check_below(&random, 8 * MIB));
        } else if (kind < 19) {
            swap_block(of, check_below(&random, BLOCKS), 1 + check_below(&random, 6 * MIB),
                       check_below(&random, 2));
        } else {
            (void)gml_lake_trim(of->lake, NULL);
        }
        CHECK_OK(gml_lake_check(of->lake));
    }
    for (size_t i = 0; i < BUFFERS; i++) {
        check_bytes(of->lake, of->buffers[i], of->written[i], (unsigned)i);
    }
}

TEST(buffers_and_blocks_in_any_order) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        const char *policy = lending_policy(seed % 2) ? lending_policy(seed % 2) : "stitch";
        crowd of = {.lake = open_lake("host", policy, 64 * MIB, 0)};
        run_crowd(&of, seed, STEPS);
        CHECK_OK(gml_lake_close(of.lake));
    }
}

TEST(every_failing_call_leaves_contents_and_addresses) {
    enum { FEW = 24 };
    crowd plain = {.lake = open_lake("host", "stitch", 64 * MIB, 0)};
    run_crowd(&plain, 7, FEW);
    gml_stats stats = stats_of(plain.lake);
    uint64_t made = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        made += stats.driver_calls[i];
    }
    CHECK_OK(gml_lake_close(plain.lake));
    CHECK(made > 100);
    for (uint64_t call = 1; call <= made; call++) {
        crowd of = {.lake = open_lake("host", "stitch", 64 * MIB, call)};
        run_crowd(&of, 7, FEW);
        for (size_t i = 0; i < BUFFERS; i++) {
            CHECK_OK(gml_lake_close_elastic(of.lake, of.buffers[i]));
        }
        CHECK_OK(gml_lake_check(of.lake));
        (void)gml_lake_close(of.lake);
    }
}

/* No place was lost to a failure: each can be had, if not at once. */
static void use_every_place(gml_lake *lake, gml_address buffer) {
    enum { MOST_TRIES = 200 };
    for (uint64_t end = memory_of(lake, buffer) + CHUNK; end <= 24 * MIB; end += CHUNK) {
        gml_status status = GML_DRIVER_FAILED;
        for (int i = 0; i < MOST_TRIES && status != GML_OK; i++) {
            status = resize_to(lake, buffer, end);
        }
        CHECK_OK(status);
    }
}

/* Calls fail again and again, those that undo a failure too. */
TEST(contents_hold_while_many_calls_fail) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        gml_lake_config config = {
            .driver = "host",
            .policy = "stitch",
            .capacity_bytes = 64 * MIB,
            .hooks = GML_HOOKS(.fail_per_million = 250000, .fail_seed = seed),
        };
        crowd of = {0};
        char reason[240] = "";
        uint64_t fail_seed = seed;
        while (gml_lake_open(&config, &of.lake, reason, sizeof reason) != GML_OK) {
            fail_seed += 1000;
            config.hooks = GML_HOOKS(.fail_per_million = 250000, .fail_seed = fail_seed);
        }
        run_crowd(&of, seed, STEPS);
        for (size_t i = 0; i < BLOCKS; i++) {
            CHECK_OK(gml_lake_free(of.lake, of.blocks[i]));
        }
        for (size_t i = 0; i < BUFFERS; i++) {
            use_every_place(of.lake, of.buffers[i]);
            CHECK_OK(gml_lake_close_elastic(of.lake, of.buffers[i]));
        }
        CHECK_OK(gml_lake_check(of.lake));
        (void)gml_lake_close(of.lake);
    }
}
