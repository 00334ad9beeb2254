/* Serving a request: where its plan wants it, else by the ladder. */
#include "base/rounding.h"
#include "plan/planned.h"

/* How a request of a step was served. */
typedef enum outcome {
    BY_OTHERS, /* by the inner policy, unforeseen */
    BORROWED,  /* unforeseen, in idle pool memory */
    PLANNED,   /* at the address planned for it */
    DISPLACED, /* foreseen, and something else was there */
    LEFT,      /* foreseen, and left to the inner policy */
} outcome;

static gml_status
ask_inner(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_policy *inner = planned->inner;
    gml_status status = inner->ops->allocate(inner, size_bytes, stream, out);
    if (status == GML_OK) {
        (*out)->note = 0;
    }
    return status;
}

/* Only out of what the inner policy holds, for this stream or another that lends it. */
static gml_status
ask_bounded(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    planned->stitch->is_bounded = true;
    gml_status status = ask_inner(planned, size_bytes, stream, out);
    planned->stitch->is_bounded = false;
    return status;
}

/* Whether `found`, which may be NULL, serves: the last touches, and who is answerable for it. */
static bool
adopt(const gml_planned *planned, gml_lane_block *found, uint64_t size_bytes, bool is_borrowed,
      gml_block **out)
{
    if (!found) {
        return false;
    }
    const gml_record *record = planned->open.record;
    found->block.requested_bytes = size_bytes;
    found->is_borrowed = is_borrowed;
    found->kind = record ? record->kind : NULL;
    found->serial = record ? record->step.serial : 0;
    *out = &found->block;
    return true;
}

static bool
borrow(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT), offset;
    gml_lane *lane = gml_lanes_find(&planned->lanes, stream);
    if (!lane || !gml_lane_best_attached(lane, bytes, &offset)) {
        return false;
    }
    gml_lane_block *found = gml_lane_take(&planned->lanes, lane, offset, bytes);
    return adopt(planned, found, size_bytes, true, out);
}

/* Gives as many idle chunks of pools back as the request needs, and asks again: chunks from
 * anywhere can be stitched. GML_OUT_OF_MEMORY where there are none, or too few. */
static gml_status
ask_for_released(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    uint64_t needed = gml_divide_up(size_bytes, gml_stitch_cell_bytes(planned->stitch));
    gml_pond *pond;
    bool is_any;
    gml_status status = gml_pond_find(planned->stitch, stream, &pond);
    if (status == GML_OK) {
        status = gml_lanes_release_idle(&planned->lanes, pond, needed, &is_any);
    }
    if (status != GML_OK) {
        return status;
    }
    return is_any ? ask_inner(planned, size_bytes, stream, out)
                  : gml_driver_fail(planned->policy.driver, GML_OUT_OF_MEMORY,
                                    "neither the device nor a pool has memory left");
}

/* The inner policy, and when it has no more: idle pool memory in place, and idle chunks given back.
 * So nothing fails that the inner policy alone could have served. */
static gml_status
ask_for_all(gml_planned *planned, uint64_t size_bytes, gml_stream stream, outcome *how,
            gml_block **out)
{
    gml_status status = ask_inner(planned, size_bytes, stream, out);
    if (status != GML_OUT_OF_MEMORY || !planned->lanes.attached_count) {
        return status;
    }
    if (borrow(planned, size_bytes, stream, out)) {
        *how = BORROWED;
        return GML_OK;
    }
    return ask_for_released(planned, size_bytes, stream, out);
}

/* What no plan places: from what is held already, then from idle pool memory, then from the device.
 * Small requests leave the pool alone: one of 512 bytes could keep a large one from its place. */
static gml_status
climb(gml_planned *planned, uint64_t size_bytes, gml_stream stream, outcome *how, gml_block **out)
{
    bool may_borrow = size_bytes > GML_SMALL_LIMIT && planned->lanes.attached_count;
    if (may_borrow) {
        gml_status status = ask_bounded(planned, size_bytes, stream, out);
        if (status != GML_OUT_OF_MEMORY) {
            return status;
        }
        if (borrow(planned, size_bytes, stream, out)) {
            *how = BORROWED;
            return GML_OK;
        }
    }
    return ask_for_all(planned, size_bytes, stream, how, out);
}

/* ---- by the plan ----------------------------------------------------------------------------- */

/* The entry that the request is, by the plan that serves or by another that knew better. */
static size_t
meet(gml_planned *planned, uint64_t bytes, gml_stream stream)
{
    gml_open_step *open = &planned->open;
    if (open->is_refused && open->refused_bytes == bytes && open->refused_stream == stream) {
        return open->refused_entry;
    }
    if (!open->slot) {
        return GML_NO_ENTRY;
    }
    size_t expected = open->slot->matcher.position;
    uint32_t lane = gml_slot_lane(open->slot, stream, bytes);
    size_t entry = gml_matcher_meet(&open->slot->matcher, bytes, lane);
    if (entry == expected || open->is_settled || open->record->is_cut) {
        return entry;
    }
    gml_record_peek(open->record, bytes, stream);
    if (!gml_planned_switch(planned, open->record->step.request_count + 1)) {
        return entry;
    }
    lane = gml_slot_lane(open->slot, stream, bytes);
    return gml_matcher_meet(&open->slot->matcher, bytes, lane);
}

static gml_lane_block *
take_planned(gml_planned *planned, uint64_t offset, uint64_t bytes, gml_stream stream)
{
    gml_lane *lane = gml_lanes_make(&planned->lanes, stream);
    return lane ? gml_lane_take(&planned->lanes, lane, offset, bytes) : NULL;
}

static gml_status
serve_foreseen(gml_planned *planned, uint64_t size_bytes, gml_stream stream, size_t entry,
               outcome *how, gml_block **out)
{
    const gml_plan_entry *planned_entry = &planned->open.slot->plan->entries[entry];
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    if (planned_entry->offset == GML_NO_OFFSET) {
        *how = LEFT;
        outcome ignored;
        return ask_for_all(planned, size_bytes, stream, &ignored, out);
    }
    gml_lane_block *found = take_planned(planned, planned_entry->offset, bytes, stream);
    if (adopt(planned, found, size_bytes, false, out)) {
        *how = PLANNED;
        return GML_OK;
    }
    gml_status status = climb(planned, size_bytes, stream, how, out);
    *how = DISPLACED;
    return status;
}

static void
remember_refusal(gml_open_step *open, uint64_t bytes, gml_stream stream, size_t entry)
{
    open->is_refused = true;
    open->refused_bytes = bytes;
    open->refused_stream = stream;
    open->refused_entry = entry;
}

/* ---- dynamic scopes -------------------------------------------------------------------------- */

/* What the plan foresees for the next request of the visit; beyond the last one, that. */
static const gml_plan_dynamic *
foreseen_dynamic(const gml_open_step *open)
{
    const gml_plan *plan = open->slot ? open->slot->plan : NULL;
    if (!plan || open->visit == SIZE_MAX) {
        return NULL;
    }
    const gml_plan_visit *visit = &plan->visits[open->visit];
    size_t k = open->visit_request;
    if (!visit->request_count) {
        return NULL;
    }
    k = k < visit->request_count ? k : visit->request_count - 1;
    return &plan->dynamic[visit->first_request + k];
}

/* The best fit in the spans that the plan leaves idle, as far as they are. */
static gml_lane_block *
take_idle_span(gml_planned *planned, const gml_plan_dynamic *dynamic, uint64_t bytes,
               gml_stream stream)
{
    const gml_plan *plan = planned->open.slot->plan;
    gml_lane *lane = gml_lanes_make(&planned->lanes, stream);
    uint64_t best_bytes = UINT64_MAX, best_offset = 0, offset, run_bytes;
    for (uint32_t i = 0; lane && i < dynamic->span_count; i++) {
        const gml_span *span = &plan->spans[dynamic->first_span + i];
        uint64_t end = span->offset + span->size_bytes;
        if (span->size_bytes >= bytes &&
            gml_lane_best_fit(lane, span->offset, end, bytes, &offset, &run_bytes) &&
            run_bytes < best_bytes) {
            best_bytes = run_bytes;
            best_offset = offset;
        }
    }
    bool is_found = best_bytes != UINT64_MAX;
    return is_found ? gml_lane_take(&planned->lanes, lane, best_offset, bytes) : NULL;
}

static gml_status
serve_dynamic(gml_planned *planned, uint64_t size_bytes, gml_stream stream, outcome *how,
              gml_block **out)
{
    const gml_plan_dynamic *dynamic = foreseen_dynamic(&planned->open);
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    if (dynamic && gml_slot_lane(planned->open.slot, stream, bytes) == dynamic->lane) {
        gml_lane_block *found = take_idle_span(planned, dynamic, bytes, stream);
        if (adopt(planned, found, size_bytes, false, out)) {
            *how = PLANNED;
            return GML_OK;
        }
    }
    return climb(planned, size_bytes, stream, how, out);
}

/* ---- in a step ------------------------------------------------------------------------------- */

static void
count(gml_step_report *report, uint64_t bytes, bool is_dynamic, outcome how)
{
    bool is_foreseen = how == PLANNED || how == DISPLACED || how == LEFT;
    report->requests++;
    report->requested_bytes += bytes;
    report->dynamic += is_dynamic;
    report->dynamic_served += is_dynamic && how == PLANNED;
    report->foreseen += !is_dynamic && is_foreseen;
    report->served += !is_dynamic && how == PLANNED;
    report->served_bytes += how == PLANNED ? bytes : 0;
    report->left += how == LEFT;
    report->borrowed += how == BORROWED;
}

static gml_status
serve_in_step(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_open_step *open = &planned->open;
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    gml_record_prepare(open->record);
    outcome how = BY_OTHERS;
    gml_status status;
    size_t entry = GML_NO_ENTRY;
    if (open->scope) {
        status = serve_dynamic(planned, size_bytes, stream, &how, out);
    } else {
        entry = meet(planned, bytes, stream);
        status = entry == GML_NO_ENTRY
                     ? climb(planned, size_bytes, stream, &how, out)
                     : serve_foreseen(planned, size_bytes, stream, entry, &how, out);
    }
    open->is_refused = false;
    if (status != GML_OK) {
        remember_refusal(open, bytes, stream, entry);
        return status;
    }
    open->visit_request += open->scope != 0;
    count(&open->report, bytes, open->scope != 0, how);
    if (!open->record->is_cut) {
        size_t index = gml_record_add(open->record, size_bytes, stream, open->phase, open->scope);
        (*out)->note = open->record->number << 32 | index;
    }
    return GML_OK;
}

gml_status
gml_planned_allocate(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    if (planned->open.record) {
        return serve_in_step(planned, size_bytes, stream, out);
    }
    outcome how = BY_OTHERS;
    return ask_for_all(planned, size_bytes, stream, &how, out);
}
