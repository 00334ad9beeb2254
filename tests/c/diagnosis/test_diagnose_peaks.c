/* Peaks of live bytes, the order of findings, and the options. */
#include "diagnosis/scenario.h"

enum { WRITES = GML_ACCESS_WRITES, READS = GML_ACCESS_READS };

/* ---- peaks ----------------------------------------------------------------------------------- */

SCENARIO(peaks_are_the_highest_rises) {
    uint32_t base = scenario_object(s, 5, GML_OBJECT_BEFORE);
    uint64_t tops[4];
    uint32_t objects[4];
    const uint64_t sizes[4] = {10, 40, 30, 40};
    for (size_t i = 0; i < 4; i++) {
        objects[i] = scenario_new(s, sizes[i]);
        tops[i] = s->trace.api_count - 1;
        scenario_pause(s, 1);
        scenario_free(s, objects[i]);
    }
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peak_count, 2);
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 45);
    CHECK_EQ(s->diagnosis.peaks[0].api, tops[1]); /* of equals the first comes first */
    CHECK_EQ(s->diagnosis.peaks[1].bytes, 45);
    CHECK_EQ(s->diagnosis.peaks[1].api, tops[3]);
    CHECK_EQ(s->diagnosis.lives[base].peaks, 3);
    CHECK_EQ(s->diagnosis.lives[objects[0]].peaks, 0);
    CHECK_EQ(s->diagnosis.lives[objects[1]].peaks, 1);
    CHECK_EQ(s->diagnosis.lives[objects[3]].peaks, 2);
    s->options.peak_count = 8;
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peak_count, 4);
    CHECK_EQ(s->diagnosis.peaks[2].api, tops[2]);
    CHECK_EQ(s->diagnosis.peaks[3].api, tops[0]);
    CHECK_EQ(s->diagnosis.lives[objects[2]].peaks, 4);
}

SCENARIO(a_rise_of_many_allocations_is_one_peak) {
    for (size_t i = 0; i < 5; i++) {
        scenario_new(s, 10);
        scenario_pause(s, 2);
    }
    for (uint32_t o = 5; o-- > 0;) {
        scenario_free(s, o);
    }
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peak_count, 1);
    CHECK_EQ(s->diagnosis.peaks[0].api, 12);
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 50);
}

SCENARIO(the_peak_may_lie_before_the_first_api) {
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN)); /* nothing at all */
    CHECK_EQ(s->diagnosis.peak_count, 0);
    CHECK_EQ(s->diagnosis.finding_count, 0);
    uint32_t before = scenario_object(s, 50, GML_OBJECT_BEFORE);
    scenario_free(s, before);
    uint32_t o = scenario_new(s, 20);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peak_count, 2);
    CHECK_EQ(s->diagnosis.peaks[0].api, GML_NO_API);
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 50);
    CHECK_EQ(s->diagnosis.peaks[1].api, 1);
    CHECK_EQ(s->diagnosis.lives[before].peaks, 1);
    CHECK_EQ(s->diagnosis.lives[o].peaks, 2);
}

/* ---- the order of findings ------------------------------------------------------------------- */

SCENARIO(of_equal_savings_the_larger_for_longer_comes_first) {
    uint32_t top = scenario_new(s, 100000); /* the peak, which no fix below lowers */
    scenario_kernel(s, top, WRITES);
    scenario_free(s, top);
    uint32_t small_long = scenario_new(s, 3), large_short = scenario_new(s, 7);
    scenario_pause(s, 1);
    scenario_kernel(s, large_short, WRITES);
    scenario_pause(s, 1);
    scenario_kernel(s, small_long, WRITES);
    scenario_free(s, large_short);
    scenario_free(s, small_long);
    CHECK_OK(scenario_diagnose(s, 1 << GML_PATTERN_EARLY_ALLOCATION));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    CHECK_EQ(s->diagnosis.findings[0].object, small_long); /* 3 * 5 against 7 * 2 */
    s->objects[large_short].size_bytes = 8;
    CHECK_OK(scenario_diagnose(s, 1 << GML_PATTERN_EARLY_ALLOCATION));
    CHECK_EQ(s->diagnosis.findings[0].object, large_short);
}

/* What saves nothing comes last, however large it is and however long it lasts. */
SCENARIO(what_saves_most_comes_first) {
    uint32_t top = scenario_new(s, 1000), small = scenario_new(s, 3); /* the peak: 1003 */
    scenario_kernel(s, top, WRITES);
    scenario_free(s, top);
    scenario_kernel(s, small, WRITES);
    scenario_free(s, small);
    uint32_t large = scenario_new(s, 900);
    scenario_pause(s, 20);
    scenario_kernel(s, large, WRITES);
    scenario_free(s, large);
    CHECK_OK(scenario_diagnose(s, 1 << GML_PATTERN_EARLY_ALLOCATION));
    CHECK_EQ(s->diagnosis.finding_count, 3); /* `top` is one: `small` was allocated meanwhile */
    CHECK_EQ(scenario_find(s, GML_PATTERN_EARLY_ALLOCATION, small)->saving_bytes, 3);
    CHECK_EQ(s->diagnosis.findings[0].object, small);
    CHECK_EQ(s->diagnosis.findings[1].object, large);
}

/* Of patterns with the same bytes for as long, that of the first object comes first. */
SCENARIO(equal_findings_come_by_object) {
    uint32_t early = scenario_object(s, 5, 0), top = scenario_new(s, 1000);
    scenario_kernel(s, top, WRITES);
    scenario_free(s, top);
    uint32_t late = scenario_new(s, 5);
    scenario_kernel(s, late, WRITES);
    scenario_pause(s, 3);
    scenario_free(s, late);
    scenario_alloc(s, early);
    scenario_pause(s, 3);
    scenario_kernel(s, early, WRITES);
    scenario_free(s, early);
    CHECK_OK(scenario_diagnose(s, 1 << GML_PATTERN_EARLY_ALLOCATION |
                                      1 << GML_PATTERN_LATE_DEALLOCATION));
    CHECK_EQ(s->diagnosis.finding_count, 2);
    CHECK_EQ(s->diagnosis.findings[0].object, early);
    CHECK_EQ(s->diagnosis.findings[1].object, late);
}

static void add_life(gml_api *apis, uint64_t alloc, uint64_t kernel, uint64_t end,
                     uint32_t object) {
    apis[alloc] = (gml_api){.object = object, .kind = GML_API_ALLOC};
    apis[kernel].access_count = 1;
    apis[end] = (gml_api){.object = object, .kind = GML_API_FREE};
}

/* 2^48 bytes for 70,000 APIs are more than 2^64, and more than half of that for 60,000. */
TEST(large_and_long_findings_are_ranked) {
    enum { APIS = 80000, OBJECTS = 4 };
    const uint64_t huge = UINT64_C(1) << 48;
    gml_object objects[OBJECTS] = {
        {huge, 0, 1, 0}, {huge, 0, 1, 0}, {huge / 2, 0, 1, 0}, {huge, 0, 1, 0}};
    gml_access accesses[OBJECTS];
    static gml_api apis[APIS];
    for (size_t a = 0; a < APIS; a++) {
        apis[a] = (gml_api){.object = GML_NO_OBJECT, .kind = GML_API_KERNEL};
    }
    for (uint32_t o = 0; o < OBJECTS; o++) {
        accesses[o] = (gml_access){.object = o, .flags = WRITES};
    }
    add_life(apis, 0, 1, 5, 0); /* two at once: the peak */
    add_life(apis, 2, 3, 4, 1);
    add_life(apis, 10, 60010, 60011, 2);
    add_life(apis, 11, 70011, 70012, 3);
    for (size_t a = 1; a < APIS; a++) {
        apis[a].first_access = apis[a - 1].first_access + apis[a - 1].access_count;
    }
    gml_object_trace trace = {apis, APIS, objects, OBJECTS, accesses, OBJECTS, NULL, 0};
    gml_diagnose_options options;
    gml_diagnosis diagnosis = {0};
    gml_diagnose_defaults(&options);
    options.patterns = 1 << GML_PATTERN_EARLY_ALLOCATION;
    CHECK_OK(gml_diagnose(&trace, &options, &diagnosis, NULL, 0));
    if (CHECK_EQ(diagnosis.finding_count, 2)) {
        CHECK_EQ(diagnosis.findings[0].object, 3);
        CHECK_EQ(diagnosis.findings[0].distance, 70000);
        CHECK_EQ(diagnosis.findings[1].object, 2);
    }
    gml_diagnosis_clear(&diagnosis);
}

/* ---- options --------------------------------------------------------------------------------- */

SCENARIO(only_the_patterns_asked_for_are_found) {
    uint32_t o = scenario_new(s, 1000);
    scenario_pause(s, 2);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 2);
    scenario_kernel(s, o, READS);
    scenario_new(s, 1000);
    size_t found = 0;
    for (int pattern = 0; pattern < GML_PATTERN_COUNT; pattern++) {
        CHECK_OK(scenario_diagnose(s, UINT32_C(1) << pattern));
        for (size_t i = 0; i < s->diagnosis.finding_count; i++) {
            CHECK_EQ(s->diagnosis.findings[i].pattern, pattern);
        }
        bool is_there =
            pattern == GML_PATTERN_EARLY_ALLOCATION || pattern == GML_PATTERN_UNUSED_ALLOCATION ||
            pattern == GML_PATTERN_MEMORY_LEAK || pattern == GML_PATTERN_TEMPORARY_IDLENESS;
        CHECK_EQ(s->diagnosis.finding_count > 0, is_there);
        found += s->diagnosis.finding_count;
    }
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.finding_count, found);
}

SCENARIO(options_out_of_range_are_refused) {
    CHECK_STATUS(scenario_diagnose(s, 1 << GML_PATTERN_COUNT), GML_INVALID_ARGUMENT);
    const gml_diagnose_options fine = s->options;
    double *percents[] = {&s->options.reuse_percent, &s->options.accessed_percent,
                          &s->options.fragmented_percent, &s->options.frequency_percent};
    uint64_t *counts[] = {&s->options.early_apis, &s->options.late_apis, &s->options.idle_apis};
    for (size_t i = 0; i < 4; i++) {
        *percents[i] = -1;
        CHECK_STATUS(scenario_diagnose(s, 0), GML_INVALID_ARGUMENT);
        *percents[i] = 101; /* a coefficient of variation can be above 100 % */
        CHECK_STATUS(scenario_diagnose(s, 0), i == 3 ? GML_OK : GML_INVALID_ARGUMENT);
        s->options = fine;
    }
    for (size_t i = 0; i < 3; i++) {
        *counts[i] = 0;
        CHECK_STATUS(scenario_diagnose(s, 0), GML_INVALID_ARGUMENT);
        s->options = fine;
    }
    s->options.peak_count = 0;
    CHECK_STATUS(scenario_diagnose(s, 0), GML_INVALID_ARGUMENT);
    s->options.peak_count = 9;
    CHECK_STATUS(scenario_diagnose(s, 0), GML_INVALID_ARGUMENT);
    CHECK(s->reason[0] != '\0');
    CHECK_OK(gml_diagnose(&s->trace, NULL, &s->diagnosis, NULL, 0));
}
