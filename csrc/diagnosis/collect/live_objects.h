/* The live objects of a device, by address. A caller holds the collector's lock. */
#ifndef GML_DIAGNOSE_COLLECT_LIVE_OBJECTS_H
#define GML_DIAGNOSE_COLLECT_LIVE_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gml_live_object {
    uint64_t address, size_bytes;
    uint64_t serial;  /* no two objects of a program have the same */
    bool is_in_a_map; /* of one that a parameter points to: it may be a tensor map */
} gml_live_object;

/* Sorted by address. Insertion moves the objects above: a cudaMalloc costs more than that. */
typedef struct gml_live {
    gml_live_object *objects;
    size_t count, capacity;
    uint64_t serial;
} gml_live;

/* False without host memory. pre: no live object overlaps. */
bool gml_live_add(gml_live *live, uint64_t address, uint64_t size_bytes);

/* False if no live object begins at the address. */
bool gml_live_remove(gml_live *live, uint64_t address);

/* The object that holds the address, or NULL. */
const gml_live_object *gml_live_find(const gml_live *live, uint64_t address);

/* The first object with a byte in the range, or NULL. */
const gml_live_object *gml_live_find_in(const gml_live *live, uint64_t address,
                                        uint64_t size_bytes);

#endif
