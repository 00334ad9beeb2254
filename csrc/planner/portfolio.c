/* Which methods are tried on an instance, in which order, and for how long. */
#include "planner/methods.h"
#include "planner/order.h"

#include <stdlib.h>
#include <string.h>

enum {
    FEW_ITEMS = 1000, /* up to here the exact search comes before all other searching */

    MANY_ITEMS = 50000,      /* above, a peak close to the bound will do: */
    DONE_PART = 10000,       /* within this part of it no other constructor is tried, */
    GOOD_ENOUGH_PART = 2000, /* within this one there is no search */
    FIRST_FIT_WORK = 150, /* by item: twice what training steps need, and random sizes exceed it */
    LOWEST_WORK = 250,    /* the same */
    CAPPED_ITEMS = GML_EXACT_MOST_ITEMS, /* above, these two hold */
    MOST_STALLOC_ITEMS =
        20000 /* above, only where it is asked for: it takes long and wins nowhere */
};

/* In this order, the first that is best wins. The one without foresight costs nearly nothing, and
 * the others give up as soon as they cannot be better. */
static const gml_method CONSTRUCTORS[] = {
    GML_METHOD_ONLINE_BEST_FIT,
    GML_METHOD_FIRST_FIT_SIZE,
    GML_METHOD_FIRST_FIT_LATE,
    GML_METHOD_FIRST_FIT_CONTENTION,
    GML_METHOD_LOWEST_CONTENTION,
    GML_METHOD_LOWEST_PEAK,
    GML_METHOD_LOWEST_LIFE,
    GML_METHOD_FIRST_FIT_AREA,
    GML_METHOD_LOWEST_CONTENTION16,
    GML_METHOD_FIRST_FIT_LIFE,
    GML_METHOD_LOWEST_AREA,
    GML_METHOD_LOWEST_CONTENTION_SIZE,
    GML_METHOD_STALLOC,
};
enum { CONSTRUCTOR_COUNT = sizeof CONSTRUCTORS / sizeof *CONSTRUCTORS };

typedef struct contest_state {
    const gml_problem *problem;
    const gml_instance *instance;
    const gml_planner_options *options;
    gml_budget *budget;
    uint32_t methods;   /* that are allowed, a bit each */
    gml_lowest *lowest; /* NULL before the first use */
    gml_keyed *room;
    uint32_t *order, *best_order;
    uint64_t *trial;
    uint64_t *offsets; /* the best */
    gml_placing best;
    bool has_best, has_order; /* best_order is what made the best */
} contest_state;

static gml_status
contest_open(contest_state *contest)
{
    size_t count = contest->instance->count ? contest->instance->count : 1;
    contest->room = calloc(2 * count, sizeof *contest->room);
    contest->order = calloc(count, sizeof *contest->order);
    contest->best_order = calloc(count, sizeof *contest->best_order);
    contest->trial = calloc(count, sizeof *contest->trial);
    bool is_whole = contest->room && contest->order && contest->best_order && contest->trial;
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

static void
contest_close(contest_state *contest)
{
    gml_lowest_close(contest->lowest);
    free(contest->room);
    free(contest->order);
    free(contest->best_order);
    free(contest->trial);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static bool
is_first_fit(gml_method method)
{
    return method >= GML_METHOD_FIRST_FIT_SIZE && method <= GML_METHOD_FIRST_FIT_CONTENTION;
}

static bool
is_lowest(gml_method method)
{
    return method >= GML_METHOD_LOWEST_CONTENTION && method <= GML_METHOD_LOWEST_CONTENTION_SIZE;
}

/* Whether the method can serve what is wrapped or taken here. */
static bool
can_serve(const contest_state *contest, gml_method method)
{
    if (is_first_fit(method) || method == GML_METHOD_IMPROVED) {
        return true;
    }
    bool is_wrapped = contest->instance->wrapped_count > 0;
    return !contest->instance->taken_count && (is_lowest(method) || !is_wrapped);
}

static bool
is_allowed(const contest_state *contest, gml_method method)
{
    return contest->methods >> method & 1 && can_serve(contest, method);
}

/* Where other methods may serve as well. */
static bool
is_worth_it(const contest_state *contest, gml_method method)
{
    return method != GML_METHOD_STALLOC || contest->instance->count <= MOST_STALLOC_ITEMS ||
           !contest->has_best;
}

static bool
is_done(const contest_state *contest)
{
    uint64_t capacity = contest->options->capacity_bytes;
    return contest->has_best && (contest->best.peak_bytes <= contest->instance->lower_bound ||
                                 (capacity && contest->best.peak_bytes <= capacity));
}

/* ---- single methods -------------------------------------------------------------------------- */

/* Only what is below the best so far is of use. */
static uint64_t
limit_of(const contest_state *contest)
{
    return contest->has_best ? contest->best.peak_bytes - 1 : UINT64_MAX;
}

static gml_status
run_lowest(contest_state *contest, gml_budget *budget, uint64_t *peak_bytes)
{
    if (!contest->lowest) {
        gml_status status = gml_lowest_open(contest->instance, &contest->lowest);
        if (status != GML_OK) {
            return status;
        }
    }
    return gml_lowest_run(contest->lowest, contest->order, limit_of(contest), budget,
                          contest->trial, peak_bytes);
}

/* Into contest->trial. GML_NOT_READY: nothing better. */
static gml_status
run(contest_state *contest, gml_method method, gml_budget *budget, uint64_t *peak_bytes)
{
    const gml_instance *instance = contest->instance;
    if (method == GML_METHOD_ONLINE_BEST_FIT) {
        return gml_online_best_fit(instance, contest->trial, peak_bytes);
    }
    if (method == GML_METHOD_STALLOC) {
        return gml_stalloc_place(contest->problem, instance, budget, contest->trial, peak_bytes);
    }
    gml_order_make(instance, method, contest->room, contest->order);
    if (is_first_fit(method)) {
        return gml_first_fit(instance, contest->order, limit_of(contest), budget, contest->trial,
                             peak_bytes);
    }
    return run_lowest(contest, budget, peak_bytes);
}

/* A peak below the bound is a mistake of the method. */
static void
keep_trial(contest_state *contest, gml_method method, uint64_t peak_bytes)
{
    if (peak_bytes > limit_of(contest) || peak_bytes < contest->instance->lower_bound) {
        return;
    }
    uint64_t *offsets = contest->offsets;
    contest->offsets = contest->trial;
    contest->trial = offsets;
    contest->best.peak_bytes = peak_bytes;
    contest->best.method = method;
    contest->has_best = true;
    contest->has_order = is_first_fit(method) || is_lowest(method);
    if (contest->has_order) {
        uint32_t *order = contest->best_order;
        contest->best_order = contest->order;
        contest->order = order;
    }
}

static gml_status
try_method(contest_state *contest, gml_method method, gml_budget *budget)
{
    uint64_t peak_bytes = 0;
    gml_status status = run(contest, method, budget, &peak_bytes);
    if (status == GML_OK) {
        keep_trial(contest, method, peak_bytes);
    }
    return status == GML_NOT_READY ? GML_OK : status;
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* The gap to the bound, of an input so large that search for less takes seconds. */
static bool
is_within(const contest_state *contest, uint64_t part)
{
    uint64_t bound = contest->instance->lower_bound;
    return contest->has_best && contest->instance->count > MANY_ITEMS &&
           contest->best.peak_bytes - bound <= bound / part;
}

/* What a constructor may spend. None may spend so much that the others get nothing. */
static void
open_share(const contest_state *contest, gml_method method, gml_budget *part)
{
    bool is_alone = contest->methods == UINT32_C(1) << method;
    gml_budget_open(part, contest->budget, 1, contest->has_best || is_alone ? 1 : 2);
    uint64_t each = is_first_fit(method) ? FIRST_FIT_WORK : LOWEST_WORK;
    uint64_t most = each * contest->instance->count;
    if (contest->has_best && contest->instance->count > CAPPED_ITEMS && most < part->work_limit) {
        part->work_limit = most;
    }
}

static gml_status
construct(contest_state *contest)
{
    gml_status status = GML_OK;
    for (size_t i = 0; i < CONSTRUCTOR_COUNT && status == GML_OK; i++) {
        gml_method method = CONSTRUCTORS[i];
        if (is_done(contest) || is_within(contest, DONE_PART)) {
            break;
        }
        if (is_allowed(contest, method) && is_worth_it(contest, method)) {
            gml_budget part;
            open_share(contest, method, &part);
            status = try_method(contest, method, &part);
            gml_budget_close(&part, contest->budget);
        }
    }
    return status;
}

/* Something valid, however long it takes. */
static gml_status
construct_anyhow(contest_state *contest)
{
    gml_budget endless;
    gml_budget_begin(&endless, UINT64_MAX);
    gml_method method = can_serve(contest, GML_METHOD_ONLINE_BEST_FIT) ? GML_METHOD_ONLINE_BEST_FIT
                                                                       : GML_METHOD_FIRST_FIT_SIZE;
    gml_status status = try_method(contest, method, &endless);
    return status == GML_OK && !contest->has_best ? GML_CORRUPT : status;
}

static void
take_better(contest_state *contest, gml_method method, uint64_t peak_bytes)
{
    if (peak_bytes < contest->best.peak_bytes) {
        contest->best.peak_bytes = peak_bytes;
        contest->best.method = method;
        contest->has_order = false;
    }
}

static gml_status
search_exactly(contest_state *contest)
{
    const gml_instance *instance = contest->instance;
    if (is_done(contest) || !is_allowed(contest, GML_METHOD_EXACT) ||
        instance->count > GML_EXACT_MOST_ITEMS) {
        return GML_OK;
    }
    gml_budget part;
    bool is_small = instance->count <= FEW_ITEMS;
    gml_budget_open(&part, contest->budget, is_small ? 3 : 1, 4);
    uint64_t peak_bytes = contest->best.peak_bytes;
    gml_status status = gml_exact_improve(instance, contest->options->capacity_bytes, &part,
                                          contest->offsets, &peak_bytes, &contest->best.is_proven);
    take_better(contest, GML_METHOD_EXACT, peak_bytes);
    gml_budget_close(&part, contest->budget);
    return status;
}

static gml_status
improve(contest_state *contest)
{
    if (is_done(contest) || contest->best.is_proven || is_within(contest, GOOD_ENOUGH_PART) ||
        !is_allowed(contest, GML_METHOD_IMPROVED)) {
        return GML_OK;
    }
    uint64_t peak_bytes = contest->best.peak_bytes;
    gml_status status =
        gml_race(contest->instance, contest->best.method,
                 contest->has_order ? contest->best_order : NULL, contest->methods,
                 contest->options->capacity_bytes, contest->budget, contest->offsets, &peak_bytes);
    take_better(contest, GML_METHOD_IMPROVED, peak_bytes);
    return status;
}

static gml_status
hold(contest_state *contest)
{
    gml_status status = construct(contest);
    if (status == GML_OK && !contest->has_best) {
        status = construct_anyhow(contest);
    }
    if (status == GML_OK) {
        status = search_exactly(contest);
    }
    return status == GML_OK ? improve(contest) : status;
}

gml_status
gml_portfolio_place(const gml_problem *problem, const gml_instance *instance,
                    const gml_planner_options *options, gml_budget *budget, uint64_t *offsets,
                    gml_placing *out)
{
    contest_state contest = {
        .problem = problem,
        .instance = instance,
        .options = options,
        .budget = budget,
        .methods = options->methods ? options->methods : UINT32_MAX,
        .offsets = offsets,
    };
    gml_status status = contest_open(&contest);
    uint64_t *room = contest.trial;
    if (status == GML_OK) {
        status = hold(&contest);
    }
    if (status == GML_OK) {
        *out = contest.best;
        out->is_proven |= out->peak_bytes == instance->lower_bound;
        if (contest.offsets != offsets) {
            memcpy(offsets, contest.offsets, instance->count * sizeof *offsets);
        }
    }
    contest.trial = room;
    contest_close(&contest);
    return status;
}
