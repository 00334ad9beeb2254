/* How much a lake may hold, and what it may not do while a graph is being captured. */
#include "driver/driver.h"
#include "driver/streams.h"
#include "hooks/fault.h"
#include "lake/lake.h"
#include "support/contract.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum { MOST_TAKEN = 64 };

/* Takes blocks of 4 MiB until one is refused; returns how many there are. */
static size_t take_all(gml_lake *lake, gml_address taken[MOST_TAKEN]) {
    size_t count = 0;
    gml_status status = GML_OK;
    while (count < MOST_TAKEN && status == GML_OK) {
        status = gml_lake_allocate(lake, 4 * MIB, 0, &taken[count]);
        count += status == GML_OK;
    }
    CHECK_STATUS(status, GML_OUT_OF_MEMORY);
    return count;
}

static void give_all(gml_lake *lake, const gml_address *taken, size_t count) {
    for (size_t i = 0; i < count; i++) {
        lake_give(lake, taken[i]);
    }
}

/* ---- a lake's limit -------------------------------------------------------------------------- */

TEST(no_limit_lies_above_the_capacity) {
    gml_lake *lake = lake_open(40 * MIB);
    gml_address taken[MOST_TAKEN];
    CHECK_OK(gml_lake_set_limit(lake, 400 * MIB));
    size_t count = take_all(lake, taken);
    CHECK(count * 4 * MIB <= 40 * MIB && lake_stats_of(lake).reserved_bytes <= 40 * MIB);
    give_all(lake, taken, count);
    CHECK_OK(gml_lake_trim(lake, NULL));
    CHECK_OK(gml_lake_set_limit(lake, 20 * MIB));
    CHECK(take_all(lake, taken) < count);
    CHECK_OK(gml_lake_set_limit(lake, 0)); /* the capacity again */
    CHECK(take_all(lake, taken) > 0);
    CHECK(lake_stats_of(lake).reserved_bytes > 20 * MIB);
    CHECK_OK(gml_lake_close(lake));
}

TEST(a_refusal_names_the_limit) {
    gml_lake *lake = lake_open(200 * MIB);
    gml_address address;
    char reason[256] = "";
    CHECK_OK(gml_lake_set_limit(lake, 48 * MIB));
    CHECK_STATUS(gml_lake_allocate(lake, 60 * MIB, 0, &address), GML_OUT_OF_MEMORY);
    gml_lake_reason(lake, reason, sizeof reason);
    CHECK(strstr(reason, "48.0 MiB") != NULL);
    lake_finish(lake);
}

/* ---- a capture ------------------------------------------------------------------------------- */

static const gml_driver_call forbidden[] = {GML_CALL_RELEASE,
                                            GML_CALL_UNMAP,
                                            GML_CALL_FREE,
                                            GML_CALL_EVENT_RECORD,
                                            GML_CALL_EVENT_QUERY,
                                            GML_CALL_EVENT_SYNCHRONIZE,
                                            GML_CALL_STREAM_WAIT,
                                            GML_CALL_STREAM_SYNCHRONIZE,
                                            GML_CALL_DEVICE_SYNCHRONIZE};

/* Blocks that other streams use end after the capture, not in it. */
TEST(a_frozen_lake_waits_for_no_stream) {
    gml_lake *lake = lake_open(64 * MIB);
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(lake->driver), true));
    gml_address first = lake_take(lake, 40 * MIB, 0);
    CHECK_OK(gml_lake_record_stream(lake, first, 7));
    lake->driver->device->captures = true;
    lake_give(lake, first);
    gml_address second = 0;
    CHECK_STATUS(gml_lake_allocate(lake, 40 * MIB, 0, &second), GML_OUT_OF_MEMORY);
    CHECK_EQ(lake_stats_of(lake).live_blocks, 1);
    lake->driver->device->captures = false;
    second = lake_take(lake, 40 * MIB, 0);
    CHECK_EQ(lake_stats_of(lake).live_blocks, 1);
    lake_give(lake, second);
    lake_finish(lake);
}

/* ---- the driver's part ----------------------------------------------------------------------- */

static gml_driver *open_wrapped(void) {
    gml_driver *inner = NULL;
    gml_driver *driver = NULL;
    char reason[GML_REASON_BYTES];
    CHECK_OK(gml_driver_open(contract_driver, 0, 512 * MIB, &inner, reason, sizeof reason));
    CHECK_OK(gml_fault_driver_open(inner, 0, 0, 0, &driver));
    return driver;
}

TEST(the_driver_counts_what_is_held) {
    gml_driver *driver = open_wrapped();
    gml_handle handles[2];
    gml_address address;
    CHECK_OK(gml_driver_create(driver, 4 * MIB, &handles[0]));
    CHECK_OK(gml_driver_create(driver, 6 * MIB, &handles[1]));
    CHECK_OK(gml_driver_malloc(driver, 8 * MIB, &address));
    CHECK_EQ(driver->held_bytes, 18 * MIB);
    CHECK_EQ(driver->sizes.count, 3);
    CHECK(gml_driver_release(driver, 99999) != GML_OK);
    CHECK_EQ(driver->held_bytes, 18 * MIB);
    CHECK_OK(gml_driver_release(driver, handles[0]));
    CHECK_EQ(driver->held_bytes, 14 * MIB);
    CHECK_OK(gml_driver_free(driver, address));
    CHECK_EQ(driver->held_bytes, 6 * MIB);
    CHECK_OK(gml_driver_release(driver, handles[1]));
    CHECK_EQ(driver->held_bytes, 0);
    CHECK_EQ(driver->sizes.count, 0);
    gml_driver_close(driver);
}

static void check_refused(const gml_driver *driver, gml_status status) {
    CHECK_STATUS(status, GML_UNSUPPORTED);
    CHECK(strstr(driver->reason, "captured") != NULL);
}

TEST(a_frozen_driver_makes_no_call_that_a_capture_forbids) {
    gml_driver *driver = open_wrapped();
    gml_handle handle;
    gml_address plain, range;
    gml_event event;
    CHECK_OK(gml_driver_create(driver, 4 * MIB, &handle));
    CHECK_OK(gml_driver_malloc(driver, 4 * MIB, &plain));
    driver->device->captures = true;
    CHECK_OK(gml_driver_reserve(driver, 4 * MIB, 0, &range));
    CHECK_OK(gml_driver_map(driver, range, 4 * MIB, handle));
    CHECK_OK(gml_driver_set_access(driver, range, 4 * MIB));
    CHECK_OK(gml_driver_event_create(driver, &event));
    check_refused(driver, gml_driver_release(driver, handle));
    check_refused(driver, gml_driver_unmap(driver, range, 4 * MIB));
    check_refused(driver, gml_driver_free(driver, plain));
    check_refused(driver, gml_driver_event_record(driver, event, 0));
    check_refused(driver, gml_driver_event_query(driver, event));
    check_refused(driver, gml_driver_event_synchronize(driver, event));
    check_refused(driver, gml_driver_stream_wait(driver, 0, event));
    check_refused(driver, gml_driver_stream_synchronize(driver, 0));
    check_refused(driver, gml_driver_device_synchronize(driver));
    CHECK_EQ(driver->held_bytes, 8 * MIB);
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        CHECK_EQ(driver->calls[forbidden[i]], 0);
    }
    driver->device->captures = false;
    CHECK_OK(gml_driver_event_destroy(driver, event));
    CHECK_OK(gml_driver_unmap(driver, range, 4 * MIB));
    CHECK_OK(gml_driver_unreserve(driver, range, 4 * MIB));
    CHECK_OK(gml_driver_release(driver, handle));
    CHECK_OK(gml_driver_free(driver, plain));
    CHECK_EQ(driver->held_bytes, 0);
    gml_driver_close(driver);
}
int main(void) {
    return contract_main();
}
