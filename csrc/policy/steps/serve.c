/* Serving a request: where its plan wants it, else by the inner policy. */
#include "base/rounding.h"
#include "policy/steps/planned.h"

static gml_status ask_inner(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                            gml_block **out) {
    gml_policy *inner = planned->inner;
    planned->stitch->missing_bytes = 0;
    gml_status status = inner->ops->allocate(inner, size_bytes, stream, out);
    if (status == GML_OK) {
        (*out)->note = 0;
    }
    return status;
}

/* Asks the inner policy after yielding, as if nothing had ever been reserved. */
static gml_status ask_after_yield(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                                  gml_block **out) {
    gml_status status = gml_planned_yield(planned);
    return status == GML_OK ? ask_inner(planned, size_bytes, stream, out) : status;
}

/* In a plan of a file it is also what lasts; that must not lie in the pool. */
static gml_status serve_left(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                             gml_block **out) {
    gml_status status = ask_inner(planned, size_bytes, stream, out);
    return status == GML_OUT_OF_MEMORY ? ask_after_yield(planned, size_bytes, stream, out) : status;
}

/* Whether a slab has room for a small request just where the plan opens none. */
static bool is_slab_as_planned(gml_planned *planned, const gml_entry *entry) {
    gml_stream_cache *cache;
    return gml_stream_cache_find(planned->stitch, entry->stream, &cache) == GML_OK &&
           !gml_tree_at_least(&cache->small_free, entry->size_bytes, 0) ==
               (entry->reservation != NULL);
}

/* Takes the place of a request, or of its new slab. NULL: the place is not available. */
static gml_placement *take_place(gml_planned *planned, const gml_entry *entry, bool is_small) {
    uint64_t size_bytes = is_small ? GML_SLAB_BYTES : entry->size_bytes;
    gml_placement *placement = gml_reservation_take(entry->reservation, &entry->place, size_bytes);
    if (placement && is_small && gml_slab_open(planned->stitch, placement) != GML_OK) {
        gml_reservation_give(entry->reservation, placement);
        placement = NULL;
    }
    return placement;
}

/* By the plan. NULL, and *status GML_OK: no plan serves it any more. */
static gml_block *serve_planned(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                                gml_status *status) {
    gml_open_step *open = &planned->open;
    uint64_t bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    const gml_entry *entry = gml_step_meet(open, bytes, stream);
    bool is_small = bytes <= GML_SMALL_LIMIT && !open->layout->is_loaded; /* to the inner policy */
    gml_placement *placement = NULL;
    gml_block *block = NULL;
    *status = GML_OK;
    if (!entry && !open->position) { /* a step of another sort than was expected */
        open->layout = NULL;
        gml_planned_watch(planned);
    } else if (!entry || (is_small && !is_slab_as_planned(planned, entry))) {
        gml_planned_leave(planned, "left: a request came, or a block ended, that the plan has not");
    } else {
        placement = entry->reservation ? take_place(planned, entry, is_small) : NULL;
        if (entry->reservation && !placement) {
            gml_planned_leave(planned, "left: a place of its plan was in use, or another stream's");
        } else if (!placement || is_small) {
            *status = serve_left(planned, size_bytes, stream, &block);
        } else {
            entry->reservation->cache->seeker.requests++;
            block = &placement->block;
            block->requested_bytes = size_bytes;
        }
    }
    open->position += block != NULL;
    open->report.served += block && placement;
    open->report.left += block && !placement;
    return block;
}

gml_status gml_planned_allocate(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                                gml_block **out) {
    gml_open_step *open = &planned->open;
    gml_status status = GML_OK;
    gml_block *block = open->layout ? serve_planned(planned, size_bytes, stream, &status) : NULL;
    bool is_watched = !block;
    uint64_t small_bytes = planned->inner->small_bytes;
    if (!block && status == GML_OK) {
        status = ask_after_yield(planned, size_bytes, stream, &block);
    }
    if (status != GML_OK) {
        return status;
    }
    open->report.requests++;
    *out = block;
    bool opens_slab = planned->inner->small_bytes > small_bytes;
    if (is_watched && open->seen &&
        !gml_layout_add(open->seen, planned->stitch, block, opens_slab, open->ended)) {
        gml_layout_cut(planned, open->seen);
    } else if (is_watched && open->seen && open->seen->number) {
        block->note = open->seen->number << 32 | (open->seen->entry_count - 1);
    }
    return GML_OK;
}
