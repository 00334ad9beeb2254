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

/* Blocks that other streams use end after the capture, not in it. */
TEST(a_frozen_lake_waits_for_no_stream) {
    gml_lake *lake = lake_open(64 * MIB);
    CHECK_OK(gml_streams_set_manual(lake->driver->streams, true));
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

int main(void) {
    return contract_main();
}
