#include "diagnosis/slices.h"

#include <stdlib.h>

void gml_slices_clear(gml_slices *slices) {
    gml_sheet_clear(&slices->sheet);
    free(slices->items);
    free(slices->by_owner);
    free(slices->parents);
    *slices = (gml_slices){0};
}

static gml_status reserve(gml_slices *slices, size_t owners) {
    if (owners <= slices->capacity) {
        return GML_OK;
    }
    size_t capacity = owners + owners / 2;
    free(slices->items);
    free(slices->by_owner);
    free(slices->parents);
    slices->items = malloc(capacity * sizeof *slices->items);
    slices->by_owner = malloc(capacity * sizeof *slices->by_owner);
    slices->parents = malloc(capacity * sizeof *slices->parents);
    bool is_whole = slices->items && slices->by_owner && slices->parents;
    slices->capacity = is_whole ? capacity : 0;
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

/* ---- who belongs together -------------------------------------------------------------------- */

static uint32_t root_of(gml_slices *slices, uint32_t owner) {
    uint32_t *parents = slices->parents;
    while (parents[owner] != owner) {
        parents[owner] = parents[parents[owner]];
        owner = parents[owner];
    }
    return owner;
}

/* The earlier owner stays the root. */
static void join(gml_slices *slices, uint32_t a, uint32_t b) {
    a = root_of(slices, a);
    b = root_of(slices, b);
    if (a < b) {
        slices->parents[b] = a;
    } else {
        slices->parents[a] = b;
    }
}

/* ---- what each API accesses ------------------------------------------------------------------ */

/* One owner for each API, in order of invocation. */
static gml_status add_uses(gml_slices *slices, const gml_trace_index *index, uint32_t object,
                           bool skips_fills, uint32_t *owner_count) {
    uint32_t owners = 0;
    for (size_t i = index->first_use[object]; i < index->first_use[object + 1]; i++) {
        uint32_t use = index->uses[i];
        if (skips_fills && gml_index_fills(index, use)) {
            continue;
        }
        const gml_access *access = &index->trace->accesses[use];
        uint64_t api = index->api_of[use];
        if (owners == 0 || slices->by_owner[owners - 1].earliest != api) {
            slices->by_owner[owners] = (gml_slice){.earliest = api, .latest = api};
            slices->parents[owners] = owners;
            owners++;
        }
        slices->has_touches = slices->has_touches || (access->flags & GML_ACCESS_TOUCHES);
        gml_status status = gml_sheet_add_access(&slices->sheet, index->trace, access, owners - 1);
        if (status != GML_OK) {
            return status;
        }
    }
    *owner_count = owners;
    return GML_OK;
}

static void count_accesses(gml_slices *slices) {
    for (size_t i = 0; i < slices->sheet.span_count; i++) {
        const gml_access_span *span = &slices->sheet.spans[i];
        slices->by_owner[span->owner].element_accesses +=
            span->weight * (double)span->size * (double)span->repeat;
    }
}

/* Of equal spans one is enough, once their owners are joined. */
static void drop_equal_spans(gml_slices *slices) {
    gml_sheet *sheet = &slices->sheet;
    gml_sheet_sort(sheet);
    size_t kept = 0;
    for (size_t i = 0; i < sheet->span_count; i++) {
        if (kept && gml_span_is_same(&sheet->spans[kept - 1], &sheet->spans[i])) {
            join(slices, sheet->spans[kept - 1].owner, sheet->spans[i].owner);
        } else {
            sheet->spans[kept++] = sheet->spans[i];
        }
    }
    sheet->span_count = kept;
}

/* ---- the sheet, from top to bottom ----------------------------------------------------------- */

/* A part of a band without a gap: columns that overlapping rectangles cover. */
typedef struct covered_run {
    uint64_t column, column_end;
    uint32_t owner;
} covered_run;

typedef struct sheet_reader {
    gml_slices *slices;
    gml_band band;
    uint64_t first_column, last_column; /* of the runs so far; of none: equal */
    uint64_t covered_end;               /* units from the beginning, in the band's first row */
} sheet_reader;

static void note_gap(gml_slices *slices, uint64_t units) {
    slices->largest_gap = units > slices->largest_gap ? units : slices->largest_gap;
}

static void note_run(sheet_reader *reader, const covered_run *run) {
    gml_slices *slices = reader->slices;
    const gml_sheet *sheet = &slices->sheet;
    uint64_t rows = reader->band.row_end - reader->band.row;
    uint64_t units = (run->column_end - run->column) * rows;
    gml_slice *slice = &slices->by_owner[run->owner];
    slices->accessed_elements += units;
    slice->bytes += units * sheet->unit_bytes;
    uint64_t begin = reader->band.row * sheet->width + run->column;
    note_gap(slices, begin - reader->covered_end);
    reader->covered_end = begin + (run->column_end - run->column);
    if (reader->last_column == 0) {
        reader->first_column = run->column;
    }
    reader->last_column = run->column_end;
}

static void read_band(sheet_reader *reader) {
    gml_slices *slices = reader->slices;
    covered_run run = {0};
    size_t depth = 0;
    reader->last_column = 0;
    for (size_t i = 0; i < reader->band.edge_count; i++) {
        const gml_keyed *edge = &reader->band.edges[i];
        uint32_t owner = slices->sheet.rectangles[edge->index].owner;
        if (gml_edge_opens(edge)) {
            if (depth == 0) {
                run.column = gml_edge_column(edge);
                run.owner = owner;
            } else if (owner != run.owner) {
                join(slices, run.owner, owner);
            }
            depth++;
        } else if (--depth == 0) {
            run.column_end = gml_edge_column(edge);
            note_run(reader, &run);
        }
    }
    if (reader->band.row_end - reader->band.row > 1) { /* from one row to the next */
        uint64_t width = slices->sheet.width;
        note_gap(slices, width - reader->last_column + reader->first_column);
        reader->covered_end = (reader->band.row_end - 1) * width + reader->last_column;
    }
}

/* The last element may reach beyond the object. */
static void cut_last_element(gml_slices *slices, bool is_accessed, uint32_t owner,
                             uint64_t size_bytes) {
    uint64_t beyond = slices->element_count * slices->sheet.unit_bytes - size_bytes;
    slices->unaccessed_bytes =
        (slices->element_count - slices->accessed_elements) * slices->sheet.unit_bytes;
    if (is_accessed) {
        slices->by_owner[owner].bytes -= beyond;
    } else {
        slices->unaccessed_bytes -= beyond;
    }
}

static void read_sheet(gml_slices *slices, uint64_t size_bytes) {
    sheet_reader reader = {.slices = slices};
    uint32_t last_owner = 0;
    while (gml_sheet_next(&slices->sheet, &reader.band)) {
        read_band(&reader);
        const gml_keyed *last_edge = &reader.band.edges[reader.band.edge_count - 1];
        last_owner = slices->sheet.rectangles[last_edge->index].owner;
    }
    note_gap(slices, slices->element_count - reader.covered_end);
    cut_last_element(slices, reader.covered_end == slices->element_count, last_owner, size_bytes);
}

/* ---- slices ---------------------------------------------------------------------------------- */

static void add_owner(gml_slice *slice, const gml_slice *owner) {
    slice->bytes += owner->bytes;
    slice->element_accesses += owner->element_accesses;
    slice->latest = owner->latest > slice->latest ? owner->latest : slice->latest;
}

/* Roots are the earliest owners of their slices, so that they come first. */
static void gather(gml_slices *slices, uint32_t owners) {
    for (uint32_t owner = 0; owner < owners; owner++) {
        uint32_t root = root_of(slices, owner);
        if (root != owner) {
            add_owner(&slices->by_owner[root], &slices->by_owner[owner]);
        }
    }
    for (uint32_t owner = 0; owner < owners; owner++) {
        if (slices->parents[owner] == owner) {
            slices->items[slices->count++] = slices->by_owner[owner];
        }
    }
}

static void forget(gml_slices *slices, uint64_t size_bytes, uint64_t element_bytes) {
    gml_sheet_start(&slices->sheet, size_bytes, element_bytes);
    slices->element_count = slices->sheet.unit_count;
    slices->count = 0;
    slices->accessed_elements = 0;
    slices->largest_gap = 0;
    slices->unaccessed_bytes = 0;
    slices->has_touches = false;
    slices->too_large = false;
}

gml_status gml_slices_find(gml_slices *slices, const gml_trace_index *index, uint32_t object,
                           bool skips_fills) {
    const gml_object *what = &index->trace->objects[object];
    uint32_t owners = 0;
    forget(slices, what->size_bytes, what->element_bytes);
    gml_status status = reserve(slices, index->first_use[object + 1] - index->first_use[object]);
    if (status == GML_OK) {
        status = add_uses(slices, index, object, skips_fills, &owners);
    }
    if (status == GML_OK) {
        count_accesses(slices);
        drop_equal_spans(slices);
        status = gml_sheet_lay_out(&slices->sheet);
    }
    if (status == GML_OK && owners) {
        read_sheet(slices, what->size_bytes);
        slices->too_large = slices->sheet.too_large;
    }
    if (status == GML_OK && !slices->too_large) {
        gather(slices, owners);
    }
    return status;
}
