/* Which parts of a range of addresses are in use: the guard of planned addresses.
 *
 * The range is cut into cells (chunks). Two bits tell whether a cell is free, wholly used, or has a
 * bitmap of its lines of 512 bytes. So a test or change costs at most 2 bitmaps, at the ends, and a
 * word for 64 cells in between, whatever lies in the range, and there is no search and no tree.
 */
#ifndef GML_PLAN_OCCUPANCY_H
#define GML_PLAN_OCCUPANCY_H

#include "gmlake.h"

/* The lines of a cell that is used in part, or was. */
typedef struct gml_cell {
    uint64_t *lines;     /* bits; NULL until a part of the cell was first prepared */
    uint64_t used_lines; /* 0, and no bit is set, unless the cell is in `partial` */
} gml_cell;

typedef struct gml_occupancy {
    uint64_t cell_bytes; /* a multiple of 512, at most 1 TiB */
    uint64_t cell_count; /* grows on demand */
    gml_cell *cells;
    uint64_t *used;    /* bit by cell: something in it is used */
    uint64_t *partial; /* bit by cell, of those: its lines tell what; else all of it is */
    uint64_t used_bytes;
    unsigned cell_shift; /* of cell_bytes where it is a power of two; else 0 */
} gml_occupancy;

void gml_occupancy_init(gml_occupancy *occupancy, uint64_t cell_bytes);
void gml_occupancy_close(gml_occupancy *occupancy);

/* Makes sure that marking [offset, offset + size) cannot fail. GML_NO_HOST_MEMORY. */
gml_status gml_occupancy_prepare(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes);

/* Whether all of it is free; what lies behind the last cell is. Multiples of 512. */
bool gml_occupancy_is_free(const gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes);

/* pre: this range was prepared; free (take) or used (give) as a whole. */
void gml_occupancy_take(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes);
void gml_occupancy_give(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes);

/* The next free run at or behind `offset` and below `limit`, cut off there; false: there is none.
 * Multiples of 512. */
bool gml_occupancy_next_free(const gml_occupancy *occupancy, uint64_t offset, uint64_t limit,
                             uint64_t *out_offset, uint64_t *out_bytes);

/* Nothing in the cell is used. */
bool gml_occupancy_is_cell_free(const gml_occupancy *occupancy, uint64_t cell);

#endif
