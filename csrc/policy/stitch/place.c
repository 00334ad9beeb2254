/* Serving a size in a placement: an old one, else a new one, with the ladder behind it. */
#include "policy/stitch/stitch.h"

/* Moves what every other stream holds free to `pond`, once all work is done. *moved tells whether
 * there was anything. */
static gml_status
take_over(gml_stitch *stitch, gml_pond *pond, bool *moved)
{
    gml_driver *driver = stitch->policy.driver;
    bool is_capturing = false;
    *moved = false;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *other = gml_pond_of_link(link);
        gml_pond_unpark(stitch, other);
        *moved |= other != pond && other->set.free_bytes != 0;
    }
    if (!*moved) {
        return GML_OK;
    }
    gml_status status = gml_driver_stream_capturing(driver, pond->stream, &is_capturing);
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_device_synchronize(driver);
    }
    if (status != GML_OK || is_capturing) {
        *moved = false;
        return status;
    }
    gml_extent *extent = gml_home_find(&stitch->home, 0);
    for (; extent; extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set != &pond->set) {
            extent = gml_home_transfer(&stitch->home, extent, &pond->set);
        }
    }
    gml_placement_retry_stranded(stitch);
    return GML_OK;
}

/* A new placement: chosen, with the ladder behind it, and mapped. */
static gml_status
place_new(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    gml_pond *pond = class->pond;
    gml_choice choice = {0};
    gml_pond_unpark(stitch, pond);
    bool may_stitch = class->size_bytes >= stitch->frag_limit;
    gml_status status = gml_choose(stitch, class, may_stitch, &choice);
    if (status == GML_OUT_OF_MEMORY) {
        bool moved;
        gml_status taken = take_over(stitch, pond, &moved);
        if (taken != GML_OK) {
            return taken;
        }
        if (moved || !may_stitch) {
            status = gml_choose(stitch, class, true, &choice);
        }
    }
    if (status == GML_OK) {
        status = gml_placement_create(stitch, class, choice.runs, choice.run_count, out);
    }
    if (status == GML_OK) {
        (*out)->block.state = choice.state;
        stitch->view_credit -= choice.state == GML_STATE_STITCH && stitch->view_credit;
    }
    return status;
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
    gml_status status = gml_placement_take(stitch, class, &placement);
    if (status != GML_OK) {
        return status;
    }
    if (placement) {
        placement->block.state = GML_STATE_EXACT;
        stitch->view_credit += placement->view && stitch->view_credit < GML_VIEW_CREDIT_MOST;
    } else {
        status = place_new(stitch, class, &placement);
    }
    if (status == GML_OK) {
        placement->block.address = placement->address;
        placement->block.block_bytes = size_bytes;
        placement->block.stream = pond->stream;
        note_placed(stitch, placement);
        *out = placement;
    }
    return status;
}
