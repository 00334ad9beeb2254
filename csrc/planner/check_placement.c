/* The independent check of a placement: a sweep over raw times.
 *
 * In the order of allocations it keeps the last lifetime of every byte. That lifetime must have
 * ended, and be of the same stream or of one that the program has ordered before. The same then
 * holds for all earlier lifetimes of the byte: orderings and the order within a stream are
 * transitive.
 */
#include "base/number_set.h"
#include "base/rounding.h"
#include "planner/check_sweep.h"
#include "planner/instance.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- each offset by itself ------------------------------------------------------------------- */

/* The offset of one lifetime by itself; raises *top to its end. */
static gml_status check_offset(const gml_problem *problem, size_t index, uint64_t offset,
                               uint64_t *top, char *reason, size_t reason_bytes) {
    const gml_lifetime *lifetime = &problem->lifetimes[index];
    if (offset == GML_NO_OFFSET) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes, "lifetime %zu has no offset", index);
    }
    uint64_t alignment = gml_problem_alignment(problem);
    uint64_t size = gml_round_up(lifetime->size_bytes, alignment);
    if (offset % alignment) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "lifetime %zu: offset %" PRIu64 " is not aligned", index, offset);
    }
    if (size > UINT64_MAX - offset) {
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "lifetime %zu: offset %" PRIu64 " overflows", index, offset);
    }
    *top = offset + size > *top ? offset + size : *top;
    return GML_OK;
}

static gml_status check_offsets(const gml_problem *problem, const uint64_t *offsets,
                                uint64_t peak_bytes, char *reason, size_t reason_bytes) {
    uint64_t top = 0;
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < problem->count; i++) {
        status = check_offset(problem, i, offsets[i], &top, reason, reason_bytes);
    }
    if (status == GML_OK && top != peak_bytes) {
        status =
            gml_refuse(GML_CORRUPT, reason, reason_bytes,
                       "the largest end is %" PRIu64 ", not the peak of %" PRIu64, top, peak_bytes);
    }
    return status;
}

/* ---- who had the bytes before ---------------------------------------------------------------- */

#define NOBODY UINT32_MAX

typedef struct history {
    gml_sweep sweep;
    uint32_t *by_start; /* pieces */
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

static int compare_orderings(const void *a, const void *b) {
    const gml_ordering *left = a, *right = b;
    if (left->before != right->before) {
        return left->before < right->before ? -1 : 1;
    }
    if (left->after != right->after) {
        return left->after < right->after ? -1 : 1;
    }
    return (left->time > right->time) - (left->time < right->time);
}

/* Whether `after` was made to wait for `before` at some time in [from, until]: whether the first
 * such ordering not before `from` comes in time. */
static bool is_ordered(const history *state, gml_stream before, gml_stream after, uint64_t from,
                       uint64_t until) {
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

/* The number of a piece's lifetime, for messages. */
static gml_status refuse_pair(const history *state, const gml_piece *a, const gml_piece *b) {
    return gml_refuse(GML_CORRUPT, state->reason, state->reason_bytes,
                      "lifetimes %" PRIu32 " and %" PRIu32
                      " meet in time and address, at offsets %" PRIu64 " and %" PRIu64,
                      a->lifetime, b->lifetime, a->offset, b->offset);
}

static gml_status check_handover(const history *state, uint32_t former, uint32_t next) {
    const gml_piece *from = &state->sweep.pieces[former], *to = &state->sweep.pieces[next];
    if (from->end > to->start) {
        return refuse_pair(state, from, to);
    }
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
static void split(history *state, size_t edge) {
    if (edge < state->edge_count && !gml_number_set_has(&state->begins, edge)) {
        size_t around = gml_number_set_upto(&state->begins, edge);
        state->last[edge] = around == GML_NO_MEMBER ? NOBODY : state->last[around];
        gml_number_set_add(&state->begins, edge);
    }
}

/* Gives `piece` its addresses. Removes each range that it covers, so that the total cost of all
 * calls is bounded by the ranges that they create. */
static gml_status hand_over(history *state, uint32_t piece) {
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

static gml_status number_edges(history *state) {
    size_t count = 2 * state->sweep.count;
    uint64_t *keys = calloc(count + 1, sizeof *keys);
    uint32_t *order = calloc(count + 1, sizeof *order);
    gml_status status = keys && order ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t i = 0; status == GML_OK && i < state->sweep.count; i++) {
        keys[2 * i] = state->sweep.pieces[i].offset;
        keys[2 * i + 1] = state->sweep.pieces[i].top;
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

static gml_status sort_starts(history *state) {
    uint64_t *keys = malloc((state->sweep.count + 1) * sizeof *keys);
    gml_status status = keys ? GML_OK : GML_NO_HOST_MEMORY;
    for (size_t i = 0; keys && i < state->sweep.count; i++) {
        keys[i] = state->sweep.pieces[i].start;
    }
    if (status == GML_OK) {
        status = gml_sweep_sort(keys, state->sweep.count, state->by_start);
    }
    free(keys);
    return status;
}

static gml_status history_open(history *state, const uint64_t *offsets) {
    size_t orderings = state->problem->ordering_count;
    gml_status status = gml_sweep_open(&state->sweep, state->problem, offsets);
    size_t pieces = state->sweep.count;
    state->orderings = malloc((orderings + 1) * sizeof *state->orderings);
    state->by_start = malloc((pieces + 1) * sizeof *state->by_start);
    state->edges = calloc(2 * pieces + 1, sizeof *state->edges);
    state->last = calloc(2 * pieces + 1, sizeof *state->last);
    if (status != GML_OK || !state->orderings || !state->by_start || !state->edges ||
        !state->last) {
        return GML_NO_HOST_MEMORY;
    }
    if (orderings) {
        memcpy(state->orderings, state->problem->orderings, orderings * sizeof *state->orderings);
        qsort(state->orderings, orderings, sizeof *state->orderings, compare_orderings);
    }
    status = sort_starts(state);
    if (status == GML_OK) {
        status = number_edges(state);
    }
    return status == GML_OK ? gml_number_set_open(&state->begins, state->edge_count) : status;
}

static void history_close(history *state) {
    gml_sweep_close(&state->sweep);
    free(state->orderings);
    free(state->by_start);
    free(state->edges);
    free(state->last);
    gml_number_set_close(&state->begins);
}

gml_status gml_planner_check(const gml_problem *problem, const uint64_t *offsets,
                             uint64_t peak_bytes, char *reason, size_t reason_bytes) {
    if (gml_problem_check(problem, reason, reason_bytes) != GML_OK) {
        return GML_CORRUPT;
    }
    gml_status status = check_offsets(problem, offsets, peak_bytes, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    history state = {.problem = problem, .reason = reason, .reason_bytes = reason_bytes};
    status = history_open(&state, offsets);
    for (size_t i = 0; status == GML_OK && i < state.sweep.count; i++) {
        status = hand_over(&state, state.by_start[i]);
    }
    history_close(&state);
    return status;
}
