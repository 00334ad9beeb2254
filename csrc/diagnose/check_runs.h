/* Sets of bytes for the independent check: runs, ascending and apart. Plain merges of lists, one
 * run for every run of an access. */
#ifndef GML_DIAGNOSE_CHECK_RUNS_H
#define GML_DIAGNOSE_CHECK_RUNS_H

#include "gmlake_diagnose.h"

typedef struct gml_run {
    uint64_t begin, end;
} gml_run;

/* More runs than this are not listed. */
enum { GML_MOST_RUNS = 1 << 24 };

/* All zero: empty. */
typedef struct gml_runs {
    gml_run *items;
    size_t count, capacity;
} gml_runs;

void gml_runs_clear(gml_runs *runs);

/* Appends a run; the list is no set until it is settled. GML_NO_HOST_MEMORY. */
gml_status gml_runs_append(gml_runs *runs, uint64_t begin, uint64_t end);

/* Appends what an access may meet, rounded outwards to whole units of unit_bytes. GML_UNSUPPORTED
 * beyond GML_MOST_RUNS. */
gml_status gml_runs_append_access(gml_runs *runs, const gml_object_trace *trace,
                                  const gml_access *access, uint64_t unit_bytes);

/* Sorts, and joins what touches. */
void gml_runs_settle(gml_runs *runs);

/* Of two sets, into an empty list. */
gml_status gml_runs_common(gml_runs *out, const gml_runs *a, const gml_runs *b);
gml_status gml_runs_without(gml_runs *out, const gml_runs *a, const gml_runs *b);

/* How many bytes a set has. */
uint64_t gml_runs_bytes(const gml_runs *runs);

#endif
