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

static const gml_stream A = 0x7f0010, B = 0x7f0020, C = 0x7f0030;

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
    CHECK_OK(gml_streams_enqueue(gml_driver_streams(self->lake->driver), stream, do_nothing, NULL));
}

/* A block with work behind it. */
static void work_and_use(bench *self, uint64_t size_bytes, gml_stream stream) {
    gml_address address = take(self, size_bytes, stream);
    queue_work(self, stream);
    give(self, address);
}

static void run_queues(bench *self) {
    gml_streams *streams = gml_driver_streams(self->lake->driver);
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

/* Chunks of what A freed. */
static void b_borrows(bench *self) {
    use(self, 40 * MIB, B);
}

/* All of it, at the address where A had it. */
static void b_adopts(bench *self) {
    use(self, 64 * MIB, B);
}

static void b_has_borrowed(bench *self) {
    a_has_freed(self);
    work_and_use(self, 40 * MIB, B);
}

/* Its old place, with what B has had of it since. */
static void a_takes_back(bench *self) {
    use(self, 64 * MIB, A);
}

/* C waits for B alone, which has waited for A. */
static void c_borrows(bench *self) {
    use(self, 40 * MIB, C);
}

/* A small request needs a slab. */
static void b_is_small(bench *self) {
    use(self, MIB / 2, B);
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

static void b_takes_the_view(bench *self) {
    use(self, 40 * MIB, B);
    give(self, self->left[1]);
}

/* The device is full: all that others hold free is taken. */
static void b_takes_everything(bench *self) {
    use(self, 250 * MIB, B);
}

static void all_have_freed(bench *self) {
    work_and_use(self, 100 * MIB, A);
    work_and_use(self, 150 * MIB, C);
}

/* ---- memory that is known to be complete ----------------------------------------------------- */

/* Neighbours of two streams. */
static void neighbours_are_free(bench *self) {
    gml_address of_a = take(self, 20 * MIB, A);
    gml_address of_c = take(self, 20 * MIB, C);
    queue_work(self, A);
    queue_work(self, C);
    give(self, of_a);
    give(self, of_c);
}

static void b_takes_both(bench *self) {
    use(self, 40 * MIB, B);
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

/* ---- steps that repeat ----------------------------------------------------------------------- */

static void step(bench *self, gml_stream stream) {
    enum { BLOCKS = 6 };
    gml_address blocks[BLOCKS];
    CHECK_OK(gml_lake_mark(self->lake));
    for (uint64_t i = 0; i < BLOCKS; i++) {
        blocks[i] = take(self, (i + 1) * 8 * MIB, stream);
    }
    queue_work(self, stream);
    for (size_t i = 0; i < BLOCKS; i++) {
        give(self, blocks[i]);
    }
}

/* Steps that repeat, for which most of the device is kept. */
static void a_repeats_steps(bench *self) {
    gml_stats stats = {0};
    for (int i = 0; i < 6; i++) {
        step(self, A);
    }
    CHECK_OK(gml_lake_mark(self->lake));
    CHECK_OK(gml_lake_stats(self->lake, &stats));
    CHECK(stats.states[GML_STATE_PLAN] > 0);
}

/* More than is left beside it. */
static void b_needs_what_it_holds(bench *self) {
    use(self, 200 * MIB, B);
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
    CHECK_OK(gml_streams_set_manual(gml_driver_streams(self.lake->driver), true));
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

TEST(borrow) {
    static const edge edges[] = {
        {"chunks", "stitch", a_has_freed, b_borrows, GML_CALL_STREAM_WAIT, NULL, 0},
        {"chunks", "stitch", a_has_freed, b_borrows, GML_CALL_EVENT_RECORD_ALL, NULL, 0},
        {"a place", "stitch", a_has_freed, b_adopts, GML_CALL_STREAM_WAIT, NULL, 0},
        {"what was lent", "stitch", b_has_borrowed, a_takes_back, GML_CALL_STREAM_WAIT, NULL, 0},
        {"in a row", "stitch", b_has_borrowed, c_borrows, GML_CALL_STREAM_WAIT, NULL, 0},
        {"a view", "stitch", a_has_stitched, b_takes_the_view, GML_CALL_STREAM_WAIT, NULL, 0},
        {"everything", "stitch", all_have_freed, b_takes_everything, GML_CALL_STREAM_WAIT, NULL, 0},
    };
    RUN_EDGES(edges);
    const edge beside_steps[] = {{"beside steps", policy_with_steps(), a_has_freed, b_borrows,
                                  GML_CALL_STREAM_WAIT, NULL, 0}};
    if (policy_with_steps()) {
        RUN_EDGES(beside_steps);
    }
}

TEST(neutral_merge) {
    static const edge edges[] = {
        {"one range", "stitch", a_has_freed, b_borrows, GML_CALL_EVENT_QUERY, NULL, 0},
        {"neighbours", "stitch", neighbours_are_free, b_takes_both, GML_CALL_EVENT_QUERY, NULL, 0},
        {"small", "stitch", a_has_freed, b_is_small, GML_CALL_EVENT_QUERY, NULL, 0},
    };
    RUN_EDGES(edges);
}

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
        {"one stream", "gmlake-paper", a_has_freed, trim, GML_CALL_DEVICE_SYNCHRONIZE, NULL, 0},
    };
    RUN_EDGES(edges);
}

TEST(steps_that_repeat) {
    const edge edges[] = {
        {"for another", policy_with_steps(), a_repeats_steps, b_needs_what_it_holds,
         GML_CALL_STREAM_WAIT, NULL, 0},
        {"at a trim", policy_with_steps(), a_repeats_steps, trim, GML_CALL_DEVICE_SYNCHRONIZE, NULL,
         0},
    };
    if (policy_with_steps()) {
        RUN_EDGES(edges);
    }
}

/* One stream is ordered with itself: it makes no call that could be skipped. */
TEST(one_stream_has_no_edge) {
    const edge alone = {"alone", "stitch", NULL, NULL, GML_CALL_EVENT_RECORD, NULL, 0};
    bench self = open_bench(&alone, "sim");
    for (uint64_t i = 1; i <= 50; i++) {
        work_and_use(&self, i * MIB / 2, A);
    }
    CHECK_OK(self.status);
    for (int call = GML_CALL_EVENT_CREATE; call <= GML_CALL_STREAM_WAIT; call++) {
        CHECK_EQ(self.lake->driver->calls[call], 0);
    }
    close_bench(&self);
}

/* A race that the lake refuses leaves the lake whole: the block went back to its owner. */
TEST(a_refused_request_leaves_no_block) {
    const edge refused = {"refused", "stitch", a_has_freed, b_borrows, GML_CALL_STREAM_WAIT,
                          NULL,      0};
    bench self = open_bench(&refused, "sim");
    CHECK(run_edge(&refused, &self, true) > 0);
    CHECK_STATUS(self.status, GML_CORRUPT);
    gml_stats stats;
    CHECK_OK(gml_lake_stats(self.lake, &stats));
    CHECK_EQ(stats.live_blocks, 0);
    CHECK_EQ(stats.allocations, 1);
    CHECK_OK(gml_lake_check(self.lake));
    run_queues(&self);
    CHECK_OK(gml_fault_driver_skip(self.lake->driver, 0));
    CHECK_OK(gml_lake_trim(self.lake, NULL));
    CHECK_OK(gml_lake_stats(self.lake, &stats));
    CHECK_EQ(stats.reserved_bytes, 0);
    close_bench(&self);
}

/* Only orderings can be left out. */
TEST(what_cannot_be_skipped) {
    gml_lake_config config = {.driver = "sim",
                              .policy = "stitch",
                              .hooks = GML_HOOKS(.skip_calls = UINT64_C(1) << GML_CALL_CREATE)};
    gml_lake *lake = NULL;
    char reason[256] = "";
    CHECK_STATUS(gml_lake_open(&config, &lake, reason, sizeof reason), GML_INVALID_ARGUMENT);
    CHECK(strstr(reason, "skip_calls") != NULL);
}

/* One configuration is compared with another by its hooks. */
TEST(the_same_aids_have_the_same_hooks) {
    const gml_lake_hooks *hooks = GML_HOOKS(.fail_call = 3, .check_order = true);
    CHECK(hooks == GML_HOOKS(.check_order = true, .fail_call = 3));
    CHECK(hooks != GML_HOOKS(.fail_call = 3));
    CHECK_EQ(gml_test_options_of(hooks).fail_call, 3);
    CHECK(!gml_test_options_of(NULL).check_order);
}
