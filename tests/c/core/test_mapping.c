/* Mappings that fail half-way: what is undone, and which failure is told. */
#include "core/mapping.h"
#include "driver/driver.h"
#include "driver/wrapped.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 2 << 20 };

static void close_both(gml_driver *self) {
    gml_driver_close(gml_wrapped_inner(self));
    free(self);
}

static gml_status refuse_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    (void)address, (void)size_bytes;
    return gml_driver_fail(self, GML_DRIVER_FAILED, "no access");
}

static gml_status refuse_unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    (void)address, (void)size_bytes;
    return gml_driver_fail(self, GML_DRIVER_FAILED, "no way back");
}

/* `sim`, where no mapping becomes accessible, nor goes if `is_stuck`. */
static gml_driver *open_refusing(bool is_stuck) {
    gml_driver *inner = NULL;
    CHECK_OK(gml_driver_open("sim", 0, UINT64_C(1) << 30, &inner, NULL, 0));
    gml_wrapped *wrapped = calloc(1, sizeof *wrapped);
    CHECK(wrapped);
    gml_wrap(wrapped, inner, close_both);
    wrapped->ops.set_access = refuse_access;
    wrapped->ops.unmap = is_stuck ? refuse_unmap : wrapped->ops.unmap;
    return &wrapped->base;
}

TEST(a_mapping_that_fails_says_why_and_not_how_undoing_it_went) {
    gml_driver *driver = open_refusing(true);
    gml_handle handles[2] = {0};
    size_t created = 0;
    gml_address address = 0;
    uint64_t mapped_bytes = 0;
    CHECK_OK(gml_chunks_create(driver, CHUNK, 2, handles, &created));
    CHECK_STATUS(gml_mapping_create(driver, handles, 2, GML_ACCESS_RANGE, &address, &mapped_bytes),
                 GML_DRIVER_FAILED);
    CHECK(strcmp(driver->reason, "no access") == 0);
    CHECK_EQ(mapped_bytes, 2 * CHUNK);
    CHECK_EQ(driver->undo_depth, 0);
    CHECK_STATUS(gml_mapping_destroy(driver, address, 2 * CHUNK, &mapped_bytes), GML_DRIVER_FAILED);
    CHECK(strcmp(driver->reason, "no way back") == 0); /* this time it is the first failure */
    gml_driver_close(driver);
}

TEST(a_mapping_that_fails_leaves_nothing) {
    gml_driver *driver = open_refusing(false);
    gml_handle handle = 0;
    gml_address address = 0;
    uint64_t mapped_bytes = 0;
    CHECK_OK(gml_driver_create(driver, CHUNK, &handle));
    CHECK_STATUS(
        gml_mapping_create(driver, &handle, 1, GML_ACCESS_EACH_CHUNK, &address, &mapped_bytes),
        GML_DRIVER_FAILED);
    CHECK(strcmp(driver->reason, "no access") == 0);
    CHECK(address == 0 && mapped_bytes == 0);
    CHECK_OK(gml_driver_release(driver, handle));
    gml_driver_close(driver);
}

TEST(undoing_nests_and_the_reason_before_may_be_quoted) {
    gml_driver *driver = open_refusing(false);
    (void)gml_driver_fail(driver, GML_MISUSE, "first");
    gml_driver_begin_undo(driver);
    gml_driver_begin_undo(driver);
    (void)gml_driver_fail(driver, GML_MISUSE, "second");
    gml_driver_end_undo(driver);
    gml_driver_take_reason(driver, gml_wrapped_inner(driver));
    gml_driver_end_undo(driver);
    CHECK(strcmp(driver->reason, "first") == 0);
    CHECK_STATUS(gml_driver_fail(driver, GML_CORRUPT, "%.3s; third", driver->reason), GML_CORRUPT);
    CHECK(strcmp(driver->reason, "fir; third") == 0);
    gml_driver_close(driver);
}
