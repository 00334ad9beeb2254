/* What a placement leaves idle: one sweep for all time ranges together. */
#include "planner/check_set.h"
#include "planner/check_sweep.h"

#include <stdlib.h>

/* A part of a query that does not wrap. */
typedef struct query_part {
    gml_time_range times;
    size_t first, count; /* of what is occupied, in `occupied` */
} query_part;

typedef struct spans {
    gml_span *items;
    size_t count, room;
} spans;

static gml_status
append(spans *list, uint64_t offset, uint64_t top)
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

/* The addresses of all members, as ascending spans that do not touch. */
static gml_status
append_members(const gml_sweep *sweep, const gml_number_set *members, spans *occupied)
{
    size_t first = occupied->count;
    gml_status status = GML_OK;
    for (size_t rank = gml_number_set_from(members, 0); status == GML_OK && rank != GML_NO_MEMBER;
         rank = gml_number_set_from(members, rank + 1)) {
        const gml_piece *piece = &sweep->pieces[sweep->by_rank[rank]];
        gml_span *last = occupied->count > first ? &occupied->items[occupied->count - 1] : NULL;
        if (!last || piece->offset > last->offset + last->size_bytes) {
            status = append(occupied, piece->offset, piece->top);
        } else if (piece->top > last->offset + last->size_bytes) {
            last->size_bytes = piece->top - last->offset;
        }
    }
    return status;
}

/* What lives at the start of `part` is in `live`; what starts within it comes in for a moment. */
static gml_status
gather(const gml_sweep *sweep, size_t started, gml_number_set *live, query_part *part,
       spans *occupied)
{
    size_t until = started;
    for (; until < sweep->count; until++) {
        const gml_piece *piece = &sweep->pieces[sweep->by_start[until]];
        if (piece->start >= part->times.end) {
            break;
        }
        gml_number_set_add(live, piece->rank);
    }
    part->first = occupied->count;
    gml_status status = append_members(sweep, live, occupied);
    part->count = occupied->count - part->first;
    while (until-- > started) {
        gml_number_set_remove(live, sweep->pieces[sweep->by_start[until]].rank);
    }
    return status;
}

/* `order` lists the parts by their starts. */
static gml_status
sweep_parts(const gml_sweep *sweep, query_part *parts, const uint32_t *order, size_t count,
            spans *occupied)
{
    gml_number_set live;
    gml_status status = gml_number_set_open(&live, sweep->count);
    size_t started = 0, ended = 0;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        query_part *part = &parts[order[i]];
        if (part->times.end == 0) {
            continue; /* its query does not wrap */
        }
        for (; started < sweep->count; started++) {
            const gml_piece *piece = &sweep->pieces[sweep->by_start[started]];
            if (piece->start > part->times.start) {
                break;
            }
            gml_number_set_add(&live, piece->rank);
        }
        gml_sweep_end_until(sweep, &live, &ended, part->times.start);
        status = gather(sweep, started, &live, part, occupied);
    }
    gml_number_set_close(&live);
    return status;
}

/* What neither of two lists of spans covers, below the limit. */
static gml_status
append_idle(const query_part *one, const query_part *other, const spans *occupied,
            uint64_t limit_bytes, spans *idle)
{
    size_t i = 0, j = 0;
    uint64_t at = 0; /* everything below is covered or listed */
    gml_status status = GML_OK;
    while (status == GML_OK && at < limit_bytes) {
        const gml_span *a = i < one->count ? &occupied->items[one->first + i] : NULL;
        const gml_span *b = j < other->count ? &occupied->items[other->first + j] : NULL;
        bool is_first = a && (!b || a->offset <= b->offset);
        const gml_span *next = is_first ? a : b;
        uint64_t offset = next && next->offset < limit_bytes ? next->offset : limit_bytes;
        if (offset > at) {
            status = append(idle, at, offset);
        }
        if (!next) {
            break;
        }
        at = next->offset + next->size_bytes > at ? next->offset + next->size_bytes : at;
        *(is_first ? &i : &j) += 1;
    }
    return status;
}

static bool
is_range(const gml_problem *problem, gml_time_range query)
{
    return query.start < query.end &&
           (!problem->period ||
            (query.start < problem->period && query.end - query.start <= problem->period));
}

/* Query i is parts 2i and 2i + 1; the second is empty where it does not wrap. */
static void
cut(const gml_problem *problem, gml_time_range query, query_part *parts)
{
    parts[0] = (query_part){.times = query};
    parts[1] = (query_part){.times = {0, 0}};
    if (problem->period && query.end > problem->period) {
        parts[0].times.end = problem->period;
        parts[1].times.end = query.end - problem->period;
    }
}

static gml_status
sort_parts(query_part *parts, size_t count, uint32_t *order)
{
    uint64_t *keys = calloc(count + 1, sizeof *keys);
    if (!keys) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = parts[i].times.start;
    }
    gml_status status = gml_sweep_sort(keys, count, order);
    free(keys);
    return status;
}

static gml_status
find_idle(const gml_problem *problem, const gml_sweep *sweep, uint64_t limit_bytes,
          const gml_time_range *queries, size_t query_count, spans *idle, size_t *first)
{
    spans occupied = {0};
    query_part *parts = malloc((2 * query_count + 1) * sizeof *parts);
    uint32_t *order = malloc((2 * query_count + 1) * sizeof *order);
    gml_status status = parts && order ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t q = 0; status == GML_OK && q < query_count; q++) {
        cut(problem, queries[q], &parts[2 * q]);
    }
    if (status == GML_OK) {
        status = sort_parts(parts, 2 * query_count, order);
    }
    if (status == GML_OK) {
        status = sweep_parts(sweep, parts, order, 2 * query_count, &occupied);
    }
    first[0] = 0;
    for (size_t q = 0; status == GML_OK && q < query_count; q++) {
        status = append_idle(&parts[2 * q], &parts[2 * q + 1], &occupied, limit_bytes, idle);
        first[q + 1] = idle->count;
    }
    free(parts);
    free(order);
    free(occupied.items);
    return status;
}

static gml_status
check_arguments(const gml_problem *problem, const gml_time_range *queries, size_t query_count)
{
    if (query_count > UINT32_MAX / 4 || gml_sweep_check_problem(problem, NULL, 0) != GML_OK) {
        return GML_INVALID_ARGUMENT;
    }
    for (size_t q = 0; q < query_count; q++) {
        if (!is_range(problem, queries[q])) {
            return GML_INVALID_ARGUMENT;
        }
    }
    return GML_OK;
}

gml_status
gml_planner_idle_spans(const gml_problem *problem, const uint64_t *offsets, uint64_t limit_bytes,
                       const gml_time_range *queries, size_t query_count, gml_span **spans_out,
                       size_t *first)
{
    gml_sweep sweep;
    gml_status status = check_arguments(problem, queries, query_count);
    if (status == GML_OK) {
        status = gml_sweep_open(&sweep, problem, offsets);
    }
    if (status != GML_OK) {
        return status;
    }
    spans idle = {0};
    status = find_idle(problem, &sweep, limit_bytes, queries, query_count, &idle, first);
    gml_sweep_close(&sweep);
    if (status == GML_OK) {
        *spans_out = idle.items;
    } else {
        free(idle.items);
    }
    return status;
}
