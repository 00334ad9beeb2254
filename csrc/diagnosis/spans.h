/* The parts of an object that its accesses cover, without a bit for each byte and without a list of
 * every run.
 *
 * The object's units (bytes, or elements) are laid out on a sheet, in rows of one width, as words
 * are on a page. A range whose stride is the width is then one rectangle, two at most, however many
 * runs it has. A range without stride is three at most: the end of a row, whole rows, the beginning
 * of a row. The width is one of the strides, or the whole object, whichever reads fastest. Ranges
 * with other strides are split: into as many pieces as their stride fits into the width, or into
 * their runs.
 *
 * A sheet is read from top to bottom in bands: rows between which no rectangle begins or ends. All
 * rows of a band are equal, so one row of it represents them.
 *
 * Memory: 200 bytes for each range and for each run that is really taken apart. Time: rectangles,
 * times a logarithm, and for each band the rectangles in it: all columns of a matrix are one band,
 * the columns of a triangle a band each.
 *
 * Limits: 4 million rectangles from runs taken apart, and 64 million edges in the bands (a triangle
 * of 8,000 columns). A sheet beyond them is too_large and has no bands: its object, or one API's
 * access to it, gets no findings.
 */
#ifndef GML_DIAGNOSE_SPANS_H
#define GML_DIAGNOSE_SPANS_H

#include "base/sort.h"
#include "gmlake_diagnose.h"

/* Runs of units: as gml_access_range, but in units. */
typedef struct gml_access_span {
    uint64_t offset, size, stride, repeat;
    double weight;
    uint32_t owner;
} gml_access_span;

typedef struct gml_rectangle {
    uint64_t row, row_end;
    uint64_t column, column_end;
    double weight;
    uint32_t owner;
} gml_rectangle;

/* The sides of rectangles: their number is the index, and the key twice the column, and 1 if the
 * rectangle opens there. Of one column, those that close come first. */
static inline uint64_t gml_edge_column(const gml_keyed *edge) {
    return edge->key / 2;
}

static inline bool gml_edge_opens(const gml_keyed *edge) {
    return edge->key % 2;
}

/* Every rectangle that opens in a band closes in it. */
typedef struct gml_band {
    uint64_t row, row_end;
    const gml_keyed *edges; /* ascending */
    size_t edge_count;
} gml_band;

/* All zero: empty. */
typedef struct gml_sheet {
    uint64_t unit_bytes, unit_count;
    uint64_t width; /* units */
    bool too_large;
    gml_access_span *spans;
    size_t span_count, span_capacity;
    gml_rectangle *rectangles;
    size_t rectangle_count, rectangle_capacity;

    /* its own */
    gml_keyed *order; /* of the rectangles, by row */
    gml_keyed *edges, *other, *scratch;
    size_t edge_capacity; /* of each of the three */
    size_t begun;         /* rectangles that bands have reached */
    uint64_t edges_shown;
    gml_band band;
} gml_sheet;

/* Begins an empty sheet for an object; keeps the memory of the one before. */
void gml_sheet_start(gml_sheet *sheet, uint64_t size_bytes, uint64_t unit_bytes);

/* Adds a range: a unit counts once for each run that meets any byte of it; runs that touch are one.
 * `range` may be NULL: the whole object once. GML_NO_HOST_MEMORY. */
gml_status gml_sheet_add(gml_sheet *sheet, const gml_access_range *range, uint32_t owner);

/* Sorts the spans, so that equal ones are neighbours, by owner. */
void gml_sheet_sort(gml_sheet *sheet);
bool gml_span_is_same(const gml_access_span *a, const gml_access_span *b); /* regardless of owner */

/* Adds what an access to the sheet's object touches. GML_NO_HOST_MEMORY. */
gml_status gml_sheet_add_access(gml_sheet *sheet, const gml_object_trace *trace,
                                const gml_access *access, uint32_t owner);

/* Lays out the spans, for gml_sheet_next(). GML_NO_HOST_MEMORY. */
gml_status gml_sheet_lay_out(gml_sheet *sheet);

/* Back to the top. GML_NO_HOST_MEMORY. */
gml_status gml_sheet_rewind(gml_sheet *sheet);

/* The next band with a rectangle in it, from top to bottom. False at the end, or if the sheet is
 * too large. */
bool gml_sheet_next(gml_sheet *sheet, gml_band *band);

void gml_sheet_clear(gml_sheet *sheet);

/* Whether an access is to every byte of the object. */
bool gml_access_is_whole(const gml_object_trace *trace, const gml_access *access);

#endif
