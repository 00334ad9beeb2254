/* The driver `cuda` and other devices: who may touch what it maps, and what it can export. Runs on
 * the fake library (GMLAKE_TEST_CUDA=fake) and on GPUs (any other value), the latter with as many
 * peers as there are. */
#include "driver/backends.h"
#include "driver/cuda_peers.h"
#include "driver/driver.h"
#include "support/check.h"
#include "support/raw_cuda.h"

#include <stdlib.h>
#include <string.h>

enum { GRANULES = 8, NOWHERE = 1000, FABRIC = 8, UNKNOWN_HANDLE_TYPE = 0x4000 };

static raw_cuda raw;

/* A device with a reservation, where handles are mapped one granule each. */
typedef struct scene {
    gml_driver *driver;
    uint64_t granule_bytes;
    gml_address base;
    gml_handle handles[GRANULES];
} scene;

static gml_address place(const scene *of, unsigned granule) {
    return of->base + granule * of->granule_bytes;
}

static void map(scene *of, unsigned first, unsigned count) {
    for (unsigned i = first; i < first + count; i++) {
        CHECK_OK(gml_driver_create(of->driver, of->granule_bytes, &of->handles[i]));
        CHECK_OK(gml_driver_map(of->driver, place(of, i), of->granule_bytes, of->handles[i]));
    }
}

static void open_range(const scene *of, unsigned first, unsigned count) {
    CHECK_OK(gml_driver_set_access(of->driver, place(of, first), count * of->granule_bytes));
}

static void unmap(scene *of, unsigned first, unsigned count) {
    CHECK_OK(gml_driver_unmap(of->driver, place(of, first), count * of->granule_bytes));
    for (unsigned i = first; i < first + count; i++) {
        CHECK_OK(gml_driver_release(of->driver, of->handles[i]));
        of->handles[i] = 0;
    }
}

static scene open_scene(void) {
    scene made = {0};
    char reason[GML_REASON_BYTES] = "";
    if (!CHECK_OK(gml_cuda_driver_open(0, &made.driver, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
        abort();
    }
    made.granule_bytes = made.driver->info.granularity_bytes;
    CHECK_OK(gml_driver_reserve(made.driver, GRANULES * made.granule_bytes, 0, &made.base));
    return made;
}

static void close_scene(scene *of) {
    for (unsigned i = 0; i < GRANULES; i++) {
        if (of->handles[i]) {
            unmap(of, i, 1);
        }
    }
    CHECK_OK(gml_driver_unreserve(of->driver, of->base, GRANULES * of->granule_bytes));
    gml_driver_close(of->driver);
}

/* Whether a device may write the first byte of a granule. */
static bool is_open_to(const scene *of, unsigned granule, int device) {
    gml_cu_location location = {GML_CU_LOCATION_DEVICE, device};
    unsigned long long flags = 0;
    CHECK_EQ(raw.cuMemGetAccess(&flags, &location, place(of, granule)), GML_CU_SUCCESS);
    return flags == GML_CU_ACCESS_READ_WRITE;
}

/* The granules that a device may touch, as bits: granule 0 is 1. */
static unsigned granules_of(const scene *of, int device) {
    unsigned bits = 0;
    for (unsigned i = 0; i < GRANULES; i++) {
        bits |= of->handles[i] && is_open_to(of, i, device) ? 1U << i : 0;
    }
    return bits;
}

/* A device that reaches device 0, or 0. */
static int find_peer(int from) {
    int count = 0;
    CHECK_EQ(raw.cuDeviceGetCount(&count), GML_CU_SUCCESS);
    for (int device = from; device < count; device++) {
        int can_reach = 0;
        CHECK_EQ(raw.cuDeviceCanAccessPeer(&can_reach, device, 0), GML_CU_SUCCESS);
        if (can_reach) {
            return device;
        }
    }
    return 0;
}

TEST(nobody_but_the_owner_may_touch_what_was_not_granted) {
    scene of = open_scene();
    int peer = find_peer(1);
    map(&of, 0, 2);
    open_range(&of, 0, 2);
    CHECK_EQ(granules_of(&of, 0), 3);
    CHECK(!peer || granules_of(&of, peer) == 0);
    close_scene(&of);
}

TEST(a_grant_opens_what_is_open_and_what_will_be) {
    int peer = find_peer(1);
    if (!peer) {
        return;
    }
    scene of = open_scene();
    map(&of, 0, 4);
    open_range(&of, 0, 1);
    open_range(&of, 2, 2);
    CHECK_OK(gml_driver_grant(of.driver, peer));
    CHECK_EQ(granules_of(&of, peer), 1 | 4 | 8); /* granule 1 was never opened */
    map(&of, 4, 2);
    open_range(&of, 4, 2);
    CHECK_EQ(granules_of(&of, peer), 1 | 4 | 8 | 16 | 32);
    CHECK_EQ(granules_of(&of, 0), 1 | 4 | 8 | 16 | 32);
    close_scene(&of);
}

/* Unmapped in the middle, at the ends and across ranges; nothing of that may be opened, for CUDA
 * refuses a range where nothing is mapped. */
TEST(what_was_unmapped_is_not_opened) {
    int peer = find_peer(1);
    if (!peer) {
        return;
    }
    scene of = open_scene();
    map(&of, 0, GRANULES);
    open_range(&of, 0, 5);
    open_range(&of, 5, 3);
    unmap(&of, 2, 1);
    unmap(&of, 4, 2);
    unmap(&of, 7, 1);
    map(&of, 4, 1);
    CHECK_OK(gml_driver_grant(of.driver, peer));
    CHECK_EQ(granules_of(&of, peer), 1 | 2 | 8 | 64);
    CHECK_EQ(granules_of(&of, 0), 1 | 2 | 8 | 64);
    close_scene(&of);
}

TEST(several_peers_may_be_granted) {
    int first = find_peer(1);
    int second = first ? find_peer(first + 1) : 0;
    if (!second) {
        return;
    }
    scene of = open_scene();
    map(&of, 0, 3);
    open_range(&of, 0, 1);
    CHECK_OK(gml_driver_grant(of.driver, first));
    open_range(&of, 1, 1);
    CHECK_OK(gml_driver_grant(of.driver, second));
    open_range(&of, 2, 1);
    CHECK_EQ(granules_of(&of, first), 7);
    CHECK_EQ(granules_of(&of, second), 7);
    close_scene(&of);
}

TEST(the_owner_is_no_peer_and_a_missing_device_is_told) {
    scene of = open_scene();
    CHECK_OK(gml_driver_grant(of.driver, 0));
    CHECK_STATUS(gml_driver_grant(of.driver, NOWHERE), GML_DRIVER_ABSENT);
    CHECK(strstr(of.driver->reason, "device 1000") != NULL);
    CHECK_STATUS(gml_driver_grant(of.driver, -1), GML_DRIVER_ABSENT);
    map(&of, 0, 1);
    open_range(&of, 0, 1);
    CHECK_EQ(granules_of(&of, 0), 1);
    close_scene(&of);
}

TEST(shared_memory_is_made_so_from_then_on) {
    scene of = open_scene();
    gml_status status = gml_driver_share(of.driver, 1);
    if (status != GML_UNSUPPORTED) { /* of a GPU in a virtual machine */
        CHECK_STATUS(status, GML_OK);
    }
    map(&of, 0, 2);
    open_range(&of, 0, 2);
    CHECK_OK(gml_driver_share(of.driver, 0));
    map(&of, 2, 1);
    close_scene(&of);
}

TEST(a_handle_type_that_is_none_is_unsupported) {
    scene of = open_scene();
    CHECK_STATUS(gml_driver_share(of.driver, UNKNOWN_HANDLE_TYPE), GML_UNSUPPORTED);
    CHECK(strstr(of.driver->reason, "handle type 16384") != NULL);
    CHECK(!strchr(of.driver->reason, '\n'));
    map(&of, 0, 1);
    close_scene(&of);
}

TEST(a_handle_type_that_cannot_be_made_is_unsupported) {
    scene of = open_scene();
    gml_status status = gml_driver_share(of.driver, FABRIC);
    if (status != GML_OK) { /* no GPU without a fabric makes it */
        CHECK_STATUS(status, GML_UNSUPPORTED);
        CHECK(strstr(of.driver->reason, "handle type 8") != NULL);
        CHECK(strstr(of.driver->reason, "cuMemCreate") != NULL);
        CHECK(!strchr(of.driver->reason, '\n'));
    }
    map(&of, 0, 1);
    close_scene(&of);
}

/* ---- what only the fake library can be made to do -------------------------------------------- */

/* No other thread is running. */
static void set_defect(const char *defect) {
    CHECK_EQ(setenv("GMLAKE_FAKE_CUDA", defect, 1), 0); /* NOLINT(concurrency-mt-unsafe) */
}

TEST(a_device_that_cannot_reach_is_left_out) {
    scene of = open_scene();
    map(&of, 0, 1);
    open_range(&of, 0, 1);
    CHECK_OK(gml_driver_grant(of.driver, 3));
    CHECK_EQ(granules_of(&of, 3), 0);
    map(&of, 1, 1);
    open_range(&of, 1, 1); /* a descriptor of device 3 would be refused */
    close_scene(&of);
}

TEST(a_grant_that_fails_leaves_no_trace) {
    scene of = open_scene();
    map(&of, 0, 4);
    open_range(&of, 0, 1);
    open_range(&of, 1, 2);
    open_range(&of, 3, 1);
    set_defect("narrow_peers");
    CHECK_STATUS(gml_driver_grant(of.driver, 1), GML_DRIVER_FAILED);
    CHECK(strstr(of.driver->reason, "cuMemSetAccess") == of.driver->reason);
    CHECK_EQ(granules_of(&of, 1), 0);
    map(&of, 4, 2);
    open_range(&of, 4, 2);
    set_defect("");
    CHECK_EQ(granules_of(&of, 1), 0);
    CHECK_EQ(granules_of(&of, 0), 63);
    CHECK_OK(gml_driver_grant(of.driver, 1));
    CHECK_EQ(granules_of(&of, 1), 63);
    close_scene(&of);
}

TEST(no_memory_to_try_with_is_told_as_that) {
    scene of = open_scene();
    set_defect("no_memory");
    CHECK_STATUS(gml_driver_share(of.driver, 1), GML_OUT_OF_MEMORY);
    set_defect("");
    CHECK_OK(gml_driver_share(of.driver, 1));
    close_scene(&of);
}

/* ---- the set of ranges against a plain array ------------------------------------------------- */

enum { UNITS = 64, OPERATIONS = 4000 };

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % below;
}

TEST(the_ranges_are_those_of_an_array) {
    gml_cuda_peers peers = {0};
    bool is_open[UNITS] = {false};
    uint64_t state = 5;
    gml_cuda_peers_init(&peers, (gml_cu_location){GML_CU_LOCATION_DEVICE, 0}, true);
    for (int i = 0; i < OPERATIONS; i++) {
        uint64_t first = draw(&state, UNITS);
        uint64_t count = 1 + draw(&state, UNITS - first);
        bool opens = draw(&state, 2);
        CHECK(gml_cuda_peers_prepare(&peers));
        (opens ? gml_cuda_peers_opened : gml_cuda_peers_closed)(&peers, 1 + first, count);
        memset(is_open + first, opens, count);
        bool found[UNITS] = {false};
        const gml_range *range = gml_ranges_first(&peers.open);
        for (; range; range = gml_ranges_next(range)) {
            for (uint64_t unit = range->node.address - 1, n = 0; n < range->size_bytes; n++) {
                CHECK(!found[unit + n]);
                found[unit + n] = true;
            }
        }
        if (!CHECK(memcmp(found, is_open, sizeof found) == 0)) {
            break;
        }
    }
    gml_cuda_peers_clear(&peers);
}

int main(void) {
    RUN(the_ranges_are_those_of_an_array);
    const char *cuda = raw_cuda_begin(&raw);
    if (!cuda) {
        return report();
    }
    RUN(nobody_but_the_owner_may_touch_what_was_not_granted);
    RUN(a_grant_opens_what_is_open_and_what_will_be);
    RUN(what_was_unmapped_is_not_opened);
    RUN(several_peers_may_be_granted);
    RUN(the_owner_is_no_peer_and_a_missing_device_is_told);
    RUN(shared_memory_is_made_so_from_then_on);
    RUN(a_handle_type_that_is_none_is_unsupported);
    RUN(a_handle_type_that_cannot_be_made_is_unsupported);
    if (strcmp(cuda, "fake") == 0) {
        RUN(a_device_that_cannot_reach_is_left_out);
        RUN(a_grant_that_fails_leaves_no_trace);
        RUN(no_memory_to_try_with_is_told_as_that);
    }
    return report();
}
