/* HomoPhase groups: buffers allocated in one phase and freed in another, packed side by side, and
 * the fusion of two adjacent groups.
 *
 * Where the paper is silent, as its authors' program does: a group that is small, or that its
 * buffers fill badly (those that live within one phase, mostly), is taken apart again; a group is
 * fused once; where the smaller group is the one that comes first, the procedure runs backwards in
 * time. What fits nowhere beside the larger group is packed above it, and the time-memory product
 * decides.
 */
#include "base/sort.h"
#include "stalloc/stalloc.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 area; /* bytes times time */

enum {
    LEAST_FILLED_TENTHS = 7, /* of the group's size times its life */
    FEW_ITEMS = 5,
    SMALL_PART = 10, /* fewer items, and less than this part of the largest group: small */
};

typedef struct group {
    uint64_t size_bytes, start, end;
    area used;
    uint32_t phase_start, phase_end;
    uint32_t first, count; /* in grouping.members */
    bool is_done;          /* fused, or taken apart */
} group;

/* A buffer in the course of a fusion; times may run backwards. */
typedef struct piece {
    uint64_t start, end, size_bytes, address;
    uint32_t item;
} piece;

typedef struct grouping {
    const gml_problem *problem;
    const gml_instance *instance;
    gml_stalloc_requests *requests;
    uint32_t *members; /* items, group by group */
    group *groups;     /* in the order of their starts */
    size_t member_count, group_count;
    gml_keyed *by_phase; /* groups by the phase in which they start, then by start */
    gml_keyed *room;     /* twice as many as items */
    piece *larger, *smaller;
    uint32_t *next; /* in a fusion: the first piece of the smaller, from each on, not yet placed */
} grouping;

/* ---- requests -------------------------------------------------------------------------------- */

/* A request without pieces as yet. */
static void add_request(grouping *state, uint64_t size_bytes, uint64_t start, uint64_t end) {
    gml_stalloc_requests *requests = state->requests;
    requests->list[requests->count++] =
        (gml_stalloc_request){.size_bytes = size_bytes,
                              .start = start,
                              .end = end,
                              .first = (uint32_t)requests->item_count};
}

/* Adds `count` placed pieces to the last request. */
static void add_pieces(grouping *state, const piece *pieces, size_t count) {
    gml_stalloc_requests *requests = state->requests;
    for (size_t i = 0; i < count; i++) {
        requests->items[requests->item_count++] = pieces[i].item;
        requests->addresses[pieces[i].item] = pieces[i].address;
    }
    requests->list[requests->count - 1].count += (uint32_t)count;
}

static void add_single(grouping *state, uint32_t item) {
    const gml_instance *instance = state->instance;
    uint64_t start = instance->start[item];
    const piece whole = {.item = item};
    add_request(state, instance->sizes[item], start, start + instance->life[item]);
    add_pieces(state, &whole, 1);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static uint64_t phases_of(const grouping *state, uint32_t item) {
    const gml_lifetime *lifetime = &state->problem->lifetimes[state->instance->lifetime[item]];
    return lifetime->phase_start && lifetime->phase_end
               ? (uint64_t)lifetime->phase_start << 32 | lifetime->phase_end
               : 0;
}

static void add_to_group(grouping *state, group *into, uint32_t item) {
    const gml_instance *instance = state->instance;
    uint64_t start = instance->start[item], end = start + instance->life[item];
    into->size_bytes += instance->sizes[item];
    into->used += (area)instance->sizes[item] * instance->life[item];
    into->start = start < into->start ? start : into->start;
    into->end = end > into->end ? end : into->end;
    state->members[into->first + into->count++] = item;
}

static area reserved(const group *of) {
    return (area)of->size_bytes * (of->end - of->start);
}

/* One group for each pair of phases; items whose phases are not known become requests. */
static void gather_groups(grouping *state) {
    size_t count = 0;
    for (uint32_t item = 0; item < state->instance->count; item++) {
        uint64_t phases = phases_of(state, item);
        if (phases) {
            state->room[count++] = (gml_keyed){phases, item};
        } else {
            add_single(state, item);
        }
    }
    gml_sort_keyed(state->room, state->room + count, count);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || state->room[i].key != state->room[i - 1].key) {
            state->groups[state->group_count++] =
                (group){.start = UINT64_MAX,
                        .phase_start = (uint32_t)(state->room[i].key >> 32),
                        .phase_end = (uint32_t)state->room[i].key,
                        .first = (uint32_t)i};
        }
        add_to_group(state, &state->groups[state->group_count - 1], (uint32_t)state->room[i].index);
    }
}

static void take_apart(grouping *state, group *of) {
    for (uint32_t i = 0; i < of->count; i++) {
        add_single(state, state->members[of->first + i]);
    }
    of->is_done = true;
}

static void drop_bad_groups(grouping *state) {
    uint64_t largest = 0;
    for (size_t i = 0; i < state->group_count; i++) {
        uint64_t size = state->groups[i].size_bytes;
        largest = size > largest ? size : largest;
    }
    for (size_t i = 0; i < state->group_count; i++) {
        group *of = &state->groups[i];
        bool is_small = of->count < FEW_ITEMS && of->size_bytes < largest / SMALL_PART;
        bool is_filled = of->used >= reserved(of) / 10 * LEAST_FILLED_TENTHS;
        if (is_small || !is_filled) {
            take_apart(state, of);
        }
    }
}

/* ---- packing --------------------------------------------------------------------------------- */

/* The pieces of a group; with `is_backwards`, time runs from the largest number down. */
static void load_pieces(const grouping *state, const group *of, bool is_backwards, piece *pieces) {
    const gml_instance *instance = state->instance;
    for (uint32_t i = 0; i < of->count; i++) {
        uint32_t item = state->members[of->first + i];
        uint64_t start = instance->start[item], end = start + instance->life[item];
        pieces[i] = (piece){.start = is_backwards ? UINT64_MAX - end : start,
                            .end = is_backwards ? UINT64_MAX - start : end,
                            .size_bytes = instance->sizes[item],
                            .item = item};
    }
}

static int compare_ends_down(const void *a, const void *b) {
    const piece *left = a, *right = b;
    if (left->end != right->end) {
        return left->end > right->end ? -1 : 1;
    }
    return (left->item > right->item) - (left->item < right->item);
}

static int compare_starts(const void *a, const void *b) {
    const piece *left = a, *right = b;
    if (left->start != right->start) {
        return left->start < right->start ? -1 : 1;
    }
    return (left->item > right->item) - (left->item < right->item);
}

/* Side by side, those that end last lowest; the end. */
static uint64_t pack(piece *pieces, size_t count) {
    uint64_t top = 0;
    qsort(pieces, count, sizeof *pieces, compare_ends_down);
    for (size_t i = 0; i < count; i++) {
        pieces[i].address = top;
        top += pieces[i].size_bytes;
    }
    return top;
}

static void add_group(grouping *state, group *of) {
    load_pieces(state, of, false, state->larger);
    pack(state->larger, of->count);
    add_request(state, of->size_bytes, of->start, of->end);
    add_pieces(state, state->larger, of->count);
    of->is_done = true;
}

/* ---- fusion ---------------------------------------------------------------------------------- */

/* The first piece from `at` on that is not placed, or `count`. */
static uint32_t next_unplaced(uint32_t *next, uint32_t at) {
    while (next[at] != at) {
        next[at] = next[next[at]];
        at = next[at];
    }
    return at;
}

static uint32_t first_from(const piece *pieces, uint32_t count, uint64_t start) {
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pieces[middle].start < start) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Packed by their ends, the lowest piece of the larger group beside `address` is the one that ends
 * last: a smaller one fits if it starts after that. Returns its number, or `count`. */
static uint32_t choose(grouping *state, uint32_t count, uint64_t busy_until, uint64_t room_bytes) {
    uint32_t at = next_unplaced(state->next, first_from(state->smaller, count, busy_until));
    while (at < count && state->smaller[at].size_bytes > room_bytes) {
        at = next_unplaced(state->next, at + 1);
    }
    return at;
}

/* Places the smaller group beside the larger, or on top of it; the end of both. */
static uint64_t insert_smaller(grouping *state, uint32_t larger_count, uint32_t smaller_count,
                               uint64_t top) {
    uint32_t beside = 0; /* the piece of the larger group at `address` */
    uint64_t address = 0;
    for (uint32_t i = 0; i <= smaller_count; i++) {
        state->next[i] = i;
    }
    while (beside < larger_count) {
        const piece *larger = &state->larger[beside];
        if (address >= larger->address + larger->size_bytes) {
            beside++;
            continue;
        }
        uint32_t chosen = choose(state, smaller_count, larger->end, top - address);
        if (chosen < smaller_count) {
            state->smaller[chosen].address = address;
            address += state->smaller[chosen].size_bytes;
            state->next[chosen] = chosen + 1;
        } else if (++beside < larger_count) {
            address = state->larger[beside].address;
        }
    }
    for (uint32_t i = next_unplaced(state->next, 0); i < smaller_count;
         i = next_unplaced(state->next, i + 1)) {
        state->smaller[i].address = top;
        top += state->smaller[i].size_bytes;
    }
    return top;
}

/* Fuses two groups if that raises the time-memory product above the weighted average, which is to
 * say, if the two together reserve less. */
static bool fuse(grouping *state, group *former, group *latter) {
    bool is_former_larger = former->size_bytes >= latter->size_bytes;
    group *larger = is_former_larger ? former : latter;
    group *smaller = is_former_larger ? latter : former;
    uint64_t start = former->start < latter->start ? former->start : latter->start;
    uint64_t end = former->end > latter->end ? former->end : latter->end;
    area limit = reserved(former) + reserved(latter);
    if ((area)larger->size_bytes * (end - start) >= limit) {
        return false;
    }
    load_pieces(state, larger, !is_former_larger, state->larger);
    load_pieces(state, smaller, !is_former_larger, state->smaller);
    uint64_t top = pack(state->larger, larger->count);
    qsort(state->smaller, smaller->count, sizeof *state->smaller, compare_starts);
    top = insert_smaller(state, larger->count, smaller->count, top);
    if ((area)top * (end - start) >= limit) {
        return false;
    }
    add_request(state, top, start, end);
    add_pieces(state, state->larger, larger->count);
    add_pieces(state, state->smaller, smaller->count);
    former->is_done = latter->is_done = true;
    return true;
}

static int compare_groups(const void *a, const void *b) {
    const group *left = a, *right = b;
    if (left->start != right->start) {
        return left->start < right->start ? -1 : 1;
    }
    return (left->first > right->first) - (left->first < right->first);
}

/* With the first group that starts in the phase in which `former` ends, and gains by it. */
static void fuse_with_any(grouping *state, group *former) {
    size_t low = 0, high = state->group_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (state->by_phase[middle].key < former->phase_end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (size_t i = low; i < state->group_count && state->by_phase[i].key == former->phase_end;
         i++) {
        group *latter = &state->groups[state->by_phase[i].index];
        if (latter != former && !latter->is_done && fuse(state, former, latter)) {
            return;
        }
    }
}

static void fuse_groups(grouping *state) {
    size_t count = state->group_count;
    qsort(state->groups, count, sizeof *state->groups, compare_groups);
    for (size_t i = 0; i < count; i++) {
        state->by_phase[i] = (gml_keyed){state->groups[i].phase_start, i};
    }
    gml_sort_keyed(state->by_phase, state->room, count);
    for (size_t i = 0; i < count; i++) {
        group *former = &state->groups[i];
        if (!former->is_done) {
            fuse_with_any(state, former);
        }
        if (!former->is_done) {
            add_group(state, former);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static gml_status grouping_open(grouping *state) {
    size_t count = state->instance->count;
    state->members = calloc(count + 1, sizeof *state->members);
    state->groups = calloc(count + 1, sizeof *state->groups);
    state->by_phase = calloc(count + 1, sizeof *state->by_phase);
    state->room = calloc(2 * count + 1, sizeof *state->room);
    state->larger = calloc(count + 1, sizeof *state->larger);
    state->smaller = calloc(count + 1, sizeof *state->smaller);
    state->next = calloc(count + 1, sizeof *state->next);
    bool is_whole = state->members && state->groups && state->by_phase && state->room &&
                    state->larger && state->smaller && state->next;
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

static void grouping_close(grouping *state) {
    free(state->members);
    free(state->groups);
    free(state->by_phase);
    free(state->room);
    free(state->larger);
    free(state->smaller);
    free(state->next);
}

gml_status gml_stalloc_group(const gml_problem *problem, const gml_instance *instance,
                             gml_stalloc_requests *requests) {
    grouping state = {.problem = problem, .instance = instance, .requests = requests};
    gml_status status = grouping_open(&state);
    if (status == GML_OK) {
        gather_groups(&state);
        drop_bad_groups(&state);
        fuse_groups(&state);
    }
    grouping_close(&state);
    return status;
}
