/* The four orders in which free extents are kept. */
#include "core/freeset.h"

#include <stddef.h>

/* Extents that are not indexed yet at most: a bound on what one gml_freeset_index() takes. */
enum { MOST_UNINDEXED = 64 };

/* The parts of an extent, as offsets: [offset, head_end) [head_end, tail_begin) [tail_begin, end).
 * An extent inside one chunk that reaches neither of its boundaries has no parts. */
typedef struct parts {
    uint64_t head_bytes, whole_bytes, tail_bytes;
    uint64_t whole_offset, tail_offset;
} parts;

static parts parts_of(const gml_extent *extent, const gml_base_range *range) {
    uint64_t end = extent->offset + extent->size_bytes;
    uint64_t first = gml_base_range_boundary(range, extent->offset);
    uint64_t last = gml_base_range_chunk_begin(range, end);
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

void gml_freeset_init(gml_freeset *set, uint64_t least_bytes) {
    *set = (gml_freeset){.least_bytes = least_bytes};
    gml_list_init(&set->unindexed);
}

static gml_extent *of_unindexed(gml_link *link) {
    return (gml_extent *)(void *)((char *)link - offsetof(gml_extent, unindexed));
}

/* A part of no bytes is in no tree. */
static void change_part(gml_tree *tree, gml_tree_node *node,
                        void (*change)(gml_tree *, gml_tree_node *)) {
    if (node->size_bytes) {
        change(tree, node);
    }
}

static void change_parts(gml_freeset *set, gml_extent *extent,
                         void (*change)(gml_tree *, gml_tree_node *)) {
    change_part(&set->heads, &extent->head, change);
    change_part(&set->wholes, &extent->whole, change);
    change_part(&set->tails, &extent->tail, change);
}

static void index_first(gml_freeset *set) {
    gml_extent *extent = of_unindexed(set->unindexed.next);
    gml_list_remove(&extent->unindexed);
    set->unindexed_count--;
    change_parts(set, extent, gml_tree_insert);
    extent->is_indexed = true;
}

void gml_freeset_index(gml_freeset *set) {
    while (!gml_list_is_empty(&set->unindexed)) {
        index_first(set);
    }
}

void gml_freeset_add(gml_freeset *set, gml_extent *extent, const gml_base_range *range) {
    parts found = parts_of(extent, range);
    extent->fit.size_bytes = extent->size_bytes;
    extent->fit.address = extent->offset;
    extent->head.size_bytes = found.head_bytes;
    extent->head.address = extent->offset;
    extent->whole.size_bytes = found.whole_bytes;
    extent->whole.address = found.whole_offset;
    extent->tail.size_bytes = found.tail_bytes;
    extent->tail.address = found.tail_offset;
    extent->is_indexed = false;
    if (extent->size_bytes >= set->least_bytes) {
        gml_tree_insert(&set->fit, &extent->fit);
    }
    gml_list_append(&set->unindexed, &extent->unindexed);
    set->unindexed_count++;
    set->whole_bytes += found.whole_bytes;
    set->free_bytes += extent->size_bytes;
    if (set->unindexed_count > MOST_UNINDEXED) {
        index_first(set);
    }
}

void gml_freeset_remove(gml_freeset *set, gml_extent *extent) {
    set->whole_bytes -= extent->whole.size_bytes;
    set->free_bytes -= extent->size_bytes;
    if (extent->size_bytes >= set->least_bytes) {
        gml_tree_remove(&set->fit, &extent->fit);
    }
    if (extent->is_indexed) {
        change_parts(set, extent, gml_tree_remove);
    } else {
        gml_list_remove(&extent->unindexed);
        set->unindexed_count--;
    }
}

gml_extent *gml_extent_of_fit(gml_tree_node *node) {
    return (gml_extent *)(void *)((char *)node - offsetof(gml_extent, fit));
}

gml_extent *gml_extent_of_whole(gml_tree_node *node) {
    return (gml_extent *)(void *)((char *)node - offsetof(gml_extent, whole));
}

/* The totals a freeset should have, counted from its extents. */
typedef struct tally {
    size_t fit, heads, wholes, tails;
    uint64_t whole_bytes, free_bytes;
} tally;

/* Counts one extent; false if its nodes contradict its range. */
static bool count_extent(const gml_freeset *set, const gml_extent *extent,
                         const gml_base_range *range, tally *sum) {
    parts found = parts_of(extent, range);
    sum->fit += extent->size_bytes >= set->least_bytes;
    sum->heads += extent->is_indexed && found.head_bytes;
    sum->wholes += extent->is_indexed && found.whole_bytes;
    sum->tails += extent->is_indexed && found.tail_bytes;
    sum->whole_bytes += found.whole_bytes;
    sum->free_bytes += extent->size_bytes;
    return extent->head.size_bytes == found.head_bytes &&
           extent->whole.size_bytes == found.whole_bytes &&
           extent->tail.size_bytes == found.tail_bytes;
}

bool gml_freeset_is_valid(const gml_freeset *set, const gml_base_range *range) {
    tally sum = {0};
    bool is_valid = gml_tree_is_valid(&set->fit) && gml_tree_is_valid(&set->heads) &&
                    gml_tree_is_valid(&set->wholes) && gml_tree_is_valid(&set->tails);
    for (const gml_extent *extent = gml_base_range_find(range, 0); extent && is_valid;
         extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set == set) {
            is_valid = count_extent(set, extent, range, &sum);
        }
    }
    return is_valid && sum.fit == set->fit.count && sum.heads == set->heads.count &&
           sum.wholes == set->wholes.count && sum.tails == set->tails.count &&
           sum.whole_bytes == set->whole_bytes && sum.free_bytes == set->free_bytes;
}
