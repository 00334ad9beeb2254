/* Addresses in a window do not depend on when a device does its work, on what other processes hold,
 * or on what else lies in the address space. */
#include "driver/streams.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/policies.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define BASE (UINT64_C(1) << 45)

enum { ROUNDS = 60, REQUESTS = 40, STREAMS = 4 };

static gml_status try_open(const char *policy, const gml_setting *settings, size_t count,
                           gml_lake **out, char *reason, size_t reason_bytes) {
    const gml_lake_config config = {
        .driver = "sim", .policy = policy, .settings = settings, .setting_count = count};
    return gml_lake_open(&config, out, reason, reason_bytes);
}

static gml_lake *open_window(const char *policy) {
    const gml_setting setting = {"base", BASE};
    gml_lake *lake = NULL;
    char reason[240] = "";
    CHECK_OK(try_open(policy, &setting, 1, &lake, reason, sizeof reason));
    return lake;
}

static void do_nothing(void *context) {
    (void)context;
}

/* Steps of which no two are the same: blocks of four streams. */
static void run_steps(gml_lake *lake, gml_address *out) {
    gml_streams *streams = lake->driver->streams;
    check_random random = {7};
    for (size_t round = 0; round < ROUNDS; round++) {
        gml_address *made = &out[round * REQUESTS];
        gml_address live[REQUESTS];
        size_t count = 0;
        for (size_t i = 0; i < REQUESTS; i++) {
            gml_stream stream = check_below(&random, STREAMS);
            uint64_t size_bytes = check_below(&random, 6) ? MIB * (1 + check_below(&random, 300))
                                                          : 512 * (1 + check_below(&random, 900));
            CHECK_OK(gml_lake_allocate(lake, size_bytes, stream, &made[i]));
            CHECK(made[i] >= BASE && made[i] < BASE + (UINT64_C(1) << 42));
            CHECK_OK(gml_streams_enqueue(streams, stream, do_nothing, NULL));
            live[count++] = made[i];
            if (check_below(&random, 2)) {
                size_t freed = check_below(&random, count);
                CHECK_OK(gml_lake_free(lake, live[freed]));
                live[freed] = live[--count];
            }
        }
        while (count) {
            CHECK_OK(gml_lake_free(lake, live[--count]));
        }
    }
}

static gml_address quick[ROUNDS * REQUESTS], slow[ROUNDS * REQUESTS];

TEST(addresses_do_not_depend_on_what_others_hold) {
    for (size_t p = 0; lending_policy(p); p++) {
        gml_lake *lake = open_window(lending_policy(p));
        run_steps(lake, quick);
        CHECK_OK(gml_lake_close(lake));
        lake = open_window(lending_policy(p));
        gml_address foreign = 0;
        CHECK_OK(gml_driver_malloc(lake->driver, 73 * GIB, &foreign));
        run_steps(lake, slow);
        CHECK(memcmp(quick, slow, sizeof quick) == 0);
        CHECK_OK(gml_driver_free(lake->driver, foreign));
        CHECK_OK(gml_lake_check(lake));
        CHECK_OK(gml_lake_close(lake));
    }
}

TEST(an_arena_lies_where_the_device_puts_it) {
    const gml_setting settings[] = {{"base", BASE}, {"arena", 64 * MIB}};
    gml_lake *lake = NULL;
    char reason[240] = "";
    CHECK_STATUS(try_open("stitch", settings, 2, &lake, reason, sizeof reason),
                 GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "name base or arena") != NULL);
}
