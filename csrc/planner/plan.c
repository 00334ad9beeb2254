/* The life of a plan, and what can be asked of it. */
#include "planner/plan.h"

#include <stdio.h>
#include <stdlib.h>

void *gml_plan_array(size_t count, size_t item_bytes) {
    return calloc(count > 0 ? count : 1, item_bytes);
}

/* ---- a plan's life --------------------------------------------------------------------------- */

gml_plan *gml_plan_new(void) {
    return calloc(1, sizeof(gml_plan));
}

void gml_plan_free(gml_plan *plan) {
    if (plan) {
        free(plan->entries);
        free(plan->lanes);
        free(plan);
    }
}

/* ---- what it says ---------------------------------------------------------------------------- */

void gml_plan_describe(const gml_plan *plan, gml_plan_info *out) {
    *out = (gml_plan_info){
        .requests = plan->entry_count,
        .placed = plan->placed_count,
        .steps = plan->steps,
        .lanes = (unsigned)plan->lane_count,
        .method = "none",
        .time_ns = plan->time_ns,
        .fingerprint = plan->fingerprint,
    };
    uint64_t largest = 0;
    for (size_t i = 0; i < plan->lane_count; i++) {
        const gml_plan_lane *lane = &plan->lanes[i];
        out->peak_bytes += lane->peak_bytes;
        out->lower_bound_bytes += lane->lower_bound_bytes;
        if (i == 0 || lane->peak_bytes > largest) {
            largest = lane->peak_bytes;
            out->method = gml_method_name(lane->method);
        }
    }
}

void gml_plan_request_at(const gml_plan *plan, size_t index, gml_plan_request *out) {
    const gml_plan_entry *entry = &plan->entries[index];
    *out = (gml_plan_request){
        .size_bytes = entry->size_bytes,
        .offset = entry->offset,
        .start = entry->start,
        .end = entry->end,
        .lane = entry->lane,
        .step = plan->steps > 1 && index >= plan->step_entry[1],
    };
}

uint64_t gml_plan_fingerprint(const gml_plan *plan) {
    uint64_t fingerprint = GML_FINGERPRINT_SEED;
    for (size_t i = 0; i < plan->step_entry[1]; i++) {
        const gml_plan_entry *entry = &plan->entries[i];
        fingerprint = gml_fingerprint_add(fingerprint, entry->size_bytes, entry->lane);
    }
    return fingerprint;
}

/* ---- its lanes as problems ------------------------------------------------------------------- */

/* Lane i begins at first[i + 1], which moves to its end as entries are added: then it is where lane
 * i + 1 begins. */
static void count_lanes(const gml_plan *plan, size_t *first) {
    for (size_t i = 0; i < plan->entry_count; i++) {
        if (plan->entries[i].offset != GML_NO_OFFSET) {
            first[plan->entries[i].lane + 2]++;
        }
    }
    for (size_t i = 1; i < GML_PLAN_MOST_LANES + 2; i++) {
        first[i] += first[i - 1];
    }
}

static gml_lifetime lifetime_of(const gml_plan *plan, size_t index) {
    const gml_plan_entry *entry = &plan->entries[index];
    return (gml_lifetime){
        .size_bytes = entry->size_bytes,
        .start = entry->start,
        .end = entry->end,
        .stream = plan->lanes[entry->lane].stream,
        .tag = index,
    };
}

gml_status gml_lane_problems_open(gml_lane_problems *problems, const gml_plan *plan) {
    size_t count = plan->entry_count;
    *problems = (gml_lane_problems){
        .lifetimes = gml_plan_array(count, sizeof(gml_lifetime)),
        .offsets = gml_plan_array(count, sizeof(uint64_t)),
        .entries = gml_plan_array(count, sizeof(uint32_t)),
        .first = gml_plan_array(GML_PLAN_MOST_LANES + 2, sizeof(size_t)),
    };
    if (!problems->lifetimes || !problems->offsets || !problems->entries || !problems->first) {
        gml_lane_problems_close(problems);
        return GML_NO_HOST_MEMORY;
    }
    count_lanes(plan, problems->first);
    for (size_t i = 0; i < count; i++) {
        const gml_plan_entry *entry = &plan->entries[i];
        if (entry->offset != GML_NO_OFFSET) {
            size_t at = problems->first[entry->lane + 1]++;
            problems->lifetimes[at] = lifetime_of(plan, i);
            problems->offsets[at] = entry->offset;
            problems->entries[at] = (uint32_t)i;
        }
    }
    return GML_OK;
}

void gml_lane_problems_close(gml_lane_problems *problems) {
    free(problems->lifetimes);
    free(problems->offsets);
    free(problems->entries);
    free(problems->first);
    *problems = (gml_lane_problems){.lifetimes = NULL};
}

/* More methods can place a problem without a period, so it has one only where something wraps. */
gml_problem gml_lane_problem(const gml_lane_problems *problems, const gml_plan *plan, size_t lane) {
    size_t first = problems->first[lane], count = problems->first[lane + 1] - first;
    gml_problem problem = {
        .lifetimes = problems->lifetimes + first, .count = count, .alignment_bytes = GML_PLAN_UNIT};
    for (size_t i = 0; i < count && problem.period == 0; i++) {
        problem.period = problem.lifetimes[i].end > plan->period ? plan->period : 0;
    }
    return problem;
}

/* ---- served by a lake ------------------------------------------------------------------------ */

gml_placed_request *gml_plan_places(const gml_plan *plan, unsigned step, size_t *count) {
    const gml_plan_entry *entries = plan->entries + plan->step_entry[step];
    *count = plan->step_entry[step + 1] - plan->step_entry[step];
    gml_placed_request *places = gml_plan_array(*count, sizeof *places);
    for (size_t i = 0; places && i < *count; i++) {
        places[i] = (gml_placed_request){.size_bytes = entries[i].size_bytes,
                                         .offset = entries[i].offset,
                                         .stream = plan->lanes[entries[i].lane].stream};
    }
    return places;
}

/* What is added last is served first. */
gml_status gml_lake_add_plan(gml_lake *lake, uint64_t kind, const gml_plan *plan) {
    gml_status status = GML_OK;
    for (unsigned step = plan->steps; step-- > 0 && status == GML_OK;) {
        size_t count;
        gml_placed_request *places = gml_plan_places(plan, step, &count);
        status = places ? gml_lake_add_places(lake, kind, places, count) : GML_NO_HOST_MEMORY;
        free(places);
    }
    return status;
}
