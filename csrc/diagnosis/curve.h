/* Live bytes at each moment, with the fixes so far; computed in one pass. */
#ifndef GML_DIAGNOSE_CURVE_H
#define GML_DIAGNOSE_CURVE_H

#include "diagnosis/fix.h"

typedef struct gml_curve {
    int64_t *bytes;     /* until it is summed up: how much more than at the moment before */
    size_t count;       /* moments */
    size_t first, last; /* of those where it is highest */
} gml_curve;

/* Takes the lives of all objects and the separate fixes of each. The caller closes it in either
 * case. */
gml_status gml_curve_open(gml_curve *curve, const gml_fixes *fixes);
void gml_curve_close(gml_curve *curve);

/* A gml_stretch_sink; `state` is a curve that is not summed up. */
void gml_curve_add(void *state, uint64_t start, uint64_t end, int64_t bytes);

/* Sums up, and returns the highest value. */
uint64_t gml_curve_sum(gml_curve *curve);

#endif
