/* A walk over everything a lake holds that checks how it is told and adds it up. */
#ifndef GML_TEST_CENSUS_H
#define GML_TEST_CENSUS_H

#include "gmlake.h"

typedef struct census {
    gml_span_info span;
    bool is_open;
    uint64_t next, used_bytes;                          /* in the span walked last */
    uint64_t physical_bytes, requested_bytes, requests; /* over all */
} census;

/* Walks, and fails the test where ranges do not tile their span or do not add up. */
census census_of(gml_lake *lake);

#endif
