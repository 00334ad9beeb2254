/* Dead writes: copies and sets whose bytes are overwritten before anything accesses them. */
#include "diagnose/findings.h"
#include "support/tracing.h"

#include <stdlib.h>
#include <string.h>

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

/* An API with one access to the whole object. */
static uint32_t
use(tracing *t, gml_api_kind kind, uint32_t object, uint32_t flags)
{
    uint32_t api = trace_api(t, kind);
    trace_access(t, object, flags);
    return api;
}

static uint32_t
use_run(tracing *t, gml_api_kind kind, uint32_t object, uint32_t flags, uint64_t offset,
        uint64_t size)
{
    uint32_t api = use(t, kind, object, flags);
    trace_run(t, offset, size);
    return api;
}

static size_t
count_dead(tracing *t)
{
    trace_diagnose(t, NULL);
    return trace_count(t, GML_PATTERN_DEAD_WRITE);
}

static gml_finding
only_dead(tracing *t)
{
    trace_diagnose(t, NULL);
    return trace_only(t, GML_PATTERN_DEAD_WRITE);
}

/* ---- whole objects --------------------------------------------------------------------------- */

TEST(a_copy_over_a_copy_is_dead)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 4);
    uint32_t first = use(&t, GML_API_COPY, x, WRITES);
    uint32_t other = trace_alloc(&t, 8, 4);
    uint32_t second = use(&t, GML_API_COPY, x, WRITES);
    use(&t, GML_API_KERNEL, x, READS);
    trace_free(&t, x);
    trace_free(&t, other);
    gml_finding found = only_dead(&t);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, second);
    CHECK_EQ(found.bytes, 100);
    CHECK_EQ(found.distance, 2);
    tracing_clear(&t);
}

TEST(sets_and_copies_kill_each_other)
{
    static const gml_api_kind kinds[] = {GML_API_SET, GML_API_COPY, GML_API_KERNEL};
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            tracing t = {0};
            uint32_t x = trace_alloc(&t, 100, 1);
            use(&t, kinds[a], x, WRITES);
            use(&t, kinds[b], x, WRITES);
            trace_free(&t, x);
            /* A kernel's write is an access, before a write as well as after it. */
            CHECK_EQ(count_dead(&t), a < 2 && b < 2);
            tracing_clear(&t);
        }
    }
}

TEST(any_access_between_keeps_a_write_alive)
{
    static const uint32_t flags[] = {READS, WRITES, READS | WRITES, TOUCHES};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        tracing t = {0};
        uint32_t x = trace_alloc(&t, 100, 1);
        use(&t, GML_API_SET, x, WRITES);
        use(&t, GML_API_KERNEL, x, flags[i]);
        use(&t, GML_API_COPY, x, WRITES);
        trace_free(&t, x);
        CHECK_EQ(count_dead(&t), 0);
        tracing_clear(&t);
    }
}

TEST(a_copy_that_reads_what_it_writes_is_an_access)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    use(&t, GML_API_SET, x, WRITES);
    use(&t, GML_API_COPY, x, READS | WRITES);
    use(&t, GML_API_COPY, x, READS);
    trace_access(&t, x, WRITES); /* reads before it writes */
    trace_free(&t, x);
    CHECK_EQ(count_dead(&t), 0);
    tracing_clear(&t);
}

TEST(a_write_that_nobody_reads_is_not_dead)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    use(&t, GML_API_COPY, x, WRITES);
    trace_free(&t, x);
    uint32_t y = trace_alloc(&t, 100, 1); /* another object, wherever it lies */
    use(&t, GML_API_COPY, y, WRITES);
    trace_free(&t, y);
    CHECK_EQ(count_dead(&t), 0);
    tracing_clear(&t);
}

TEST(each_of_several_writes_in_a_row_but_the_last_is_dead)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    uint32_t first = use(&t, GML_API_SET, x, WRITES);
    for (int i = 0; i < 9; i++) {
        use(&t, GML_API_SET, x, WRITES);
    }
    trace_free(&t, x);
    CHECK_EQ(count_dead(&t), 9);
    for (size_t i = 0; i < t.diagnosis.finding_count; i++) {
        const gml_finding *found = &t.diagnosis.findings[i];
        if (found->pattern == GML_PATTERN_DEAD_WRITE) {
            CHECK_EQ(found->to_api, found->from_api + 1);
            CHECK(found->from_api >= first && found->to_api < first + 10);
        }
    }
    tracing_clear(&t);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

TEST(only_common_bytes_are_dead)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 4);
    use_run(&t, GML_API_COPY, x, WRITES, 0, 61);
    uint32_t first = use_run(&t, GML_API_COPY, x, WRITES, 61, 39);
    uint32_t second = use_run(&t, GML_API_COPY, x, WRITES, 99, 1);
    trace_free(&t, x);
    gml_finding found = only_dead(&t); /* the first two touch, no more */
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, second);
    CHECK_EQ(found.bytes, 1);
    tracing_clear(&t);
}

TEST(what_was_read_of_a_write_is_not_dead)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    use(&t, GML_API_SET, x, WRITES);
    use_run(&t, GML_API_KERNEL, x, READS, 10, 20);
    use_run(&t, GML_API_KERNEL, x, READS, 20, 20);
    use(&t, GML_API_COPY, x, WRITES);
    trace_free(&t, x);
    CHECK_EQ(only_dead(&t).bytes, 70);
    tracing_clear(&t);
}

TEST(a_write_may_be_overwritten_piece_by_piece)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    uint32_t set = use(&t, GML_API_SET, x, WRITES);
    uint32_t left = use_run(&t, GML_API_COPY, x, WRITES, 0, 30);
    uint32_t right = use_run(&t, GML_API_COPY, x, WRITES, 20, 50);
    trace_free(&t, x);
    CHECK_EQ(count_dead(&t), 3);
    uint64_t left_bytes = 0, right_bytes = 0, both_bytes = 0;
    for (size_t i = 0; i < t.diagnosis.finding_count; i++) {
        const gml_finding *found = &t.diagnosis.findings[i];
        bool is_dead = found->pattern == GML_PATTERN_DEAD_WRITE;
        left_bytes += is_dead && found->to_api == left ? found->bytes : 0;
        both_bytes += is_dead && found->from_api == left ? found->bytes : 0;
        right_bytes +=
            is_dead && found->from_api == set && found->to_api == right ? found->bytes : 0;
    }
    CHECK_EQ(left_bytes, 30);
    CHECK_EQ(both_bytes, 10);
    CHECK_EQ(right_bytes, 40);
    tracing_clear(&t);
}

TEST(runs_are_counted_run_by_run)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 1000, 1);
    use(&t, GML_API_COPY, x, WRITES);
    trace_runs(&t, 0, 4, 10, 100);
    use(&t, GML_API_COPY, x, WRITES);
    trace_runs(&t, 2, 4, 10, 50); /* two bytes of every run of the upper half */
    trace_free(&t, x);
    CHECK_EQ(only_dead(&t).bytes, 100);
    tracing_clear(&t);
}

TEST(columns_of_a_large_matrix_are_compared_as_columns)
{
    const uint64_t n = 4096;
    tracing t = {0};
    uint32_t x = trace_alloc(&t, n * n * 4, 4);
    for (uint64_t k = 0; k < 2 * n; k++) {
        use(&t, GML_API_COPY, x, WRITES);
        trace_runs(&t, 4 * (k * 1027 % n), 4, 4 * n, n);
    }
    trace_free(&t, x);
    CHECK_EQ(count_dead(&t), n);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    tracing_clear(&t);
}

/* ---- several streams ------------------------------------------------------------------------- */

TEST(writes_of_two_streams_are_ordered_by_the_object)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    t.stream = 1;
    uint32_t first = use(&t, GML_API_COPY, x, WRITES);
    t.stream = 2;
    uint32_t second = use(&t, GML_API_COPY, x, WRITES);
    t.stream = 0;
    trace_free(&t, x);
    gml_finding found = only_dead(&t);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, second);
    CHECK_EQ(found.distance, 1);
    tracing_clear(&t);
}

TEST(a_read_on_another_stream_keeps_a_write_alive)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    t.stream = 1;
    use(&t, GML_API_COPY, x, WRITES);
    t.stream = 2;
    use_run(&t, GML_API_KERNEL, x, READS, 0, 99);
    t.stream = 1;
    use(&t, GML_API_COPY, x, WRITES);
    trace_free(&t, x);
    CHECK_EQ(only_dead(&t).bytes, 1);
    tracing_clear(&t);
}

/* Where the graph is too large to be kept, only the order within streams is known. */
TEST(writes_without_a_known_order_are_not_dead)
{
    tracing t = {0};
    uint32_t x = trace_alloc(&t, 100, 1);
    t.stream = 1;
    use(&t, GML_API_COPY, x, WRITES);
    t.stream = 2;
    uint32_t second = use(&t, GML_API_COPY, x, WRITES);
    uint32_t third = use(&t, GML_API_COPY, x, WRITES);
    gml_object_trace view = trace_view(&t);
    gml_trace_index index = {0};
    gml_diagnose_options options;
    gml_findings found = {0};
    gml_diagnose_defaults(&options);
    CHECK_OK(gml_index_build(&index, &view, NULL, 0));
    free(index.clocks);
    index.clocks = NULL;
    CHECK_OK(gml_find_dead_writes(&index, &options, &found));
    CHECK_EQ(found.count, 1);
    CHECK_EQ(found.count ? found.items[0].from_api : 0, second);
    CHECK_EQ(found.count ? found.items[0].to_api : 0, third);
    free(found.items);
    gml_index_clear(&index);
    tracing_clear(&t);
}

/* ---- against the definition ------------------------------------------------------------------ */

enum { MOST_BYTES = 120, MOST_APIS = 12, NOBODY = -1 };

/* One object, and for each byte who wrote it last, if nobody has accessed it since. */
typedef struct scene {
    tracing trace;
    uint64_t size;
    int writer[MOST_BYTES];
    bool is_met[MOST_BYTES]; /* by the access at hand */
    uint64_t dead[MOST_APIS + 1][MOST_APIS + 1];
} scene;

static void
random_range(scene *s, check_random *random)
{
    static const uint64_t strides[] = {12, 12, 24, 6, 5, 1};
    gml_access_range range = {.offset = check_below(random, s->size), .repeat = 1, .weight = 1};
    range.stride_bytes = strides[check_below(random, sizeof strides / sizeof *strides)];
    uint64_t left = s->size - range.offset;
    range.size_bytes = 1 + check_below(random, left);
    if (check_below(random, 4)) {
        uint64_t most = range.stride_bytes < left ? range.stride_bytes : left;
        range.size_bytes = 1 + check_below(random, most);
        range.repeat = 1 + check_below(random, 1 + (left - range.size_bytes) / range.stride_bytes);
    }
    trace_range(&s->trace, range);
    for (uint64_t run = 0; run < range.repeat; run++) {
        memset(&s->is_met[range.offset + run * range.stride_bytes], true, range.size_bytes);
    }
}

static void
random_access(scene *s, uint32_t api, uint32_t flags, bool is_write, check_random *random)
{
    uint64_t ranges = check_below(random, 6) ? 1 + check_below(random, 3) : 0;
    memset(s->is_met, ranges == 0, sizeof s->is_met);
    trace_access(&s->trace, 0, flags);
    for (; ranges > 0; ranges--) {
        random_range(s, random);
    }
    for (uint64_t byte = 0; byte < s->size; byte++) {
        if (s->is_met[byte]) {
            if (is_write && s->writer[byte] != NOBODY) {
                s->dead[s->writer[byte]][api]++;
            }
            s->writer[byte] = is_write ? (int)api : NOBODY;
        }
    }
}

static void
random_scene(scene *s, check_random *random)
{
    static const uint32_t others[] = {READS, WRITES, READS | WRITES, TOUCHES};
    s->size = 1 + check_below(random, MOST_BYTES);
    memset(s->writer, NOBODY, sizeof s->writer);
    trace_alloc(&s->trace, s->size, 4);
    for (uint64_t left = check_below(random, MOST_APIS); left > 0; left--) {
        s->trace.stream = check_below(random, 2);
        if (check_below(random, 3) == 0) {
            uint32_t kernel = trace_api(&s->trace, GML_API_KERNEL);
            random_access(s, kernel, others[check_below(random, 4)], false, random);
            continue;
        }
        uint32_t api = trace_api(&s->trace, check_below(random, 2) ? GML_API_COPY : GML_API_SET);
        if (check_below(random, 4) == 0) {
            random_access(s, api, READS, false, random);
        }
        random_access(s, api, WRITES, true, random);
    }
}

static void
check_scene(scene *s)
{
    size_t pairs = 0;
    for (size_t from = 0; from <= MOST_APIS; from++) {
        for (size_t to = 0; to <= MOST_APIS; to++) {
            pairs += s->dead[from][to] > 0;
        }
    }
    CHECK_EQ(count_dead(&s->trace), pairs);
    for (size_t i = 0; i < s->trace.diagnosis.finding_count; i++) {
        const gml_finding *found = &s->trace.diagnosis.findings[i];
        if (found->pattern == GML_PATTERN_DEAD_WRITE) {
            CHECK_EQ(found->bytes, s->dead[found->from_api][found->to_api]);
        }
    }
}

TEST(random_scenes_agree_with_the_definition)
{
    for (uint64_t seed = 0; seed < 20000; seed++) {
        check_random random = {seed};
        scene s;
        memset(&s, 0, sizeof s);
        random_scene(&s, &random);
        int failures = check_failures();
        check_scene(&s);
        tracing_clear(&s.trace);
        if (check_failures() > failures) {
            fprintf(stderr, "seed %" PRIu64 "\n", seed);
            return;
        }
    }
}

int
main(void)
{
    RUN(a_copy_over_a_copy_is_dead);
    RUN(sets_and_copies_kill_each_other);
    RUN(any_access_between_keeps_a_write_alive);
    RUN(a_copy_that_reads_what_it_writes_is_an_access);
    RUN(a_write_that_nobody_reads_is_not_dead);
    RUN(each_of_several_writes_in_a_row_but_the_last_is_dead);
    RUN(only_common_bytes_are_dead);
    RUN(what_was_read_of_a_write_is_not_dead);
    RUN(a_write_may_be_overwritten_piece_by_piece);
    RUN(runs_are_counted_run_by_run);
    RUN(columns_of_a_large_matrix_are_compared_as_columns);
    RUN(writes_of_two_streams_are_ordered_by_the_object);
    RUN(a_read_on_another_stream_keeps_a_write_alive);
    RUN(writes_without_a_known_order_are_not_dead);
    RUN(random_scenes_agree_with_the_definition);
    return report();
}
