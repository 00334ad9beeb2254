/* One node of the exact search: items that are not placed yet, each with the lowest offset that it
 * can still have, and what follows from that for each slot.
 *
 * A part is a range of time that no such item crosses the ends of, with its items in the order in
 * which they are tried. Nodes and parts live in an arena.
 */
#ifndef GML_PLANNER_EXACT_NODE_H
#define GML_PLANNER_EXACT_NODE_H

#include "planner/exact_arena.h"
#include "planner/exact_items.h"

#include <stdbool.h>

#define GML_EXACT_NONE UINT32_MAX

typedef struct gml_exact_part {
    uint32_t count, slots;
    uint32_t *item; /* by rank; so are these: */
    uint32_t *size;
    uint32_t *begin, *end; /* slots of the part, which are fewer than those of all items */
    uint32_t *origin;      /* by slot of the part: one of all items' */
} gml_exact_part;

typedef struct gml_exact_slot {
    uint32_t low;      /* the least offset of an item in the slot; GML_EXACT_NONE: all are placed */
    uint32_t next_low; /* the next one above it */
    uint32_t options;  /* items at `low` */
    uint32_t remaining; /* the sum of sizes */
} gml_exact_slot;

typedef struct gml_exact_node {
    const gml_exact_part *part;
    uint32_t unplaced;
    uint16_t *order; /* the ranks of what is not placed, ascending by low */
    uint32_t
        *low; /* by rank: no placement in this node has the item lower; GML_EXACT_NONE: placed */
    gml_exact_slot *slots;
} gml_exact_node;

typedef struct gml_exact_space {
    gml_exact_items items;
    gml_arena arena;
    uint32_t *failures; /* by slot: how often it held too much, plus one */
    uint64_t visits;    /* work done */
    gml_exact_key ranking[3];
    /* scratch, for as many items or slots as there are */
    uint32_t *low;        /* by item */
    uint32_t *slot_count; /* twice as many, plus two */
    uint16_t *raised;
    void *sorting;
} gml_exact_space;

gml_status gml_exact_space_open(gml_exact_space *space, const gml_instance *instance,
                                uint64_t capacity_bytes);
void gml_exact_space_close(gml_exact_space *space);

/* A part of `count` items, whose lowest offsets are in space->low, and its first node. */
typedef enum gml_exact_verdict {
    GML_EXACT_OPEN,   /* nothing speaks against it */
    GML_EXACT_CLOSED, /* it holds no placement */
    GML_EXACT_NO_MEMORY
} gml_exact_verdict;
gml_exact_verdict gml_exact_first_node(gml_exact_space *space, uint32_t *items, uint32_t count,
                                       gml_exact_node *out);

/* Places an item of `parent` at the lowest offset that it can have. *is_felt: that raised another.
 */
gml_exact_verdict gml_exact_place(gml_exact_space *space, const gml_exact_node *parent,
                                  uint32_t rank, gml_exact_node *out, bool *is_felt);

/* None of these items is at its lowest offset: changes the node. */
gml_exact_verdict gml_exact_raise(gml_exact_space *space, gml_exact_node *node,
                                  const uint16_t *ranks, uint32_t count);

#endif
