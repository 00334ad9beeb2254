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
    CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, 0, 0, &driver, reason, sizeof reason));
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
    CHECK(driver->streams != NULL);
    gml_driver_close(driver);
}

TEST(reasons_come_through) {
    gml_driver *driver = open_fault(0, 0, 0, NULL);
    CHECK_STATUS(gml_driver_release(driver, 99), GML_MISUSE);
    CHECK(strstr(driver->reason, "99") != NULL);
    CHECK(strcmp(driver->ops->name, "sim") == 0);
    CHECK_EQ(driver->info.granularity_bytes, CHUNK_BYTES);
    gml_driver_close(driver);
}
