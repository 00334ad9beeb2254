/* The driver that watches the order of streams: what it takes for an ordering, what it takes for a
 * race, and which memory it takes to be the same. */
#include "driver/streams.h"
#include "hooks/fault.h"
#include "hooks/race.h"
#include "hooks/race_order.h"
#include "support/check.h"

#include <string.h>

#define CHUNK (UINT64_C(2) << 20)

static const gml_stream A = 0, B = 0x7f0010, C = 0x7f0020;

/* One chunk, mapped twice, and a plain block. */
typedef struct bench {
    gml_driver *driver;
    gml_checker *checker;
    gml_handle chunk;
    gml_address base, view, plain;
} bench;

static gml_driver *open_watched(const char *name, gml_checker **checker) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *inner = NULL, *driver = NULL;
    CHECK_OK(gml_driver_open(name, 0, 0, &inner, reason, sizeof reason));
    CHECK_OK(gml_race_driver_open(inner, &driver, checker));
    return driver;
}

static gml_address map_chunk(gml_driver *driver, gml_handle chunk) {
    gml_address range = 0;
    CHECK_OK(gml_driver_reserve(driver, CHUNK, 0, &range));
    CHECK_OK(gml_driver_map(driver, range, CHUNK, chunk));
    CHECK_OK(gml_driver_set_access(driver, range, CHUNK));
    return range;
}

static bench open_bench(const char *name) {
    bench self = {0};
    self.driver = open_watched(name, &self.checker);
    CHECK_OK(gml_driver_create(self.driver, CHUNK, &self.chunk));
    self.base = map_chunk(self.driver, self.chunk);
    self.view = map_chunk(self.driver, self.chunk);
    CHECK_OK(gml_driver_malloc(self.driver, CHUNK, &self.plain));
    return self;
}

static bench by_hand(void) {
    bench self = open_bench("sim");
    CHECK_OK(gml_streams_set_manual(self.driver->streams, true));
    return self;
}

static void close_bench(bench *self) {
    gml_driver_close(self->driver);
}

static gml_status begin(const bench *self, gml_address address, gml_stream stream) {
    return self->checker->begin_use(self->checker, address, CHUNK, stream);
}

/* A use from beginning to end. */
static gml_status use(const bench *self, gml_address address, gml_stream stream) {
    gml_status status = begin(self, address, stream);
    if (status == GML_OK) {
        self->checker->end_use(self->checker, address);
    }
    return status;
}

static gml_event record_alone(const bench *self, gml_stream stream) {
    gml_event event = 0;
    CHECK_OK(gml_driver_event_create(self->driver, &event));
    CHECK_OK(gml_driver_event_record(self->driver, event, stream));
    return event;
}

static void let_wait(const bench *self, gml_stream stream, gml_event event) {
    CHECK_OK(gml_driver_stream_wait(self->driver, stream, event));
}

/* Has a stream come after what streams that nobody sees were given, which tests of the others leave
 * aside. */
static void pass_unseen(const bench *self, gml_stream stream) {
    let_wait(self, stream, record_alone(self, GML_ORDER_UNSEEN));
    CHECK_OK(gml_streams_advance(self->driver->streams, GML_ORDER_UNSEEN, 1, NULL));
}

static gml_event record(const bench *self, gml_stream stream) {
    pass_unseen(self, stream);
    return record_alone(self, stream);
}

/* ---- what orders ----------------------------------------------------------------------------- */

typedef gml_status (*wait_call)(const bench *self, gml_event event);

static gml_status wait_for_event(const bench *self, gml_event event) {
    return gml_driver_event_synchronize(self->driver, event);
}

static gml_status wait_for_stream(const bench *self, gml_event event) {
    (void)event;
    pass_unseen(self, A);
    return gml_driver_stream_synchronize(self->driver, A);
}

static gml_status wait_for_device(const bench *self, gml_event event) {
    (void)event;
    return gml_driver_device_synchronize(self->driver);
}

/* Whatever the host waits for, all streams come after it. */
static void host_waits(wait_call wait) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    gml_event event = record(&self, A);
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT);
    CHECK_OK(wait(&self, event));
    CHECK_OK(use(&self, self.base, B));
    CHECK_STATUS(use(&self, self.base, C), GML_CORRUPT); /* B was not waited for */
    CHECK_OK(use(&self, self.plain, A));
    CHECK_STATUS(use(&self, self.plain, C), GML_CORRUPT); /* nor what A did later */
    close_bench(&self);
}

TEST(the_host_waits) {
    host_waits(wait_for_event);
    host_waits(wait_for_stream);
    host_waits(wait_for_device);
}

/* A stream that waits for an event that the host recorded after it had seen another complete. */
TEST(an_ordering_is_passed_on_by_the_host) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    CHECK_OK(gml_driver_event_synchronize(self.driver, record(&self, A)));
    CHECK_OK(use(&self, self.base, B));
    let_wait(&self, C, record(&self, B));
    CHECK_OK(use(&self, self.base, C));
    close_bench(&self);
}
