/* A set of numbers below a fixed bound, with the neighbours of any number in a few instructions.
 *
 * A bitmap with a bitmap of its non-empty words above it, and so on: a tree of degree 64.
 */
#ifndef GML_BASE_NUMBER_SET_H
#define GML_BASE_NUMBER_SET_H

#include "gmlake.h"

#define GML_NO_MEMBER SIZE_MAX

enum { GML_SET_LEVELS = 6 }; /* 64^6 numbers are more than any machine holds */

typedef struct gml_number_set {
    uint64_t *levels[GML_SET_LEVELS];
    size_t words[GML_SET_LEVELS];
    unsigned level_count;
} gml_number_set;

/* An empty set of numbers below `bound`. GML_NO_HOST_MEMORY. */
gml_status gml_number_set_open(gml_number_set *set, size_t bound);
void gml_number_set_close(gml_number_set *set); /* also after a failed open, or of a zeroed one */

void gml_number_set_add(gml_number_set *set, size_t number);
void gml_number_set_remove(gml_number_set *set, size_t number);
bool gml_number_set_has(const gml_number_set *set, size_t number);

/* The least member not below `number`, and the greatest not above it; or GML_NO_MEMBER. */
size_t gml_number_set_from(const gml_number_set *set, size_t number);
size_t gml_number_set_upto(const gml_number_set *set, size_t number);

#endif
