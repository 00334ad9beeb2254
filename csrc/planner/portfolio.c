/* Which methods are tried on an instance, in which order, and with how much work. docs/plan.md
 * lists where each of them wins; a method that never wins does not belong here. */
#include "base/sort.h"
#include "planner/methods.h"

#include <stdlib.h>
#include <string.h>

enum {
    MANY_ITEMS = 50000,   /* above, a peak close to the bound will do: */
    DONE_PART = 10000,    /* within this part of it no other constructor is tried */
    SEARCHED_PART = 1000, /* other orders are tried where the gap is larger */
};

static const char *const NAMES[GML_METHOD_COUNT] = {
    "online-best-fit", "first-fit-size", "lowest-contention", "lowest-peak",
    "exact",           "order-search",   "first-fit-end",     "first-fit-life",
};

/* They run in this order, and the first of the best wins. The one without foresight costs almost
 * nothing, and the others stop as soon as they cannot be better. */
static const gml_method CONSTRUCTORS[] = {
    GML_METHOD_ONLINE_BEST_FIT,
    GML_METHOD_FIRST_FIT_END,
    GML_METHOD_FIRST_FIT_LIFE,
};
enum { CONSTRUCTOR_COUNT = sizeof CONSTRUCTORS / sizeof *CONSTRUCTORS };

const char *gml_method_name(gml_method method) {
    return (unsigned)method < GML_METHOD_COUNT ? NAMES[method] : "unknown";
}

gml_method gml_method_named(const char *name) {
    gml_method method = 0;
    while (method < GML_METHOD_COUNT && strcmp(NAMES[method], name) != 0) {
        method++;
    }
    return method;
}

typedef struct contest_state {
    const gml_instance *instance;
    uint64_t capacity_bytes;
    gml_budget *budget;
    gml_keyed *room;
    uint32_t *order;
    uint64_t *trial;
    uint64_t *offsets; /* the best */
    gml_placing best;
    bool has_best;
} contest_state;

/* ---- orders ---------------------------------------------------------------------------------- */

/* What comes first of items that see the same contention: the larger. */
static uint64_t key_of(const gml_instance *instance, gml_method method, size_t item) {
    uint64_t life = instance->life[item]; /* at least 1 */
    return method == GML_METHOD_FIRST_FIT_END ? ~(instance->start[item] + life)
                                              : (63U - (unsigned)__builtin_clzll(life)) / 2;
}

/* By contention, then by that key, then by the start. */
static void make_order(contest_state *contest, gml_method method) {
    const gml_instance *instance = contest->instance;
    size_t count = instance->count;
    gml_keyed *room = contest->room;
    for (size_t i = 0; i < count; i++) {
        room[i] = (gml_keyed){~key_of(instance, method, i), i};
    }
    gml_sort_keyed(room, room + count, count);
    for (size_t i = 0; i < count; i++) {
        room[i].key = ~instance->contention[room[i].index];
    }
    gml_sort_keyed(room, room + count, count);
    for (size_t i = 0; i < count; i++) {
        contest->order[i] = (uint32_t)room[i].index;
    }
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* At the bound, within the capacity, or so close to the bound that the other constructors, which
 * take seconds on so many items, are not worth it. */
static bool is_done(const contest_state *contest) {
    const gml_instance *instance = contest->instance;
    uint64_t bound = instance->lower_bound, peak = contest->best.peak_bytes;
    if (!contest->has_best) {
        return false;
    }
    bool is_close = instance->count > MANY_ITEMS && peak - bound <= bound / DONE_PART;
    return peak <= bound || peak <= contest->capacity_bytes || is_close;
}

/* ---- methods --------------------------------------------------------------------------------- */

/* Only placements below the best so far are useful. */
static uint64_t limit_of(const contest_state *contest) {
    return contest->has_best ? contest->best.peak_bytes - 1 : UINT64_MAX;
}

/* Into contest->trial. GML_NOT_READY: nothing better. */
static gml_status run(contest_state *contest, gml_method method, gml_budget *budget,
                      uint64_t *peak_bytes) {
    const gml_instance *instance = contest->instance;
    if (method == GML_METHOD_ONLINE_BEST_FIT) {
        return instance->wrapped_count ? GML_NOT_READY
                                       : gml_online_best_fit(instance, contest->trial, peak_bytes);
    }
    make_order(contest, method);
    return gml_first_fit(instance, contest->order, limit_of(contest), budget, contest->trial,
                         peak_bytes);
}

static gml_status try_method(contest_state *contest, gml_method method, gml_budget *budget) {
    uint64_t peak_bytes = 0;
    gml_status status = run(contest, method, budget, &peak_bytes);
    if (status == GML_OK && peak_bytes <= limit_of(contest)) {
        uint64_t *offsets = contest->offsets;
        contest->offsets = contest->trial;
        contest->trial = offsets;
        contest->best.peak_bytes = peak_bytes;
        contest->best.method = method;
        contest->has_best = true;
    }
    return status == GML_NOT_READY ? GML_OK : status;
}

static gml_status construct(contest_state *contest) {
    gml_status status = GML_OK;
    for (size_t i = 0; i < CONSTRUCTOR_COUNT && status == GML_OK && !is_done(contest); i++) {
        /* None may spend so much that nothing is left for the others. */
        gml_budget part = gml_budget_part(contest->budget, 1, 2);
        status = try_method(contest, CONSTRUCTORS[i], &part);
        (void)gml_budget_spend(contest->budget, part.work);
    }
    if (status == GML_OK && !contest->has_best) { /* something valid, however long it takes */
        gml_budget endless = {.limit = UINT64_MAX};
        status = try_method(contest, GML_METHOD_FIRST_FIT_LIFE, &endless);
    }
    return status;
}

/* On three quarters of the remaining budget: with all of it, hard instances take longer and end no
 * lower.
 */
static gml_status search_exactly(contest_state *contest) {
    const gml_instance *instance = contest->instance;
    if (is_done(contest) || instance->wrapped_count || instance->count > GML_EXACT_MOST_ITEMS) {
        return GML_OK;
    }
    gml_budget part = gml_budget_part(contest->budget, 3, 4);
    uint64_t peak_bytes = contest->best.peak_bytes;
    gml_status status = gml_exact_improve(instance, contest->capacity_bytes, &part,
                                          contest->offsets, &peak_bytes, &contest->best.is_proven);
    if (peak_bytes < contest->best.peak_bytes) {
        contest->best.peak_bytes = peak_bytes;
        contest->best.method = GML_METHOD_EXACT;
    }
    (void)gml_budget_spend(contest->budget, part.work);
    return status;
}

/* On what is left of it, where more than a thousandth of the bound can be gained. */
static gml_status search_orders(contest_state *contest) {
    const gml_instance *instance = contest->instance;
    uint64_t bound = instance->lower_bound;
    uint64_t enough_bytes = contest->capacity_bytes > bound ? contest->capacity_bytes : bound;
    bool is_close = contest->best.peak_bytes - bound <= bound / SEARCHED_PART;
    bool is_better = false;
    gml_status status =
        is_done(contest) || is_close || contest->best.is_proven
            ? GML_OK
            : gml_first_fit_improve(instance, enough_bytes, contest->budget, contest->offsets,
                                    &contest->best.peak_bytes, &is_better);
    if (is_better) {
        contest->best.method = GML_METHOD_ORDERS;
    }
    return status;
}

gml_status gml_portfolio_place(const gml_instance *instance, uint64_t capacity_bytes,
                               gml_budget *budget, uint64_t *offsets, gml_placing *out) {
    size_t count = instance->count + 1;
    contest_state contest = {
        .instance = instance,
        .capacity_bytes = capacity_bytes,
        .budget = budget,
        .room = calloc(2 * count, sizeof *contest.room),
        .order = calloc(count, sizeof *contest.order),
        .trial = calloc(count, sizeof *contest.trial),
        .offsets = offsets,
    };
    uint64_t *trial = contest.trial;
    gml_status status =
        contest.room && contest.order && contest.trial ? construct(&contest) : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        status = search_exactly(&contest);
    }
    if (status == GML_OK) {
        status = search_orders(&contest);
    }
    if (status == GML_OK) {
        *out = contest.best;
        out->is_proven |= out->peak_bytes == instance->lower_bound;
        if (contest.offsets != offsets) {
            memcpy(offsets, contest.offsets, instance->count * sizeof *offsets);
        }
    }
    free(contest.room);
    free(contest.order);
    free(trial);
    return status;
}
