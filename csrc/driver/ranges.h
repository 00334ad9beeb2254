/* Which addresses are taken: a set of ranges, and free addresses between them.
 *
 * Costs: O(log of their number), to find free addresses one step more for each range passed over.
 * Not locked: the driver's owner serialises the calls.
 */
#ifndef GML_DRIVER_RANGES_H
#define GML_DRIVER_RANGES_H

#include "base/pool.h"
#include "base/tree.h"
#include "gmlake.h"

/* Of the addresses of a model: a reservation, or a plain block as malloc gives it. */
typedef struct gml_range {
    gml_tree_node node; /* ordered by address; its size is unused */
    uint64_t size_bytes;
    bool is_plain;
} gml_range;

typedef struct gml_ranges {
    gml_tree tree;
    gml_pool objects;
    gml_address begin, end; /* where free addresses are looked for, */
    gml_address next;       /* and from where on first */
} gml_ranges;

/* A set that was zeroed memory. */
void gml_ranges_init(gml_ranges *ranges, gml_address begin, gml_address end);
void gml_ranges_clear(gml_ranges *ranges);

/* The range at the lowest address, and the one behind another; NULL at the end. */
static inline gml_range *gml_ranges_first(const gml_ranges *ranges) {
    return (gml_range *)(void *)gml_tree_first(&ranges->tree);
}

static inline gml_range *gml_ranges_next(const gml_range *range) {
    return (gml_range *)(void *)gml_tree_next(&range->node);
}

/* The range that `address` lies in, or NULL. */
gml_range *gml_ranges_at(const gml_ranges *ranges, gml_address address);

/* Whether no range touches these addresses. */
bool gml_ranges_is_hole(const gml_ranges *ranges, gml_address address, uint64_t size_bytes);

/* The first free addresses from `next` on, then from the beginning; 0: there are none. */
gml_address gml_ranges_find_hole(const gml_ranges *ranges, uint64_t size_bytes,
                                 uint64_t alignment_bytes);

/* Enters what was taken from the pool. pre: its addresses are free. */
static inline void gml_ranges_enter(gml_ranges *ranges, gml_range *range) {
    gml_tree_insert(&ranges->tree, &range->node);
}

void gml_ranges_remove(gml_ranges *ranges, gml_range *range);

#endif
