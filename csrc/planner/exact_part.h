/* Makes the parts of an exact search: which slots they need, and in which order items are tried. */
#ifndef GML_PLANNER_EXACT_PART_H
#define GML_PLANNER_EXACT_PART_H

#include "planner/exact_node.h"

/* What space->sorting needs for so many items. */
size_t gml_exact_sorting_bytes(uint32_t count);

/* Sorts `members` by space->ranking, contention taken over them alone; NULL when the host has no
 * memory. pre: count > 0. */
const gml_exact_part *gml_exact_part_make(gml_exact_space *space, uint32_t *members,
                                          uint32_t count);

/* Sorts node->order. */
void gml_exact_order(gml_exact_space *space, gml_exact_node *node);

#endif
