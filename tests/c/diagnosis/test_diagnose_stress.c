/* Random traces: every finding alone and all together pass the check, and what they save is what a
 * naive walk over moments, objects and bytes finds. */
#include "diagnosis/check.h"
#include "diagnosis/random_trace.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_OBJECTS = 64,
    MOST_USES = 64,
    MOST_MOMENTS = 64,
    SMALL_TRACES = 2000,
    MOST_REASON = 200
};

static const random_shape SMALL = {.apis = 50, .streams = 4, .size = 64, .live = 5};
static const random_shape ONE_STREAM = {.apis = 50, .streams = 1, .size = 64, .live = 5};

/* ---- the naive walk -------------------------------------------------------------------------- */

/* An API and the bytes of one object that it accesses, rounded to elements, as bits. */
typedef struct bit_use {
    uint64_t api, bits;
} bit_use;

typedef struct bit_object {
    bit_use uses[MOST_USES];
    size_t use_count;
    uint64_t alloc, free; /* moments: from before `alloc` there is nothing, nor from `free` on */
    uint64_t size;
    bool is_removed, is_split;
    bool is_away[MOST_MOMENTS];
    uint64_t split_bytes[MOST_MOMENTS];
    uint32_t host, guest; /* whose memory it shares, who shares its */
} bit_object;

typedef struct naive {
    const gml_object_trace *trace;
    bit_object objects[MOST_OBJECTS];
} naive;

static uint64_t bits_between(uint64_t begin, uint64_t end) {
    uint64_t bits = 0;
    for (uint64_t i = begin; i < end; i++) {
        bits |= UINT64_C(1) << i;
    }
    return bits;
}

static uint64_t bits_of(const gml_object_trace *trace, const gml_access *access) {
    const gml_object *object = &trace->objects[access->object];
    if (access->range_count == 0) {
        return bits_between(0, object->size_bytes);
    }
    uint64_t bits = 0, unit = object->element_bytes;
    for (uint32_t r = 0; r < access->range_count; r++) {
        const gml_access_range *range = &trace->ranges[access->first_range + r];
        for (uint64_t i = 0; i < range->repeat; i++) {
            uint64_t begin = range->offset + i * range->stride_bytes;
            uint64_t end = (begin + range->size_bytes + unit - 1) / unit * unit;
            end = end < object->size_bytes ? end : object->size_bytes;
            bits |= bits_between(begin / unit * unit, end);
        }
    }
    return bits;
}

static void note_use(bit_object *object, uint64_t api, uint64_t bits) {
    if (object->use_count > 0 && object->uses[object->use_count - 1].api == api) {
        object->uses[object->use_count - 1].bits |= bits;
    } else {
        object->uses[object->use_count++] = (bit_use){api, bits};
    }
}

static void naive_open(naive *self, const gml_object_trace *trace) {
    CHECK(trace->object_count <= MOST_OBJECTS && trace->api_count < MOST_MOMENTS);
    memset(self, 0, sizeof *self);
    self->trace = trace;
    for (size_t o = 0; o < trace->object_count; o++) {
        self->objects[o].free = trace->api_count + 1;
        self->objects[o].size = trace->objects[o].size_bytes;
        self->objects[o].host = GML_NO_OBJECT;
        self->objects[o].guest = GML_NO_OBJECT;
    }
    for (size_t a = 0; a < trace->api_count; a++) {
        const gml_api *api = &trace->apis[a];
        if (api->kind == GML_API_ALLOC) {
            self->objects[api->object].alloc = a + 1;
        } else if (api->kind == GML_API_FREE) {
            self->objects[api->object].free = a + 1;
        }
        for (uint32_t i = 0; i < api->access_count; i++) {
            const gml_access *access = &trace->accesses[api->first_access + i];
            note_use(&self->objects[access->object], a, bits_of(trace, access));
        }
    }
}

static uint64_t first_use(const bit_object *object) {
    return object->uses[0].api;
}

static uint64_t last_use(const bit_object *object) {
    return object->uses[object->use_count - 1].api;
}

static void share(naive *self, const gml_finding *finding) {
    bit_object *giver = &self->objects[finding->other], *taker = &self->objects[finding->object];
    bool is_free = giver->guest == GML_NO_OBJECT && taker->host == GML_NO_OBJECT;
    if (is_free && !giver->is_split && !taker->is_split && last_use(giver) < first_use(taker)) {
        giver->guest = finding->object;
        taker->host = finding->other;
    }
}

static void leave(bit_object *object, const gml_finding *finding) {
    for (uint64_t m = finding->from_api + 2; m <= finding->to_api; m++) {
        object->is_away[m] = true;
    }
}

static uint64_t count_bits(uint64_t bits) {
    uint64_t count = 0;
    for (; bits; bits &= bits - 1) {
        count++;
    }
    return count;
}

/* All bits that are joined with a use's by uses that have bits in common. */
static uint64_t slice_of(const bit_object *object, size_t use) {
    uint64_t bits = object->uses[use].bits, before = 0;
    while (bits != before) {
        before = bits;
        for (size_t i = 0; i < object->use_count; i++) {
            bits |= object->uses[i].bits & bits ? object->uses[i].bits : 0;
        }
    }
    return bits;
}

/* What the slices have at each moment. */
static void split(naive *self, uint32_t number) {
    bit_object *object = &self->objects[number];
    uint64_t seen = 0;
    object->is_split = true;
    for (size_t i = 0; i < object->use_count; i++) {
        uint64_t slice = slice_of(object, i), last = 0;
        for (size_t k = i; k < object->use_count; k++) {
            last = object->uses[k].bits & slice ? object->uses[k].api : last;
        }
        uint64_t start = object->uses[i].api + 1;
        for (uint64_t m = start; !(slice & seen) && m < last + 2; m++) {
            object->split_bytes[m] += count_bits(slice);
        }
        seen |= slice;
    }
}

static void naive_fix(naive *self, const gml_finding *finding) {
    bit_object *object = &self->objects[finding->object];
    bool is_shared = object->guest != GML_NO_OBJECT || object->host != GML_NO_OBJECT;
    bool is_shrunk = object->size < self->trace->objects[finding->object].size_bytes;
    switch (finding->pattern) {
    case GML_PATTERN_EARLY_ALLOCATION:
        object->alloc = first_use(object) + 1;
        break;
    case GML_PATTERN_LATE_DEALLOCATION:
    case GML_PATTERN_MEMORY_LEAK:
        object->free = object->use_count ? last_use(object) + 2
                       : object->alloc   ? object->alloc + 1
                                         : 0;
        break;
    case GML_PATTERN_REDUNDANT_ALLOCATION:
        share(self, finding);
        break;
    case GML_PATTERN_UNUSED_ALLOCATION:
        object->is_removed = true;
        break;
    case GML_PATTERN_TEMPORARY_IDLENESS:
        leave(object, finding);
        break;
    case GML_PATTERN_OVERALLOCATION:
        object->size -= object->is_split ? 0 : finding->bytes;
        break;
    case GML_PATTERN_STRUCTURED_ACCESS:
        if (!is_shared && !is_shrunk) {
            split(self, finding->object);
        }
        break;
    default:
        break;
    }
}

/* Of the memory that the object and those after it share. */
static uint64_t shared_bytes_at(const naive *self, uint32_t number, uint64_t moment) {
    uint64_t start = self->objects[number].alloc, end = 0, size = 0;
    bool is_away = false;
    for (uint32_t o = number; o != GML_NO_OBJECT; o = self->objects[o].guest) {
        const bit_object *object = &self->objects[o];
        end = object->free > end ? object->free : end;
        size = object->size > size ? object->size : size;
        is_away |= object->is_away[moment];
    }
    return moment >= start && moment < end && !is_away ? size : 0;
}

static uint64_t naive_peak(const naive *self) {
    uint64_t peak = 0;
    for (uint64_t m = 0; m <= self->trace->api_count; m++) {
        uint64_t sum = 0;
        for (uint32_t o = 0; o < self->trace->object_count; o++) {
            const bit_object *object = &self->objects[o];
            if (object->is_split) {
                sum += object->split_bytes[m];
            } else if (!object->is_removed && object->host == GML_NO_OBJECT) {
                sum += shared_bytes_at(self, o, m);
            }
        }
        peak = sum > peak ? sum : peak;
    }
    return peak;
}

/* ---- one trace ------------------------------------------------------------------------------- */

typedef struct stress {
    scenario scenario;
    naive walk;
    size_t *list;
    size_t count;
    uint64_t seed;
} stress;

static stress it;

static bool stress_open(uint64_t seed, const random_shape *shape) {
    check_random random = {seed};
    it.seed = seed;
    scenario_open(&it.scenario);
    random_trace(&it.scenario, shape, &random);
    if (!CHECK_OK(scenario_diagnose(&it.scenario, SCENARIO_EVERY_PATTERN))) {
        return false;
    }
    it.count = it.scenario.diagnosis.finding_count;
    it.list = calloc(it.count + 1, sizeof *it.list);
    for (size_t i = 0; it.list && i < it.count; i++) {
        it.list[i] = i;
    }
    return CHECK(it.list != NULL);
}

static void stress_close(void) {
    scenario_close(&it.scenario);
    free(it.list);
    it.list = NULL;
}

static bool passes(const size_t *list, size_t count) {
    char reason[MOST_REASON] = "";
    gml_status status = gml_diagnosis_check(&it.scenario.trace, &it.scenario.diagnosis, list, count,
                                            reason, sizeof reason);
    if (status != GML_OK) {
        fprintf(stderr, "seed %" PRIu64 ", %zu findings from %zu: %s\n", it.seed, count,
                count ? list[0] : 0, reason);
    }
    return CHECK_OK(status);
}

static uint64_t peak_with(const size_t *list, size_t count) {
    uint64_t peak = UINT64_MAX;
    CHECK_OK(
        gml_diagnosis_peak_with(&it.scenario.trace, &it.scenario.diagnosis, list, count, &peak));
    return peak;
}

static void check_against_naive(const size_t *list, size_t count) {
    naive_open(&it.walk, &it.scenario.trace);
    for (size_t i = 0; i < count; i++) {
        naive_fix(&it.walk, &it.scenario.diagnosis.findings[list[i]]);
    }
    if (!CHECK_EQ(peak_with(list, count), naive_peak(&it.walk))) {
        fprintf(stderr, "seed %" PRIu64 ", %zu findings from %zu of pattern %u\n", it.seed, count,
                count ? list[0] : 0,
                count ? it.scenario.diagnosis.findings[list[0]].pattern : GML_PATTERN_COUNT);
    }
}

static void check_each(uint64_t peak) {
    for (size_t i = 0; i < it.count; i++) {
        const gml_finding *finding = &it.scenario.diagnosis.findings[i];
        passes(&it.list[i], 1);
        uint64_t fixed = peak_with(&it.list[i], 1);
        CHECK_EQ(finding->saving_bytes, fixed < peak ? peak - fixed : 0);
        CHECK(i == 0 ||
              it.scenario.diagnosis.findings[i - 1].saving_bytes >= finding->saving_bytes);
    }
}

/* Reused memory comes last, and only where it does not raise the peak. */
static void check_fixed_peak(uint64_t peak) {
    size_t count = 0;
    const gml_diagnosis *found = &it.scenario.diagnosis;
    for (size_t i = 0; i < it.count; i++) {
        it.list[count] = i;
        count += found->findings[i].pattern != GML_PATTERN_REDUNDANT_ALLOCATION;
    }
    uint64_t fixed = peak_with(it.list, count);
    for (size_t i = 0; i < it.count; i++) {
        if (found->findings[i].pattern == GML_PATTERN_REDUNDANT_ALLOCATION) {
            it.list[count] = i;
            uint64_t with = peak_with(it.list, count + 1);
            count += with <= fixed;
            fixed = with <= fixed ? with : fixed;
        }
    }
    CHECK_EQ(found->fixed_peak_bytes, fixed);
    CHECK(fixed <= peak);
    passes(it.list, count);
}

static void shuffle(check_random *random) {
    for (size_t i = it.count; i > 1; i--) {
        size_t other = (size_t)check_below(random, i), kept = it.list[i - 1];
        it.list[i - 1] = it.list[other];
        it.list[other] = kept;
    }
}

static void check_small(uint64_t seed, const random_shape *shape) {
    if (stress_open(seed, shape)) {
        uint64_t peak = peak_with(NULL, 0);
        CHECK_EQ(it.scenario.diagnosis.peak_count ? it.scenario.diagnosis.peaks[0].bytes : 0, peak);
        passes(it.list, it.count);
        check_each(peak);
        check_against_naive(it.list, 0);
        check_against_naive(it.list, it.count);
        check_random random = {seed};
        shuffle(&random);
        check_against_naive(it.list, it.count);
        check_against_naive(it.list, it.count / 2);
        for (size_t i = 0; i < it.count; i += 8) {
            check_against_naive(&it.list[i], 1);
        }
        check_fixed_peak(peak);
    }
    stress_close();
}

/* ---- the tests ------------------------------------------------------------------------------- */

TEST(small_traces_on_several_streams) {
    for (uint64_t seed = 1; seed <= SMALL_TRACES / 2 && check_failures() == 0; seed++) {
        check_small(seed, &SMALL);
    }
}

TEST(small_traces_on_one_stream) {
    for (uint64_t seed = 1; seed <= SMALL_TRACES / 2 && check_failures() == 0; seed++) {
        check_small(seed, &ONE_STREAM);
    }
}

/* Every pattern is met, and every one saves something somewhere. */
TEST(the_traces_have_every_pattern) {
    size_t counts[GML_PATTERN_COUNT] = {0}, savers[GML_PATTERN_COUNT] = {0};
    for (uint64_t seed = 1; seed <= SMALL_TRACES / 4; seed++) {
        bool is_open = stress_open(seed, &SMALL);
        for (size_t i = 0; is_open && i < it.count; i++) {
            counts[it.scenario.diagnosis.findings[i].pattern]++;
            savers[it.scenario.diagnosis.findings[i].pattern] +=
                it.scenario.diagnosis.findings[i].saving_bytes > 0;
        }
        stress_close();
    }
    for (int p = 0; p < GML_PATTERN_COUNT; p++) {
        bool moves_bytes = p != GML_PATTERN_DEAD_WRITE && p != GML_PATTERN_NON_UNIFORM_FREQUENCY;
        CHECK(counts[p] > 20);
        CHECK((savers[p] > 0) == moves_bytes);
        if (getenv("STRESS_COUNTS")) {
            fprintf(stderr, "%s: %zu, %zu save\n", gml_pattern_name((gml_pattern)p), counts[p],
                    savers[p]);
        }
    }
}
