/* The saving of each fix alone: the live bytes of the whole trace, with the resulting life and
 * size.
 *
 * A finding costs a few changes to the tree of live bytes, one look at its highest value, and the
 * same changes back. A fix that does not lower the first or the last of the highest moments saves
 * nothing, which needs no tree. */
#include "diagnosis/curve.h"
#include "diagnosis/findings.h"
#include "diagnosis/live.h"

typedef struct valuation {
    gml_fixes fixes;
    gml_curve_tree live;
    uint64_t highest;
    size_t first, last; /* moments where live bytes are highest */
} valuation;

/* The change of a fix at these two moments. */
typedef struct glance {
    size_t first, last;
    int64_t first_bytes, last_bytes;
} glance;

static void add_to_glance(void *state, uint64_t start, uint64_t end, int64_t bytes) {
    glance *seen = state;
    seen->first_bytes += seen->first >= start && seen->first < end ? bytes : 0;
    seen->last_bytes += seen->last >= start && seen->last < end ? bytes : 0;
}

static void add_to_live(void *state, uint64_t start, uint64_t end, int64_t bytes) {
    gml_curve_tree_add(state, start, end, bytes);
}

static void tell(valuation *value, const gml_finding *finding, int64_t sign, gml_stretch_sink sink,
                 void *state) {
    if (finding->pattern == GML_PATTERN_REDUNDANT_ALLOCATION) {
        gml_fixes_tell_join(&value->fixes, finding, sign, sink, state);
    } else {
        gml_fixes_tell_change(&value->fixes, finding->object, sign, sink, state);
    }
}

/* pre: the finding is taken, or may be joined. */
static uint64_t saving_of(valuation *value, const gml_finding *finding) {
    glance seen = {.first = value->first, .last = value->last};
    tell(value, finding, 1, add_to_glance, &seen);
    if (seen.first_bytes >= 0 || seen.last_bytes >= 0) {
        return 0;
    }
    tell(value, finding, 1, add_to_live, &value->live);
    uint64_t fixed = gml_curve_tree_highest(&value->live);
    tell(value, finding, -1, add_to_live, &value->live);
    return fixed < value->highest ? value->highest - fixed : 0;
}

static gml_status value_finding(valuation *value, gml_finding *finding) {
    finding->saving_bytes = 0;
    if (finding->pattern == GML_PATTERN_REDUNDANT_ALLOCATION) {
        if (gml_fixes_may_lend(&value->fixes, finding)) {
            finding->saving_bytes = saving_of(value, finding);
        }
        return GML_OK;
    }
    gml_status status = gml_fixes_take(&value->fixes, finding);
    if (status == GML_OK) {
        finding->saving_bytes = saving_of(value, finding);
        gml_fixes_drop(&value->fixes, finding->object);
    }
    return status;
}

static gml_status open_valuation(valuation *value, const gml_trace_index *index) {
    gml_curve unfixed = {0};
    *value = (valuation){0};
    gml_status status = gml_fixes_open(&value->fixes, index);
    if (status == GML_OK) {
        status = gml_curve_open(&unfixed, &value->fixes);
    }
    if (status == GML_OK) {
        value->highest = gml_curve_sum(&unfixed);
        value->first = unfixed.first;
        value->last = unfixed.last;
        status = gml_curve_tree_open(&value->live, unfixed.bytes, unfixed.count);
    }
    gml_curve_close(&unfixed);
    return status;
}

static void close_valuation(valuation *value) {
    gml_fixes_close(&value->fixes);
    gml_curve_tree_close(&value->live);
}

gml_status gml_value_findings(const gml_trace_index *index, gml_diagnosis *out) {
    valuation value;
    gml_status status = open_valuation(&value, index);
    for (size_t i = 0; status == GML_OK && i < out->finding_count; i++) {
        gml_finding *finding = &out->findings[i];
        bool is_marked = index->lives[finding->object].peaks != 0;
        finding->peak_bytes = is_marked ? index->trace->objects[finding->object].size_bytes : 0;
        status = value_finding(&value, finding);
    }
    close_valuation(&value);
    return status;
}
