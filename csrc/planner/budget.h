/* How much work a search may still do.
 *
 * Work is counted in visits of a tree node or the like, which take about the same time everywhere,
 * so that results do not depend on how busy the machine is. The clock only stops what takes four
 * times as long as it should.
 */
#ifndef GML_PLANNER_BUDGET_H
#define GML_PLANNER_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gml_budget {
    uint64_t work, work_limit;
    uint64_t deadline_ns; /* of CLOCK_MONOTONIC */
    uint64_t next_look;   /* the work at which the clock is read next */
    bool is_over;
} gml_budget;

void gml_budget_begin(gml_budget *budget, uint64_t milliseconds);

/* For an input of `count` lifetimes: where it is larger than the caches, each visit takes longer.
 */
void gml_budget_slow_down(gml_budget *budget, size_t count);

/* A part of what is left of `whole`: `share` of `of` equal parts. Work spent on it has to be added
 * to `whole` by gml_budget_close(). */
void gml_budget_open(gml_budget *part, const gml_budget *whole, uint64_t share, uint64_t of);
void gml_budget_close(const gml_budget *part, gml_budget *whole);

/* Reads the clock. */
bool gml_budget_look(gml_budget *budget);

/* Counts `work` visits; whether the budget is over. */
static inline bool
gml_budget_spend(gml_budget *budget, uint64_t work)
{
    budget->work += work;
    return budget->work >= budget->next_look ? gml_budget_look(budget) : budget->is_over;
}

#endif
