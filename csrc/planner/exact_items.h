/* The items of an exact search: sizes in units, so that 32 bits hold every sum, and in an order
 * that does not depend on the order of the input. */
#ifndef GML_PLANNER_EXACT_ITEMS_H
#define GML_PLANNER_EXACT_ITEMS_H

#include "planner/instance.h"

typedef enum gml_exact_key {
    GML_EXACT_LIFE,
    GML_EXACT_AREA, /* size times life */
    GML_EXACT_SIZE,
    GML_EXACT_CONTENTION, /* the largest sum of what is not placed, in the item's life */
    GML_EXACT_KEYS
} gml_exact_key;

typedef struct gml_exact_items {
    uint32_t count, slots;
    uint64_t unit_bytes; /* every size is a multiple of it */
    uint32_t capacity;   /* units */
    uint32_t *size;      /* units */
    uint32_t *begin, *end;
    uint64_t *keys[GML_EXACT_CONTENTION]; /* those that stay the same */
    uint32_t *original;                   /* the number in the instance */
    uint32_t *offset;                     /* units; of the last placement found */
} gml_exact_items;

/* GML_UNSUPPORTED where 32 bits do not hold the capacity in units; GML_NO_HOST_MEMORY. To be closed
 * in every case. pre: nothing wrapped, no slot holds more than the capacity. */
gml_status gml_exact_items_open(gml_exact_items *items, const gml_instance *instance,
                                uint64_t capacity_bytes);
void gml_exact_items_close(gml_exact_items *items);

/* What all sizes are multiples of; 1 where there are none. */
uint64_t gml_exact_unit(const gml_instance *instance);

#endif
