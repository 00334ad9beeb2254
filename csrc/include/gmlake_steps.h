/* Steps that repeat: watched, and served as they were served before.
 *
 * A step is the requests of one training step, or of whatever else a program repeats. A plan of a
 * step is where each of its requests lies, in the order in which they come.
 */
#ifndef GMLAKE_STEPS_H
#define GMLAKE_STEPS_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GML_NO_OFFSET UINT64_MAX

/* ---- steps, as watched ----------------------------------------------------------------------- */

#define GML_STILL_LIVE UINT64_MAX

typedef struct gml_step_request {
    uint64_t size_bytes; /* rounded up to 512 */
    gml_stream stream;
    uint64_t birth;        /* events of the step before it; each request and each free is one */
    uint64_t death;        /* the same of its free, in the step `death_serial`; GML_STILL_LIVE */
    uint64_t death_serial; /* of the step in which it was freed. A free between two steps, or in one
                              of another kind, counts at the end of the one before */
} gml_step_request;

typedef struct gml_step {
    uint64_t serial; /* counts the steps of its kind */
    uint64_t event_count;
    gml_step_request *requests;
    size_t request_count;
} gml_step;

/* What was watched of steps of one kind. */
typedef struct gml_profile {
    gml_step last;
    gml_step previous; /* an earlier, similar step, whose frees show when blocks still live at the
                          end of `last` will be freed; request_count 0: none */
} gml_profile;

/* Frees its contents, too. NULL is allowed. */
GML_API void gml_profile_free(gml_profile *profile);

/* ---- steps of a lake ----------------------------------------------------------------------------
 *
 * On a lake whose policy is `stitch` or `plan`. Requests outside of steps are the policy's.
 */

/* Watches steps from now on. GML_UNSUPPORTED for any other policy. Nothing the second time. */
GML_API gml_status gml_lake_watch_steps(gml_lake *lake);

/* Begins a step. `kind` is the caller's number for similar steps (training, evaluation); each kind
 * has its own plans. Ends an open step first. GML_MISUSE unless steps are watched;
 * GML_NO_HOST_MEMORY.
 *
 * A step is watched, and served by the policy, until the policy has served it in the same way as
 * one before. From then on a step with the same requests gets the same places, without a search,
 * new memory or a driver call. When a step deviates, the policy continues as if it had served the
 * whole step. */
GML_API gml_status gml_lake_begin_step(gml_lake *lake, uint64_t kind);

typedef struct gml_step_report {
    uint64_t kind, serial;
    uint64_t requests;       /* in the step */
    uint64_t served;         /* of those, by a plan */
    uint64_t left;           /* of those, that the plan leaves to the policy */
    uint64_t driver_calls;   /* made during the step */
    uint64_t reserved_bytes; /* held from the device at the end, by everything on the lake */
    uint64_t fingerprint;    /* of the requests; 0: not known */
    const char *why;         /* what became of the step, in words */
} gml_step_report;

/* The open step ends. `out` may be NULL. GML_MISUSE where none is open. */
GML_API gml_status gml_lake_end_step(gml_lake *lake, gml_step_report *out);

/* The profile of the last watched step of that kind; free it with gml_profile_free(). A step of
 * more than 2^22 requests is reported as empty. GML_MISUSE if no step was watched. */
GML_API gml_status gml_lake_profile(gml_lake *lake, uint64_t kind, gml_profile **out);

/* One request of a step whose place is known before the step comes. */
typedef struct gml_placed_request {
    uint64_t size_bytes; /* a multiple of 512 */
    uint64_t offset;     /* in memory that is taken for it; GML_NO_OFFSET: left to the policy */
    gml_stream stream;
} gml_placed_request;

/* Steps of that kind get these places from the next one on, at most 16 of a kind are kept: in
 * memory that is taken then, as much as the one that needs most does. Places on other streams than
 * that of the first request are left to the policy. GML_INVALID_ARGUMENT for an offset that is no
 * multiple of 512, or overflows; GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_add_places(gml_lake *lake, uint64_t kind,
                                       const gml_placed_request *requests, size_t count);

/* Forgets every plan of that kind. Live blocks stay. */
GML_API gml_status gml_lake_drop_plans(gml_lake *lake, uint64_t kind);

/* Sums over all steps since watching began. */
typedef struct gml_step_stats {
    uint64_t steps, planned_steps;   /* the latter: a plan served some of it */
    uint64_t requests, served, left; /* in planned steps */
    uint64_t plans_made;
    const char *why; /* what became of the last step, in words; NULL: none has ended */
} gml_step_stats;
GML_API gml_status gml_lake_step_stats(gml_lake *lake, gml_step_stats *out);

#ifdef __cplusplus
}
#endif

#endif
