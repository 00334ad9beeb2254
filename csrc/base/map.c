/* The hash table behind gml_map. */
#include "base/map.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 64 };

static size_t slot_of(const gml_map *map, uint64_t key) {
    /* Fibonacci hashing: the highest bits of the product depend on every bit of the key. */
    int bits = __builtin_ctzll(map->capacity);
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - bits));
}

static void place(gml_map *map, uint64_t key, void *value) {
    size_t at = slot_of(map, key);
    while (map->slots[at].key) {
        at = (at + 1) & (map->capacity - 1);
    }
    map->slots[at] = (gml_map_slot){key, value};
}

gml_status gml_map_reserve(gml_map *map, size_t extra) {
    size_t capacity = map->capacity ? map->capacity : FIRST_CAPACITY;
    while ((map->count + extra) > capacity / 4 * 3) {
        capacity *= 2;
    }
    if (capacity == map->capacity) {
        return GML_OK;
    }
    gml_map grown = {calloc(capacity, sizeof *grown.slots), capacity, map->count};
    if (!grown.slots) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < map->capacity; i++) {
        if (map->slots[i].key) {
            place(&grown, map->slots[i].key, map->slots[i].value);
        }
    }
    free(map->slots);
    *map = grown;
    return GML_OK;
}

gml_status gml_map_insert(gml_map *map, uint64_t key, void *value) {
    gml_status status = gml_map_reserve(map, 1);
    if (status == GML_OK) {
        place(map, key, value);
        map->count++;
    }
    return status;
}

/* The slot that holds `key`, or NULL. */
static gml_map_slot *find_slot(const gml_map *map, uint64_t key) {
    if (!map->capacity || !key) {
        return NULL;
    }
    size_t at = slot_of(map, key);
    while (map->slots[at].key) {
        if (map->slots[at].key == key) {
            return &map->slots[at];
        }
        at = (at + 1) & (map->capacity - 1);
    }
    return NULL;
}

void *gml_map_find(const gml_map *map, uint64_t key) {
    const gml_map_slot *slot = find_slot(map, key);
    return slot ? slot->value : NULL;
}

void *gml_map_take(gml_map *map, uint64_t key) {
    gml_map_slot *slot = find_slot(map, key);
    if (!slot) {
        return NULL;
    }
    void *value = slot->value;
    size_t mask = map->capacity - 1;
    size_t hole = (size_t)(slot - map->slots);
    for (size_t at = (hole + 1) & mask; map->slots[at].key; at = (at + 1) & mask) {
        size_t home = slot_of(map, map->slots[at].key);
        /* An entry may fill the hole if that does not put it before its home slot. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            map->slots[hole] = map->slots[at];
            hole = at;
        }
    }
    map->slots[hole] = (gml_map_slot){0, NULL};
    map->count--;
    return value;
}

void gml_map_clear(gml_map *map) {
    free(map->slots);
    *map = (gml_map){0};
}
