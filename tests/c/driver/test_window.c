/* Addresses out of one range: the same in every window, apart from each other, and joined again
 * when they end. */
#include "driver/backends.h"
#include "driver/window.h"
#include "support/check.h"

#include <string.h>
#include <sys/mman.h>

#define MIB (UINT64_C(1) << 20)
#define BASE (UINT64_C(1) << 45)

enum { STEPS = 2000, SLOTS = 40 };

static gml_driver *open_inner(const char *name) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    CHECK_OK(gml_driver_open(name, 0, 64 * MIB, &driver, reason, sizeof reason));
    return driver;
}

static gml_driver *open_window(const char *name) {
    gml_driver *driver = open_inner(name);
    CHECK_OK(gml_window_driver_open(BASE, &driver));
    CHECK(driver->window_bytes > 0);
    return driver;
}

typedef struct held {
    gml_address address;
    uint64_t size_bytes;
} held;

static bool meets_none(const held *slots, gml_address address, uint64_t size_bytes) {
    bool is_apart = true;
    for (size_t i = 0; i < SLOTS; i++) {
        is_apart &= !slots[i].size_bytes || address + size_bytes <= slots[i].address ||
                    slots[i].address + slots[i].size_bytes <= address;
    }
    return is_apart;
}

/* Random reservations, of which some end again, all of them at last; their addresses. */
static void run_program(gml_driver *driver, uint64_t seed, gml_address *out) {
    uint64_t granule = driver->info.granularity_bytes;
    check_random random = {seed};
    held slots[SLOTS] = {{0}};
    for (size_t i = 0; i < STEPS; i++) {
        held *slot = &slots[check_below(&random, SLOTS)];
        if (slot->size_bytes) {
            CHECK_OK(gml_driver_unreserve(driver, slot->address, slot->size_bytes));
            slot->size_bytes = 0;
            continue;
        }
        uint64_t size = granule * (1 + check_below(&random, 9));
        uint64_t alignment = check_below(&random, 3) ? 0 : granule << check_below(&random, 4);
        gml_address address = 0;
        CHECK_OK(gml_driver_reserve(driver, size, alignment, &address));
        CHECK(address >= BASE && address + size <= BASE + driver->window_bytes);
        CHECK_EQ(address % (alignment ? alignment : granule), 0);
        CHECK(meets_none(slots, address, size));
        *slot = (held){address, size};
        out[i] = address;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].size_bytes) {
            CHECK_OK(gml_driver_unreserve(driver, slots[i].address, slots[i].size_bytes));
        }
    }
}

TEST(the_same_reservations_get_the_same_addresses) {
    static gml_address first[STEPS], second[STEPS];
    for (uint64_t seed = 1; seed <= 10; seed++) {
        gml_driver *driver = open_window("sim");
        run_program(driver, seed, first);
        run_program(driver, seed, second);
        CHECK(memcmp(first, second, sizeof first) == 0);
        gml_driver_close(driver);
#if MAY_CHOOSE_ADDRESSES
        driver = open_window("host");
        gml_driver *other = open_inner("host");
        gml_address elsewhere = 0;
        CHECK_OK(gml_driver_reserve(other, 4 * MIB, 0, &elsewhere));
        run_program(driver, seed, second);
        CHECK(driver->info.granularity_bytes != 2 * MIB ||
              memcmp(first, second, sizeof first) == 0);
        gml_driver_close(other);
        gml_driver_close(driver);
#endif
    }
}

TEST(what_has_ended_is_one_range_again) {
    static gml_address addresses[STEPS];
    gml_driver *driver = open_window("sim");
    run_program(driver, 7, addresses);
    gml_address address = 0;
    CHECK_OK(gml_driver_reserve(driver, driver->window_bytes, 0, &address));
    CHECK_EQ(address, BASE);
    gml_driver_close(driver);
}

TEST(a_window_that_is_full_says_so) {
    gml_driver *driver = open_window("sim");
    gml_address address = 0;
    uint64_t granule = driver->info.granularity_bytes;
    CHECK_OK(gml_driver_reserve(driver, driver->window_bytes - granule, 0, &address));
    CHECK_STATUS(gml_driver_reserve(driver, 2 * granule, 0, &address), GML_OUT_OF_MEMORY);
    CHECK(strstr(driver->reason, "of addresses left") != NULL);
    CHECK_OK(gml_driver_reserve(driver, granule, 0, &address));
    gml_driver_close(driver);
}

TEST(what_makes_no_sense_is_refused) {
    gml_driver *driver = open_window("sim");
    gml_address address = 0;
    uint64_t granule = driver->info.granularity_bytes;
    CHECK_STATUS(gml_driver_reserve(driver, 0, 0, &address), GML_MISUSE);
    CHECK_STATUS(gml_driver_reserve(driver, granule + 1, 0, &address), GML_MISUSE);
    CHECK_STATUS(gml_driver_reserve(driver, granule, 3 * granule, &address), GML_MISUSE);
    CHECK_OK(gml_driver_reserve(driver, 2 * granule, 0, &address));
    CHECK_STATUS(gml_driver_unreserve(driver, address, granule), GML_MISUSE);
    CHECK_STATUS(gml_driver_unreserve(driver, address + granule, granule), GML_MISUSE);
    CHECK_OK(gml_driver_unreserve(driver, address, 2 * granule));
    CHECK_STATUS(gml_driver_unreserve(driver, address, 2 * granule), GML_MISUSE);
    gml_driver_close(driver);
}

TEST(windows_of_one_process_lie_side_by_side) {
    gml_driver *first = open_window("sim"), *second = open_window("sim");
    gml_address address = 0;
    CHECK_OK(gml_driver_reserve(second, second->info.granularity_bytes, 0, &address));
    CHECK_EQ(address, BASE + GML_WINDOW_BYTES);
    gml_driver_close(first);
    first = open_window("sim");
    CHECK_OK(gml_driver_reserve(first, first->info.granularity_bytes, 0, &address));
    CHECK_EQ(address, BASE);
    gml_driver_close(first);
    gml_driver_close(second);
}

TEST(there_are_places_for_sixteen) {
    gml_driver *drivers[16];
    for (size_t i = 0; i < 16; i++) {
        drivers[i] = open_window("sim");
    }
    gml_driver *more = open_inner("sim");
    CHECK_STATUS(gml_window_driver_open(BASE, &more), GML_UNSUPPORTED);
    CHECK(strstr(more->reason, "16 lakes") != NULL);
    gml_driver_close(more);
    for (size_t i = 0; i < 16; i++) {
        gml_driver_close(drivers[i]);
    }
}

#if MAY_CHOOSE_ADDRESSES
TEST(addresses_in_use_are_refused) {
    void *wanted = (void *)(uintptr_t)(BASE + 4096);
    void *there =
        mmap(wanted, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(there == wanted);
    gml_driver *driver = open_inner("host");
    CHECK_STATUS(gml_window_driver_open(BASE, &driver), GML_INVALID_ARGUMENT);
    CHECK(strstr(driver->reason, "base=0x200000000000 is refused") != NULL);
    CHECK(strstr(driver->reason, "in use already") != NULL);
    CHECK_EQ(munmap(there, 4096), 0);
    CHECK_OK(gml_window_driver_open(BASE, &driver)); /* the place among windows is free as well */
    gml_address address = 0;
    CHECK_OK(gml_driver_reserve(driver, driver->info.granularity_bytes, 0, &address));
    CHECK_EQ(address, BASE);
    gml_driver_close(driver);
}
#endif

TEST(a_base_between_granules_is_refused) {
    gml_driver *driver = open_inner("sim");
    CHECK_STATUS(gml_window_driver_open(BASE + 512, &driver), GML_INVALID_ARGUMENT);
    CHECK(strstr(driver->reason, "not a multiple of 2") != NULL);
    gml_driver_close(driver);
}
