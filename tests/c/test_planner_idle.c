/* Idle spans, against what each byte does at each moment; and the set of numbers behind the sweep.
 */
#include "planner/check_set.h"
#include "support/placement.h"

#include <stdlib.h>

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

TEST(idle_spans_agree_with_the_definition)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        check_random random = {seed};
        stage s;
        stage_fill(&s, &random);
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

int
main(void)
{
    RUN(idle_spans_by_hand);
    RUN(idle_spans_agree_with_the_definition);
    RUN(idle_spans_refuse_ranges_without_meaning);
    RUN(the_set_knows_its_neighbours);
    return report();
}
