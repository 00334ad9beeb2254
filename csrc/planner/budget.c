#include "planner/budget.h"

#include "base/clock.h"

enum {
    WORK_PER_MS = 130000, /* visits that take about a millisecond on a server core of 2024 */
    WORK_BETWEEN_LOOKS = 50000,
    CACHED_COUNT = 400000,   /* as many again, and a visit takes as long again */
    PATIENCE = 4,            /* times the budget that the clock allows, */
    LEAST_PATIENCE_MS = 100, /* and this on top, so that a pause of the machine changes no result */
    NS_PER_MS = 1000000
};

static uint64_t
saturating_product(uint64_t a, uint64_t b)
{
    return b && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

static uint64_t
saturating_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t
next_look(const gml_budget *budget)
{
    uint64_t next = saturating_sum(budget->work, WORK_BETWEEN_LOOKS);
    return next < budget->work_limit ? next : budget->work_limit;
}

void
gml_budget_begin(gml_budget *budget, uint64_t milliseconds)
{
    uint64_t patience_ms =
        saturating_sum(saturating_product(milliseconds, PATIENCE), LEAST_PATIENCE_MS);
    *budget = (gml_budget){
        .work_limit = saturating_product(milliseconds, WORK_PER_MS),
        .deadline_ns = saturating_sum(gml_clock_ns(), saturating_product(patience_ms, NS_PER_MS)),
        .is_over = milliseconds == 0,
    };
    budget->next_look = next_look(budget);
}

void
gml_budget_slow_down(gml_budget *budget, size_t count)
{
    budget->work_limit = budget->work_limit / (CACHED_COUNT + count) * CACHED_COUNT;
    budget->next_look = next_look(budget);
}

void
gml_budget_open(gml_budget *part, const gml_budget *whole, uint64_t share, uint64_t of)
{
    uint64_t left = whole->work < whole->work_limit ? whole->work_limit - whole->work : 0;
    uint64_t limit = share && left > UINT64_MAX / share ? left / of * share : left * share / of;
    *part = (gml_budget){
        .work_limit = limit,
        .deadline_ns = whole->deadline_ns,
        .is_over = whole->is_over || limit == 0,
    };
    part->next_look = next_look(part);
}

void
gml_budget_close(const gml_budget *part, gml_budget *whole)
{
    whole->work = saturating_sum(whole->work, part->work);
    gml_budget_look(whole);
}

bool
gml_budget_look(gml_budget *budget)
{
    if (!budget->is_over) {
        budget->is_over =
            budget->work >= budget->work_limit || gml_clock_ns() >= budget->deadline_ns;
        budget->next_look = next_look(budget);
    }
    return budget->is_over;
}
