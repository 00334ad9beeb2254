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

static size_t count_dead(scenario *t) {
    CHECK_OK(scenario_diagnose(t, SCENARIO_EVERY_PATTERN));
    return scenario_total(t, GML_PATTERN_DEAD_WRITE);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

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
