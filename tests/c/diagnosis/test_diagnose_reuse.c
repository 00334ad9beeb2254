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

TEST(objects_of_several_streams_are_paired_as_in_the_paper) {
    compare_many(2, 1);
    compare_many(5, 300);
}
