/* The host refuses each piece of memory that a window asks for, one at a time. */
#include "driver/backends.h"
#include "driver/window.h"
#include "support/check.h"
#include "support/host_memory.h"

#define BASE (UINT64_C(1) << 45)

enum { RESERVED = 40 };

/* Reserves and ends again; the first failure, after which what was reserved has ended as well. */
static gml_status use(gml_driver *driver) {
    gml_address addresses[RESERVED];
    uint64_t granule = driver->info.granularity_bytes;
    gml_status status = GML_OK;
    size_t count = 0;
    while (count < RESERVED && status == GML_OK) {
        status = gml_driver_reserve(driver, granule, 4 * granule, &addresses[count]);
        count += status == GML_OK;
    }
    while (count) {
        CHECK_OK(gml_driver_unreserve(driver, addresses[--count], granule));
    }
    return status;
}

static gml_status open_and_use(gml_driver **driver) {
    gml_status status = gml_window_driver_open(BASE, driver);
    return status == GML_OK ? use(*driver) : status;
}

TEST(each_piece_of_host_memory_is_refused) {
    uint64_t failures = 0;
    gml_status status = GML_NO_HOST_MEMORY;
    for (uint64_t which = 1; status != GML_OK; which++) {
        int64_t before = host_pieces;
        char reason[GML_REASON_BYTES];
        gml_driver *driver = NULL;
        CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, 0, 0, &driver, reason, sizeof reason));
        asked = 0;
        refused_one = which;
        is_armed = true;
        status = open_and_use(&driver);
        is_armed = false;
        CHECK(status == GML_OK || status == GML_NO_HOST_MEMORY);
        failures += status != GML_OK;
        if (driver->window_bytes) {
            gml_address whole = 0;
            CHECK_OK(gml_driver_reserve(driver, driver->window_bytes, 0, &whole));
            CHECK_EQ(whole, BASE);
        }
        gml_driver_close(driver);
        CHECK_EQ(host_pieces, before);
    }
    CHECK(failures >= 3); /* the window, its range, those in it */
}
