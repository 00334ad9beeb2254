/* Streams share addresses only where the program ordered them.
 *
 * A sweep in the order of allocations keeps, for every byte, the lifetime that had it last. Where
 * each lifetime is ordered after the one that had its bytes before, it is also ordered after all
 * that had them earlier: orderings and the order within a stream are transitive.
 */
#include "base/number_set.h"
#include "planner/check_sweep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

typedef struct history {
    const gml_sweep *sweep;
    const gml_problem *problem;
    gml_ordering *orderings; /* by streams and time */
    uint32_t *edges;         /* addresses at which pieces begin or end, by number from the lowest:
                                of piece i, 2i its offset, 2i + 1 its top */
    size_t edge_count;       /* different ones */
    gml_number_set begins;   /* edges at which a range with one last piece begins */
    uint32_t *last;          /* by such an edge: the piece that had the range last */
    char *reason;
    size_t reason_bytes;
} history;

static int
compare_orderings(const void *a, const void *b)
{
    const gml_ordering *left = a, *right = b;
    if (left->before != right->before) {
        return left->before < right->before ? -1 : 1;
    }
    if (left->after != right->after) {
        return left->after < right->after ? -1 : 1;
    }
    return (left->time > right->time) - (left->time < right->time);
}

/* Whether `after` was told to wait for `before` at some time in [from, until]: whether the first
 * such ordering not before `from` comes in time. */
static bool
is_ordered(const history *state, gml_stream before, gml_stream after, uint64_t from, uint64_t until)
{
    const gml_ordering wanted = {.time = from, .before = before, .after = after};
    size_t low = 0, high = state->problem->ordering_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_orderings(&state->orderings[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == state->problem->ordering_count) {
        return false;
    }
    const gml_ordering *found = &state->orderings[low];
    return found->before == before && found->after == after && found->time <= until;
}

static gml_status
check_handover(const history *state, uint32_t former, uint32_t next)
{
    const gml_piece *from = &state->sweep->pieces[former], *to = &state->sweep->pieces[next];
    gml_stream before = state->problem->lifetimes[from->lifetime].stream;
    gml_stream after = state->problem->lifetimes[to->lifetime].stream;
    if (before == after || is_ordered(state, before, after, from->end, to->start)) {
        return GML_OK;
    }
    return gml_refuse(GML_CORRUPT, state->reason, state->reason_bytes,
                      "lifetimes %" PRIu32 " and %" PRIu32
                      " of two streams share addresses without an ordering between",
                      from->lifetime, to->lifetime);
}

/* A range begins at `edge`, with what the range around it had. */
static void
split(history *state, size_t edge)
{
    if (edge < state->edge_count && !gml_number_set_has(&state->begins, edge)) {
        size_t around = gml_number_set_upto(&state->begins, edge);
        state->last[edge] = around == GML_NO_MEMBER ? NOBODY : state->last[around];
        gml_number_set_add(&state->begins, edge);
    }
}

/* `piece` gets its addresses. Each range that it covers goes away, so that all calls together cost
 * no more than the ranges that they make. */
static gml_status
hand_over(history *state, uint32_t piece)
{
    size_t first = state->edges[2 * (size_t)piece], end = state->edges[2 * (size_t)piece + 1];
    split(state, first);
    split(state, end);
    gml_status status = GML_OK;
    size_t edge = first;
    while (status == GML_OK && edge < end) {
        if (state->last[edge] != NOBODY) {
            status = check_handover(state, state->last[edge], piece);
        }
        gml_number_set_remove(&state->begins, edge);
        edge = gml_number_set_from(&state->begins, edge);
    }
    state->last[first] = piece;
    gml_number_set_add(&state->begins, first);
    return status;
}

static gml_status
number_edges(history *state)
{
    size_t count = 2 * state->sweep->count;
    uint64_t *keys = calloc(count + 1, sizeof *keys);
    uint32_t *order = calloc(count + 1, sizeof *order);
    gml_status status = keys && order ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t i = 0; status == GML_OK && i < state->sweep->count; i++) {
        keys[2 * i] = state->sweep->pieces[i].offset;
        keys[2 * i + 1] = state->sweep->pieces[i].top;
    }
    if (status == GML_OK) {
        status = gml_sweep_sort(keys, count, order);
    }
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        state->edge_count += i == 0 || keys[order[i]] != keys[order[i - 1]];
        state->edges[order[i]] = (uint32_t)(state->edge_count - 1);
    }
    free(keys);
    free(order);
    return status;
}

static gml_status
history_open(history *state)
{
    size_t orderings = state->problem->ordering_count;
    state->orderings = malloc((orderings + 1) * sizeof *state->orderings);
    state->edges = calloc(2 * state->sweep->count + 1, sizeof *state->edges);
    state->last = calloc(2 * state->sweep->count + 1, sizeof *state->last);
    if (!state->orderings || !state->edges || !state->last) {
        return GML_NO_HOST_MEMORY;
    }
    if (orderings) {
        memcpy(state->orderings, state->problem->orderings, orderings * sizeof *state->orderings);
        qsort(state->orderings, orderings, sizeof *state->orderings, compare_orderings);
    }
    gml_status status = number_edges(state);
    if (status == GML_OK) {
        status = gml_number_set_open(&state->begins, state->edge_count);
    }
    return status;
}

static void
history_close(history *state)
{
    free(state->orderings);
    free(state->edges);
    free(state->last);
    gml_number_set_close(&state->begins);
}

static bool
has_several_streams(const gml_problem *problem)
{
    for (size_t i = 1; i < problem->count; i++) {
        if (problem->lifetimes[i].stream != problem->lifetimes[0].stream) {
            return true;
        }
    }
    return false;
}

gml_status
gml_sweep_check_streams(const gml_sweep *sweep, const gml_problem *problem, char *reason,
                        size_t reason_bytes)
{
    if (!has_several_streams(problem)) {
        return GML_OK;
    }
    history state = {
        .sweep = sweep, .problem = problem, .reason = reason, .reason_bytes = reason_bytes};
    gml_status status = history_open(&state);
    for (size_t i = 0; status == GML_OK && i < sweep->count; i++) {
        uint32_t piece = sweep->by_start[i];
        if (sweep->pieces[piece].lifetime != GML_TAKEN_PIECE) {
            status = hand_over(&state, piece);
        }
    }
    history_close(&state);
    return status;
}
