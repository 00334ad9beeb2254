/* Items not placed yet: which of those that lie inside a range of slots is the best?
 *
 * A tree over the items, whose first slots ascend, eight children to a node; a node knows of each
 * child the best rank and the earliest end below it, which lie in one cache line. The best rank is
 * the lowest number. A search goes down where both might do, the best first.
 */
#ifndef GML_PLANNER_CANDIDATES_H
#define GML_PLANNER_CANDIDATES_H

#include "gmlake.h"

#include <stddef.h>
#include <stdint.h>

enum { GML_CANDIDATE_CHILDREN = 8, GML_CANDIDATE_LEVELS = 11 };

#define GML_NO_CANDIDATE UINT32_MAX

typedef struct gml_candidate_node {
    uint32_t rank[GML_CANDIDATE_CHILDREN];
    uint32_t end[GML_CANDIDATE_CHILDREN]; /* UINT32_MAX: nothing below */
} gml_candidate_node;

typedef struct gml_candidates {
    size_t count;
    unsigned levels;
    gml_candidate_node *level[GML_CANDIDATE_LEVELS]; /* 0: one child is one item */
    size_t node_count;                               /* of all levels, which follow level[0] */
    uint32_t *first; /* by slot, and one more: the first item that starts there or later */
} gml_candidates;

/* `begin` ascends. GML_NO_HOST_MEMORY. */
gml_status gml_candidates_open(gml_candidates *candidates, size_t count, uint32_t slots,
                               const uint32_t *begin);
void gml_candidates_close(gml_candidates *candidates);

/* Puts every item with begin < end in, with its rank, each rank once and below GML_NO_CANDIDATE. */
void gml_candidates_fill(gml_candidates *candidates, const uint32_t *rank, const uint32_t *begin,
                         const uint32_t *end);

/* The best rank of what begins at `begin` or later and ends at `end` or earlier, or
 * GML_NO_CANDIDATE. Adds the nodes that it saw to *visits. */
uint32_t gml_candidates_best(const gml_candidates *candidates, uint32_t begin, uint32_t end,
                             uint64_t *visits);

/* pre: `item` is in. */
void gml_candidates_remove(gml_candidates *candidates, uint32_t item, uint64_t *visits);

#endif
