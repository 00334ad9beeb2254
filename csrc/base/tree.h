/* An intrusive ordered set of ranges, by (size, address): the free lists of every policy.
 *
 * A treap: a binary search tree whose shape is that of random insertion order, by priorities
 * derived from the address (Seidel and Aragon, "Randomized Search Trees", 1996). Every operation
 * is O(log n) expected, allocates nothing and cannot fail.
 */
#ifndef GML_BASE_TREE_H
#define GML_BASE_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gml_tree_node {
    struct gml_tree_node *parent, *left, *right;
    uint64_t size_bytes; /* fixed while in a tree */
    uint64_t address;    /* fixed while in a tree */
    uint32_t priority;   /* a heap: no child's is above its parent's */
} gml_tree_node;

typedef struct gml_tree {
    gml_tree_node *root;
    size_t count;
} gml_tree;

/* pre: no node of the tree has the same size and address. */
void gml_tree_insert(gml_tree *tree, gml_tree_node *node);

/* pre: `node` is in `tree`. */
void gml_tree_remove(gml_tree *tree, gml_tree_node *node);

/* The first node not below (size_bytes, address), or NULL: best fit with lowest address. */
gml_tree_node *gml_tree_at_least(const gml_tree *tree, uint64_t size_bytes, uint64_t address);

/* The first, the last, and the in-order neighbours; NULL if there is none. */
gml_tree_node *gml_tree_first(const gml_tree *tree);
gml_tree_node *gml_tree_last(const gml_tree *tree);
gml_tree_node *gml_tree_next(const gml_tree_node *node);
gml_tree_node *gml_tree_previous(const gml_tree_node *node);

/* The size of the last node, or 0. */
uint64_t gml_tree_largest(const gml_tree *tree);

/* Order, links, priorities and count agree. Linear; for checks. */
bool gml_tree_is_valid(const gml_tree *tree);

#endif
