/* What a placement leaves idle, for many time ranges in one sweep.
 *
 * A byte is occupied at some time of [start, end) if and only if, of the lifetimes on it that begin
 * before `end`, one ends after `start`. So the sweep goes over beginnings, and keeps for each byte
 * the latest end that it has met; a query is answered when everything that begins before its end is
 * in, and its idle bytes are those whose latest end is not after its start. That needs no valid
 * placement. With a period the sweep goes over two of them, because a query may wrap.
 *
 * Addresses are cut into cells where lifetimes begin or end. A segment tree over the cells keeps
 * the least and the greatest latest end below each node: an answer descends only where the two lie
 * on different sides of the query's start, so that it costs what comes out, times the depth.
 */
#include "planner/idle.h"

#include "planner/check_sweep.h"

#include <stdlib.h>
#include <string.h>

/* ---- spans ----------------------------------------------------------------------------------- */

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

/* Puts `size` where sizes[0] was, the least of a heap. */
static void
replace_least(uint64_t *sizes, size_t count, uint64_t size)
{
    size_t hole = 0;
    for (size_t child = 1; child < count; child = 2 * hole + 1) {
        child += child + 1 < count && sizes[child + 1] < sizes[child];
        if (sizes[child] >= size) {
            break;
        }
        sizes[hole] = sizes[child];
        hole = child;
    }
    sizes[hole] = size;
}

/* The most-th largest size, by a heap of as many. pre: 0 < most <= count. */
static uint64_t
size_at_rank(const gml_span *spans, size_t count, size_t most, uint64_t *sizes)
{
    for (size_t i = 0; i < most; i++) {
        sizes[i] = 0;
    }
    for (size_t i = 0; i < count; i++) {
        if (spans[i].size_bytes > sizes[0]) {
            replace_least(sizes, most, spans[i].size_bytes);
        }
    }
    return sizes[0];
}

/* Drops all but the `most` largest of the spans from `begin` on. `sizes` has room for `most`. */
static void
keep_largest(span_list *list, size_t begin, size_t most, uint64_t *sizes)
{
    gml_span *spans = list->items + begin;
    size_t count = list->count - begin;
    if (count <= most) {
        return;
    }
    uint64_t least = size_at_rank(spans, count, most, sizes);
    size_t equal_left = most, kept = 0;
    for (size_t i = 0; i < count; i++) {
        equal_left -= spans[i].size_bytes > least;
    }
    for (size_t i = 0; i < count; i++) {
        bool is_equal = spans[i].size_bytes == least && equal_left > 0;
        equal_left -= is_equal;
        if (is_equal || spans[i].size_bytes > least) {
            spans[kept++] = spans[i];
        }
    }
    list->count = begin + kept;
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* The latest ends met so far of the cells below a node; 0: nothing was there yet. */
typedef struct ends {
    uint64_t least, greatest;
} ends;

typedef struct idle_finder {
    const gml_sweep *sweep;
    uint64_t period;
    size_t begun;        /* beginnings that the sweep is past, of one period and the next */
    uint32_t *bounds;    /* piece i covers cells bounds[2 * i] to bounds[2 * i + 1] - 1 */
    uint64_t *addresses; /* cell i is addresses[i] to addresses[i + 1] */
    size_t cell_count;
    ends *nodes;  /* node 1 is the root; node i has the children 2 * i and 2 * i + 1 */
    size_t width; /* cell i is node width + i; a power of two, at least cell_count */
    size_t most;  /* spans to be kept of each query */
    uint64_t *sizes;
    span_list found;
} idle_finder;

/* What lies at or above the limit covers no cell; what overflows covers all above it. */
static void
clip(const gml_piece *piece, uint64_t limit_bytes, uint64_t *keys)
{
    bool overflows = piece->top < piece->offset;
    keys[0] = piece->offset < limit_bytes ? piece->offset : limit_bytes;
    keys[1] = piece->top < limit_bytes && !overflows ? piece->top : limit_bytes;
}

static gml_status
cut_into_cells(idle_finder *finder, uint64_t limit_bytes)
{
    size_t count = 2 * finder->sweep->count + 2;
    uint64_t *keys = malloc(count * sizeof *keys);
    uint32_t *order = malloc(count * sizeof *order);
    gml_status status = keys && order ? GML_OK : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        for (size_t i = 0; i < finder->sweep->count; i++) {
            clip(&finder->sweep->pieces[i], limit_bytes, &keys[2 * i]);
        }
        keys[count - 2] = 0;
        keys[count - 1] = limit_bytes;
        status = gml_sweep_sort(keys, count, order);
    }
    size_t last = 0;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        uint64_t address = keys[order[i]];
        last += i > 0 && address != finder->addresses[last];
        finder->addresses[last] = address;
        finder->bounds[order[i]] = (uint32_t)last;
    }
    finder->cell_count = last;
    free(keys);
    free(order);
    return status;
}

static bool
pull(ends *nodes, size_t node)
{
    /* Ends only grow, so what a node was given as a whole stays a lower bound. */
    const ends *left = &nodes[2 * node], *right = &nodes[2 * node + 1];
    uint64_t least = left->least < right->least ? left->least : right->least;
    uint64_t greatest = left->greatest > right->greatest ? left->greatest : right->greatest;
    bool changes = least > nodes[node].least || greatest > nodes[node].greatest;
    nodes[node].least = least > nodes[node].least ? least : nodes[node].least;
    nodes[node].greatest = greatest > nodes[node].greatest ? greatest : nodes[node].greatest;
    return changes;
}

static void
raise_node(ends *node, uint64_t end)
{
    node->least = end > node->least ? end : node->least;
    node->greatest = end > node->greatest ? end : node->greatest;
}

/* No cell of [first, last] ends before `end`. */
static void
raise_cells(const idle_finder *finder, size_t first, size_t last, uint64_t end)
{
    ends *nodes = finder->nodes;
    size_t left = finder->width + first, right = finder->width + last;
    raise_node(&nodes[left], end);
    raise_node(&nodes[right], end);
    for (; left >> 1 != right >> 1; left >>= 1, right >>= 1) {
        if (!(left & 1)) {
            raise_node(&nodes[left + 1], end);
        }
        if (right & 1) {
            raise_node(&nodes[right - 1], end);
        }
        (void)pull(nodes, left >> 1);
        (void)pull(nodes, right >> 1);
    }
    for (left >>= 1; left && pull(nodes, left); left >>= 1) {
    }
}

static gml_status
plant(idle_finder *finder)
{
    finder->width = 1;
    while (finder->width < finder->cell_count) {
        finder->width *= 2;
    }
    finder->nodes = calloc(2 * finder->width, sizeof *finder->nodes);
    return finder->nodes ? GML_OK : GML_NO_HOST_MEMORY;
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Everything that begins before `time`, in this period or the next. */
static void
begin_before(idle_finder *finder, uint64_t time)
{
    const gml_sweep *sweep = finder->sweep;
    size_t most = finder->period ? 2 * sweep->count : sweep->count;
    for (; finder->begun < most; finder->begun++) {
        bool is_next = finder->begun >= sweep->count;
        uint64_t shift = is_next ? finder->period : 0;
        uint32_t number = sweep->by_start[finder->begun - (is_next ? sweep->count : 0)];
        const gml_piece *piece = &sweep->pieces[number];
        if (time <= shift || piece->start >= time - shift) {
            return;
        }
        uint64_t end = piece->end < UINT64_MAX - shift ? piece->end + shift : UINT64_MAX;
        uint32_t first = finder->bounds[2 * (size_t)number];
        uint32_t behind = finder->bounds[2 * (size_t)number + 1];
        if (first < behind) {
            raise_cells(finder, first, behind - 1, end);
        }
    }
}

/* The cells whose latest end is at most `start`, from left to right: a walk over the largest nodes
 * that are idle or occupied as a whole. */
static gml_status
list_idle(idle_finder *finder, uint64_t start)
{
    size_t node = 1, cells = finder->width, cell = 0;
    uint64_t idle_from = GML_NO_OFFSET;
    gml_status status = GML_OK;
    while (status == GML_OK && cell < finder->cell_count) {
        const ends *here = &finder->nodes[node];
        bool is_idle = here->greatest <= start;
        if (!is_idle && here->least <= start && cells > 1) {
            node *= 2;
            cells /= 2;
            continue;
        }
        if (is_idle && idle_from == GML_NO_OFFSET) {
            idle_from = finder->addresses[cell];
        } else if (!is_idle && idle_from != GML_NO_OFFSET) {
            status = append(&finder->found, idle_from, finder->addresses[cell]);
            idle_from = GML_NO_OFFSET;
        }
        cell += cells;
        for (; node & 1; node >>= 1) {
            cells *= 2;
        }
        node++;
    }
    if (status == GML_OK && idle_from != GML_NO_OFFSET) {
        status = append(&finder->found, idle_from, finder->addresses[finder->cell_count]);
    }
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* The queries in the order of their ends; their lists come in the same order. first[q + 1] becomes
 * the length of the list of q. */
static gml_status
answer(idle_finder *finder, const gml_time_range *queries, const uint32_t *order, size_t count,
       size_t *first)
{
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        const gml_time_range *query = &queries[order[i]];
        size_t begin = finder->found.count;
        begin_before(finder, query->end);
        status = list_idle(finder, query->start);
        if (finder->sizes) {
            keep_largest(&finder->found, begin, finder->most, finder->sizes);
        }
        first[order[i] + 1] = finder->found.count - begin;
    }
    return status;
}

/* From lists in the order `order` to lists in the order of queries. */
static gml_status
arrange(const span_list *found, const uint32_t *order, size_t count, gml_span **out, size_t *first)
{
    gml_span *spans = malloc((found->count + 1) * sizeof *spans);
    if (!spans) {
        return GML_NO_HOST_MEMORY;
    }
    first[0] = 0;
    for (size_t q = 0; q < count; q++) {
        first[q + 1] += first[q];
    }
    const gml_span *next = found->items;
    for (size_t i = 0; i < count; i++) {
        size_t begin = first[order[i]], length = first[order[i] + 1] - begin;
        if (length > 0) {
            memcpy(spans + begin, next, length * sizeof *spans);
            next += length;
        }
    }
    *out = spans;
    return GML_OK;
}

static gml_status
sort_by_end(const gml_time_range *queries, size_t count, uint32_t *order)
{
    uint64_t *keys = malloc((count + 1) * sizeof *keys);
    if (!keys) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t q = 0; q < count; q++) {
        keys[q] = queries[q].end;
    }
    gml_status status = gml_sweep_sort(keys, count, order);
    free(keys);
    return status;
}

static gml_status
open_finder(idle_finder *finder, uint64_t limit_bytes)
{
    size_t count = 2 * finder->sweep->count + 2;
    finder->bounds = malloc(count * sizeof *finder->bounds);
    finder->addresses = malloc(count * sizeof *finder->addresses);
    if (!finder->bounds || !finder->addresses) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = cut_into_cells(finder, limit_bytes);
    if (status == GML_OK) {
        status = plant(finder);
    }
    if (status == GML_OK && finder->most < finder->cell_count) {
        finder->sizes = malloc((finder->most + 1) * sizeof *finder->sizes);
        status = finder->sizes ? GML_OK : GML_NO_HOST_MEMORY;
    }
    return status;
}

static void
close_finder(idle_finder *finder)
{
    free(finder->bounds);
    free(finder->addresses);
    free(finder->nodes);
    free(finder->sizes);
    free(finder->found.items);
}

static gml_status
find_idle(idle_finder *finder, uint64_t limit_bytes, const gml_time_range *queries,
          size_t query_count, gml_span **spans, size_t *first)
{
    uint32_t *order = malloc((query_count + 1) * sizeof *order);
    gml_status status = order ? open_finder(finder, limit_bytes) : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        status = sort_by_end(queries, query_count, order);
    }
    if (status == GML_OK) {
        status = answer(finder, queries, order, query_count, first);
    }
    if (status == GML_OK) {
        status = arrange(&finder->found, order, query_count, spans, first);
    }
    free(order);
    close_finder(finder);
    return status;
}

static bool
is_range(const gml_problem *problem, gml_time_range query)
{
    return query.start < query.end &&
           (!problem->period ||
            (query.start < problem->period && query.end - query.start <= problem->period));
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
gml_idle_largest(const gml_problem *problem, const uint64_t *offsets, uint64_t limit_bytes,
                 const gml_time_range *queries, size_t query_count, size_t most, gml_span **spans,
                 size_t *first)
{
    gml_sweep sweep;
    gml_status status =
        most ? check_arguments(problem, queries, query_count) : GML_INVALID_ARGUMENT;
    if (status == GML_OK) {
        status = gml_sweep_open(&sweep, problem, offsets);
    }
    if (status != GML_OK) {
        return status;
    }
    idle_finder finder = {.sweep = &sweep, .period = problem->period, .most = most};
    status = find_idle(&finder, limit_bytes, queries, query_count, spans, first);
    gml_sweep_close(&sweep);
    return status;
}

gml_status
gml_planner_idle_spans(const gml_problem *problem, const uint64_t *offsets, uint64_t limit_bytes,
                       const gml_time_range *queries, size_t query_count, gml_span **spans,
                       size_t *first)
{
    return gml_idle_largest(problem, offsets, limit_bytes, queries, query_count, SIZE_MAX, spans,
                            first);
}
