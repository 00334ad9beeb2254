/* Serving a size in a placement: an old one, else a new one, with the ladder behind it. */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

/* Sizes of coarse placements: from COARSE_FROM_BYTES on a multiple of 2 MiB, which is how PyTorch
 * sizes its segments; below, of 256 KiB. */
#define COARSE_FROM_BYTES (UINT64_C(10) << 20)

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

/* A placement from before serves again. */
static void
note_old(gml_stitch *stitch, gml_placement *placement)
{
    placement->block.state = GML_STATE_EXACT;
    if (placement->view) {
        earn_credit(stitch);
        gml_share_note_served(stitch);
    }
}

/* A placement of that class from before, or NULL. */
static gml_status
take_old(gml_stitch *stitch, gml_class *class, gml_effort effort, gml_placement **out)
{
    gml_status status = class ? gml_placement_take(stitch, class, effort, out) : GML_OK;
    if (*out) {
        note_old(stitch, *out);
    }
    return status;
}

/* A placement of that size from before, of any stream, or NULL. */
static gml_status
take_oldest(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_status status = gml_share_oldest(stitch, pond, size_bytes, GML_WAIT, out);
    if (*out) {
        note_old(stitch, *out);
    }
    return status;
}

/* A placement from before, of just that size or, once there are such, coarse; or NULL. */
static gml_status
take_any(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_effort effort,
         gml_placement **out)
{
    gml_status status = take_old(stitch, gml_map_find(&pond->classes, size_bytes), effort, out);
    uint64_t coarse_bytes = stitch->mode == GML_MODE_FINE ? size_bytes : coarse_size(size_bytes);
    if (status == GML_OK && !*out && coarse_bytes != size_bytes) {
        status = take_old(stitch, gml_map_find(&pond->classes, coarse_bytes), effort, out);
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
            gml_share_note_made(stitch);
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

/* What other streams can do for a size that the pond has no room for, with one effort: a placement
 * from before whose bytes they hold, one of theirs, or chunks for a new one. *missing: the chunks
 * still to be had. */
static gml_status
ask_others(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_effort effort,
           uint64_t *missing, gml_placement **out)
{
    bool may_stitch = size_bytes >= stitch->frag_limit;
    gml_status status = take_any(stitch, pond, size_bytes, effort, out);
    if (status == GML_OK && !*out) {
        status = gml_share_adopt(stitch, pond, size_bytes, effort, out);
        if (*out) {
            note_old(stitch, *out);
        }
    }
    if (status == GML_OK && !*out) {
        status = gml_share_borrow(stitch, pond, *missing, !may_stitch, effort);
        *missing = gml_choose_missing(stitch, pond, size_bytes, may_stitch);
    }
    return status;
}

/* Lets other streams help before the driver is asked for more. */
static gml_status
share(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_pond_unpark(stitch, pond);
    bool may_stitch = size_bytes >= stitch->frag_limit;
    uint64_t missing = gml_choose_missing(stitch, pond, size_bytes, may_stitch);
    gml_status status = GML_OK;
    if (missing) {
        gml_share_look(stitch, pond);
    }
    for (gml_effort effort = GML_KNOWN; effort <= GML_WAIT && missing && !*out && status == GML_OK;
         effort++) {
        status = ask_others(stitch, pond, size_bytes, effort, &missing, out);
    }
    return status;
}

/* The ladder: an old placement, a new one; then the same, of just the size asked for, with all that
 * other streams hold free. */
static gml_status
serve(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    bool may_stitch = size_bytes >= stitch->frag_limit;
    bool is_open = gml_share_is_open(stitch);
    bool is_oldest_first = is_open && stitch->share_turn == GML_TURN_OLDEST_FIRST;
    gml_status status = is_oldest_first ? take_oldest(stitch, pond, size_bytes, out)
                                        : take_any(stitch, pond, size_bytes, GML_KNOWN, out);
    uint64_t new_bytes = stitch->mode == GML_MODE_COARSE ? coarse_size(size_bytes) : size_bytes;
    if (status == GML_OK && !*out && is_open) {
        status = share(stitch, pond, new_bytes, out);
    }
    if (status != GML_OK || *out) {
        return status;
    }
    status = make_sized(stitch, pond, new_bytes, may_stitch, out);
    if (status != GML_OUT_OF_MEMORY || stitch->is_bounded) {
        return status;
    }
    bool moved;
    gml_status taken = gml_share_take_all(stitch, pond, &moved);
    if (taken == GML_OK && moved) {
        taken = take_any(stitch, pond, size_bytes, GML_KNOWN, out);
    }
    if (taken != GML_OK || *out) {
        return taken;
    }
    bool is_worth_it = moved || !may_stitch || new_bytes != size_bytes;
    return is_worth_it ? make_sized(stitch, pond, size_bytes, true, out) : status;
}

gml_status
gml_stitch_place(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_placement *placement = NULL;
    gml_pond_ask(pond, size_bytes);
    gml_status status = serve(stitch, pond, size_bytes, &placement);
    if (placement) {
        placement->block.address = placement->address;
        placement->block.block_bytes = placement->class->size_bytes;
        placement->block.stream = pond->stream;
        gml_pond_hold(stitch, pond, placement->block.block_bytes);
        *out = placement;
    }
    return status;
}
