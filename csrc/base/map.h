/* A hash map from non-zero 64-bit keys to pointers: live blocks by address, handles by number.
 *
 * Open addressing with linear probing and backward-shift deletion, so that a removal leaves no
 * tombstone and look-ups stay short however long the map lives. At most three quarters full.
 */
#ifndef GML_BASE_MAP_H
#define GML_BASE_MAP_H

#include "gmlake.h"

typedef struct gml_map_slot {
    uint64_t key; /* 0: empty */
    void *value;
} gml_map_slot;

typedef struct gml_map {
    gml_map_slot *slots;
    size_t capacity; /* a power of two, or 0 before the first insertion */
    size_t count;
} gml_map;

/* Makes sure that the next `extra` insertions cannot fail. */
gml_status gml_map_reserve(gml_map *map, size_t extra);

/* pre: key is not 0 and not in the map. GML_NO_HOST_MEMORY leaves the map as it was. */
gml_status gml_map_insert(gml_map *map, uint64_t key, void *value);

/* The value, or NULL. */
void *gml_map_find(const gml_map *map, uint64_t key);

/* Removes the key and returns its value; NULL if it was not there. */
void *gml_map_take(gml_map *map, uint64_t key);

/* Frees the slots, not what the values point to. */
void gml_map_clear(gml_map *map);

#endif
