#include "planner/exact_node.h"

#include "planner/exact_part.h"

#include <stdlib.h>
#include <string.h>

/* ---- space ----------------------------------------------------------------------------------- */

static gml_status
reserve_scratch(gml_exact_space *space)
{
    size_t count = space->items.count, slots = space->items.slots;
    space->failures = calloc(slots + 1, sizeof *space->failures);
    space->low = calloc(count + 1, sizeof *space->low);
    space->slot_count = calloc(2 * slots + 2, sizeof *space->slot_count);
    space->raised = calloc(count + 1, sizeof *space->raised);
    space->sorting = malloc(gml_exact_sorting_bytes(space->items.count));
    bool is_whole =
        space->failures && space->low && space->slot_count && space->raised && space->sorting;
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

gml_status
gml_exact_space_open(gml_exact_space *space, const gml_instance *instance, uint64_t capacity_bytes)
{
    *space = (gml_exact_space){0};
    gml_status status = gml_exact_items_open(&space->items, instance, capacity_bytes);
    if (status == GML_OK) {
        status = reserve_scratch(space);
    }
    for (uint32_t slot = 0; status == GML_OK && slot < space->items.slots; slot++) {
        space->failures[slot] = 1;
    }
    return status;
}

void
gml_exact_space_close(gml_exact_space *space)
{
    gml_exact_items_close(&space->items);
    gml_arena_close(&space->arena);
    free(space->failures);
    free(space->low);
    free(space->slot_count);
    free(space->raised);
    free(space->sorting);
    *space = (gml_exact_space){0};
}

/* ---- slots ----------------------------------------------------------------------------------- */

typedef struct slot_range {
    uint32_t from, to;
} slot_range;

static slot_range
slots_of(const gml_exact_part *part, uint32_t rank)
{
    return (slot_range){part->begin[rank], part->end[rank]};
}

static bool
do_meet(const gml_exact_part *part, uint32_t rank, slot_range range)
{
    return part->begin[rank] < range.to && part->end[rank] > range.from;
}

static slot_range
hull(slot_range a, slot_range b)
{
    return (slot_range){a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to};
}

static slot_range
overlap(slot_range a, slot_range b)
{
    return (slot_range){a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to};
}

static void
count_failures(gml_exact_space *space, const gml_exact_node *node, slot_range range, uint32_t low)
{
    for (uint32_t slot = range.from; slot < range.to; slot++) {
        if (node->slots[slot].remaining > space->items.capacity - low) {
            space->failures[node->part->origin[slot]]++;
        }
    }
}

/* Adds an item that is not lower than those added before; the largest sum in its slots. */
static inline uint32_t
stack_on_slots(gml_exact_slot *slots, slot_range range, uint32_t low, uint32_t size)
{
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

/* What is known of the slots in `range`, anew. Of the items in a slot, those that are not lower
 * than some offset have to fit between it and the capacity, for each such offset: this is the least
 * top of jobs with release times on one machine. */
static gml_exact_verdict
look_at_slots(gml_exact_space *space, gml_exact_node *node, slot_range range)
{
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
        if (sum > space->items.capacity - low) {
            count_failures(space, node, inside, low);
            return GML_EXACT_CLOSED;
        }
    }
    return GML_EXACT_OPEN;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool
reserve_node(gml_exact_space *space, const gml_exact_part *part, uint32_t unplaced,
             gml_exact_node *node)
{
    node->part = part;
    node->unplaced = unplaced;
    node->slots = gml_arena_take(&space->arena, part->slots * sizeof *node->slots);
    node->low = gml_arena_take(&space->arena, part->count * sizeof *node->low);
    node->order = gml_arena_take(&space->arena, unplaced * sizeof *node->order);
    return node->slots && node->low && node->order;
}

gml_exact_verdict
gml_exact_first_node(gml_exact_space *space, uint32_t *items, uint32_t count, gml_exact_node *out)
{
    const gml_exact_part *part = gml_exact_part_make(space, items, count);
    if (!part || !reserve_node(space, part, count, out)) {
        return GML_EXACT_NO_MEMORY;
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        out->low[rank] = space->low[part->item[rank]];
        out->order[rank] = (uint16_t)rank;
    }
    gml_exact_order(space, out);
    space->visits += 8 * (uint64_t)count;
    return look_at_slots(space, out, (slot_range){0, part->slots});
}

/* The order stays sorted: what is raised goes to `top` together. The slots that change. */
static slot_range
raise_neighbours(gml_exact_space *space, const gml_exact_node *parent, uint32_t rank,
                 gml_exact_node *child, bool *is_felt)
{
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

gml_exact_verdict
gml_exact_place(gml_exact_space *space, const gml_exact_node *parent, uint32_t rank,
                gml_exact_node *out, bool *is_felt)
{
    const gml_exact_part *part = parent->part;
    if (!reserve_node(space, part, parent->unplaced, out)) {
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
static uint32_t
least_support(const gml_exact_node *node, uint32_t rank)
{
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

gml_exact_verdict
gml_exact_raise(gml_exact_space *space, gml_exact_node *node, const uint16_t *ranks, uint32_t count)
{
    const gml_exact_part *part = node->part;
    slot_range changed = slots_of(part, ranks[0]);
    uint32_t *support = space->sorting;
    for (uint32_t i = 0; i < count; i++) {
        support[i] = least_support(node, ranks[i]);
        changed = hull(changed, slots_of(part, ranks[i]));
        if (support[i] == GML_EXACT_NONE ||
            part->size[ranks[i]] > space->items.capacity - support[i]) {
            return GML_EXACT_CLOSED;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        node->low[ranks[i]] = support[i];
    }
    gml_exact_order(space, node);
    space->visits += (uint64_t)node->unplaced * (count + 8);
    return look_at_slots(space, node, changed);
}
