/* Depth-first search for a placement within a capacity: shared by its files.
 *
 * A step takes a slot, and branches over the items that can be at the lowest free offset of the
 * slot: one of them is there, or none. The slot is such that nothing else can come below these
 * items later. Which slot, and in which order the items are tried, is a strategy; each alone is
 * complete. Where no item crosses a point of time any longer, both sides are searched on their own.
 *
 * Lowest offsets, the sums in slots and the splitting are those of MiniMalloc (Moffitt, ASPLOS
 * 2023); branching over the items of one slot, instead of over all next items in a canonical order,
 * avoids retrying choices at one time for each choice at another.
 */
#ifndef GML_PLANNER_EXACT_H
#define GML_PLANNER_EXACT_H

#include "planner/methods.h"

/* Which slot comes next: the one with the least ... */
typedef enum gml_exact_choice {
    GML_EXACT_BY_LOW_SLACK,   /* offset, then slack: what its items leave free */
    GML_EXACT_BY_LOW_OPTIONS, /* offset, then number of items */
    GML_EXACT_BY_OPTIONS,     /* number of items, then slack */
    GML_EXACT_BY_REMAINING,   /* room beside the unplaced items, then number of items */
    GML_EXACT_CHOICES
} gml_exact_choice;

typedef enum gml_exact_key {
    GML_EXACT_LIFE,
    GML_EXACT_AREA, /* size times life */
    GML_EXACT_SIZE,
    GML_EXACT_CONTENTION, /* the largest sum of unplaced items during the item's life */
    GML_EXACT_KEYS
} gml_exact_key;

enum { GML_EXACT_RANKING_KEYS = 3 };

typedef struct gml_exact_strategy {
    gml_exact_choice choice;
    gml_exact_key ranking[GML_EXACT_RANKING_KEYS]; /* descending */
} gml_exact_strategy;

/* Sizes and offsets are in units, so that 32 bits hold every sum. */
typedef struct gml_exact_item {
    uint32_t size, begin, end;
    uint32_t original; /* the number in the instance */
    uint32_t offset;   /* of the last placement found */
    uint32_t low;      /* the lowest offset that it can have where the next part is made */
    double life;
} gml_exact_item;

typedef struct gml_exact_space {
    gml_exact_item *items; /* in an order that does not depend on that of the input */
    uint32_t count, slots;
    uint64_t unit_bytes; /* every size is a multiple of it */
    uint32_t capacity;
    gml_exact_strategy strategy;
    uint64_t visits; /* work done */
    /* scratch, for as many items or slots as there are */
    uint32_t *slot_count, *slot_sum;
    uint16_t *raised;
    void *sorting;
} gml_exact_space;

/* GML_UNSUPPORTED where 32 bits do not hold the capacity in units; GML_NO_HOST_MEMORY. To be closed
 * in every case. pre: nothing wrapped, no slot holds more than the capacity. */
gml_status gml_exact_space_open(gml_exact_space *space, const gml_instance *instance,
                                uint64_t capacity_bytes);
void gml_exact_space_close(gml_exact_space *space);

/* The greatest common divisor of all sizes; 1 without items. */
uint64_t gml_exact_unit(const gml_instance *instance);

/* ---- exact_search.c -----------------------------------------------------------------------------
 *
 * Searches the placements of `items`, at most `node_limit` nodes. Offsets go to space->items; on
 * another outcome than FOUND some have changed. GML_NO_HOST_MEMORY. */
gml_status gml_exact_run(gml_exact_space *space, const gml_exact_strategy *strategy,
                         const uint32_t *items, uint32_t count, uint64_t node_limit,
                         gml_budget *budget, gml_exact_outcome *out);

/* ---- exact_part.c -------------------------------------------------------------------------------
 *
 * A part is a range of time that no item of it crosses the ends of, with its items in the order in
 * which they are tried. */
typedef struct gml_exact_part {
    uint32_t count, slots;
    uint32_t *item; /* by rank; so are these: */
    uint32_t *size;
    uint32_t *begin, *end; /* slots of the part, which are fewer than those of all items */
} gml_exact_part;          /* `item` is to be given to free() */

/* The members in the order of the strategy's ranking, contention taken over them alone; false when
 * the host has no memory. `part` was made before, or is zeroed. pre: count > 0. */
bool gml_exact_part_make(gml_exact_space *space, const uint32_t *members, uint32_t count,
                         gml_exact_part *part);

/* ---- exact_node.c -------------------------------------------------------------------------------
 *
 * A node: the items of a part that are not placed yet, each with the lowest offset that it can
 * still have, and the resulting bounds of each slot. */
#define GML_EXACT_NONE UINT32_MAX

typedef struct gml_exact_slot {
    uint32_t low;      /* the least offset of an item in the slot; GML_EXACT_NONE: all are placed */
    uint32_t next_low; /* the next one above it */
    uint32_t options;  /* items at `low` */
    uint32_t remaining; /* the sum of sizes */
} gml_exact_slot;

typedef struct gml_exact_node {
    const gml_exact_part *part;
    uint32_t unplaced;
    gml_exact_slot *slots;
    uint32_t *low;       /* by rank: no placement in this node has the item lower; GML_EXACT_NONE:
                            placed */
    uint32_t *cuts;      /* room for every slot of the part, and one */
    uint16_t *order;     /* the ranks of unplaced items, ascending by low */
    uint16_t *options;   /* room for as many */
    size_t memory_bytes; /* from `slots` on, which is to be given to free() */
} gml_exact_node;

typedef enum gml_exact_verdict {
    GML_EXACT_OPEN,   /* not excluded */
    GML_EXACT_CLOSED, /* it holds no placement */
    GML_EXACT_NO_MEMORY
} gml_exact_verdict;

/* The first node of a part, whose lowest offsets are those of space->items. `out` was made before,
 * or is zeroed: its memory is used again. */
gml_exact_verdict gml_exact_first_node(gml_exact_space *space, const gml_exact_part *part,
                                       gml_exact_node *out);

/* Places an item of `parent` at the lowest offset that it can have. *is_felt: that raised another.
 */
gml_exact_verdict gml_exact_place(gml_exact_space *space, const gml_exact_node *parent,
                                  uint32_t rank, gml_exact_node *out, bool *is_felt);

/* None of these items is at its lowest offset: changes the node. */
gml_exact_verdict gml_exact_raise(gml_exact_space *space, gml_exact_node *node,
                                  const uint16_t *ranks, uint32_t count);

#endif
