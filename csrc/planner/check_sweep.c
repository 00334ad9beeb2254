/* Rectangles of a placement. */
#include "planner/check_sweep.h"

#include "base/rounding.h"
#include "base/sort.h"
#include "planner/instance.h"

#include <stdlib.h>
#include <string.h>

gml_status gml_sweep_sort(const uint64_t *keys, size_t count, uint32_t *order) {
    gml_keyed *items = malloc((2 * count + 1) * sizeof *items);
    if (!items) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        items[i] = (gml_keyed){keys[i], i};
    }
    gml_sort_keyed(items, items + count, count);
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)items[i].index;
    }
    free(items);
    return GML_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void add_piece(gml_sweep *sweep, uint64_t start, uint64_t end, const gml_piece *place) {
    gml_piece *piece = &sweep->pieces[sweep->count++];
    *piece = *place;
    piece->start = start;
    piece->end = end;
}

static void add_lifetime(gml_sweep *sweep, const gml_problem *problem, size_t index,
                         uint64_t offset) {
    const gml_lifetime *lifetime = &problem->lifetimes[index];
    uint64_t alignment = gml_problem_alignment(problem);
    gml_piece place = {.offset = offset,
                       .top = offset + gml_round_up(lifetime->size_bytes, alignment),
                       .lifetime = (uint32_t)index};
    uint64_t period = problem->period;
    if (period && lifetime->end > period) {
        add_piece(sweep, lifetime->start, period, &place);
        add_piece(sweep, 0, lifetime->end - period, &place);
    } else {
        add_piece(sweep, lifetime->start, lifetime->end, &place);
    }
}

gml_status gml_sweep_open(gml_sweep *sweep, const gml_problem *problem, const uint64_t *offsets) {
    size_t most = 2 * problem->count + 1;
    *sweep = (gml_sweep){.pieces = malloc(most * sizeof *sweep->pieces)};
    if (!sweep->pieces) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < problem->count; i++) {
        add_lifetime(sweep, problem, i, offsets[i]);
    }
    return GML_OK;
}

void gml_sweep_close(gml_sweep *sweep) {
    free(sweep->pieces);
    *sweep = (gml_sweep){0};
}
