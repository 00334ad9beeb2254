/* The independent check: right findings pass, findings made wrong by hand are refused. */
#include "diagnosis/check.h"
#include "diagnosis/scenario.h"

#include <string.h>

enum {
    READS = GML_ACCESS_READS,
    WRITES = GML_ACCESS_WRITES,
    BOTH = GML_ACCESS_READS | GML_ACCESS_WRITES,
    TOUCHES = GML_ACCESS_TOUCHES
};

#define BYTES UINT64_C(1000)

/* ---- findings made by hand ------------------------------------------------------------------- */

typedef struct claim {
    scenario s;
    gml_finding found;
} claim;

static void claim_open(claim *c) {
    scenario_open(&c->s);
    memset(&c->found, 0, sizeof c->found);
    c->found.other = GML_NO_OBJECT;
}

/* The lives and times of the trace as it is; the findings are ours. */
static void claim_state(claim *c, gml_pattern pattern, uint32_t object, uint64_t from,
                        uint64_t to) {
    if (!c->s.diagnosis.lives) {
        CHECK_OK(scenario_diagnose(&c->s, SCENARIO_EVERY_PATTERN));
    }
    c->found.pattern = pattern;
    c->found.object = object;
    c->found.from_api = from;
    c->found.to_api = to;
}

static gml_status claim_check(claim *c) {
    const size_t first = 0;
    gml_diagnosis stated = c->s.diagnosis;
    stated.findings = &c->found;
    stated.finding_count = 1;
    memset(c->s.reason, 0, sizeof c->s.reason);
    return gml_diagnosis_check(&c->s.trace, &stated, &first, 1, c->s.reason, sizeof c->s.reason);
}

static void expect_right(claim *c) {
    if (!CHECK_OK(claim_check(c))) {
        fprintf(stderr, "the reason is \"%s\"\n", c->s.reason);
    }
}

static void expect_wrong(claim *c, const char *words) {
    CHECK_STATUS(claim_check(c), GML_CORRUPT);
    if (!CHECK(strstr(c->s.reason, words) != NULL)) {
        fprintf(stderr, "the reason is \"%s\", not \"%s\"\n", c->s.reason, words);
    }
}

/* ---- where an object is ---------------------------------------------------------------------- */

/* Object 0: allocated by API 0, accessed by 2, 5 and 8, freed by 10. */
static void open_plain(claim *c) {
    claim_open(c);
    scenario *s = &c->s;
    uint32_t o = scenario_new(s, BYTES);
    scenario_pause(s, 1);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 2);
    scenario_kernel(s, o, BOTH);
    scenario_pause(s, 2);
    scenario_kernel(s, o, READS);
    scenario_pause(s, 1);
    scenario_free(s, o);
}

TEST(an_allocation_after_the_first_access) {
    claim c;
    open_plain(&c);
    claim_state(&c, GML_PATTERN_EARLY_ALLOCATION, 0, 0, 2);
    expect_right(&c);
    c.s.diagnosis.lives[0].earliest = 3;
    expect_wrong(&c, "API 2 accesses object 0: it is allocated later");
    c.s.diagnosis.lives[0].earliest = 2;
    claim_state(&c, GML_PATTERN_EARLY_ALLOCATION, 0, 0, 5);
    expect_wrong(&c, "before its first access");
    claim_state(&c, GML_PATTERN_EARLY_ALLOCATION, 0, 0, 4);
    expect_wrong(&c, "not with APIs 0 and 4");
    claim_state(&c, GML_PATTERN_EARLY_ALLOCATION, 0, 1, 2);
    expect_wrong(&c, "not with APIs");
    scenario_close(&c.s);
}

TEST(a_free_before_the_last_access) {
    claim c;
    open_plain(&c);
    claim_state(&c, GML_PATTERN_LATE_DEALLOCATION, 0, 8, 10);
    expect_right(&c);
    c.s.diagnosis.lives[0].latest = 7;
    expect_wrong(&c, "API 8 accesses object 0: it is freed before");
    c.s.diagnosis.lives[0].latest = 8;
    claim_state(&c, GML_PATTERN_LATE_DEALLOCATION, 0, 5, 10);
    expect_wrong(&c, "API 8 accesses object 0 after its last access");
    claim_state(&c, GML_PATTERN_MEMORY_LEAK, 0, 8, GML_NO_API);
    expect_wrong(&c, "in object 0: not with APIs");
    scenario_close(&c.s);
}

TEST(an_unused_object_that_is_used) {
    claim c;
    open_plain(&c);
    claim_state(&c, GML_PATTERN_UNUSED_ALLOCATION, 0, 0, 10);
    expect_wrong(&c, "API 2 accesses object 0: it is removed");
    scenario_close(&c.s);
}

TEST(an_idle_time_with_an_access_in_it) {
    claim c;
    open_plain(&c);
    claim_state(&c, GML_PATTERN_TEMPORARY_IDLENESS, 0, 2, 5);
    expect_right(&c);
    claim_state(&c, GML_PATTERN_TEMPORARY_IDLENESS, 0, 2, 8);
    expect_wrong(&c, "in object 0: not with APIs 2 and 8");
    claim_state(&c, GML_PATTERN_TEMPORARY_IDLENESS, 0, 5, 2);
    expect_wrong(&c, "in object 0: not with APIs");
    claim_state(&c, GML_PATTERN_TEMPORARY_IDLENESS, 0, 8, 9);
    expect_wrong(&c, "in object 0: not with APIs");
    scenario_close(&c.s);
}

/* ---- whose memory it is ---------------------------------------------------------------------- */

/* Objects 0 and 1, APIs 0 and 1; `a` is used by 2, `b` by 3. */
static void open_two(claim *c, uint32_t first_of_b) {
    claim_open(c);
    for (int i = 0; i < 2; i++) {
        scenario_new(&c->s, BYTES);
    }
    scenario_kernel(&c->s, 0, WRITES);
    scenario_kernel(&c->s, 1, first_of_b);
    c->found.other = 0;
}

TEST(reuse_across_an_interleaved_read) {
    claim c;
    open_two(&c, WRITES);
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 1, 2, 3);
    expect_right(&c);
    scenario_close(&c.s);
    open_two(&c, WRITES);
    scenario_kernel(&c.s, 0, READS);
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 1, 2, 3);
    expect_wrong(&c, "API 4 accesses object 0: another object lives in its memory");
    scenario_close(&c.s);
}

TEST(reuse_by_what_is_read_first) {
    claim c;
    open_two(&c, READS);
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 1, 2, 3);
    expect_wrong(&c, "byte 0 of object 1 is read with another content");
    scenario_close(&c.s);
    open_two(&c, TOUCHES);
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 1, 2, 3);
    expect_wrong(&c, "byte 0 of object 1");
    scenario_close(&c.s);
    open_two(&c, WRITES);
    scenario_range(&c.s, 0, 600);
    scenario_kernel(&c.s, 1, READS);
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 1, 2, 3);
    expect_wrong(&c, "byte 600 of object 1");
    scenario_close(&c.s);
}

TEST(reuse_of_what_is_kept) {
    claim c;
    open_two(&c, WRITES);
    c.s.objects[0].flags = GML_OBJECT_KEPT;
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 1, 2, 3);
    expect_wrong(&c, "in object 1: not with APIs");
    scenario_close(&c.s);
}

/* Stream 0 uses object 0 and stream 1 object 1; `link` orders them, or seems to. */
static void open_streams(claim *c, uint32_t link, uint64_t offset) {
    claim_open(c);
    scenario *s = &c->s;
    uint32_t joint = scenario_object(s, 2 * BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    uint32_t a = scenario_new(s, BYTES);
    s->stream = 1;
    uint32_t b = scenario_new(s, BYTES);
    s->stream = 0;
    scenario_kernel(s, a, WRITES);
    scenario_kernel(s, joint, WRITES);
    scenario_range(s, 0, BYTES);
    s->stream = 1;
    scenario_kernel(s, joint, link);
    scenario_range(s, offset, BYTES);
    scenario_kernel(s, b, WRITES);
    c->found.other = a;
    claim_state(c, GML_PATTERN_REDUNDANT_ALLOCATION, b, 2, 5);
}

TEST(reuse_on_another_stream_needs_an_order) {
    claim c;
    open_streams(&c, READS, 0);
    expect_right(&c);
    scenario_close(&c.s);
    open_streams(&c, READS, BYTES - 1); /* one byte in common */
    expect_right(&c);
    scenario_close(&c.s);
    open_streams(&c, READS, BYTES); /* none */
    expect_wrong(&c, "API 5 is not ordered with all that use object 1");
    scenario_close(&c.s);
    open_streams(&c, WRITES, 500);
    expect_right(&c);
    scenario_close(&c.s);
    open_streams(&c, TOUCHES, 500); /* after a write, even that is ordered */
    expect_right(&c);
    scenario_close(&c.s);
}

/* The read after the hand-over's link is on the first stream: nothing waits for it. */
TEST(an_access_behind_the_link_is_not_over) {
    claim c;
    claim_open(&c);
    scenario *s = &c.s;
    uint32_t joint = scenario_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    uint32_t a = scenario_new(s, BYTES);
    s->stream = 1;
    uint32_t b = scenario_new(s, BYTES);
    s->stream = 0;
    scenario_kernel(s, a, WRITES);
    scenario_kernel(s, joint, WRITES);
    scenario_kernel(s, a, READS); /* API 4 */
    s->stream = 1;
    scenario_kernel(s, joint, READS);
    scenario_kernel(s, b, WRITES); /* API 6 */
    c.found.other = a;
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, b, 4, 6);
    expect_wrong(&c, "API 6 is not ordered");
    scenario_close(s);
}

/* ---- what its bytes hold --------------------------------------------------------------------- */

/* Object 0: a set of everything by API 1, a copy to [100, 400) by the last API; between them
 * [from, from + bytes) is accessed. */
static uint64_t open_writes(claim *c, uint64_t from, uint64_t bytes, uint32_t flags) {
    claim_open(c);
    scenario *s = &c->s;
    uint32_t o = scenario_new(s, BYTES);
    scenario_call(s, GML_API_SET);
    scenario_access(s, o, WRITES);
    scenario_call(s, GML_API_KERNEL);
    if (bytes > 0) {
        scenario_access(s, o, flags);
        scenario_range(s, from, bytes);
    }
    uint64_t last = scenario_call(s, GML_API_COPY);
    scenario_access(s, o, WRITES);
    scenario_range(s, 100, 300);
    scenario_kernel(s, o, READS);
    claim_state(c, GML_PATTERN_DEAD_WRITE, o, 1, last);
    return last;
}

TEST(a_dead_write_whose_follower_reads_or_comes_first) {
    claim c;
    uint64_t last = open_writes(&c, 0, 0, READS);
    c.found.bytes = 300;
    c.found.from_api = last;
    c.found.to_api = 1;
    expect_wrong(&c, "does not come before");
    scenario_close(&c.s);
    claim_open(&c);
    uint32_t o = scenario_new(&c.s, BYTES);
    scenario_call(&c.s, GML_API_SET);
    scenario_access(&c.s, o, WRITES);
    scenario_call(&c.s, GML_API_COPY); /* within the object */
    scenario_access(&c.s, o, WRITES);
    scenario_range(&c.s, 0, 500);
    scenario_access(&c.s, o, READS);
    scenario_range(&c.s, 400, 500);
    claim_state(&c, GML_PATTERN_DEAD_WRITE, o, 1, 2);
    c.found.bytes = 500;
    expect_wrong(&c, "write 400 B");
    c.found.bytes = 400;
    expect_right(&c);
    scenario_close(&c.s);
}

TEST(an_object_made_smaller_than_it_is_used) {
    claim c;
    claim_open(&c);
    uint32_t o = scenario_new(&c.s, BYTES);
    c.s.objects[o].element_bytes = 8;
    scenario_kernel(&c.s, o, WRITES);
    scenario_runs(&c.s, 0, 4, 100, 5); /* one element of 8 bytes each, two where it meets two */
    claim_state(&c, GML_PATTERN_OVERALLOCATION, o, GML_NO_API, GML_NO_API);
    c.found.bytes = BYTES - 40;
    expect_right(&c);
    c.found.bytes = BYTES - 39;
    expect_wrong(&c, "961 B less, but 40 of its 1000 B are accessed");
    scenario_close(&c.s);
}

static void open_slices(claim *c, uint64_t overlap, uint32_t flags) {
    claim_open(c);
    scenario *s = &c->s;
    uint32_t o = scenario_object(s, BYTES, flags);
    if (!(flags & GML_OBJECT_BEFORE)) {
        scenario_alloc(s, o);
    }
    scenario_kernel(s, o, WRITES);
    scenario_runs(s, 0, 100, 250, 4); /* columns */
    scenario_kernel(s, o, WRITES);
    scenario_runs(s, 100 - overlap, 50, 250, 4);
    claim_state(c, GML_PATTERN_STRUCTURED_ACCESS, o, s->trace.api_count - 2,
                s->trace.api_count - 1);
    c->found.pieces = 2;
    c->found.bytes = 600;
}

TEST(a_slice_that_overlaps) {
    claim c;
    open_slices(&c, 0, 0);
    expect_right(&c);
    c.found.pieces = 3;
    expect_wrong(&c, "3 slices and 600 B beside the largest are said, there are 2 and 600 B");
    c.found.pieces = 2;
    c.found.bytes = 700;
    expect_wrong(&c, "structured access to object 0");
    scenario_close(&c.s);
    open_slices(&c, 1, 0);
    expect_wrong(&c, "there are 1 and");
    c.found.pieces = 1; /* one slice is the object less what nothing accesses */
    c.found.bytes = 404;
    expect_wrong(&c, "there are 1 and 404 B");
    scenario_close(&c.s);
}

TEST(slices_of_what_exists_before_or_after) {
    claim c;
    open_slices(&c, 0, GML_OBJECT_BEFORE);
    expect_wrong(&c, "its content from before or for after would go");
    scenario_close(&c.s);
    open_slices(&c, 0, GML_OBJECT_KEPT);
    expect_wrong(&c, "its content from before or for after would go");
    scenario_close(&c.s);
}

/* ---- several at once, and bad input ---------------------------------------------------------- */

TEST(every_finding_of_a_diagnosis_passes) {
    claim c;
    open_plain(&c);
    CHECK_OK(scenario_diagnose(&c.s, SCENARIO_EVERY_PATTERN));
    size_t all[8], count = c.s.diagnosis.finding_count;
    CHECK(count > 3 && count < 8);
    for (size_t i = 0; i < count; i++) {
        all[i] = i;
    }
    CHECK_OK(gml_diagnosis_check(&c.s.trace, &c.s.diagnosis, all, count, NULL, 0));
    const size_t twice[] = {0, 1, 2, 0, 1, 2};
    CHECK_OK(gml_diagnosis_check(&c.s.trace, &c.s.diagnosis, twice, 6, NULL, 0));
    c.s.diagnosis.lives[0].latest--;
    CHECK_STATUS(gml_diagnosis_check(&c.s.trace, &c.s.diagnosis, all, count, NULL, 0), GML_CORRUPT);
    scenario_close(&c.s);
}

TEST(findings_of_another_trace_are_refused) {
    claim c;
    open_plain(&c);
    claim_state(&c, GML_PATTERN_EARLY_ALLOCATION, 1, 0, 2);
    expect_wrong(&c, "is not of this trace");
    claim_state(&c, GML_PATTERN_COUNT, 0, 0, 2);
    expect_wrong(&c, "is not of this trace");
    claim_state(&c, GML_PATTERN_REDUNDANT_ALLOCATION, 0, 0, 2);
    c.found.other = 0;
    expect_wrong(&c, "is not of this trace");
    claim_state(&c, GML_PATTERN_EARLY_ALLOCATION, 0, 0, 1000);
    expect_wrong(&c, "not with APIs 0 and 1000");
    size_t beyond = c.s.diagnosis.finding_count;
    CHECK_STATUS(gml_diagnosis_check(&c.s.trace, &c.s.diagnosis, &beyond, 1, NULL, 0),
                 GML_INVALID_ARGUMENT);
    scenario_close(&c.s);
}
