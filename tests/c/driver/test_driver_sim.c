/* What only `sim` has: any capacity, own and expected addresses, modelled costs, and speed. */
#include "driver/backends.h"
#include "support/check.h"

#include <string.h>

static const uint64_t MIB = UINT64_C(1) << 20;
static const uint64_t GIB = UINT64_C(1) << 30;

static gml_driver *open_sim(uint64_t capacity_bytes, uint64_t granularity_bytes) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    CHECK_OK(gml_model_driver_open(GML_MODEL_SIM, capacity_bytes, granularity_bytes, &driver,
                                   reason, sizeof reason));
    return driver;
}

static gml_address malloc_of(gml_driver *driver, uint64_t size_bytes) {
    gml_address address = 0;
    CHECK_OK(gml_driver_malloc(driver, size_bytes, &address));
    return address;
}

TEST(a_bad_granularity_is_refused) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    CHECK_STATUS(gml_model_driver_open(GML_MODEL_SIM, 0, 3 * MIB, &driver, reason, sizeof reason),
                 GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "3145728") != NULL);
    CHECK_STATUS(gml_model_driver_open(GML_MODEL_SIM, 0, 256, &driver, reason, sizeof reason),
                 GML_INVALID_ARGUMENT);
    CHECK(driver == NULL);
}

TEST(address_space_comes_round_again) {
    gml_driver *driver = open_sim(0, 0);
    uint64_t whole = (UINT64_C(1) << 52) - (UINT64_C(1) << 47);
    uint64_t part = UINT64_C(1) << 47;
    gml_address kept = malloc_of(driver, 20 * MIB);
    gml_address address = 0;
    for (int i = 0; i < 40; i++) {
        CHECK_OK(gml_driver_reserve(driver, part, 0, &address));
        CHECK(address >= kept + 20 * MIB || address + part <= kept);
        CHECK(address + part <= UINT64_C(1) << 52);
        CHECK_OK(gml_driver_unreserve(driver, address, part));
    }
    CHECK_STATUS(gml_driver_reserve(driver, whole, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_reserve(driver, UINT64_C(1) << 63, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_reserve(driver, 2 * MIB, UINT64_C(1) << 63, &address),
                 GML_OUT_OF_MEMORY);
    CHECK_OK(gml_driver_free(driver, kept));
    CHECK_OK(gml_driver_reserve(driver, part, 0, &address));
    gml_driver_close(driver);
}

TEST(an_expected_address_that_is_taken_is_passed_over) {
    gml_driver *driver = open_sim(0, 0);
    gml_address recorded = UINT64_C(0x7f3210000000);
    CHECK_OK(gml_driver_expect_malloc(driver, recorded, 20 * MIB));
    CHECK_OK(gml_driver_expect_malloc(driver, recorded + 2 * MIB, 20 * MIB));
    CHECK_OK(gml_driver_expect_malloc(driver, recorded + 40 * MIB, 20 * MIB));
    CHECK_EQ(malloc_of(driver, 20 * MIB), recorded);
    CHECK_EQ(malloc_of(driver, 20 * MIB), recorded + 40 * MIB);
    CHECK_OK(gml_driver_free(driver, recorded));
    CHECK_OK(gml_driver_expect_malloc(driver, recorded, 20 * MIB));
    CHECK_EQ(malloc_of(driver, 20 * MIB), recorded);
    gml_driver_close(driver);
}

TEST(impossible_expectations_are_refused) {
    gml_driver *driver = open_sim(0, 0);
    CHECK_STATUS(gml_driver_expect_malloc(driver, 0, 512), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_driver_expect_malloc(driver, 100, 512), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_driver_expect_malloc(driver, 512, 0), GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_driver_expect_malloc(driver, UINT64_MAX - 511, 1024), GML_INVALID_ARGUMENT);
    CHECK(strlen(driver->reason) > 10);
    gml_driver_close(driver);
}

static uint64_t time_of_view(uint64_t chunks, bool has_one_access) {
    gml_driver *driver = open_sim(0, 0);
    gml_address base = 0;
    CHECK_OK(gml_driver_reserve(driver, chunks * 2 * MIB, 0, &base));
    for (uint64_t i = 0; i < chunks; i++) {
        gml_handle handle = 0;
        CHECK_OK(gml_driver_create(driver, 2 * MIB, &handle));
        CHECK_OK(gml_driver_map(driver, base + i * 2 * MIB, 2 * MIB, handle));
        if (!has_one_access) {
            CHECK_OK(gml_driver_set_access(driver, base + i * 2 * MIB, 2 * MIB));
        }
    }
    if (has_one_access) {
        CHECK_OK(gml_driver_set_access(driver, base, chunks * 2 * MIB));
    }
    uint64_t time_ns = gml_driver_time_ns(driver);
    gml_driver_close(driver);
    return time_ns;
}

/* The medians of one device, and what a program pays beside them, in per cent. */
static void check_mallocs(gml_driver *driver, uint64_t at_20_mib, uint64_t at_128_mib,
                          uint64_t at_2_gib, uint64_t percent) {
    memset(driver->call_ns, 0, sizeof driver->call_ns);
    (void)malloc_of(driver, 2 * GIB);
    CHECK_EQ(gml_driver_time_ns(driver), at_2_gib * percent / 100);
    /* Half way between 20 and 128 MiB, and twice the largest that was measured. */
    memset(driver->call_ns, 0, sizeof driver->call_ns);
    (void)malloc_of(driver, 74 * MIB);
    CHECK_EQ(gml_driver_time_ns(driver), (at_20_mib + at_128_mib) / 2 * percent / 100);
    memset(driver->call_ns, 0, sizeof driver->call_ns);
    (void)malloc_of(driver, 4 * GIB);
    CHECK_EQ(gml_driver_time_ns(driver), 2 * at_2_gib * percent / 100);
    gml_driver_close(driver);
}

TEST(costs_are_those_measured) {
    check_mallocs(open_sim(0, 0), 57281, 57553, 330796, 125);
    check_mallocs(open_sim(140 * GIB, 0), 33641, 35365, 140688, 155);
    /* One call over many handles costs what one call each does. */
    uint64_t view_ns = time_of_view(1024, false);
    uint64_t chunk_ns = 11675 * 125 / 100 + 7473 * 125 / 100 + 25864 * 125 / 100;
    CHECK_EQ(view_ns, 645 * 125 / 100 + 1024 * chunk_ns);
    CHECK_EQ(time_of_view(1024, true), view_ns);
}

/* ---- misuse that a GPU would answer with undefined behaviour --------------------------------- */

TEST(a_handle_is_released_once) {
    gml_driver *driver = open_sim(0, 0);
    gml_handle handle = 0;
    gml_address base = 0;
    CHECK_OK(gml_driver_create(driver, 2 * MIB, &handle));
    CHECK_OK(gml_driver_reserve(driver, 2 * MIB, 0, &base));
    CHECK_STATUS(gml_driver_release(driver, handle + 1), GML_MISUSE);
    CHECK_STATUS(gml_driver_release(driver, 0), GML_MISUSE);
    CHECK_OK(gml_driver_release(driver, handle));
    CHECK_STATUS(gml_driver_release(driver, handle), GML_MISUSE);
    CHECK_STATUS(gml_driver_map(driver, base, 2 * MIB, handle), GML_MISUSE);
    gml_handle other = 0;
    CHECK_OK(gml_driver_create(driver, 2 * MIB, &other));
    CHECK(other != handle);
    gml_driver_close(driver);
}

TEST(absurd_sizes_are_refused) {
    gml_driver *driver = open_sim(0, 0);
    gml_handle handle = 0;
    gml_address address = 0;
    uint64_t huge = UINT64_MAX / (2 * MIB) * (2 * MIB);
    CHECK_STATUS(gml_driver_create(driver, huge, &handle), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_malloc(driver, UINT64_MAX, &address), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_malloc(driver, 0, &address), GML_MISUSE);
    CHECK_STATUS(gml_driver_reserve(driver, huge, 0, &address), GML_OUT_OF_MEMORY);
    CHECK_STATUS(gml_driver_reserve(driver, 2 * MIB, 3 * MIB, &address), GML_MISUSE);
    CHECK_OK(gml_driver_reserve(driver, 4 * MIB, 0, &address));
    CHECK_STATUS(gml_driver_map(driver, address, huge, 1), GML_MISUSE);
    CHECK_STATUS(gml_driver_unmap(driver, address, huge), GML_MISUSE);
    CHECK_STATUS(gml_driver_set_access(driver, address + 2 * MIB, huge), GML_MISUSE);
    gml_driver_close(driver);
}
