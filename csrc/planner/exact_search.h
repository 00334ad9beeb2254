/* Depth-first search for a placement within a capacity.
 *
 * A step takes a slot, and branches over the items that can be at the lowest free offset of the
 * slot: one of them is there, or none. The slot is such that nothing else can come below these
 * items later. Which slot, and in which order the items are tried, is a strategy; each alone is
 * complete. Where no item crosses a point of time any longer, both sides are searched on their own.
 *
 * Lowest offsets, the sums in slots and the splitting are those of MiniMalloc (Moffitt, ASPLOS
 * 2023); to branch over the items of one slot instead of all that come next in a canonical order
 * keeps what happens at one time from being tried again for each choice at another.
 */
#ifndef GML_PLANNER_EXACT_SEARCH_H
#define GML_PLANNER_EXACT_SEARCH_H

#include "planner/budget.h"
#include "planner/exact_node.h"
#include "planner/methods.h"

/* Which slot comes next: the one with the least ... */
typedef enum gml_exact_choice {
    GML_EXACT_BY_LOW_SLACK,     /* offset, then slack: what its items leave free */
    GML_EXACT_BY_LOW_OPTIONS,   /* offset, then number of items */
    GML_EXACT_BY_OPTIONS,       /* number of items, then slack */
    GML_EXACT_BY_REMAINING,     /* room beside what is still to be placed, then number of items */
    GML_EXACT_BY_FAILURES,      /* number of branches for each failure seen in it */
    GML_EXACT_BY_SLACK_FAILURES /* the same times slack */
} gml_exact_choice;

typedef struct gml_exact_strategy {
    gml_exact_choice choice;
    gml_exact_key ranking[3]; /* descending */
} gml_exact_strategy;

/* Searches the placements of `items`, at most `node_limit` nodes. Offsets go to
 * space->items.offset; on another outcome than FOUND some have changed. GML_NO_HOST_MEMORY. */
gml_status gml_exact_run(gml_exact_space *space, const gml_exact_strategy *strategy,
                         uint32_t *items, uint32_t count, uint64_t node_limit, gml_budget *budget,
                         gml_exact_outcome *out);

#endif
