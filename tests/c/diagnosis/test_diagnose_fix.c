/* What fixes save, counted by hand: one at a time, together, and those that exclude each other. */
#include "diagnosis/scenario.h"

#include <string.h>

enum {
    READS = GML_ACCESS_READS,
    WRITES = GML_ACCESS_WRITES,
    EARLY = GML_PATTERN_EARLY_ALLOCATION,
    LATE = GML_PATTERN_LATE_DEALLOCATION,
    REUSE = GML_PATTERN_REDUNDANT_ALLOCATION,
    UNUSED = GML_PATTERN_UNUSED_ALLOCATION,
    LEAK = GML_PATTERN_MEMORY_LEAK,
    IDLE = GML_PATTERN_TEMPORARY_IDLENESS,
    DEAD = GML_PATTERN_DEAD_WRITE,
    OVER = GML_PATTERN_OVERALLOCATION,
    SPLIT = GML_PATTERN_STRUCTURED_ACCESS
};

#define BYTES UINT64_C(1000)

static uint64_t saving_of(const scenario *s, uint32_t pattern, uint32_t object) {
    const gml_finding *finding = scenario_find(s, pattern, object);
    return CHECK(finding != NULL) ? finding->saving_bytes : UINT64_MAX;
}

static uint64_t peak_with(const scenario *s, const size_t *list, size_t count) {
    uint64_t peak = UINT64_MAX;
    CHECK_OK(gml_diagnosis_peak_with(&s->trace, &s->diagnosis, list, count, &peak));
    return peak;
}

static uint64_t peak_with_two(const scenario *s, size_t first, size_t second) {
    const size_t list[] = {first, second};
    return peak_with(s, list, 2);
}

/* ---- together -------------------------------------------------------------------------------- */

/* Three objects, one after the other, all freed at the end. */
static void add_relay(scenario *s, uint32_t *objects) {
    for (int i = 0; i < 3; i++) {
        objects[i] = scenario_new(s, BYTES);
    }
    for (int i = 0; i < 3; i++) {
        scenario_kernel(s, objects[i], WRITES);
    }
    for (int i = 0; i < 3; i++) {
        scenario_free(s, objects[i]);
    }
}

TEST(a_chain_of_reuse_is_one_memory) {
    scenario s;
    uint32_t o[3];
    scenario_open(&s);
    add_relay(&s, o);
    CHECK_OK(scenario_diagnose(&s, 1 << REUSE));
    CHECK_EQ(saving_of(&s, REUSE, o[1]), 1000);
    CHECK_EQ(saving_of(&s, REUSE, o[2]), 1000);
    CHECK_EQ(peak_with_two(&s, 0, 1), 1000);
    CHECK_EQ(peak_with_two(&s, 1, 0), 1000);
    CHECK_EQ(s.diagnosis.fixed_peak_bytes, 1000);
    scenario_close(&s);
}

/* ---- bad input ------------------------------------------------------------------------------- */

TEST(findings_that_are_not_there_are_refused) {
    scenario s;
    uint32_t o[3];
    scenario_open(&s);
    add_relay(&s, o);
    CHECK_OK(scenario_diagnose(&s, 1 << REUSE));
    uint64_t peak = 0;
    size_t number = s.diagnosis.finding_count;
    CHECK_STATUS(gml_diagnosis_peak_with(&s.trace, &s.diagnosis, &number, 1, &peak),
                 GML_INVALID_ARGUMENT);
    number = 0;
    s.diagnosis.findings[0].other = 3;
    CHECK_STATUS(gml_diagnosis_peak_with(&s.trace, &s.diagnosis, &number, 1, &peak),
                 GML_INVALID_ARGUMENT);
    s.diagnosis.findings[0].other = s.diagnosis.findings[0].object;
    CHECK_STATUS(gml_diagnosis_peak_with(&s.trace, &s.diagnosis, &number, 1, &peak),
                 GML_INVALID_ARGUMENT);
    s.diagnosis.findings[0].pattern = GML_PATTERN_COUNT;
    CHECK_STATUS(gml_diagnosis_peak_with(&s.trace, &s.diagnosis, &number, 1, &peak),
                 GML_INVALID_ARGUMENT);
    scenario_close(&s);
}
