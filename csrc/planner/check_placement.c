/* The independent check of a placement: a sweep over raw times.
 *
 * In the order of allocations it keeps the last lifetime of every byte. That lifetime must have
 * ended, and be of the same stream or of one that the program has ordered before. The same then
 * holds for all earlier lifetimes of the byte: orderings and the order within a stream are
 * transitive.
 */
#include "base/number_set.h"
#include "base/reason.h"
#include "base/rounding.h"
#include "base/sort.h"
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

/* A rectangle of time and address. A lifetime that wraps is two. */
typedef struct rectangle {
    uint64_t start, end;  /* raw times, start < end */
    uint64_t offset, top; /* [offset, top) */
    uint32_t lifetime;
} rectangle;

typedef struct history {
    const gml_problem *problem;
    rectangle *pieces;
    size_t piece_count;
    gml_keyed *sorted;       /* pieces by their start; room for four for each piece */
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
static gml_status refuse_pair(const history *state, const rectangle *a, const rectangle *b) {
    return gml_refuse(GML_CORRUPT, state->reason, state->reason_bytes,
                      "lifetimes %" PRIu32 " and %" PRIu32
                      " meet in time and address, at offsets %" PRIu64 " and %" PRIu64,
                      a->lifetime, b->lifetime, a->offset, b->offset);
}

static gml_status check_handover(const history *state, uint32_t former, uint32_t next) {
    const rectangle *from = &state->pieces[former], *to = &state->pieces[next];
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

/* ---- what is compared with it ---------------------------------------------------------------- */

static void add_piece(history *state, uint64_t start, uint64_t end, const rectangle *place) {
    rectangle *added = &state->pieces[state->piece_count++];
    *added = *place;
    added->start = start;
    added->end = end;
}

static void add_lifetime(history *state, size_t index, uint64_t offset) {
    const gml_problem *problem = state->problem;
    const gml_lifetime *lifetime = &problem->lifetimes[index];
    uint64_t alignment = gml_problem_alignment(problem);
    rectangle place = {.offset = offset,
                       .top = offset + gml_round_up(lifetime->size_bytes, alignment),
                       .lifetime = (uint32_t)index};
    uint64_t period = problem->period;
    if (period && lifetime->end > period) {
        add_piece(state, lifetime->start, period, &place);
        add_piece(state, 0, lifetime->end - period, &place);
    } else {
        add_piece(state, lifetime->start, lifetime->end, &place);
    }
}

static void number_edges(history *state) {
    size_t count = 2 * state->piece_count;
    gml_keyed *ends = state->sorted;
    for (size_t i = 0; i < state->piece_count; i++) {
        ends[2 * i] = (gml_keyed){state->pieces[i].offset, 2 * i};
        ends[2 * i + 1] = (gml_keyed){state->pieces[i].top, 2 * i + 1};
    }
    gml_sort_keyed(ends, ends + count, count);
    for (size_t i = 0; i < count; i++) {
        state->edge_count += i == 0 || ends[i].key != ends[i - 1].key;
        state->edges[ends[i].index] = (uint32_t)(state->edge_count - 1);
    }
}

static void sort_starts(history *state) {
    for (size_t i = 0; i < state->piece_count; i++) {
        state->sorted[i] = (gml_keyed){state->pieces[i].start, i};
    }
    gml_sort_keyed(state->sorted, state->sorted + state->piece_count, state->piece_count);
}

static gml_status history_open(history *state, const uint64_t *offsets) {
    const gml_problem *problem = state->problem;
    size_t orderings = problem->ordering_count, most = 2 * problem->count;
    state->pieces = malloc((most + 1) * sizeof *state->pieces);
    state->sorted = malloc((4 * most + 1) * sizeof *state->sorted);
    state->orderings = malloc((orderings + 1) * sizeof *state->orderings);
    state->edges = calloc(2 * most + 1, sizeof *state->edges);
    state->last = calloc(2 * most + 1, sizeof *state->last);
    if (!state->pieces || !state->sorted || !state->orderings || !state->edges || !state->last) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < problem->count; i++) {
        add_lifetime(state, i, offsets[i]);
    }
    if (orderings) {
        memcpy(state->orderings, problem->orderings, orderings * sizeof *state->orderings);
        qsort(state->orderings, orderings, sizeof *state->orderings, compare_orderings);
    }
    number_edges(state);
    sort_starts(state);
    return gml_number_set_open(&state->begins, state->edge_count);
}

static void history_close(history *state) {
    free(state->pieces);
    free(state->sorted);
    free(state->orderings);
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
    for (size_t i = 0; status == GML_OK && i < state.piece_count; i++) {
        status = hand_over(&state, (uint32_t)state.sorted[i].index);
    }
    history_close(&state);
    return status;
}
