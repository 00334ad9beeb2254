/* Which methods are tried on an instance, in which order, and for how long. docs/plan.md says what
 * each of them wins; a method that wins nothing has no place here. */
#include "planner/methods.h"
#include "planner/order.h"

#include <stdlib.h>
#include <string.h>

enum {
    MANY_ITEMS = 50000,   /* above, a peak close to the bound will do: */
    DONE_PART = 10000,    /* within this part of it no other constructor is tried */
    FIRST_FIT_WORK = 150, /* by item: twice what training steps need, and random sizes exceed it */
    LOWEST_WORK = 250,    /* the same */
    CAPPED_ITEMS = GML_EXACT_MOST_ITEMS /* above, these two hold */
};

/* In this order, the first that is best wins. The one without foresight costs nearly nothing, and
 * the others give up as soon as they cannot be better. */
static const gml_method CONSTRUCTORS[] = {
    GML_METHOD_ONLINE_BEST_FIT,
    GML_METHOD_FIRST_FIT_SIZE,
    GML_METHOD_LOWEST_CONTENTION,
    GML_METHOD_LOWEST_PEAK,
};
enum { CONSTRUCTOR_COUNT = sizeof CONSTRUCTORS / sizeof *CONSTRUCTORS };

typedef struct contest_state {
    const gml_instance *instance;
    uint64_t capacity_bytes;
    gml_budget *budget;
    uint32_t methods;   /* that are allowed, a bit each */
    gml_lowest *lowest; /* NULL before the first use */
    gml_keyed *room;
    uint32_t *order;
    uint64_t *trial;
    uint64_t *offsets; /* the best */
    gml_placing best;
    bool has_best;
} contest_state;

static gml_status
contest_open(contest_state *contest)
{
    size_t count = contest->instance->count ? contest->instance->count : 1;
    contest->room = calloc(2 * count, sizeof *contest->room);
    contest->order = calloc(count, sizeof *contest->order);
    contest->trial = calloc(count, sizeof *contest->trial);
    bool is_whole = contest->room && contest->order && contest->trial;
    return is_whole ? GML_OK : GML_NO_HOST_MEMORY;
}

static void
contest_close(contest_state *contest)
{
    gml_lowest_close(contest->lowest);
    free(contest->room);
    free(contest->order);
    free(contest->trial);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Whether the method can serve what is wrapped or taken here; first fit always can. */
static bool
can_serve(const gml_instance *instance, gml_method method)
{
    switch (method) {
    case GML_METHOD_FIRST_FIT_SIZE:
        return true;
    case GML_METHOD_LOWEST_CONTENTION:
    case GML_METHOD_LOWEST_PEAK:
        return !instance->taken_count;
    case GML_METHOD_EXACT:
        return !instance->taken_count && !instance->wrapped_count &&
               instance->count <= GML_EXACT_MOST_ITEMS;
    default:
        return !instance->taken_count && !instance->wrapped_count;
    }
}

static bool
is_allowed(const contest_state *contest, gml_method method)
{
    return contest->methods >> method & 1 && can_serve(contest->instance, method);
}

/* At the bound, within the capacity, or so close to the bound that the other constructors, which
 * take seconds on so many items, are not worth it. */
static bool
is_done(const contest_state *contest)
{
    const gml_instance *instance = contest->instance;
    uint64_t bound = instance->lower_bound, peak = contest->best.peak_bytes;
    if (!contest->has_best) {
        return false;
    }
    bool is_close = instance->count > MANY_ITEMS && peak - bound <= bound / DONE_PART;
    return peak <= bound || peak <= contest->capacity_bytes || is_close;
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
    gml_order_make(instance, method, contest->room, contest->order);
    if (method == GML_METHOD_FIRST_FIT_SIZE) {
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

/* What a constructor may spend. None may spend so much that the others get nothing. */
static void
open_share(const contest_state *contest, gml_method method, gml_budget *part)
{
    gml_budget_open(part, contest->budget, 1, contest->has_best ? 1 : 2);
    uint64_t each = method == GML_METHOD_FIRST_FIT_SIZE ? FIRST_FIT_WORK : LOWEST_WORK;
    uint64_t most = each * contest->instance->count;
    if (contest->has_best && contest->instance->count > CAPPED_ITEMS && most < part->work_limit) {
        part->work_limit = most;
    }
}

static gml_status
construct(contest_state *contest)
{
    gml_status status = GML_OK;
    for (size_t i = 0; i < CONSTRUCTOR_COUNT && status == GML_OK && !is_done(contest); i++) {
        if (is_allowed(contest, CONSTRUCTORS[i])) {
            gml_budget part;
            open_share(contest, CONSTRUCTORS[i], &part);
            status = try_method(contest, CONSTRUCTORS[i], &part);
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
    gml_status status = try_method(contest, GML_METHOD_FIRST_FIT_SIZE, &endless);
    return status == GML_OK && !contest->has_best ? GML_CORRUPT : status;
}

/* On three quarters of what is left: with all of it, hard instances take longer and end no lower.
 */
static gml_status
search_exactly(contest_state *contest)
{
    if (is_done(contest) || !is_allowed(contest, GML_METHOD_EXACT)) {
        return GML_OK;
    }
    gml_budget part;
    gml_budget_open(&part, contest->budget, 3, 4);
    uint64_t peak_bytes = contest->best.peak_bytes;
    gml_status status = gml_exact_improve(contest->instance, contest->capacity_bytes, &part,
                                          contest->offsets, &peak_bytes, &contest->best.is_proven);
    if (peak_bytes < contest->best.peak_bytes) {
        contest->best.peak_bytes = peak_bytes;
        contest->best.method = GML_METHOD_EXACT;
    }
    gml_budget_close(&part, contest->budget);
    return status;
}

static gml_status
hold(contest_state *contest)
{
    gml_status status = construct(contest);
    if (status == GML_OK && !contest->has_best) {
        status = construct_anyhow(contest);
    }
    return status == GML_OK ? search_exactly(contest) : status;
}

gml_status
gml_portfolio_place(const gml_instance *instance, uint32_t methods, uint64_t capacity_bytes,
                    gml_budget *budget, uint64_t *offsets, gml_placing *out)
{
    contest_state contest = {
        .instance = instance,
        .capacity_bytes = capacity_bytes,
        .budget = budget,
        .methods = methods,
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
