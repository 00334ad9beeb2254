/* Rectangles of a placement and their orders. */
#include "planner/check_sweep.h"

#include "base/number_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGIT_BITS = 11, DIGIT_VALUES = 1 << DIGIT_BITS };

static const uint64_t largest_size = UINT64_C(1) << 48;

uint64_t
gml_sweep_alignment(const gml_problem *problem)
{
    return problem->alignment_bytes ? problem->alignment_bytes : 512;
}

/* ---- ranges of values ------------------------------------------------------------------------ */

static gml_status
check_lifetime(const gml_problem *problem, size_t index, char *reason, size_t reason_bytes)
{
    const gml_lifetime *lifetime = &problem->lifetimes[index];
    if (lifetime->size_bytes == 0 || lifetime->size_bytes > largest_size) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "lifetime %zu: a size of %" PRIu64 " bytes is out of range", index,
                          lifetime->size_bytes);
    }
    if (lifetime->start >= lifetime->end) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "lifetime %zu ends before it begins",
                          index);
    }
    if (problem->period &&
        (lifetime->start >= problem->period || lifetime->end - lifetime->start > problem->period)) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "lifetime %zu does not fit into the period", index);
    }
    return GML_OK;
}

static gml_status
check_taken(const gml_problem *problem, char *reason, size_t reason_bytes)
{
    uint64_t mask = gml_sweep_alignment(problem) - 1;
    for (size_t i = 0; i < problem->taken_count; i++) {
        const gml_span *span = &problem->taken[i];
        if ((span->offset & mask) || (span->size_bytes & mask) ||
            span->size_bytes > UINT64_MAX - span->offset) {
            return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                              "taken span %zu is not aligned or overflows", i);
        }
    }
    return GML_OK;
}

gml_status
gml_sweep_check_problem(const gml_problem *problem, char *reason, size_t reason_bytes)
{
    uint64_t alignment = gml_sweep_alignment(problem);
    if (alignment & (alignment - 1)) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "the alignment is not a power of two");
    }
    if (problem->count > UINT32_MAX / 8 || problem->taken_count > UINT32_MAX / 8) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "too many lifetimes");
    }
    if (problem->period && problem->ordering_count) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "orderings do not go with a period");
    }
    gml_status status = check_taken(problem, reason, reason_bytes);
    for (size_t i = 0; status == GML_OK && i < problem->count; i++) {
        status = check_lifetime(problem, i, reason, reason_bytes);
    }
    return status;
}

/* ---- sorting --------------------------------------------------------------------------------- */

typedef struct keyed {
    uint64_t key;
    uint32_t number;
} keyed;

/* One pass of a radix sort from the least digit, which keeps the order of equal digits. */
static void
sort_by_digit(const keyed *from, keyed *to, size_t count, unsigned shift)
{
    size_t first[DIGIT_VALUES + 1] = {0};
    for (size_t i = 0; i < count; i++) {
        first[(from[i].key >> shift & (DIGIT_VALUES - 1)) + 1]++;
    }
    for (size_t value = 0; value < DIGIT_VALUES; value++) {
        first[value + 1] += first[value];
    }
    for (size_t i = 0; i < count; i++) {
        to[first[from[i].key >> shift & (DIGIT_VALUES - 1)]++] = from[i];
    }
}

/* Sorts `items` with the help of `other`, which has as much room; returns the one that is sorted.
 */
static keyed *
sort_keyed(keyed *items, keyed *other, size_t count)
{
    uint64_t varying = 0; /* bits in which keys differ */
    bool is_sorted = true;
    for (size_t i = 1; i < count; i++) {
        varying |= items[i].key ^ items[0].key;
        is_sorted = is_sorted && items[i - 1].key <= items[i].key;
    }
    for (unsigned shift = 0; !is_sorted && shift < 64; shift += DIGIT_BITS) {
        if (varying >> shift & (DIGIT_VALUES - 1)) {
            sort_by_digit(items, other, count, shift);
            keyed *sorted = other;
            other = items;
            items = sorted;
        }
    }
    return items;
}

gml_status
gml_sweep_sort(const uint64_t *keys, size_t count, uint32_t *order)
{
    keyed *items = malloc((2 * count + 1) * sizeof *items);
    if (!items) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = (keyed){keys[i], (uint32_t)i};
    }
    const keyed *sorted = sort_keyed(items, items + count, count);
    for (size_t i = 0; i < count; i++) {
        order[i] = sorted[i].number;
    }
    free(items);
    return GML_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void
add_piece(gml_sweep *sweep, uint64_t start, uint64_t end, const gml_piece *place)
{
    gml_piece *piece = &sweep->pieces[sweep->count++];
    *piece = *place;
    piece->start = start;
    piece->end = end;
}

static void
add_lifetime(gml_sweep *sweep, const gml_problem *problem, size_t index, uint64_t offset)
{
    const gml_lifetime *lifetime = &problem->lifetimes[index];
    uint64_t mask = gml_sweep_alignment(problem) - 1;
    gml_piece place = {.offset = offset,
                       .top = offset + ((lifetime->size_bytes + mask) & ~mask),
                       .lifetime = (uint32_t)index};
    uint64_t period = problem->period;
    if (period && lifetime->end > period) {
        add_piece(sweep, lifetime->start, period, &place);
        add_piece(sweep, 0, lifetime->end - period, &place);
    } else {
        add_piece(sweep, lifetime->start, lifetime->end, &place);
    }
}

static int
compare_spans(const void *a, const void *b)
{
    const gml_span *left = a, *right = b;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

/* Taken spans may overlap each other: what touches becomes one piece. */
static gml_status
add_taken(gml_sweep *sweep, const gml_problem *problem)
{
    size_t count = problem->taken_count;
    if (count == 0) {
        return GML_OK;
    }
    gml_span *spans = malloc(count * sizeof *spans);
    if (!spans) {
        return GML_NO_HOST_MEMORY;
    }
    memcpy(spans, problem->taken, count * sizeof *spans);
    qsort(spans, count, sizeof *spans, compare_spans);
    gml_piece *last = NULL;
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = spans[i].offset, top = offset + spans[i].size_bytes;
        if (last && offset <= last->top) {
            last->top = top > last->top ? top : last->top;
        } else if (top > offset) {
            gml_piece place = {.offset = offset, .top = top, .lifetime = GML_TAKEN_PIECE};
            add_piece(sweep, 0, UINT64_MAX, &place);
            last = &sweep->pieces[sweep->count - 1];
        }
    }
    free(spans);
    return GML_OK;
}

static gml_status
sort_pieces(gml_sweep *sweep)
{
    size_t count = sweep->count;
    uint64_t *keys = calloc(count + 1, sizeof *keys);
    if (!keys) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = sweep->pieces[i].start;
    }
    gml_status status = gml_sweep_sort(keys, count, sweep->by_start);
    for (size_t i = 0; i < count; i++) {
        keys[i] = sweep->pieces[i].end;
    }
    if (status == GML_OK) {
        status = gml_sweep_sort(keys, count, sweep->by_end);
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = sweep->pieces[i].offset;
    }
    if (status == GML_OK) {
        status = gml_sweep_sort(keys, count, sweep->by_rank);
    }
    free(keys);
    return status;
}

static gml_status
fill(gml_sweep *sweep, const gml_problem *problem, const uint64_t *offsets)
{
    size_t most = 2 * problem->count + problem->taken_count + 1;
    sweep->pieces = malloc(most * sizeof *sweep->pieces);
    sweep->by_start = malloc(most * sizeof *sweep->by_start);
    sweep->by_end = malloc(most * sizeof *sweep->by_end);
    sweep->by_rank = malloc(most * sizeof *sweep->by_rank);
    if (!sweep->pieces || !sweep->by_start || !sweep->by_end || !sweep->by_rank) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < problem->count; i++) {
        if (offsets[i] != GML_NO_OFFSET) {
            add_lifetime(sweep, problem, i, offsets[i]);
        }
    }
    gml_status status = add_taken(sweep, problem);
    if (status == GML_OK) {
        status = sort_pieces(sweep);
    }
    for (size_t rank = 0; status == GML_OK && rank < sweep->count; rank++) {
        sweep->pieces[sweep->by_rank[rank]].rank = (uint32_t)rank;
    }
    return status;
}

gml_status
gml_sweep_open(gml_sweep *sweep, const gml_problem *problem, const uint64_t *offsets)
{
    *sweep = (gml_sweep){0};
    gml_status status = fill(sweep, problem, offsets);
    if (status != GML_OK) {
        gml_sweep_close(sweep);
    }
    return status;
}

void
gml_sweep_close(gml_sweep *sweep)
{
    free(sweep->pieces);
    free(sweep->by_start);
    free(sweep->by_end);
    free(sweep->by_rank);
    *sweep = (gml_sweep){0};
}

void
gml_sweep_end_until(const gml_sweep *sweep, gml_number_set *live, size_t *ended, uint64_t time)
{
    for (; *ended < sweep->count; (*ended)++) {
        const gml_piece *piece = &sweep->pieces[sweep->by_end[*ended]];
        if (piece->end > time) {
            return;
        }
        gml_number_set_remove(live, piece->rank);
    }
}
