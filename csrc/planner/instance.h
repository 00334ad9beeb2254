/* A problem made ready for placing: one lane, sizes rounded, times compressed to slots.
 *
 * The number of a slot rises only where an allocation follows a free, so a slot is a largest set of
 * items that are live together, and two items meet in time if and only if their slots do. Item i is
 * the lifetime `lifetime[i]` of the problem. Items come in the order of their starts, so that
 * `begin` ascends. With a period, time counts from the moment at which the least is live, so that
 * as little as possible is wrapped.
 */
#ifndef GML_PLANNER_INSTANCE_H
#define GML_PLANNER_INSTANCE_H

#include "gmlake_plan.h"

typedef struct gml_instance {
    size_t count;
    uint32_t slots;       /* at least 1 where count is */
    uint64_t *sizes;      /* multiples of the alignment */
    uint32_t *begin;      /* live in slots [begin, end) where begin < end; */
    uint32_t *end;        /* else wrapped: in [begin, slots) and [0, end), all of them if equal */
    uint64_t *life;       /* in raw times, for orders that ask for it */
    uint64_t *start;      /* raw, counted from `origin` */
    uint64_t origin;      /* a raw time; 0 without a period */
    uint64_t *contention; /* the largest live sum in the item's life */
    uint64_t *live;       /* by slot: the sum of sizes */
    uint32_t *lifetime;   /* index in the problem */
    uint32_t *by_end;     /* the items as they end */
    void *memory;         /* of all these arrays */
    size_t wrapped_count;
    uint64_t lower_bound; /* the largest live sum */
} gml_instance;

/* pre: the problem was checked by gml_problem_check(). `members` are indices of the lifetimes to
 * take; `ends`, if not NULL, stands for their ends. GML_NO_HOST_MEMORY. */
gml_status gml_instance_open(gml_instance *instance, const gml_problem *problem,
                             const uint32_t *members, size_t member_count, const uint64_t *ends);
void gml_instance_close(gml_instance *instance);

uint64_t gml_instance_most_live(const gml_instance *instance); /* the largest live sum */

/* The largest end of items at these offsets. */
uint64_t gml_instance_peak(const gml_instance *instance, const uint64_t *offsets);

/* Whether two items meet in time. */
static inline bool gml_items_meet(const gml_instance *instance, size_t a, size_t b) {
    uint32_t a0 = instance->begin[a], a1 = instance->end[a];
    uint32_t b0 = instance->begin[b], b1 = instance->end[b];
    if (a0 < a1 && b0 < b1) {
        return a0 < b1 && b0 < a1;
    }
    if (a0 >= a1 && b0 >= b1) {
        return true;
    }
    return a0 < a1 ? a0 < b1 || a1 > b0 : b0 < a1 || b1 > a0;
}

/* Every value in its documented range; GML_INVALID_ARGUMENT with a reason. */
gml_status gml_problem_check(const gml_problem *problem, char *reason, size_t reason_bytes);

/* The alignment that holds. */
static inline uint64_t gml_problem_alignment(const gml_problem *problem) {
    return problem->alignment_bytes ? problem->alignment_bytes : 512;
}

#endif
