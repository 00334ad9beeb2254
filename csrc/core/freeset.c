/* The four orders in which free extents are kept. */
#include "core/freeset.h"

#include <stddef.h>

/* The parts of an extent, as offsets: [offset, head_end) [head_end, tail_begin) [tail_begin, end).
 * An extent inside one chunk that reaches neither of its boundaries has no parts. */
typedef struct parts {
    uint64_t head_bytes, whole_bytes, tail_bytes;
    uint64_t whole_offset, tail_offset;
} parts;

static parts
parts_of(const gml_extent *extent, uint64_t chunk_bytes)
{
    uint64_t end = extent->offset + extent->size_bytes;
    uint64_t first = (extent->offset + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
    uint64_t last = end / chunk_bytes * chunk_bytes;
    if (first > last) {
        return (parts){0};
    }
    return (parts){
        .head_bytes = first - extent->offset,
        .whole_bytes = last - first,
        .tail_bytes = end - last,
        .whole_offset = first,
        .tail_offset = last,
    };
}

/* A part of no bytes is in no tree, and its node says so. */
static void
add_part(gml_tree *tree, gml_tree_node *node, uint64_t size_bytes, uint64_t offset)
{
    node->size_bytes = size_bytes;
    node->address = offset;
    if (size_bytes) {
        gml_tree_insert(tree, node);
    }
}

static void
remove_part(gml_tree *tree, gml_tree_node *node)
{
    if (node->size_bytes) {
        gml_tree_remove(tree, node);
        node->size_bytes = 0;
    }
}

void
gml_freeset_add(gml_freeset *set, gml_extent *extent, uint64_t chunk_bytes)
{
    parts found = parts_of(extent, chunk_bytes);
    add_part(&set->fit, &extent->fit, extent->size_bytes, extent->offset);
    add_part(&set->heads, &extent->head, found.head_bytes, extent->offset);
    add_part(&set->wholes, &extent->whole, found.whole_bytes, found.whole_offset);
    add_part(&set->tails, &extent->tail, found.tail_bytes, found.tail_offset);
    set->whole_bytes += found.whole_bytes;
    set->free_bytes += extent->size_bytes;
}

void
gml_freeset_remove(gml_freeset *set, gml_extent *extent)
{
    set->whole_bytes -= extent->whole.size_bytes;
    set->free_bytes -= extent->size_bytes;
    remove_part(&set->fit, &extent->fit);
    remove_part(&set->heads, &extent->head);
    remove_part(&set->wholes, &extent->whole);
    remove_part(&set->tails, &extent->tail);
}

gml_extent *
gml_extent_of_fit(gml_tree_node *node)
{
    return (gml_extent *)(void *)((char *)node - offsetof(gml_extent, fit));
}

gml_extent *
gml_extent_of_whole(gml_tree_node *node)
{
    return (gml_extent *)(void *)((char *)node - offsetof(gml_extent, whole));
}

bool
gml_freeset_is_valid(const gml_freeset *set, uint64_t chunk_bytes)
{
    if (!gml_tree_is_valid(&set->fit) || !gml_tree_is_valid(&set->heads) ||
        !gml_tree_is_valid(&set->wholes) || !gml_tree_is_valid(&set->tails)) {
        return false;
    }
    uint64_t whole_bytes = 0, free_bytes = 0;
    size_t heads = 0, wholes = 0, tails = 0;
    for (gml_tree_node *node = gml_tree_first(&set->fit); node; node = gml_tree_next(node)) {
        const gml_extent *extent = gml_extent_of_fit(node);
        parts found = parts_of(extent, chunk_bytes);
        if (extent->kind != GML_EXTENT_FREE || extent->set != set ||
            extent->head.size_bytes != found.head_bytes ||
            extent->whole.size_bytes != found.whole_bytes ||
            extent->tail.size_bytes != found.tail_bytes) {
            return false;
        }
        heads += found.head_bytes != 0;
        wholes += found.whole_bytes != 0;
        tails += found.tail_bytes != 0;
        whole_bytes += found.whole_bytes;
        free_bytes += extent->size_bytes;
    }
    return heads == set->heads.count && wholes == set->wholes.count &&
           tails == set->tails.count && whole_bytes == set->whole_bytes &&
           free_bytes == set->free_bytes;
}
