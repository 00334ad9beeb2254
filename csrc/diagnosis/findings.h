/* A growing list of findings, and the passes that fill it. */
#ifndef GML_DIAGNOSE_FINDINGS_H
#define GML_DIAGNOSE_FINDINGS_H

#include "diagnosis/index.h"

typedef struct gml_findings {
    gml_finding *items;
    size_t count, capacity;
    uint32_t wanted; /* patterns, as bits; findings of others are dropped */
} gml_findings;

static inline bool gml_findings_want(const gml_findings *findings, uint32_t pattern) {
    return findings->wanted >> pattern & 1;
}

/* Appends a copy, if it is wanted. GML_NO_HOST_MEMORY leaves the list as it was. */
gml_status gml_findings_add(gml_findings *findings, const gml_finding *finding);

/* Each pass appends its findings, with everything set except saving_bytes and peak_bytes. */

/* Early allocation, late deallocation, unused allocation, memory leak, temporary idleness. */
gml_status gml_find_timing(const gml_trace_index *index, gml_findings *out);

/* Redundant allocation: section 5.1 and figure 3 of the paper. */
gml_status gml_find_reuse(const gml_trace_index *index, gml_findings *out);

/* Dead write, by ranges. */
gml_status gml_find_dead_writes(const gml_trace_index *index, gml_findings *out);

/* Overallocation, non-uniform access frequency, structured access. */
gml_status gml_find_inside(const gml_trace_index *index, gml_findings *out);

/* The highest peaks of live bytes into out->peaks, and lives[].peaks. */
void gml_find_peaks(const gml_trace_index *index, gml_diagnosis *out);

/* saving_bytes and peak_bytes of every finding; `index` has the lives and times that `out` will
 * get. */
gml_status gml_value_findings(const gml_trace_index *index, gml_diagnosis *out);

/* out->fixed_peak_bytes, when the findings are in their final order: first fixes all except the
 * redundant allocations, then these, except those that would raise the peak. */
gml_status gml_value_together(const gml_trace_index *index, gml_diagnosis *out);

#endif
