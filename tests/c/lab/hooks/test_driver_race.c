/* The driver that watches the order of streams: what it takes for an ordering, what it takes for a
 * race, and which memory it takes to be the same. */
#include "driver/streams.h"
#include "hooks/fault.h"
#include "hooks/race.h"
#include "hooks/race_order.h"
#include "support/check.h"

#include <string.h>

#define CHUNK (UINT64_C(2) << 20)

static const gml_stream A = 0, B = 0x7f0010, C = 0x7f0020, D = 3;

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
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(self.driver), true));
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
    CHECK_OK(gml_streams_advance(gml_driver_streams(self->driver), GML_ORDER_UNSEEN, 1, NULL));
}

static gml_event record(const bench *self, gml_stream stream) {
    pass_unseen(self, stream);
    return record_alone(self, stream);
}

static bool says(const bench *self, const char *text) {
    return strstr(self->checker->reason, text) != NULL;
}

/* ---- what orders ----------------------------------------------------------------------------- */

TEST(a_stream_comes_after_itself) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    CHECK_OK(use(&self, self.base, A));
    close_bench(&self);
}

TEST(nothing_orders_two_streams_by_itself) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, B));
    CHECK_STATUS(use(&self, self.base, C), GML_CORRUPT);
    CHECK(says(&self, "0x7f0010") && says(&self, "0x7f0020"));
    CHECK_STATUS(use(&self, self.base, A), GML_CORRUPT);
    CHECK_OK(use(&self, self.base, B)); /* what was refused has not happened */
    close_bench(&self);
}

TEST(a_wait_orders) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    let_wait(&self, B, record(&self, A));
    CHECK_OK(use(&self, self.base, B));
    CHECK_STATUS(use(&self, self.base, A), GML_CORRUPT); /* not the other way round */
    close_bench(&self);
}

TEST(an_event_covers_what_ended_before_it) {
    bench self = by_hand();
    CHECK_OK(begin(&self, self.base, A));
    gml_event early = record(&self, A);
    self.checker->end_use(self.checker, self.base);
    let_wait(&self, B, early);
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT);
    pass_unseen(&self, A);
    CHECK_OK(gml_driver_event_record(self.driver, early, A));
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT); /* the wait means the first recording */
    let_wait(&self, B, early);
    CHECK_OK(use(&self, self.base, B));
    close_bench(&self);
}

TEST(an_event_that_was_never_recorded_orders_nothing) {
    bench self = by_hand();
    gml_event event = 0;
    CHECK_OK(use(&self, self.base, A));
    CHECK_OK(gml_driver_event_create(self.driver, &event));
    let_wait(&self, B, event);
    CHECK_OK(gml_driver_event_query(self.driver, event));
    CHECK_OK(gml_driver_event_synchronize(self.driver, event));
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT);
    close_bench(&self);
}

TEST(only_a_query_that_says_so_orders) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    gml_event event = record(&self, A);
    CHECK_STATUS(gml_driver_event_query(self.driver, event), GML_NOT_READY);
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT);
    CHECK_OK(gml_streams_advance(gml_driver_streams(self.driver), A, UINT64_MAX, NULL));
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT); /* nobody has asked yet */
    CHECK_OK(gml_driver_event_query(self.driver, event));
    CHECK_OK(use(&self, self.base, B));
    close_bench(&self);
}

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

TEST(an_ordering_is_passed_on) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    let_wait(&self, B, record(&self, A));
    let_wait(&self, C, record(&self, B)); /* C never hears of A */
    CHECK_OK(use(&self, self.base, C));
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT);
    close_bench(&self);
}

TEST(an_ordering_that_comes_too_late_is_not_passed_on) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    gml_event of_b = record(&self, B);
    let_wait(&self, B, record(&self, A));
    let_wait(&self, C, of_b); /* recorded before B waited */
    CHECK_STATUS(use(&self, self.base, C), GML_CORRUPT);
    close_bench(&self);
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

/* Who comes after the last use comes after those before it. */
TEST(three_streams_in_a_row) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    let_wait(&self, B, record(&self, A));
    CHECK_OK(use(&self, self.base, B));
    let_wait(&self, C, record(&self, B));
    CHECK_OK(use(&self, self.base, C));
    let_wait(&self, D, record(&self, B)); /* as far as B, and not C */
    CHECK_STATUS(use(&self, self.base, D), GML_CORRUPT);
    let_wait(&self, D, record(&self, C));
    CHECK_OK(use(&self, self.base, D));
    close_bench(&self);
}

TEST(a_failed_call_orders_nothing) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, B));
    CHECK_OK(gml_streams_set_capturing(gml_driver_streams(self.driver), B, true));
    gml_event event = 0;
    CHECK_OK(gml_driver_event_create(self.driver, &event));
    CHECK_STATUS(gml_driver_event_record(self.driver, event, B), GML_MISUSE);
    CHECK_STATUS(gml_driver_stream_synchronize(self.driver, B), GML_MISUSE);
    CHECK_STATUS(gml_driver_device_synchronize(self.driver), GML_MISUSE);
    let_wait(&self, C, event);
    CHECK_STATUS(use(&self, self.base, C), GML_CORRUPT);
    close_bench(&self);
}

TEST(a_destroyed_event_has_ordered) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    gml_event event = record(&self, A);
    let_wait(&self, B, event);
    CHECK_OK(gml_driver_event_destroy(self.driver, event));
    CHECK_OK(use(&self, self.base, B));
    close_bench(&self);
}

TEST(others_and_unmaps_come_after_all_that_the_device_was_given) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    CHECK_OK(use(&self, self.plain, B));
    let_wait(&self, C, record_alone(&self, A)); /* and what A's owner lent the memory to? */
    CHECK_STATUS(use(&self, self.base, C), GML_CORRUPT);
    CHECK_OK(gml_driver_stream_synchronize(self.driver, A));
    CHECK_STATUS(use(&self, self.base, C), GML_CORRUPT);
    CHECK_STATUS(gml_driver_unmap(self.driver, self.base, CHUNK), GML_CORRUPT);
    CHECK_OK(use(&self, self.base, A)); /* its own is the program's affair */
    gml_event event = 0;
    CHECK_OK(gml_driver_event_create(self.driver, &event));
    CHECK_OK(gml_driver_event_record_all(self.driver, event));
    let_wait(&self, C, event);
    CHECK_STATUS(use(&self, self.base, D), GML_CORRUPT);
    CHECK_STATUS(gml_driver_unmap(self.driver, self.base, CHUNK), GML_CORRUPT);
    CHECK_OK(use(&self, self.plain, C));
    CHECK_OK(gml_driver_event_synchronize(self.driver, event));
    CHECK_OK(gml_driver_unmap(self.driver, self.base, CHUNK));
    CHECK_OK(use(&self, self.view, D));
    close_bench(&self);
}

/* ---- which streams use ----------------------------------------------------------------------- */

TEST(every_stream_of_a_use_counts) {
    bench self = by_hand();
    CHECK_OK(begin(&self, self.base, A));
    CHECK_OK(self.checker->join_use(self.checker, self.base, B));
    CHECK_OK(self.checker->join_use(self.checker, self.base, B));
    CHECK_OK(self.checker->join_use(self.checker, self.base, A));
    CHECK_OK(self.checker->join_use(self.checker, self.base + CHUNK, B)); /* nobody's */
    self.checker->end_use(self.checker, self.base);
    CHECK_STATUS(use(&self, self.base, A), GML_CORRUPT);
    CHECK(says(&self, "0x7f0010"));
    let_wait(&self, A, record(&self, B));
    CHECK_OK(use(&self, self.base, A));
    CHECK_STATUS(use(&self, self.base, B), GML_CORRUPT);
    close_bench(&self);
}

TEST(many_streams) {
    enum { STREAMS = 64 };
    bench self = by_hand();
    CHECK_OK(begin(&self, self.base, 1));
    gml_event first = record(&self, 1); /* its clock grows with the streams that come */
    for (gml_stream stream = 2; stream <= STREAMS; stream++) {
        CHECK_OK(self.checker->join_use(self.checker, self.base, stream));
    }
    self.checker->end_use(self.checker, self.base);
    let_wait(&self, 1, first);
    for (gml_stream stream = 2; stream <= STREAMS; stream++) {
        CHECK_STATUS(use(&self, self.base, 1), GML_CORRUPT);
        let_wait(&self, 1, record(&self, stream));
    }
    CHECK_OK(use(&self, self.base, 1));
    close_bench(&self);
}

TEST(what_is_in_use_is_not_given_again) {
    bench self = by_hand();
    CHECK_OK(begin(&self, self.base, A));
    CHECK_STATUS(begin(&self, self.view, A), GML_CORRUPT);
    CHECK_OK(gml_driver_device_synchronize(self.driver));
    CHECK_STATUS(begin(&self, self.view, B), GML_CORRUPT);
    CHECK(says(&self, "holds"));
    self.checker->end_use(self.checker, self.base);
    self.checker->end_use(self.checker, self.base); /* nobody's */
    CHECK_OK(begin(&self, self.view, A));
    close_bench(&self);
}

/* ---- which memory ---------------------------------------------------------------------------- */

TEST(two_addresses_of_one_chunk) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    CHECK_STATUS(use(&self, self.view, B), GML_CORRUPT);
    CHECK_OK(use(&self, self.plain, B));
    close_bench(&self);
}

TEST(a_chunk_is_the_same_elsewhere) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    CHECK_OK(use(&self, self.view, A));
    CHECK_OK(wait_for_stream(&self, 0));
    CHECK_OK(use(&self, self.view, A));
    CHECK_OK(gml_driver_unmap(self.driver, self.base, CHUNK)); /* that use was elsewhere */
    CHECK_OK(gml_driver_release(self.driver, self.chunk));
    CHECK_STATUS(use(&self, self.view, B), GML_CORRUPT);
    CHECK_STATUS(gml_driver_unmap(self.driver, self.view, CHUNK), GML_CORRUPT);
    CHECK_OK(gml_driver_device_synchronize(self.driver));
    CHECK_OK(gml_driver_unmap(self.driver, self.view, CHUNK));
    CHECK_STATUS(use(&self, self.view, A), GML_CORRUPT); /* nothing is mapped */
    close_bench(&self);
}

TEST(new_memory_is_nobodys) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.plain, A));
    CHECK_OK(gml_driver_free(self.driver, self.plain));
    gml_address again = 0;
    CHECK_OK(gml_driver_malloc(self.driver, CHUNK, &again));
    CHECK_OK(use(&self, again, B));
    close_bench(&self);
}

static gml_status use_part(const bench *self, uint64_t offset, uint64_t size_bytes,
                           gml_stream stream) {
    gml_status status =
        self->checker->begin_use(self->checker, self->base + offset, size_bytes, stream);
    self->checker->end_use(self->checker, self->base + offset);
    return status;
}

TEST(parts_of_a_chunk) {
    const uint64_t part = 512;
    bench self = by_hand();
    CHECK_OK(use_part(&self, 0, 4 * part, A));
    CHECK_OK(use_part(&self, 4 * part, 4 * part, B));
    CHECK_STATUS(use_part(&self, 3 * part, 2 * part, A), GML_CORRUPT);
    CHECK_STATUS(use_part(&self, 3 * part, 2 * part, B), GML_CORRUPT);
    CHECK_OK(use_part(&self, 5 * part, part, B)); /* in the middle of a piece */
    CHECK_OK(use_part(&self, 8 * part, part, C));
    CHECK_OK(use_part(&self, part, part, A));
    let_wait(&self, C, record(&self, B));
    CHECK_OK(use_part(&self, 4 * part, 5 * part, C));
    CHECK_STATUS(use_part(&self, 6 * part, part, B), GML_CORRUPT);
    CHECK_STATUS(use_part(&self, 0, part, C), GML_CORRUPT);
    CHECK_STATUS(use_part(&self, 3 * part, part, C), GML_CORRUPT);
    CHECK_OK(use_part(&self, 0, 4 * part, A));
    close_bench(&self);
}

/* A block over several chunks, mapped in another order than in the base range. */
TEST(a_block_of_many_chunks) {
    enum { CHUNKS = 5 };
    gml_checker *checker;
    gml_driver *driver = open_watched("sim", &checker);
    bench self = {.driver = driver, .checker = checker};
    gml_address base = 0, view = 0;
    CHECK_OK(gml_driver_reserve(driver, CHUNKS * CHUNK, 0, &base));
    CHECK_OK(gml_driver_reserve(driver, CHUNKS * CHUNK, 0, &view));
    for (uint64_t i = 0; i < CHUNKS; i++) {
        gml_handle chunk = 0;
        CHECK_OK(gml_driver_create(driver, CHUNK, &chunk));
        CHECK_OK(gml_driver_map(driver, base + i * CHUNK, CHUNK, chunk));
        CHECK_OK(gml_driver_map(driver, view + (CHUNKS - 1 - i) * CHUNK, CHUNK, chunk));
    }
    self.base = base;
    CHECK_OK(use_part(&self, CHUNK + 512, CHUNK - 512, B));
    CHECK_OK(checker->begin_use(checker, view, CHUNK * 3 + 512, A)); /* up to 512 of it */
    checker->end_use(checker, view);
    CHECK_STATUS(use(&self, base + 1 * CHUNK, B), GML_CORRUPT);
    CHECK_OK(use(&self, base, B));
    CHECK_STATUS(checker->begin_use(checker, view, CHUNKS * CHUNK, A), GML_CORRUPT);
    CHECK_STATUS(gml_driver_unmap(driver, view, CHUNKS * CHUNK), GML_CORRUPT);
    CHECK_OK(wait_for_stream(&self, 0));
    CHECK_OK(gml_driver_unmap(driver, view, CHUNKS * CHUNK));
    CHECK_STATUS(gml_driver_unmap(driver, base, CHUNKS * CHUNK), GML_CORRUPT);
    CHECK_OK(gml_driver_event_synchronize(driver, record(&self, B)));
    CHECK_OK(gml_driver_unmap(driver, base, CHUNKS * CHUNK));
    gml_driver_close(driver);
}

TEST(memory_in_use_stays) {
    bench self = by_hand();
    CHECK_OK(begin(&self, self.base, A));
    CHECK_OK(begin(&self, self.plain, A));
    CHECK_OK(gml_driver_device_synchronize(self.driver));
    CHECK_STATUS(gml_driver_unmap(self.driver, self.base, CHUNK), GML_CORRUPT);
    CHECK_STATUS(gml_driver_free(self.driver, self.plain), GML_CORRUPT);
    CHECK_OK(gml_driver_unmap(self.driver, self.view, CHUNK));
    self.checker->end_use(self.checker, self.plain);
    CHECK_OK(gml_driver_free(self.driver, self.plain));
    close_bench(&self);
}

TEST(an_unmap_waits_for_every_stream_that_used_the_addresses) {
    bench self = by_hand();
    CHECK_OK(use(&self, self.base, A));
    gml_event of_a = record(&self, A);
    let_wait(&self, B, of_a);
    CHECK_OK(use(&self, self.base, B));
    CHECK_OK(gml_driver_event_synchronize(self.driver, of_a));
    CHECK_OK(gml_driver_stream_synchronize(self.driver, GML_ORDER_UNSEEN));
    CHECK_STATUS(gml_driver_unmap(self.driver, self.base, CHUNK), GML_CORRUPT);
    CHECK(says(&self, "0x7f0010"));
    CHECK_OK(gml_driver_stream_synchronize(self.driver, B));
    CHECK_OK(gml_driver_unmap(self.driver, self.base, CHUNK));
    close_bench(&self);
}

/* ---- around the rest ------------------------------------------------------------------------- */

/* Nobody has to know that a driver is watched, or that one is not. */
TEST(everything_else_is_passed_on) {
    bench self = open_bench("host");
    void *bytes = NULL;
    CHECK(strcmp(self.driver->ops->name, "host") == 0);
    CHECK_OK(gml_driver_bytes(self.driver, self.base, CHUNK, &bytes));
    CHECK_EQ(self.driver->held_bytes, 2 * CHUNK);
    CHECK_STATUS(gml_driver_release(self.driver, self.chunk + 77), GML_MISUSE);
    CHECK(self.driver->reason[0] != '\0');
    CHECK_STATUS(gml_driver_grant(self.driver, 1), GML_UNSUPPORTED);
    close_bench(&self);
}

/* What is skipped does not reach the driver inside, and so orders nothing. */
TEST(what_was_skipped_orders_nothing) {
    gml_checker *checker;
    gml_driver *watched = open_watched("sim", &checker), *driver = NULL;
    CHECK_OK(gml_fault_driver_open(watched, 0, 0, 0, &driver));
    bench self = {.driver = driver, .checker = checker};
    CHECK_OK(gml_driver_malloc(driver, CHUNK, &self.plain));
    CHECK_OK(use(&self, self.plain, A));
    CHECK_OK(gml_fault_driver_skip(driver, UINT64_C(1) << GML_CALL_STREAM_WAIT));
    let_wait(&self, B, record(&self, A));
    CHECK_EQ(driver->calls[GML_CALL_STREAM_WAIT], 2);
    CHECK_STATUS(use(&self, self.plain, B), GML_CORRUPT);
    CHECK(says(&self, "race"));
    CHECK_STATUS(gml_fault_driver_skip(driver, UINT64_C(1) << GML_CALL_MAP), GML_INVALID_ARGUMENT);
    CHECK_OK(gml_fault_driver_skip(driver, 0));
    let_wait(&self, B, record(&self, A));
    CHECK_OK(use(&self, self.plain, B));
    gml_driver_close(driver);
}
