/* Streams that share one range of addresses where an ordering lies between them.
 *
 * Two items of one stream meet if their lives overlap, two of different streams if their lengthened
 * lives do (`all` of gml_lengthen_ends()). So each stream has two trees of occupied addresses, and
 * an item asks the first of its own and the second of all others.
 */
#ifndef GML_PLANNER_TOGETHER_H
#define GML_PLANNER_TOGETHER_H

#include "planner/budget.h"
#include "planner/stream_order.h"

/* Improves a placement by gml_search_orders(): `offsets` by lifetime, whose highest end is
 * *peak_bytes. Stops at `enough_bytes`, or with the budget. *is_better: both were replaced.
 * GML_NO_HOST_MEMORY. */
gml_status gml_place_together(const gml_problem *problem, const uint32_t *members,
                              const gml_stream_group *groups, size_t group_count,
                              const uint64_t *all, uint64_t enough_bytes, gml_budget *budget,
                              uint64_t *offsets, uint64_t *peak_bytes, bool *is_better);

#endif
