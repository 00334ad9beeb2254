/* Which addresses are occupied when, for first fit.
 *
 * A segment tree over slots of time. Each node keeps two ascending lists of disjoint runs of
 * addresses: `cover`, occupied in all of the node's slots by items stored at this very node, and
 * `any`, occupied in any of its slots. An item is stored at the few nodes that cover its slots. The
 * obstacles of an item are in the `any` of its nodes and in the `cover` of the nodes above them.
 * Dense packing lets runs grow together, so that the cost of a query follows the number of runs and
 * not that of the items it meets.
 */
#ifndef GML_PLANNER_RUN_TREE_H
#define GML_PLANNER_RUN_TREE_H

#include "gmlake.h"

enum { GML_RUN_MOST_LEVELS = 33, GML_RUN_MOST_NODES = 4 * GML_RUN_MOST_LEVELS };

/* Occupied addresses [low, high). */
typedef struct gml_occupied {
    uint64_t low, high;
} gml_occupied;

/* Ascending, disjoint, not touching; all zero: empty. */
typedef struct gml_run_list {
    gml_occupied *runs;
    uint32_t count, room;
} gml_run_list;

typedef struct gml_run_tree {
    uint32_t slots, leaves;    /* leaves: a power of two; node 1 is the root, they come last */
    gml_run_list *any, *cover; /* by node; leaves have no `cover` */
    struct gml_run_block *blocks;
} gml_run_tree;

/* The nodes that cover the slots of an item, and those above them. */
typedef struct gml_run_cut {
    uint32_t nodes[GML_RUN_MOST_NODES], above[GML_RUN_MOST_NODES];
    size_t node_count, above_count;
} gml_run_cut;

/* A list, and how far it has been searched. */
typedef struct gml_run_reader {
    const gml_occupied *runs;
    uint32_t count, next;
} gml_run_reader;

enum { GML_RUN_MOST_READERS = 2 * GML_RUN_MOST_NODES }; /* of one item in one tree */

/* Empty. GML_NO_HOST_MEMORY; the caller closes it either way. */
gml_status gml_run_tree_open(gml_run_tree *tree, uint32_t slots);
void gml_run_tree_close(gml_run_tree *tree);

/* The nodes of slots [begin, end); where begin >= end those of [begin, slots) and [0, end), as of a
 * wrapped item of an instance. */
void gml_run_tree_cut(const gml_run_tree *tree, uint32_t begin, uint32_t end, gml_run_cut *cut);

/* Occupies [low, high) in the slots of the cut. GML_NO_HOST_MEMORY. */
gml_status gml_run_tree_add(gml_run_tree *tree, const gml_run_cut *cut, uint64_t low,
                            uint64_t high);

/* The lists with the obstacles of an item with this cut; returns their number, at most
 * GML_RUN_MOST_READERS. */
size_t gml_run_tree_gather(const gml_run_tree *tree, const gml_run_cut *cut,
                           gml_run_reader *readers);

/* The lowest address at which `size` bytes are free in all lists, of any number of trees. Adds to
 * *visits what it cost. */
uint64_t gml_run_lowest_free(gml_run_reader *readers, size_t count, uint64_t size,
                             uint64_t *visits);

#endif
