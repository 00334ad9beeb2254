/* Shared by building, checking and reading plans. */
#ifndef GML_PLANNER_PLAN_PARTS_H
#define GML_PLANNER_PLAN_PARTS_H

#include "base/reason.h"
#include "planner/plan.h"

enum {
    GML_PLAN_UNIT = 512,       /* sizes and offsets are multiples of it */
    GML_PLAN_MOST_LANES = 256, /* more streams than any program has */
    GML_PLAN_MOST_STEPS = 2
};

#define GML_PLAN_MOST_BYTES (UINT64_C(1) << 62)  /* any sum of sizes */
#define GML_PLAN_MOST_SIZE (UINT64_C(1) << 48)   /* one request */
#define GML_PLAN_MOST_EVENTS (UINT64_C(1) << 56) /* of a step: so no sum of times overflows */
#define GML_PLAN_MOST_ENTRIES ((size_t)1 << 30)  /* of a step: so every index fits into 32 bits */

/* The entries that have an offset, lane by lane: lane i has lifetimes first[i] to first[i + 1] - 1.
 */
typedef struct gml_lane_problems {
    gml_lifetime *lifetimes;
    uint64_t *offsets;
    uint32_t *entries; /* index in the plan */
    size_t *first;
} gml_lane_problems;

gml_status gml_lane_problems_open(gml_lane_problems *problems, const gml_plan *plan);
void gml_lane_problems_close(gml_lane_problems *problems);

/* One lane as a problem. */
gml_problem gml_lane_problem(const gml_lane_problems *problems, const gml_plan *plan, size_t lane);

/* The fingerprint of the entries of the first step. */
uint64_t gml_plan_fingerprint(const gml_plan *plan);

/* calloc that accepts 0; its result for 0 must be freed as well. */
void *gml_plan_array(size_t count, size_t item_bytes);

#endif
