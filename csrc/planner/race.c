/* Improvement from several starts: each gets a part of the budget, and what has come furthest gets
 * the rest.
 *
 * Which order improvement gets furthest from shows only when it runs: the best placement to begin
 * with is often not the one.
 */
#include "planner/methods.h"
#include "planner/order.h"

#include <stdlib.h>
#include <string.h>

/* Those from which improvement got furthest, over many kinds of instances. */
static const gml_method STARTS[] = {
    GML_METHOD_FIRST_FIT_CONTENTION, GML_METHOD_LOWEST_CONTENTION,   GML_METHOD_FIRST_FIT_LIFE,
    GML_METHOD_LOWEST_AREA,          GML_METHOD_LOWEST_CONTENTION16, GML_METHOD_FIRST_FIT_AREA,
};
enum {
    START_COUNT = sizeof STARTS / sizeof *STARTS,
    PARTS = 2 * (START_COUNT + 1), /* of the budget; half of them for what leads in the end */
    LEAST_TURNS = 24,              /* that a part has to be enough for, else one alone runs */
    WORK_PER_TURN = 80             /* by item, about */
};

typedef struct race_state {
    const gml_instance *instance;
    gml_budget *budget;
    uint64_t target;
    gml_wheel *leader; /* the first of equals */
    gml_keyed *room;
    uint32_t *order;
    uint64_t *offsets;
} race_state;

static uint64_t
peak_of(const gml_wheel *racer)
{
    uint64_t peak;
    gml_wheel_offsets(racer, &peak);
    return peak;
}

static bool
is_won(const race_state *race)
{
    return peak_of(race->leader) <= race->target;
}

static bool
is_first_fit(gml_method method)
{
    return method >= GML_METHOD_FIRST_FIT_SIZE && method <= GML_METHOD_FIRST_FIT_CONTENTION;
}

/* Improves a placement for a part of the budget. It leads if it has come further than all before.
 */
static gml_status
enter(race_state *race, gml_method method, const uint32_t *order, const uint64_t *offsets,
      uint64_t peak_bytes, gml_budget *part)
{
    gml_wheel *racer;
    gml_status status =
        gml_wheel_open(race->instance, method, order, offsets, peak_bytes, part, &racer);
    if (status == GML_OK) {
        status = gml_wheel_turn(racer, race->target, part);
    }
    if (status == GML_OK && (!race->leader || peak_of(racer) < peak_of(race->leader))) {
        gml_wheel *before = race->leader;
        race->leader = racer;
        racer = before;
    }
    gml_wheel_close(racer);
    return status;
}

/* Places anew, whether or not it is better than others. */
static gml_status
place(race_state *race, gml_method method, gml_budget *part, uint64_t *peak_bytes)
{
    const gml_instance *instance = race->instance;
    gml_order_make(instance, method, race->room, race->order);
    if (is_first_fit(method)) {
        return gml_first_fit(instance, race->order, UINT64_MAX, part, race->offsets, peak_bytes);
    }
    gml_lowest *lowest;
    gml_status status = gml_lowest_open(instance, &lowest);
    if (status == GML_OK) {
        status = gml_lowest_run(lowest, race->order, UINT64_MAX, part, race->offsets, peak_bytes);
    }
    gml_lowest_close(lowest);
    return status;
}

static gml_status
enter_start(race_state *race, gml_method method, gml_budget *part)
{
    uint64_t peak_bytes = 0;
    gml_status status = place(race, method, part, &peak_bytes);
    if (status == GML_OK) {
        status = enter(race, method, race->order, race->offsets, peak_bytes, part);
    }
    return status == GML_NOT_READY ? GML_OK : status;
}

/* A part for each of the starts. */
static gml_status
run_heats(race_state *race, gml_method best, uint32_t methods, size_t parts_left)
{
    gml_status status = GML_OK;
    for (size_t i = 0; i < START_COUNT && status == GML_OK && !is_won(race); i++) {
        gml_method method = STARTS[i];
        bool can_serve = is_first_fit(method) || !race->instance->taken_count;
        if (can_serve && methods >> method & 1 && method != best) {
            gml_budget part;
            gml_budget_open(&part, race->budget, 1, parts_left--);
            status = enter_start(race, method, &part);
            gml_budget_close(&part, race->budget);
        }
    }
    return status;
}

static gml_status
run(race_state *race, gml_method best, const uint32_t *order, uint32_t methods,
    const uint64_t *offsets, uint64_t peak_bytes)
{
    gml_budget part;
    gml_budget_open(&part, race->budget, 1, PARTS);
    gml_status status = enter(race, best, order, offsets, peak_bytes, &part);
    gml_budget_close(&part, race->budget);
    if (status == GML_OK) {
        status = run_heats(race, best, methods, PARTS - 1);
    }
    return status == GML_OK ? gml_wheel_turn(race->leader, race->target, race->budget) : status;
}

static gml_status
race_open(race_state *race)
{
    size_t count = race->instance->count;
    race->room = malloc(2 * count * sizeof *race->room);
    race->order = malloc(count * sizeof *race->order);
    race->offsets = malloc(count * sizeof *race->offsets);
    return race->room && race->order && race->offsets ? GML_OK : GML_NO_HOST_MEMORY;
}

static void
race_close(race_state *race)
{
    gml_wheel_close(race->leader);
    free(race->room);
    free(race->order);
    free(race->offsets);
}

static bool
is_enough_for_all(const gml_instance *instance, const gml_budget *budget)
{
    uint64_t left = budget->work < budget->work_limit ? budget->work_limit - budget->work : 0;
    return left / PARTS / LEAST_TURNS / WORK_PER_TURN >= instance->count;
}

gml_status
gml_race(const gml_instance *instance, gml_method method, const uint32_t *order, uint32_t methods,
         uint64_t capacity_bytes, gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes)
{
    uint64_t bound = instance->lower_bound;
    uint64_t target = capacity_bytes > bound ? capacity_bytes : bound;
    if (*peak_bytes <= target || !is_enough_for_all(instance, budget)) {
        return gml_improve(instance, method, order, capacity_bytes, budget, offsets, peak_bytes);
    }
    race_state race = {.instance = instance, .budget = budget, .target = target};
    gml_status status = race_open(&race);
    if (status == GML_OK) {
        status = run(&race, method, order, methods, offsets, *peak_bytes);
    }
    if (race.leader && peak_of(race.leader) < *peak_bytes) {
        memcpy(offsets, gml_wheel_offsets(race.leader, peak_bytes),
               instance->count * sizeof *offsets);
    }
    race_close(&race);
    return status;
}
