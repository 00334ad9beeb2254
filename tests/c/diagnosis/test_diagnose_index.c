/* What a trace must be, and the order of its APIs: levels, distances, and what is known to be over
 * before what. */
#include "diagnosis/index.h"
#include "diagnosis/scenario.h"

#include <stdlib.h>
#include <string.h>

enum {
    READS = GML_ACCESS_READS,
    WRITES = GML_ACCESS_WRITES,
    BOTH = GML_ACCESS_READS | GML_ACCESS_WRITES,
    TOUCHES = GML_ACCESS_TOUCHES
};

#define BYTES UINT64_C(1000)

/* ---- traces that contradict themselves ------------------------------------------------------- */

/* Two objects: `a` is written, read in part and freed, `b` is there before. */
static void open_fine(scenario *s) {
    scenario_open(s);
    uint32_t a = scenario_new(s, BYTES);
    uint32_t b = scenario_object(s, BYTES, GML_OBJECT_BEFORE | GML_OBJECT_KEPT);
    (void)scenario_kernel(s, a, WRITES);
    (void)scenario_kernel(s, a, READS);
    scenario_runs(s, 100, 100, 200, 5);
    scenario_access(s, b, WRITES);
    scenario_range(s, 999, 1);
    (void)scenario_free(s, a);
    CHECK_OK(scenario_diagnose(s, SCENARIO_EVERY_PATTERN));
}

/* The trace is refused, and the reason has these words. */
static void expect_refusal(scenario *s, const char *words) {
    memset(s->reason, 0, sizeof s->reason);
    CHECK_STATUS(scenario_diagnose(s, SCENARIO_EVERY_PATTERN), GML_INVALID_ARGUMENT);
    if (!CHECK(strstr(s->reason, words) != NULL)) {
        fprintf(stderr, "the reason is \"%s\", not \"%s\"\n", s->reason, words);
    }
    CHECK(!s->diagnosis.findings);
    CHECK_STATUS(gml_diagnose(&s->trace, SCENARIO_EVERY_PATTERN, &s->diagnosis, NULL, 0),
                 GML_INVALID_ARGUMENT);
}

/* The trace is refused where one thing in it is changed. */
#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        scenario s;                                                                                \
        open_fine(&s);                                                                             \
        change;                                                                                    \
        expect_refusal(&s, words);                                                                 \
        scenario_close(&s);                                                                        \
    } while (0)

TEST(objects_out_of_range_are_refused) {
    REFUSED(s.objects[1].size_bytes = 0, "object 1 has a size");
    REFUSED(s.objects[0].size_bytes = (UINT64_C(1) << 48) + 1, "object 0 has a size");
    REFUSED(s.objects[1].element_bytes = 0, "object 1 has elements of 0 bytes");
    REFUSED(s.objects[1].flags |= 4, "object 1 has unknown flags");
}

TEST(apis_out_of_range_are_refused) {
    REFUSED(s.apis[1].kind = GML_API_KIND_COUNT, "API 1 has an unknown kind");
    REFUSED(s.apis[1].reserved = 1, "API 1 has an unknown kind");
    REFUSED(s.apis[2].first_access = 0, "the accesses of API 2");
    REFUSED(s.apis[2].access_count = 3, "API 2 has more accesses than there are");
    REFUSED(s.apis[2].access_count = 1, "the accesses of API 3");
    REFUSED(s.trace.access_count++, "access 3 belongs to no API");
    REFUSED(s.apis[1].object = 0, "API 1 names object 0");
    REFUSED(s.apis[3].access_count = 1, "API 3, an allocation or a free, has accesses");
    REFUSED(s.apis[3].object = 2, "API 3 allocates or frees object 2");
}

TEST(lives_that_contradict_themselves_are_refused) {
    REFUSED(s.objects[0].flags = GML_OBJECT_BEFORE,
            "API 0 allocates object 0, which is said to exist before");
    REFUSED(s.apis[3].kind = GML_API_ALLOC, "API 3 allocates object 0 once more");
    REFUSED(scenario_free(&s, 0), "API 4 frees object 0 once more");
    REFUSED(scenario_kernel(&s, 0, READS), "API 4 accesses object 0 after its free");
    REFUSED(s.objects[1].flags = 0, "API 2 accesses object 1 before its allocation");
    REFUSED(scenario_free(&s, scenario_object(&s, BYTES, 0)),
            "API 4 frees object 2 before its allocation");
    REFUSED((void)scenario_object(&s, BYTES, 0), "object 2 has no allocation");
}

TEST(accesses_out_of_range_are_refused) {
    REFUSED(s.accesses[1].object = 2, "API 2 accesses object 2, which is not there");
    const uint32_t wrong[] = {0, 5, 6, 7, 8, 9};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        REFUSED(s.accesses[1].flags = wrong[i], "access 1 of API 2 has unknown flags");
    }
    REFUSED(s.accesses[1].reserved = 1, "access 1 of API 2 has unknown flags");
    REFUSED((s.accesses[2].object = 0, s.accesses[2].flags = READS),
            "API 2 has two accesses to object 0 with the same flags");
    REFUSED(s.accesses[2].range_count = 2, "access 2 of API 2 has ranges that are not there");
    REFUSED(s.accesses[2].first_range = UINT64_MAX,
            "access 2 of API 2 has ranges that are not there");
}

TEST(ranges_out_of_range_are_refused) {
    /* The range as it is fits exactly: 100 + 4 * 200 + 100. */
    const struct {
        gml_access_range range;
        const char *words;
    } wrong[] = {
        {{100, 0, 200, 5, 1}, "a repeat or a weight of 0"},
        {{100, 100, 200, 0, 1}, "a repeat or a weight of 0"},
        {{100, 100, 200, 5, 0}, "a repeat or a weight of 0"},
        {{101, 100, 200, 5, 1}, "an end outside its object"},
        {{100, 101, 200, 5, 1}, "an end outside its object"},
        {{100, 100, 201, 5, 1}, "an end outside its object"},
        {{100, 100, 200, 6, 1}, "an end outside its object"},
        {{100, 100, 99, 5, 1}, "a stride below its size"},
        {{1001, 1, 0, 1, 1}, "an end outside its object"},
        {{UINT64_MAX, 1, 0, 1, 1}, "an end outside its object"},
        {{0, UINT64_MAX, 0, 1, 1}, "an end outside its object"},
        {{0, 1, UINT64_MAX, 2, 1}, "an end outside its object"},
        {{0, 1, UINT64_MAX / 2 + 1, 3, 1}, "an end outside its object"},
        {{0, 1, 1, UINT64_MAX, 1}, "an end outside its object"},
    };
    scenario s;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        open_fine(&s);
        s.ranges[0] = wrong[i].range;
        expect_refusal(&s, wrong[i].words);
        CHECK(strstr(s.reason, "range 0 of access 1 of API 2 to object 0") != NULL);
        scenario_close(&s);
    }
    open_fine(&s);
    s.ranges[0] = (gml_access_range){0, 1000, 0, 1, 1}; /* one run needs no stride */
    CHECK_OK(scenario_diagnose(&s, SCENARIO_EVERY_PATTERN));
    scenario_close(&s);
}

TEST(missing_arrays_and_too_many_items_are_refused) {
    REFUSED(s.trace.ranges = NULL, "an array of the trace is missing");
    REFUSED(s.trace.objects = NULL, "an array of the trace is missing");
    REFUSED(s.trace.object_count = UINT32_MAX, "2^32");
    REFUSED(s.trace.access_count = (size_t)1 << 32, "2^32");
}

/* ---- against the definitions ----------------------------------------------------------------- */

enum { MOST_APIS = 256 };

typedef bool graph[MOST_APIS][MOST_APIS];
