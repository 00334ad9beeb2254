#include "diagnosis/spans.h"

#include "base/room.h"
#include "base/rounding.h"
#include "base/sort.h"

#include <math.h>
#include <stdlib.h>

enum {
    MOST_STRIDES = 16,          /* that are tried as widths */
    MOST_CLASSES = 4096,        /* that a range with a stride between units falls into */
    MOST_TAKEN_APART = 1 << 22, /* rectangles */
    MARKED_ROWS = 1 << 14,
    RECTANGLE_COST = 8 /* edges */
};

/* ---- memory ---------------------------------------------------------------------------------- */

static gml_status add_span(gml_sheet *sheet, gml_access_span span) {
    if (!gml_make_room(&sheet->spans, &sheet->span_capacity, sheet->span_count + 1,
                       sizeof *sheet->spans)) {
        return GML_NO_HOST_MEMORY;
    }
    sheet->spans[sheet->span_count++] = span;
    return GML_OK;
}

static gml_status add_rectangle(gml_sheet *sheet, gml_rectangle rectangle) {
    if (!gml_make_room(&sheet->rectangles, &sheet->rectangle_capacity, sheet->rectangle_count + 1,
                       sizeof *sheet->rectangles)) {
        return GML_NO_HOST_MEMORY;
    }
    sheet->rectangles[sheet->rectangle_count++] = rectangle;
    return GML_OK;
}

void gml_sheet_clear(gml_sheet *sheet) {
    free(sheet->spans);
    free(sheet->rectangles);
    free(sheet->order);
    free(sheet->edges);
    free(sheet->other);
    free(sheet->scratch);
    *sheet = (gml_sheet){0};
}

/* ---- ranges to spans ------------------------------------------------------------------------- */

void gml_sheet_start(gml_sheet *sheet, uint64_t size_bytes, uint64_t unit_bytes) {
    sheet->unit_bytes = unit_bytes;
    sheet->unit_count = gml_divide_up(size_bytes, unit_bytes);
    sheet->too_large = false;
    sheet->span_count = 0;
    sheet->rectangle_count = 0;
}

/* Runs whose ends lie within a unit each share it with the run behind them: one run over all, and
 * the shared units once more. */
static gml_status add_overlapping(gml_sheet *sheet, gml_access_span span) {
    gml_access_span all = span, shared = span;
    all.size = span.stride * span.repeat;
    all.repeat = 1;
    gml_status status = add_span(sheet, all);
    if (status != GML_OK) {
        return status;
    }
    shared.offset += span.stride;
    shared.size = 1;
    if (span.stride == 1) {
        shared.size = span.repeat;
        shared.repeat = 1;
    }
    return add_span(sheet, shared);
}

/* pre: the stride is a multiple of the unit, or there is one run. */
static gml_status add_runs(gml_sheet *sheet, const gml_access_range *range, uint32_t owner) {
    uint64_t unit = sheet->unit_bytes;
    gml_access_span span = {
        .offset = range->offset / unit,
        .stride = range->repeat > 1 ? range->stride_bytes / unit : 0,
        .repeat = range->repeat,
        .weight = (double)range->weight,
        .owner = owner,
    };
    span.size = gml_divide_up(range->offset + range->size_bytes, unit) - span.offset;
    if (span.repeat > 1 && span.size > span.stride) {
        return add_overlapping(sheet, span);
    }
    if (span.repeat > 1 && span.size == span.stride) {
        span.size *= span.repeat;
        span.repeat = 1;
    }
    return add_span(sheet, span);
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* A stride between units: every so many runs it is at the same place of a unit again. */
static gml_status add_classes(gml_sheet *sheet, const gml_access_range *range, uint32_t owner) {
    uint64_t unit = sheet->unit_bytes;
    uint64_t period = unit / greatest_common_divisor(range->stride_bytes, unit);
    uint64_t classes = period < range->repeat ? period : range->repeat;
    if (classes > MOST_CLASSES) {
        sheet->too_large = true;
        return GML_OK;
    }
    gml_status status = GML_OK;
    for (uint64_t class = 0; class < classes && status == GML_OK; class++) {
        gml_access_range part = *range;
        part.offset += class * range->stride_bytes;
        part.repeat = gml_divide_up(range->repeat - class, period);
        part.stride_bytes *= part.repeat > 1 ? period : 1;
        status = add_runs(sheet, &part, owner);
    }
    return status;
}

gml_status gml_sheet_add(gml_sheet *sheet, const gml_access_range *range, uint32_t owner) {
    if (!range) {
        gml_access_span whole = {
            .size = sheet->unit_count, .repeat = 1, .weight = 1, .owner = owner};
        return add_span(sheet, whole);
    }
    if (range->repeat > 1 && range->stride_bytes == range->size_bytes) {
        gml_access_range run = *range;
        run.size_bytes *= run.repeat;
        run.repeat = 1;
        return add_runs(sheet, &run, owner);
    }
    if (range->repeat == 1 || range->stride_bytes % sheet->unit_bytes == 0) {
        return add_runs(sheet, range, owner);
    }
    return add_classes(sheet, range, owner);
}

bool gml_span_is_same(const gml_access_span *a, const gml_access_span *b) {
    return a->offset == b->offset && a->size == b->size && a->stride == b->stride &&
           a->repeat == b->repeat;
}

static int compare_spans(const void *left, const void *right) {
    const gml_access_span *a = left, *b = right;
    int order = gml_compare(a->offset, b->offset);
    order = order ? order : gml_compare(a->size, b->size);
    order = order ? order : gml_compare(a->stride, b->stride);
    order = order ? order : gml_compare(a->repeat, b->repeat);
    return order ? order : gml_compare(a->owner, b->owner);
}

void gml_sheet_sort(gml_sheet *sheet) {
    if (sheet->span_count > 1) {
        qsort(sheet->spans, sheet->span_count, sizeof *sheet->spans, compare_spans);
    }
}

/* ---- the width ------------------------------------------------------------------------------- */

/* How many pieces, each one rectangle or a few, a span falls into. */
static uint64_t pieces_of(const gml_access_span *span, uint64_t width) {
    if (span->repeat == 1) {
        return 1;
    }
    uint64_t classes = width % span->stride == 0 ? width / span->stride : UINT64_MAX;
    return classes < span->repeat ? classes : span->repeat;
}

/* Rows in which something begins or ends, about: those of one residue are counted once. */
typedef struct row_marks {
    uint64_t bits[MARKED_ROWS / 64];
    size_t count;
} row_marks;

static void mark_row(row_marks *marks, uint64_t row) {
    uint64_t *word = &marks->bits[row % MARKED_ROWS / 64];
    uint64_t bit = UINT64_C(1) << (row % 64);
    marks->count += !(*word & bit);
    *word |= bit;
}

static uint64_t end_of(const gml_access_span *span) {
    return span->offset + span->stride * (span->repeat - 1) + span->size;
}

/* The cost of reading the sheet at this width: rectangles, and their edges in every band that they
 * cross. */
static double cost_of_width(const gml_sheet *sheet, uint64_t width) {
    row_marks marks = {0};
    double pieces = 0, rows = (double)gml_divide_up(sheet->unit_count, width), edges = 0;
    for (size_t i = 0; i < sheet->span_count; i++) {
        const gml_access_span *span = &sheet->spans[i];
        pieces += (double)pieces_of(span, width);
        mark_row(&marks, span->offset / width);
        mark_row(&marks, gml_divide_up(end_of(span), width));
    }
    double bands_in_row = (double)marks.count / rows;
    for (size_t i = 0; i < sheet->span_count; i++) {
        const gml_access_span *span = &sheet->spans[i];
        uint64_t height = (end_of(span) - 1) / width - span->offset / width + 1;
        double bands = (double)height * bands_in_row;
        edges += (double)pieces_of(span, width) * (bands > 1 ? bands : 1);
    }
    return pieces - (double)sheet->span_count > MOST_TAKEN_APART ? INFINITY
                                                                 : pieces * RECTANGLE_COST + edges;
}

/* The first few strides there are. */
static size_t list_strides(const gml_sheet *sheet, uint64_t *strides) {
    size_t count = 0;
    for (size_t i = 0; i < sheet->span_count && count < MOST_STRIDES; i++) {
        const gml_access_span *span = &sheet->spans[i];
        size_t k = 0;
        while (k < count && strides[k] != span->stride) {
            k++;
        }
        if (span->repeat > 1 && k == count) {
            strides[count++] = span->stride;
        }
    }
    return count;
}

static void choose_width(gml_sheet *sheet) {
    uint64_t strides[MOST_STRIDES];
    size_t count = list_strides(sheet, strides);
    sheet->width = sheet->unit_count;
    if (count == 0 || sheet->too_large) {
        return;
    }
    double least = cost_of_width(sheet, sheet->unit_count);
    for (size_t k = 0; k < count; k++) {
        double cost = cost_of_width(sheet, strides[k]);
        if (cost < least) {
            least = cost;
            sheet->width = strides[k];
        }
    }
    sheet->too_large = least == INFINITY;
}

/* ---- spans to rectangles --------------------------------------------------------------------- */

/* pre: `like` has the columns, the weight and the owner. */
static gml_status add_rows(gml_sheet *sheet, gml_rectangle like, uint64_t row, uint64_t row_end) {
    like.row = row;
    like.row_end = row_end;
    return row < row_end && like.column < like.column_end ? add_rectangle(sheet, like) : GML_OK;
}

static gml_status lay_out_run(gml_sheet *sheet, const gml_access_span *span, uint64_t offset) {
    uint64_t width = sheet->width;
    uint64_t row = offset / width, last = (offset + span->size - 1) / width;
    uint64_t column = offset % width, column_end = (offset + span->size - 1) % width + 1;
    gml_rectangle part = {
        .column = column, .column_end = width, .weight = span->weight, .owner = span->owner};
    if (row == last) {
        part.column_end = column_end;
        return add_rows(sheet, part, row, row + 1);
    }
    gml_status status = GML_OK;
    if (column) {
        status = add_rows(sheet, part, row, row + 1);
        row++;
    }
    part.column = 0;
    uint64_t whole_end = column_end == width ? last + 1 : last;
    if (status == GML_OK) {
        status = add_rows(sheet, part, row, whole_end);
    }
    part.column_end = column_end;
    return status == GML_OK ? add_rows(sheet, part, whole_end, last + 1) : status;
}

/* Runs whose stride is the width. */
static gml_status lay_out_column(gml_sheet *sheet, const gml_access_span *span, uint64_t offset,
                                 uint64_t repeat) {
    uint64_t row = offset / sheet->width, column = offset % sheet->width;
    uint64_t end = column + span->size;
    gml_rectangle part = {
        .column = column,
        .column_end = end < sheet->width ? end : sheet->width,
        .weight = span->weight,
        .owner = span->owner,
    };
    gml_status status = add_rows(sheet, part, row, row + repeat);
    part.column = 0;
    part.column_end = end - part.column_end;
    return status == GML_OK && end > sheet->width ? add_rows(sheet, part, row + 1, row + 1 + repeat)
                                                  : status;
}

static gml_status lay_out_span(gml_sheet *sheet, const gml_access_span *span) {
    uint64_t pieces = pieces_of(span, sheet->width);
    bool by_columns = pieces < span->repeat;
    gml_status status = GML_OK;
    for (uint64_t i = 0; i < pieces && status == GML_OK; i++) {
        uint64_t offset = span->offset + i * span->stride;
        status = by_columns
                     ? lay_out_column(sheet, span, offset, gml_divide_up(span->repeat - i, pieces))
                     : lay_out_run(sheet, span, offset);
    }
    return status;
}

gml_status gml_sheet_lay_out(gml_sheet *sheet) {
    choose_width(sheet);
    sheet->rectangle_count = 0;
    gml_status status = GML_OK;
    for (size_t i = 0; i < sheet->span_count && !sheet->too_large && status == GML_OK; i++) {
        status = lay_out_span(sheet, &sheet->spans[i]);
    }
    return status == GML_OK ? gml_sheet_rewind(sheet) : status;
}

/* ---- accesses -------------------------------------------------------------------------------- */

bool gml_access_is_whole(const gml_object_trace *trace, const gml_access *access) {
    if (access->range_count == 0) {
        return true;
    }
    if (access->range_count > 1) {
        return false;
    }
    const gml_access_range *range = &trace->ranges[access->first_range];
    return range->size_bytes * range->repeat == trace->objects[access->object].size_bytes;
}

gml_status gml_sheet_add_access(gml_sheet *sheet, const gml_object_trace *trace,
                                const gml_access *access, uint32_t owner) {
    gml_status status = access->range_count == 0 ? gml_sheet_add(sheet, NULL, owner) : GML_OK;
    for (uint32_t i = 0; i < access->range_count && status == GML_OK; i++) {
        status = gml_sheet_add(sheet, &trace->ranges[access->first_range + i], owner);
    }
    return status;
}
