/* Every pass over one trace, and the order of the findings. */
#include "base/clock.h"
#include "base/reason.h"
#include "base/sort.h"
#include "diagnosis/findings.h"
#include "gmlake_diagnose.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t ALL_PATTERNS = (UINT32_C(1) << GML_PATTERN_COUNT) - 1;

const char *gml_pattern_name(gml_pattern pattern) {
#define NAME(pattern, name) name,
    static const char *const names[] = {GML_PATTERNS(NAME)};
#undef NAME
    return (unsigned)pattern < GML_PATTERN_COUNT ? names[pattern] : "unknown pattern";
}

/* ---- the order of findings ------------------------------------------------------------------- */

typedef enum sort_key { KEY_API, KEY_OBJECT, KEY_LOW, KEY_HIGH, KEY_SAVING, KEY_COUNT } sort_key;

/* bytes * distance, as two words: at most 2^48 times 2^32. */
static uint64_t severity_high(const gml_finding *finding) {
    const unsigned half = 32;
    uint64_t low = (finding->bytes & UINT32_MAX) * finding->distance;
    return ((finding->bytes >> half) * finding->distance + (low >> half)) >> half;
}

/* Smaller comes first. */
static uint64_t key_of(const gml_finding *finding, sort_key key) {
    switch (key) {
    case KEY_API:
        return finding->from_api;
    case KEY_OBJECT:
        return (uint64_t)finding->object * GML_PATTERN_COUNT + finding->pattern;
    case KEY_LOW:
        return ~(finding->bytes * finding->distance);
    case KEY_HIGH:
        return ~severity_high(finding);
    default:
        return ~finding->saving_bytes;
    }
}

/* Of the findings as they are, by what `list` says; `keys` has room for one each. */
static void sort_by(const gml_diagnosis *diagnosis, sort_key key, gml_keyed *list, uint64_t *keys) {
    size_t count = diagnosis->finding_count;
    uint64_t differing = 0;
    for (size_t i = 0; i < count; i++) { /* once from front to back: findings are large */
        keys[i] = key_of(&diagnosis->findings[i], key);
        differing |= keys[i] ^ keys[0];
    }
    if (!differing) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        list[i].key = keys[list[i].index];
    }
    gml_sort_keyed(list, list + count, count);
}

/* The sort is stable: the least key comes first. */
static gml_status sort_findings(gml_diagnosis *diagnosis) {
    size_t count = diagnosis->finding_count;
    gml_keyed *list = malloc((2 * count + 1) * sizeof *list);
    uint64_t *keys = malloc((count + 1) * sizeof *keys);
    gml_finding *sorted = malloc((count + 1) * sizeof *sorted);
    gml_status status = list && keys && sorted ? GML_OK : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        for (size_t i = 0; i < count; i++) {
            list[i].index = i;
        }
        for (int key = 0; key < KEY_COUNT; key++) {
            sort_by(diagnosis, (sort_key)key, list, keys);
        }
        for (size_t i = 0; i < count; i++) {
            sorted[i] = diagnosis->findings[list[i].index];
        }
        gml_finding *unsorted = diagnosis->findings;
        diagnosis->findings = sorted;
        sorted = unsorted;
    }
    free(list);
    free(keys);
    free(sorted);
    return status;
}

/* ---- the diagnosis --------------------------------------------------------------------------- */

typedef gml_status (*find_pass)(const gml_trace_index *, gml_findings *);

static gml_status find_all(const gml_trace_index *index, gml_findings *findings) {
    static const find_pass passes[] = {gml_find_timing, gml_find_reuse, gml_find_dead_writes,
                                       gml_find_inside};
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < sizeof passes / sizeof *passes; i++) {
        status = passes[i](index, findings);
    }
    return status;
}

/* The findings move to the diagnosis, in their order. */
static gml_status fill(const gml_trace_index *index, uint32_t patterns, gml_diagnosis *out) {
    gml_findings findings = {.wanted = patterns};
    gml_status status = find_all(index, &findings);
    out->findings = findings.items;
    out->finding_count = findings.count;
    gml_find_peaks(index, out);
    if (status == GML_OK) {
        status = gml_value_findings(index, out);
    }
    if (status == GML_OK) {
        status = sort_findings(out);
    }
    return status == GML_OK ? gml_value_together(index, out) : status;
}

gml_status gml_diagnose(const gml_object_trace *trace, uint32_t patterns, gml_diagnosis *out,
                        char *reason, size_t reason_bytes) {
    uint64_t begin_ns = gml_clock_ns();
    if (patterns & ~ALL_PATTERNS) {
        return gml_refuse(GML_INVALID_ARGUMENT, reason, reason_bytes,
                          "patterns has bits of no pattern");
    }
    gml_diagnosis found = {0};
    gml_trace_index index;
    gml_status status = gml_index_build(&index, trace, reason, reason_bytes);
    if (status == GML_OK) {
        status = fill(&index, patterns ? patterns : ALL_PATTERNS, &found);
    }
    if (status == GML_OK) {
        found.lives = index.lives;
        found.times = index.times;
        index.lives = NULL;
        index.times = NULL;
        found.time_ns = gml_clock_ns() - begin_ns;
        *out = found;
    } else {
        gml_diagnosis_clear(&found);
        if (status == GML_NO_HOST_MEMORY) {
            (void)gml_refuse(status, reason, reason_bytes, "no memory for the diagnosis");
        }
    }
    gml_index_clear(&index);
    return status;
}

void gml_diagnosis_clear(gml_diagnosis *diagnosis) {
    free(diagnosis->findings);
    free(diagnosis->lives);
    free(diagnosis->times);
    memset(diagnosis, 0, sizeof *diagnosis);
}
