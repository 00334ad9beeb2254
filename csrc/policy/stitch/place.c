/* Serving a size in a placement: an old one, else a new one, with the ladder behind it. */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

/* Sizes of coarse placements: from COARSE_FROM_BYTES on a multiple of 2 MiB, which is how PyTorch
 * sizes its segments; below, of 256 KiB. */
#define COARSE_FROM_BYTES (UINT64_C(10) << 20)

/* Moves what every other stream holds free to `pond`, once all work is done. *moved tells whether
 * there was anything. */
static gml_status
take_over(gml_stitch *stitch, gml_pond *pond, bool *moved)
{
    *moved = false;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *other = gml_pond_of_link(link);
        gml_pond_unpark(stitch, other);
        *moved |= other != pond && other->set.free_bytes != 0;
    }
    gml_status status = *moved ? gml_stitch_synchronize(stitch, pond, moved) : GML_OK;
    if (!*moved) {
        return status;
    }
    gml_extent *extent = gml_home_find(&stitch->home, 0);
    for (; extent; extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set != &pond->set) {
            extent = gml_home_transfer(&stitch->home, extent, &pond->set);
        }
    }
    gml_watch_retry_stranded(stitch);
    return GML_OK;
}

static void
earn_credit(gml_stitch *stitch)
{
    stitch->view_credit += stitch->view_credit < GML_VIEW_CREDIT_MOST;
    if (stitch->mode != GML_MODE_FINE && stitch->view_credit == GML_VIEW_CREDIT_MOST) {
        stitch->mode = GML_MODE_FINE;
        stitch->view_credit = GML_VIEW_CREDIT_FIRST;
    }
}

static void
spend_credit(gml_stitch *stitch)
{
    stitch->view_credit -= stitch->view_credit != 0;
    if (stitch->view_credit == 0 && stitch->mode == GML_MODE_FINE) {
        stitch->mode = GML_MODE_COARSE;
        stitch->view_credit = GML_VIEW_CREDIT_FIRST;
    } else if (stitch->view_credit == 0) {
        stitch->mode = GML_MODE_RESTLESS;
    }
}

static uint64_t
coarse_size(uint64_t size_bytes)
{
    uint64_t step = size_bytes < COARSE_FROM_BYTES ? UINT64_C(256) << 10 : UINT64_C(2) << 20;
    return gml_round_up(size_bytes, step);
}

/* A placement of that class from before, or NULL. */
static gml_status
take_old(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    gml_status status = class ? gml_placement_take(stitch, class, out) : GML_OK;
    if (*out) {
        (*out)->block.state = GML_STATE_EXACT;
        if ((*out)->view) {
            earn_credit(stitch);
        }
    }
    return status;
}

/* A placement from before, of just that size or, once there are such, coarse; or NULL. */
static gml_status
take_any(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_status status = take_old(stitch, gml_map_find(&pond->classes, size_bytes), out);
    uint64_t coarse_bytes = stitch->mode == GML_MODE_FINE ? size_bytes : coarse_size(size_bytes);
    if (status == GML_OK && !*out && coarse_bytes != size_bytes) {
        status = take_old(stitch, gml_map_find(&pond->classes, coarse_bytes), out);
    }
    return status;
}

/* A new placement over bytes chosen now. */
static gml_status
make_new(gml_stitch *stitch, gml_class *class, bool may_stitch, gml_placement **out)
{
    gml_choice choice = {0};
    gml_pond_unpark(stitch, class->pond);
    gml_status status = gml_choose(stitch, class, may_stitch, &choice);
    if (status == GML_OK) {
        status = gml_placement_create(stitch, class, choice.runs, choice.run_count, out);
    }
    if (status == GML_OK) {
        (*out)->block.state = choice.state;
        if (choice.state == GML_STATE_STITCH) {
            spend_credit(stitch);
        }
    }
    return status;
}

/* A new placement of that size, in a class that is made if need be. */
static gml_status
make_sized(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, bool may_stitch,
           gml_placement **out)
{
    gml_class *class = gml_class_find(stitch, pond, size_bytes);
    if (!class) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = make_new(stitch, class, may_stitch, out);
    if (status != GML_OK) {
        gml_class_drop_if_empty(stitch, class);
    }
    return status;
}

/* The ladder: an old placement, a new one; then the same, of just the size asked for, with what
 * other streams held free. */
static gml_status
serve(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    bool may_stitch = size_bytes >= stitch->frag_limit;
    gml_status status = take_any(stitch, pond, size_bytes, out);
    if (status != GML_OK || *out) {
        return status;
    }
    uint64_t new_bytes = stitch->mode == GML_MODE_COARSE ? coarse_size(size_bytes) : size_bytes;
    status = make_sized(stitch, pond, new_bytes, may_stitch, out);
    if (status != GML_OUT_OF_MEMORY || stitch->is_bounded) {
        return status;
    }
    bool moved;
    gml_status taken = take_over(stitch, pond, &moved);
    if (taken == GML_OK && moved) {
        taken = take_any(stitch, pond, size_bytes, out);
    }
    if (taken != GML_OK || *out) {
        return taken;
    }
    bool is_worth_it = moved || !may_stitch || new_bytes != size_bytes;
    return is_worth_it ? make_sized(stitch, pond, size_bytes, true, out) : status;
}

/* Counts a placement that begins to live. */
static void
note_placed(gml_stitch *stitch, const gml_placement *placement)
{
    stitch->held_bytes += placement->block.block_bytes;
    if (stitch->peak_held_bytes < stitch->held_bytes) {
        stitch->peak_held_bytes = stitch->held_bytes;
    }
}

gml_status
gml_stitch_place(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_placement *placement = NULL;
    gml_status status = serve(stitch, pond, size_bytes, &placement);
    if (placement) {
        placement->block.address = placement->address;
        placement->block.block_bytes = placement->class->size_bytes;
        placement->block.stream = pond->stream;
        note_placed(stitch, placement);
        *out = placement;
    }
    return status;
}
