/* Improves a placement by first fit in other orders: what ends highest comes earlier, or all of a
 * stream does (after Joslin and Clements, "Squeaky Wheel Optimization", 1999).
 */
#ifndef GML_PLANNER_ORDER_SEARCH_H
#define GML_PLANNER_ORDER_SEARCH_H

#include "gmlake.h"
#include "planner/budget.h"

/* How items are placed in an order. */
typedef struct gml_first_fitting {
    size_t count;
    const uint64_t *sizes;
    const uint32_t *stream; /* of each item, below stream_count */
    size_t stream_count;
    void *context;
    /* Places every item at the lowest address that is free, in `found`. GML_NOT_READY with the
     * budget, or as soon as an item would end above `limit_bytes`, whose place in the order is
     * *failed then; GML_NO_HOST_MEMORY. */
    gml_status (*place)(void *context, const uint32_t *order, uint64_t limit_bytes,
                        gml_budget *budget, uint64_t *found, size_t *failed);
} gml_first_fitting;

/* `offsets` by item, whose highest end is *peak_bytes. Stops at `enough_bytes`, or with the budget.
 * *is_better: both were replaced by a lower peak. The same input gives the same output.
 * GML_NO_HOST_MEMORY. */
gml_status gml_search_orders(const gml_first_fitting *fitting, uint64_t enough_bytes,
                             gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes,
                             bool *is_better);

#endif
