/* Every kind of ordering that memory moves by, taken away: with all its calls made a program finds
 * nothing, with one kind of call skipped the watched driver finds the race.
 *
 * Each edge is a program in two parts. Only the second is run without the call. Streams run only
 * when they are told to, so that work is pending wherever nobody waited for it. */
#include "driver/streams.h"
#include "hooks/fault.h"
#include "hooks/test_hooks.h"
#include "lake/lake.h"
#include "support/policies.h"
#include "support/trainer.h"

#include <stdlib.h>
#include <string.h>

static const gml_stream A = 0x7f0010, B = 0x7f0020;

enum { MOST_LEFT = 16 };

typedef struct bench {
    gml_lake *lake;
    gml_status status;           /* the first that was not GML_OK */
    gml_address left[MOST_LEFT]; /* by the first part, for the second */
} bench;

typedef struct edge {
    const char *name;
    const char *policy;
    void (*prepare)(bench *self); /* NULL: nothing */
    void (*act)(bench *self);
    gml_driver_call skipped;
    const char *knob; /* set to `value`; NULL: none */
    uint64_t value;
} edge;

/* ---- what programs do ------------------------------------------------------------------------ */

static void note(bench *self, gml_status status) {
    self->status = self->status == GML_OK ? status : self->status;
}

/* 0 where it was refused. */
static gml_address take(bench *self, uint64_t size_bytes, gml_stream stream) {
    gml_address address = 0;
    note(self, gml_lake_allocate(self->lake, size_bytes, stream, &address));
    return address;
}

static void give(bench *self, gml_address address) {
    note(self, gml_lake_free(self->lake, address));
}

static void use(bench *self, uint64_t size_bytes, gml_stream stream) {
    give(self, take(self, size_bytes, stream));
}

static void do_nothing(void *context) {
    (void)context;
}

static void queue_work(bench *self, gml_stream stream) {
    CHECK_OK(gml_streams_enqueue(self->lake->driver->streams, stream, do_nothing, NULL));
}

/* A block with work behind it. */
static void work_and_use(bench *self, uint64_t size_bytes, gml_stream stream) {
    gml_address address = take(self, size_bytes, stream);
    queue_work(self, stream);
    give(self, address);
}

static void run_queues(bench *self) {
    gml_streams *streams = self->lake->driver->streams;
    CHECK_OK(gml_streams_set_manual(streams, false));
    CHECK_OK(gml_streams_set_manual(streams, true));
}

static void trim(bench *self) {
    note(self, gml_lake_trim(self->lake, NULL));
}

/* ---- borrowing ------------------------------------------------------------------------------- */

static void a_has_freed(bench *self) {
    work_and_use(self, 64 * MIB, A);
}

/* A view over two ranges of A with a block in between. */
static void a_has_stitched(bench *self) {
    self->left[0] = take(self, 20 * MIB, A);
    self->left[1] = take(self, 20 * MIB, A);
    self->left[2] = take(self, 20 * MIB, A);
    give(self, self->left[0]);
    give(self, self->left[2]);
    work_and_use(self, 40 * MIB, A);
}

/* ---- other streams that use a block ---------------------------------------------------------- */

static void b_reads_a_block(bench *self) {
    self->left[0] = take(self, 8 * MIB, A);
    note(self, gml_lake_record_stream(self->lake, self->left[0], B));
    queue_work(self, B);
}

static void a_reuses_the_block(bench *self) {
    give(self, self->left[0]);
    use(self, 8 * MIB, A);
    run_queues(self);
    use(self, 8 * MIB, A);
}

/* ---- mappings that go ------------------------------------------------------------------------ */

static void two_have_freed(bench *self) {
    work_and_use(self, 24 * MIB, A);
    self->left[0] = take(self, 24 * MIB, A);
    work_and_use(self, 24 * MIB, B);
}

static void trim_both(bench *self) {
    give(self, self->left[0]);
    trim(self);
}

/* There is room for one view only. */
static void a_stitches_again(bench *self) {
    use(self, 36 * MIB, A);
    give(self, self->left[1]);
}

/* ---- running them ---------------------------------------------------------------------------- */

static bench open_bench(const edge *tested, const char *driver) {
    const gml_setting settings[] = {
        {tested->knob ? tested->knob : "frag_limit", tested->knob ? tested->value : 0}};
    gml_lake_config config = {
        .driver = driver,
        .policy = tested->policy,
        .capacity_bytes = 256 * MIB,
        .settings = settings,
        .setting_count = sizeof settings / sizeof *settings,
        .hooks = GML_HOOKS(.skip_calls = UINT64_C(1) << tested->skipped, .check_order = true)};
    bench self = {0};
    char reason[256] = "";
    if (!CHECK_OK(gml_lake_open(&config, &self.lake, reason, sizeof reason))) {
        fprintf(stderr, "%s\n", reason);
        exit(1);
    }
    CHECK_OK(gml_streams_set_manual(self.lake->driver->streams, true));
    CHECK_OK(gml_fault_driver_skip(self.lake->driver, 0));
    return self;
}

/* What was skipped has left policies with wrong beliefs: the device is waited for in their stead.
 */
static void close_bench(bench *self) {
    CHECK_OK(gml_fault_driver_skip(self->lake->driver, 0));
    CHECK_OK(gml_driver_device_synchronize(self->lake->driver));
    CHECK_OK(gml_lake_close(self->lake));
}

/* The first part, and the second with or without the call. Returns how often the call was asked for
 * in the second. */
static uint64_t run_edge(const edge *tested, bench *self, bool is_skipped) {
    gml_driver *driver = self->lake->driver;
    if (tested->prepare) {
        tested->prepare(self);
    }
    CHECK_OK(self->status);
    uint64_t before = driver->calls[tested->skipped];
    CHECK_OK(gml_fault_driver_skip(driver, is_skipped ? UINT64_C(1) << tested->skipped : 0));
    tested->act(self);
    return driver->calls[tested->skipped] - before;
}

static bool holds(const edge *tested, const char *driver) {
    int failures = check_failures();
    bench self = open_bench(tested, driver);
    CHECK(run_edge(tested, &self, false) > 0);
    CHECK_OK(self.status);
    CHECK_OK(gml_lake_check(self.lake));
    close_bench(&self);

    self = open_bench(tested, driver);
    CHECK(run_edge(tested, &self, true) > 0);
    char reason[GML_REASON_BYTES] = "";
    gml_lake_reason(self.lake, reason, sizeof reason);
    CHECK_STATUS(self.status, GML_CORRUPT);
    CHECK(strncmp(reason, "race: ", 6) == 0);
    close_bench(&self);
    if (check_failures() > failures) {
        fprintf(stderr, "above: %s over %s without %s: \"%s\"\n", tested->name, driver,
                gml_driver_call_name(tested->skipped), reason);
    }
    return check_failures() == failures;
}

static void run_edges(const edge *edges, size_t count) {
    for (size_t i = 0; i < count; i++) {
        (void)holds(&edges[i], "sim");
        (void)holds(&edges[i], "host");
    }
}

#define RUN_EDGES(edges) run_edges(edges, sizeof(edges) / sizeof *(edges))

TEST(record_stream) {
    for (size_t i = 0; gml_policy_name(i); i++) {
        const char *policy = gml_policy_name(i);
        const edge edges[] = {
            {"a query", policy, b_reads_a_block, a_reuses_the_block, GML_CALL_EVENT_QUERY, NULL, 0},
            {"an event", policy, b_reads_a_block, a_reuses_the_block, GML_CALL_EVENT_RECORD, NULL,
             0},
        };
        RUN_EDGES(edges);
    }
}

TEST(unmap) {
    static const edge edges[] = {
        {"one stream", "stitch", a_has_freed, trim, GML_CALL_DEVICE_SYNCHRONIZE, NULL, 0},
        {"two streams", "stitch", two_have_freed, trim_both, GML_CALL_DEVICE_SYNCHRONIZE, NULL, 0},
        {"a view", "stitch", a_has_stitched, a_stitches_again, GML_CALL_DEVICE_SYNCHRONIZE,
         "max_views", 1},
        {"one stream", "expandable", a_has_freed, trim, GML_CALL_DEVICE_SYNCHRONIZE, NULL, 0},
    };
    RUN_EDGES(edges);
}
