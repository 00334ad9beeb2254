/* What the core relies on in virtual memory: one test per sentence of docs/driver.md, over
 * every backend. */
#include "support/driver_contract.h"

#include <string.h>

/* ---- physical memory ------------------------------------------------------------------------- */

TEST(create_wants_multiples_of_the_granularity) {
    gml_driver *driver = open_driver();
    uint64_t granule = driver->info.granularity_bytes;
    gml_handle handle = 0;
    CHECK(granule >= 512 && (granule & (granule - 1)) == 0);
    check_refused(driver, gml_driver_create(driver, granule / 2, &handle));
    check_refused(driver, gml_driver_create(driver, granule + 1, &handle));
    check_refused(driver, gml_driver_create(driver, 0, &handle));
    CHECK_EQ(handle, 0);
    gml_driver_close(driver);
}

TEST(memory_goes_at_the_last_unmap_after_release) {
    scene of = open_scene();
    map_at(&of, 0, of.handles[0]);
    map_at(&of, 2, of.handles[0]);
    release_handles(&of);
    check_taken(of.driver, of.free_before, of.granule);
    unmap_at(&of, 0, 1);
    check_taken(of.driver, of.free_before, of.granule);
    unmap_at(&of, 2, 1);
    close_scene(&of);
}

/* ---- address space --------------------------------------------------------------------------- */

TEST(reserve_keeps_the_alignment) {
    gml_driver *driver = open_driver();
    uint64_t granule = driver->info.granularity_bytes;
    for (uint64_t alignment = granule; alignment <= 64 * granule; alignment *= 4) {
        gml_address address = 0;
        CHECK_OK(gml_driver_reserve(driver, granule, alignment, &address));
        CHECK(address != 0 && address % alignment == 0);
        CHECK_OK(gml_driver_unreserve(driver, address, granule));
    }
    gml_driver_close(driver);
}

TEST(unreserve_wants_nothing_mapped) {
    scene of = open_scene();
    map_at(&of, 3, of.handles[0]);
    check_refused(of.driver, gml_driver_unreserve(of.driver, of.base, SOME_GRANULES * of.granule));
    unmap_at(&of, 3, 1);
    close_scene(&of);
}

/* ---- mapping --------------------------------------------------------------------------------- */

TEST(map_takes_the_whole_handle) {
    scene of = open_scene();
    gml_handle pair = 0;
    CHECK_OK(gml_driver_create(of.driver, 2 * of.granule, &pair));
    check_refused(of.driver, gml_driver_map(of.driver, of.base, of.granule, pair));
    check_refused(of.driver, gml_driver_map(of.driver, of.base, 3 * of.granule, pair));
    CHECK_OK(gml_driver_map(of.driver, of.base, 2 * of.granule, pair));
    CHECK_OK(gml_driver_release(of.driver, pair));
    unmap_at(&of, 0, 2);
    close_scene(&of);
}

TEST(map_wants_aligned_addresses) {
    scene of = open_scene();
    check_refused(of.driver,
                  gml_driver_map(of.driver, of.base + of.granule / 2, of.granule, of.handles[0]));
    close_scene(&of);
}

TEST(unmap_takes_no_part_of_a_mapping) {
    scene of = open_scene();
    gml_handle pair = 0;
    CHECK_OK(gml_driver_create(of.driver, 2 * of.granule, &pair));
    CHECK_OK(gml_driver_map(of.driver, of.base, 2 * of.granule, pair));
    CHECK_OK(gml_driver_release(of.driver, pair));
    check_refused(of.driver, gml_driver_unmap(of.driver, of.base, of.granule));
    check_refused(of.driver, gml_driver_unmap(of.driver, granule_at(&of, 1), of.granule));
    unmap_at(&of, 0, 2);
    close_scene(&of);
}

TEST(unmap_wants_a_mapping) {
    scene of = open_scene();
    check_refused_but_on_a_gpu(of.driver, gml_driver_unmap(of.driver, of.base, of.granule));
    map_at(&of, 0, of.handles[0]);
    unmap_at(&of, 0, 1);
    check_refused_but_on_a_gpu(of.driver, gml_driver_unmap(of.driver, of.base, of.granule));
    check_refused(of.driver, gml_driver_unmap(of.driver, of.base, 0));
    close_scene(&of);
}

/* ---- access ---------------------------------------------------------------------------------- */

/* A kernel that touched it would end the process's context, so `cuda` only says it has no bytes. */
TEST(a_new_mapping_has_no_access) {
    scene of = open_scene();
    void *bytes = NULL;
    gml_status open = contract_is_cuda() || has_bytes() ? GML_OK : GML_UNSUPPORTED;
    if (contract_is_cuda()) {
        CHECK_STATUS(gml_driver_bytes(of.driver, of.base, 1, &bytes), GML_UNSUPPORTED);
        close_scene(&of);
        return;
    }
    map_at(&of, 0, of.handles[0]);
    CHECK_STATUS(gml_driver_bytes(of.driver, of.base, 1, &bytes), GML_MISUSE);
    open_access_at(&of, 0, 1);
    CHECK_STATUS(gml_driver_bytes(of.driver, of.base, of.granule, &bytes), open);
    CHECK_STATUS(gml_driver_bytes(of.driver, of.base, of.granule + 1, &bytes), GML_MISUSE);
    unmap_at(&of, 0, 1);
    CHECK_STATUS(gml_driver_bytes(of.driver, of.base, 1, &bytes), GML_MISUSE);
    map_at(&of, 0, of.handles[0]);
    CHECK_STATUS(gml_driver_bytes(of.driver, of.base, 1, &bytes), GML_MISUSE);
    unmap_at(&of, 0, 1);
    close_scene(&of);
}

int main(void) {
    return driver_contract_main();
}
