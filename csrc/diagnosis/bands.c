/* A sheet read from top to bottom. */
#include "diagnosis/spans.h"

#include <stdlib.h>

#define MOST_EDGES_SHOWN (UINT64_C(1) << 26)

static gml_status reserve(gml_keyed **items, size_t count) {
    free(*items);
    *items = malloc(count * sizeof **items);
    return *items ? GML_OK : GML_NO_HOST_MEMORY;
}

static gml_status reserve_for_rectangles(gml_sheet *sheet) {
    size_t count = sheet->rectangle_count;
    if (2 * count <= sheet->edge_capacity) {
        return GML_OK;
    }
    sheet->edge_capacity = 0;
    size_t room = count + count / 2;
    gml_keyed **arrays[] = {&sheet->edges, &sheet->other, &sheet->scratch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        gml_status status = reserve(arrays[i], 2 * room);
        if (status != GML_OK) {
            return status;
        }
    }
    gml_status status = reserve(&sheet->order, room);
    sheet->edge_capacity = status == GML_OK ? 2 * room : 0;
    return status;
}

gml_status gml_sheet_rewind(gml_sheet *sheet) {
    gml_status status = reserve_for_rectangles(sheet);
    if (status != GML_OK) {
        return status;
    }
    for (size_t i = 0; i < sheet->rectangle_count; i++) {
        sheet->order[i] = (gml_keyed){sheet->rectangles[i].row, i};
    }
    gml_sort_keyed(sheet->order, sheet->scratch, sheet->rectangle_count);
    sheet->begun = 0;
    sheet->edges_shown = 0;
    sheet->band = (gml_band){0};
    return GML_OK;
}

/* Drops the edges of rectangles that have ended; how many are left. */
static size_t keep_open(gml_sheet *sheet, uint64_t row) {
    size_t kept = 0;
    for (size_t i = 0; i < sheet->band.edge_count; i++) {
        if (sheet->rectangles[sheet->edges[i].index].row_end > row) {
            sheet->edges[kept++] = sheet->edges[i];
        }
    }
    return kept;
}

/* The edges of the rectangles that begin in this row, sorted, at the end of sheet->other. */
static size_t begin_rectangles(gml_sheet *sheet, uint64_t row) {
    size_t first = sheet->begun;
    while (sheet->begun < sheet->rectangle_count && sheet->order[sheet->begun].key == row) {
        sheet->begun++;
    }
    size_t count = 2 * (sheet->begun - first);
    gml_keyed *edges = sheet->other + (sheet->edge_capacity - count);
    for (size_t i = first; i < sheet->begun; i++) {
        uint64_t number = sheet->order[i].index;
        const gml_rectangle *rectangle = &sheet->rectangles[number];
        *edges++ = (gml_keyed){2 * rectangle->column + 1, number};
        *edges++ = (gml_keyed){2 * rectangle->column_end, number};
    }
    gml_sort_keyed(edges - count, sheet->scratch, count);
    return count;
}

/* Merges `kept` edges with the `fresh` ones at the end of sheet->other. As the open rectangles fit
 * into the room, writing never overtakes reading. */
static void merge_edges(gml_sheet *sheet, size_t kept, size_t fresh) {
    const gml_keyed *old = sheet->edges, *old_end = old + kept;
    const gml_keyed *begun = sheet->other + (sheet->edge_capacity - fresh);
    const gml_keyed *begun_end = sheet->other + sheet->edge_capacity;
    gml_keyed *to = sheet->other;
    while (old < old_end || begun < begun_end) {
        bool take_old = begun == begun_end || (old < old_end && old->key <= begun->key);
        *to++ = take_old ? *old++ : *begun++;
    }
    gml_keyed *other = sheet->edges;
    sheet->edges = sheet->other;
    sheet->other = other;
}

static uint64_t end_of_band(const gml_sheet *sheet) {
    uint64_t end =
        sheet->begun < sheet->rectangle_count ? sheet->order[sheet->begun].key : UINT64_MAX;
    for (size_t i = 0; i < sheet->band.edge_count; i++) {
        uint64_t row_end = sheet->rectangles[sheet->edges[i].index].row_end;
        end = row_end < end ? row_end : end;
    }
    return end;
}

bool gml_sheet_next(gml_sheet *sheet, gml_band *band) {
    uint64_t row = sheet->band.row_end;
    size_t kept = keep_open(sheet, row);
    if (sheet->too_large || (kept == 0 && sheet->begun == sheet->rectangle_count)) {
        return false;
    }
    row = kept ? row : sheet->order[sheet->begun].key;
    size_t fresh = begin_rectangles(sheet, row);
    if (fresh) {
        merge_edges(sheet, kept, fresh);
    }
    sheet->band.row = row;
    sheet->band.edge_count = kept + fresh;
    sheet->band.row_end = end_of_band(sheet);
    sheet->band.edges = sheet->edges;
    sheet->edges_shown += sheet->band.edge_count;
    sheet->too_large = sheet->edges_shown > MOST_EDGES_SHOWN;
    *band = sheet->band;
    return !sheet->too_large;
}
