/* By slot, a lower bound on the top of its live items: their sum plus the gaps.
 *
 * In blocks, so that raising many slots at once costs little.
 */
#ifndef GML_PLANNER_TOPS_H
#define GML_PLANNER_TOPS_H

#include "gmlake.h"

#include <stddef.h>
#include <stdint.h>

enum { GML_TOPS_BLOCK = 64 };

typedef struct gml_tops_block {
    uint64_t raised; /* to be added to every slot of the block */
    uint64_t most;   /* of the block, with that */
} gml_tops_block;

typedef struct gml_tops {
    uint32_t slots;
    uint64_t *by_slot; /* without what its block was raised */
    gml_tops_block *blocks;
} gml_tops;

/* GML_NO_HOST_MEMORY. All are 0. */
gml_status gml_tops_open(gml_tops *tops, uint32_t slots);
void gml_tops_close(gml_tops *tops);

/* NULL: all 0. */
void gml_tops_reset(gml_tops *tops, const uint64_t *by_slot);

/* Raises [begin, end); whether any of them is above `limit` then, if none was before. */
bool gml_tops_raise(gml_tops *tops, uint32_t begin, uint32_t end, uint64_t by, uint64_t limit);

#endif
