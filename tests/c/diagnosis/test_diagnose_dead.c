/* Dead writes: copies and sets whose bytes are overwritten before anything accesses them. */
#include "diagnosis/findings.h"
#include "diagnosis/scenario.h"

#include <stdlib.h>
#include <string.h>

enum { READS = GML_ACCESS_READS, WRITES = GML_ACCESS_WRITES, TOUCHES = GML_ACCESS_TOUCHES };

/* An API with one access to the whole object. */
static uint32_t use(scenario *t, gml_api_kind kind, uint32_t object, uint32_t flags) {
    uint32_t api = (uint32_t)scenario_call(t, kind);
    scenario_access(t, object, flags);
    return api;
}

static uint32_t use_run(scenario *t, gml_api_kind kind, uint32_t object, uint32_t flags,
                        uint64_t offset, uint64_t size) {
    uint32_t api = use(t, kind, object, flags);
    scenario_range(t, offset, size);
    return api;
}

static size_t count_dead(scenario *t) {
    CHECK_OK(scenario_diagnose(t, SCENARIO_EVERY_PATTERN));
    return scenario_total(t, GML_PATTERN_DEAD_WRITE);
}

static gml_finding only_dead(scenario *t) {
    CHECK_OK(scenario_diagnose(t, SCENARIO_EVERY_PATTERN));
    return scenario_only(t, GML_PATTERN_DEAD_WRITE);
}

/* ---- whole objects --------------------------------------------------------------------------- */

SCENARIO(a_copy_over_a_copy_is_dead) {
    uint32_t x = scenario_new_of(s, 100, 4);
    uint32_t first = use(s, GML_API_COPY, x, WRITES);
    uint32_t other = scenario_new_of(s, 8, 4);
    uint32_t second = use(s, GML_API_COPY, x, WRITES);
    use(s, GML_API_KERNEL, x, READS);
    scenario_free(s, x);
    scenario_free(s, other);
    gml_finding found = only_dead(s);
    CHECK_EQ(found.object, x);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, second);
    CHECK_EQ(found.bytes, 100);
    CHECK_EQ(found.distance, 2);
}

TEST(sets_and_copies_kill_each_other) {
    static const gml_api_kind kinds[] = {GML_API_SET, GML_API_COPY, GML_API_KERNEL};
    for (size_t a = 0; a < 3; a++) {
        for (size_t b = 0; b < 3; b++) {
            scenario t;
            scenario_open(&t);
            uint32_t x = scenario_new(&t, 100);
            use(&t, kinds[a], x, WRITES);
            use(&t, kinds[b], x, WRITES);
            scenario_free(&t, x);
            /* A kernel's write is an access, before a write as well as after it. */
            CHECK_EQ(count_dead(&t), a < 2 && b < 2);
            scenario_close(&t);
        }
    }
}

TEST(any_access_between_keeps_a_write_alive) {
    static const uint32_t flags[] = {READS, WRITES, READS | WRITES, TOUCHES};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        scenario t;
        scenario_open(&t);
        uint32_t x = scenario_new(&t, 100);
        use(&t, GML_API_SET, x, WRITES);
        use(&t, GML_API_KERNEL, x, flags[i]);
        use(&t, GML_API_COPY, x, WRITES);
        scenario_free(&t, x);
        CHECK_EQ(count_dead(&t), 0);
        scenario_close(&t);
    }
}

SCENARIO(a_copy_that_reads_what_it_writes_is_an_access) {
    uint32_t x = scenario_new(s, 100);
    use(s, GML_API_SET, x, WRITES);
    use(s, GML_API_COPY, x, READS | WRITES);
    use(s, GML_API_COPY, x, READS);
    scenario_access(s, x, WRITES); /* reads before it writes */
    scenario_free(s, x);
    CHECK_EQ(count_dead(s), 0);
}

SCENARIO(a_write_that_nobody_reads_is_not_dead) {
    uint32_t x = scenario_new(s, 100);
    use(s, GML_API_COPY, x, WRITES);
    scenario_free(s, x);
    uint32_t y = scenario_new(s, 100); /* another object, wherever it lies */
    use(s, GML_API_COPY, y, WRITES);
    scenario_free(s, y);
    CHECK_EQ(count_dead(s), 0);
}

SCENARIO(each_of_several_writes_in_a_row_but_the_last_is_dead) {
    uint32_t x = scenario_new(s, 100);
    uint32_t first = use(s, GML_API_SET, x, WRITES);
    for (int i = 0; i < 9; i++) {
        use(s, GML_API_SET, x, WRITES);
    }
    scenario_free(s, x);
    CHECK_EQ(count_dead(s), 9);
    for (size_t i = 0; i < s->diagnosis.finding_count; i++) {
        const gml_finding *found = &s->diagnosis.findings[i];
        if (found->pattern == GML_PATTERN_DEAD_WRITE) {
            CHECK_EQ(found->to_api, found->from_api + 1);
            CHECK(found->from_api >= first && found->to_api < first + 10);
        }
    }
}

/* ---- ranges ---------------------------------------------------------------------------------- */

SCENARIO(only_common_bytes_are_dead) {
    uint32_t x = scenario_new_of(s, 100, 4);
    use_run(s, GML_API_COPY, x, WRITES, 0, 61);
    uint32_t first = use_run(s, GML_API_COPY, x, WRITES, 61, 39);
    uint32_t second = use_run(s, GML_API_COPY, x, WRITES, 99, 1);
    scenario_free(s, x);
    gml_finding found = only_dead(s); /* the first two touch, no more */
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, second);
    CHECK_EQ(found.bytes, 1);
}

SCENARIO(what_was_read_of_a_write_is_not_dead) {
    uint32_t x = scenario_new(s, 100);
    use(s, GML_API_SET, x, WRITES);
    use_run(s, GML_API_KERNEL, x, READS, 10, 20);
    use_run(s, GML_API_KERNEL, x, READS, 20, 20);
    use(s, GML_API_COPY, x, WRITES);
    scenario_free(s, x);
    CHECK_EQ(only_dead(s).bytes, 70);
}

SCENARIO(a_write_may_be_overwritten_piece_by_piece) {
    uint32_t x = scenario_new(s, 100);
    uint32_t set = use(s, GML_API_SET, x, WRITES);
    uint32_t left = use_run(s, GML_API_COPY, x, WRITES, 0, 30);
    uint32_t right = use_run(s, GML_API_COPY, x, WRITES, 20, 50);
    scenario_free(s, x);
    CHECK_EQ(count_dead(s), 3);
    uint64_t left_bytes = 0, right_bytes = 0, both_bytes = 0;
    for (size_t i = 0; i < s->diagnosis.finding_count; i++) {
        const gml_finding *found = &s->diagnosis.findings[i];
        bool is_dead = found->pattern == GML_PATTERN_DEAD_WRITE;
        left_bytes += is_dead && found->to_api == left ? found->bytes : 0;
        both_bytes += is_dead && found->from_api == left ? found->bytes : 0;
        right_bytes +=
            is_dead && found->from_api == set && found->to_api == right ? found->bytes : 0;
    }
    CHECK_EQ(left_bytes, 30);
    CHECK_EQ(both_bytes, 10);
    CHECK_EQ(right_bytes, 40);
}

SCENARIO(runs_are_counted_run_by_run) {
    uint32_t x = scenario_new(s, 1000);
    use(s, GML_API_COPY, x, WRITES);
    scenario_runs(s, 0, 4, 10, 100);
    use(s, GML_API_COPY, x, WRITES);
    scenario_runs(s, 2, 4, 10, 50); /* two bytes of every run of the upper half */
    scenario_free(s, x);
    CHECK_EQ(only_dead(s).bytes, 100);
}

TEST(columns_of_a_large_matrix_are_compared_as_columns) {
    const uint64_t n = 4096;
    scenario t;
    scenario_open(&t);
    uint32_t x = scenario_new_of(&t, n * n * 4, 4);
    for (uint64_t k = 0; k < 2 * n; k++) {
        use(&t, GML_API_COPY, x, WRITES);
        scenario_runs(&t, 4 * (k * 1027 % n), 4, 4 * n, n);
    }
    scenario_free(&t, x);
    CHECK_EQ(count_dead(&t), n);
    CHECK(t.diagnosis.time_ns < 1000 * 1000 * 1000);
    scenario_close(&t);
}

/* ---- several streams ------------------------------------------------------------------------- */

SCENARIO(writes_of_two_streams_are_ordered_by_the_object) {
    uint32_t x = scenario_new(s, 100);
    s->stream = 1;
    uint32_t first = use(s, GML_API_COPY, x, WRITES);
    s->stream = 2;
    uint32_t second = use(s, GML_API_COPY, x, WRITES);
    s->stream = 0;
    scenario_free(s, x);
    gml_finding found = only_dead(s);
    CHECK_EQ(found.from_api, first);
    CHECK_EQ(found.to_api, second);
    CHECK_EQ(found.distance, 1);
}

SCENARIO(a_read_on_another_stream_keeps_a_write_alive) {
    uint32_t x = scenario_new(s, 100);
    s->stream = 1;
    use(s, GML_API_COPY, x, WRITES);
    s->stream = 2;
    use_run(s, GML_API_KERNEL, x, READS, 0, 99);
    s->stream = 1;
    use(s, GML_API_COPY, x, WRITES);
    scenario_free(s, x);
    CHECK_EQ(only_dead(s).bytes, 1);
}

/* Where the graph is too large to be kept, only the order within streams is known. */
SCENARIO(writes_without_a_known_order_are_not_dead) {
    uint32_t x = scenario_new(s, 100);
    s->stream = 1;
    use(s, GML_API_COPY, x, WRITES);
    s->stream = 2;
    uint32_t second = use(s, GML_API_COPY, x, WRITES);
    uint32_t third = use(s, GML_API_COPY, x, WRITES);
    gml_trace_index index = {0};
    gml_diagnose_options options;
    gml_findings found = {0};
    gml_diagnose_defaults(&options);
    CHECK_OK(gml_index_build(&index, &s->trace, NULL, 0));
    free(index.clocks);
    index.clocks = NULL;
    CHECK_OK(gml_find_dead_writes(&index, &options, &found));
    CHECK_EQ(found.count, 1);
    CHECK_EQ(found.count ? found.items[0].from_api : 0, second);
    CHECK_EQ(found.count ? found.items[0].to_api : 0, third);
    free(found.items);
    gml_index_clear(&index);
}

/* ---- against the definition ------------------------------------------------------------------ */

enum { MOST_BYTES = 120, MOST_APIS = 12, NOBODY = -1 };

/* One object, and for each byte who wrote it last, if nobody has accessed it since. */
typedef struct scene {
    scenario scenario;
    uint64_t size;
    int writer[MOST_BYTES];
    bool is_met[MOST_BYTES]; /* by the access at hand */
    uint64_t dead[MOST_APIS + 1][MOST_APIS + 1];
} scene;

static void random_range(scene *s, check_random *random) {
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
    scenario_add_range(&s->scenario, range);
    for (uint64_t run = 0; run < range.repeat; run++) {
        memset(&s->is_met[range.offset + run * range.stride_bytes], true, range.size_bytes);
    }
}

static void random_access(scene *s, uint32_t api, uint32_t flags, bool is_write,
                          check_random *random) {
    uint64_t ranges = check_below(random, 6) ? 1 + check_below(random, 3) : 0;
    memset(s->is_met, ranges == 0, sizeof s->is_met);
    scenario_access(&s->scenario, 0, flags);
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

static void random_scene(scene *s, check_random *random) {
    static const uint32_t others[] = {READS, WRITES, READS | WRITES, TOUCHES};
    s->size = 1 + check_below(random, MOST_BYTES);
    memset(s->writer, NOBODY, sizeof s->writer);
    scenario_open(&s->scenario);
    scenario_new_of(&s->scenario, s->size, 4);
    for (uint64_t left = check_below(random, MOST_APIS); left > 0; left--) {
        s->scenario.stream = check_below(random, 2);
        if (check_below(random, 3) == 0) {
            uint32_t kernel = (uint32_t)scenario_call(&s->scenario, GML_API_KERNEL);
            random_access(s, kernel, others[check_below(random, 4)], false, random);
            continue;
        }
        uint32_t api = (uint32_t)scenario_call(&s->scenario,
                                               check_below(random, 2) ? GML_API_COPY : GML_API_SET);
        if (check_below(random, 4) == 0) {
            random_access(s, api, READS, false, random);
        }
        random_access(s, api, WRITES, true, random);
    }
}

static void check_scene(scene *s) {
    size_t pairs = 0;
    for (size_t from = 0; from <= MOST_APIS; from++) {
        for (size_t to = 0; to <= MOST_APIS; to++) {
            pairs += s->dead[from][to] > 0;
        }
    }
    CHECK_EQ(count_dead(&s->scenario), pairs);
    for (size_t i = 0; i < s->scenario.diagnosis.finding_count; i++) {
        const gml_finding *found = &s->scenario.diagnosis.findings[i];
        if (found->pattern == GML_PATTERN_DEAD_WRITE) {
            CHECK_EQ(found->bytes, s->dead[found->from_api][found->to_api]);
        }
    }
}

TEST(random_scenes_agree_with_the_definition) {
    for (uint64_t seed = 0; seed < 20000; seed++) {
        check_random random = {seed};
        scene s;
        memset(&s, 0, sizeof s);
        random_scene(&s, &random);
        int failures = check_failures();
        check_scene(&s);
        scenario_close(&s.scenario);
        if (check_failures() > failures) {
            fprintf(stderr, "seed %" PRIu64 "\n", seed);
            return;
        }
    }
}
