/* Opening drivers by name, describing devices, and names of calls: what a user gets wrong. */
#include "driver/driver.h"
#include "support/check.h"

#include <string.h>

/* Opens something impossible, and checks that one line says why. */
static void check_open_fails(const char *name, int device, gml_status expected, const char *hint) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    CHECK_STATUS(gml_driver_open(name, device, 0, &driver, reason, sizeof reason), expected);
    CHECK(driver == NULL);
    CHECK(strstr(reason, hint) != NULL);
    CHECK(!strchr(reason, '\n'));
    CHECK_STATUS(gml_driver_open(name, device, 0, &driver, NULL, 0), expected);
}

/* On any machine: cuda opens, or says in one line what is missing. */
TEST(cuda_opens_or_says_why_not) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver = NULL;
    gml_status status = gml_driver_open("cuda", 0, 0, &driver, reason, sizeof reason);
    if (status == GML_OK) {
        CHECK(driver->info.granularity_bytes > 0);
        gml_driver_close(driver);
        check_open_fails("cuda", 1000, GML_DRIVER_ABSENT, "1000");
        return;
    }
    CHECK(status == GML_DRIVER_ABSENT || status == GML_UNSUPPORTED);
    CHECK(driver == NULL);
    CHECK(strstr(reason, "cuda: ") == reason);
    CHECK(strlen(reason) > 30);
    CHECK(!strchr(reason, '\n'));
}

TEST(devices_are_described_without_a_lake) {
    char reason[GML_REASON_BYTES] = "";
    gml_device_info info = {0};
    CHECK_OK(gml_device_describe("sim", 0, &info, reason, sizeof reason));
    CHECK_EQ(info.granularity_bytes, UINT64_C(2) << 20);
    CHECK_EQ(info.total_bytes, UINT64_C(80) << 30);
    CHECK_EQ(info.free_bytes, info.total_bytes);
    CHECK(info.has_virtual_memory);
    CHECK(strcmp(info.name, "simulated NVIDIA H100") == 0);
    CHECK_OK(gml_device_describe("host", 0, &info, NULL, 0));
    CHECK_EQ(info.total_bytes, UINT64_C(1) << 30);
    info.total_bytes = 42;
    CHECK_STATUS(gml_device_describe("none", 0, &info, reason, sizeof reason),
                 GML_INVALID_ARGUMENT);
    CHECK_EQ(info.total_bytes, 42);
    CHECK(strstr(reason, "none") != NULL);
}
