/* The driver that fails on purpose: which call, with what, and that nobody below sees it. */
#include "driver/backends.h"
#include "driver/driver.h"
#include "driver/streams.h"
#include "hooks/fault.h"
#include "support/check.h"

#include <string.h>

static const uint64_t CHUNK_BYTES = UINT64_C(2) << 20;

static gml_driver *open_sim(void) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    CHECK_OK(gml_sim_driver_open(0, 0, &driver, reason, sizeof reason));
    return driver;
}

/* `inner` may be NULL. */
static gml_driver *open_fault(uint64_t nth, uint64_t per_million, uint64_t seed,
                              gml_driver **inner) {
    gml_driver *wrapped = open_sim();
    gml_driver *driver = NULL;
    CHECK_OK(gml_fault_driver_open(wrapped, nth, per_million, seed, &driver));
    if (inner) {
        *inner = wrapped;
    }
    return driver;
}

enum { STEPS = 19 };

/* Makes each call that can fail once, in a fixed order, and notes the answers. A failed step leaves
 * later ones without their handle, which is why only the first failure counts. */
static void make_every_call(gml_driver *driver, gml_status *statuses) {
    gml_handle handle = 0;
    gml_address range = 0;
    gml_address block = 0;
    gml_event event = 0;
    bool is_capturing;
    int i = 0;
    statuses[i++] = gml_driver_create(driver, CHUNK_BYTES, &handle);
    statuses[i++] = gml_driver_reserve(driver, CHUNK_BYTES, 0, &range);
    statuses[i++] = gml_driver_map(driver, range, CHUNK_BYTES, handle);
    statuses[i++] = gml_driver_set_access(driver, range, CHUNK_BYTES);
    statuses[i++] = gml_driver_unmap(driver, range, CHUNK_BYTES);
    statuses[i++] = gml_driver_unreserve(driver, range, CHUNK_BYTES);
    statuses[i++] = gml_driver_release(driver, handle);
    statuses[i++] = gml_driver_malloc(driver, CHUNK_BYTES, &block);
    statuses[i++] = gml_driver_free(driver, block);
    statuses[i++] = gml_driver_event_create(driver, &event);
    statuses[i++] = gml_driver_event_record(driver, event, 1);
    statuses[i++] = gml_driver_event_query(driver, event);
    statuses[i++] = gml_driver_event_synchronize(driver, event);
    statuses[i++] = gml_driver_stream_wait(driver, 2, event);
    statuses[i++] = gml_driver_stream_synchronize(driver, 2);
    statuses[i++] = gml_driver_stream_capturing(driver, 2, &is_capturing);
    statuses[i++] = gml_driver_device_synchronize(driver);
    statuses[i++] = gml_driver_event_destroy(driver, event);
    statuses[i++] = gml_driver_create(driver, CHUNK_BYTES, &handle);
}

TEST(the_nth_call_fails_and_is_not_made) {
    for (uint64_t nth = 1; nth <= STEPS; nth++) {
        gml_status statuses[STEPS];
        gml_driver *inner;
        gml_driver *driver = open_fault(nth, 0, 0, &inner);
        make_every_call(driver, statuses);
        for (uint64_t i = 0; i + 1 < nth; i++) {
            CHECK_OK(statuses[i]);
        }
        bool takes_memory = nth == 1 || nth == 3 || nth == 8 || nth == 19;
        CHECK_STATUS(statuses[nth - 1], takes_memory ? GML_OUT_OF_MEMORY : GML_DRIVER_FAILED);
        gml_driver_close(driver);
    }
}

TEST(memory_info_and_options_never_fail) {
    gml_driver *driver = open_fault(1, 1000000, 5, NULL);
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    gml_address address = 0;
    void *bytes = NULL;
    CHECK_OK(gml_driver_memory_info(driver, &free_bytes, &total_bytes));
    CHECK_OK(gml_driver_expect_malloc(driver, UINT64_C(0x7f0000000000), CHUNK_BYTES));
    CHECK_STATUS(gml_driver_bytes(driver, 512, 1, &bytes), GML_MISUSE);
    CHECK_STATUS(gml_driver_malloc(driver, CHUNK_BYTES, &address), GML_OUT_OF_MEMORY);
    CHECK(gml_driver_streams(driver) != NULL);
    gml_driver_close(driver);
}
