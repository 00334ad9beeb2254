/* Which entry of a plan a request is: the k-th request meets the k-th entry.
 *
 * Programs drift: a request is new, missing, of another size, or two change places. Then the
 * matcher looks for the next agreement within a window, and goes on from there; it never shifts the
 * rest of the step. O(1) while the step agrees, O(window) for a request that does not.
 *
 *   position   the entry expected next
 *   detour     a run of entries elsewhere that the requests since a disagreement met, one after the
 *              other. When it has gone on for long enough, the position moves there; when the
 *              position agrees again and the detour does not, what it met counts as not met
 *
 * So an entry is met once, unless what met it looks like another request in hindsight. Whoever
 * serves entries has to look at what is in use, which gml_occupancy is for.
 */
#ifndef GML_PLANNER_MATCHER_H
#define GML_PLANNER_MATCHER_H

#include "planner/plan.h"

/* A run of entries; length 0: there is none. */
typedef struct gml_detour {
    size_t first, next; /* [first, next) agreed, `next` is expected */
    size_t from;        /* where the position was when it began */
    size_t length;      /* of [first, next) */
} gml_detour;

typedef struct gml_matcher {
    const gml_plan *plan;
    uint32_t window;
    size_t begin, end; /* the entries of the step: nothing else is met */
    size_t position;
    gml_detour detour;
    size_t next_mark, mark_end; /* the marks of the step that are to come */
    uint64_t *is_met;           /* bit by entry of the period */
} gml_matcher;

#define GML_NO_ENTRY SIZE_MAX

/* `window` in entries, 1 to 65536; 256 spans several layers of most models, which is what it takes
 * to get over a layer that is missing. Begins step 0. Holds no reference to the plan.
 * GML_NO_HOST_MEMORY. */
gml_status gml_matcher_open(gml_matcher *matcher, const gml_plan *plan, uint32_t window);
void gml_matcher_close(gml_matcher *matcher);

/* Begins step number `step` of the period; entries of that step have not been met. */
void gml_matcher_begin_step(gml_matcher *matcher, unsigned step);

/* The entry that this request is, or GML_NO_ENTRY. `lane` UINT32_MAX: a stream that no lane has. */
size_t gml_matcher_meet(gml_matcher *matcher, uint64_t size_bytes, uint32_t lane);

/* The program entered `phase`. Matching goes on behind the step's next mark of that phase, or,
 * where none is left, behind the last one whose entry was not met. Nothing where there is none. */
void gml_matcher_enter_phase(gml_matcher *matcher, uint32_t phase);

/* Whether the plan's step `step` begins with these requests: as many of them as there are, or as
 * the step has. Requests in dynamic scopes are skipped; lanes are compared in the order in which
 * their streams were first used. For choosing among plans. O(count + lanes). GML_NO_HOST_MEMORY
 * counts as no. */
bool gml_plan_begins_with(const gml_plan *plan, unsigned step, const gml_step_request *requests,
                          size_t count);

#endif
