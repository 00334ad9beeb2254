/* A period laid out in a line, for what knows no wrapped lifetimes.
 *
 * The circle of slots is cut where the least is live across the cut. What is live there meets all
 * the others that are, so it is stacked, in the order that keeps the ends of the line lowest.
 */
#ifndef GML_PLANNER_CIRCLE_H
#define GML_PLANNER_CIRCLE_H

#include "planner/instance.h"

typedef struct gml_circle {
    uint32_t *begin, *end; /* by item, in slots from the cut: the slots of the line it is live in;
                              of what lives across the cut: begin >= end, as in gml_instance */
    uint32_t *stack;       /* what lives across the cut, lowest first */
    size_t stack_count;
    uint64_t *heights; /* by slot from the cut: the top of the stack */
} gml_circle;

/* pre: something is wrapped. GML_NO_HOST_MEMORY. */
gml_status gml_circle_open(gml_circle *circle, const gml_instance *instance);
void gml_circle_close(gml_circle *circle);

#endif
