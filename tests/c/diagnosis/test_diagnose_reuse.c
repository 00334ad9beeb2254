/* Redundant allocations: who reuses whose memory. */
#include "diagnosis/index.h"
#include "diagnosis/scenario.h"

#include <string.h>

enum {
    READS = GML_ACCESS_READS,
    WRITES = GML_ACCESS_WRITES,
    BOTH = GML_ACCESS_READS | GML_ACCESS_WRITES,
    TOUCHES = GML_ACCESS_TOUCHES,
    REUSE = GML_PATTERN_REDUNDANT_ALLOCATION,
    ONLY_REUSE = 1 << REUSE
};

#define BYTES UINT64_C(1000)

/* Whose memory the object reuses; GML_NO_OBJECT: nobody's. */
static uint32_t giver_of(const scenario *s, uint32_t object) {
    const gml_finding *finding = scenario_find(s, REUSE, object);
    return finding ? finding->other : GML_NO_OBJECT;
}

/* An object that is there before and kept: nobody takes its memory, and it takes none. */
static uint32_t outside(scenario *s) {
    return scenario_object(s, 1, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
}

/* ---- one stream ------------------------------------------------------------------------------ */

/* Figure 3 of the paper: O1 is used from A1 to A5, O3 from A5 on, O4 from A6 on. O4 reuses O1; O3
 * cannot, since A5 uses both, and takes O2. */
SCENARIO(figure_3) {
    uint32_t o1 = scenario_new(s, BYTES), o2 = scenario_new(s, BYTES);
    uint32_t o3 = scenario_new(s, BYTES), o4 = scenario_new(s, BYTES);
    scenario_kernel(s, o1, WRITES);
    scenario_kernel(s, o2, WRITES);
    uint64_t last_2 = scenario_kernel(s, o2, READS);
    scenario_kernel(s, o1, READS);
    uint64_t a5 = scenario_kernel(s, o1, READS);
    scenario_access(s, o3, WRITES);
    uint64_t a6 = scenario_kernel(s, o4, WRITES);
    scenario_kernel(s, o4, READS);
    scenario_kernel(s, o3, READS);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    CHECK_EQ(giver_of(s, o4), o1);
    scenario_expect(s, REUSE, o4, a5, a6);
    CHECK_EQ(giver_of(s, o3), o2);
    scenario_expect(s, REUSE, o3, last_2, a5);
    CHECK_EQ(scenario_find(s, REUSE, o3)->distance, 2);
    CHECK_EQ(scenario_find(s, REUSE, o3)->bytes, BYTES);
}

/* The nearest to the left, not the first; and what reuses can be reused. */
SCENARIO(objects_in_a_row_form_one_chain) {
    for (uint32_t o = 0; o < 6; o++) {
        scenario_new(s, BYTES);
        scenario_kernel(s, o, WRITES);
        scenario_kernel(s, o, READS);
    }
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(giver_of(s, 0), GML_NO_OBJECT);
    for (uint32_t o = 1; o < 6; o++) {
        CHECK_EQ(giver_of(s, o), o - 1);
    }
}

SCENARIO(lives_that_overlap_share_nothing) {
    uint32_t a = scenario_new(s, BYTES), b = scenario_new(s, BYTES);
    scenario_kernel(s, a, WRITES);
    scenario_kernel(s, b, WRITES);
    scenario_kernel(s, a, READS);
    scenario_kernel(s, b, READS);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 0);
}

SCENARIO(a_memory_is_reused_once) {
    uint32_t a = scenario_new(s, BYTES), b = scenario_new(s, BYTES), c = scenario_new(s, BYTES);
    scenario_kernel(s, a, WRITES);
    scenario_kernel(s, b, WRITES);
    scenario_access(s, c, WRITES);
    scenario_kernel(s, b, READS);
    scenario_access(s, c, READS);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    CHECK_EQ(s->diagnosis.findings[0].other, a);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static bool is_pair(uint64_t first_bytes, uint64_t second_bytes, double percent) {
    scenario s;
    scenario_open(&s);
    uint32_t a = scenario_new(&s, first_bytes), b = scenario_new(&s, second_bytes);
    scenario_kernel(&s, a, WRITES);
    scenario_kernel(&s, b, WRITES);
    s.options.reuse_percent = percent;
    CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
    const gml_finding *finding = scenario_find(&s, REUSE, b);
    bool is_found = finding != NULL;
    if (finding) {
        CHECK_EQ(finding->bytes, first_bytes < second_bytes ? first_bytes : second_bytes);
    }
    scenario_close(&s);
    return is_found;
}

TEST(sizes_differ_by_at_most_ten_percent_of_the_smaller) {
    CHECK(is_pair(1000, 1100, 10));
    CHECK(is_pair(1100, 1000, 10));
    CHECK(!is_pair(1000, 1101, 10));
    CHECK(!is_pair(1101, 1000, 10));
    CHECK(is_pair(7, 7, 0));
    CHECK(!is_pair(7, 8, 0));
    CHECK(is_pair(7, 14, 100));
    CHECK(!is_pair(7, 15, 100));
    CHECK(is_pair(UINT64_C(1) << 48, UINT64_C(1) << 48, 0));
    CHECK(!is_pair(UINT64_C(1) << 48, (UINT64_C(1) << 48) - 1, 0));
}

/* No border between sizes keeps neighbours apart: each differs from the next by 9 %. */
TEST(every_similar_size_counts) {
    for (uint64_t base = 1000; base < 1120; base++) {
        scenario s;
        scenario_open(&s);
        uint32_t small = scenario_new(&s, base), middle = scenario_new(&s, base * 109 / 100);
        uint32_t large = scenario_new(&s, base * 109 / 100 * 109 / 100);
        scenario_kernel(&s, small, WRITES);
        scenario_kernel(&s, middle, WRITES);
        scenario_kernel(&s, large, WRITES);
        CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
        CHECK_EQ(giver_of(&s, middle), small);
        CHECK_EQ(giver_of(&s, large), middle);
        scenario_close(&s);
    }
}

SCENARIO(a_similar_size_further_away_is_found) {
    uint32_t a = scenario_new(s, BYTES), other = scenario_new(s, 2 * BYTES);
    uint32_t b = scenario_new(s, BYTES + 50);
    scenario_kernel(s, a, WRITES);
    scenario_kernel(s, other, WRITES);
    scenario_kernel(s, b, WRITES);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    CHECK_EQ(giver_of(s, b), a);
}

/* ---- who takes part -------------------------------------------------------------------------- */

SCENARIO(what_is_kept_gives_no_memory) {
    uint32_t kept = scenario_object(s, BYTES, GML_OBJECT_KEPT);
    scenario_alloc(s, kept);
    scenario_kernel(s, kept, WRITES);
    uint32_t b = scenario_new(s, BYTES);
    scenario_kernel(s, b, WRITES);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 0);
    scenario_free(s, kept); /* after all */
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(giver_of(s, b), kept);
}

SCENARIO(what_is_kept_may_take_memory) {
    uint32_t a = scenario_new(s, BYTES), kept = scenario_object(s, BYTES, GML_OBJECT_KEPT);
    scenario_kernel(s, a, WRITES);
    scenario_alloc(s, kept);
    scenario_kernel(s, kept, WRITES);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(giver_of(s, kept), a);
}

SCENARIO(what_exists_before_gives_memory_but_takes_none) {
    uint32_t a = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t b = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    uint32_t c = scenario_new(s, BYTES);
    scenario_kernel(s, a, READS);
    scenario_kernel(s, b, WRITES);
    scenario_kernel(s, c, WRITES);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 1);
    CHECK_EQ(giver_of(s, c), b);
}

SCENARIO(unused_objects_take_no_part) {
    uint32_t unused = scenario_new(s, BYTES);
    scenario_free(s, unused);
    uint32_t b = scenario_new(s, BYTES);
    scenario_kernel(s, b, WRITES);
    scenario_new(s, BYTES);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(s->diagnosis.finding_count, 0);
}

/* ---- what the memory held before ------------------------------------------------------------- */

/* Whether an object takes memory whose bytes from `begin` to before `end` a kernel reads after
 * what `tell` has written. */
static bool takes_after(void (*tell)(scenario *, uint32_t), uint64_t begin, uint64_t end) {
    scenario s;
    scenario_open(&s);
    uint32_t a = scenario_new(&s, BYTES), b = scenario_new(&s, BYTES);
    scenario_kernel(&s, a, WRITES);
    tell(&s, b);
    scenario_kernel(&s, b, READS);
    scenario_range(&s, begin, end - begin);
    CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
    bool takes = giver_of(&s, b) == a;
    scenario_close(&s);
    return takes;
}

static void write_nothing(scenario *s, uint32_t object) {
    (void)s;
    (void)object;
}

static void write_everything(scenario *s, uint32_t object) {
    scenario_kernel(s, object, WRITES);
}

static void write_halves(scenario *s, uint32_t object) {
    scenario_kernel(s, object, WRITES);
    scenario_range(s, 500, 500);
    scenario_kernel(s, object, WRITES);
    scenario_range(s, 0, 500);
}

static void write_third_parts_but_one(scenario *s, uint32_t object) {
    scenario_kernel(s, object, WRITES);
    scenario_range(s, 700, 300);
    scenario_range(s, 0, 400);
}

static void write_columns(scenario *s, uint32_t object) {
    for (uint64_t column = 0; column < 4; column++) {
        scenario_kernel(s, object, WRITES);
        scenario_runs(s, 2 * column, 2, 10, 100);
    }
}

static void write_rows_without_gaps(scenario *s, uint32_t object) {
    scenario_kernel(s, object, WRITES);
    scenario_runs(s, 0, 10, 10, 100);
}

/* It reads what nobody wrote: what it writes comes later. */
static void change_in_place(scenario *s, uint32_t object) {
    scenario_kernel(s, object, BOTH);
}

static void change_in_place_and_write(scenario *s, uint32_t object) {
    change_in_place(s, object);
    write_everything(s, object);
}

static void touch(scenario *s, uint32_t object) {
    scenario_kernel(s, object, TOUCHES);
}

/* One API that reads a part and writes another reads first. */
static void read_and_write_at_once(scenario *s, uint32_t object) {
    scenario_kernel(s, object, WRITES);
    scenario_access(s, object, READS);
    scenario_range(s, 0, 10);
}

TEST(an_object_that_reads_what_it_did_not_write_takes_no_memory) {
    CHECK(!takes_after(write_nothing, 0, 1));
    CHECK(takes_after(write_everything, 0, 1000));
    CHECK(takes_after(write_halves, 0, 1000));
    CHECK(takes_after(write_third_parts_but_one, 0, 400));
    CHECK(takes_after(write_third_parts_but_one, 700, 1000));
    CHECK(!takes_after(write_third_parts_but_one, 0, 401));
    CHECK(!takes_after(write_third_parts_but_one, 699, 1000));
    CHECK(!takes_after(write_third_parts_but_one, 500, 501));
    CHECK(takes_after(write_columns, 0, 8));
    CHECK(!takes_after(write_columns, 0, 9));
    CHECK(takes_after(write_columns, 990, 998));
    CHECK(!takes_after(write_columns, 998, 999));
    CHECK(takes_after(write_rows_without_gaps, 5, 1000));
    CHECK(!takes_after(change_in_place, 0, 1));
    CHECK(!takes_after(change_in_place_and_write, 0, 1));
    CHECK(!takes_after(touch, 0, 1));
    CHECK(!takes_after(read_and_write_at_once, 0, 1));
}

/* However many runs they were written as. */
TEST(runs_without_gaps_are_one) {
    const uint64_t many = 1000000;
    scenario s;
    scenario_open(&s);
    uint32_t a = scenario_new(&s, many), b = scenario_new(&s, many);
    scenario_kernel(&s, a, WRITES);
    scenario_kernel(&s, b, WRITES);
    scenario_runs(&s, 1, 1, 1, many - 1);
    scenario_kernel(&s, b, READS);
    scenario_runs(&s, 1, 2, 3, many / 3);
    CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
    CHECK_EQ(giver_of(&s, b), a);
    s.ranges[1].offset = 0;
    CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
    CHECK_EQ(giver_of(&s, b), GML_NO_OBJECT);
    scenario_close(&s);
}

SCENARIO(what_a_kernel_reads_in_place_has_to_be_written_before) {
    uint32_t a = scenario_new(s, BYTES), b = scenario_new(s, BYTES);
    scenario_kernel(s, a, WRITES);
    scenario_call(s, GML_API_SET);
    scenario_access(s, b, WRITES);
    scenario_kernel(s, b, BOTH);
    scenario_kernel(s, b, TOUCHES);
    CHECK_OK(scenario_diagnose(s, ONLY_REUSE));
    CHECK_EQ(giver_of(s, b), a);
}

/* ---- several streams ------------------------------------------------------------------------- */

/* Stream 1 uses `a`, then stream 2 uses `b`; `shared` orders them if stream 1 writes it and stream
 * 2 reads it. */
static uint32_t giver_across_streams(bool is_ordered, bool reads_late) {
    scenario s;
    scenario_open(&s);
    uint32_t shared = outside(&s);
    s.stream = 1;
    uint32_t a = scenario_new(&s, BYTES);
    scenario_kernel(&s, a, WRITES);
    scenario_kernel(&s, shared, WRITES);
    if (reads_late) {
        scenario_kernel(&s, a, READS);
    }
    s.stream = 2;
    scenario_pause(&s, 8);
    if (is_ordered) {
        scenario_kernel(&s, shared, READS);
    }
    uint32_t b = scenario_new(&s, BYTES);
    scenario_kernel(&s, b, WRITES);
    CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
    CHECK(s.diagnosis.times[s.diagnosis.lives[a].last] <
          s.diagnosis.times[s.diagnosis.lives[b].first]);
    uint32_t giver = giver_of(&s, b);
    CHECK(giver == a || giver == GML_NO_OBJECT);
    scenario_close(&s);
    return giver;
}

/* Levels are not enough: nobody says when stream 1 comes to its work. */
TEST(memory_is_handed_over_only_where_the_order_is_certain) {
    CHECK_EQ(giver_across_streams(false, false), GML_NO_OBJECT);
    CHECK(giver_across_streams(true, false) != GML_NO_OBJECT);
    CHECK_EQ(giver_across_streams(true, true), GML_NO_OBJECT);
}

/* Stream 2 does not wait for what stream 1 does before it allocates for stream 2, nor stream 1 for
 * what stream 2 does with an object that stream 1 frees. */
TEST(an_allocation_and_a_free_order_nothing) {
    for (int uses_free = 0; uses_free < 2; uses_free++) {
        scenario s;
        scenario_open(&s);
        s.stream = 1;
        uint32_t a = scenario_new(&s, BYTES);
        s.stream = uses_free ? 2 : 1;
        scenario_kernel(&s, a, WRITES);
        s.stream = 1;
        if (uses_free) {
            scenario_free(&s, a);
        }
        uint32_t b = scenario_new(&s, BYTES);
        s.stream = uses_free ? 1 : 2;
        uint64_t first = scenario_kernel(&s, b, WRITES);
        CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
        CHECK(s.diagnosis.times[first] > s.diagnosis.times[s.diagnosis.lives[a].last]);
        CHECK_EQ(giver_of(&s, b), GML_NO_OBJECT);
        scenario_close(&s);
    }
}

/* `b` is used by streams 2 and 3, of which one waits for stream 1. */
TEST(every_stream_of_the_taker_has_to_wait) {
    for (int both_wait = 0; both_wait < 2; both_wait++) {
        scenario s;
        scenario_open(&s);
        uint32_t shared = outside(&s);
        s.stream = 1;
        uint32_t a = scenario_new(&s, BYTES);
        scenario_kernel(&s, a, WRITES);
        scenario_kernel(&s, shared, WRITES);
        s.stream = 2;
        scenario_kernel(&s, shared, READS);
        s.stream = 3;
        uint32_t b = scenario_new(&s, BYTES);
        scenario_pause(&s, 8);
        if (both_wait) {
            scenario_kernel(&s, shared, READS);
        }
        scenario_kernel(&s, b, WRITES);
        scenario_range(&s, 0, 500);
        s.stream = 2;
        scenario_pause(&s, 8);
        scenario_kernel(&s, b, WRITES); /* of the other half: it does not wait for stream 3 */
        scenario_range(&s, 500, 500);
        CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
        CHECK_EQ(giver_of(&s, b), both_wait ? a : GML_NO_OBJECT);
        scenario_close(&s);
    }
}

/* `a` is used by streams 1 and 2; stream 3 waits for one of them, or for both. */
TEST(every_stream_of_the_giver_has_to_be_waited_for) {
    for (int waits = 0; waits < 4; waits++) {
        scenario s;
        scenario_open(&s);
        uint32_t one = outside(&s), two = outside(&s);
        s.stream = 1;
        uint32_t a = scenario_new(&s, BYTES);
        scenario_kernel(&s, a, WRITES);
        s.stream = 2;
        scenario_kernel(&s, a, READS);
        scenario_kernel(&s, two, WRITES);
        s.stream = 1;
        scenario_kernel(&s, a, READS);
        scenario_kernel(&s, one, WRITES);
        s.stream = 3;
        if (waits & 1) {
            scenario_kernel(&s, one, READS);
        }
        if (waits & 2) {
            scenario_kernel(&s, two, READS);
        }
        scenario_pause(&s, 8);
        uint32_t b = scenario_new(&s, BYTES);
        scenario_kernel(&s, b, WRITES);
        CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
        CHECK_EQ(giver_of(&s, b), waits == 3 ? a : GML_NO_OBJECT);
        scenario_close(&s);
    }
}

/* The nearest object is in no order with `b`; one further away is. What `b` tried in vain is still
 * there for `c`, whether `c` starts before it or after it. */
TEST(an_object_further_away_gives_where_the_nearest_cannot) {
    for (size_t pause = 5; pause < 30; pause += 20) {
        scenario s;
        scenario_open(&s);
        s.stream = 1;
        uint32_t a = scenario_new(&s, BYTES);
        scenario_kernel(&s, a, WRITES);
        s.stream = 2;
        uint32_t foreign = scenario_new(&s, BYTES);
        scenario_pause(&s, 2);
        scenario_kernel(&s, foreign, WRITES);
        s.stream = 1;
        scenario_pause(&s, pause);
        uint32_t b = scenario_new(&s, BYTES);
        scenario_kernel(&s, b, WRITES);
        s.stream = 2;
        scenario_pause(&s, 10);
        uint32_t c = scenario_new(&s, BYTES);
        scenario_kernel(&s, c, WRITES);
        CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
        CHECK_EQ(giver_of(&s, b), a);
        CHECK_EQ(giver_of(&s, c), foreign);
        scenario_close(&s);
    }
}

/* ---- against the paper's walk ---------------------------------------------------------------- */

typedef enum walk_state { INITIAL, IN_USE, DONE, REUSED } walk_state;

enum { MOST_OBJECTS = 64 };

typedef struct walk_entry {
    uint64_t time;
    uint32_t object;
    bool is_last;
} walk_entry;

/* Section 5.1: by time, of one time the first ones and then the last ones. */
static size_t list_entries(const scenario *s, walk_entry *list) {
    size_t count = 0;
    for (uint64_t time = 0; time < s->trace.api_count; time++) {
        for (int is_last = 0; is_last < 2; is_last++) {
            for (uint32_t o = 0; o < s->trace.object_count; o++) {
                const gml_object_life *life = &s->diagnosis.lives[o];
                if (life->access_count &&
                    s->diagnosis.times[is_last ? life->last : life->first] == time) {
                    list[count++] = (walk_entry){time, o, is_last};
                }
            }
        }
    }
    return count;
}

static bool are_similar(const scenario *s, uint32_t a, uint32_t b) {
    uint64_t left = s->objects[a].size_bytes, right = s->objects[b].size_bytes;
    return left < right ? right * 10 <= left * 11 : left * 10 <= right * 11;
}

/* Every access to `a` is over before one to `b` starts. */
static bool is_handed_over(const gml_trace_index *index, uint32_t a, uint32_t b) {
    for (size_t i = index->first_use[a]; i < index->first_use[a + 1]; i++) {
        for (size_t j = index->first_use[b]; j < index->first_use[b + 1]; j++) {
            if (!gml_index_is_ordered(index, index->api_of[index->uses[i]],
                                      index->api_of[index->uses[j]])) {
                return false;
            }
        }
    }
    return true;
}

static void walk_as_the_paper(const scenario *s, const gml_trace_index *index, uint32_t *givers) {
    walk_entry list[2 * MOST_OBJECTS];
    walk_state states[MOST_OBJECTS] = {INITIAL};
    memset(givers, 0xff, MOST_OBJECTS * sizeof *givers);
    for (size_t i = list_entries(s, list); i-- > 0;) {
        uint32_t o = list[i].object;
        if (list[i].is_last) {
            states[o] = states[o] == REUSED ? REUSED : IN_USE;
            continue;
        }
        states[o] = states[o] == REUSED ? REUSED : DONE;
        for (size_t left = i; left-- > 0;) {
            uint32_t other = list[left].object;
            if (list[left].is_last && states[other] == INITIAL && are_similar(s, o, other) &&
                is_handed_over(index, other, o)) {
                states[other] = REUSED;
                givers[o] = other;
                break;
            }
        }
    }
}

/* Kernels that write a few objects next to each other, further and further on. */
static uint32_t tell(scenario *s, check_random *random, uint64_t streams, uint64_t sizes) {
    uint32_t objects = 2 + (uint32_t)check_below(random, 20), first = 0;
    for (uint32_t o = 0; o < objects; o++) {
        s->stream = check_below(random, streams);
        scenario_new(s, BYTES + check_below(random, sizes));
    }
    for (uint64_t apis = 10 + check_below(random, 60); apis > 0; apis--) {
        if (!check_below(random, 3)) {
            first = first + 1 < objects ? first + 1 : 0;
        }
        s->stream = check_below(random, streams);
        scenario_call(s, GML_API_KERNEL);
        uint32_t end = first + 1 + (uint32_t)check_below(random, 3);
        for (uint32_t o = first; o < objects && o < end; o++) {
            scenario_access(s, o, WRITES);
        }
    }
    return objects;
}

static size_t compare_walks(uint64_t seed, uint64_t streams, uint64_t sizes) {
    check_random random = {seed};
    scenario s;
    scenario_open(&s);
    uint32_t objects = tell(&s, &random, streams, sizes);
    CHECK_OK(scenario_diagnose(&s, ONLY_REUSE));
    gml_trace_index index;
    CHECK_OK(gml_index_build(&index, &s.trace, NULL, 0));
    uint32_t givers[MOST_OBJECTS];
    walk_as_the_paper(&s, &index, givers);
    for (uint32_t o = 0; o < objects; o++) {
        CHECK_EQ(giver_of(&s, o), givers[o]);
        CHECK(scenario_count(&s, REUSE, o) <= 1);
    }
    size_t found = s.diagnosis.finding_count;
    gml_index_clear(&index);
    scenario_close(&s);
    return found;
}

static void compare_many(uint64_t streams, uint64_t sizes) {
    size_t found = 0;
    for (uint64_t seed = 0; seed < 1500 && !check_failures(); seed++) {
        found += compare_walks(seed, streams, sizes);
    }
    CHECK(found > 1500);
}

TEST(objects_are_paired_as_in_the_paper) {
    compare_many(1, 1);
    compare_many(1, 400);
}

TEST(objects_of_several_streams_are_paired_as_in_the_paper) {
    compare_many(2, 1);
    compare_many(5, 300);
}
