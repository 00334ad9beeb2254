/* HomoSize groups: requests of one size in memory-layers, in descending size.
 *
 * Where the paper is silent: a request goes into the idle interval that begins last before it (as
 * in Algorithm 1, to keep layers without idle time), and becomes a layer of its own size there.
 * What is left of the interval's size stays idle for all of its time.
 */
#include "base/sort.h"
#include "stalloc/stalloc.h"
#include "stalloc/stalloc_idle.h"

#include <stdlib.h>

/* A memory-layer of the group at hand. */
typedef struct layer {
    uint64_t base, end; /* end of its last request */
} layer;

/* An interval that becomes idle when the group at hand is done: smaller requests only. */
typedef struct gap {
    uint64_t begin, end, base;
} gap;

typedef struct layering {
    const gml_stalloc_requests *requests;
    uint64_t *bases;
    uint32_t *order; /* requests by descending size, start, number */
    gml_idle_set idle;
    layer *layers;   /* of the group at hand: */
    uint32_t *heap;  /* those in use at the time at hand, the first to end on top */
    uint32_t *ended; /* and those that are not, by their end */
    gap *gaps;
    size_t layer_count, heap_count, ended_count, gap_count;
    uint64_t top;         /* of all layers */
    uint64_t first, last; /* times between which everything lies */
    uint64_t least_size;  /* of all requests: an interval that is smaller is of no use */
} layering;

/* ---- the layers in use ----------------------------------------------------------------------- */

static bool ends_before(const layering *state, uint32_t a, uint32_t b) {
    uint64_t a_end = state->layers[a].end, b_end = state->layers[b].end;
    return a_end != b_end ? a_end < b_end : a < b;
}

static void heap_push(layering *state, uint32_t number) {
    size_t at = state->heap_count++;
    while (at > 0 && ends_before(state, number, state->heap[(at - 1) / 2])) {
        state->heap[at] = state->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    state->heap[at] = number;
}

static uint32_t heap_pop(layering *state) {
    uint32_t popped = state->heap[0], moved = state->heap[--state->heap_count];
    size_t at = 0;
    for (size_t child = 1; child < state->heap_count; child = 2 * at + 1) {
        if (child + 1 < state->heap_count &&
            ends_before(state, state->heap[child + 1], state->heap[child])) {
            child++;
        }
        if (!ends_before(state, state->heap[child], moved)) {
            break;
        }
        state->heap[at] = state->heap[child];
        at = child;
    }
    state->heap[at] = moved;
    return popped;
}

/* ---- Algorithm 1 ----------------------------------------------------------------------------- */

static uint32_t append_layer(layering *state, uint64_t size_bytes) {
    state->layers[state->layer_count] = (layer){state->top, state->first};
    state->top += size_bytes;
    return (uint32_t)state->layer_count++;
}

/* Requests come in the order of their starts, so that layers end in the order in which they are
 * moved over: the last one is the one whose end is the closest to the start. */
static void append_to_layer(layering *state, uint32_t number) {
    const gml_stalloc_request *request = &state->requests->list[number];
    while (state->heap_count && state->layers[state->heap[0]].end <= request->start) {
        state->ended[state->ended_count++] = heap_pop(state);
    }
    uint32_t chosen = state->ended_count ? state->ended[--state->ended_count]
                                         : append_layer(state, request->size_bytes);
    layer *into = &state->layers[chosen];
    state->gaps[state->gap_count++] = (gap){into->end, request->start, into->base};
    into->end = request->end;
    state->bases[number] = into->base;
    heap_push(state, chosen);
}

/* ---- idle intervals of larger layers --------------------------------------------------------- */

static bool add_idle(layering *state, uint64_t begin, uint64_t end, uint64_t base,
                     uint64_t size_bytes) {
    return size_bytes < state->least_size ||
           gml_idle_add(&state->idle, begin, end, base, size_bytes);
}

/* Whether it was placed goes to *is_placed. */
static gml_status insert_idle(layering *state, uint32_t number, bool *is_placed) {
    const gml_stalloc_request *request = &state->requests->list[number];
    gml_idle_node *node =
        gml_idle_find(&state->idle, request->start, request->end, request->size_bytes);
    *is_placed = node != NULL;
    if (!node) {
        return GML_OK;
    }
    uint64_t begin = node->begin, end = node->end, base = node->base, size = node->size_bytes;
    gml_idle_remove(&state->idle, node);
    state->bases[number] = base;
    bool is_kept =
        add_idle(state, begin, request->start, base, request->size_bytes) &&
        add_idle(state, request->end, end, base, request->size_bytes) &&
        add_idle(state, begin, end, base + request->size_bytes, size - request->size_bytes);
    return is_kept ? GML_OK : GML_NO_HOST_MEMORY;
}

/* ---- all groups ------------------------------------------------------------------------------ */

static gml_status close_layers(layering *state, uint64_t size_bytes) {
    for (size_t i = 0; i < state->layer_count; i++) {
        state->gaps[state->gap_count++] =
            (gap){state->layers[i].end, state->last, state->layers[i].base};
    }
    bool is_kept = true;
    for (size_t i = 0; is_kept && i < state->gap_count; i++) {
        is_kept = add_idle(state, state->gaps[i].begin, state->gaps[i].end, state->gaps[i].base,
                           size_bytes);
    }
    state->layer_count = state->heap_count = state->ended_count = state->gap_count = 0;
    return is_kept ? GML_OK : GML_NO_HOST_MEMORY;
}

/* One HomoSize group: `count` requests from `order` on. */
static gml_status place_group(layering *state, const uint32_t *order, size_t count) {
    gml_status status = GML_OK;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        bool is_placed = false;
        status = insert_idle(state, order[i], &is_placed);
        if (status == GML_OK && !is_placed) {
            append_to_layer(state, order[i]);
        }
    }
    if (status == GML_OK) {
        status = close_layers(state, state->requests->list[order[0]].size_bytes);
    }
    return status;
}

static gml_status place_groups(layering *state) {
    const gml_stalloc_request *list = state->requests->list;
    size_t count = state->requests->count;
    gml_status status = GML_OK;
    for (size_t i = 0, end; status == GML_OK && i < count; i = end) {
        end = i + 1;
        while (end < count &&
               list[state->order[end]].size_bytes == list[state->order[i]].size_bytes) {
            end++;
        }
        status = place_group(state, &state->order[i], end - i);
    }
    return status;
}

static gml_status sort_requests(layering *state) {
    size_t count = state->requests->count;
    gml_keyed *keys = calloc(count + 1, 2 * sizeof *keys);
    if (!keys) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        keys[i] = (gml_keyed){state->requests->list[i].start, i};
    }
    gml_sort_keyed(keys, keys + count, count);
    for (size_t i = 0; i < count; i++) {
        keys[i].key = ~state->requests->list[keys[i].index].size_bytes;
    }
    gml_sort_keyed(keys, keys + count, count);
    for (size_t i = 0; i < count; i++) {
        state->order[i] = (uint32_t)keys[i].index;
    }
    free(keys);
    return GML_OK;
}

static gml_status layering_open(layering *state) {
    size_t room = state->requests->count ? state->requests->count : 1;
    state->idle = gml_idle_open();
    state->order = calloc(room, sizeof *state->order);
    state->layers = calloc(room, sizeof *state->layers);
    state->heap = calloc(room, sizeof *state->heap);
    state->ended = calloc(room, sizeof *state->ended);
    state->gaps = calloc(room, 2 * sizeof *state->gaps);
    if (!state->order || !state->layers || !state->heap || !state->ended || !state->gaps) {
        return GML_NO_HOST_MEMORY;
    }
    state->first = state->least_size = UINT64_MAX;
    for (size_t i = 0; i < state->requests->count; i++) {
        const gml_stalloc_request *request = &state->requests->list[i];
        state->first = request->start < state->first ? request->start : state->first;
        state->last = request->end > state->last ? request->end : state->last;
        state->least_size =
            request->size_bytes < state->least_size ? request->size_bytes : state->least_size;
    }
    return sort_requests(state);
}

static void layering_close(layering *state) {
    gml_idle_close(&state->idle);
    free(state->order);
    free(state->layers);
    free(state->heap);
    free(state->ended);
    free(state->gaps);
}

gml_status gml_stalloc_layer(const gml_stalloc_requests *requests, uint64_t *bases) {
    layering state = {.requests = requests, .bases = bases};
    gml_status status = layering_open(&state);
    if (status == GML_OK) {
        status = place_groups(&state);
    }
    layering_close(&state);
    return status;
}
