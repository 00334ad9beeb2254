/* The free extents that one stream may use, indexed by use.
 *
 *        |----chunk i----|----chunk i+1--|----chunk i+2--|
 *              [=head=|======whole=======|=tail=]
 *
 * A free extent that touches a chunk boundary has a head (the bytes before its first boundary: the
 * end of a chunk), whole chunks, and a tail (the bytes behind its last boundary: the start of a
 * chunk); each may be empty. A view is built from at most one head, any whole chunks, and at most
 * one tail or a part of a whole chunk, in this order, because only these pieces can lie side by
 * side under whole mappings.
 */
#ifndef GML_CORE_FREESET_H
#define GML_CORE_FREESET_H

#include "core/base_range.h"

typedef struct gml_freeset {
    gml_tree fit;       /* extents of at least least_bytes, by size */
    gml_tree heads;     /* by size of the head, then offset */
    gml_tree tails;     /* by size of the tail, then offset of the tail */
    gml_tree wholes;    /* by bytes of whole chunks, then offset of the first */
    gml_link unindexed; /* extents that are in none of these three, the oldest first */
    size_t unindexed_count;
    uint64_t
        least_bytes; /* the smallest request there is; smaller extents are parts of views only */
    uint64_t whole_bytes; /* of whole chunks, indexed or not */
    uint64_t free_bytes;  /* of every extent */
} gml_freeset;

void gml_freeset_init(gml_freeset *set, uint64_t least_bytes);

/* Brings heads, tails and wholes up to date. Most requests are served from `fit` alone, and an
 * extent that is gone before anyone stitches mostly never enters the other three: only the last
 * few added are left out of them. */
void gml_freeset_index(gml_freeset *set);

/* Called by the base range only; nothing else changes a freeset. */
void gml_freeset_add(gml_freeset *set, gml_extent *extent, const gml_base_range *range);
void gml_freeset_remove(gml_freeset *set, gml_extent *extent);

/* The extent a tree node belongs to. */
gml_extent *gml_extent_of_fit(gml_tree_node *node);
gml_extent *gml_extent_of_whole(gml_tree_node *node);

/* Every tree holds just what the extents of `range` say, and the sums agree. Linear; for checks. */
bool gml_freeset_is_valid(const gml_freeset *set, const gml_base_range *range);

#endif
