/* Idle spans, against what each byte does at each moment; and the set of numbers behind the sweep.
 */
#include "base/number_set.h"
#include "planner/idle.h"
#include "support/placement.h"

#include <stdlib.h>
#include <string.h>

static bool
overlaps(const stage *scene, size_t i, gml_time_range query)
{
    uint64_t period = scene->problem.period;
    for (uint64_t time = query.start; time < query.end; time++) {
        if (stage_lives_at(scene, i, period ? time % period : time)) {
            return true;
        }
    }
    return false;
}

static bool
is_idle(const stage *scene, uint64_t byte, gml_time_range query)
{
    for (size_t i = 0; i < scene->problem.count; i++) {
        if (stage_covers(scene, i, byte) && overlaps(scene, i, query)) {
            return false;
        }
    }
    return !stage_is_taken(scene, byte);
}

/* The spans are those bytes, ascending, none empty and none touching the next. */
static bool
spans_are(const stage *scene, uint64_t limit, gml_time_range query, const gml_span *spans,
          size_t count)
{
    size_t at = 0;
    for (uint64_t byte = 0; byte < limit; byte++) {
        while (at < count && spans[at].offset + spans[at].size_bytes <= byte) {
            at++;
        }
        bool is_in = at < count && spans[at].offset <= byte;
        if (is_in != is_idle(scene, byte, query)) {
            return false;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (spans[i].size_bytes == 0 || spans[i].offset + spans[i].size_bytes > limit ||
            (i > 0 && spans[i].offset <= spans[i - 1].offset + spans[i - 1].size_bytes)) {
            return false;
        }
    }
    return true;
}

TEST(idle_spans_by_hand)
{
    stage s;
    stage_open(&s, 512, 0);
    stage_place(&s, 100, 0, 4, 0, 0); /* 512 */
    stage_place(&s, 512, 6, 9, 0, 0);
    stage_place(&s, 1024, 2, 5, 0, 1024);
    const gml_time_range queries[] = {{4, 6}, {0, 2}, {3, 7}, {20, 30}};
    gml_span *spans = NULL;
    size_t first[5];
    CHECK_OK(gml_planner_idle_spans(&s.problem, s.offsets, 4096, queries, 4, &spans, first));
    CHECK_EQ(first[0], 0);
    CHECK_EQ(first[1], 2); /* [0, 1024) and [2048, 4096) */
    CHECK_EQ(spans[0].offset, 0);
    CHECK_EQ(spans[0].size_bytes, 1024);
    CHECK_EQ(spans[1].offset, 2048);
    CHECK_EQ(spans[1].size_bytes, 2048);
    CHECK_EQ(first[2], 3); /* [512, 4096) */
    CHECK_EQ(spans[2].offset, 512);
    CHECK_EQ(first[3], 5); /* [512, 1024) and [2048, 4096) */
    CHECK_EQ(spans[3].size_bytes, 512);
    CHECK_EQ(first[4], 6); /* all of it */
    CHECK_EQ(spans[5].size_bytes, 4096);
    free(spans);
}

/* Every other placement is no valid one. */
TEST(idle_spans_agree_with_the_definition)
{
    for (uint64_t seed = 0; seed < 4000; seed++) {
        check_random random = {seed};
        stage s;
        stage_fill(&s, &random);
        for (size_t i = 0; seed % 2 && i < s.problem.count; i++) {
            s.offsets[i] = check_below(&random, STAGE_BYTES);
        }
        if (s.problem.count && seed % 3 == 0) {
            s.offsets[0] = GML_NO_OFFSET; /* left out */
        }
        uint64_t limit = check_below(&random, STAGE_BYTES + 1), period = s.problem.period;
        gml_time_range queries[6];
        for (size_t q = 0; q < 6; q++) {
            queries[q].start = check_below(&random, period ? period : STAGE_TIMES);
            queries[q].end = queries[q].start + 1 + check_below(&random, period ? period : 9);
        }
        gml_span *spans = NULL;
        size_t first[7];
        CHECK_OK(gml_planner_idle_spans(&s.problem, s.offsets, limit, queries, 6, &spans, first));
        bool right = first[0] == 0;
        for (size_t q = 0; right && q < 6; q++) {
            right = spans_are(&s, limit, queries[q], spans + first[q], first[q + 1] - first[q]);
        }
        free(spans);
        if (!CHECK(right)) {
            printf("    seed %" PRIu64 "\n", seed);
            return;
        }
    }
}

/* ---- many lifetimes -------------------------------------------------------------------------- */

enum { CROWD = 400, CROWD_BYTES = 700, CROWD_TIMES = 300, CROWD_QUERIES = 60 };

typedef struct crowd {
    gml_lifetime lifetimes[CROWD];
    uint64_t offsets[CROWD];
    gml_span taken[2];
    gml_problem problem;
    gml_time_range queries[CROWD_QUERIES];
} crowd;

/* Anything anywhere; the sparser, the more spans. */
static void
crowd_fill(crowd *all, check_random *random)
{
    uint64_t period = check_below(random, 3) ? CROWD_TIMES : 0;
    all->problem = (gml_problem){.lifetimes = all->lifetimes,
                                 .count = 1 + check_below(random, CROWD),
                                 .period = period,
                                 .alignment_bytes = 1,
                                 .taken = all->taken,
                                 .taken_count = check_below(random, 3)};
    uint64_t longest = 1 + check_below(random, CROWD_TIMES / 3);
    for (size_t i = 0; i < all->problem.count; i++) {
        uint64_t start = check_below(random, CROWD_TIMES);
        uint64_t life = check_below(random, 50) ? 1 + check_below(random, longest) : CROWD_TIMES;
        all->lifetimes[i] = (gml_lifetime){
            .size_bytes = 1 + check_below(random, 12), .start = start, .end = start + life};
        all->offsets[i] =
            check_below(random, 20) ? check_below(random, CROWD_BYTES) : GML_NO_OFFSET;
    }
    for (size_t i = 0; i < 2; i++) {
        all->taken[i] = (gml_span){check_below(random, CROWD_BYTES), check_below(random, 20)};
    }
    for (size_t q = 0; q < CROWD_QUERIES; q++) {
        uint64_t start = check_below(random, CROWD_TIMES);
        uint64_t length = 1 + check_below(random, check_below(random, 2) ? 20 : CROWD_TIMES);
        all->queries[q] = (gml_time_range){start, start + length};
    }
}

/* In this repetition of the period, the one before, or the one behind. */
static bool
meets(const gml_problem *problem, const gml_lifetime *lifetime, gml_time_range query)
{
    int64_t period = (int64_t)problem->period;
    for (int64_t shift = -period; shift <= period; shift += period) {
        if ((int64_t)lifetime->start + shift < (int64_t)query.end &&
            (int64_t)lifetime->end + shift > (int64_t)query.start) {
            return true;
        }
        if (period == 0) {
            return false;
        }
    }
    return false;
}

static size_t
list_slowly(const crowd *all, uint64_t limit, gml_time_range query, gml_span *spans)
{
    bool used[CROWD_BYTES + 32] = {false};
    for (size_t i = 0; i < all->problem.count; i++) {
        if (all->offsets[i] != GML_NO_OFFSET && meets(&all->problem, &all->lifetimes[i], query)) {
            memset(used + all->offsets[i], true, all->lifetimes[i].size_bytes);
        }
    }
    for (size_t i = 0; i < all->problem.taken_count; i++) {
        memset(used + all->taken[i].offset, true, all->taken[i].size_bytes);
    }
    size_t count = 0;
    for (uint64_t byte = 0; byte < limit; byte++) {
        if (used[byte]) {
            continue;
        }
        if (byte == 0 || used[byte - 1]) {
            spans[count++] = (gml_span){byte, 0};
        }
        spans[count - 1].size_bytes++;
    }
    return count;
}

static int
larger_first(const void *left, const void *right)
{
    const gml_span *a = left, *b = right;
    if (a->size_bytes != b->size_bytes) {
        return a->size_bytes > b->size_bytes ? -1 : 1;
    }
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static int
lower_first(const void *left, const void *right)
{
    const gml_span *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static size_t
keep_slowly(gml_span *spans, size_t count, size_t most)
{
    qsort(spans, count, sizeof *spans, larger_first);
    count = count < most ? count : most;
    qsort(spans, count, sizeof *spans, lower_first);
    return count;
}

static bool
crowd_agrees(const crowd *all, uint64_t limit, size_t most)
{
    gml_span *spans = NULL, expected[CROWD_BYTES];
    size_t first[CROWD_QUERIES + 1];
    if (!CHECK_OK(gml_idle_largest(&all->problem, all->offsets, limit, all->queries, CROWD_QUERIES,
                                   most, &spans, first))) {
        return false;
    }
    bool right = first[0] == 0;
    for (size_t q = 0; right && q < CROWD_QUERIES; q++) {
        size_t count = list_slowly(all, limit, all->queries[q], expected);
        count = keep_slowly(expected, count, most);
        right = first[q + 1] - first[q] == count &&
                memcmp(spans + first[q], expected, count * sizeof *expected) == 0;
    }
    free(spans);
    return right;
}

TEST(idle_spans_of_many_lifetimes)
{
    static const size_t bounds[] = {SIZE_MAX, 1, 2, 3, 7, 20};
    for (uint64_t seed = 0; seed < 240; seed++) {
        check_random random = {seed};
        crowd all;
        crowd_fill(&all, &random);
        uint64_t limit = check_below(&random, 4) ? CROWD_BYTES : check_below(&random, CROWD_BYTES);
        if (!CHECK(crowd_agrees(&all, limit, bounds[seed % 6]))) {
            printf("    seed %" PRIu64 "\n", seed);
            return;
        }
    }
}

/* ---- the edges of what is allowed ------------------------------------------------------------ */

/* [1024, 1536) is never idle; [0, 512) is not around the end of the period, and [4096, 4608) only
 * there. */
TEST(idle_spans_of_a_period_as_long_as_time)
{
    stage s;
    const uint64_t period = (UINT64_C(1) << 63) + 10;
    stage_open(&s, 512, period);
    stage_place(&s, 512, period - 5, period + 5, 0, 0);
    stage_place(&s, 512, 100, 100 + period, 0, 1024);
    stage_place(&s, 512, 3, period - 1, 0, 4096);
    const gml_time_range queries[] = {{period - 2, period + 3}, {5, 9}, {period - 1, UINT64_MAX},
                                      {5, period - 5},          {4, 5}, {period - 1, period + 3}};
    const uint64_t lowest[] = {512, 0, 512, 0, 512, 512};
    const uint64_t highest[] = {4096, 4096, 4096, 4096, 4096, 4608};
    gml_span *spans = NULL;
    size_t first[7];
    CHECK_OK(gml_planner_idle_spans(&s.problem, s.offsets, 4608, queries, 6, &spans, first));
    for (size_t q = 0; q < 6; q++) {
        CHECK_EQ(first[q + 1], 2 * (q + 1));
        CHECK_EQ(spans[2 * q].offset, lowest[q]);
        CHECK_EQ(spans[2 * q].size_bytes, 1024 - lowest[q]);
        CHECK_EQ(spans[2 * q + 1].offset, 1536);
        CHECK_EQ(spans[2 * q + 1].size_bytes, highest[q] - 1536);
    }
    free(spans);
}

TEST(idle_spans_beside_a_lifetime_that_never_ends)
{
    stage s;
    stage_open(&s, 512, 0);
    stage_place(&s, 512, 7, UINT64_MAX, 0, 512);
    stage_take(&s, 1024, 512);
    const gml_time_range queries[] = {{0, 7}, {0, 8}, {UINT64_MAX - 1, UINT64_MAX}};
    gml_span *spans = NULL;
    size_t first[4];
    CHECK_OK(gml_planner_idle_spans(&s.problem, s.offsets, 2048, queries, 3, &spans, first));
    for (size_t q = 0; q < 3; q++) {
        CHECK_EQ(first[q + 1], 2 * (q + 1));
        CHECK_EQ(spans[2 * q].size_bytes, q == 0 ? 1024 : 512);
        CHECK_EQ(spans[2 * q + 1].offset, 1536);
    }
    free(spans);
}

/* No plan has such an offset; what it covers is occupied all the same. */
TEST(idle_spans_of_offsets_that_overflow)
{
    stage s;
    stage_open(&s, 512, 0);
    stage_place(&s, 4096, 0, 4, 0, UINT64_MAX - 1023);
    const gml_time_range query = {1, 2};
    gml_span *spans = NULL;
    size_t first[2];
    CHECK_OK(gml_planner_idle_spans(&s.problem, s.offsets, UINT64_MAX, &query, 1, &spans, first));
    CHECK_EQ(first[1], 1);
    CHECK_EQ(spans[0].offset, 0);
    CHECK_EQ(spans[0].size_bytes, UINT64_MAX - 1023);
    free(spans);
}

TEST(idle_spans_refuse_ranges_without_meaning)
{
    stage s;
    stage_open(&s, 512, 10);
    gml_span *spans = NULL;
    size_t first[2];
    const gml_time_range empty = {3, 3}, outside = {10, 11}, around = {4, 15}, whole = {4, 14};
    CHECK_STATUS(gml_planner_idle_spans(&s.problem, NULL, 1024, &empty, 1, &spans, first),
                 GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_planner_idle_spans(&s.problem, NULL, 1024, &outside, 1, &spans, first),
                 GML_INVALID_ARGUMENT);
    CHECK_STATUS(gml_planner_idle_spans(&s.problem, NULL, 1024, &around, 1, &spans, first),
                 GML_INVALID_ARGUMENT);
    CHECK_OK(gml_planner_idle_spans(&s.problem, NULL, 1024, &whole, 1, &spans, first));
    CHECK_EQ(first[1], 1);
    free(spans);
    CHECK_OK(gml_planner_idle_spans(&s.problem, NULL, 0, &whole, 1, &spans, first));
    CHECK_EQ(first[1], 0);
    free(spans);
    CHECK_STATUS(gml_idle_largest(&s.problem, NULL, 1024, &whole, 1, 0, &spans, first),
                 GML_INVALID_ARGUMENT);
    CHECK_OK(gml_planner_idle_spans(&s.problem, NULL, 1024, NULL, 0, &spans, first));
    CHECK_EQ(first[0], 0);
    free(spans);
}

/* ---- the set of numbers ---------------------------------------------------------------------- */

TEST(the_set_knows_its_neighbours)
{
    check_random random = {7};
    const size_t bounds[] = {0, 1, 63, 64, 65, 4096, 4097, 300000};
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        size_t bound = bounds[b];
        gml_number_set set;
        CHECK_OK(gml_number_set_open(&set, bound));
        CHECK_EQ(gml_number_set_from(&set, 0), GML_NO_MEMBER);
        CHECK_EQ(gml_number_set_upto(&set, bound), GML_NO_MEMBER);
        bool *members = calloc(bound + 1, sizeof *members);
        for (unsigned round = 0; bound && round < 400; round++) {
            size_t number = check_below(&random, bound);
            members[number] = check_below(&random, 3) != 0;
            (members[number] ? gml_number_set_add : gml_number_set_remove)(&set, number);
            CHECK_EQ(gml_number_set_has(&set, number), members[number]);
            size_t at = check_below(&random, bound), from = at, upto = at;
            while (from < bound && !members[from]) {
                from++;
            }
            while (upto != SIZE_MAX && !members[upto]) {
                upto--;
            }
            CHECK_EQ(gml_number_set_from(&set, at), from < bound ? from : GML_NO_MEMBER);
            CHECK_EQ(gml_number_set_upto(&set, at), upto);
        }
        free(members);
        gml_number_set_close(&set);
    }
}
