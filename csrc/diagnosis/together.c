/* The combined saving of fixes. */
#include "diagnosis/curve.h"
#include "diagnosis/findings.h"
#include "diagnosis/live.h"

#include <stdlib.h>

static bool is_join(const gml_finding *finding) {
    return finding->pattern == GML_PATTERN_REDUNDANT_ALLOCATION;
}

/* ---- every finding --------------------------------------------------------------------------- */

static void add_to_live(void *state, uint64_t start, uint64_t end, int64_t bytes) {
    gml_curve_tree_add(state, start, end, bytes);
}

/* Two rooms become one, where that does not raise the highest value. */
static void join_if_lower(gml_fixes *fixes, gml_curve_tree *live, const gml_finding *finding) {
    if (!is_join(finding) || !gml_fixes_may_lend(fixes, finding)) {
        return;
    }
    uint64_t before = gml_curve_tree_highest(live);
    gml_fixes_tell_join(fixes, finding, 1, add_to_live, live);
    if (gml_curve_tree_highest(live) > before) {
        gml_fixes_tell_join(fixes, finding, -1, add_to_live, live);
    } else {
        gml_fixes_lend(fixes, finding);
        gml_fixes_join(fixes, finding);
    }
}

static gml_status join_all(gml_fixes *fixes, gml_diagnosis *out) {
    gml_curve curve;
    gml_curve_tree live = {0};
    gml_status status = gml_curve_open(&curve, fixes);
    if (status == GML_OK) {
        (void)gml_curve_sum(&curve);
        status = gml_curve_tree_open(&live, curve.bytes, curve.count);
    }
    gml_curve_close(&curve);
    for (size_t i = 0; status == GML_OK && i < out->finding_count; i++) {
        join_if_lower(fixes, &live, &out->findings[i]);
    }
    if (status == GML_OK) {
        out->fixed_peak_bytes = gml_curve_tree_highest(&live);
    }
    gml_curve_tree_close(&live);
    return status;
}

gml_status gml_value_together(const gml_trace_index *index, gml_diagnosis *out) {
    gml_fixes fixes;
    gml_status status = gml_fixes_open(&fixes, index);
    for (size_t i = 0; status == GML_OK && i < out->finding_count; i++) {
        if (!is_join(&out->findings[i])) {
            status = gml_fixes_take(&fixes, &out->findings[i]);
        }
    }
    if (status == GML_OK) {
        status = join_all(&fixes, out);
    }
    gml_fixes_close(&fixes);
    return status;
}

/* ---- some findings --------------------------------------------------------------------------- */

/* A list of findings as they come from outside. */
typedef struct selection {
    const gml_diagnosis *diagnosis;
    const size_t *numbers;
    size_t count;
    uint8_t *state; /* of each finding: the enum below */
} selection;

enum { NOT_SEEN = 0, IS_SEEN, IS_LENT };

static bool is_of_trace(const gml_object_trace *trace, const gml_finding *finding) {
    size_t objects = trace->object_count;
    return finding->pattern < GML_PATTERN_COUNT && finding->object < objects &&
           (!is_join(finding) || (finding->other < objects && finding->other != finding->object));
}

static bool is_valid(const gml_object_trace *trace, const gml_diagnosis *diagnosis,
                     const size_t *findings, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (findings[i] >= diagnosis->finding_count ||
            !is_of_trace(trace, &diagnosis->findings[findings[i]])) {
            return false;
        }
    }
    return true;
}

/* Rooms are joined after all separate fixes of each are known. The order of the list decides which
 * fix excludes which. */
static gml_status take_all(gml_fixes *fixes, const selection *chosen) {
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < chosen->count; i++) {
        size_t number = chosen->numbers[i];
        const gml_finding *finding = &chosen->diagnosis->findings[number];
        if (chosen->state[number] != NOT_SEEN) {
            continue;
        }
        chosen->state[number] = IS_SEEN;
        if (!is_join(finding)) {
            status = gml_fixes_take(fixes, finding);
        } else if (gml_fixes_may_lend(fixes, finding)) {
            gml_fixes_lend(fixes, finding);
            chosen->state[number] = IS_LENT;
        }
    }
    return status;
}

static void join_lent(gml_fixes *fixes, const selection *chosen, gml_curve *curve) {
    for (size_t i = 0; i < chosen->count; i++) {
        size_t number = chosen->numbers[i];
        const gml_finding *finding = &chosen->diagnosis->findings[number];
        if (chosen->state[number] == IS_LENT) {
            chosen->state[number] = IS_SEEN;
            gml_fixes_tell_join(fixes, finding, 1, gml_curve_add, curve);
            gml_fixes_join(fixes, finding);
        }
    }
}

static gml_status peak_of(const gml_trace_index *index, const selection *chosen,
                          uint64_t *peak_bytes) {
    gml_fixes fixes;
    gml_curve curve = {0};
    gml_status status = gml_fixes_open(&fixes, index);
    if (status == GML_OK) {
        status = take_all(&fixes, chosen);
    }
    if (status == GML_OK) {
        status = gml_curve_open(&curve, &fixes);
    }
    if (status == GML_OK) {
        join_lent(&fixes, chosen, &curve);
        *peak_bytes = gml_curve_sum(&curve);
    }
    gml_curve_close(&curve);
    gml_fixes_close(&fixes);
    return status;
}

gml_status gml_diagnosis_peak_with(const gml_object_trace *trace, const gml_diagnosis *diagnosis,
                                   const size_t *findings, size_t count, uint64_t *peak_bytes) {
    if (!is_valid(trace, diagnosis, findings, count)) {
        return GML_INVALID_ARGUMENT;
    }
    selection chosen = {diagnosis, findings, count, calloc(diagnosis->finding_count + 1, 1)};
    if (!chosen.state) {
        return GML_NO_HOST_MEMORY;
    }
    gml_trace_index index;
    gml_status status = gml_index_build(&index, trace, NULL, 0);
    if (status == GML_OK) {
        status = peak_of(&index, &chosen, peak_bytes);
    }
    gml_index_clear(&index);
    free(chosen.state);
    return status;
}
