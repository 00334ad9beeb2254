/* The internals of a plan, for the policy that serves it.
 *
 * Entries are the requests of the period in the order in which they come. The period is one step or
 * two.
 */
#ifndef GML_PLANNER_PLAN_H
#define GML_PLANNER_PLAN_H

#include "gmlake_plan.h"
#include "planner/method.h"

#include <stdatomic.h>

typedef struct gml_plan_entry {
    uint64_t size_bytes; /* a multiple of 512 */
    uint64_t offset;     /* in its lane; GML_NO_OFFSET: left to others */
    uint64_t start, end; /* events of the period; end may go beyond it */
    uint32_t lane;
} gml_plan_entry;

typedef struct gml_plan_lane {
    gml_stream stream; /* as watched; handles other than 0 mean nothing in another process */
    uint64_t peak_bytes, lower_bound_bytes;
    gml_method method;
} gml_plan_lane;

struct gml_plan {
    atomic_uint references;
    unsigned steps;
    uint64_t period;       /* events */
    uint64_t step_time[3]; /* the event at which each step begins; the last: period */
    size_t step_entry[3];  /* the entry at which each step begins; the last: entry_count */
    gml_plan_entry *entries;
    size_t entry_count, placed_count;
    gml_plan_lane *lanes;
    size_t lane_count;
    uint64_t fingerprint; /* gml_fingerprint over the entries of the first step */
    uint64_t time_ns;
};

/* An empty plan, references 1; NULL without host memory. */
gml_plan *gml_plan_new(void);

/* Every offset again, by the independent check, lane by lane; indices in range.
 * GML_CORRUPT with a reason. */
gml_status gml_plan_check(const gml_plan *plan, char *reason, size_t reason_bytes);

/* A fingerprint grows by one request at a time. Lanes are numbered in the order of their first
 * request. */
#define GML_FINGERPRINT_SEED UINT64_C(0x9e3779b97f4a7c15)
static inline uint64_t gml_fingerprint_add(uint64_t fingerprint, uint64_t size_bytes,
                                           uint32_t lane) {
    uint64_t mixed = (fingerprint ^ (size_bytes + lane)) * UINT64_C(0xff51afd7ed558ccd);
    return mixed ^ (mixed >> 32);
}

#endif
