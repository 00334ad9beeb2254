/* How much work a search may still do.
 *
 * Work is counted in visits of tree nodes and similar steps, never in time, so that results do not
 * depend on the load of the machine.
 */
#ifndef GML_PLANNER_BUDGET_H
#define GML_PLANNER_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    GML_WORK_PER_MS = 130000,       /* visits that take a millisecond on a server core of 2024 */
    GML_WORK_CACHED_COUNT = 400000, /* lifetimes; as many again, and a visit takes as long again */
};

typedef struct gml_budget {
    uint64_t work, limit;
} gml_budget;

/* For an input of `count` lifetimes: where it is larger than the caches, each visit takes longer.
 */
static inline gml_budget gml_budget_of(uint64_t milliseconds, size_t count) {
    uint64_t most = UINT64_MAX / GML_WORK_PER_MS;
    uint64_t limit = milliseconds < most ? milliseconds * GML_WORK_PER_MS : UINT64_MAX;
    uint64_t slower = GML_WORK_CACHED_COUNT + count; /* limit * GML_WORK_CACHED_COUNT / slower: */
    return (gml_budget){.limit = limit / slower * GML_WORK_CACHED_COUNT +
                                 limit % slower * GML_WORK_CACHED_COUNT / slower};
}

static inline bool gml_budget_is_over(const gml_budget *budget) {
    return budget->work >= budget->limit;
}

/* Counts `work` visits; whether the budget is over. */
static inline bool gml_budget_spend(gml_budget *budget, uint64_t work) {
    budget->work += work;
    return gml_budget_is_over(budget);
}

/* `share` of `of` equal parts of the remaining budget. Work charged to it must also be charged to
 * the whole. */
static inline gml_budget gml_budget_part(const gml_budget *whole, uint64_t share, uint64_t of) {
    uint64_t left = gml_budget_is_over(whole) ? 0 : whole->limit - whole->work;
    return (gml_budget){.limit = left / of * share + left % of * share / of};
}

#endif
