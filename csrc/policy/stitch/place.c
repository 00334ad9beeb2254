/* Serving a size in a placement: an old one, else a new one, with the ladder behind it. */
#include "policy/stitch/stitch.h"

gml_status
gml_stitch_synchronize(gml_stitch *stitch, bool *is_done)
{
    gml_driver *driver = stitch->policy.driver;
    gml_status status = GML_OK;
    bool is_capturing = false;
    gml_link *link = stitch->ponds.next;
    for (; link != &stitch->ponds && status == GML_OK && !is_capturing; link = link->next) {
        status = gml_driver_stream_capturing(driver, gml_pond_of_link(link)->stream, &is_capturing);
    }
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_device_synchronize(driver);
    }
    *is_done = status == GML_OK && !is_capturing;
    return status;
}

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
    gml_status status = *moved ? gml_stitch_synchronize(stitch, moved) : GML_OK;
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

/* A placement from before, or NULL. */
static gml_status
take_old(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    gml_status status = gml_placement_take(stitch, class, out);
    if (*out) {
        (*out)->block.state = GML_STATE_EXACT;
        stitch->view_credit += (*out)->view && stitch->view_credit < GML_VIEW_CREDIT_MOST;
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
        stitch->view_credit -= choice.state == GML_STATE_STITCH && stitch->view_credit;
    }
    return status;
}

/* The ladder: an old placement, a new one; then the same with what other streams held free. */
static gml_status
serve(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    bool may_stitch = class->size_bytes >= stitch->frag_limit;
    gml_status status = take_old(stitch, class, out);
    if (status != GML_OK || *out) {
        return status;
    }
    status = make_new(stitch, class, may_stitch, out);
    if (status != GML_OUT_OF_MEMORY) {
        return status;
    }
    bool moved;
    gml_status taken = take_over(stitch, class->pond, &moved);
    if (taken == GML_OK && moved) {
        taken = take_old(stitch, class, out);
    }
    if (taken != GML_OK || *out) {
        return taken;
    }
    return moved || !may_stitch ? make_new(stitch, class, true, out) : status;
}

/* Counts a placement that begins to live. */
static void
note_placed(gml_stitch *stitch, const gml_placement *placement)
{
    stitch->held_bytes += placement->class->size_bytes;
    if (stitch->peak_held_bytes < stitch->held_bytes) {
        stitch->peak_held_bytes = stitch->held_bytes;
    }
}

gml_status
gml_stitch_place(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_class *class = gml_class_find(stitch, pond, size_bytes);
    if (!class) {
        return GML_NO_HOST_MEMORY;
    }
    gml_placement *placement = NULL;
    gml_status status = serve(stitch, class, &placement);
    if (!placement) {
        gml_class_drop_if_empty(stitch, class);
        return status;
    }
    placement->block.address = placement->address;
    placement->block.block_bytes = size_bytes;
    placement->block.stream = pond->stream;
    note_placed(stitch, placement);
    *out = placement;
    return GML_OK;
}
