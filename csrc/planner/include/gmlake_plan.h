/* gmlake's planner: lifetimes in, offsets out; and plans of training steps.
 *
 * Placing buffers of known sizes and lifetimes so that the highest address is lowest is called
 * dynamic storage allocation. But for the last function, nothing here needs
 * a device, a lake or Python.
 *
 *   lifetime   one request: its size, and the time from its allocation to its free
 *   problem    lifetimes to be placed together, once or with a period
 *   plan       where each request of a step goes, in the order in which they come
 *   lane       the addresses of one stream in a plan; lanes share no memory
 *
 * Times are counts of events, not seconds. Sizes and offsets are in bytes. The same input gives the
 * same output.
 */
#ifndef GMLAKE_PLAN_H
#define GMLAKE_PLAN_H

#include "gmlake_steps.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- placing lifetimes ----------------------------------------------------------------------- */

/* 48 bytes. */
typedef struct gml_lifetime {
    uint64_t size_bytes; /* 1 to 2^48 */
    uint64_t start, end; /* live on [start, end), start < end. With a period: start < period and
                            end <= start + period; what goes beyond the period wraps */
    gml_stream stream;
    uint32_t phase_start, phase_end; /* of the allocation and the free (forward, backward, ... of
                                        each micro-batch); 0: not known */
    uint64_t tag;                    /* the caller's */
} gml_lifetime;

/* Work that `after` is given from `time` on runs after all work that `before` was given up to then.
 */
typedef struct gml_ordering {
    uint64_t time;
    gml_stream before, after;
} gml_ordering;

typedef struct gml_problem {
    const gml_lifetime *lifetimes;
    size_t count;
    uint64_t period;          /* 0: everything happens once */
    uint64_t alignment_bytes; /* of every offset; a power of two; 0: 512. Sizes are rounded up to it
                                 wherever they are summed or compared */
    const gml_ordering *orderings; /* any order; two streams share addresses only where one of these
                                      lies between the free and the allocation; with a period none
                                      are allowed */
    size_t ordering_count;
} gml_problem;

typedef struct gml_planner_options {
    uint64_t budget_ms; /* about how long to search on; 0: 1000 for up to 4096 lifetimes, else 350
                           or 1 for every 220 lifetimes. Counted in work and never by a clock, so
                           that a busy machine finds the same */
    uint64_t capacity_bytes; /* 0: the lowest peak; else any peak up to this will do */
} gml_planner_options;

typedef struct gml_solution {
    uint64_t peak_bytes;        /* the largest end of any lifetime */
    uint64_t lower_bound_bytes; /* the largest live sum; no placement is lower */
    const char *method; /* what placed it, by name, as "exact"; never NULL. For reports: names come
                           and go */
    uint64_t time_ns;
    bool is_proven; /* no placement is lower than peak_bytes */
} gml_solution;

/* Gives every lifetime an offset. The result has passed gml_planner_check(). GML_INVALID_ARGUMENT
 * for a lifetime or setting outside its range, or a sum of sizes above 2^62; GML_NO_HOST_MEMORY;
 * GML_CORRUPT if the result was not valid. `reason` (may be NULL) then holds one line, at most
 * reason_bytes. A capacity that is not met is not an error: look at peak_bytes. `options` may be
 * NULL. */
GML_API gml_status gml_planner_solve(const gml_problem *problem, const gml_planner_options *options,
                                     uint64_t *offsets, gml_solution *out, char *reason,
                                     size_t reason_bytes);

/* The independent check, which shares only sorting and the ranges of values with the placing code:
 * a sweep over raw times. GML_CORRUPT with a reason if two lifetimes meet in time and address, two
 * streams share addresses without an ordering between them, an offset is not aligned, overflows or
 * ends above `peak_bytes`, or if peak_bytes is not the largest end. O(N log N). */
GML_API gml_status gml_planner_check(const gml_problem *problem, const uint64_t *offsets,
                                     uint64_t peak_bytes, char *reason, size_t reason_bytes);

/* ---- plans ----------------------------------------------------------------------------------- */

/* Immutable. */
typedef struct gml_plan gml_plan;

typedef struct gml_plan_info {
    size_t requests; /* of the period */
    size_t placed;   /* of those, that have an offset; the rest live too long to be planned */
    unsigned steps;  /* in the period: 2 where something lives longer than one step */
    unsigned lanes;
    uint64_t peak_bytes; /* over all lanes */
    uint64_t lower_bound_bytes;
    const char *method;   /* of the largest lane, as in gml_solution; "none" without lanes */
    uint64_t time_ns;     /* that planning took; 0 for a plan that was read from a file */
    uint64_t fingerprint; /* of the sizes and lanes in request order; equal steps, equal numbers */
} gml_plan_info;

/* A plan for steps like profile->last. Requests that are still live two steps later, or whose end
 * is not known, are left without an offset. GML_INVALID_ARGUMENT for a step without requests or a
 * profile that contradicts itself; GML_NO_HOST_MEMORY; GML_CORRUPT if the result does not pass the
 * independent check. `options` and `reason` may be NULL. */
GML_API gml_status gml_plan_build(const gml_profile *profile, const gml_planner_options *options,
                                  gml_plan **out, char *reason, size_t reason_bytes);

/* NULL is allowed. */
GML_API void gml_plan_free(gml_plan *plan);

/* What is known of it at a glance. */
GML_API void gml_plan_describe(const gml_plan *plan, gml_plan_info *out);

/* One request of a plan, in request order over its steps. */
typedef struct gml_plan_request {
    uint64_t size_bytes, offset; /* GML_NO_OFFSET: left to others */
    uint64_t start, end;         /* in events of the period; end may go beyond it */
    uint32_t lane;
    uint32_t step; /* of the period, from 0 */
} gml_plan_request;

/* The request at `index` < gml_plan_info.requests. */
GML_API void gml_plan_request_at(const gml_plan *plan, size_t index, gml_plan_request *out);

/* The plan as bytes: versioned, checksummed, the same on every machine. *out is to be given to
 * free(). */
GML_API gml_status gml_plan_encode(const gml_plan *plan, uint8_t **out, size_t *out_bytes);

/* Reads what gml_plan_encode() wrote. Every plan read has passed the independent check. GML_CORRUPT
 * with a reason for anything else, GML_UNSUPPORTED for another version. */
GML_API gml_status gml_plan_decode(const uint8_t *bytes, size_t byte_count, gml_plan **out,
                                   char *reason, size_t reason_bytes);

/* Adds the plan's steps for a kind, see gml_lake_add_places(): of a plan with several lanes the
 * first is served. GML_MISUSE unless steps are watched; GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_add_plan(gml_lake *lake, uint64_t kind, const gml_plan *plan);

#ifdef __cplusplus
}
#endif

#endif
