/* Cells, and bitmaps of their lines. */
#include "plan/occupancy.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES UINT64_C(512)
#define WORD_BITS UINT64_C(64)
#define ALL_BITS UINT64_MAX

/* A part of a cell, in lines; line_count 0: there is none. */
typedef struct cell_part {
    uint64_t cell, first_line, line_count;
} cell_part;

/* A range: the end of a cell, whole cells, and the beginning of a cell. What lies within one cell
 * is all in `head`. */
typedef struct cell_range {
    cell_part head, tail;
    uint64_t first, count; /* of the whole cells */
} cell_range;

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
    free(occupancy->used);
    free(occupancy->partial);
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

static cell_range
cut_up(const gml_occupancy *occupancy, uint64_t offset, uint64_t end)
{
    uint64_t cell = cell_of(occupancy, offset), last = cell_of(occupancy, end);
    uint64_t begin_bytes = offset - cell * occupancy->cell_bytes; /* within its cell */
    uint64_t end_bytes = end - last * occupancy->cell_bytes;
    if (cell == last) {
        return (cell_range){
            .head = {cell, begin_bytes / LINE_BYTES, (end_bytes - begin_bytes) / LINE_BYTES}};
    }
    cell_range range = {.first = cell, .tail = {last, 0, end_bytes / LINE_BYTES}};
    if (begin_bytes) {
        range.head = (cell_part){cell, begin_bytes / LINE_BYTES,
                                 (occupancy->cell_bytes - begin_bytes) / LINE_BYTES};
        range.first++;
    }
    range.count = last - range.first;
    return range;
}

/* ---- bits ------------------------------------------------------------------------------------ */

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
is_set(const uint64_t *words, uint64_t bit)
{
    return (words[bit / WORD_BITS] >> (bit % WORD_BITS)) & 1;
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

/* The first bit in [bit, end) that is `value`, or one that also[] has (which may be NULL), or one
 * at or behind `end`. */
static uint64_t
find_bit(const uint64_t *words, const uint64_t *also, uint64_t bit, uint64_t end, bool value)
{
    while (bit < end) {
        uint64_t word = words[bit / WORD_BITS];
        uint64_t wanted = (value ? word : ~word) | (also ? also[bit / WORD_BITS] : 0);
        uint64_t rest = wanted >> (bit % WORD_BITS);
        if (rest) {
            return bit + (uint64_t)__builtin_ctzll(rest);
        }
        bit += WORD_BITS - bit % WORD_BITS;
    }
    return end;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Room for `count` bits, those from `old_count` on clear. Both are multiples of a word. */
static bool
grow_bits(uint64_t **words, uint64_t old_count, uint64_t count)
{
    uint64_t *grown = realloc(*words, count / 8);
    if (!grown) {
        return false;
    }
    memset(grown + old_count / WORD_BITS, 0, (count - old_count) / 8);
    *words = grown;
    return true;
}

static gml_status
grow(gml_occupancy *occupancy, uint64_t count)
{
    uint64_t old_count = occupancy->cell_count;
    if (count <= old_count) {
        return GML_OK;
    }
    uint64_t more = old_count + old_count / 2;
    uint64_t room = ((count > more ? count : more) + WORD_BITS - 1) / WORD_BITS * WORD_BITS;
    if (room > SIZE_MAX / sizeof *occupancy->cells) {
        return GML_NO_HOST_MEMORY;
    }
    gml_cell *cells = realloc(occupancy->cells, room * sizeof *cells);
    if (!cells) {
        return GML_NO_HOST_MEMORY;
    }
    occupancy->cells = cells;
    if (!grow_bits(&occupancy->used, old_count, room) ||
        !grow_bits(&occupancy->partial, old_count, room)) {
        return GML_NO_HOST_MEMORY;
    }
    memset(cells + old_count, 0, (room - old_count) * sizeof *cells);
    occupancy->cell_count = room;
    return GML_OK;
}

static gml_status
prepare_part(const gml_occupancy *occupancy, const cell_part *part)
{
    if (!part->line_count || occupancy->cells[part->cell].lines) {
        return GML_OK;
    }
    uint64_t *lines = calloc(words_per_cell(occupancy), sizeof *lines);
    occupancy->cells[part->cell].lines = lines;
    return lines ? GML_OK : GML_NO_HOST_MEMORY;
}

gml_status
gml_occupancy_prepare(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    if (size_bytes == 0) {
        return GML_OK;
    }
    uint64_t end = offset + size_bytes;
    cell_range range = cut_up(occupancy, offset, end);
    gml_status status = grow(occupancy, cell_of(occupancy, end - 1) + 1);
    if (status == GML_OK) {
        status = prepare_part(occupancy, &range.head);
    }
    return status == GML_OK ? prepare_part(occupancy, &range.tail) : status;
}

/* ---- marking --------------------------------------------------------------------------------- */

static bool
is_part_free(const gml_occupancy *occupancy, const cell_part *part)
{
    if (!part->line_count || part->cell >= occupancy->cell_count ||
        !is_set(occupancy->used, part->cell)) {
        return true;
    }
    return is_set(occupancy->partial, part->cell) &&
           are_bits_clear(occupancy->cells[part->cell].lines, part->first_line, part->line_count);
}

bool
gml_occupancy_is_free(const gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    cell_range range = cut_up(occupancy, offset, offset + size_bytes);
    uint64_t end = range.first + range.count;
    end = end < occupancy->cell_count ? end : occupancy->cell_count;
    return is_part_free(occupancy, &range.head) && is_part_free(occupancy, &range.tail) &&
           (range.first >= end || are_bits_clear(occupancy->used, range.first, end - range.first));
}

static void
take_part(gml_occupancy *occupancy, const cell_part *part)
{
    if (part->line_count) {
        gml_cell *cell = &occupancy->cells[part->cell];
        set_bits(occupancy->used, part->cell, 1);
        set_bits(occupancy->partial, part->cell, 1);
        cell->used_lines += part->line_count;
        set_bits(cell->lines, part->first_line, part->line_count);
    }
}

void
gml_occupancy_take(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    cell_range range = cut_up(occupancy, offset, offset + size_bytes);
    occupancy->used_bytes += size_bytes;
    take_part(occupancy, &range.head);
    take_part(occupancy, &range.tail);
    if (range.count) {
        set_bits(occupancy->used, range.first, range.count);
    }
}

/* A cell that is used as a whole has its lines marked one by one. */
static void
spell_out(gml_occupancy *occupancy, uint64_t cell)
{
    set_bits(occupancy->cells[cell].lines, 0, lines_per_cell(occupancy));
    occupancy->cells[cell].used_lines = lines_per_cell(occupancy);
    set_bits(occupancy->partial, cell, 1);
}

static void
give_part(gml_occupancy *occupancy, const cell_part *part)
{
    if (!part->line_count) {
        return;
    }
    gml_cell *cell = &occupancy->cells[part->cell];
    if (!is_set(occupancy->partial, part->cell)) {
        spell_out(occupancy, part->cell);
    }
    clear_bits(cell->lines, part->first_line, part->line_count);
    cell->used_lines -= part->line_count;
    if (!cell->used_lines) {
        clear_bits(occupancy->used, part->cell, 1);
        clear_bits(occupancy->partial, part->cell, 1);
    }
}

/* Whole cells, some of which were taken in parts. */
static void
give_mixed(gml_occupancy *occupancy, uint64_t first, uint64_t count)
{
    for (uint64_t cell = first; cell < first + count; cell++) {
        if (is_set(occupancy->partial, cell)) {
            clear_bits(occupancy->cells[cell].lines, 0, lines_per_cell(occupancy));
            occupancy->cells[cell].used_lines = 0;
        }
    }
    clear_bits(occupancy->partial, first, count);
}

void
gml_occupancy_give(gml_occupancy *occupancy, uint64_t offset, uint64_t size_bytes)
{
    cell_range range = cut_up(occupancy, offset, offset + size_bytes);
    occupancy->used_bytes -= size_bytes;
    give_part(occupancy, &range.head);
    give_part(occupancy, &range.tail);
    if (range.count) {
        if (!are_bits_clear(occupancy->partial, range.first, range.count)) {
            give_mixed(occupancy, range.first, range.count);
        }
        clear_bits(occupancy->used, range.first, range.count);
    }
}

/* ---- looking for free runs ------------------------------------------------------------------- */

/* The first line of a cell from `line` on that is used, or is not; the number of lines if there is
 * none. */
static uint64_t
find_line(const gml_occupancy *occupancy, uint64_t cell, uint64_t line, bool is_used)
{
    uint64_t end = lines_per_cell(occupancy);
    if (!is_set(occupancy->partial, cell)) {
        return is_set(occupancy->used, cell) == is_used ? line : end;
    }
    uint64_t found = find_bit(occupancy->cells[cell].lines, NULL, line, end, is_used);
    return found < end ? found : end;
}

/* The first address in [offset, limit) whose line is used, or is not, or `limit`. */
static uint64_t
find(const gml_occupancy *occupancy, uint64_t offset, uint64_t limit, bool is_used)
{
    uint64_t cell_bytes = occupancy->cell_bytes, cell_count = occupancy->cell_count;
    uint64_t cell = cell_of(occupancy, offset);
    uint64_t line = (offset - cell * cell_bytes) / LINE_BYTES;
    while (cell < cell_count && cell * cell_bytes < limit) {
        line = find_line(occupancy, cell, line, is_used);
        if (line < lines_per_cell(occupancy)) {
            break;
        }
        /* The next cell that has such a line, or may have one. */
        cell = find_bit(occupancy->used, occupancy->partial, cell + 1, cell_count, is_used);
        line = 0;
    }
    if (cell >= cell_count && is_used) {
        return limit;
    }
    uint64_t found = cell * cell_bytes + line * LINE_BYTES;
    return found < limit ? found : limit;
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
    return cell >= occupancy->cell_count || !is_set(occupancy->used, cell);
}
