/* Memory of the host, where the device's would have been refused. */
#include "driver/streams.h"
#include "hooks/test_hooks.h"
#include "lake/lake.h"
#include "support/check.h"
#include "support/contract.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { CAPACITY = 64, HOST = 32 };

static gml_lake *open_lake(const char *driver, uint64_t host_bytes, uint64_t fail_call) {
    const gml_setting setting = {"host", host_bytes};
    const gml_lake_config config = {
        .driver = driver,
        .policy = "stitch",
        .capacity_bytes = CAPACITY * MIB,
        .settings = &setting,
        .setting_count = 1,
        .hooks = GML_HOOKS(.fail_call = fail_call, .check_order = true),
    };
    gml_lake *lake = NULL;
    char reason[240] = "";
    if (gml_lake_open(&config, &lake, reason, sizeof reason) != GML_OK) {
        CHECK(fail_call != 0);
        lake = NULL;
    }
    return lake;
}

static void note_run(void *context) {
    *(bool *)context = true;
}

/* Eight blocks of 8 MiB fill the device. */
enum { FILLING = 8 };

static void fill_device(gml_lake *lake, gml_address blocks[FILLING]) {
    for (int i = 0; i < FILLING; i++) {
        CHECK_OK(gml_lake_allocate(lake, 8 * MIB, 0, &blocks[i]));
    }
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
}

TEST(what_the_device_lacks_comes_from_the_host) {
    static const char *const drivers[] = {"sim", "host"};
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        gml_lake *lake = open_lake(drivers[i], HOST * MIB, 0);
        gml_address blocks[FILLING], more = 0;
        char reason[240] = "";
        contract_driver = drivers[i];
        fill_device(lake, blocks);
        CHECK_OK(gml_lake_free(lake, blocks[1]));
        CHECK_OK(gml_lake_free(lake, blocks[5]));
        /* 16 MiB are free, in two pieces: the host gives the rest */
        CHECK_OK(gml_lake_allocate(lake, 26 * MIB, 0, &more));
        const live_block block = {more, 26 * MIB, 7, 0};
        lake_fill(lake, &block);
        CHECK_EQ(lake_stats_of(lake).host_bytes, 10 * MIB);
        CHECK_EQ(lake_stats_of(lake).reserved_bytes, CAPACITY * MIB);
        lake_check_filled(lake, &block);
        CHECK_OK(gml_lake_check(lake));
        CHECK_STATUS(gml_lake_allocate(lake, 30 * MIB, 0, &blocks[1]), GML_OUT_OF_MEMORY);
        gml_lake_reason(lake, reason, sizeof reason);
        CHECK(strstr(reason, "64.0 MiB of 64.0 MiB are live") != NULL);
        CHECK_OK(gml_lake_free(lake, more));
        CHECK_OK(gml_lake_check(lake));
        CHECK_OK(gml_lake_close(lake));
    }
}

TEST(what_the_device_still_has_is_taken_first) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address half = 0, more = 0;
    CHECK_OK(gml_lake_allocate(lake, 32 * MIB, 0, &half));
    CHECK_OK(gml_lake_allocate(lake, 42 * MIB, 0, &more));
    CHECK_EQ(lake_stats_of(lake).reserved_bytes, CAPACITY * MIB);
    CHECK_EQ(lake_stats_of(lake).host_bytes, 10 * MIB);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

/* The device's part serves again at once, and the host's goes as soon as the device has room. */
TEST(what_lies_on_the_host_goes_first) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address blocks[FILLING], more = 0, small = 0;
    fill_device(lake, blocks);
    CHECK_OK(gml_lake_allocate(lake, 12 * MIB, 0, &more));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 12 * MIB);
    CHECK_OK(gml_lake_free(lake, more));
    /* it serves nothing else, and while the device is full the same request again */
    CHECK_OK(gml_lake_free(lake, blocks[0]));
    CHECK_OK(gml_lake_allocate(lake, 3 * MIB, 0, &small));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 12 * MIB);
    uint64_t calls = lake_calls(lake);
    CHECK_OK(gml_lake_allocate(lake, 12 * MIB, 0, &more));
    CHECK(lake_calls(lake) <= calls + 20);
    CHECK(lake_stats_of(lake).host_bytes <= 12 * MIB);
    CHECK_OK(gml_lake_free(lake, more));
    for (int i = 1; i < FILLING; i++) {
        CHECK_OK(gml_lake_free(lake, blocks[i]));
    }
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
    CHECK_OK(gml_lake_allocate(lake, 40 * MIB, 0, &more));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

TEST(it_goes_while_every_request_fits) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address held = 0, more = 0, small = 0;
    CHECK_OK(gml_lake_set_limit(lake, 32 * MIB));
    CHECK_OK(gml_lake_allocate(lake, 32 * MIB, 0, &held));
    CHECK_OK(gml_lake_allocate(lake, 12 * MIB, 0, &more));
    CHECK_OK(gml_lake_free(lake, held));
    CHECK_OK(gml_lake_set_limit(lake, CAPACITY * MIB));
    CHECK_OK(gml_lake_free(lake, more));
    for (uint64_t i = 0; i < 300; i++) {
        CHECK_OK(gml_lake_allocate(lake, (2 + i % 2) * MIB, 0, &small));
        CHECK_OK(gml_lake_free(lake, small));
    }
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

/* Two pieces of the device and one of the host, which serves only where the device is full. */
TEST(each_side_goes_its_own_way) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address blocks[FILLING], more = 0;
    fill_device(lake, blocks);
    CHECK_OK(gml_lake_free(lake, blocks[1]));
    CHECK_OK(gml_lake_free(lake, blocks[5]));
    CHECK_OK(gml_lake_allocate(lake, 26 * MIB, 0, &more));
    CHECK_OK(gml_lake_free(lake, more));
    CHECK_OK(gml_lake_try(lake, 8 * MIB, 0, &blocks[1]));
    CHECK_OK(gml_lake_try(lake, 8 * MIB, 0, &blocks[5]));
    CHECK_STATUS(gml_lake_try(lake, 8 * MIB, 1, &more), GML_OUT_OF_MEMORY); /* no other stream's */
    CHECK_OK(gml_lake_try(lake, 8 * MIB, 0, &more));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 10 * MIB);
    CHECK_OK(gml_lake_free(lake, more));
    CHECK_OK(gml_lake_trim(lake, NULL)); /* no block lies there */
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
    CHECK_OK(gml_lake_close(lake));
}

TEST(what_is_left_of_a_chunk_serves_where_the_device_is_full) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address blocks[FILLING], more = 0, small = 0;
    fill_device(lake, blocks);
    CHECK_OK(gml_lake_allocate(lake, 8 * MIB + (1 << 19), 0, &more));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 10 * MIB);
    CHECK_OK(gml_lake_try(lake, MIB + 512, 0, &small));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 10 * MIB);
    CHECK_OK(gml_lake_free(lake, small));
    CHECK_OK(gml_lake_free(lake, more));
    /* a slab is the stream's as long as it has blocks */
    CHECK_OK(gml_lake_allocate(lake, 300 << 10, 0, &small));
    CHECK_OK(gml_lake_free(lake, small));
    CHECK_OK(gml_lake_try(lake, 10 * MIB, 0, &more));
    CHECK_STATUS(gml_lake_try(lake, 2 * MIB, 0, &small), GML_OUT_OF_MEMORY);
    CHECK_EQ(lake_stats_of(lake).host_bytes, 10 * MIB);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

TEST(the_setting_is_the_most) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address blocks[FILLING], more[4];
    fill_device(lake, blocks);
    for (int i = 0; i < 4; i++) {
        CHECK_OK(gml_lake_allocate(lake, 8 * MIB, 0, &more[i]));
    }
    CHECK_STATUS(gml_lake_allocate(lake, 8 * MIB, 0, &more[0]), GML_OUT_OF_MEMORY);
    CHECK_EQ(lake_stats_of(lake).host_bytes, HOST * MIB);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

/* A limit that is raised gives room, and nothing is waited for. */
TEST(what_work_uses_stays_and_its_views_go_with_it) {
    gml_lake *lake = open_lake("host", HOST * MIB, 0);
    gml_address blocks[FILLING], more = 0, other = 0;
    gml_streams *streams = lake->driver->streams;
    bool has_run = false;
    fill_device(lake, blocks);
    CHECK_OK(gml_lake_free(lake, blocks[1]));
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_OK(gml_lake_set_limit(lake, 56 * MIB));
    CHECK_OK(gml_lake_free(lake, blocks[3]));
    CHECK_OK(gml_lake_allocate(lake, 14 * MIB, 0, &more));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 6 * MIB);
    CHECK_EQ(lake_stats_of(lake).views, 1);
    CHECK_OK(gml_streams_set_manual(streams, true));
    CHECK_OK(gml_streams_enqueue(streams, 0, note_run, &has_run));
    CHECK_OK(gml_lake_free(lake, more));
    CHECK_OK(gml_lake_set_limit(lake, 64 * MIB));
    CHECK_STATUS(gml_lake_try(lake, 30 * MIB, 0, &other), GML_OUT_OF_MEMORY);
    CHECK(has_run || lake_stats_of(lake).host_bytes == 6 * MIB);
    CHECK_OK(gml_lake_free(lake, blocks[5]));
    CHECK_OK(gml_streams_set_manual(streams, false));
    CHECK_OK(gml_driver_device_synchronize(lake->driver));
    CHECK_STATUS(gml_lake_try(lake, 40 * MIB, 0, &other), GML_OUT_OF_MEMORY);
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
    CHECK_EQ(lake_stats_of(lake).views, 0);
    CHECK_OK(gml_lake_check(lake));
    CHECK_OK(gml_lake_close(lake));
}

TEST(without_the_setting_it_is_refused) {
    gml_lake *lake = open_lake("sim", 0, 0);
    gml_address blocks[FILLING], more = 0;
    fill_device(lake, blocks);
    CHECK_STATUS(gml_lake_allocate(lake, 2 * MIB, 0, &more), GML_OUT_OF_MEMORY);
    CHECK_OK(gml_lake_close(lake));
}

TEST(small_requests_are_served_too) {
    gml_lake *lake = open_lake("sim", HOST * MIB, 0);
    gml_address blocks[FILLING], small[8];
    fill_device(lake, blocks);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gml_lake_allocate(lake, 300 << 10, 0, &small[i]));
    }
    CHECK(lake_stats_of(lake).host_bytes > 0);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gml_lake_free(lake, small[i]));
        CHECK_OK(gml_lake_check(lake));
    }
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
    CHECK_OK(gml_lake_close(lake));
}

/* Random blocks of several streams on a device that is too small, with every byte checked. */
TEST(nothing_is_lost_on_the_way) {
    contract_driver = "host";
    for (uint64_t seed = 1; seed <= 12; seed++) {
        gml_lake *lake = open_lake("host", 256 * MIB, 0);
        live_block blocks[40];
        size_t count = lake_churn(lake, blocks, 40, 600, 3, seed);
        CHECK_OK(gml_lake_check(lake));
        CHECK(lake_stats_of(lake).highest_host_bytes > 0);
        lake_drain(lake, blocks, count);
        CHECK_OK(gml_lake_trim(lake, NULL));
        CHECK_EQ(lake_stats_of(lake).reserved_bytes, 0);
        CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
        CHECK_OK(gml_lake_close(lake));
    }
}

/* Whichever call fails: the request is refused or served, and what follows works. */
TEST(any_call_may_fail) {
    bool has_failed = true;
    for (uint64_t call = 1; has_failed && call < 400; call++) {
        gml_lake *lake = open_lake("sim", HOST * MIB, call);
        if (!lake) {
            continue;
        }
        gml_address blocks[FILLING + 1];
        size_t count = 0;
        for (size_t i = 0; i < FILLING + 1; i++) {
            uint64_t size_bytes = i < FILLING ? 8 * MIB : 18 * MIB;
            count += gml_lake_allocate(lake, size_bytes, 0, &blocks[count]) == GML_OK;
            CHECK_OK(gml_lake_check(lake));
        }
        has_failed = lake_calls(lake) >= call;
        for (size_t i = count; i-- > 0;) {
            CHECK_OK(gml_lake_free(lake, blocks[i]));
        }
        (void)gml_lake_trim(lake, NULL);
        CHECK_OK(gml_lake_trim(lake, NULL));
        CHECK_OK(gml_lake_check(lake));
        CHECK_EQ(lake_stats_of(lake).host_bytes, 0);
        CHECK_OK(gml_lake_allocate(lake, 60 * MIB, 0, &blocks[0]));
        CHECK_OK(gml_lake_close(lake));
    }
    CHECK(!has_failed);
}
