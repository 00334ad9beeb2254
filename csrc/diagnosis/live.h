/* Live bytes after each API. Ranges of APIs gain or lose bytes; queries return the highest value.
 *
 * A tree over the APIs: a node keeps the sum added to all of its APIs at once, and the highest
 * value below it. A change is O(log n), the highest value O(1).
 */
#ifndef GML_DIAGNOSE_LIVE_H
#define GML_DIAGNOSE_LIVE_H

#include "gmlake.h"

typedef struct gml_curve_tree_node {
    int64_t highest; /* sums added here and below, without those added above */
    int64_t added;   /* to every API below */
} gml_curve_tree_node;

typedef struct gml_curve_tree {
    gml_curve_tree_node *nodes; /* the children of i are 2 * i and 2 * i + 1; the root is 1 */
    size_t leaves;              /* a power of two; the leaf of API a is leaves + a */
} gml_curve_tree;

/* `bytes` holds the live bytes after each API. The caller closes it either way. */
gml_status gml_curve_tree_open(gml_curve_tree *live, const int64_t *bytes, size_t count);
void gml_curve_tree_close(gml_curve_tree *live);

/* Adds `bytes` after the APIs from `from` to before `to`. pre: to is at most the count. */
void gml_curve_tree_add(gml_curve_tree *live, uint64_t from, uint64_t to, int64_t bytes);

/* The highest value; 0 if none is positive. */
uint64_t gml_curve_tree_highest(const gml_curve_tree *live);

#endif
