/* The independent check of a placement: a sweep over raw times. */
#include "base/number_set.h"
#include "base/rounding.h"
#include "planner/check_sweep.h"
#include "planner/instance.h"

#include <inttypes.h>

/* What a message calls a piece: the number of its lifetime. */
static gml_status
refuse_pair(const gml_piece *a, const gml_piece *b, char *reason, size_t reason_bytes)
{
    if (a->lifetime == GML_TAKEN_PIECE || b->lifetime == GML_TAKEN_PIECE) {
        const gml_piece *placed = a->lifetime == GML_TAKEN_PIECE ? b : a;
        return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                          "lifetime %" PRIu32 " at offset %" PRIu64 " lies on a taken span",
                          placed->lifetime, placed->offset);
    }
    return gml_refuse(GML_CORRUPT, reason, reason_bytes,
                      "lifetimes %" PRIu32 " and %" PRIu32
                      " meet in time and address, at offsets %" PRIu64 " and %" PRIu64,
                      a->lifetime, b->lifetime, a->offset, b->offset);
}

/* Live pieces are disjoint, so that one that meets any of them meets a neighbour. */
static gml_status
check_neighbours(const gml_sweep *sweep, const gml_number_set *live, const gml_piece *piece,
                 char *reason, size_t reason_bytes)
{
    size_t below = gml_number_set_upto(live, piece->rank);
    if (below != GML_NO_MEMBER) {
        const gml_piece *other = &sweep->pieces[sweep->by_rank[below]];
        if (other->top > piece->offset) {
            return refuse_pair(other, piece, reason, reason_bytes);
        }
    }
    size_t above = gml_number_set_from(live, piece->rank);
    if (above != GML_NO_MEMBER) {
        const gml_piece *other = &sweep->pieces[sweep->by_rank[above]];
        if (piece->top > other->offset) {
            return refuse_pair(other, piece, reason, reason_bytes);
        }
    }
    return GML_OK;
}

/* No two pieces meet in time and address. Ends come before starts. */
static gml_status
check_disjoint(const gml_sweep *sweep, char *reason, size_t reason_bytes)
{
    gml_number_set live;
    gml_status status = gml_number_set_open(&live, sweep->count);
    size_t ended = 0;
    for (size_t i = 0; status == GML_OK && i < sweep->count; i++) {
        const gml_piece *piece = &sweep->pieces[sweep->by_start[i]];
        gml_sweep_end_until(sweep, &live, &ended, piece->start);
        status = check_neighbours(sweep, &live, piece, reason, reason_bytes);
        gml_number_set_add(&live, piece->rank);
    }
    gml_number_set_close(&live);
    return status;
}

/* The offset of one lifetime by itself; raises *top to its end. */
static gml_status
check_offset(const gml_problem *problem, size_t index, uint64_t offset, uint64_t *top, char *reason,
             size_t reason_bytes)
{
    const gml_lifetime *lifetime = &problem->lifetimes[index];
    if (lifetime->flags & GML_LIFETIME_DYNAMIC) {
        return offset == GML_NO_OFFSET
                   ? GML_OK
                   : gml_refuse(GML_CORRUPT, reason, reason_bytes,
                                "lifetime %zu is dynamic and has an offset", index);
    }
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

static gml_status
check_offsets(const gml_problem *problem, const uint64_t *offsets, uint64_t peak_bytes,
              char *reason, size_t reason_bytes)
{
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

gml_status
gml_planner_check(const gml_problem *problem, const uint64_t *offsets, uint64_t peak_bytes,
                  char *reason, size_t reason_bytes)
{
    gml_status status = gml_problem_check(problem, reason, reason_bytes);
    if (status != GML_OK) {
        return GML_CORRUPT;
    }
    status = check_offsets(problem, offsets, peak_bytes, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    gml_sweep sweep;
    status = gml_sweep_open(&sweep, problem, offsets);
    if (status == GML_OK) {
        status = check_disjoint(&sweep, reason, reason_bytes);
        if (status == GML_OK) {
            status = gml_sweep_check_streams(&sweep, problem, reason, reason_bytes);
        }
        gml_sweep_close(&sweep);
    }
    return status;
}
