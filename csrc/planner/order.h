/* The orders in which the methods place items, the best first. */
#ifndef GML_PLANNER_ORDER_H
#define GML_PLANNER_ORDER_H

#include "base/sort.h"
#include "planner/instance.h"
#include "planner/method.h"

/* `order` lists the items as the method, one of first fit or of the lowest segment, takes them.
 * `room` is for twice the items; its content is lost. */
void gml_order_make(const gml_instance *instance, gml_method method, gml_keyed *room,
                    uint32_t *order);

#endif
