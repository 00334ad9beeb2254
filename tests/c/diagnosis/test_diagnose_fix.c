/* What fixes save, counted by hand: one at a time, together, and those that exclude each other. */
#include "diagnosis/story.h"

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

static size_t
number_of(const story *s, uint32_t pattern, uint32_t object)
{
    const gml_finding *finding = story_find(s, pattern, object);
    return CHECK(finding != NULL) ? (size_t)(finding - s->diagnosis.findings) : 0;
}

static uint64_t
saving_of(const story *s, uint32_t pattern, uint32_t object)
{
    const gml_finding *finding = story_find(s, pattern, object);
    return CHECK(finding != NULL) ? finding->saving_bytes : UINT64_MAX;
}

static uint64_t
peak_with(const story *s, const size_t *list, size_t count)
{
    uint64_t peak = UINT64_MAX;
    CHECK_OK(gml_diagnosis_peak_with(&s->trace, &s->diagnosis, list, count, &peak));
    return peak;
}

static uint64_t
peak_with_two(const story *s, size_t first, size_t second)
{
    const size_t list[] = {first, second};
    return peak_with(s, list, 2);
}

/* An object that is there for one kernel: a peak of its own. */
static void
add_bump(story *s, uint64_t bytes)
{
    uint32_t o = story_new(s, bytes);
    story_kernel(s, o, WRITES);
    story_free(s, o);
}

/* ---- one at a time --------------------------------------------------------------------------- */

STORY(early_allocation_counts_from_the_first_access)
{
    uint32_t o = story_new(s, BYTES);
    add_bump(s, 700);
    story_kernel(s, o, WRITES);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(peak_with(s, NULL, 0), 1700);
    CHECK_EQ(saving_of(s, EARLY, o), 700); /* the object itself is the peak then */
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1000);
}

STORY(late_deallocation_does_not_count_after_the_last_access)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    story_pause(s, 1);
    add_bump(s, 700);
    story_free(s, o);
    uint32_t leaked = story_new(s, 400);
    story_kernel(s, leaked, WRITES);
    add_bump(s, 1200);
    CHECK_OK(story_diagnose(s, 1 << LATE | 1 << LEAK));
    CHECK_EQ(peak_with(s, NULL, 0), 1700);
    CHECK_EQ(saving_of(s, LATE, o), 100); /* down to the leak's 1600 */
    CHECK_EQ(saving_of(s, LEAK, leaked), 0);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1200);
}

STORY(an_object_is_still_there_at_its_last_access)
{
    uint32_t o = story_new(s, BYTES), other = story_new(s, 700);
    story_kernel(s, o, WRITES);
    story_access(s, other, WRITES);
    story_pause(s, 2);
    story_free(s, o);
    story_free(s, other);
    CHECK_OK(story_diagnose(s, 1 << LATE | 1 << EARLY));
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1700);
    CHECK_EQ(saving_of(s, LATE, o), 0);
}

STORY(unused_allocations_never_live)
{
    uint32_t o = story_new(s, BYTES);
    add_bump(s, 700);
    story_free(s, o);
    uint32_t leaked = story_new(s, 600);
    CHECK_OK(story_diagnose(s, 1 << UNUSED | 1 << LEAK));
    CHECK_EQ(saving_of(s, UNUSED, o), 1000);
    CHECK_EQ(saving_of(s, UNUSED, leaked), 0);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 700);
    /* A leak of what nothing accesses ends right after its allocation. */
    size_t all[] = {number_of(s, UNUSED, o), number_of(s, LEAK, leaked)};
    CHECK_EQ(peak_with(s, all, 2), 700);
}

STORY(an_idle_object_is_away_between_its_accesses)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    add_bump(s, 700);
    story_kernel(s, o, READS);
    uint32_t next = story_new(s, 200); /* allocated while it is there */
    story_kernel(s, next, WRITES);
    story_access(s, o, READS);
    story_free(s, next);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << IDLE));
    CHECK_EQ(story_count(s, IDLE, o), 1);
    CHECK_EQ(saving_of(s, IDLE, o), 500);
}

STORY(every_idle_time_is_a_hole)
{
    uint32_t o = story_new(s, BYTES);
    for (int i = 0; i < 3; i++) {
        story_kernel(s, o, WRITES);
        add_bump(s, 700);
    }
    story_kernel(s, o, READS);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << IDLE));
    CHECK_EQ(story_count(s, IDLE, o), 3);
    CHECK_EQ(saving_of(s, IDLE, o), 0); /* two of three peaks remain */
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1000);
    const size_t two[] = {0, 1}, three[] = {0, 1, 2};
    CHECK_EQ(peak_with(s, two, 2), 1700);
    CHECK_EQ(peak_with(s, three, 3), 1000);
}

STORY(overallocation_makes_it_smaller)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    story_range(s, 100, 300);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << OVER));
    CHECK_EQ(saving_of(s, OVER, o), 700);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 300);
}

/* Three slices, one at a time; of 1000 bytes 100 are accessed by none. */
static uint32_t
add_slices(story *s, uint32_t flags)
{
    uint32_t o = story_object(s, BYTES, flags);
    if (!(flags & GML_OBJECT_BEFORE)) {
        story_alloc(s, o);
    }
    for (uint64_t i = 0; i < 3; i++) {
        story_kernel(s, o, WRITES);
        story_range(s, i * 300, 300);
    }
    return o;
}

STORY(slices_live_one_after_the_other)
{
    uint32_t o = add_slices(s, 0);
    story_kernel(s, o, READS);
    story_range(s, 599, 1); /* the second slice lives on through the third */
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << SPLIT));
    CHECK_EQ(saving_of(s, SPLIT, o), 400);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 600);
}

TEST(slices_of_what_exists_before_or_after_stay_together)
{
    static const uint32_t flags[] = {GML_OBJECT_BEFORE, GML_OBJECT_KEPT};
    for (int i = 0; i < 2; i++) {
        story s;
        story_open(&s);
        uint32_t o = add_slices(&s, flags[i]);
        CHECK_OK(story_diagnose(&s, 1 << SPLIT));
        CHECK_EQ(story_count(&s, SPLIT, o), 0);
        story_close(&s);
    }
}

STORY(a_reused_memory_is_there_from_the_first_start_to_the_last_end)
{
    uint32_t a = story_new(s, BYTES);
    story_kernel(s, a, WRITES);
    uint32_t b = story_new(s, 1050);
    story_kernel(s, b, WRITES);
    story_free(s, a);
    story_free(s, b);
    CHECK_OK(story_diagnose(s, 1 << REUSE));
    CHECK_EQ(story_find(s, REUSE, b)->other, a);
    CHECK_EQ(saving_of(s, REUSE, b), 1000); /* one memory of 1050 */
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1050);
}

STORY(what_writes_twice_saves_no_bytes)
{
    uint32_t o = story_new(s, BYTES);
    story_call(s, GML_API_SET);
    story_access(s, o, WRITES);
    story_call(s, GML_API_COPY);
    story_access(s, o, WRITES);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << DEAD));
    CHECK_EQ(saving_of(s, DEAD, o), 0);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1000);
}

/* ---- where the peak is ----------------------------------------------------------------------- */

STORY(what_exists_before_counts_before_the_first_api)
{
    uint32_t o = story_object(s, BYTES, GML_OBJECT_BEFORE);
    story_free(s, o);
    uint32_t b = story_new(s, 10);
    story_kernel(s, b, WRITES);
    CHECK_OK(story_diagnose(s, STORY_EVERY_PATTERN));
    CHECK_EQ(s->diagnosis.peaks[0].bytes, 1000);
    CHECK_EQ(peak_with(s, NULL, 0), 1000);
}

STORY(only_objects_of_marked_peaks_have_bytes_there)
{
    s->options.peak_count = 1;
    uint32_t high = story_new(s, BYTES);
    story_pause(s, 1);
    story_kernel(s, high, WRITES);
    story_free(s, high);
    uint32_t low = story_new(s, 300);
    story_pause(s, 1);
    story_kernel(s, low, WRITES);
    story_free(s, low);
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(story_find(s, EARLY, high)->peak_bytes, 1000);
    CHECK_EQ(story_find(s, EARLY, low)->peak_bytes, 0);
    s->options.peak_count = 2;
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(story_find(s, EARLY, low)->peak_bytes, 300);
}

/* Two peaks of one height: lowering one of them saves nothing. */
STORY(an_equal_peak_elsewhere_leaves_no_saving)
{
    uint32_t o = story_new(s, BYTES);
    add_bump(s, 700);
    story_kernel(s, o, WRITES);
    story_free(s, o);
    add_bump(s, 1700);
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(saving_of(s, EARLY, o), 0);
}

/* ---- together -------------------------------------------------------------------------------- */

STORY(a_finding_counts_once)
{
    uint32_t o = story_new(s, BYTES);
    story_kernel(s, o, WRITES);
    add_bump(s, 1500);
    story_kernel(s, o, READS);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << IDLE));
    CHECK_EQ(peak_with(s, NULL, 0), 2500);
    CHECK_EQ(peak_with_two(s, 0, 0), 1500);
}

STORY(both_ends_of_a_life_narrow_it)
{
    uint32_t o = story_new(s, 100);
    add_bump(s, 700);
    story_kernel(s, o, WRITES);
    story_pause(s, 1);
    add_bump(s, 700);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << EARLY | 1 << LATE));
    size_t early = number_of(s, EARLY, o), late = number_of(s, LATE, o);
    CHECK_EQ(peak_with(s, &early, 1), 800);
    CHECK_EQ(peak_with(s, &late, 1), 800);
    CHECK_EQ(peak_with_two(s, early, late), 700);
    CHECK_EQ(peak_with_two(s, late, early), 700);
}

STORY(of_slices_and_a_smaller_object_the_first_counts)
{
    uint32_t o = add_slices(s, 0);
    story_free(s, o);
    s->options.accessed_percent = 100;
    CHECK_OK(story_diagnose(s, 1 << SPLIT | 1 << OVER));
    size_t split = number_of(s, SPLIT, o), over = number_of(s, OVER, o);
    CHECK_EQ(peak_with_two(s, split, over), 300);
    CHECK_EQ(peak_with_two(s, over, split), 900);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 300);
}

STORY(slices_leave_nothing_for_idle_times)
{
    uint32_t o = add_slices(s, 0);
    story_pause(s, 2);
    story_kernel(s, o, READS);
    story_range(s, 600, 300);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << SPLIT | 1 << IDLE));
    CHECK_EQ(peak_with_two(s, number_of(s, IDLE, o), number_of(s, SPLIT, o)), 300);
    CHECK_EQ(peak_with_two(s, number_of(s, SPLIT, o), number_of(s, IDLE, o)), 300);
}

/* Three objects, one after the other, all freed at the end. */
static void
add_relay(story *s, uint32_t *objects)
{
    for (int i = 0; i < 3; i++) {
        objects[i] = story_new(s, BYTES);
    }
    for (int i = 0; i < 3; i++) {
        story_kernel(s, objects[i], WRITES);
    }
    for (int i = 0; i < 3; i++) {
        story_free(s, objects[i]);
    }
}

TEST(a_chain_of_reuse_is_one_memory)
{
    story s;
    uint32_t o[3];
    story_open(&s);
    add_relay(&s, o);
    CHECK_OK(story_diagnose(&s, 1 << REUSE));
    CHECK_EQ(saving_of(&s, REUSE, o[1]), 1000);
    CHECK_EQ(saving_of(&s, REUSE, o[2]), 1000);
    CHECK_EQ(peak_with_two(&s, 0, 1), 1000);
    CHECK_EQ(peak_with_two(&s, 1, 0), 1000);
    CHECK_EQ(s.diagnosis.fixed_peak_bytes, 1000);
    story_close(&s);
}

TEST(a_memory_is_lent_once)
{
    story s;
    uint32_t o[3];
    story_open(&s);
    add_relay(&s, o);
    CHECK_OK(story_diagnose(&s, 1 << REUSE));
    s.diagnosis.findings[number_of(&s, REUSE, o[1])].other = o[0];
    s.diagnosis.findings[number_of(&s, REUSE, o[2])].other = o[0];
    CHECK_EQ(peak_with_two(&s, 0, 1), 2000);
    story_close(&s);
}

TEST(a_memory_is_not_lent_to_what_was_there_first)
{
    story s;
    uint32_t o[3];
    story_open(&s);
    add_relay(&s, o);
    CHECK_OK(story_diagnose(&s, 1 << REUSE));
    size_t number = number_of(&s, REUSE, o[2]);
    s.diagnosis.findings[number].object = o[0];
    s.diagnosis.findings[number].other = o[2];
    CHECK_EQ(peak_with(&s, &number, 1), 3000);
    story_close(&s);
}

/* The second is away while the bump is there; the third makes their memory larger. */
STORY(a_hole_is_as_large_as_the_memory_becomes)
{
    static const uint64_t sizes[] = {BYTES, BYTES, 1050};
    uint32_t o[3];
    for (int i = 0; i < 3; i++) {
        o[i] = story_new(s, sizes[i]);
        story_kernel(s, o[i], WRITES);
        add_bump(s, i == 1 ? 1500 : 1);
        story_kernel(s, o[i], READS);
        story_free(s, o[i]);
    }
    CHECK_OK(story_diagnose(s, 1 << REUSE | 1 << IDLE));
    const size_t list[] = {number_of(s, IDLE, o[1]), number_of(s, REUSE, o[1]),
                           number_of(s, REUSE, o[2])};
    CHECK_EQ(peak_with(s, list, 3), 1500);
    const size_t turned[] = {list[2], list[1], list[0]};
    CHECK_EQ(peak_with(s, turned, 3), 1500);
}

STORY(the_holes_of_both_objects_are_holes_of_their_memory)
{
    uint32_t o[2];
    for (int i = 0; i < 2; i++) {
        o[i] = story_new(s, BYTES);
        story_kernel(s, o[i], WRITES);
        add_bump(s, 500);
        story_kernel(s, o[i], READS);
    }
    story_free(s, o[0]);
    story_free(s, o[1]);
    CHECK_OK(story_diagnose(s, 1 << REUSE | 1 << IDLE));
    const size_t list[] = {number_of(s, REUSE, o[1]), number_of(s, IDLE, o[0]),
                           number_of(s, IDLE, o[1])};
    CHECK_EQ(peak_with(s, list, 1), 1500);
    CHECK_EQ(peak_with(s, list, 2), 1500);
    CHECK_EQ(peak_with(s, list, 3), 1000);
}

/* With both lives narrowed nothing lives while the large one does; one memory for both would. */
STORY(reuse_that_would_raise_the_peak_is_left_out)
{
    uint32_t a = story_new(s, BYTES);
    story_kernel(s, a, WRITES);
    story_pause(s, 1);
    uint32_t b = story_new(s, BYTES);
    add_bump(s, 1500);
    story_kernel(s, b, WRITES);
    story_free(s, a);
    story_free(s, b);
    CHECK_OK(story_diagnose(s, 1 << EARLY | 1 << LATE | 1 << REUSE));
    CHECK_EQ(saving_of(s, REUSE, b), 1000);
    CHECK_EQ(s->diagnosis.fixed_peak_bytes, 1500);
    const size_t all[] = {number_of(s, EARLY, b), number_of(s, LATE, a), number_of(s, REUSE, b)};
    CHECK_EQ(peak_with(s, all, 2), 1500);
    CHECK_EQ(peak_with(s, all, 3), 2500);
}

STORY(lives_count_in_order_of_invocation_on_several_streams)
{
    uint32_t o = story_new(s, BYTES);
    s->stream = 1;
    story_pause(s, 3);
    s->stream = 0;
    add_bump(s, 700);
    s->stream = 1;
    story_kernel(s, o, WRITES);
    story_free(s, o);
    CHECK_OK(story_diagnose(s, 1 << EARLY));
    CHECK_EQ(saving_of(s, EARLY, o), 700);
}

/* ---- bad input ------------------------------------------------------------------------------- */

TEST(findings_that_are_not_there_are_refused)
{
    story s;
    uint32_t o[3];
    story_open(&s);
    add_relay(&s, o);
    CHECK_OK(story_diagnose(&s, 1 << REUSE));
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
    story_close(&s);
}
