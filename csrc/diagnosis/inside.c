/* Overallocation, non-uniform access frequency, structured access. */
#include "diagnosis/findings.h"
#include "diagnosis/frequency.h"
#include "diagnosis/slices.h"

/* An object with fewer elements accessed is overallocated; above so much fragmentation, unaccessed
 * bytes are scattered; a larger coefficient of variation is not uniform. */
static const double ACCESSED_PERCENT = 80, FRAGMENTED_PERCENT = 80, FREQUENCY_PERCENT = 20;

typedef struct inside {
    const gml_trace_index *index;
    gml_findings *out;
    gml_slices slices;
    gml_sheet sheet; /* of one API */

    /* of the object at hand */
    uint32_t object;
    double most_percent; /* the most uneven API's coefficient of variation */
    uint64_t most_api;
} inside;

static gml_finding finding_of(const inside *pass, gml_pattern pattern) {
    return (gml_finding){
        .pattern = (uint32_t)pattern,
        .object = pass->object,
        .other = GML_NO_OBJECT,
        .from_api = GML_NO_API,
        .to_api = GML_NO_API,
    };
}

/* From the object's first access to its last. */
static void set_accesses(const inside *pass, gml_finding *finding) {
    const gml_object_life *life = &pass->index->lives[pass->object];
    finding->from_api = life->first;
    finding->to_api = life->last;
    finding->distance = gml_index_distance(pass->index, life->first, life->last);
}

static uint64_t size_of(const inside *pass) {
    return pass->index->trace->objects[pass->object].size_bytes;
}

/* ---- overallocation -------------------------------------------------------------------------- */

/* Bytes scattered over slices are saved as well when each slice gets its own memory. */
static bool is_left_to_slices(const inside *pass, gml_guidance guidance) {
    return guidance == GML_GUIDANCE_HARD && pass->slices.count > 1 &&
           gml_findings_want(pass->out, GML_PATTERN_STRUCTURED_ACCESS) &&
           !(pass->index->trace->objects[pass->object].flags & GML_OBJECT_KEPT);
}

static gml_status find_overallocation(inside *pass) {
    const gml_slices *slices = &pass->slices;
    double elements = (double)slices->element_count;
    double accessed = (double)slices->accessed_elements;
    gml_finding finding = finding_of(pass, GML_PATTERN_OVERALLOCATION);
    finding.percent = 100.0 * accessed / elements;
    if (slices->too_large || finding.percent >= ACCESSED_PERCENT ||
        slices->accessed_elements == slices->element_count) {
        return GML_OK;
    }
    finding.fragmented_percent =
        100.0 - 100.0 * (double)slices->largest_gap / (elements - accessed);
    finding.guidance =
        finding.fragmented_percent > FRAGMENTED_PERCENT ? GML_GUIDANCE_HARD : GML_GUIDANCE_EASY;
    finding.bytes = slices->unaccessed_bytes;
    return is_left_to_slices(pass, (gml_guidance)finding.guidance)
               ? GML_OK
               : gml_findings_add(pass->out, &finding);
}

/* ---- structured access ----------------------------------------------------------------------- */

static gml_status find_structured_access(inside *pass) {
    const gml_slices *slices = &pass->slices;
    uint64_t largest = 0;
    for (size_t i = 0; i < slices->count; i++) {
        largest = slices->items[i].bytes > largest ? slices->items[i].bytes : largest;
    }
    gml_finding finding = finding_of(pass, GML_PATTERN_STRUCTURED_ACCESS);
    set_accesses(pass, &finding);
    finding.bytes = size_of(pass) - largest;
    finding.percent = 100.0 * (double)largest / (double)size_of(pass);
    finding.pieces = slices->count;
    return gml_findings_add(pass->out, &finding);
}

/* ---- non-uniform access frequency ------------------------------------------------------------ */

static double spread_over_slices(const gml_slices *slices) {
    gml_spread spread = {0};
    for (size_t i = 0; i < slices->count; i++) {
        gml_spread_add(&spread, slices->items[i].element_accesses, 1);
    }
    return gml_spread_percent(&spread);
}

/* The uses of one API, from `begin` to `end`. */
static gml_status measure_api(inside *pass, size_t begin, size_t end) {
    const gml_trace_index *index = pass->index;
    const gml_object *what = &index->trace->objects[pass->object];
    gml_sheet *sheet = &pass->sheet;
    gml_sheet_start(sheet, what->size_bytes, what->element_bytes);
    for (size_t i = begin; i < end; i++) {
        const gml_access *access = &index->trace->accesses[index->uses[i]];
        if (access->flags & GML_ACCESS_TOUCHES) {
            return GML_OK; /* how often is not known */
        }
        gml_status status = gml_sheet_add_access(sheet, index->trace, access, 0);
        if (status != GML_OK) {
            return status;
        }
    }
    if (sheet->span_count < 2) { /* runs of one range do not overlap */
        return GML_OK;
    }
    gml_status status = gml_sheet_lay_out(sheet);
    if (status != GML_OK) {
        return status;
    }
    gml_spread spread = gml_frequency_of(sheet);
    double percent = gml_spread_percent(&spread);
    if (!sheet->too_large && percent > pass->most_percent) {
        pass->most_percent = percent;
        pass->most_api = index->api_of[index->uses[begin]];
    }
    return GML_OK;
}

static gml_status measure_apis(inside *pass) {
    const gml_trace_index *index = pass->index;
    size_t end = index->first_use[pass->object + 1];
    gml_status status = GML_OK;
    pass->most_percent = 0;
    for (size_t begin = index->first_use[pass->object]; begin < end && status == GML_OK;) {
        size_t next = begin + 1;
        bool is_even =
            gml_access_is_whole(index->trace, &index->trace->accesses[index->uses[begin]]);
        while (next < end &&
               index->api_of[index->uses[next]] == index->api_of[index->uses[begin]]) {
            is_even = is_even &&
                      gml_access_is_whole(index->trace, &index->trace->accesses[index->uses[next]]);
            next++;
        }
        if (!is_even) {
            status = measure_api(pass, begin, next);
        }
        begin = next;
    }
    return status;
}

static gml_status find_frequency(inside *pass, bool has_slices) {
    gml_status status = measure_apis(pass);
    if (status != GML_OK) {
        return status;
    }
    gml_finding finding = finding_of(pass, GML_PATTERN_NON_UNIFORM_FREQUENCY);
    finding.bytes = size_of(pass);
    finding.percent = pass->most_percent;
    finding.from_api = finding.to_api = pass->most_api;
    if (has_slices && !pass->slices.has_touches) {
        double percent = spread_over_slices(&pass->slices);
        if (percent > finding.percent) {
            finding.percent = percent;
            set_accesses(pass, &finding);
        }
    }
    return finding.percent > FREQUENCY_PERCENT ? gml_findings_add(pass->out, &finding) : GML_OK;
}

/* ---- every object ---------------------------------------------------------------------------- */

/* How many of the object's accesses only fill it. */
static size_t count_fills(const inside *pass) {
    const gml_trace_index *index = pass->index;
    size_t fills = 0;
    for (size_t i = index->first_use[pass->object]; i < index->first_use[pass->object + 1]; i++) {
        fills += gml_index_fills(index, index->uses[i]);
    }
    return fills;
}

static bool has_whole_access(const inside *pass, bool skips_fills) {
    const gml_trace_index *index = pass->index;
    for (size_t i = index->first_use[pass->object]; i < index->first_use[pass->object + 1]; i++) {
        uint32_t use = index->uses[i];
        if (!(skips_fills && gml_index_fills(index, use)) &&
            gml_access_is_whole(index->trace, &index->trace->accesses[use])) {
            return true;
        }
    }
    return false;
}

/* Accesses before the trace, and later ones to a kept object, are unknown: elements may have been
 * accessed, slices may be needed. What only fills the object says what is there, not what is
 * needed, so that it is no reason to allocate it; but it is no slice's. */
static gml_status find_in_slices(inside *pass, bool *has_slices) {
    uint32_t flags = pass->index->trace->objects[pass->object].flags;
    size_t fills = count_fills(pass);
    size_t uses = pass->index->first_use[pass->object + 1] - pass->index->first_use[pass->object];
    bool skips_fills = fills && fills < uses;
    *has_slices = false;
    if ((flags & GML_OBJECT_BEFORE) || has_whole_access(pass, skips_fills)) {
        return GML_OK;
    }
    gml_status status = gml_slices_find(&pass->slices, pass->index, pass->object, skips_fills);
    pass->slices.count = skips_fills ? 0 : pass->slices.count;
    status = status == GML_OK ? find_overallocation(pass) : status;
    if (status != GML_OK || (flags & GML_OBJECT_KEPT) ||
        (skips_fills && has_whole_access(pass, false))) {
        return status;
    }
    if (skips_fills) {
        status = gml_slices_find(&pass->slices, pass->index, pass->object, false);
    }
    *has_slices = status == GML_OK && pass->slices.count > 1;
    return *has_slices ? find_structured_access(pass) : status;
}

static gml_status find_in_object(inside *pass) {
    bool has_slices = false;
    gml_status status = find_in_slices(pass, &has_slices);
    return status == GML_OK ? find_frequency(pass, has_slices) : status;
}

gml_status gml_find_inside(const gml_trace_index *index, gml_findings *out) {
    inside pass = {.index = index, .out = out};
    gml_status status = GML_OK;
    for (uint32_t o = 0; o < index->trace->object_count && status == GML_OK; o++) {
        pass.object = o;
        if (index->first_use[o] < index->first_use[o + 1]) {
            status = find_in_object(&pass);
        }
    }
    gml_slices_clear(&pass.slices);
    gml_sheet_clear(&pass.sheet);
    return status;
}
