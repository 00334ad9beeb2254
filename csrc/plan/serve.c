/* Serving a request: where its plan wants it, else by the inner policy. */
#include "base/rounding.h"
#include "plan/planned.h"

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

/* As if nothing had ever been held. */
static gml_status
ask_after_yield(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_status status = gml_planned_yield(planned);
    return status == GML_OK ? ask_inner(planned, size_bytes, stream, out) : status;
}

/* What is left to the inner policy is small, and fits between what lasts: the hold may stay. In a
 * plan of a file it is also what lasts; that must not lie in the pool. */
static gml_status
serve_left(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_pond *pond;
    gml_status status = gml_pond_find(planned->stitch, stream, &pond);
    if (status != GML_OK) {
        return status;
    }
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    bool fits = bytes <= GML_SMALL_LIMIT && gml_tree_at_least(&pond->small_free, bytes, 0);
    if (!fits && !planned->open.layout->is_loaded) {
        return ask_after_yield(planned, size_bytes, stream, out);
    }
    status = ask_inner(planned, size_bytes, stream, out);
    return status == GML_OUT_OF_MEMORY ? ask_after_yield(planned, size_bytes, stream, out) : status;
}

/* The entry that the request is, by the plan that serves or another that began like it. NULL: there
 * is none. */
static const gml_entry *
meet(gml_open_step *open, uint64_t bytes, gml_stream stream)
{
    const gml_layout *layout = open->layout;
    const gml_entry *entry =
        open->position < layout->entry_count ? &layout->entries[open->position] : NULL;
    if (entry && entry->size_bytes == bytes && entry->stream == stream) {
        return entry;
    }
    gml_layout *other = gml_kind_find_other(open, bytes, stream);
    open->layout = other ? other : open->layout;
    return other ? &other->entries[open->position] : NULL;
}

/* By the plan. NULL, and *status GML_OK: no plan serves it any more. */
static gml_block *
serve_planned(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_status *status)
{
    gml_open_step *open = &planned->open;
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    const gml_entry *entry = meet(open, bytes, stream);
    gml_block *block = NULL;
    *status = GML_OK;
    if (!entry && !open->position) { /* a step of another sort than was expected */
        open->layout = NULL;
        gml_planned_watch(planned);
    } else if (!entry) {
        gml_planned_depart(planned, "left: a request came that the plan has not");
    } else if (!entry->hold) {
        *status = serve_left(planned, size_bytes, stream, &block);
        open->position += block != NULL;
        open->report.left += block != NULL;
    } else {
        gml_placement *placement = gml_hold_take(entry->hold, &entry->place, bytes);
        if (placement) {
            block = &placement->block;
            block->requested_bytes = size_bytes;
            open->position++;
            open->report.served++;
        } else {
            gml_planned_depart(planned,
                               "left: a place of its plan was in use, or another stream's");
        }
    }
    return block;
}

gml_status
gml_planned_allocate(gml_planned *planned, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_open_step *open = &planned->open;
    gml_status status = GML_OK;
    gml_block *block = open->layout ? serve_planned(planned, size_bytes, stream, &status) : NULL;
    bool is_watched = !block;
    if (!block && status == GML_OK) {
        status = ask_after_yield(planned, size_bytes, stream, &block);
    }
    if (status != GML_OK) {
        return status;
    }
    open->report.requests++;
    *out = block;
    if (is_watched && open->seen && !gml_layout_add(open->seen, planned->stitch, block)) {
        gml_layout_free(planned, open->seen);
        open->seen = NULL;
    }
    size_t index =
        is_watched && open->record ? gml_record_add(open->record, size_bytes, stream) : SIZE_MAX;
    if (index != SIZE_MAX) {
        block->note = open->record->number << 32 | index;
    }
    return GML_OK;
}
