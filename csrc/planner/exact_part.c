#include "planner/exact_part.h"

#include <stdlib.h>
#include <string.h>

typedef struct ranked_item {
    uint64_t keys[3];
    uint32_t item;
} ranked_item;

typedef struct lowest_item {
    uint32_t low;
    uint32_t rank;
} lowest_item;

size_t
gml_exact_sorting_bytes(uint32_t count)
{
    return ((size_t)count + 1) * sizeof(ranked_item);
}

static int
compare_ranked(const void *left, const void *right)
{
    const ranked_item *a = left, *b = right;
    for (unsigned key = 0; key < 3; key++) {
        if (a->keys[key] != b->keys[key]) {
            return a->keys[key] > b->keys[key] ? -1 : 1;
        }
    }
    return (a->item > b->item) - (a->item < b->item);
}

static int
compare_low(const void *left, const void *right)
{
    const lowest_item *a = left, *b = right;
    if (a->low != b->low) {
        return a->low > b->low ? 1 : -1;
    }
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* ---- slots: those of all items, without the ones that lie inside of others ------------------- */

typedef struct slot_map {
    uint32_t first, width; /* the range of all items' slots that the part takes */
    uint32_t *number;      /* by slot of that range: the slot of the part */
    uint32_t slots;
} slot_map;

static slot_map
range_of(const gml_exact_items *items, const uint32_t *members, uint32_t count)
{
    uint32_t first = UINT32_MAX, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t item = members[i];
        first = items->begin[item] < first ? items->begin[item] : first;
        end = items->end[item] > end ? items->end[item] : end;
    }
    return (slot_map){.first = first, .width = end - first};
}

enum { BEGINS = 1, ENDS = 2 };

/* A slot that is worth keeping begins where an item begins after another has ended. */
static slot_map
map_slots(gml_exact_space *space, const uint32_t *members, uint32_t count)
{
    const gml_exact_items *items = &space->items;
    slot_map map = range_of(items, members, count);
    map.number = space->slot_count;
    memset(map.number, 0, (map.width + 1) * sizeof *map.number);
    for (uint32_t i = 0; i < count; i++) {
        map.number[items->begin[members[i]] - map.first] |= BEGINS;
        map.number[items->end[members[i]] - map.first] |= ENDS;
    }
    bool has_ended = false;
    uint32_t slot = 0;
    for (uint32_t i = 0; i < map.width; i++) {
        uint32_t events = map.number[i];
        has_ended = has_ended || (events & ENDS);
        if (has_ended && (events & BEGINS)) {
            slot++;
            has_ended = false;
        }
        map.number[i] = slot;
    }
    map.slots = slot + 1;
    return map;
}

static uint32_t
begin_in(const slot_map *map, const gml_exact_items *items, uint32_t item)
{
    return map->number[items->begin[item] - map->first];
}

static uint32_t
end_in(const slot_map *map, const gml_exact_items *items, uint32_t item)
{
    return map->number[items->end[item] - map->first - 1] + 1;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void
sum_slots(const gml_exact_items *items, const slot_map *map, const uint32_t *members,
          uint32_t count, uint32_t *sums)
{
    memset(sums, 0, map->slots * sizeof *sums);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t end = end_in(map, items, members[i]);
        for (uint32_t slot = begin_in(map, items, members[i]); slot < end; slot++) {
            sums[slot] += items->size[members[i]];
        }
    }
}

static uint32_t
contention(const gml_exact_items *items, const slot_map *map, const uint32_t *sums, uint32_t item)
{
    uint32_t largest = 0;
    uint32_t end = end_in(map, items, item);
    for (uint32_t slot = begin_in(map, items, item); slot < end; slot++) {
        largest = sums[slot] > largest ? sums[slot] : largest;
    }
    return largest;
}

static void
rank(gml_exact_space *space, const slot_map *map, uint32_t *members, uint32_t count)
{
    const gml_exact_items *items = &space->items;
    uint32_t *sums = space->slot_count + items->slots + 1;
    sum_slots(items, map, members, count, sums);
    ranked_item *ranked = space->sorting;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t item = members[i];
        ranked[i].item = item;
        for (unsigned k = 0; k < 3; k++) {
            gml_exact_key key = space->ranking[k];
            ranked[i].keys[k] = key == GML_EXACT_CONTENTION ? contention(items, map, sums, item)
                                                            : items->keys[key][item];
        }
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (uint32_t i = 0; i < count; i++) {
        members[i] = ranked[i].item;
    }
}

/* ---- parts ----------------------------------------------------------------------------------- */

static gml_exact_part *
reserve(gml_arena *arena, uint32_t count, uint32_t slots)
{
    gml_exact_part *part = gml_arena_take(arena, sizeof *part);
    uint32_t *numbers = gml_arena_take(arena, (4 * (size_t)count + slots) * sizeof *numbers);
    if (!part || !numbers) {
        return NULL;
    }
    *part = (gml_exact_part){
        .count = count,
        .slots = slots,
        .item = numbers,
        .size = numbers + count,
        .begin = numbers + 2 * (size_t)count,
        .end = numbers + 3 * (size_t)count,
        .origin = numbers + 4 * (size_t)count,
    };
    return part;
}

const gml_exact_part *
gml_exact_part_make(gml_exact_space *space, uint32_t *members, uint32_t count)
{
    const gml_exact_items *items = &space->items;
    slot_map map = map_slots(space, members, count);
    gml_exact_part *part = reserve(&space->arena, count, map.slots);
    if (!part) {
        return NULL;
    }
    rank(space, &map, members, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t item = members[i];
        part->item[i] = item;
        part->size[i] = items->size[item];
        part->begin[i] = begin_in(&map, items, item);
        part->end[i] = end_in(&map, items, item);
    }
    for (uint32_t i = map.width; i-- > 0;) {
        part->origin[map.number[i]] = map.first + i;
    }
    return part;
}

void
gml_exact_order(gml_exact_space *space, gml_exact_node *node)
{
    lowest_item *sorted = space->sorting;
    for (uint32_t i = 0; i < node->unplaced; i++) {
        sorted[i] = (lowest_item){node->low[node->order[i]], node->order[i]};
    }
    qsort(sorted, node->unplaced, sizeof *sorted, compare_low);
    for (uint32_t i = 0; i < node->unplaced; i++) {
        node->order[i] = (uint16_t)sorted[i].rank;
    }
}
