/* A tree of ranges by address. */
#include "driver/ranges.h"

#include "base/rounding.h"

void gml_ranges_init(gml_ranges *ranges, gml_address begin, gml_address end) {
    ranges->objects.object_bytes = sizeof(gml_range);
    ranges->begin = ranges->next = begin;
    ranges->end = end;
}

void gml_ranges_clear(gml_ranges *ranges) {
    gml_pool_clear(&ranges->objects);
}

gml_range *gml_ranges_at(const gml_ranges *ranges, gml_address address) {
    gml_tree_node *node = gml_tree_at_least(&ranges->tree, 0, address);
    if (!node || node->address != address) {
        node = node ? gml_tree_previous(node) : gml_tree_last(&ranges->tree);
    }
    gml_range *below = (gml_range *)(void *)node;
    return below && address - below->node.address < below->size_bytes ? below : NULL;
}

/* A range that overlaps, or NULL. */
static const gml_range *obstacle_in(const gml_ranges *ranges, gml_address address,
                                    uint64_t size_bytes) {
    const gml_range *at = gml_ranges_at(ranges, address);
    const gml_tree_node *above = at ? NULL : gml_tree_at_least(&ranges->tree, 0, address);
    bool is_above = above && above->address - address < size_bytes;
    return is_above ? (const gml_range *)(const void *)above : at;
}

bool gml_ranges_is_hole(const gml_ranges *ranges, gml_address address, uint64_t size_bytes) {
    return address != 0 && size_bytes <= UINT64_MAX - address &&
           !obstacle_in(ranges, address, size_bytes);
}

/* The same from `start` on. */
static gml_address find_from(const gml_ranges *ranges, gml_address start, uint64_t size_bytes,
                             uint64_t alignment_bytes) {
    const gml_range *obstacle = NULL;
    do {
        start = obstacle ? obstacle->node.address + obstacle->size_bytes : start;
        start = gml_round_up(start, alignment_bytes);
        if (size_bytes > ranges->end - ranges->begin || start > ranges->end - size_bytes) {
            return 0;
        }
        obstacle = obstacle_in(ranges, start, size_bytes);
    } while (obstacle);
    return start;
}

gml_address gml_ranges_find_hole(const gml_ranges *ranges, uint64_t size_bytes,
                                 uint64_t alignment_bytes) {
    gml_address found = find_from(ranges, ranges->next, size_bytes, alignment_bytes);
    return found ? found : find_from(ranges, ranges->begin, size_bytes, alignment_bytes);
}

void gml_ranges_remove(gml_ranges *ranges, gml_range *range) {
    gml_tree_remove(&ranges->tree, &range->node);
    gml_pool_give(&ranges->objects, range);
}
