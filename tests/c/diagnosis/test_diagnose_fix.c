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

static size_t number_of(const scenario *s, uint32_t pattern, uint32_t object) {
    const gml_finding *finding = scenario_find(s, pattern, object);
    return CHECK(finding != NULL) ? (size_t)(finding - s->diagnosis.findings) : 0;
}

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

/* An object that is there for one kernel: a peak of its own. */
static void add_bump(scenario *s, uint64_t bytes) {
    uint32_t o = scenario_new(s, bytes);
    scenario_kernel(s, o, WRITES);
    scenario_free(s, o);
}

/* ---- one at a time --------------------------------------------------------------------------- */

SCENARIO(early_allocation_counts_from_the_first_access) {
    uint32_t o = scenario_new(s, BYTES);
    add_bump(s, 700);
    scenario_kernel(s, o, WRITES);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
    CHECK_EQ(peak_with(s, NULL, 0), 1700);
    CHECK_EQ(saving_of(s, EARLY, o), 700); /* the object itself is the peak then */
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1000);
}

SCENARIO(late_deallocation_does_not_count_after_the_last_access) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 1);
    add_bump(s, 700);
    scenario_free(s, o);
    uint32_t leaked = scenario_new(s, 400);
    scenario_kernel(s, leaked, WRITES);
    add_bump(s, 1200);
    CHECK_OK(scenario_diagnose(s, 1 << LATE | 1 << LEAK));
    CHECK_EQ(peak_with(s, NULL, 0), 1700);
    CHECK_EQ(saving_of(s, LATE, o), 100); /* down to the leak's 1600 */
    CHECK_EQ(saving_of(s, LEAK, leaked), 0);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1200);
}

SCENARIO(an_object_is_still_there_at_its_last_access) {
    uint32_t o = scenario_new(s, BYTES), other = scenario_new(s, 700);
    scenario_kernel(s, o, WRITES);
    scenario_access(s, other, WRITES);
    scenario_pause(s, 2);
    scenario_free(s, o);
    scenario_free(s, other);
    CHECK_OK(scenario_diagnose(s, 1 << LATE | 1 << EARLY));
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1700);
    CHECK_EQ(saving_of(s, LATE, o), 0);
}

SCENARIO(unused_allocations_never_live) {
    uint32_t o = scenario_new(s, BYTES);
    add_bump(s, 700);
    scenario_free(s, o);
    uint32_t leaked = scenario_new(s, 600);
    CHECK_OK(scenario_diagnose(s, 1 << UNUSED | 1 << LEAK));
    CHECK_EQ(saving_of(s, UNUSED, o), 1000);
    CHECK_EQ(saving_of(s, UNUSED, leaked), 0);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 700);
    /* A leak of what nothing accesses ends right after its allocation. */
    size_t all[] = {number_of(s, UNUSED, o), number_of(s, LEAK, leaked)};
    CHECK_EQ(peak_with(s, all, 2), 700);
}

SCENARIO(an_idle_object_is_away_between_its_accesses) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    add_bump(s, 700);
    scenario_kernel(s, o, READS);
    uint32_t next = scenario_new(s, 200); /* allocated while it is there */
    scenario_kernel(s, next, WRITES);
    scenario_access(s, o, READS);
    scenario_free(s, next);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << IDLE));
    CHECK_EQ(scenario_count(s, IDLE, o), 1);
    CHECK_EQ(saving_of(s, IDLE, o), 500);
}

SCENARIO(every_idle_time_is_a_hole) {
    uint32_t o = scenario_new(s, BYTES);
    for (int i = 0; i < 3; i++) {
        scenario_kernel(s, o, WRITES);
        add_bump(s, 700);
    }
    scenario_kernel(s, o, READS);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << IDLE));
    CHECK_EQ(scenario_count(s, IDLE, o), 3);
    CHECK_EQ(saving_of(s, IDLE, o), 0); /* two of three peaks remain */
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1000);
    const size_t two[] = {0, 1}, three[] = {0, 1, 2};
    CHECK_EQ(peak_with(s, two, 2), 1700);
    CHECK_EQ(peak_with(s, three, 3), 1000);
}

SCENARIO(overallocation_makes_it_smaller) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    scenario_range(s, 100, 300);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << OVER));
    CHECK_EQ(saving_of(s, OVER, o), 700);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 300);
}

/* Three slices, one at a time; of 1000 bytes 100 are accessed by none. */
static uint32_t add_slices(scenario *s, uint32_t flags) {
    uint32_t o = scenario_object(s, BYTES, flags);
    if (!(flags & GML_OBJECT_BEFORE)) {
        scenario_alloc(s, o);
    }
    for (uint64_t i = 0; i < 3; i++) {
        scenario_kernel(s, o, WRITES);
        scenario_range(s, i * 300, 300);
    }
    return o;
}

SCENARIO(slices_live_one_after_the_other) {
    uint32_t o = add_slices(s, 0);
    scenario_kernel(s, o, READS);
    scenario_range(s, 599, 1); /* the second slice lives on through the third */
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << SPLIT));
    CHECK_EQ(saving_of(s, SPLIT, o), 400);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 600);
}

TEST(slices_of_what_exists_before_or_after_stay_together) {
    static const uint32_t flags[] = {GML_OBJECT_BEFORE, GML_OBJECT_KEPT};
    for (int i = 0; i < 2; i++) {
        scenario s;
        scenario_open(&s);
        uint32_t o = add_slices(&s, flags[i]);
        CHECK_OK(scenario_diagnose(&s, 1 << SPLIT));
        CHECK_EQ(scenario_count(&s, SPLIT, o), 0);
        scenario_close(&s);
    }
}

SCENARIO(a_reused_memory_is_there_from_the_first_start_to_the_last_end) {
    uint32_t a = scenario_new(s, BYTES);
    scenario_kernel(s, a, WRITES);
    uint32_t b = scenario_new(s, 1050);
    scenario_kernel(s, b, WRITES);
    scenario_free(s, a);
    scenario_free(s, b);
    CHECK_OK(scenario_diagnose(s, 1 << REUSE));
    CHECK_EQ(scenario_find(s, REUSE, b)->other, a);
    CHECK_EQ(saving_of(s, REUSE, b), 1000); /* one memory of 1050 */
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1050);
}

SCENARIO(what_writes_twice_saves_no_bytes) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_call(s, GML_API_SET);
    scenario_access(s, o, WRITES);
    scenario_call(s, GML_API_COPY);
    scenario_access(s, o, WRITES);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << DEAD));
    CHECK_EQ(saving_of(s, DEAD, o), 0);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1000);
}

/* ---- where the peak is ----------------------------------------------------------------------- */

SCENARIO(what_exists_before_counts_before_the_first_api) {
    uint32_t o = scenario_object(s, BYTES, GML_OBJECT_BEFORE);
    scenario_free(s, o);
    uint32_t b = scenario_new(s, 10);
    scenario_kernel(s, b, WRITES);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 1000);
    CHECK_EQ(peak_with(s, NULL, 0), 1000);
}

SCENARIO(only_objects_of_marked_peaks_have_bytes_there) {
    s->options.peak_count = 1;
    uint32_t high = scenario_new(s, BYTES);
    scenario_pause(s, 1);
    scenario_kernel(s, high, WRITES);
    scenario_free(s, high);
    uint32_t low = scenario_new(s, 300);
    scenario_pause(s, 1);
    scenario_kernel(s, low, WRITES);
    scenario_free(s, low);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
    CHECK_EQ(scenario_find(s, EARLY, high)->peak_bytes, 1000);
    CHECK_EQ(scenario_find(s, EARLY, low)->peak_bytes, 0);
    s->options.peak_count = 2;
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
    CHECK_EQ(scenario_find(s, EARLY, low)->peak_bytes, 300);
}

/* Two peaks of one height: lowering one of them saves nothing. */
SCENARIO(an_equal_peak_elsewhere_leaves_no_saving) {
    uint32_t o = scenario_new(s, BYTES);
    add_bump(s, 700);
    scenario_kernel(s, o, WRITES);
    scenario_free(s, o);
    add_bump(s, 1700);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
    CHECK_EQ(saving_of(s, EARLY, o), 0);
}

/* ---- together -------------------------------------------------------------------------------- */

SCENARIO(a_finding_counts_once) {
    uint32_t o = scenario_new(s, BYTES);
    scenario_kernel(s, o, WRITES);
    add_bump(s, 1500);
    scenario_kernel(s, o, READS);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << IDLE));
    CHECK_EQ(peak_with(s, NULL, 0), 2500);
    CHECK_EQ(peak_with_two(s, 0, 0), 1500);
}

SCENARIO(both_ends_of_a_life_narrow_it) {
    uint32_t o = scenario_new(s, 100);
    add_bump(s, 700);
    scenario_kernel(s, o, WRITES);
    scenario_pause(s, 1);
    add_bump(s, 700);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY | 1 << LATE));
    size_t early = number_of(s, EARLY, o), late = number_of(s, LATE, o);
    CHECK_EQ(peak_with(s, &early, 1), 800);
    CHECK_EQ(peak_with(s, &late, 1), 800);
    CHECK_EQ(peak_with_two(s, early, late), 700);
    CHECK_EQ(peak_with_two(s, late, early), 700);
}

SCENARIO(of_slices_and_a_smaller_object_the_first_counts) {
    uint32_t o = add_slices(s, 0);
    scenario_free(s, o);
    s->options.accessed_percent = 100;
    CHECK_OK(scenario_diagnose(s, 1 << SPLIT | 1 << OVER));
    size_t split = number_of(s, SPLIT, o), over = number_of(s, OVER, o);
    CHECK_EQ(peak_with_two(s, split, over), 300);
    CHECK_EQ(peak_with_two(s, over, split), 900);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 300);
}

SCENARIO(slices_leave_nothing_for_idle_times) {
    uint32_t o = add_slices(s, 0);
    scenario_pause(s, 2);
    scenario_kernel(s, o, READS);
    scenario_range(s, 600, 300);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << SPLIT | 1 << IDLE));
    CHECK_EQ(peak_with_two(s, number_of(s, IDLE, o), number_of(s, SPLIT, o)), 300);
    CHECK_EQ(peak_with_two(s, number_of(s, SPLIT, o), number_of(s, IDLE, o)), 300);
}

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

TEST(a_memory_is_lent_once) {
    scenario s;
    uint32_t o[3];
    scenario_open(&s);
    add_relay(&s, o);
    CHECK_OK(scenario_diagnose(&s, 1 << REUSE));
    s.diagnosis.findings[number_of(&s, REUSE, o[1])].other = o[0];
    s.diagnosis.findings[number_of(&s, REUSE, o[2])].other = o[0];
    CHECK_EQ(peak_with_two(&s, 0, 1), 2000);
    scenario_close(&s);
}

TEST(a_memory_is_not_lent_to_what_was_there_first) {
    scenario s;
    uint32_t o[3];
    scenario_open(&s);
    add_relay(&s, o);
    CHECK_OK(scenario_diagnose(&s, 1 << REUSE));
    size_t number = number_of(&s, REUSE, o[2]);
    s.diagnosis.findings[number].object = o[0];
    s.diagnosis.findings[number].other = o[2];
    CHECK_EQ(peak_with(&s, &number, 1), 3000);
    scenario_close(&s);
}

/* The second is away while the bump is there; the third makes their memory larger. */
SCENARIO(a_hole_is_as_large_as_the_memory_becomes) {
    static const uint64_t sizes[] = {BYTES, BYTES, 1050};
    uint32_t o[3];
    for (int i = 0; i < 3; i++) {
        o[i] = scenario_new(s, sizes[i]);
        scenario_kernel(s, o[i], WRITES);
        add_bump(s, i == 1 ? 1500 : 1);
        scenario_kernel(s, o[i], READS);
        scenario_free(s, o[i]);
    }
    CHECK_OK(scenario_diagnose(s, 1 << REUSE | 1 << IDLE));
    const size_t list[] = {number_of(s, IDLE, o[1]), number_of(s, REUSE, o[1]),
                           number_of(s, REUSE, o[2])};
    CHECK_EQ(peak_with(s, list, 3), 1500);
    const size_t turned[] = {list[2], list[1], list[0]};
    CHECK_EQ(peak_with(s, turned, 3), 1500);
}

SCENARIO(the_holes_of_both_objects_are_holes_of_their_memory) {
    uint32_t o[2];
    for (int i = 0; i < 2; i++) {
        o[i] = scenario_new(s, BYTES);
        scenario_kernel(s, o[i], WRITES);
        add_bump(s, 500);
        scenario_kernel(s, o[i], READS);
    }
    scenario_free(s, o[0]);
    scenario_free(s, o[1]);
    CHECK_OK(scenario_diagnose(s, 1 << REUSE | 1 << IDLE));
    const size_t list[] = {number_of(s, REUSE, o[1]), number_of(s, IDLE, o[0]),
                           number_of(s, IDLE, o[1])};
    CHECK_EQ(peak_with(s, list, 1), 1500);
    CHECK_EQ(peak_with(s, list, 2), 1500);
    CHECK_EQ(peak_with(s, list, 3), 1000);
}

/* With both lives narrowed nothing lives while the large one does; one memory for both would. */
SCENARIO(reuse_that_would_raise_the_peak_is_left_out) {
    uint32_t a = scenario_new(s, BYTES);
    scenario_kernel(s, a, WRITES);
    scenario_pause(s, 1);
    uint32_t b = scenario_new(s, BYTES);
    add_bump(s, 1500);
    scenario_kernel(s, b, WRITES);
    scenario_free(s, a);
    scenario_free(s, b);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY | 1 << LATE | 1 << REUSE));
    CHECK_EQ(saving_of(s, REUSE, b), 1000);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1500);
    const size_t all[] = {number_of(s, EARLY, b), number_of(s, LATE, a), number_of(s, REUSE, b)};
    CHECK_EQ(peak_with(s, all, 2), 1500);
    CHECK_EQ(peak_with(s, all, 3), 2500);
}

SCENARIO(lives_count_in_order_of_invocation_on_several_streams) {
    uint32_t o = scenario_new(s, BYTES);
    s->stream = 1;
    scenario_pause(s, 3);
    s->stream = 0;
    add_bump(s, 700);
    s->stream = 1;
    scenario_kernel(s, o, WRITES);
    scenario_free(s, o);
    CHECK_OK(scenario_diagnose(s, 1 << EARLY));
    CHECK_EQ(saving_of(s, EARLY, o), 700);
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
