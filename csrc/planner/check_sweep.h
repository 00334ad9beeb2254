/* A placement as rectangles of time and address.
 *
 * Only for the independent check, not for placing buffers.
 */
#ifndef GML_PLANNER_CHECK_SWEEP_H
#define GML_PLANNER_CHECK_SWEEP_H

#include "base/reason.h"
#include "gmlake_plan.h"

/* A lifetime that wraps is two pieces. */
typedef struct gml_piece {
    uint64_t start, end;  /* raw times, start < end */
    uint64_t offset, top; /* [offset, top) */
    uint32_t lifetime;
} gml_piece;

typedef struct gml_sweep {
    gml_piece *pieces;
    size_t count;
} gml_sweep;

/* pre: gml_problem_check() passed, and no lifetime ends above UINT64_MAX. GML_NO_HOST_MEMORY. To be
 * closed in every case. */
gml_status gml_sweep_open(gml_sweep *sweep, const gml_problem *problem, const uint64_t *offsets);
void gml_sweep_close(gml_sweep *sweep);

/* Numbers 0 to count - 1 sorted by keys[number], ties by number. GML_NO_HOST_MEMORY. */
gml_status gml_sweep_sort(const uint64_t *keys, size_t count, uint32_t *order);

#endif
