/* How unevenly something is spread: the coefficient of variation. */
#ifndef GML_DIAGNOSE_FREQUENCY_H
#define GML_DIAGNOSE_FREQUENCY_H

#include "diagnosis/spans.h"

/* All zero: no values. */
typedef struct gml_spread {
    double count, mean, squares; /* squares: of the distances from the mean, summed up */
} gml_spread;

/* Adds the same value `count` times. pre: count > 0. */
void gml_spread_add(gml_spread *spread, double value, double count);

/* The standard deviation in percent of the mean; 0 if there is no value. */
double gml_spread_percent(const gml_spread *spread);

/* How often the units of a sheet that has been laid out are accessed; those that are not at all do
 * not count. Complete unless the sheet is too_large then. */
gml_spread gml_frequency_of(gml_sheet *sheet);

#endif
