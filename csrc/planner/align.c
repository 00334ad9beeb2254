/* A recorded step is compared with another as a program is with a plan: by the matcher. */
#include "planner/align.h"

#include "base/mix.h"
#include "planner/matcher.h"

#include <stdlib.h>

enum { WINDOW = 4096 }; /* how far the two may have drifted apart */

/* Equal for requests that may be twins. */
static uint64_t
key_of(const gml_step_request *request)
{
    uint64_t what = request->scope_birth ? request->scope_birth : request->size_bytes;
    return (what << 1 | (request->scope_birth != 0)) ^ gml_mix(request->stream);
}

/* The requests of a step as the entries of a plan, with keys for sizes. */
static gml_status
open_plan(gml_plan *plan, const gml_step *step)
{
    *plan = (gml_plan){
        .steps = 1,
        .step_entry = {0, step->request_count},
        .entries = calloc(step->request_count + 1, sizeof *plan->entries),
        .entry_count = step->request_count,
        .marks = calloc(step->mark_count + 1, sizeof *plan->marks),
    };
    if (!plan->entries || !plan->marks) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < step->request_count; i++) {
        plan->entries[i].size_bytes = key_of(&step->requests[i]);
    }
    for (size_t i = 0; i < step->mark_count; i++) {
        if (step->marks[i].kind == GML_MARK_PHASE) {
            plan->marks[plan->mark_count++] =
                (gml_plan_mark){step->marks[i].id, (uint32_t)step->marks[i].request};
        }
    }
    plan->step_mark[1] = plan->mark_count;
    return GML_OK;
}

static void
find_twins(gml_matcher *matcher, const gml_step *last, size_t *twins)
{
    size_t mark = 0;
    for (size_t i = 0; i < last->request_count; i++) {
        for (; mark < last->mark_count && last->marks[mark].request <= i; mark++) {
            if (last->marks[mark].kind == GML_MARK_PHASE) {
                gml_matcher_enter_phase(matcher, last->marks[mark].id);
            }
        }
        size_t entry = gml_matcher_meet(matcher, key_of(&last->requests[i]), 0);
        twins[i] = entry == GML_NO_ENTRY ? GML_NO_TWIN : entry;
    }
}

gml_status
gml_align_steps(const gml_step *last, const gml_step *previous, size_t *twins)
{
    gml_plan plan;
    gml_matcher matcher = {0};
    gml_status status = open_plan(&plan, previous);
    if (status == GML_OK) {
        status = gml_matcher_open(&matcher, &plan, WINDOW);
    }
    if (status == GML_OK) {
        find_twins(&matcher, last, twins);
        gml_matcher_close(&matcher);
    }
    free(plan.entries);
    free(plan.marks);
    return status;
}
