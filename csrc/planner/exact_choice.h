/* Where an exact search branches. */
#ifndef GML_PLANNER_EXACT_CHOICE_H
#define GML_PLANNER_EXACT_CHOICE_H

#include "planner/exact_search.h"

/* The ranks that can be at the lowest offset of the slot that comes next, in the order in which
 * they are tried; their number. `out` has room for all that is not placed. */
uint32_t gml_exact_branches(gml_exact_space *space, gml_exact_choice choice,
                            const gml_exact_node *node, uint16_t *out);

/* Whether one of the ranks before ranks[at] differs from it in nothing but its number. */
bool gml_exact_is_repeated(const gml_exact_node *node, const uint16_t *ranks, uint32_t at);

#endif
