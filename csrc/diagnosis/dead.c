/* Dead writes, byte by byte: a copy or set whose bytes the next copy or set overwrites before
 * anything accesses them.
 *
 * The accesses to an object are laid out on a sheet of bytes. Wherever two writes follow each other
 * in the pile of accesses above a byte, the lower one is dead there. The pile is cut at accesses to
 * the whole object, since nothing is dead across them.
 */
#include "base/number_set.h"
#include "base/room.h"
#include "diagnosis/findings.h"
#include "diagnosis/spans.h"

#include <stdlib.h>

/* A write, or all other accesses between two writes. Its number is its place in the pile. */
typedef struct dead_layer {
    uint32_t api;
    bool is_write;
    uint32_t depth; /* of its rectangles that are open at this column */
    uint64_t since; /* the first column of its current upper layer */
    size_t above;   /* the write that overwrites it, and how much so far */
    uint64_t bytes;
} dead_layer;

typedef struct dead_pair {
    uint32_t from_api, to_api;
    uint64_t bytes;
} dead_pair;

typedef struct dead_pile {
    const gml_trace_index *index;
    gml_findings *out;
    uint32_t object;
    gml_sheet sheet;
    dead_layer *layers;
    size_t layer_count, layer_capacity;
    size_t write_count, part_count; /* part_count: layers that are not the whole object */
    gml_number_set open;            /* layers, at this column */
    size_t open_bound;
    dead_pair *pairs;
    size_t pair_count, pair_capacity;
} dead_pile;

static void pile_clear(dead_pile *pile) {
    gml_sheet_clear(&pile->sheet);
    gml_number_set_close(&pile->open);
    free(pile->layers);
    free(pile->pairs);
}

static void pile_restart(dead_pile *pile) {
    gml_sheet_start(&pile->sheet, pile->index->trace->objects[pile->object].size_bytes, 1);
    pile->layer_count = 0;
    pile->write_count = 0;
    pile->part_count = 0;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static gml_status add_pair(dead_pile *pile, dead_pair pair) {
    if (!gml_make_room(&pile->pairs, &pile->pair_capacity, pile->pair_count + 1,
                       sizeof *pile->pairs)) {
        return GML_NO_HOST_MEMORY;
    }
    pile->pairs[pile->pair_count++] = pair;
    return GML_OK;
}

/* Turns the layer and the write above it into a pair. */
static gml_status flush_layer(dead_pile *pile, dead_layer *layer) {
    if (layer->bytes == 0) {
        return GML_OK;
    }
    dead_pair pair = {layer->api, pile->layers[layer->above].api, layer->bytes};
    layer->bytes = 0;
    return add_pair(pile, pair);
}

static int compare_pairs(const void *left, const void *right) {
    const dead_pair *a = left, *b = right;
    int order = (a->from_api > b->from_api) - (a->from_api < b->from_api);
    return order ? order : (a->to_api > b->to_api) - (a->to_api < b->to_api);
}

/* Without an order between the two it is open which of them stays. */
static gml_status report_pair(const dead_pile *pile, const dead_pair *pair) {
    if (!gml_index_is_ordered(pile->index, pair->from_api, pair->to_api)) {
        return GML_OK;
    }
    gml_finding finding = {
        .pattern = GML_PATTERN_DEAD_WRITE,
        .object = pile->object,
        .other = GML_NO_OBJECT,
        .from_api = pair->from_api,
        .to_api = pair->to_api,
        .distance = gml_index_distance(pile->index, pair->from_api, pair->to_api),
        .bytes = pair->bytes,
    };
    return gml_findings_add(pile->out, &finding);
}

/* The pairs are those of one pile. */
static gml_status report_pairs(dead_pile *pile) {
    if (pile->pair_count > 1) {
        qsort(pile->pairs, pile->pair_count, sizeof *pile->pairs, compare_pairs);
    }
    gml_status status = GML_OK;
    for (size_t i = 0; i < pile->pair_count && status == GML_OK;) {
        dead_pair sum = pile->pairs[i++];
        while (i < pile->pair_count && compare_pairs(&sum, &pile->pairs[i]) == 0) {
            sum.bytes += pile->pairs[i++].bytes;
        }
        status = report_pair(pile, &sum);
    }
    pile->pair_count = 0;
    return status;
}

/* ---- the sheet, column by column ------------------------------------------------------------- */

/* From layer->since to this column `above` lay on it. */
static gml_status charge_layer(dead_pile *pile, size_t lower, size_t above, uint64_t column,
                               uint64_t rows) {
    dead_layer *layer = &pile->layers[lower];
    uint64_t bytes = (column - layer->since) * rows;
    layer->since = column;
    if (above == GML_NO_MEMBER || !layer->is_write || !pile->layers[above].is_write || !bytes) {
        return GML_OK;
    }
    gml_status status = layer->above == above ? GML_OK : flush_layer(pile, layer);
    layer->above = above;
    layer->bytes += bytes;
    return status;
}

static size_t below(const dead_pile *pile, size_t layer) {
    return layer ? gml_number_set_upto(&pile->open, layer - 1) : GML_NO_MEMBER;
}

static gml_status open_layer(dead_pile *pile, size_t number, uint64_t column, uint64_t rows) {
    gml_status status = GML_OK;
    if (pile->layers[number].depth++ == 0) {
        size_t lower = below(pile, number);
        if (lower != GML_NO_MEMBER) {
            size_t above = gml_number_set_from(&pile->open, number);
            status = charge_layer(pile, lower, above, column, rows);
        }
        gml_number_set_add(&pile->open, number);
        pile->layers[number].since = column;
    }
    return status;
}

static gml_status close_layer(dead_pile *pile, size_t number, uint64_t column, uint64_t rows) {
    if (--pile->layers[number].depth) {
        return GML_OK;
    }
    size_t above = gml_number_set_from(&pile->open, number + 1);
    size_t lower = below(pile, number);
    gml_status status = charge_layer(pile, number, above, column, rows);
    if (status == GML_OK && lower != GML_NO_MEMBER) {
        status = charge_layer(pile, lower, number, column, rows);
    }
    gml_number_set_remove(&pile->open, number);
    return status;
}

static gml_status read_band(dead_pile *pile, const gml_band *band) {
    uint64_t rows = band->row_end - band->row;
    gml_status status = GML_OK;
    for (size_t i = 0; i < band->edge_count && status == GML_OK; i++) {
        const gml_keyed *edge = &band->edges[i];
        size_t layer = pile->sheet.rectangles[edge->index].owner;
        uint64_t column = gml_edge_column(edge);
        status = gml_edge_opens(edge) ? open_layer(pile, layer, column, rows)
                                      : close_layer(pile, layer, column, rows);
    }
    return status;
}

static gml_status open_set(dead_pile *pile) {
    if (pile->layer_count <= pile->open_bound) {
        return GML_OK;
    }
    gml_number_set_close(&pile->open);
    pile->open_bound = 0;
    size_t bound = pile->layer_count + pile->layer_count / 2;
    gml_status status = gml_number_set_open(&pile->open, bound);
    pile->open_bound = status == GML_OK ? bound : 0;
    return status;
}

/* Equal spans of one layer count once. */
static void drop_equal_spans(gml_sheet *sheet) {
    gml_sheet_sort(sheet);
    size_t kept = 0;
    for (size_t i = 0; i < sheet->span_count; i++) {
        const gml_access_span *span = &sheet->spans[i], *last = &sheet->spans[kept ? kept - 1 : 0];
        if (!kept || last->owner != span->owner || !gml_span_is_same(last, span)) {
            sheet->spans[kept++] = *span;
        }
    }
    sheet->span_count = kept;
}

static gml_status read_sheet(dead_pile *pile) {
    drop_equal_spans(&pile->sheet);
    gml_status status = gml_sheet_lay_out(&pile->sheet);
    if (status == GML_OK) {
        status = open_set(pile);
    }
    gml_band band;
    while (status == GML_OK && gml_sheet_next(&pile->sheet, &band)) {
        status = read_band(pile, &band);
    }
    for (size_t i = 0; i < pile->layer_count && status == GML_OK; i++) {
        status = flush_layer(pile, &pile->layers[i]);
    }
    if (pile->sheet.too_large) {
        pile->pair_count = 0;
    }
    return status;
}

/* Finds the dead writes in the pile. */
static gml_status pile_finish(dead_pile *pile) {
    if (pile->write_count < 2) {
        return GML_OK;
    }
    uint64_t size = pile->index->trace->objects[pile->object].size_bytes;
    dead_pair all = {pile->layers[0].api, pile->layers[pile->layer_count - 1].api, size};
    gml_status status = pile->part_count ? read_sheet(pile) : add_pair(pile, all);
    return status == GML_OK ? report_pairs(pile) : status;
}

/* ---- the pile -------------------------------------------------------------------------------- */

static gml_status add_layer(dead_pile *pile, uint32_t api, bool is_write) {
    if (!gml_make_room(&pile->layers, &pile->layer_capacity, pile->layer_count + 1,
                       sizeof *pile->layers)) {
        return GML_NO_HOST_MEMORY;
    }
    pile->write_count += is_write;
    pile->layers[pile->layer_count++] = (dead_layer){.api = api, .is_write = is_write};
    return GML_OK;
}

static gml_status add_ranges(dead_pile *pile, const gml_access *access) {
    return gml_sheet_add_access(&pile->sheet, pile->index->trace, access,
                                (uint32_t)(pile->layer_count - 1));
}

/* A write to the whole object ends one pile and is the lowest layer of the next. */
static gml_status add_write(dead_pile *pile, const gml_access *access, uint32_t api) {
    bool is_whole = gml_access_is_whole(pile->index->trace, access);
    pile->part_count += !is_whole;
    gml_status status = add_layer(pile, api, true);
    if (status == GML_OK) {
        status = add_ranges(pile, access);
    }
    if (status != GML_OK || !is_whole) {
        return status;
    }
    status = pile_finish(pile);
    pile_restart(pile);
    if (status == GML_OK) {
        status = add_layer(pile, api, true);
    }
    return status == GML_OK ? add_ranges(pile, access) : status;
}

/* Anything but a write. Below the lowest write it changes nothing. */
static gml_status add_use(dead_pile *pile, const gml_access *access, uint32_t api) {
    if (gml_access_is_whole(pile->index->trace, access)) {
        gml_status status = pile_finish(pile);
        pile_restart(pile);
        return status;
    }
    if (pile->layer_count == 0) {
        return GML_OK;
    }
    gml_status status = GML_OK;
    if (pile->layers[pile->layer_count - 1].is_write) {
        pile->part_count++;
        status = add_layer(pile, api, false);
    }
    return status == GML_OK ? add_ranges(pile, access) : status;
}

/* ---- every object ---------------------------------------------------------------------------- */

/* The uses of one API, from `begin` to `end`: it reads before it writes. */
static gml_status add_api(dead_pile *pile, size_t begin, size_t end) {
    const gml_trace_index *index = pile->index;
    gml_status status = GML_OK;
    for (int writes = 0; writes <= 1; writes++) {
        for (size_t i = begin; i < end && status == GML_OK; i++) {
            uint32_t use = index->uses[i];
            const gml_access *access = &index->trace->accesses[use];
            if (gml_index_fills(index, use) == (writes == 1)) {
                status = writes ? add_write(pile, access, index->api_of[use])
                                : add_use(pile, access, index->api_of[use]);
            }
        }
    }
    return status;
}

static bool has_two_writes(const dead_pile *pile) {
    size_t writes = 0;
    for (size_t i = pile->index->first_use[pile->object];
         i < pile->index->first_use[pile->object + 1] && writes < 2; i++) {
        writes += gml_index_fills(pile->index, pile->index->uses[i]);
    }
    return writes == 2;
}

static gml_status find_in_object(dead_pile *pile) {
    const gml_trace_index *index = pile->index;
    size_t end = index->first_use[pile->object + 1];
    gml_status status = GML_OK;
    pile_restart(pile);
    for (size_t begin = index->first_use[pile->object]; begin < end && status == GML_OK;) {
        size_t next = begin + 1;
        while (next < end &&
               index->api_of[index->uses[next]] == index->api_of[index->uses[begin]]) {
            next++;
        }
        status = add_api(pile, begin, next);
        begin = next;
    }
    return status == GML_OK ? pile_finish(pile) : status;
}

gml_status gml_find_dead_writes(const gml_trace_index *index, gml_findings *out) {
    dead_pile pile = {.index = index, .out = out};
    gml_status status = GML_OK;
    for (uint32_t o = 0; o < index->trace->object_count && status == GML_OK; o++) {
        pile.object = o;
        if (has_two_writes(&pile)) {
            status = find_in_object(&pile);
        }
    }
    pile_clear(&pile);
    return status;
}
