/* Orders numbers, and sorts indices by 64-bit keys: stable, and linear in their number (radix sort,
 * least digit first).
 *
 * To sort by several keys, sort by the least one first.
 */
#ifndef GML_BASE_SORT_H
#define GML_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct gml_keyed {
    uint64_t key;
    uint64_t index;
} gml_keyed;

/* Ascending by key. `scratch` has room for `count` as well; its content is lost. */
void gml_sort_keyed(gml_keyed *items, gml_keyed *scratch, size_t count);

/* How two numbers are ordered, as qsort() asks it: below, at or above 0. */
static inline int gml_compare(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

#endif
