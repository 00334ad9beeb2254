/* Cells, and bitmaps of their lines. */
#include "core/occupancy.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES UINT64_C(512)
#define WORD_BITS UINT64_C(64)
#define ALL_BITS UINT64_MAX

/* The part of a range that lies in one cell, in lines. */
typedef struct cell_part {
    uint64_t cell, first_line, line_count;
    bool is_whole;
} cell_part;

void
gml_occupancy_init(gml_occupancy *occupancy, uint64_t cell_bytes)
{
    *occupancy = (gml_occupancy){.cell_bytes = cell_bytes};
    if ((cell_bytes & (cell_bytes - 1)) == 0) {
        occupancy->cell_shift = (unsigned)__builtin_ctzll(cell_bytes);
    }
}

void
gml_occupancy_close(gml_occupancy *occupancy)
{
    for (uint64_t i = 0; i < occupancy->cell_count; i++) {
        free(occupancy->cells[i].lines);
    }
    free(occupancy->cells);
    *occupancy =
        (gml_occupancy){.cell_bytes = occupancy->cell_bytes, .cell_shift = occupancy->cell_shift};
}

static uint64_t
cell_of(const gml_occupancy *occupancy, uint64_t offset)
{
    return occupancy->cell_shift ? offset >> occupancy->cell_shift : offset / occupancy->cell_bytes;
}

static uint64_t
lines_per_cell(const gml_occupancy *occupancy)
{
    return occupancy->cell_bytes / LINE_BYTES;
}

static uint64_t
words_per_cell(const gml_occupancy *occupancy)
{
    return (lines_per_cell(occupancy) + WORD_BITS - 1) / WORD_BITS;
}

/* The part of [offset, end) in the cell of `offset`. */
static cell_part
first_part(const gml_occupancy *occupancy, uint64_t offset, uint64_t end)
{
    uint64_t cell = cell_of(occupancy, offset);
    uint64_t begin = cell * occupancy->cell_bytes;
    uint64_t cell_end = begin + occupancy->cell_bytes;
    uint64_t size_bytes = (end < cell_end ? end : cell_end) - offset;
    return (cell_part){
        .cell = cell,
        .first_line = (offset - begin) / LINE_BYTES,
        .line_count = size_bytes / LINE_BYTES,
        .is_whole = size_bytes == occupancy->cell_bytes,
    };
}

/* ---- bits -------------------------------------------------------------------------------------
 */

/* A range of bits as a part of a first word, whole words, and a part of a last one. */
typedef struct bit_range {
    uint64_t word;       /* the first */
    uint64_t head, tail; /* masks; tail 0: none */
    uint64_t middle;     /* whole words between */
} bit_range;

/* pre: count > 0 */
static bit_range
range_of(uint64_t bit, uint64_t count)
{
    uint64_t first = bit % WORD_BITS, end = first + count;
    bit_range range = {.word = bit / WORD_BITS, .head = ALL_BITS << first};
    if (end <= WORD_BITS) {
        range.head &= ALL_BITS >> (WORD_BITS - end);
        return range;
    }
    range.middle = end / WORD_BITS - 1;
    range.tail = (UINT64_C(1) << (end % WORD_BITS)) - 1;
    return range;
}

static void
set_bits(uint64_t *words, uint64_t bit, uint64_t count)
{
    bit_range range = range_of(bit, count);
    uint64_t *word = words + range.word;
    *word++ |= range.head;
    memset(word, 0xff, range.middle * sizeof *word);
    if (range.tail) {
        word[range.middle] |= range.tail;
    }
}

static void
clear_bits(uint64_t *words, uint64_t bit, uint64_t count)
{
    bit_range range = range_of(bit, count);
    uint64_t *word = words + range.word;
    *word++ &= ~range.head;
    memset(word, 0, range.middle * sizeof *word);
    if (range.tail) {
        word[range.middle] &= ~range.tail;
    }
}

static bool
are_bits_clear(const uint64_t *words, uint64_t bit, uint64_t count)
{
    bit_range range = range_of(bit, count);
    const uint64_t *word = words + range.word;
    uint64_t used = *word++ & range.head;
    if (range.tail) {
        used |= word[range.middle] & range.tail;
    }
    for (uint64_t i = 0; i < range.middle && !used; i += 8) {
        for (uint64_t j = i; j < i + 8 && j < range.middle; j++) {
            used |= word[j];
        }
    }
    return !used;
}

/* The first bit in [bit, end) that is `value`, or one at or behind `end`. */
static uint64_t
find_bit(const uint64_t *words, uint64_t bit, uint64_t end, bool value)
{
    while (bit < end) {
        uint64_t word = words[bit / WORD_BITS];
        uint64_t rest = (value ? word : ~word) >> (bit % WORD_BITS);
        if (rest) {
            return bit + (uint64_t)__builtin_ctzll(rest);
        }
        bit += WORD_BITS - bit % WORD_BITS;
    }
    return end;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static gml_status
grow(gml_occupancy *occupancy, uint64_t count)
{
    if (count <= occupancy->cell_count) {
        return GML_OK;
    }
    uint64_t doubled = occupancy->cell_count + occupancy->cell_count / 2 + 16;
    uint64_t room = count > doubled ? count : doubled;
    if (room > SIZE_MAX / sizeof *occupancy->cells) {
        return GML_NO_HOST_MEMORY;
    }
    gml_cell *cells = realloc(occupancy->cells, room * sizeof *cells);
    if (!cells) {
        return GML_NO_HOST_MEMORY;
    }
    memset(cells + occupancy->cell_count, 0, (room - occupancy->cell_count) * sizeof *cells);
    occupancy->cells = cells;
    occupancy->cell_count = room;
    return GML_OK;
}

static gml_status
prepare_cell(const gml_occupancy *occupancy, uint64_t cell)
{
    gml_cell *at = &occupancy->cells[cell];
    if (!at->lines) {
        at->lines = calloc(words_per_cell(occupancy), sizeof *at->lines);
    }
    return at->lines ? GML_OK : GML_NO_HOST_MEMORY;
}

gml_status
gml_occupancy_prepare(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    if (size_bytes == 0) {
        return GML_OK;
    }
    uint64_t end = offset + size_bytes;
    uint64_t first = cell_of(occupancy, offset), last = cell_of(occupancy, end - 1);
    gml_status status = grow(occupancy, last + 1);
    if (status == GML_OK && !first_part(occupancy, offset, end).is_whole) {
        status = prepare_cell(occupancy, first);
    }
    if (status == GML_OK && last != first && end != (last + 1) * occupancy->cell_bytes) {
        status = prepare_cell(occupancy, last);
    }
    return status;
}

/* ---- marking ----------------------------------------------------------------------------------
 */

bool
gml_occupancy_is_free(const gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    for (uint64_t end = offset + size_bytes; offset < end;) {
        cell_part part = first_part(occupancy, offset, end);
        if (part.cell >= occupancy->cell_count) {
            return true;
        }
        const gml_cell *cell = &occupancy->cells[part.cell];
        if (cell->state != GML_CELL_FREE &&
            (part.is_whole || cell->state == GML_CELL_WHOLE ||
             !are_bits_clear(cell->lines, part.first_line, part.line_count))) {
            return false;
        }
        offset += part.line_count * LINE_BYTES;
    }
    return true;
}

void
gml_occupancy_take(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    occupancy->used_bytes += size_bytes;
    for (uint64_t end = offset + size_bytes; offset < end;) {
        cell_part part = first_part(occupancy, offset, end);
        gml_cell *cell = &occupancy->cells[part.cell];
        if (part.is_whole) {
            cell->state = GML_CELL_WHOLE;
        } else {
            cell->state = GML_CELL_LINES;
            cell->used_lines += (uint32_t)part.line_count;
            set_bits(cell->lines, part.first_line, part.line_count);
        }
        offset += part.line_count * LINE_BYTES;
    }
}

/* A cell that is used as a whole has its lines marked one by one. */
static void
spell_out(const gml_occupancy *occupancy, gml_cell *cell)
{
    set_bits(cell->lines, 0, lines_per_cell(occupancy));
    cell->used_lines = (uint32_t)lines_per_cell(occupancy);
    cell->state = GML_CELL_LINES;
}

void
gml_occupancy_give(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    occupancy->used_bytes -= size_bytes;
    for (uint64_t end = offset + size_bytes; offset < end;) {
        cell_part part = first_part(occupancy, offset, end);
        gml_cell *cell = &occupancy->cells[part.cell];
        if (cell->state == GML_CELL_WHOLE && !part.is_whole) {
            spell_out(occupancy, cell);
        }
        if (cell->state == GML_CELL_LINES) {
            clear_bits(cell->lines, part.first_line, part.line_count);
            cell->used_lines -= (uint32_t)part.line_count;
        }
        if (part.is_whole || cell->used_lines == 0) {
            cell->state = GML_CELL_FREE;
        }
        offset += part.line_count * LINE_BYTES;
    }
}

/* ---- looking for free runs --------------------------------------------------------------------
 */

/* The first address in [offset, limit) whose line is used, or is not, or `limit`. */
static uint64_t
find(const gml_occupancy *occupancy, uint64_t offset, uint64_t limit, bool is_used)
{
    while (offset < limit) {
        cell_part part = first_part(occupancy, offset, limit);
        if (part.cell >= occupancy->cell_count) {
            return is_used ? limit : offset;
        }
        const gml_cell *cell = &occupancy->cells[part.cell];
        if (cell->state == GML_CELL_LINES) {
            uint64_t end = part.first_line + part.line_count;
            uint64_t line = find_bit(cell->lines, part.first_line, end, is_used);
            if (line < end) {
                return offset + (line - part.first_line) * LINE_BYTES;
            }
        } else if (is_used == (cell->state == GML_CELL_WHOLE)) {
            return offset;
        }
        offset += part.line_count * LINE_BYTES;
    }
    return limit;
}

bool
gml_occupancy_next_free(const gml_occupancy *occupancy, uint64_t offset, uint64_t limit,
                        uint64_t *out_offset, uint64_t *out_bytes)
{
    uint64_t begin = find(occupancy, offset, limit, false);
    if (begin >= limit) {
        return false;
    }
    *out_offset = begin;
    *out_bytes = find(occupancy, begin, limit, true) - begin;
    return true;
}

bool
gml_occupancy_is_cell_free(const gml_occupancy *occupancy, uint64_t cell)
{
    return cell >= occupancy->cell_count || occupancy->cells[cell].state == GML_CELL_FREE;
}
