/* The extents of the home space as a list in address order, with an index by grain. */
#ifndef GML_CORE_TILING_H
#define GML_CORE_TILING_H

#include "core/home.h"

/* Begins a tiling of one absent extent over every slot. */
gml_status gml_tiling_open(gml_home *home);
void gml_tiling_close(gml_home *home);

/* Cuts an extent in two at `offset`, strictly inside it, and returns the right part, a copy of the
 * left but for its range. Neither may be in a tree. pre: one extent is prepared. */
gml_extent *gml_tiling_split(gml_home *home, gml_extent *extent, uint64_t offset);

/* Lets `left` absorb its next neighbour, which ceases to exist. Neither may be in a tree. */
void gml_tiling_absorb(gml_home *home, gml_extent *left);

#endif
