/* Sets of bytes for the independent check: runs, ascending and apart. Plain merges of lists, one
 * run for every run of an access. */
#ifndef GML_DIAGNOSE_CHECK_BYTE_SET_H
#define GML_DIAGNOSE_CHECK_BYTE_SET_H

#include "gmlake_diagnose.h"

typedef struct gml_byte_range {
    uint64_t begin, end;
} gml_byte_range;

/* More runs than this are not listed. */
enum { GML_MOST_RUNS = 1 << 24 };

/* All zero: empty. */
typedef struct gml_byte_set {
    gml_byte_range *items;
    size_t count, capacity;
} gml_byte_set;

void gml_byte_set_clear(gml_byte_set *runs);

/* Appends a run; the list is not a set until normalized. GML_NO_HOST_MEMORY. */
gml_status gml_byte_set_append(gml_byte_set *runs, uint64_t begin, uint64_t end);

/* Appends what an access may meet, rounded outwards to whole units of unit_bytes. GML_UNSUPPORTED
 * beyond GML_MOST_RUNS. */
gml_status gml_byte_set_append_access(gml_byte_set *runs, const gml_object_trace *trace,
                                      const gml_access *access, uint64_t unit_bytes);

/* Sorts, and joins what touches. */
void gml_byte_set_normalize(gml_byte_set *runs);

/* Of two sets, into an empty list. */
gml_status gml_byte_set_common(gml_byte_set *out, const gml_byte_set *a, const gml_byte_set *b);
gml_status gml_byte_set_without(gml_byte_set *out, const gml_byte_set *a, const gml_byte_set *b);

/* How many bytes a set has. */
uint64_t gml_byte_set_bytes(const gml_byte_set *runs);

#endif
