/* Lakes that sleep and wake: addresses and contents hold, and the device has its memory meanwhile.
 */
#include "driver/streams.h"
#include "gmlake_sleep.h"
#include "hooks/test_hooks.h"
#include "lake/lake.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

enum { BLOCKS = 14, STRIDE_BYTES = 509 /* of the bytes that are looked at */ };

/* Of the calls that fail in turn: test_lake_sleep_faults lets each fail under `stitch`. One thread
 * makes them all, so the sanitizer that looks for races, under which they take ten times as long,
 * is shown fewer. */
enum { EVERY = 4 };

typedef struct sleep_test {
    gml_lake *lake;
    gml_address blocks[BLOCKS]; /* 0: none */
    uint64_t sizes[BLOCKS];
    bool has_bytes;
} sleep_test;

static gml_lake *open_lake(const char *driver, const char *policy, uint64_t fail_call) {
    const gml_lake_config config = {
        .driver = driver,
        .policy = policy,
        .capacity_bytes = 256 * MIB,
        .hooks = GML_HOOKS(.fail_call = fail_call),
        .can_sleep = true,
    };
    gml_lake *lake = NULL;
    char reason[240] = "";
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    return lake;
}

static unsigned char byte_of(size_t block, uint64_t at) {
    return (unsigned char)(block * 37 + at % 251 + 1);
}

static void fill(const sleep_test *test, size_t block) {
    void *bytes = NULL;
    if (!test->has_bytes) {
        return;
    }
    CHECK_OK(gml_lake_bytes(test->lake, test->blocks[block], &bytes));
    for (uint64_t at = 0; at < test->sizes[block]; at += STRIDE_BYTES) {
        ((unsigned char *)bytes)[at] = byte_of(block, at);
    }
}

static void check_bytes(const sleep_test *test, size_t block) {
    void *bytes = NULL;
    if (!test->has_bytes || !test->blocks[block]) {
        return;
    }
    CHECK_OK(gml_lake_bytes(test->lake, test->blocks[block], &bytes));
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < test->sizes[block]; at += STRIDE_BYTES) {
        wrong += ((unsigned char *)bytes)[at] != byte_of(block, at);
    }
    CHECK_EQ(wrong, 0);
}

static void check_contents(const sleep_test *test) {
    for (size_t i = 0; i < BLOCKS; i++) {
        check_bytes(test, i);
    }
    CHECK_OK(gml_lake_check(test->lake));
}

/* Blocks of many sizes, every third freed, and then some that fit into no hole: under `stitch` they
 * lie in views. Whether all could be had: a call may fail on purpose. */
static bool populate(sleep_test *test) {
    static const uint64_t sizes[] = {1000, 3 * MIB, 300000, 2 * MIB, 3 * MIB + 512, 70000};
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i >= BLOCKS - 3) {
            size_t freed = (i - (BLOCKS - 3)) * 3 + 1;
            CHECK_OK(gml_lake_free(test->lake, test->blocks[freed]));
            test->blocks[freed] = 0;
        }
        test->sizes[i] = i >= BLOCKS - 2 ? 6 * MIB : sizes[i % 6];
        if (gml_lake_allocate(test->lake, test->sizes[i], i % 3, &test->blocks[i]) != GML_OK) {
            test->blocks[i] = 0;
            return false;
        }
        fill(test, i);
    }
    return true;
}

/* Calls that can have failed so far: at least, and at most. What a lake calls a malloc or a free
 * are four calls below it where memory can sleep. */
static void count_calls(gml_lake *lake, uint64_t *least, uint64_t *most) {
    gml_stats stats = {0};
    CHECK_OK(gml_lake_stats(lake, &stats));
    *least = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        *least += i == GML_CALL_MEMORY_INFO ? 0 : stats.driver_calls[i];
    }
    *most = *least + 3 * (stats.driver_calls[GML_CALL_MALLOC] + stats.driver_calls[GML_CALL_FREE]);
}

static void sleep_and_wake(const char *driver, const char *policy, gml_backup backup) {
    sleep_test test = {.lake = open_lake(driver, policy, 0),
                       .has_bytes = strcmp(driver, "host") == 0};
    gml_stats stats = {0};
    CHECK(populate(&test));
    CHECK_OK(gml_lake_stats(test.lake, &stats));
    CHECK(strcmp(policy, "stitch") != 0 || stats.states[GML_STATE_STITCH] > 0);
    for (int round = 0; round < 3; round++) {
        gml_sleep_report slept = {0}, woken = {0};
        gml_address refused = 0;
        CHECK_OK(gml_lake_sleep(test.lake, backup, &slept));
        CHECK(gml_lake_is_asleep(test.lake));
        CHECK(slept.released_bytes > 20 * MIB);
        CHECK_EQ(slept.kept_bytes, 0);
        CHECK_EQ(slept.saved_bytes > 0, backup != GML_BACKUP_NONE);
        CHECK_STATUS(gml_lake_sleep(test.lake, backup, &slept), GML_INVALID_ARGUMENT);
        CHECK_STATUS(gml_lake_allocate(test.lake, 4096, 0, &refused), GML_UNSUPPORTED);
        /* What is freed while asleep does not come back. */
        size_t freed = (size_t)round * 3 + 3;
        CHECK_OK(gml_lake_free(test.lake, test.blocks[freed]));
        test.blocks[freed] = 0;
        uint64_t freed_bytes = test.sizes[freed], ignored = 0;
        CHECK_OK(gml_lake_trim(test.lake, &ignored));
        CHECK_OK(gml_lake_wake(test.lake, &woken));
        CHECK(!gml_lake_is_asleep(test.lake));
        CHECK_EQ(woken.saved_bytes,
                 backup == GML_BACKUP_NONE ? 0 : slept.saved_bytes - freed_bytes);
        CHECK_STATUS(gml_lake_wake(test.lake, &woken), GML_INVALID_ARGUMENT);
        if (backup != GML_BACKUP_NONE) {
            check_contents(&test);
        }
        CHECK_OK(gml_lake_allocate(test.lake, test.sizes[freed], 1, &test.blocks[freed]));
        fill(&test, freed);
    }
    CHECK_OK(gml_lake_check(test.lake));
    CHECK_OK(gml_lake_close(test.lake));
}

TEST(contents_come_back_under_every_policy) {
    static const gml_backup backups[] = {GML_BACKUP_HOST, GML_BACKUP_NONE};
    for (size_t i = 0; gml_policy_name(i); i++) {
        for (size_t j = 0; j < 2; j++) {
            sleep_and_wake("host", gml_policy_name(i), backups[j]);
            sleep_and_wake("sim", gml_policy_name(i), backups[j]);
        }
    }
}

/* Each call of sleeping and waking fails in turn. Contents and addresses hold in any case: either
 * the call succeeds, or it fails and the next one does not. */
static void fail_in_turn(const char *policy, gml_backup backup) {
    uint64_t first_call = 0, last_call = 0, ignored = 0, failures = 0;
    sleep_test plain = {.lake = open_lake("host", policy, UINT64_MAX), .has_bytes = true};
    gml_sleep_report report = {0};
    CHECK(populate(&plain));
    count_calls(plain.lake, &first_call, &ignored);
    CHECK_OK(gml_lake_sleep(plain.lake, backup, &report));
    CHECK_OK(gml_lake_wake(plain.lake, &report));
    count_calls(plain.lake, &ignored, &last_call);
    CHECK_OK(gml_lake_close(plain.lake));
    for (uint64_t call = first_call + 1; call <= last_call; call += EVERY) {
        sleep_test test = {.lake = open_lake("host", policy, call), .has_bytes = true};
        if (!populate(&test)) { /* where calls of mallocs were counted too low */
            CHECK_OK(gml_lake_close(test.lake));
            continue;
        }
        if (gml_lake_sleep(test.lake, backup, &report) != GML_OK) {
            failures++;
            CHECK(!gml_lake_is_asleep(test.lake));
            check_contents(&test);
            CHECK_OK(gml_lake_sleep(test.lake, backup, &report));
        }
        CHECK(gml_lake_is_asleep(test.lake));
        if (gml_lake_wake(test.lake, &report) != GML_OK) {
            failures++;
            CHECK(gml_lake_is_asleep(test.lake));
            CHECK_OK(gml_lake_wake(test.lake, &report));
        }
        check_contents(&test);
        CHECK_OK(gml_lake_close(test.lake));
    }
    CHECK(failures > 20 / EVERY);
}

TEST(every_failing_call_leaves_contents_and_addresses) {
    for (size_t i = 0; gml_policy_name(i); i++) {
        fail_in_turn(gml_policy_name(i), GML_BACKUP_HOST);
    }
}

static void note_run(void *context) {
    *(bool *)context = true;
}

/* As a device does not take plain memory back before the work is done that may use it. */
TEST(plain_memory_stays_until_queued_work_has_run) {
    const gml_setting oversize = {"max_split_size", 20 * MIB};
    const gml_lake_config config = {
        .driver = "sim",
        .policy = "caching",
        .capacity_bytes = 64 * MIB,
        .settings = &oversize,
        .setting_count = 1,
        .can_sleep = true,
    };
    gml_lake *lake = NULL;
    gml_address block = 0;
    bool has_run = false;
    CHECK_OK(gml_lake_open(&config, &lake, NULL, 0));
    gml_streams *streams = lake->driver->streams;
    CHECK_OK(gml_streams_set_manual(streams, true));
    CHECK_OK(gml_lake_allocate(lake, 40 * MIB, 1, &block));
    CHECK_OK(gml_streams_enqueue(streams, 1, note_run, &has_run));
    CHECK_OK(gml_lake_free(lake, block));
    CHECK(!has_run);
    CHECK_OK(gml_lake_allocate(lake, 60 * MIB, 1, &block)); /* for which the other goes */
    CHECK(has_run);
    CHECK_OK(gml_lake_close(lake));
}

TEST(other_lakes_refuse) {
    const gml_lake_config config = {.driver = "host", .policy = "stitch"};
    gml_lake *lake = NULL;
    gml_sleep_report report = {0};
    char reason[240] = "";
    CHECK_OK(gml_lake_open(&config, &lake, reason, sizeof reason));
    CHECK_STATUS(gml_lake_sleep(lake, GML_BACKUP_NONE, &report), GML_UNSUPPORTED);
    CHECK_STATUS(gml_lake_wake(lake, &report), GML_UNSUPPORTED);
    CHECK(!gml_lake_is_asleep(lake));
    CHECK_OK(gml_lake_close(lake));
    const gml_setting arena = {"arena", 8 * MIB};
    gml_lake_config in_arena = config;
    in_arena.settings = &arena;
    in_arena.setting_count = 1;
    in_arena.can_sleep = true;
    CHECK_STATUS(gml_lake_open(&in_arena, &lake, reason, sizeof reason), GML_UNSUPPORTED);
    CHECK(strstr(reason, "can sleep only where it is mapped") != NULL);
}

/* The host's memory goes back when nothing is left that it could be for. */
TEST(trimming_gives_the_hosts_memory_back) {
    for (int is_asleep = 0; is_asleep < 2; is_asleep++) {
        sleep_test test = {.lake = open_lake("host", "stitch", 0), .has_bytes = true};
        gml_sleep_report report = {0};
        gml_stats stats = {0};
        CHECK(populate(&test));
        CHECK_OK(gml_lake_sleep(test.lake, GML_BACKUP_HOST, &report));
        if (!is_asleep) {
            CHECK_OK(gml_lake_wake(test.lake, &report));
        }
        for (size_t i = 0; i < BLOCKS; i++) {
            CHECK_OK(gml_lake_trim(test.lake, NULL));
            CHECK_OK(gml_lake_stats(test.lake, &stats));
            CHECK_EQ(stats.driver_calls[GML_CALL_HOST_FREE], 0);
            if (test.blocks[i]) {
                CHECK_OK(gml_lake_free(test.lake, test.blocks[i]));
            }
        }
        CHECK_OK(gml_lake_trim(test.lake, NULL));
        CHECK_OK(gml_lake_stats(test.lake, &stats));
        CHECK_EQ(stats.driver_calls[GML_CALL_HOST_FREE], 1);
        if (is_asleep) {
            CHECK_OK(gml_lake_wake(test.lake, &report));
        }
        CHECK_OK(gml_lake_check(test.lake));
        CHECK_OK(gml_lake_close(test.lake));
    }
}

/* A lake may end while it sleeps. */
TEST(a_sleeping_lake_closes) {
    for (size_t i = 0; gml_policy_name(i); i++) {
        sleep_test test = {.lake = open_lake("host", gml_policy_name(i), 0), .has_bytes = true};
        gml_sleep_report report = {0};
        uint64_t released_bytes = 0;
        CHECK(populate(&test));
        CHECK_OK(gml_lake_sleep(test.lake, GML_BACKUP_HOST, &report));
        CHECK_OK(gml_lake_free(test.lake, test.blocks[2]));
        CHECK_OK(gml_lake_trim(test.lake, &released_bytes));
        CHECK_OK(gml_lake_check(test.lake));
        CHECK_OK(gml_lake_close(test.lake));
    }
}

/* Blocks that a model has, in a lake of a large device; the calls of its chunks. */
static gml_stats stats_of_a_model(bool can_sleep, gml_lake **out) {
    const gml_lake_config config = {.driver = "sim",
                                    .policy = "stitch",
                                    .capacity_bytes = 64 * 1024 * MIB,
                                    .can_sleep = can_sleep};
    gml_stats stats = {0};
    gml_address address = 0;
    char reason[240] = "";
    CHECK_OK(gml_lake_open(&config, out, reason, sizeof reason));
    for (int i = 0; i < 96; i++) {
        CHECK_OK(gml_lake_allocate(*out, 86 * MIB, 1, &address));
    }
    CHECK_OK(gml_lake_stats(*out, &stats));
    return stats;
}

/* Beside a cache that fills the device the chunks of work are not as small as if they were all
 * there is: they go with every sleep, too. */
TEST(chunks_beside_a_large_lake_are_larger) {
    uint64_t created[2];
    for (int i = 0; i < 2; i++) {
        gml_device device = {.held_bytes = i ? 64 * 1024 * MIB : 0};
        const gml_lake_config config = {.driver = "sim",
                                        .policy = "stitch",
                                        .capacity_bytes = 12 * 1024 * MIB,
                                        .shared = &device};
        gml_lake *lake = NULL;
        gml_stats stats = {0};
        gml_address address = 0;
        CHECK_OK(gml_lake_open(&config, &lake, NULL, 0));
        for (int block = 0; block < 96; block++) {
            CHECK_OK(gml_lake_allocate(lake, 86 * MIB, 1, &address));
        }
        CHECK_OK(gml_lake_stats(lake, &stats));
        created[i] = stats.driver_calls[GML_CALL_CREATE];
        CHECK_OK(gml_lake_close(lake));
    }
    CHECK(created[1] * 2 < created[0]);
}

/* The calls for a chunk come again with every sleep. */
TEST(chunks_that_can_sleep_are_large) {
    gml_lake *plain = NULL, *sleeping = NULL;
    gml_stats of_plain = stats_of_a_model(false, &plain);
    gml_stats of_sleeping = stats_of_a_model(true, &sleeping);
    CHECK(of_sleeping.driver_calls[GML_CALL_CREATE] * 4 < of_plain.driver_calls[GML_CALL_CREATE]);
    CHECK(of_sleeping.reserved_bytes <= of_sleeping.live_bytes + 64 * MIB);
    CHECK_OK(gml_lake_close(plain));
    CHECK_OK(gml_lake_close(sleeping));
}

/* Opening a chunk waits for the copies into those before it. */
TEST(waking_opens_in_one_call_what_was_opened_in_one) {
    gml_lake *lake = NULL;
    gml_sleep_report report = {0};
    gml_stats before = stats_of_a_model(true, &lake), after = {0};
    CHECK_OK(gml_lake_sleep(lake, GML_BACKUP_NONE, &report));
    CHECK_OK(gml_lake_wake(lake, &report));
    CHECK_OK(gml_lake_stats(lake, &after));
    uint64_t opened =
        after.driver_calls[GML_CALL_SET_ACCESS] - before.driver_calls[GML_CALL_SET_ACCESS];
    uint64_t parts = before.reserved_bytes / (512 * MIB) + 1;
    CHECK(opened <= before.driver_calls[GML_CALL_SET_ACCESS] + parts);
    CHECK_EQ(after.driver_calls[GML_CALL_MAP], 2 * before.driver_calls[GML_CALL_MAP]);
    CHECK(opened < before.driver_calls[GML_CALL_MAP]);
    CHECK_OK(gml_lake_close(lake));
}
