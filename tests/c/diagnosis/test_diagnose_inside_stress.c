/* The patterns within objects against their definitions, on random small objects in plain arrays.
 */
#include "diagnosis/scenario.h"

#include <string.h>

static bool is_near(double a, double b) {
    double distance = a > b ? a - b : b - a;
    return distance < 1e-6;
}

enum { MOST_UNITS = 160, MOST_APIS = 6 };

/* One object, and how often each API accesses each element, in plain arrays. */
typedef struct scene {
    scenario scenario;
    uint64_t size, element, elements;
    size_t api_count;
    bool is_filled;
    double counts[MOST_APIS][MOST_UNITS];
} scene;

/* Runs that touch are one. */
static void count_range(scene *s, size_t api, const gml_access_range *range) {
    bool is_one = range->size_bytes == range->stride_bytes;
    uint64_t size = range->size_bytes * (is_one ? range->repeat : 1);
    for (uint64_t run = 0; run < (is_one ? 1 : range->repeat); run++) {
        uint64_t begin = range->offset + run * range->stride_bytes;
        for (uint64_t e = begin / s->element; e * s->element < begin + size; e++) {
            s->counts[api][e] += (double)range->weight;
        }
    }
}

static void random_range(scene *s, size_t api, check_random *random) {
    static const uint64_t strides[] = {12, 12, 12, 24, 4, 5, 1, 7};
    gml_access_range range = {.offset = check_below(random, s->size), .repeat = 1};
    range.weight = 1 + check_below(random, 3);
    range.stride_bytes = strides[check_below(random, sizeof strides / sizeof *strides)];
    uint64_t left = s->size - range.offset;
    range.size_bytes = 1 + check_below(random, left);
    if (check_below(random, 4)) {
        uint64_t most = range.stride_bytes < left ? range.stride_bytes : left;
        range.size_bytes = 1 + check_below(random, most);
        range.repeat = 1 + check_below(random, 1 + (left - range.size_bytes) / range.stride_bytes);
    }
    scenario_add_range(&s->scenario, range);
    count_range(s, api, &range);
}

static void random_api(scene *s, size_t api, check_random *random) {
    scenario_call(&s->scenario, GML_API_KERNEL);
    uint32_t flags = 1 + (uint32_t)check_below(random, 3);
    for (uint64_t accesses = 1 + check_below(random, 2); accesses > 0; accesses--) {
        scenario_access(&s->scenario, 0, flags);
        flags = flags % 3 + 1;
        uint64_t ranges = check_below(random, 4);
        if (ranges == 0 && check_below(random, 3)) {
            ranges = 1;
        }
        for (uint64_t e = 0; ranges == 0 && e < s->elements; e++) {
            s->counts[api][e] += 1;
        }
        for (; ranges > 0; ranges--) {
            random_range(s, api, random);
        }
    }
}

static void random_scene(scene *s, check_random *random) {
    s->element = 1 + check_below(random, 9);
    s->size = 1 + check_below(random, MOST_UNITS);
    s->elements = (s->size + s->element - 1) / s->element;
    s->api_count = 1 + check_below(random, MOST_APIS);
    scenario_open(&s->scenario);
    scenario_new_of(&s->scenario, s->size, (uint32_t)s->element);
    s->is_filled = check_below(random, 4) == 0;
    if (s->is_filled) { /* what fills it all needs none of it, and is no slice's */
        scenario_call(&s->scenario, check_below(random, 2) ? GML_API_COPY : GML_API_SET);
        scenario_access(&s->scenario, 0, GML_ACCESS_WRITES);
    }
    for (size_t api = 0; api < s->api_count; api++) {
        random_api(s, api, random);
    }
    scenario_free(&s->scenario, 0);
}

static uint64_t bytes_of(const scene *s, uint64_t element) {
    uint64_t left = s->size - element * s->element;
    return left < s->element ? left : s->element;
}

/* The slice of each API: the first one that it is joined to. */
static size_t name_slices(const scene *s, size_t *slice) {
    size_t count = s->api_count;
    for (size_t api = 0; api < s->api_count; api++) {
        slice[api] = api;
    }
    for (uint64_t e = 0; e < s->elements; e++) {
        for (size_t a = 0; a < s->api_count; a++) {
            for (size_t b = a + 1; b < s->api_count; b++) {
                if (s->counts[a][e] == 0 || s->counts[b][e] == 0 || slice[a] == slice[b]) {
                    continue;
                }
                size_t old = slice[b];
                for (size_t api = 0; api < s->api_count; api++) {
                    slice[api] = slice[api] == old ? slice[a] : slice[api];
                }
                count--;
            }
        }
    }
    return count;
}

static bool is_accessed(const scene *s, uint64_t element, size_t from, size_t to) {
    for (size_t api = from; api < to; api++) {
        if (s->counts[api][element] > 0) {
            return true;
        }
    }
    return false;
}

static void check_overallocation(scene *s, bool is_sliced) {
    uint64_t unaccessed = 0, bytes = 0, gap = 0, largest = 0;
    for (uint64_t e = 0; e < s->elements; e++) {
        bool is_free = !is_accessed(s, e, 0, s->api_count);
        gap = is_free ? gap + 1 : 0;
        largest = gap > largest ? gap : largest;
        unaccessed += is_free;
        bytes += is_free ? bytes_of(s, e) : 0;
    }
    double fragmented = unaccessed ? 100.0 - 100.0 * (double)largest / (double)unaccessed : 0;
    double accessed = 100.0 * (double)(s->elements - unaccessed) / (double)s->elements;
    if (accessed >= 80 || (is_sliced && fragmented > 80)) {
        CHECK_EQ(scenario_total(&s->scenario, GML_PATTERN_OVERALLOCATION), 0);
        return;
    }
    gml_finding found = scenario_only(&s->scenario, GML_PATTERN_OVERALLOCATION);
    CHECK_EQ(found.bytes, bytes);
    CHECK(is_near(found.percent, accessed));
    CHECK(is_near(found.fragmented_percent, fragmented));
}

static uint64_t largest_slice(const scene *s, const size_t *slice) {
    uint64_t largest = 0;
    for (size_t name = 0; name < s->api_count; name++) {
        uint64_t bytes = 0;
        for (uint64_t e = 0; e < s->elements; e++) {
            bool is_in = false;
            for (size_t api = 0; api < s->api_count; api++) {
                is_in = is_in || (slice[api] == name && s->counts[api][e] > 0);
            }
            bytes += is_in ? bytes_of(s, e) : 0;
        }
        largest = bytes > largest ? bytes : largest;
    }
    return largest;
}

/* Squares of the coefficients of variation, so that no root is needed. */
static double square_of_variation(const double *values, size_t count) {
    double sum = 0, squares = 0, accessed = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
        accessed += values[i] > 0;
    }
    for (size_t i = 0; i < count && sum > 0; i++) {
        double distance = values[i] - sum / accessed;
        squares += values[i] > 0 ? distance * distance : 0;
    }
    return sum > 0 ? squares * accessed / (sum * sum) : 0;
}

static double most_variation(const scene *s, const size_t *slice, size_t slice_count) {
    double most = 0, sums[MOST_APIS] = {0};
    for (size_t api = 0; api < s->api_count; api++) {
        double square = square_of_variation(s->counts[api], s->elements);
        most = square > most ? square : most;
        for (uint64_t e = 0; e < s->elements; e++) {
            sums[slice[api]] += s->counts[api][e];
        }
    }
    double square = slice_count > 1 ? square_of_variation(sums, s->api_count) : 0;
    return square > most ? square : most;
}

static void check_scene(scene *s) {
    size_t slice[MOST_APIS] = {0};
    size_t count = s->is_filled ? 1 : name_slices(s, slice);
    CHECK_OK(scenario_diagnose(&s->scenario, SCENARIO_EVERY_PATTERN));
    check_overallocation(s, count > 1);
    if (count > 1) {
        gml_finding found = scenario_only(&s->scenario, GML_PATTERN_STRUCTURED_ACCESS);
        CHECK_EQ(found.pieces, count);
        CHECK_EQ(found.bytes, s->size - largest_slice(s, slice));
    } else {
        CHECK_EQ(scenario_total(&s->scenario, GML_PATTERN_STRUCTURED_ACCESS), 0);
    }
    double square = most_variation(s, slice, count);
    if (is_near(square, 0.04)) {
        return; /* 20 %, or hardly so */
    }
    if (square > 0.04) {
        gml_finding found = scenario_only(&s->scenario, GML_PATTERN_NON_UNIFORM_FREQUENCY);
        CHECK(is_near(found.percent * found.percent / 10000, square));
    } else {
        CHECK_EQ(scenario_total(&s->scenario, GML_PATTERN_NON_UNIFORM_FREQUENCY), 0);
    }
}

TEST(random_scenes_agree_with_the_definitions) {
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
