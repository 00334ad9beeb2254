#include "planner/runs.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 };

gml_status
gml_run_store_open(gml_run_store *store)
{
    *store = (gml_run_store){
        .runs = calloc(FIRST_CAPACITY, sizeof *store->runs),
        .count = 1, /* position 0 stands for none */
        .capacity = FIRST_CAPACITY,
    };
    return store->runs ? GML_OK : GML_NO_HOST_MEMORY;
}

void
gml_run_store_close(gml_run_store *store)
{
    free(store->runs);
    *store = (gml_run_store){0};
}

/* ---- rooms ----------------------------------------------------------------------------------- */

static gml_status
store_grow(gml_run_store *store, uint32_t more)
{
    uint64_t capacity = store->capacity;
    while (capacity - store->count < more) {
        capacity *= 2;
    }
    if (capacity > UINT32_MAX) {
        return GML_NO_HOST_MEMORY;
    }
    gml_occupied *runs = realloc(store->runs, (size_t)capacity * sizeof *runs);
    if (!runs) {
        return GML_NO_HOST_MEMORY;
    }
    store->runs = runs;
    store->capacity = (uint32_t)capacity;
    return GML_OK;
}

static unsigned
room_class(uint32_t room)
{
    return (unsigned)__builtin_ctz(room);
}

/* Room for `room` runs, a power of two, at *first. */
static gml_status
take_room(gml_run_store *store, uint32_t room, uint32_t *first)
{
    uint32_t *unused = &store->unused[room_class(room)];
    if (*unused) {
        *first = *unused;
        *unused = (uint32_t)store->runs[*first].low;
        return GML_OK;
    }
    if (store->capacity - store->count < room) {
        gml_status status = store_grow(store, room);
        if (status != GML_OK) {
            return status;
        }
    }
    *first = store->count;
    store->count += room;
    return GML_OK;
}

static void
give_room(gml_run_store *store, uint32_t first, uint32_t room)
{
    uint32_t *unused = &store->unused[room_class(room)];
    store->runs[first].low = *unused;
    *unused = first;
}

static gml_status
list_grow(gml_run_store *store, gml_runs *list)
{
    if (list->room >= UINT32_C(1) << (GML_RUN_ROOMS - 2)) {
        return GML_NO_HOST_MEMORY;
    }
    uint32_t room = list->room ? 2 * list->room : 1;
    uint32_t first = 0;
    gml_status status = take_room(store, room, &first);
    if (status != GML_OK) {
        return status;
    }
    if (list->room) {
        memcpy(&store->runs[first], &store->runs[list->first], list->count * sizeof(gml_occupied));
        give_room(store, list->first, list->room);
    }
    list->first = first;
    list->room = room;
    return GML_OK;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* The first run that ends at `low` or above. */
static uint32_t
first_reaching(const gml_occupied *runs, uint32_t count, uint64_t low)
{
    uint32_t at = 0;
    while (count) {
        uint32_t half = count / 2;
        if (runs[at + half].high < low) {
            at += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return at;
}

static gml_status
insert_at(gml_run_store *store, gml_runs *list, uint32_t at, uint64_t low, uint64_t high)
{
    if (list->count == list->room) {
        gml_status status = list_grow(store, list);
        if (status != GML_OK) {
            return status;
        }
    }
    gml_occupied *runs = &store->runs[list->first];
    memmove(&runs[at + 1], &runs[at], (list->count - at) * sizeof *runs);
    runs[at] = (gml_occupied){low, high};
    list->count++;
    return GML_OK;
}

/* Lets the run at `at` grow over [low, high) and over all others that it then touches. */
static void
merge_at(gml_occupied *runs, gml_runs *list, uint32_t at, uint64_t low, uint64_t high)
{
    gml_occupied *run = &runs[at];
    run->low = low < run->low ? low : run->low;
    if (high <= run->high) {
        return;
    }
    uint32_t behind = at + 1;
    while (behind < list->count && runs[behind].low <= high) {
        behind++;
    }
    uint64_t last_high = runs[behind - 1].high;
    run->high = last_high > high ? last_high : high;
    if (behind > at + 1) {
        memmove(&runs[at + 1], &runs[behind], (list->count - behind) * sizeof *runs);
        list->count -= behind - (at + 1);
    }
}

gml_status
gml_runs_add(gml_run_store *store, gml_runs *list, uint64_t low, uint64_t high)
{
    gml_occupied *runs = &store->runs[list->first];
    uint32_t at = first_reaching(runs, list->count, low);
    if (at == list->count || runs[at].low > high) {
        return insert_at(store, list, at, low, high);
    }
    merge_at(runs, list, at, low, high);
    return GML_OK;
}
