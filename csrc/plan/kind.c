/* Kinds of steps, and the plans at work for each. */
#include "plan/planned.h"

#include <stdlib.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

gml_kind *
gml_kind_find(const gml_planned *planned, uint64_t id)
{
    gml_kind *kind = planned->kinds;
    while (kind && kind->id != id) {
        kind = kind->next;
    }
    return kind;
}

gml_kind *
gml_kind_make(gml_planned *planned, uint64_t id)
{
    gml_kind *kind = gml_kind_find(planned, id);
    if (kind) {
        return kind;
    }
    kind = calloc(1, sizeof *kind);
    if (!kind) {
        (void)gml_driver_fail(planned->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a kind of step");
        return NULL;
    }
    kind->id = id;
    kind->next = planned->kinds;
    planned->kinds = kind;
    return kind;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void
free_slot(gml_slot *slot)
{
    gml_matcher_close(&slot->matcher);
    gml_plan_release(slot->plan);
    free(slot->streams);
    free(slot->is_bound);
    free(slot);
}

void
gml_slot_drop(gml_planned *planned, gml_slot *slot)
{
    if (slot && planned->open.slot == slot) {
        slot->is_dropped = true;
    } else if (slot) {
        free_slot(slot);
    }
}

/* NULL when the host has no memory. */
static gml_slot *
make_slot(gml_plan *plan, uint32_t window)
{
    gml_slot *slot = calloc(1, sizeof *slot);
    if (!slot) {
        return NULL;
    }
    slot->streams = calloc(plan->lane_count + 1, sizeof *slot->streams);
    slot->is_bound = calloc(plan->lane_count + 1, sizeof *slot->is_bound);
    if (!slot->streams || !slot->is_bound ||
        gml_matcher_open(&slot->matcher, plan, window) != GML_OK) {
        free(slot->streams);
        free(slot->is_bound);
        free(slot);
        return NULL;
    }
    slot->plan = gml_plan_retain(plan);
    return slot;
}

static void
remove_slot(gml_planned *planned, gml_kind *kind, size_t at)
{
    gml_slot *slot = kind->slots[at];
    kind->latest = kind->latest == slot ? NULL : kind->latest;
    for (size_t i = at + 1; i < kind->slot_count; i++) {
        kind->slots[i - 1] = kind->slots[i];
    }
    kind->slot_count--;
    gml_slot_drop(planned, slot);
}

void
gml_kinds_close(gml_planned *planned)
{
    for (gml_kind *kind = planned->kinds, *next; kind; kind = next) {
        next = kind->next;
        while (kind->slot_count) {
            remove_slot(planned, kind, kind->slot_count - 1);
        }
        for (size_t i = 0; i < kind->record_count; i++) {
            gml_record_close(kind->records[i]);
            free(kind->records[i]);
        }
        free(kind);
    }
    planned->kinds = NULL;
}

/* The slot that `plan` takes the place of: of the same fingerprint, else the one used least lately
 * where there is no other place; SIZE_MAX: none. */
static size_t
place_of(const gml_kind *kind, const gml_plan *plan)
{
    size_t oldest = SIZE_MAX;
    for (size_t i = 0; i < kind->slot_count; i++) {
        const gml_slot *slot = kind->slots[i];
        if (slot->plan->fingerprint == plan->fingerprint && slot->plan->steps == plan->steps) {
            return i;
        }
        if (oldest == SIZE_MAX || slot->last_used < kind->slots[oldest]->last_used) {
            oldest = i;
        }
    }
    return kind->slot_count == GML_KEPT_PLANS ? oldest : SIZE_MAX;
}

gml_status
gml_steps_add_plan(gml_policy *policy, uint64_t id, gml_plan *plan)
{
    gml_planned *planned = gml_planned_of(policy);
    gml_kind *kind = gml_kind_make(planned, id);
    gml_slot *slot = kind ? make_slot(plan, planned->window) : NULL;
    if (!slot) {
        return gml_driver_fail(policy->driver, GML_NO_HOST_MEMORY, "no host memory for a plan");
    }
    size_t place = place_of(kind, plan);
    if (place != SIZE_MAX) {
        remove_slot(planned, kind, place);
    }
    slot->last_used = planned->next_number; /* younger than any that has served */
    kind->slots[kind->slot_count++] = slot;
    return GML_OK;
}

gml_status
gml_steps_drop_plans(gml_policy *policy, uint64_t id)
{
    gml_planned *planned = gml_planned_of(policy);
    gml_kind *kind = gml_kind_find(planned, id);
    while (kind && kind->slot_count) {
        remove_slot(planned, kind, kind->slot_count - 1);
    }
    return GML_OK;
}

/* ---- lanes and streams ----------------------------------------------------------------------- */

static uint32_t
bind(gml_slot *slot, uint32_t lane, gml_stream stream)
{
    slot->is_bound[lane] = true;
    slot->streams[lane] = stream;
    return lane;
}

/* The lane of the entry that is expected next, if no stream has it and the request looks like it.
 */
static uint32_t
expected_lane(const gml_slot *slot, uint64_t size_bytes)
{
    const gml_plan *plan = slot->plan;
    size_t position = slot->matcher.position;
    if (position >= plan->entry_count) {
        return UINT32_MAX;
    }
    const gml_plan_entry *entry = &plan->entries[position];
    bool is_free = !slot->is_bound[entry->lane] && plan->lanes[entry->lane].stream != 0;
    return is_free && entry->size_bytes == size_bytes ? entry->lane : UINT32_MAX;
}

uint32_t
gml_slot_lane(gml_slot *slot, gml_stream stream, uint64_t size_bytes)
{
    uint32_t watched = UINT32_MAX;
    for (uint32_t i = 0; i < slot->plan->lane_count; i++) {
        if (slot->is_bound[i] && slot->streams[i] == stream) {
            return i;
        }
        if (!slot->is_bound[i] && slot->plan->lanes[i].stream == stream) {
            watched = i;
        }
    }
    uint32_t lane = watched;
    if (lane == UINT32_MAX && stream != 0) {
        lane = expected_lane(slot, size_bytes);
    }
    return lane == UINT32_MAX ? lane : bind(slot, lane, stream);
}

/* ---- foreseeing ------------------------------------------------------------------------------ */

/* How many of the last steps were, in the same order, those up to the one `at` steps before. */
static size_t
likeness(const gml_kind *kind, size_t at)
{
    size_t length = 0;
    while (at + length < kind->past_count && kind->past[length] == kind->past[at + length]) {
        length++;
    }
    return length;
}

/* The fingerprint of the step that followed the last time that steps went as they just did, over
 * the longest stretch: what repeats may be several steps, as where gradients are accumulated over
 * them. false: they never did. */
static bool
foresee(const gml_kind *kind, uint64_t *fingerprint)
{
    size_t longest = 0;
    for (size_t at = 1; at < kind->past_count; at++) {
        size_t length = likeness(kind, at);
        if (length > longest) {
            longest = length;
            *fingerprint = kind->past[at - 1];
        }
    }
    return longest != 0;
}

gml_slot *
gml_slot_foresee(const gml_kind *kind)
{
    uint64_t fingerprint = 0;
    bool is_foreseen = foresee(kind, &fingerprint);
    gml_slot *best = NULL;
    for (size_t i = 0; i < kind->slot_count; i++) {
        gml_slot *slot = kind->slots[i];
        if (is_foreseen && slot->plan->fingerprint == fingerprint) {
            return slot;
        }
        /* Else the one that served last, or the youngest of those that never did. */
        best = !best || slot->last_used >= best->last_used ? slot : best;
    }
    return best;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* Lets the pool take what is idle before others do: once the plan serves, nobody else needs whole
 * chunks, and what they leave between them is enough for small requests. */
static void
prepare(gml_planned *planned, gml_slot *slot)
{
    slot->is_prepared = true;
    for (size_t i = 0; i < slot->plan->lane_count; i++) {
        const gml_plan_lane *planned_lane = &slot->plan->lanes[i];
        gml_stream stream = slot->is_bound[i] ? slot->streams[i] : planned_lane->stream;
        bool is_known = gml_map_find(&planned->stitch->pond_by_stream, stream + 1) != NULL;
        gml_lane *lane = is_known ? gml_lanes_make(&planned->lanes, stream) : NULL;
        if (lane) {
            gml_lane_attach_idle(&planned->lanes, lane, planned_lane->peak_bytes);
        }
    }
}

void
gml_slot_begin(gml_planned *planned, gml_slot *slot, unsigned step)
{
    gml_open_step *open = &planned->open;
    slot->step = step;
    open->slot = slot;
    open->visit = SIZE_MAX;
    open->next_visit = slot->plan->visit_count / slot->plan->steps * step;
    gml_matcher_begin_step(&slot->matcher, step);
    if (!slot->is_prepared) {
        prepare(planned, slot);
    }
}

void
gml_open_visit(gml_open_step *open, uint32_t scope)
{
    const gml_plan *plan = open->slot ? open->slot->plan : NULL;
    size_t visit_count = plan && scope ? plan->visit_count : 0;
    open->visit_request = 0;
    open->visit = SIZE_MAX;
    for (size_t i = 0; i < visit_count && open->visit == SIZE_MAX; i++) {
        size_t visit = (open->next_visit + i) % visit_count;
        if (plan->visits[visit].scope == scope) {
            open->visit = visit;
            open->next_visit = visit + 1;
        }
    }
}

/* Lets the plan that serves see the marks from `mark` on that came before request number `request`;
 * returns the next. */
static size_t
replay_marks(gml_open_step *open, size_t mark, size_t request)
{
    const gml_step *seen = &open->record->step;
    for (; mark < seen->mark_count && seen->marks[mark].request <= request; mark++) {
        if (seen->marks[mark].kind == GML_MARK_SCOPE) {
            gml_open_visit(open, seen->marks[mark].id);
        } else {
            gml_matcher_enter_phase(&open->slot->matcher, seen->marks[mark].id);
        }
    }
    return mark;
}

/* Lets `slot` serve the rest of the open step, as if it had from the beginning. */
static void
take_over_step(gml_planned *planned, gml_slot *slot, unsigned step, size_t seen_count)
{
    gml_open_step *open = &planned->open;
    gml_slot *before = open->slot;
    gml_slot_begin(planned, slot, step);
    if (before && before != slot && before->is_dropped) {
        gml_slot_drop(planned, before);
    }
    const gml_step *seen = &open->record->step;
    size_t mark = 0;
    for (size_t i = 0; i < seen_count; i++) {
        mark = replay_marks(open, mark, i);
        const gml_step_request *request = &seen->requests[i];
        if (!request->scope_birth) {
            uint32_t lane = gml_slot_lane(slot, request->stream, request->size_bytes);
            (void)gml_matcher_meet(&slot->matcher, request->size_bytes, lane);
        }
    }
    (void)replay_marks(open, mark, seen_count);
}

enum { MOST_LOOKED_BACK = 64 }; /* requests after which a step keeps its plan */

bool
gml_planned_switch(gml_planned *planned, size_t request_count)
{
    gml_open_step *open = &planned->open;
    gml_kind *kind = open->record->kind;
    const gml_step_request *requests = open->record->step.requests;
    open->is_settled = true; /* who does not begin like this will not begin like more of it */
    for (size_t i = 0; i < kind->slot_count && request_count <= MOST_LOOKED_BACK; i++) {
        gml_slot *slot = kind->slots[i];
        for (unsigned step = 0; step < slot->plan->steps; step++) {
            bool is_this = slot == open->slot && step == slot->step;
            if (!is_this && gml_plan_begins_with(slot->plan, step, requests, request_count)) {
                take_over_step(planned, slot, step, request_count - 1);
                open->is_settled = false;
                return true;
            }
        }
    }
    return false;
}
