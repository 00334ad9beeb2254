/* The internals of a plan: for building, checking and reading it, and for the policy that serves
 * it.
 *
 * Entries are the requests of the period in the order in which they come. The period is one step or
 * two.
 */
#ifndef GML_PLANNER_PLAN_H
#define GML_PLANNER_PLAN_H

#include "base/reason.h"
#include "gmlake_plan.h"
#include "planner/methods.h"

enum {
    GML_PLAN_UNIT = 512,       /* sizes and offsets are multiples of it */
    GML_PLAN_MOST_LANES = 256, /* more streams than any program has */
    GML_PLAN_MOST_STEPS = 2
};

#define GML_PLAN_MOST_BYTES (UINT64_C(1) << 62)  /* any sum of sizes */
#define GML_PLAN_MOST_SIZE (UINT64_C(1) << 48)   /* one request */
#define GML_PLAN_MOST_EVENTS (UINT64_C(1) << 56) /* of a step: so no sum of times overflows */
#define GML_PLAN_MOST_ENTRIES ((size_t)1 << 30)  /* of a step: so every index fits into 32 bits */

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

/* An empty plan; NULL without host memory. */
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

/* The requests of one step, as gml_lake_add_places() takes them, to be given to free(); NULL
 * without host memory. */
gml_placed_request *gml_plan_places(const gml_plan *plan, unsigned step, size_t *count);

/* calloc that accepts 0; its result for 0 must be freed as well. */
void *gml_plan_array(size_t count, size_t item_bytes);

#endif
