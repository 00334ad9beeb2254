/* What a placement leaves idle: for each time range one walk over the pieces as they lie, of which
 * those that live in the range cover what is not. That needs no valid placement. */
#include "planner/idle.h"

#include "planner/check_sweep.h"
#include "planner/instance.h"

#include <stdlib.h>

typedef struct span_list {
    gml_span *items;
    size_t count, room;
} span_list;

static gml_status
append(span_list *list, uint64_t offset, uint64_t top)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        gml_span *items = realloc(list->items, room * sizeof *items);
        if (!items) {
            return GML_NO_HOST_MEMORY;
        }
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = (gml_span){offset, top - offset};
    return GML_OK;
}

static int
compare_offsets(const void *left, const void *right)
{
    const gml_span *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

/* The larger first. */
static int
compare_sizes(const void *left, const void *right)
{
    const gml_span *a = left, *b = right;
    int order = (a->size_bytes < b->size_bytes) - (a->size_bytes > b->size_bytes);
    return order ? order : compare_offsets(left, right);
}

/* Drops all but the `most` largest of the spans from `begin` on. */
static void
keep_largest(span_list *list, size_t begin, size_t most)
{
    if (list->count - begin > most) {
        qsort(list->items + begin, list->count - begin, sizeof *list->items, compare_sizes);
        qsort(list->items + begin, most, sizeof *list->items, compare_offsets);
        list->count = begin + most;
    }
}

/* A range may go on behind the period, where pieces come again. */
static bool
lives_in(const gml_piece *piece, gml_time_range range, uint64_t period)
{
    bool is_within = piece->start < range.end && piece->end > range.start;
    return is_within || (period && range.end > period && piece->start < range.end - period);
}

static gml_status
list_idle(const gml_sweep *sweep, gml_time_range range, uint64_t period, uint64_t limit_bytes,
          span_list *out)
{
    gml_status status = GML_OK;
    uint64_t top = 0; /* of what lives in the range, so far */
    for (size_t i = 0; i < sweep->count && top < limit_bytes && status == GML_OK; i++) {
        const gml_piece *piece = &sweep->pieces[i];
        if (piece->top > top || piece->top < piece->offset) {
            if (!lives_in(piece, range, period)) {
                continue;
            }
            uint64_t end = piece->offset < limit_bytes ? piece->offset : limit_bytes;
            status = end > top ? append(out, top, end) : GML_OK;
            top = piece->top < piece->offset ? UINT64_MAX : piece->top;
        }
    }
    return status == GML_OK && top < limit_bytes ? append(out, top, limit_bytes) : status;
}

static gml_status
check_arguments(const gml_problem *problem, const gml_time_range *queries, size_t query_count)
{
    if (gml_problem_check(problem, NULL, 0) != GML_OK) {
        return GML_INVALID_ARGUMENT;
    }
    for (size_t q = 0; q < query_count; q++) {
        gml_time_range query = queries[q];
        if (query.start >= query.end ||
            (problem->period &&
             (query.start >= problem->period || query.end - query.start > problem->period))) {
            return GML_INVALID_ARGUMENT;
        }
    }
    return GML_OK;
}

static int
compare_pieces(const void *left, const void *right)
{
    const gml_piece *a = left, *b = right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

gml_status
gml_idle_largest(const gml_problem *problem, const uint64_t *offsets, uint64_t limit_bytes,
                 const gml_time_range *queries, size_t query_count, size_t most, gml_span **spans,
                 size_t *first)
{
    gml_status status =
        most ? check_arguments(problem, queries, query_count) : GML_INVALID_ARGUMENT;
    if (status != GML_OK) {
        return status;
    }
    gml_sweep sweep;
    span_list found = {.items = malloc(sizeof *found.items), .room = 1};
    status = gml_sweep_open(&sweep, problem, offsets);
    if (status == GML_OK) {
        status = found.items ? GML_OK : GML_NO_HOST_MEMORY;
        qsort(sweep.pieces, sweep.count, sizeof *sweep.pieces, compare_pieces);
    }
    for (size_t q = 0; q < query_count && status == GML_OK; q++) {
        first[q] = found.count;
        status = list_idle(&sweep, queries[q], problem->period, limit_bytes, &found);
        keep_largest(&found, first[q], most);
    }
    gml_sweep_close(&sweep);
    if (status != GML_OK) {
        free(found.items);
        return status;
    }
    first[query_count] = found.count;
    *spans = found.items;
    return GML_OK;
}

gml_status
gml_planner_idle_spans(const gml_problem *problem, const uint64_t *offsets, uint64_t limit_bytes,
                       const gml_time_range *queries, size_t query_count, gml_span **spans,
                       size_t *first)
{
    return gml_idle_largest(problem, offsets, limit_bytes, queries, query_count, SIZE_MAX, spans,
                            first);
}
