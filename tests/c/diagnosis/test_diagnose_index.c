/* What a trace must be, and the order of its APIs: levels, distances, and what is known to be over
 * before what. */
#include "diagnosis/index.h"
#include "diagnosis/scenario.h"

#include <stdlib.h>
#include <string.h>

enum {
    READS = GML_ACCESS_READS,
    WRITES = GML_ACCESS_WRITES,
    BOTH = GML_ACCESS_READS | GML_ACCESS_WRITES,
    TOUCHES = GML_ACCESS_TOUCHES
};

#define BYTES UINT64_C(1000)

/* ---- traces that contradict themselves ------------------------------------------------------- */

/* Two objects: `a` is written, read in part and freed, `b` is there before. */
static void open_fine(scenario *s) {
    scenario_open(s);
    uint32_t a = scenario_new(s, BYTES);
    uint32_t b = scenario_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    (void)scenario_kernel(s, a, WRITES);
    (void)scenario_kernel(s, a, READS);
    scenario_runs(s, 100, 100, 200, 5);
    scenario_access(s, b, WRITES);
    scenario_range(s, 999, 1);
    (void)scenario_free(s, a);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
}

/* The trace is refused, and the reason has these words. */
static void expect_refusal(scenario *s, const char *words) {
    memset(s->reason, 0, sizeof s->reason);
    CHECK_STATUS(scenario_diagnose(s, SCENARIO_EVERY_PATTERN), GML_INVALID_ARGUMENT);
    if (!CHECK(strstr(s->reason, words) != NULL)) {
        fprintf(stderr, "the reason is \"%s\", not \"%s\"\n", s->reason, words);
    }
    CHECK(!s->diagnosis.findings);
    CHECK_STATUS(gml_diagnose(&s->trace, NULL, &s->diagnosis, NULL, 0), GML_INVALID_ARGUMENT);
}

/* The trace is refused where one thing in it is changed. */
#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        scenario s;                                                                                \
        open_fine(&s);                                                                             \
        change;                                                                                    \
        expect_refusal(&s, words);                                                                 \
        scenario_close(&s);                                                                        \
    } while (0)

TEST(objects_out_of_range_are_refused) {
    REFUSED(s.objects[1].size_bytes = 0, "object 1 has a size");
    REFUSED(s.objects[0].size_bytes = (UINT64_C(1) << 48) + 1, "object 0 has a size");
    REFUSED(s.objects[1].element_bytes = 0, "object 1 has elements of 0 bytes");
    REFUSED(s.objects[1].flags |= 4, "object 1 has unknown flags");
}

TEST(apis_out_of_range_are_refused) {
    REFUSED(s.apis[1].kind = GML_API_KIND_COUNT, "API 1 has an unknown kind");
    REFUSED(s.apis[1].reserved = 1, "API 1 has an unknown kind");
    REFUSED(s.apis[2].first_access = 0, "the accesses of API 2");
    REFUSED(s.apis[2].access_count = 3, "API 2 has more accesses than there are");
    REFUSED(s.apis[2].access_count = 1, "the accesses of API 3");
    REFUSED(s.trace.access_count++, "access 3 belongs to no API");
    REFUSED(s.apis[1].object = 0, "API 1 names object 0");
    REFUSED(s.apis[3].access_count = 1, "API 3, an allocation or a free, has accesses");
    REFUSED(s.apis[3].object = 2, "API 3 allocates or frees object 2");
}

TEST(lives_that_contradict_themselves_are_refused) {
    REFUSED(s.objects[0].flags = GML_OBJECT_BEFORE,
            "API 0 allocates object 0, which is said to exist before");
    REFUSED(s.apis[3].kind = GML_API_ALLOC, "API 3 allocates object 0 once more");
    REFUSED(scenario_free(&s, 0), "API 4 frees object 0 once more");
    REFUSED(scenario_kernel(&s, 0, READS), "API 4 accesses object 0 after its free");
    REFUSED(s.objects[1].flags = 0, "API 2 accesses object 1 before its allocation");
    REFUSED(scenario_free(&s, scenario_object(&s, BYTES, 0)),
            "API 4 frees object 2 before its allocation");
    REFUSED((void)scenario_object(&s, BYTES, 0), "object 2 has no allocation");
}

TEST(accesses_out_of_range_are_refused) {
    REFUSED(s.accesses[1].object = 2, "API 2 accesses object 2, which is not there");
    const uint32_t wrong[] = {0, 5, 6, 7, 8, 9};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(s.accesses[1].flags = wrong[i], "access 1 of API 2 has unknown flags");
    }
    REFUSED(s.accesses[1].reserved = 1, "access 1 of API 2 has unknown flags");
    REFUSED((s.accesses[2].object = 0, s.accesses[2].flags = READS),
            "API 2 has two accesses to object 0 with the same flags");
    REFUSED(s.accesses[2].range_count = 2, "access 2 of API 2 has ranges that are not there");
    REFUSED(s.accesses[2].first_range = UINT64_MAX,
            "access 2 of API 2 has ranges that are not there");
}

TEST(ranges_out_of_range_are_refused) {
    /* The range as it is fits exactly: 100 + 4 * 200 + 100. */
    const struct {
        gml_access_range range;
        const char *words;
    } wrong[] = {
        {{100, 0, 200, 5, 1}, "a repeat or a weight of 0"},
        {{100, 100, 200, 0, 1}, "a repeat or a weight of 0"},
        {{100, 100, 200, 5, 0}, "a repeat or a weight of 0"},
        {{101, 100, 200, 5, 1}, "an end outside its object"},
        {{100, 101, 200, 5, 1}, "an end outside its object"},
        {{100, 100, 201, 5, 1}, "an end outside its object"},
        {{100, 100, 200, 6, 1}, "an end outside its object"},
        {{100, 100, 99, 5, 1}, "a stride below its size"},
        {{1001, 1, 0, 1, 1}, "an end outside its object"},
        {{UINT64_MAX, 1, 0, 1, 1}, "an end outside its object"},
        {{0, UINT64_MAX, 0, 1, 1}, "an end outside its object"},
        {{0, 1, UINT64_MAX, 2, 1}, "an end outside its object"},
        {{0, 1, UINT64_MAX / 2 + 1, 3, 1}, "an end outside its object"},
        {{0, 1, 1, UINT64_MAX, 1}, "an end outside its object"},
    };
    scenario s;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_fine(&s);
        s.ranges[0] = wrong[i].range;
        expect_refusal(&s, wrong[i].words);
        CHECK(strstr(s.reason, "range 0 of access 1 of API 2 to object 0") != NULL);
        scenario_close(&s);
    }
    open_fine(&s);
    s.ranges[0] = (gml_access_range){0, 1000, 0, 1, 1}; /* one run needs no stride */
    CHECK_OK(scenario_diagnose(&s, SCENARIO_EVERY_PATTERN));
    scenario_close(&s);
}

TEST(missing_arrays_and_too_many_items_are_refused) {
    REFUSED(s.trace.ranges = NULL, "an array of the trace is missing");
    REFUSED(s.trace.objects = NULL, "an array of the trace is missing");
    REFUSED(s.trace.object_count = UINT32_MAX, "2^32");
    REFUSED(s.trace.access_count = (size_t)1 << 32, "2^32");
}

/* A reason never runs over what it is given. */
TEST(a_reason_is_cut_off) {
    scenario s;
    open_fine(&s);
    s.objects[0].size_bytes = 0;
    char text[] = "0123456789";
    CHECK_STATUS(gml_diagnose(&s.trace, NULL, &s.diagnosis, text, 5), GML_INVALID_ARGUMENT);
    CHECK(strcmp(text, "obje") == 0);
    CHECK_EQ(text[5], '5');
    scenario_close(&s);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void build(scenario *s, gml_trace_index *index) {
    CHECK_OK(gml_index_build(index, &s->trace, s->reason, sizeof s->reason));
}

SCENARIO(one_stream_runs_in_order_of_invocation) {
    s->stream = 77;
    uint32_t o = scenario_new(s, BYTES);
    scenario_pause(s, 3);
    scenario_kernel(s, o, WRITES);
    gml_trace_index index;
    build(s, &index);
    CHECK_EQ(index.stream_count, 1);
    CHECK_EQ(index.time_count, 5);
    for (uint64_t a = 0; a < 5; a++) {
        CHECK_EQ(index.times[a], a);
        for (uint64_t b = 0; b < 5; b++) {
            CHECK_EQ(gml_index_distance(&index, a, b), b > a ? b - a : 0);
            CHECK_EQ(gml_index_between(&index, a, b), b > a ? b - a - 1 : 0);
            CHECK_EQ(gml_index_is_ordered(&index, a, b), b > a);
        }
    }
    CHECK_EQ(gml_index_distance(&index, GML_NO_API, 3), 0);
    CHECK_EQ(gml_index_between(&index, 3, GML_NO_API), 0);
    gml_index_clear(&index);
}

/* Section 5.3 and figure 4 of the paper: O1 is allocated at 0; its first access, a copy in another
 * stream, runs at 3. */
SCENARIO(figure_4) {
    s->stream = 1;
    uint32_t o1 = scenario_new(s, BYTES);
    uint32_t o2 = scenario_new(s, BYTES);
    uint64_t set = scenario_call(s, GML_API_SET);
    scenario_access(s, o2, WRITES);
    s->stream = 2;
    uint64_t copy = scenario_call(s, GML_API_COPY);
    scenario_access(s, o2, READS);
    scenario_access(s, o1, WRITES);
    s->stream = 1;
    uint64_t kernel = scenario_kernel(s, o2, READS);
    uint64_t join = scenario_kernel(s, o2, WRITES);
    uint64_t end = scenario_free(s, o1);
    CHECK_OK(scenario_diagnose(s, 1 << GML_PATTERN_EARLY_ALLOCATION));
    const uint64_t expected[] = {0, 1, 2, 3, 3, 4, 5};
    for (size_t a = 0; a < 7; a++) {
        CHECK_EQ(s->diagnosis.times[a], expected[a]);
    }
    scenario_expect(s, GML_PATTERN_EARLY_ALLOCATION, o1, 0, copy);
    CHECK_EQ(scenario_find(s, GML_PATTERN_EARLY_ALLOCATION, o1)->distance, 3);
    gml_trace_index index;
    build(s, &index);
    CHECK_EQ(gml_index_between(&index, 0, copy), 2);
    CHECK_EQ(gml_index_between(&index, set, join), 2); /* two run at the same time */
    CHECK(gml_index_is_ordered(&index, set, copy));
    CHECK(!gml_index_is_ordered(&index, copy, kernel)); /* both read */
    CHECK(!gml_index_is_ordered(&index, kernel, copy));
    CHECK(gml_index_is_ordered(&index, copy, join));
    CHECK(gml_index_is_ordered(&index, copy, end));
    gml_index_clear(&index);
}

SCENARIO(reads_after_one_write_do_not_wait_for_each_other) {
    uint32_t o = scenario_new(s, BYTES);
    uint64_t reads[5];
    for (size_t i = 0; i < 5; i++) {
        s->stream = 10 + i;
        reads[i] = scenario_kernel(s, o, i % 2 ? READS : TOUCHES);
    }
    s->stream = 20;
    uint64_t write = scenario_kernel(s, o, BOTH);
    s->stream = 21;
    uint64_t next = scenario_kernel(s, o, WRITES);
    gml_trace_index index;
    build(s, &index);
    CHECK_EQ(index.stream_count, 8);
    for (size_t i = 0; i < 5; i++) {
        CHECK_EQ(index.times[reads[i]], 1);
        CHECK(gml_index_is_ordered(&index, reads[i], write));
        CHECK(!gml_index_is_ordered(&index, reads[0], reads[i]));
    }
    CHECK_EQ(index.times[write], 2);
    CHECK_EQ(index.times[next], 3);
    CHECK_EQ(gml_index_between(&index, 0, write), 5);
    gml_index_clear(&index);
}

SCENARIO(nothing_is_ordered_that_shares_nothing) {
    for (uint32_t i = 0; i < 3; i++) {
        s->stream = i;
        uint32_t o = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
        scenario_kernel(s, o, WRITES);
        scenario_kernel(s, o, READS);
    }
    gml_trace_index index;
    build(s, &index);
    for (uint64_t a = 0; a < 6; a++) {
        for (uint64_t b = 0; b < 6; b++) {
            CHECK_EQ(gml_index_is_ordered(&index, a, b), a / 2 == b / 2 && a < b);
        }
    }
    CHECK_EQ(index.time_count, 2);
    CHECK_EQ(index.before[1], 3);
    CHECK_EQ(index.before[2], 6);
    gml_index_clear(&index);
}

/* Streams that work on a half each do not wait for each other, whatever the levels say. */
SCENARIO(parts_that_do_not_meet_give_no_order) {
    uint32_t o = scenario_new(s, BYTES);
    s->stream = 1;
    uint64_t left = scenario_kernel(s, o, WRITES);
    scenario_range(s, 0, 500);
    s->stream = 2;
    uint64_t right = scenario_kernel(s, o, WRITES);
    scenario_range(s, 500, 500);
    s->stream = 3;
    uint64_t odd = scenario_kernel(s, o, READS); /* of the right half only */
    scenario_runs(s, 600, 10, 100, 4);
    s->stream = 4;
    uint64_t even = scenario_kernel(s, o, WRITES);
    scenario_runs(s, 50, 10, 100, 10); /* between the runs of `odd` */
    s->stream = 0;
    uint64_t end = scenario_free(s, o);
    gml_trace_index index;
    build(s, &index);
    CHECK(!gml_index_is_ordered(&index, left, right));
    CHECK(!gml_index_is_ordered(&index, left, odd));
    CHECK(gml_index_is_ordered(&index, right, odd));
    CHECK(!gml_index_is_ordered(&index, odd, even));
    CHECK(gml_index_is_ordered(&index, left, even));
    CHECK(gml_index_is_ordered(&index, right, even));
    CHECK(gml_index_is_ordered(&index, 0, end)); /* of its own stream */
    CHECK(!gml_index_is_ordered(&index, even, end));
    CHECK_EQ(index.times[left], 1);
    CHECK_EQ(index.times[right], 2); /* by objects, as in the paper */
    CHECK_EQ(index.times[odd], 3);
    gml_index_clear(&index);
}

/* Where clocks would be too large, the streams themselves are still in order. */
TEST(too_many_streams_leave_the_order_within_them) {
    enum { APIS = 17000 }; /* times as many streams times 4 bytes: above 1 GiB */
    gml_api *apis = calloc(APIS, sizeof *apis);
    gml_object object = {.size_bytes = 1, .element_bytes = 1, .flags = GML_OBJECT_BEFORE};
    gml_access *accesses = calloc(APIS, sizeof *accesses);
    for (size_t a = 0; a < APIS; a++) {
        apis[a] = (gml_api){.stream = a < APIS - 1 ? a : 0,
                            .first_access = a,
                            .access_count = 1,
                            .object = GML_NO_OBJECT,
                            .kind = GML_API_KERNEL};
        accesses[a] = (gml_access){.flags = WRITES};
    }
    gml_object_trace trace = {apis, APIS, &object, 1, accesses, APIS, NULL, 0};
    gml_trace_index index;
    CHECK_OK(gml_index_build(&index, &trace, NULL, 0));
    CHECK_EQ(index.stream_count, APIS - 1);
    CHECK(!index.clocks);
    CHECK_EQ(index.times[APIS - 1], APIS - 1);
    CHECK(gml_index_is_ordered(&index, 0, APIS - 1));
    CHECK(!gml_index_is_ordered(&index, 1, APIS - 1));
    CHECK(!gml_index_is_ordered(&index, 0, 1));
    CHECK(!gml_index_is_ordered(&index, 0, 0));
    gml_index_clear(&index);
    free(apis);
    free(accesses);
}

/* ---- against the definitions ----------------------------------------------------------------- */

enum { RANDOM_SCENARIOS = 1500, MOST_STEPS = 40 };

/* Which bytes of an object of RANDOM_BYTES the access is to. */
enum { RANDOM_BYTES = 12, RANDOM_OBJECTS = 4 };

static uint32_t bytes_of(const scenario *s, const gml_access *access) {
    if (!access->range_count) {
        return (1U << RANDOM_BYTES) - 1;
    }
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < access->range_count; i++) {
        const gml_access_range *range = &s->ranges[access->first_range + i];
        for (uint64_t run = 0; run < range->repeat; run++) {
            for (uint64_t byte = 0; byte < range->size_bytes; byte++) {
                bytes |= 1U << (range->offset + run * range->stride_bytes + byte);
            }
        }
    }
    return bytes;
}

static void tell_access(scenario *s, check_random *random, uint32_t object, bool in_parts) {
    static const uint32_t kinds[] = {READS, WRITES, BOTH, TOUCHES};
    scenario_access(s, object, kinds[check_below(random, 4)]);
    if (!in_parts || !check_below(random, 4)) {
        return;
    }
    for (uint64_t parts = 1 + check_below(random, 2); parts > 0; parts--) {
        uint64_t size = 1 + check_below(random, 3), stride = size + check_below(random, 4);
        uint64_t offset = check_below(random, RANDOM_BYTES - size + 1);
        uint64_t most = (RANDOM_BYTES - size - offset) / stride + 1;
        scenario_runs(s, offset, size, stride, 1 + check_below(random, most));
    }
}

static void tell(scenario *s, check_random *random, bool in_parts) {
    bool is_live[RANDOM_OBJECTS] = {false}, was_live[RANDOM_OBJECTS] = {false};
    for (uint32_t o = 0; o < RANDOM_OBJECTS; o++) {
        is_live[o] = was_live[o] = check_below(random, 2);
        (void)scenario_object(s, RANDOM_BYTES, is_live[o] ? GML_OBJECT_BEFORE : 0);
    }
    for (uint64_t steps = check_below(random, MOST_STEPS); steps > 0; steps--) {
        s->stream = 3 * check_below(random, 4);
        uint32_t o = (uint32_t)check_below(random, RANDOM_OBJECTS);
        if (is_live[o] && !check_below(random, 8)) {
            (void)scenario_free(s, o);
            is_live[o] = false;
        } else if (!was_live[o]) {
            (void)scenario_alloc(s, o);
            is_live[o] = was_live[o] = true;
        } else {
            (void)scenario_call(s, GML_API_KERNEL);
            for (uint32_t i = 0; i < RANDOM_OBJECTS; i++) {
                if (is_live[i] && check_below(random, 2)) {
                    tell_access(s, random, i, in_parts);
                }
            }
        }
    }
    for (uint32_t o = 0; o < RANDOM_OBJECTS; o++) {
        if (!was_live[o]) {
            (void)scenario_alloc(s, o);
        }
    }
}

/* Bytes of the object that the API reads and writes; an allocation and a free write all. */
static void effect_on(const scenario *s, size_t a, uint32_t object, uint32_t *reads,
                      uint32_t *writes) {
    const gml_api *api = &s->apis[a];
    *reads = 0;
    *writes = api->object == object ? (1U << RANDOM_BYTES) - 1 : 0;
    for (uint32_t i = 0; i < api->access_count; i++) {
        const gml_access *access = &s->accesses[api->first_access + i];
        if (access->object == object) {
            uint32_t bytes = bytes_of(s, access);
            *(access->flags & WRITES ? writes : reads) |= bytes;
        }
    }
}

enum { MOST_APIS = 256 };

typedef bool graph[MOST_APIS][MOST_APIS];

/* An edge where the streams or the objects, or only where common bytes, demand it. */
static void draw(const scenario *s, bool by_bytes, graph edges) {
    for (size_t b = 0; b < s->trace.api_count; b++) {
        for (size_t a = 0; a < b; a++) {
            edges[a][b] = s->apis[a].stream == s->apis[b].stream;
            for (uint32_t o = 0; o < RANDOM_OBJECTS; o++) {
                uint32_t reads_a, writes_a, reads_b, writes_b;
                effect_on(s, a, o, &reads_a, &writes_a);
                effect_on(s, b, o, &reads_b, &writes_b);
                bool meets = by_bytes
                                 ? (writes_a & (reads_b | writes_b)) || (reads_a & writes_b)
                                 : (writes_a && (reads_b || writes_b)) || (reads_a && writes_b);
                bool is_life = by_bytes && (s->apis[a].object != GML_NO_OBJECT ||
                                            s->apis[b].object != GML_NO_OBJECT);
                edges[a][b] = edges[a][b] || (meets && !is_life);
            }
        }
    }
}

/* Kahn's algorithm as the paper has it: all APIs that wait for nothing get the time, and go. */
static void sort_as_kahn(graph edges, size_t count, uint64_t *times) {
    bool is_gone[MOST_APIS] = {false};
    for (uint64_t time = 0, left = count; left > 0; time++) {
        bool goes[MOST_APIS] = {false};
        for (size_t b = 0; b < count; b++) {
            goes[b] = !is_gone[b];
            for (size_t a = 0; a < b; a++) {
                goes[b] = goes[b] && (is_gone[a] || !edges[a][b]);
            }
        }
        for (size_t b = 0; b < count; b++) {
            if (goes[b]) {
                times[b] = time;
                is_gone[b] = true;
                left--;
            }
        }
    }
}

/* Whether there is a path. */
static void close_graph(graph edges, size_t count) {
    for (size_t via = 0; via < count; via++) {
        for (size_t a = 0; a < via; a++) {
            for (size_t b = via + 1; b < count && edges[a][via]; b++) {
                edges[a][b] = edges[a][b] || edges[via][b];
            }
        }
    }
}

static void compare_times(const gml_trace_index *index, const uint64_t *times) {
    size_t count = index->trace->api_count;
    for (size_t a = 0; a < count; a++) {
        CHECK_EQ(index->times[a], times[a]);
        for (size_t b = 0; b < count; b++) {
            uint64_t between = 0;
            for (size_t c = 0; c < count; c++) {
                between += times[c] > times[a] && times[c] < times[b];
            }
            CHECK_EQ(gml_index_between(index, a, b), between);
        }
    }
}

static void compare_lives(const gml_trace_index *index) {
    for (uint32_t o = 0; o < index->trace->object_count; o++) {
        const gml_object_life *life = &index->lives[o];
        CHECK_EQ(life->access_count, index->first_use[o + 1] - index->first_use[o]);
        for (size_t i = index->first_use[o]; i < index->first_use[o + 1]; i++) {
            uint32_t api = index->api_of[index->uses[i]];
            CHECK_EQ(index->trace->accesses[index->uses[i]].object, o);
            CHECK(i == index->first_use[o] || index->uses[i - 1] < index->uses[i]);
            CHECK(index->times[life->first] <= index->times[api]);
            CHECK(index->times[life->last] >= index->times[api]);
            CHECK(life->earliest <= api && api <= life->latest);
        }
    }
}

static void compare_random(uint64_t seed, bool in_parts) {
    scenario s;
    static graph edges;
    check_random random = {seed};
    scenario_open(&s);
    tell(&s, &random, in_parts);
    gml_trace_index index;
    build(&s, &index);
    uint64_t times[MOST_APIS] = {0};
    draw(&s, false, edges);
    sort_as_kahn(edges, s.trace.api_count, times);
    compare_times(&index, times);
    compare_lives(&index);
    draw(&s, true, edges);
    close_graph(edges, s.trace.api_count);
    for (size_t a = 0; a < s.trace.api_count; a++) {
        for (size_t b = 0; b < s.trace.api_count; b++) {
            CHECK_EQ(gml_index_is_ordered(&index, a, b), a < b && edges[a][b]);
        }
    }
    gml_index_clear(&index);
    scenario_close(&s);
}

TEST(random_traces_have_the_levels_of_kahn) {
    for (uint64_t seed = 0; seed < RANDOM_SCENARIOS && !check_failures(); seed++) {
        compare_random(seed, false);
        compare_random(seed, true);
    }
}
