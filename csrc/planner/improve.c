/* Squeaky wheel: what ended high is served earlier next time (Joslin and Clements, "Squeaky wheel
 * optimization", 1999). The order is the solution; a constructor turns it into a placement. */
#include "base/mix.h"
#include "base/sort.h"
#include "planner/methods.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEP = 1024,        /* the distance of neighbours in the order */
    MOST_DOUBLINGS = 5, /* of how far everything is shaken */
    WORK_PER_ITEM = 2   /* of making an order */
};

struct gml_wheel {
    const gml_instance *instance;
    gml_lowest *lowest; /* NULL: first fit */
    gml_budget *budget;
    uint64_t random;
    uint32_t *order, *next_order;
    uint64_t *offsets, *next_offsets; /* made from them */
    uint64_t peak;
    gml_keyed *keys; /* and as many behind them for sorting */
};

/* ---- chance, the same in every run ----------------------------------------------------------- */

/* 0 to bound - 1. pre: bound > 0. */
static uint64_t
draw_below(gml_wheel *wheel, uint64_t bound)
{
    return gml_mix_next(&wheel->random) % bound;
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void
sort_keys(gml_wheel *wheel)
{
    size_t count = wheel->instance->count;
    gml_sort_keyed(wheel->keys, wheel->keys + count, count);
    for (size_t i = 0; i < count; i++) {
        wheel->next_order[i] = (uint32_t)wheel->keys[i].index;
    }
}

static void
order_by_offset(gml_wheel *wheel)
{
    for (size_t i = 0; i < wheel->instance->count; i++) {
        wheel->keys[i] = (gml_keyed){wheel->offsets[i], i};
    }
    sort_keys(wheel);
}

/* What ended above a level moves forward, each by its own part of the way; all of it, or half.
 * Everything is shaken by a few places. */
static void
shake(gml_wheel *wheel)
{
    const gml_instance *instance = wheel->instance;
    uint64_t bound = instance->lower_bound;
    uint64_t level = bound + draw_below(wheel, wheel->peak - bound);
    uint64_t jitter = (uint64_t)STEP << draw_below(wheel, MOST_DOUBLINGS);
    bool is_half = gml_mix_next(&wheel->random) & 1;
    for (size_t i = 0; i < instance->count; i++) {
        uint32_t item = wheel->order[i];
        uint64_t key = (uint64_t)i * STEP;
        bool is_high = wheel->offsets[item] + instance->sizes[item] > level;
        if (is_high && !(is_half && (gml_mix_next(&wheel->random) & 1))) {
            key = (uint64_t)i * draw_below(wheel, STEP);
        }
        wheel->keys[i] = (gml_keyed){key + draw_below(wheel, jitter), item};
    }
    sort_keys(wheel);
}

/* ---- turning --------------------------------------------------------------------------------- */

/* Makes the next order the one, if what comes of it is no higher. GML_NOT_READY if it is. */
static gml_status
try_next(gml_wheel *wheel)
{
    uint64_t peak = 0;
    gml_status status = wheel->lowest
                            ? gml_lowest_run(wheel->lowest, wheel->next_order, wheel->peak,
                                             wheel->budget, wheel->next_offsets, &peak)
                            : gml_first_fit(wheel->instance, wheel->next_order, wheel->peak,
                                            wheel->budget, wheel->next_offsets, &peak);
    if (status == GML_OK) {
        uint32_t *order = wheel->order;
        uint64_t *offsets = wheel->offsets;
        wheel->order = wheel->next_order;
        wheel->next_order = order;
        wheel->offsets = wheel->next_offsets;
        wheel->next_offsets = offsets;
        wheel->peak = peak;
    }
    return status;
}

/* First fit in the order of addresses, which is never worse than what stands. */
static gml_status
order_anew(gml_wheel *wheel)
{
    order_by_offset(wheel);
    memcpy(wheel->order, wheel->next_order, wheel->instance->count * sizeof *wheel->order);
    gml_status status = try_next(wheel);
    return status == GML_NOT_READY ? GML_OK : status;
}

/* The same after the skyline, which does not see the room below wrapped lifetimes: from then on
 * first fit goes on if that fills it. */
static gml_status
fill_below(gml_wheel *wheel)
{
    gml_lowest *lowest = wheel->lowest;
    uint64_t before = wheel->peak;
    order_by_offset(wheel);
    wheel->lowest = NULL;
    wheel->peak = before - 1;
    gml_status status = try_next(wheel);
    if (status == GML_OK) {
        gml_lowest_close(lowest);
    } else {
        wheel->peak = before;
        wheel->lowest = lowest;
    }
    return status == GML_NOT_READY ? GML_OK : status;
}

static gml_status
turn(gml_wheel *wheel, uint64_t target)
{
    size_t count = wheel->instance->count;
    gml_status status = GML_OK;
    while (status == GML_OK && wheel->peak > target &&
           !gml_budget_spend(wheel->budget, count * WORK_PER_ITEM)) {
        shake(wheel);
        status = try_next(wheel);
        status = status == GML_NOT_READY ? GML_OK : status;
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static gml_status
wheel_reserve(gml_wheel *wheel, const uint64_t *offsets)
{
    size_t count = wheel->instance->count;
    wheel->order = malloc(count * sizeof *wheel->order);
    wheel->next_order = malloc(count * sizeof *wheel->next_order);
    wheel->offsets = malloc(count * sizeof *wheel->offsets);
    wheel->next_offsets = malloc(count * sizeof *wheel->next_offsets);
    wheel->keys = malloc(2 * count * sizeof *wheel->keys);
    if (!wheel->order || !wheel->next_order || !wheel->offsets || !wheel->next_offsets ||
        !wheel->keys) {
        return GML_NO_HOST_MEMORY;
    }
    memcpy(wheel->offsets, offsets, count * sizeof *offsets);
    return GML_OK;
}

void
gml_wheel_close(gml_wheel *wheel)
{
    if (wheel) {
        gml_lowest_close(wheel->lowest);
        free(wheel->order);
        free(wheel->next_order);
        free(wheel->offsets);
        free(wheel->next_offsets);
        free(wheel->keys);
        free(wheel);
    }
}

static bool
is_lowest(gml_method method)
{
    return method >= GML_METHOD_LOWEST_CONTENTION && method <= GML_METHOD_LOWEST_CONTENTION_SIZE;
}

/* The order and the constructor to begin with. */
static gml_status
prepare(gml_wheel *wheel, gml_method method, const uint32_t *order)
{
    if (!order) {
        return order_anew(wheel);
    }
    memcpy(wheel->order, order, wheel->instance->count * sizeof *order);
    if (!is_lowest(method)) {
        return GML_OK;
    }
    gml_status status = gml_lowest_open(wheel->instance, &wheel->lowest);
    if (status == GML_OK && wheel->instance->wrapped_count > 0) {
        status = fill_below(wheel);
    }
    return status;
}

gml_status
gml_wheel_open(const gml_instance *instance, gml_method method, const uint32_t *order,
               const uint64_t *offsets, uint64_t peak_bytes, gml_budget *budget, gml_wheel **out)
{
    *out = NULL;
    gml_wheel *wheel = calloc(1, sizeof *wheel);
    if (!wheel) {
        return GML_NO_HOST_MEMORY;
    }
    wheel->instance = instance;
    wheel->budget = budget;
    wheel->random = instance->count;
    wheel->peak = peak_bytes;
    gml_status status = wheel_reserve(wheel, offsets);
    if (status == GML_OK) {
        status = prepare(wheel, method, order);
    }
    if (status != GML_OK) {
        gml_wheel_close(wheel);
        return status;
    }
    *out = wheel;
    return GML_OK;
}

gml_status
gml_wheel_turn(gml_wheel *wheel, uint64_t target_bytes, gml_budget *budget)
{
    wheel->budget = budget;
    return turn(wheel, target_bytes);
}

const uint64_t *
gml_wheel_offsets(const gml_wheel *wheel, uint64_t *peak_bytes)
{
    *peak_bytes = wheel->peak;
    return wheel->offsets;
}

gml_status
gml_improve(const gml_instance *instance, gml_method method, const uint32_t *order,
            uint64_t capacity_bytes, gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes)
{
    uint64_t bound = instance->lower_bound;
    uint64_t target = capacity_bytes > bound ? capacity_bytes : bound;
    if (*peak_bytes <= target) {
        return GML_OK;
    }
    gml_wheel *wheel;
    gml_status status =
        gml_wheel_open(instance, method, order, offsets, *peak_bytes, budget, &wheel);
    if (status != GML_OK) {
        return status;
    }
    status = gml_wheel_turn(wheel, target, budget);
    if (wheel->peak < *peak_bytes) {
        *peak_bytes = wheel->peak;
        memcpy(offsets, wheel->offsets, instance->count * sizeof *offsets);
    }
    gml_wheel_close(wheel);
    return status;
}
