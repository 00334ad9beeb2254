/* The base range against a plain array of 512-byte lines, and its driver calls under failure.
 */
#include "core/base_range.h"
#include "core/freeset.h"
#include "driver/handed.h"
#include "hooks/fault.h"
#include "support/check.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define CHUNK (2 * MIB)

static gml_driver *open_driver(void) {
    gml_driver *driver = NULL;
    char reason[256];
    CHECK_OK(gml_driver_open("sim", 0, 0, &driver, reason, sizeof reason));
    return driver;
}

/* Growth takes what another process handed over: the largest that fits, and no other size. */
TEST(chunks_have_the_sizes_that_were_handed_over) {
    gml_handed handed = {.lock = PTHREAD_MUTEX_INITIALIZER, .bytes = 7 * CHUNK, .count = 3};
    handed.pieces[0] = (gml_shared_piece){-1, 2 * CHUNK};
    handed.pieces[1] = (gml_shared_piece){-1, 4 * CHUNK};
    handed.pieces[2] = (gml_shared_piece){-1, CHUNK + 512};
    gml_driver *driver = open_driver();
    gml_base_range range;
    gml_freeset set;
    gml_freeset_init(&set, 0);
    driver->device->handed = &handed;
    CHECK_OK(gml_base_range_open(&range, driver, CHUNK, 64));
    CHECK_OK(gml_base_range_grow(&range, 8 * CHUNK, 8 * CHUNK, &set));
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 0), 4 * CHUNK);
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 4 * CHUNK), 4 * CHUNK);
    handed.count = 1;
    CHECK_OK(gml_base_range_grow(&range, 4 * CHUNK, 8 * CHUNK, &set));
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 8 * CHUNK), 2 * CHUNK);
    handed.pieces[0].size_bytes = CHUNK + 512;
    CHECK_OK(gml_base_range_grow(&range, 4 * CHUNK, 8 * CHUNK, &set));
    CHECK_EQ(gml_base_range_chunk_bytes(&range, 12 * CHUNK), 4 * CHUNK);
    CHECK_EQ(range.held_bytes, 16 * CHUNK);
    CHECK_OK(gml_base_range_close(&range));
    gml_driver_close(driver);
}
