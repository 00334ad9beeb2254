/* Whether a plan may serve. It may come from a file, so nothing in it is believed: what indexes or
 * adds is checked before it is used. */
#include "planner/plan_parts.h"

#include <stdlib.h>

/* Where to write the reason. */
typedef struct verdict {
    char *reason;
    size_t reason_bytes;
} verdict;

#define CORRUPT(verdict, ...)                                                                      \
    gml_refuse(GML_CORRUPT, (verdict)->reason, (verdict)->reason_bytes, __VA_ARGS__)

static gml_status
check_shape(const gml_plan *plan, const verdict *to)
{
    size_t steps = plan->steps;
    if (steps < 1 || steps > GML_PLAN_MOST_STEPS) {
        return CORRUPT(to, "a plan of %zu steps; 1 or 2 are possible", steps);
    }
    size_t most = steps * GML_PLAN_MOST_ENTRIES;
    if (plan->lane_count > GML_PLAN_MOST_LANES || plan->entry_count > most ||
        plan->mark_count > most || plan->visit_count > most || plan->dynamic_count > most ||
        plan->span_count > most || plan->entry_count % steps || plan->mark_count % steps ||
        plan->visit_count % steps || plan->dynamic_count % steps) {
        return CORRUPT(to, "the steps of the plan differ in length, or have too much in them");
    }
    uint64_t step_events = plan->period / steps;
    if (step_events == 0 || step_events > GML_PLAN_MOST_EVENTS || plan->period % steps) {
        return CORRUPT(to, "a period of %llu events for %zu steps",
                       (unsigned long long)plan->period, steps);
    }
    for (size_t i = 0; i <= steps; i++) {
        if (plan->step_time[i] != i * step_events ||
            plan->step_entry[i] != i * (plan->entry_count / steps) ||
            plan->step_mark[i] != i * (plan->mark_count / steps)) {
            return CORRUPT(to, "step %zu of the plan does not begin where it should", i);
        }
    }
    return GML_OK;
}

static gml_status
check_lanes(const gml_plan *plan, const verdict *to)
{
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

static bool
is_repeated(const gml_plan *plan, size_t index)
{
    const gml_plan_entry *entry = &plan->entries[index];
    const gml_plan_entry *model = &plan->entries[index - plan->step_entry[1]];
    return entry->size_bytes == model->size_bytes && entry->lane == model->lane &&
           entry->start == model->start + plan->step_time[1] &&
           entry->end == model->end + plan->step_time[1];
}

static gml_status
check_entries(const gml_plan *plan, const verdict *to)
{
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

static gml_status
check_marks(const gml_plan *plan, const verdict *to)
{
    for (unsigned step = 0; step < plan->steps; step++) {
        size_t earliest = plan->step_entry[step];
        for (size_t i = plan->step_mark[step]; i < plan->step_mark[step + 1]; i++) {
            if (plan->marks[i].entry < earliest ||
                plan->marks[i].entry > plan->step_entry[step + 1]) {
                return CORRUPT(to, "mark %zu lies before entry %u", i, plan->marks[i].entry);
            }
            earliest = plan->marks[i].entry;
        }
    }
    return GML_OK;
}

static gml_status
check_visits(const gml_plan *plan, const verdict *to)
{
    size_t half = plan->visit_count / plan->steps, next = 0;
    for (size_t i = 0; i < plan->visit_count; i++) {
        const gml_plan_visit *visit = &plan->visits[i];
        bool differs = i >= half && (visit->scope != plan->visits[i - half].scope ||
                                     visit->request_count != plan->visits[i - half].request_count);
        if (visit->first_request != next || visit->request_count > plan->dynamic_count - next ||
            visit->scope == 0 || differs) {
            return CORRUPT(to, "visit %zu of scope %u has requests %u to %u + %u", i, visit->scope,
                           visit->first_request, visit->first_request, visit->request_count);
        }
        next += visit->request_count;
    }
    return next == plan->dynamic_count ? GML_OK : CORRUPT(to, "dynamic requests without a visit");
}

/* ends[i]: the first span behind i that does not lie above the one before it. */
static gml_status
find_ascents(const gml_plan *plan, size_t *ends, const verdict *to)
{
    for (size_t i = plan->span_count; i-- > 0;) {
        const gml_span *span = &plan->spans[i];
        if (span->size_bytes == 0 || span->size_bytes % GML_PLAN_UNIT ||
            span->size_bytes > GML_PLAN_MOST_BYTES || span->offset % GML_PLAN_UNIT ||
            span->offset > GML_PLAN_MOST_BYTES) {
            return CORRUPT(to, "span %zu has %llu B at %llu", i,
                           (unsigned long long)span->size_bytes, (unsigned long long)span->offset);
        }
        bool ascends =
            i + 1 < plan->span_count && span[1].offset >= span->offset + span->size_bytes;
        ends[i] = ascends ? ends[i + 1] : i + 1;
    }
    return GML_OK;
}

static gml_status
check_list(const gml_plan *plan, size_t index, const size_t *ends, const verdict *to)
{
    const gml_plan_dynamic *dynamic = &plan->dynamic[index];
    size_t first = dynamic->first_span, count = dynamic->span_count;
    bool holds = dynamic->lane < plan->lane_count && dynamic->size_bytes > 0 &&
                 dynamic->size_bytes % GML_PLAN_UNIT == 0 &&
                 dynamic->size_bytes <= GML_PLAN_MOST_SIZE && first <= plan->span_count &&
                 count <= plan->span_count - first;
    if (holds && count > 0) {
        const gml_span *top = &plan->spans[first + count - 1];
        uint64_t peak = plan->lanes[dynamic->lane].peak_bytes;
        holds = ends[first] >= first + count && top->offset + top->size_bytes <= peak;
    }
    return holds ? GML_OK
                 : CORRUPT(to, "dynamic request %zu in lane %u has spans %zu + %zu", index,
                           dynamic->lane, first, count);
}

static gml_status
check_dynamic(const gml_plan *plan, const verdict *to)
{
    size_t *ends = gml_plan_array(plan->span_count, sizeof *ends);
    if (!ends) {
        return gml_refuse(GML_NO_HOST_MEMORY, to->reason, to->reason_bytes, "no host memory");
    }
    gml_status status = find_ascents(plan, ends, to);
    for (size_t i = 0; i < plan->dynamic_count && status == GML_OK; i++) {
        status = check_list(plan, i, ends, to);
    }
    free(ends);
    return status;
}

static gml_status
check_placement(const gml_plan *plan, const verdict *to)
{
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

static gml_status
check_fingerprint(const gml_plan *plan, const verdict *to)
{
    return plan->fingerprint == gml_plan_fingerprint(plan)
               ? GML_OK
               : CORRUPT(to, "the plan's fingerprint is not that of its entries");
}

gml_status
gml_plan_check(const gml_plan *plan, char *reason, size_t reason_bytes)
{
    /* In this order: each relies on those before it. */
    static gml_status (*const checks[])(const gml_plan *, const verdict *) = {
        check_shape,  check_lanes,   check_entries,     check_marks,
        check_visits, check_dynamic, check_fingerprint, check_placement,
    };
    const verdict to = {reason, reason_bytes};
    gml_status status = GML_OK;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0] && status == GML_OK; i++) {
        status = checks[i](plan, &to);
    }
    return status;
}
