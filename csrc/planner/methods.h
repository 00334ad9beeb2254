/* The ways to place an instance. Offsets are by item; *peak_bytes is the largest end. */
#ifndef GML_PLANNER_METHODS_H
#define GML_PLANNER_METHODS_H

#include "planner/budget.h"
#include "planner/instance.h"

/* Users see their names only, so that a method may come or go. The numbers stand in plan files: a
 * new one comes last, any other change is another version of the format. */
typedef enum gml_method {
    GML_METHOD_ONLINE_BEST_FIT = 0,
    /* 1 to 3 made what is in older plan files */
    GML_METHOD_EXACT = 4,
    GML_METHOD_ORDERS,         /* first fit in many orders, each a small change of the best */
    GML_METHOD_FIRST_FIT_END,  /* by the largest live sum in its life, then what ends earlier */
    GML_METHOD_FIRST_FIT_LIFE, /* the same, then by life (powers of 4), the longest first */
    GML_METHOD_COUNT
} gml_method;

/* "online-best-fit", "exact", ...; never NULL. */
const char *gml_method_name(gml_method method);

/* The method of that name; GML_METHOD_COUNT: unknown. */
gml_method gml_method_named(const char *name);

/* ---- first_fit.c: each item at the lowest address where it fits, in an order --------------------
 *
 * Serves wrapped items. `order` lists the items. GML_NO_HOST_MEMORY; GML_NOT_READY
 * if the budget ended first, or as soon as an item would end above `limit_bytes` (UINT64_MAX:
 * never); nothing is written then.
 */
gml_status gml_first_fit(const gml_instance *instance, const uint32_t *order, uint64_t limit_bytes,
                         gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes);

/* Improves a placement in other orders, see order_search.h. */
gml_status gml_first_fit_improve(const gml_instance *instance, uint64_t enough_bytes,
                                 gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes,
                                 bool *is_better);

/* ---- online.c: in the order of time, the smallest free range that fits --------------------------
 *
 * pre: nothing wrapped.
 */
gml_status gml_online_best_fit(const gml_instance *instance, uint64_t *offsets,
                               uint64_t *peak_bytes);

/* ---- exact.c: a placement within a capacity, or the proof that there is none ----------------- */

typedef enum gml_exact_outcome {
    GML_EXACT_FOUND,
    GML_EXACT_IMPOSSIBLE, /* proven */
    GML_EXACT_UNDECIDED   /* the budget ended */
} gml_exact_outcome;

enum { GML_EXACT_MOST_ITEMS = 4096 };

/* pre: nothing wrapped, at most GML_EXACT_MOST_ITEMS items. GML_NO_HOST_MEMORY. */
gml_status gml_exact_search(const gml_instance *instance, uint64_t capacity_bytes,
                            gml_budget *budget, uint64_t *offsets, gml_exact_outcome *out);

/* The lowest peak found below *peak_bytes, whose placement is in `offsets`: a better one replaces
 * both. Begins at the lower bound. *is_proven: no placement is lower. `capacity_bytes` as in
 * gml_planner_options. */
gml_status gml_exact_improve(const gml_instance *instance, uint64_t capacity_bytes,
                             gml_budget *budget, uint64_t *offsets, uint64_t *peak_bytes,
                             bool *is_proven);

/* ---- portfolio.c: all of them on one instance ------------------------------------------------ */

typedef struct gml_placing {
    uint64_t peak_bytes;
    gml_method method;
    bool is_proven;
} gml_placing;

/* The best placement that the methods find. If none finishes in time, first fit continues without a
 * limit. `capacity_bytes` as in gml_planner_options. GML_NO_HOST_MEMORY. */
gml_status gml_portfolio_place(const gml_instance *instance, uint64_t capacity_bytes,
                               gml_budget *budget, uint64_t *offsets, gml_placing *out);

#endif
