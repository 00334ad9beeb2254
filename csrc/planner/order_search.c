/* First fit in one order after another, in rounds that begin elsewhere. */
#include "planner/order_search.h"

#include "base/mix.h"
#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHAIN = 2,  /* changes on top of each other, each where the last one failed */
    ROUNDS = 5, /* of several streams, each from another order */
};

typedef struct search_state {
    const gml_first_fitting *fitting;
    gml_budget *budget;
    const uint64_t *given;
    uint64_t *best, *found; /* by item */
    uint32_t *best_order;   /* leads to `best` */
    uint32_t *trial, *room;
    uint64_t peak_bytes, random;
    void *memory;
} search_state;

/* ---- one order ------------------------------------------------------------------------------- */

static uint64_t end_of(const search_state *search, const uint64_t *offsets, size_t item) {
    return offsets[item] + search->fitting->sizes[item];
}

static uint64_t highest_end(const search_state *search, const uint64_t *offsets) {
    uint64_t peak = 0;
    for (size_t i = 0; i < search->fitting->count; i++) {
        uint64_t end = end_of(search, offsets, i);
        peak = end > peak ? end : peak;
    }
    return peak;
}

/* Places in the order of search->trial, which becomes the best if it ends no higher: orders of the
 * same peak lead on to others. */
static gml_status try_order(search_state *search, size_t *failed) {
    const gml_first_fitting *fitting = search->fitting;
    gml_status status = fitting->place(fitting->context, search->trial, search->peak_bytes,
                                       search->budget, search->found, failed);
    if (status == GML_OK) {
        uint64_t *found = search->found;
        uint32_t *order = search->trial;
        search->found = search->best;
        search->best = found;
        search->trial = search->best_order;
        search->best_order = order;
        search->peak_bytes = highest_end(search, search->best);
    }
    return status;
}

/* Ascending by `keys` into search->trial. */
static gml_status order_by(search_state *search, const uint64_t *keys) {
    size_t count = search->fitting->count;
    gml_keyed *list = malloc((2 * count + 1) * sizeof *list);
    if (!list) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        list[i] = (gml_keyed){keys[i], i};
    }
    gml_sort_keyed(list, list + count, count);
    for (size_t i = 0; i < count; i++) {
        search->trial[i] = (uint32_t)list[i].index;
    }
    free(list);
    return GML_OK;
}

/* ---- changes --------------------------------------------------------------------------------- */

static size_t draw_below(search_state *search, size_t limit) {
    return (size_t)(gml_mix_next(&search->random) % limit);
}

static void move_earlier(uint32_t *order, size_t from, size_t to) {
    uint32_t moved = order[from];
    memmove(&order[to + 1], &order[to], (from - to) * sizeof *order);
    order[to] = moved;
}

/* Appends the items at [from, to) of the trial that are of the stream, or that are not. */
static size_t append(search_state *search, size_t filled, size_t from, size_t to, uint32_t stream,
                     bool is_of) {
    for (size_t i = from; i < to; i++) {
        if ((search->fitting->stream[search->trial[i]] == stream) == is_of) {
            search->room[filled++] = search->trial[i];
        }
    }
    return filled;
}

/* All items of a stream come one after the other, first of all or at a place that is drawn. */
static void move_stream(search_state *search) {
    size_t count = search->fitting->count;
    uint32_t stream = (uint32_t)draw_below(search, search->fitting->stream_count);
    size_t place = draw_below(search, 2) ? 0 : draw_below(search, count);
    size_t filled = append(search, 0, 0, place, stream, false);
    filled = append(search, filled, 0, count, stream, true);
    (void)append(search, filled, place, count, stream, false);
    uint32_t *room = search->room;
    search->room = search->trial;
    search->trial = room;
}

/* The place in the best order of the first item that ends at the peak. */
static size_t place_of_peak(const search_state *search) {
    size_t i = 0;
    while (end_of(search, search->best, search->best_order[i]) < search->peak_bytes) {
        i++;
    }
    return i;
}

/* A change of the best order, and more of them on top while no order is found that serves. */
static gml_status try_changes(search_state *search) {
    size_t count = search->fitting->count, failed = place_of_peak(search);
    memcpy(search->trial, search->best_order, count * sizeof *search->trial);
    bool moves_stream = search->fitting->stream_count > 1 && draw_below(search, 2);
    gml_status status = GML_NOT_READY;
    for (int i = 0; i < CHAIN && status == GML_NOT_READY && !gml_budget_is_over(search->budget);
         i++) {
        if (moves_stream) {
            move_stream(search);
        } else {
            move_earlier(search->trial, failed, draw_below(search, failed + 1));
        }
        moves_stream = false;
        status = try_order(search, &failed);
    }
    return status;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* The orders that a round begins with. */
static gml_status begin_round(search_state *search, int round) {
    const gml_first_fitting *fitting = search->fitting;
    const uint64_t *keys = search->given;
    if (round == 1) {
        for (size_t i = 0; i < fitting->count; i++) {
            search->found[i] = ~fitting->sizes[i];
        }
        keys = search->found;
    }
    gml_status status = order_by(search, keys);
    for (size_t i = 0; round > 1 && i < 2 * fitting->stream_count; i++) {
        move_stream(search);
    }
    return status;
}

/* One round, from an order of its own; its best replaces `given` if it is lower. */
static gml_status search_round(search_state *search, int round, uint64_t enough_bytes) {
    size_t failed;
    search->peak_bytes = UINT64_MAX;
    gml_status status = begin_round(search, round);
    if (status == GML_OK) {
        status = try_order(search, &failed);
    }
    if (status != GML_OK) {
        return status;
    }
    while (search->peak_bytes > enough_bytes && !gml_budget_is_over(search->budget) &&
           (status == GML_OK || status == GML_NOT_READY)) {
        status = try_changes(search);
    }
    return status == GML_NOT_READY ? GML_OK : status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static gml_status search_open(search_state *search) {
    size_t count = search->fitting->count;
    search->memory = malloc(count * (2 * sizeof *search->best + 3 * sizeof *search->trial));
    if (!search->memory) {
        return GML_NO_HOST_MEMORY;
    }
    search->best = search->memory;
    search->found = search->best + count;
    search->best_order = (uint32_t *)(search->found + count);
    search->trial = search->best_order + count;
    search->room = search->trial + count;
    return GML_OK;
}

gml_status gml_search_orders(const gml_first_fitting *fitting, uint64_t enough_bytes,
                             gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes,
                             bool *is_better) {
    search_state search = {.fitting = fitting, .given = offsets};
    int rounds = fitting->stream_count > 1 ? ROUNDS : 1;
    *is_better = false;
    gml_status status = search_open(&search);
    for (int i = 0; i < rounds && status == GML_OK && *peak_bytes > enough_bytes; i++) {
        gml_budget part = gml_budget_part(budget, 1, (uint64_t)(rounds - i));
        search.budget = &part;
        status = search_round(&search, i, enough_bytes);
        (void)gml_budget_spend(budget, part.work);
        if (status == GML_OK && search.peak_bytes < *peak_bytes) {
            memcpy(offsets, search.best, fitting->count * sizeof *offsets);
            *peak_bytes = search.peak_bytes;
            *is_better = true;
        }
    }
    free(search.memory);
    return status == GML_NOT_READY ? GML_OK : status; /* not even one order in time */
}
