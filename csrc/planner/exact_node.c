/* Nodes of the exact search: the bounds of each slot, and their update when an item is placed. */
#include "planner/exact.h"

#include <stdlib.h>
#include <string.h>

/* ---- slots ----------------------------------------------------------------------------------- */

typedef struct slot_range {
    uint32_t from, to;
} slot_range;

static slot_range slots_of(const gml_exact_part *part, uint32_t rank) {
    return (slot_range){part->begin[rank], part->end[rank]};
}

static bool do_meet(const gml_exact_part *part, uint32_t rank, slot_range range) {
    return part->begin[rank] < range.to && part->end[rank] > range.from;
}

static slot_range hull(slot_range a, slot_range b) {
    return (slot_range){a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to};
}

static slot_range overlap(slot_range a, slot_range b) {
    return (slot_range){a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
}

/* Adds an item that is not lower than those added before; the largest sum in its slots. */
static inline uint32_t stack_on_slots(gml_exact_slot *slots, slot_range range, uint32_t low,
                                      uint32_t size) {
    uint32_t largest = 0;
    for (uint32_t i = range.from; i < range.to; i++) {
        gml_exact_slot *slot = &slots[i];
        if (slot->low == low) {
            slot->options++;
        } else {
            slot->next_low = slot->low;
            slot->low = low;
            slot->options = 1;
        }
        slot->remaining += size;
        largest = slot->remaining > largest ? slot->remaining : largest;
    }
    return largest;
}

/* Recomputes the bounds of the slots in `range`. For each offset, the items of a slot that cannot
 * lie below it have to fit between it and the capacity: this is the least makespan of jobs with
 * release times on one machine. */
static gml_exact_verdict look_at_slots(gml_exact_space *space, gml_exact_node *node,
                                       slot_range range) {
    const gml_exact_part *part = node->part;
    for (uint32_t i = range.from; i < range.to; i++) {
        node->slots[i] = (gml_exact_slot){GML_EXACT_NONE, GML_EXACT_NONE, 0, 0};
    }
    for (uint32_t i = node->unplaced; i-- > 0;) {
        uint32_t rank = node->order[i], low = node->low[rank];
        slot_range inside = overlap(range, slots_of(part, rank));
        if (inside.from >= inside.to) {
            continue;
        }
        uint32_t sum = stack_on_slots(node->slots, inside, low, part->size[rank]);
        space->visits += inside.to - inside.from;
        if (sum > space->capacity - low) {
            return GML_EXACT_CLOSED;
        }
    }
    return GML_EXACT_OPEN;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

typedef struct lowest_item {
    uint32_t low, rank;
} lowest_item;

static int compare_low(const void *left, const void *right) {
    const lowest_item *a = left, *b = right;
    if (a->low != b->low) {
        return a->low > b->low ? 1 : -1;
    }
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static void sort_order(gml_exact_space *space, gml_exact_node *node) {
    lowest_item *sorted = space->sorting;
    for (uint32_t i = 0; i < node->unplaced; i++) {
        sorted[i] = (lowest_item){node->low[node->order[i]], node->order[i]};
    }
    qsort(sorted, node->unplaced, sizeof *sorted, compare_low);
    for (uint32_t i = 0; i < node->unplaced; i++) {
        node->order[i] = (uint16_t)sorted[i].rank;
    }
}

static bool reserve_node(const gml_exact_part *part, uint32_t unplaced, gml_exact_node *node) {
    size_t bytes = part->slots * sizeof *node->slots + part->count * sizeof *node->low +
                   (part->slots + 1) * sizeof *node->cuts +
                   2 * (size_t)unplaced * sizeof *node->order;
    if (bytes > node->memory_bytes) {
        free(node->slots);
        node->slots = malloc(bytes);
        node->memory_bytes = node->slots ? bytes : 0;
    }
    if (!node->slots) {
        return false;
    }
    node->part = part;
    node->unplaced = unplaced;
    node->low = (uint32_t *)(node->slots + part->slots);
    node->cuts = node->low + part->count;
    node->order = (uint16_t *)(node->cuts + part->slots + 1);
    node->options = node->order + unplaced;
    return true;
}

gml_exact_verdict gml_exact_first_node(gml_exact_space *space, const gml_exact_part *part,
                                       gml_exact_node *out) {
    if (!reserve_node(part, part->count, out)) {
        return GML_EXACT_NO_MEMORY;
    }
    for (uint32_t rank = 0; rank < part->count; rank++) {
        out->low[rank] = space->items[part->item[rank]].low;
        out->order[rank] = (uint16_t)rank;
    }
    sort_order(space, out);
    space->visits += 8 * (uint64_t)part->count;
    return look_at_slots(space, out, (slot_range){0, part->slots});
}

/* The order stays sorted: all raised items move to `top`. Returns the slots that change. */
static slot_range raise_neighbours(gml_exact_space *space, const gml_exact_node *parent,
                                   uint32_t rank, gml_exact_node *child, bool *is_felt) {
    uint32_t top = parent->low[rank] + parent->part->size[rank];
    const gml_exact_part *part = parent->part;
    slot_range placed = slots_of(part, rank), changed = placed;
    uint32_t kept = 0, raised = 0, i = 0;
    for (; i < parent->unplaced && parent->low[parent->order[i]] < top; i++) {
        uint16_t other = parent->order[i];
        if (other == rank) {
            continue;
        }
        if (do_meet(part, other, placed)) {
            space->raised[raised++] = other;
            child->low[other] = top;
            changed = hull(changed, slots_of(part, other));
        } else {
            child->order[kept++] = other;
        }
    }
    memcpy(child->order + kept, space->raised, raised * sizeof *child->order);
    memcpy(child->order + kept + raised, parent->order + i,
           (parent->unplaced - i) * sizeof *child->order);
    *is_felt = raised > 0;
    return changed;
}

gml_exact_verdict gml_exact_place(gml_exact_space *space, const gml_exact_node *parent,
                                  uint32_t rank, gml_exact_node *out, bool *is_felt) {
    const gml_exact_part *part = parent->part;
    if (!reserve_node(part, parent->unplaced, out)) {
        return GML_EXACT_NO_MEMORY;
    }
    out->unplaced = parent->unplaced - 1;
    memcpy(out->low, parent->low, part->count * sizeof *out->low);
    memcpy(out->slots, parent->slots, part->slots * sizeof *out->slots);
    slot_range changed = raise_neighbours(space, parent, rank, out, is_felt);
    out->low[rank] = GML_EXACT_NONE;
    space->visits += parent->unplaced;
    return look_at_slots(space, out, changed);
}

/* The least top of an item that is not placed and can be below `rank`. */
static uint32_t least_support(const gml_exact_node *node, uint32_t rank) {
    const gml_exact_part *part = node->part;
    slot_range range = slots_of(part, rank);
    uint32_t least = GML_EXACT_NONE;
    for (uint32_t i = 0; i < node->unplaced && node->low[node->order[i]] < least; i++) {
        uint32_t other = node->order[i];
        uint32_t top = node->low[other] + part->size[other];
        if (other != rank && top < least && do_meet(part, other, range)) {
            least = top;
        }
    }
    return least;
}

gml_exact_verdict gml_exact_raise(gml_exact_space *space, gml_exact_node *node,
                                  const uint16_t *ranks, uint32_t count) {
    const gml_exact_part *part = node->part;
    slot_range changed = slots_of(part, ranks[0]);
    uint32_t *support = space->sorting;
    for (uint32_t i = 0; i < count; i++) {
        support[i] = least_support(node, ranks[i]);
        changed = hull(changed, slots_of(part, ranks[i]));
        if (support[i] == GML_EXACT_NONE || part->size[ranks[i]] > space->capacity - support[i]) {
            return GML_EXACT_CLOSED;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        node->low[ranks[i]] = support[i];
    }
    sort_order(space, node);
    space->visits += (uint64_t)node->unplaced * (count + 8);
    return look_at_slots(space, node, changed);
}
