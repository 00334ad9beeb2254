/* A set of stamps, at most one per stream. Most hold one, without memory of their own. */
#ifndef GML_HOOKS_RACE_STAMPS_H
#define GML_HOOKS_RACE_STAMPS_H

#include "hooks/race_order.h"

/* A zeroed set is empty. */
typedef struct gml_stamps {
    gml_stamp first;
    gml_stamp *more; /* those behind the first */
    size_t count, more_room;
} gml_stamps;

void gml_stamps_clear(gml_stamps *set);

static inline gml_stamp *gml_stamps_at(gml_stamps *set, size_t index) {
    return index ? &set->more[index - 1] : &set->first;
}

/* The stamp of the stream, or NULL. */
gml_stamp *gml_stamps_find(gml_stamps *set, size_t stream);

/* Adds a stamp of the stream, of time 0, if the set has none; false without host memory. */
bool gml_stamps_add(gml_stamps *set, size_t stream);

#endif
