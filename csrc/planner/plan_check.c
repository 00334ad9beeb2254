/* Validates a plan before it serves. It may come from a file, so nothing in it is trusted: indices
 * and summands are checked before use. */
#include "planner/plan.h"

#include <stdlib.h>

/* Where to write the reason. */
typedef struct verdict {
    char *reason;
    size_t reason_bytes;
} verdict;

#define CORRUPT(verdict, ...)                                                                      \
    gml_refuse(GML_CORRUPT, (verdict)->reason, (verdict)->reason_bytes, __VA_ARGS__)

static gml_status check_shape(const gml_plan *plan, const verdict *to) {
    size_t steps = plan->steps;
    if (steps < 1 || steps > GML_PLAN_MOST_STEPS) {
        return CORRUPT(to, "a plan of %zu steps; 1 or 2 are possible", steps);
    }
    size_t most = steps * GML_PLAN_MOST_ENTRIES;
    if (plan->lane_count > GML_PLAN_MOST_LANES || plan->entry_count > most ||
        plan->entry_count % steps) {
        return CORRUPT(to, "the steps of the plan differ in length, or have too much in them");
    }
    uint64_t step_events = plan->period / steps;
    if (step_events == 0 || step_events > GML_PLAN_MOST_EVENTS || plan->period % steps) {
        return CORRUPT(to, "a period of %llu events for %zu steps",
                       (unsigned long long)plan->period, steps);
    }
    for (size_t i = 0; i <= steps; i++) {
        if (plan->step_time[i] != i * step_events ||
            plan->step_entry[i] != i * (plan->entry_count / steps)) {
            return CORRUPT(to, "step %zu of the plan does not begin where it should", i);
        }
    }
    return GML_OK;
}

static gml_status check_lanes(const gml_plan *plan, const verdict *to) {
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->lane_count; i++) {
        const gml_plan_lane *lane = &plan->lanes[i];
        if ((unsigned)lane->method >= GML_METHOD_COUNT) {
            return CORRUPT(to, "lane %zu was placed by the unknown method %u", i,
                           (unsigned)lane->method);
        }
        if (lane->lower_bound_bytes > lane->peak_bytes ||
            lane->peak_bytes > GML_PLAN_MOST_BYTES - sum) {
            return CORRUPT(to, "lane %zu has a peak of %llu B and a lower bound of %llu B", i,
                           (unsigned long long)lane->peak_bytes,
                           (unsigned long long)lane->lower_bound_bytes);
        }
        sum += lane->peak_bytes;
    }
    return GML_OK;
}

static bool is_repeated(const gml_plan *plan, size_t index) {
    const gml_plan_entry *entry = &plan->entries[index];
    const gml_plan_entry *model = &plan->entries[index - plan->step_entry[1]];
    return entry->size_bytes == model->size_bytes && entry->lane == model->lane &&
           entry->start == model->start + plan->step_time[1] &&
           entry->end == model->end + plan->step_time[1];
}

static gml_status check_entries(const gml_plan *plan, const verdict *to) {
    uint32_t lanes_seen = 0;
    size_t placed = 0;
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->entry_count; i++) {
        const gml_plan_entry *entry = &plan->entries[i];
        if (entry->size_bytes == 0 || entry->size_bytes % GML_PLAN_UNIT ||
            entry->size_bytes > GML_PLAN_MOST_SIZE ||
            entry->size_bytes > GML_PLAN_MOST_BYTES - sum) {
            return CORRUPT(to, "entry %zu has a size of %llu B", i,
                           (unsigned long long)entry->size_bytes);
        }
        sum += entry->size_bytes;
        if (entry->lane >= plan->lane_count || entry->lane > lanes_seen) {
            return CORRUPT(to, "entry %zu is in lane %u", i, entry->lane);
        }
        lanes_seen += entry->lane == lanes_seen;
        if (entry->start >= plan->period || entry->end <= entry->start ||
            entry->end - entry->start > plan->period ||
            (i > 0 && entry->start <= plan->entries[i - 1].start)) {
            return CORRUPT(to, "entry %zu lives from event %llu to %llu", i,
                           (unsigned long long)entry->start, (unsigned long long)entry->end);
        }
        if (i >= plan->step_entry[1] ? !is_repeated(plan, i) : entry->start >= plan->step_time[1]) {
            return CORRUPT(to, "entry %zu differs from its like in the step before", i);
        }
        placed += entry->offset != GML_NO_OFFSET;
    }
    return placed == plan->placed_count ? GML_OK : CORRUPT(to, "%zu entries are placed", placed);
}

static gml_status check_placement(const gml_plan *plan, const verdict *to) {
    gml_lane_problems problems;
    gml_status status = gml_lane_problems_open(&problems, plan);
    if (status != GML_OK) {
        return gml_refuse(status, to->reason, to->reason_bytes, "no host memory");
    }
    for (size_t lane = 0; lane < plan->lane_count && status == GML_OK; lane++) {
        gml_problem problem = gml_lane_problem(&problems, plan, lane);
        const uint64_t *offsets = problems.offsets + problems.first[lane];
        uint64_t peak = plan->lanes[lane].peak_bytes;
        if (problem.count > 0) {
            status = gml_planner_check(&problem, offsets, peak, to->reason, to->reason_bytes);
        } else if (peak > 0) {
            status = CORRUPT(to, "lane %zu has a peak and nothing placed", lane);
        }
    }
    gml_lane_problems_close(&problems);
    return status;
}

static gml_status check_fingerprint(const gml_plan *plan, const verdict *to) {
    return plan->fingerprint == gml_plan_fingerprint(plan)
               ? GML_OK
               : CORRUPT(to, "the plan's fingerprint is not that of its entries");
}

gml_status gml_plan_check(const gml_plan *plan, char *reason, size_t reason_bytes) {
    /* In this order: each relies on those before it. */
    static gml_status (*const checks[])(const gml_plan *, const verdict *) = {
        check_shape, check_lanes, check_entries, check_fingerprint, check_placement,
    };
    const verdict to = {reason, reason_bytes};
    gml_status status = GML_OK;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == GML_OK; i++) {
        status = checks[i](plan, &to);
    }
    return status;
}
