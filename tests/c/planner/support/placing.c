#include "planner/support/placing.h"

#include <string.h>

enum { PLENTY_MS = 100000 };

void placing_shuffle(check_random *random, uint32_t *order, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t other = (size_t)check_below(random, i + 1);
        order[i] = order[other];
        order[other] = (uint32_t)i;
    }
}

void placing_open(placing *f, size_t count, uint64_t period) {
    uint32_t members[PLACING_MOST] = {0};
    for (size_t i = 0; i < count; i++) {
        members[i] = (uint32_t)i;
        f->order[i] = (uint32_t)i;
    }
    gml_problem problem = {.lifetimes = f->lifetimes, .count = count, .period = period};
    CHECK_OK(gml_instance_open(&f->instance, &problem, members, count, NULL));
    f->budget = gml_budget_of(PLENTY_MS, count);
}

void placing_random(placing *f, check_random *random, placing_kind kind) {
    memset(f, 0, sizeof *f);
    for (size_t i = 0; i < kind.count; i++) {
        uint64_t start = check_below(random, kind.times);
        f->lifetimes[i] =
            (gml_lifetime){.size_bytes = (1 + check_below(random, kind.units)) * PLACING_UNIT,
                           .start = start,
                           .end = start + 1 + check_below(random, kind.longest)};
    }
    placing_open(f, kind.count, kind.period);
    placing_shuffle(random, f->order, kind.count);
}

void placing_close(placing *f) {
    gml_instance_close(&f->instance);
}

void placing_check(const gml_instance *instance, const uint64_t *offsets, uint64_t peak_bytes) {
    uint64_t peak = 0;
    size_t overlaps = 0;
    for (size_t i = 0; i < instance->count; i++) {
        uint64_t end = offsets[i] + instance->sizes[i];
        peak = end > peak ? end : peak;
        for (size_t j = 0; j < i; j++) {
            overlaps += gml_items_meet(instance, i, j) &&
                        offsets[i] < offsets[j] + instance->sizes[j] && offsets[j] < end;
        }
    }
    CHECK_EQ(overlaps, 0);
    CHECK_EQ(peak, peak_bytes);
    CHECK(peak >= instance->lower_bound);
}

gml_status placing_run_lowest(placing *f, uint64_t limit_bytes) {
    gml_lowest *lowest = NULL;
    CHECK_OK(gml_lowest_open(&f->instance, &lowest));
    gml_status status =
        gml_lowest_run(lowest, f->order, limit_bytes, &f->budget, f->offsets, &f->peak);
    gml_lowest_close(lowest);
    return status;
}
