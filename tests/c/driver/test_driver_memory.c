/* What the core relies on in virtual memory: one test per sentence of docs/driver.md, over
 * every backend. */
#include "support/driver_contract.h"

#include <string.h>

/* ---- physical memory ------------------------------------------------------------------------- */

TEST(create_takes_its_size_and_release_gives_it_back) {
    gml_driver *driver = open_driver();
    uint64_t size = SOME_GRANULES * driver->info.granularity_bytes;
    uint64_t before = free_bytes_of(driver);
    gml_handle handle = 0;
    CHECK_OK(gml_driver_create(driver, size, &handle));
    CHECK(handle != 0);
    check_taken(driver, before, size);
    CHECK_OK(gml_driver_release(driver, handle));
    check_taken(driver, before, 0);
    gml_driver_close(driver);
}

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

TEST(create_beyond_the_memory_is_out_of_memory) {
    gml_driver *driver = open_driver();
    uint64_t before = free_bytes_of(driver);
    uint64_t granule = driver->info.granularity_bytes;
    uint64_t too_much = driver->info.total_bytes / granule * granule + granule;
    gml_handle handle = 0;
    CHECK_STATUS(gml_driver_create(driver, too_much, &handle), GML_OUT_OF_MEMORY);
    CHECK(strlen(driver->reason) > 10);
    CHECK_EQ(handle, 0);
    check_taken(driver, before, 0);
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

TEST(released_but_mapped_memory_can_be_used) {
    scene of = open_scene();
    map_at(&of, 1, of.handles[1]);
    release_handles(&of);
    open_access_at(&of, 1, 1);
    if (has_bytes()) {
        write_byte(of.driver, granule_at(&of, 1), 42);
        CHECK_EQ(read_byte(of.driver, granule_at(&of, 1)), 42);
    }
    unmap_at(&of, 1, 1);
    close_scene(&of);
}

/* ---- address space --------------------------------------------------------------------------- */

TEST(reserve_takes_no_memory_and_may_exceed_it) {
    gml_driver *driver = open_driver();
    uint64_t before = free_bytes_of(driver);
    uint64_t granule = driver->info.granularity_bytes;
    uint64_t size = (driver->info.total_bytes / granule + 1) * granule * 2;
    gml_address first = 0;
    gml_address second = 0;
    CHECK_OK(gml_driver_reserve(driver, size, 0, &first));
    CHECK_OK(gml_driver_reserve(driver, size, 0, &second));
    CHECK(first != 0 && second != 0 && first % granule == 0 && second % granule == 0);
    CHECK(first + size <= second || second + size <= first);
    check_taken(driver, before, 0);
    CHECK_OK(gml_driver_unreserve(driver, second, size));
    CHECK_OK(gml_driver_unreserve(driver, first, size));
    gml_driver_close(driver);
}

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

TEST(unreserve_takes_exactly_one_reservation) {
    gml_driver *driver = open_driver();
    uint64_t granule = driver->info.granularity_bytes;
    gml_address address = 0;
    CHECK_OK(gml_driver_reserve(driver, 4 * granule, 0, &address));
    check_refused(driver, gml_driver_unreserve(driver, address, 2 * granule));
    check_refused(driver, gml_driver_unreserve(driver, address, 8 * granule));
    check_refused(driver, gml_driver_unreserve(driver, address + granule, 3 * granule));
    CHECK_OK(gml_driver_unreserve(driver, address, 4 * granule));
    check_refused(driver, gml_driver_unreserve(driver, address, 4 * granule));
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

TEST(map_stays_inside_one_reservation) {
    scene of = open_scene();
    gml_handle pair = 0;
    CHECK_OK(gml_driver_create(of.driver, 2 * of.granule, &pair));
    gml_address last = granule_at(&of, SOME_GRANULES - 1);
    if (check_refused_but_on_a_gpu(of.driver,
                                   gml_driver_map(of.driver, last, 2 * of.granule, pair))) {
        CHECK_OK(gml_driver_unmap(of.driver, last, 2 * of.granule));
    }
    check_refused(of.driver, gml_driver_map(of.driver, of.granule, of.granule, of.handles[0]));
    CHECK_OK(gml_driver_release(of.driver, pair));
    close_scene(&of);
}

TEST(map_wants_aligned_addresses) {
    scene of = open_scene();
    check_refused(of.driver,
                  gml_driver_map(of.driver, of.base + of.granule / 2, of.granule, of.handles[0]));
    close_scene(&of);
}

TEST(map_wants_unmapped_addresses) {
    scene of = open_scene();
    gml_handle pair = 0;
    CHECK_OK(gml_driver_create(of.driver, 2 * of.granule, &pair));
    map_at(&of, 1, of.handles[0]);
    check_refused(of.driver,
                  gml_driver_map(of.driver, granule_at(&of, 1), of.granule, of.handles[1]));
    check_refused(of.driver, gml_driver_map(of.driver, of.base, 2 * of.granule, pair));
    CHECK_OK(gml_driver_map(of.driver, granule_at(&of, 2), 2 * of.granule, pair));
    CHECK_OK(gml_driver_release(of.driver, pair));
    unmap_at(&of, 1, 3);
    close_scene(&of);
}

TEST(aliases_show_the_same_bytes) {
    scene of = open_scene();
    map_at(&of, 0, of.handles[0]);
    map_at(&of, 1, of.handles[1]);
    map_at(&of, 2, of.handles[0]);
    open_access_at(&of, 0, 3);
    if (has_bytes()) {
        uint64_t last = of.granule - 1;
        write_byte(of.driver, granule_at(&of, 0), 1);
        write_byte(of.driver, granule_at(&of, 1), 2);
        write_byte(of.driver, granule_at(&of, 2) + last, 3);
        CHECK_EQ(read_byte(of.driver, granule_at(&of, 2)), 1);
        CHECK_EQ(read_byte(of.driver, granule_at(&of, 1)), 2);
        CHECK_EQ(read_byte(of.driver, granule_at(&of, 0) + last), 3);
    }
    unmap_at(&of, 0, 3);
    close_scene(&of);
}

TEST(bytes_survive_a_mapping_elsewhere) {
    scene of = open_scene();
    map_at(&of, 0, of.handles[2]);
    open_access_at(&of, 0, 1);
    if (has_bytes()) {
        write_byte(of.driver, granule_at(&of, 0), 7);
    }
    unmap_at(&of, 0, 1);
    map_at(&of, 3, of.handles[2]);
    open_access_at(&of, 3, 1);
    if (has_bytes()) {
        CHECK_EQ(read_byte(of.driver, granule_at(&of, 3)), 7);
    }
    unmap_at(&of, 3, 1);
    close_scene(&of);
}

TEST(unmap_takes_several_whole_mappings) {
    scene of = open_scene();
    for (uint64_t i = 0; i < SOME_GRANULES; i++) {
        map_at(&of, i, of.handles[i]);
    }
    open_access_at(&of, 0, SOME_GRANULES);
    unmap_at(&of, 1, 2);
    map_at(&of, 1, of.handles[2]);
    unmap_at(&of, 0, 2);
    unmap_at(&of, 3, 1);
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

TEST(one_set_access_opens_several_handles) {
    scene of = open_scene();
    for (uint64_t i = 0; i < SOME_GRANULES; i++) {
        map_at(&of, i, of.handles[SOME_GRANULES - 1 - i]);
    }
    open_access_at(&of, 0, SOME_GRANULES);
    for (uint64_t i = 0; i < SOME_GRANULES && has_bytes(); i++) {
        write_byte(of.driver, granule_at(&of, i) + i, (unsigned char)(10 + i));
        CHECK_EQ(read_byte(of.driver, granule_at(&of, i) + i), 10 + i);
    }
    unmap_at(&of, 0, SOME_GRANULES);
    close_scene(&of);
}

TEST(set_access_wants_every_byte_mapped) {
    scene of = open_scene();
    check_refused(of.driver, gml_driver_set_access(of.driver, of.base, of.granule));
    map_at(&of, 0, of.handles[0]);
    map_at(&of, 2, of.handles[2]);
    check_refused_but_on_a_gpu(of.driver,
                               gml_driver_set_access(of.driver, of.base, 3 * of.granule));
    check_refused(of.driver, gml_driver_set_access(of.driver, of.base, 0));
    open_access_at(&of, 0, 1);
    unmap_at(&of, 0, 1);
    unmap_at(&of, 2, 1);
    close_scene(&of);
}

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
