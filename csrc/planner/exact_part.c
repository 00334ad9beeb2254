/* The items of an exact search, and its parts: which slots they need, and in which order items are
 * tried. */
#include "base/sort.h"
#include "planner/exact.h"

#include <stdlib.h>
#include <string.h>

typedef struct ranked_item {
    double keys[GML_EXACT_RANKING_KEYS];
    uint32_t item, begin, end; /* slots of the part */
} ranked_item;

/* ---- items ----------------------------------------------------------------------------------- */

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

uint64_t gml_exact_unit(const gml_instance *instance) {
    uint64_t unit = 0;
    for (size_t i = 0; i < instance->count; i++) {
        unit = greatest_common_divisor(instance->sizes[i], unit);
    }
    return unit ? unit : 1;
}

/* More than all sizes together is never needed. */
static uint64_t useful_capacity(const gml_instance *instance, uint64_t capacity_bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < instance->count && sum < capacity_bytes; i++) {
        sum += instance->sizes[i];
    }
    return sum < capacity_bytes ? sum : capacity_bytes;
}

static int compare_items(const void *left, const void *right) {
    const gml_exact_item *a = left, *b = right;
    int order = gml_compare(a->begin, b->begin);
    order = order ? order : gml_compare(a->end, b->end);
    order = order ? order : gml_compare(a->size, b->size);
    order = order ? order : (a->life > b->life) - (a->life < b->life);
    return order ? order : gml_compare(a->original, b->original);
}

gml_status gml_exact_space_open(gml_exact_space *space, const gml_instance *instance,
                                uint64_t capacity_bytes) {
    size_t count = instance->count, slots = instance->slots;
    uint64_t unit = gml_exact_unit(instance);
    uint64_t capacity = useful_capacity(instance, capacity_bytes) / unit;
    *space = (gml_exact_space){.count = (uint32_t)count,
                               .slots = instance->slots,
                               .unit_bytes = unit,
                               .capacity = (uint32_t)capacity};
    if (capacity >= UINT32_MAX) {
        return GML_UNSUPPORTED;
    }
    space->items = calloc(count + 1, sizeof *space->items);
    space->slot_count = calloc(slots + 1, sizeof *space->slot_count);
    space->slot_sum = calloc(slots + 1, sizeof *space->slot_sum);
    space->raised = calloc(count + 1, sizeof *space->raised);
    space->sorting = malloc((count + 1) * sizeof(ranked_item));
    if (!space->items || !space->slot_count || !space->slot_sum || !space->raised ||
        !space->sorting) {
        return GML_NO_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        space->items[i] = (gml_exact_item){.size = (uint32_t)(instance->sizes[i] / unit),
                                           .begin = instance->begin[i],
                                           .end = instance->end[i],
                                           .original = i,
                                           .life = (double)instance->life[i]};
    }
    qsort(space->items, count, sizeof *space->items, compare_items);
    return GML_OK;
}

void gml_exact_space_close(gml_exact_space *space) {
    free(space->items);
    free(space->slot_count);
    free(space->slot_sum);
    free(space->raised);
    free(space->sorting);
    *space = (gml_exact_space){0};
}

/* ---- slots: those of all items, without the ones that lie inside of others ------------------- */

typedef struct slot_map {
    uint32_t first, width; /* the range of all items' slots that the part takes */
    uint32_t *number;      /* by slot of that range: the slot of the part */
    uint32_t slots;
} slot_map;

enum { BEGINS = 1, ENDS = 2 };

/* A slot that is worth keeping begins where an item begins after another has ended. */
static slot_map map_slots(gml_exact_space *space, const uint32_t *members, uint32_t count) {
    uint32_t first = UINT32_MAX, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        const gml_exact_item *item = &space->items[members[i]];
        first = item->begin < first ? item->begin : first;
        end = item->end > end ? item->end : end;
    }
    slot_map map = {.first = first, .width = end - first, .number = space->slot_count};
    memset(map.number, 0, (map.width + 1) * sizeof *map.number);
    for (uint32_t i = 0; i < count; i++) {
        map.number[space->items[members[i]].begin - first] |= BEGINS;
        map.number[space->items[members[i]].end - first] |= ENDS;
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

/* ---- ranks ----------------------------------------------------------------------------------- */

static int compare_ranked(const void *left, const void *right) {
    const ranked_item *a = left, *b = right;
    for (unsigned key = 0; key < GML_EXACT_RANKING_KEYS; key++) {
        if (a->keys[key] != b->keys[key]) {
            return a->keys[key] > b->keys[key] ? -1 : 1;
        }
    }
    return (a->item > b->item) - (a->item < b->item);
}

static double key_of(const gml_exact_space *space, gml_exact_key key, const ranked_item *ranked) {
    const gml_exact_item *item = &space->items[ranked->item];
    uint32_t largest = 0;
    switch (key) {
    case GML_EXACT_LIFE:
        return item->life;
    case GML_EXACT_AREA:
        return item->life * item->size;
    case GML_EXACT_SIZE:
        return item->size;
    case GML_EXACT_CONTENTION:
    default:
        for (uint32_t slot = ranked->begin; slot < ranked->end; slot++) {
            largest = space->slot_sum[slot] > largest ? space->slot_sum[slot] : largest;
        }
        return largest;
    }
}

/* The members as the strategy ranks them, in space->sorting. */
static const ranked_item *rank(gml_exact_space *space, const slot_map *map, const uint32_t *members,
                               uint32_t count) {
    ranked_item *ranked = space->sorting;
    memset(space->slot_sum, 0, map->slots * sizeof *space->slot_sum);
    for (uint32_t i = 0; i < count; i++) {
        const gml_exact_item *item = &space->items[members[i]];
        ranked[i] = (ranked_item){.item = members[i],
                                  .begin = map->number[item->begin - map->first],
                                  .end = map->number[item->end - map->first - 1] + 1};
        for (uint32_t slot = ranked[i].begin; slot < ranked[i].end; slot++) {
            space->slot_sum[slot] += item->size;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        for (unsigned k = 0; k < GML_EXACT_RANKING_KEYS; k++) {
            ranked[i].keys[k] = key_of(space, space->strategy.ranking[k], &ranked[i]);
        }
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    return ranked;
}

/* ---- parts ----------------------------------------------------------------------------------- */

bool gml_exact_part_make(gml_exact_space *space, const uint32_t *members, uint32_t count,
                         gml_exact_part *part) {
    slot_map map = map_slots(space, members, count);
    free(part->item);
    uint32_t *numbers = malloc(4 * (size_t)count * sizeof *numbers);
    *part = (gml_exact_part){.item = numbers};
    if (!numbers) {
        return false;
    }
    *part = (gml_exact_part){
        .count = count,
        .slots = map.slots,
        .item = numbers,
        .size = numbers + count,
        .begin = numbers + 2 * (size_t)count,
        .end = numbers + 3 * (size_t)count,
    };
    const ranked_item *ranked = rank(space, &map, members, count);
    for (uint32_t i = 0; i < count; i++) {
        part->item[i] = ranked[i].item;
        part->size[i] = space->items[ranked[i].item].size;
        part->begin[i] = ranked[i].begin;
        part->end[i] = ranked[i].end;
    }
    return true;
}
