/* Views: placements with a mapping of their own, which outlive the blocks they serve. */
#include "base/rounding.h"
#include "core/mapping.h"
#include "policy/stitch/stitch.h"

#include <stddef.h>

/* How many idle views of one size are tried for a request: a bound on the time. */
enum { MAX_VIEWS_TRIED = 64 };

static gml_placement *
of_size(gml_tree_node *node)
{
    return (gml_placement *)(void *)((char *)node - offsetof(gml_placement, by_size));
}

gml_placement *
gml_view_of_idle(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, idle));
}

/* ---- mapping --------------------------------------------------------------------------------- */

static bool
is_over(const gml_stitch *stitch, uint64_t most_views, uint64_t most_bytes)
{
    return stitch->views > most_views || stitch->view_bytes > most_bytes;
}

/* Forgets idle views that no work can use any more, those idle longest first, until the limits hold
 * or the next one may still be used. */
static gml_status
forget_unused(gml_stitch *stitch, uint64_t most_views, uint64_t most_bytes)
{
    gml_status status = GML_OK;
    while (status == GML_OK && !gml_list_is_empty(&stitch->idle_views) &&
           is_over(stitch, most_views, most_bytes)) {
        gml_placement *oldest = gml_view_of_idle(stitch->idle_views.next);
        if (!gml_view_is_unused(oldest)) {
            break;
        }
        status = gml_view_destroy(stitch, oldest);
    }
    return status;
}

static uint64_t
without(uint64_t bytes, uint64_t part_bytes)
{
    return bytes > part_bytes ? bytes - part_bytes : 0;
}

/* Makes room for one more view of `pond` by forgetting those that were idle longest, an eighth of
 * all at a time so that waiting for their streams is rare. During a capture the limits give way. */
static gml_status
make_room(gml_stitch *stitch, const gml_pond *pond, uint64_t view_bytes)
{
    uint64_t most_bytes = without(stitch->max_view_bytes, view_bytes);
    if (stitch->policy.driver->is_frozen || !is_over(stitch, stitch->max_views - 1, most_bytes)) {
        return GML_OK;
    }
    uint64_t target_views = stitch->max_views - gml_divide_up(stitch->max_views, 8);
    uint64_t target_bytes = without(most_bytes, stitch->max_view_bytes / 8);
    gml_status status = forget_unused(stitch, target_views, target_bytes);
    if (status != GML_OK || gml_list_is_empty(&stitch->idle_views) ||
        !is_over(stitch, stitch->max_views - 1, most_bytes)) {
        return status;
    }
    bool is_done;
    status = gml_stitch_wait(stitch, pond, &is_done);
    return status == GML_OK && is_done ? forget_unused(stitch, target_views, target_bytes) : status;
}

gml_status
gml_view_map(gml_stitch *stitch, gml_placement *placement)
{
    gml_home *home = &stitch->home;
    uint64_t first = placement->runs[0].offset, begin = gml_home_chunk_begin(home, first);
    uint64_t view_bytes = 0;
    gml_status status = GML_OK;
    home->collected_count = 0;
    for (size_t i = 0; i < placement->run_count && status == GML_OK; i++) {
        const gml_run *run = &placement->runs[i];
        uint64_t end = run->offset + run->size_bytes;
        status = gml_home_collect(home, run->offset, run->size_bytes);
        view_bytes += gml_home_boundary(home, end) - gml_home_chunk_begin(home, run->offset);
    }
    if (status == GML_OK) {
        status = make_room(stitch, placement->pond, view_bytes);
    }
    if (status == GML_OK) {
        status = gml_mapping_create(stitch->policy.driver, home->collected, home->collected_count,
                                    GML_ACCESS_RANGE, &placement->view, &placement->mapped_bytes);
    }
    if (placement->view) {
        placement->view_bytes = view_bytes;
        placement->block.address = placement->view + (first - begin);
        placement->by_size.size_bytes = placement->block.block_bytes;
        placement->by_size.address = stitch->next_number++;
        stitch->views++;
        stitch->view_bytes += view_bytes;
    }
    return status;
}

/* Takes the mapping away. A later call goes on where a failed one stopped. */
static gml_status
unmap(gml_stitch *stitch, gml_placement *placement)
{
    gml_status status = gml_mapping_destroy(stitch->policy.driver, placement->view,
                                            placement->view_bytes, &placement->mapped_bytes);
    if (status == GML_OK) {
        stitch->views--;
        stitch->view_bytes -= placement->view_bytes;
        placement->view = 0;
    }
    return status;
}

/* ---- resting and forgetting ------------------------------------------------------------------ */

void
gml_view_rest(gml_stitch *stitch, gml_placement *placement)
{
    placement->state = GML_PLACEMENT_IDLE;
    gml_tree_insert(&stitch->idle, &placement->by_size);
    gml_list_append(&stitch->idle_views, &placement->idle);
}

static void
leave_rest(gml_stitch *stitch, gml_placement *placement)
{
    gml_tree_remove(&stitch->idle, &placement->by_size);
    gml_list_remove(&placement->idle);
}

gml_status
gml_view_destroy(gml_stitch *stitch, gml_placement *placement)
{
    leave_rest(stitch, placement);
    gml_status status = unmap(stitch, placement);
    if (status == GML_OK) {
        gml_placement_release(stitch, placement);
    } else {
        gml_list_append(&stitch->doomed, &placement->idle);
    }
    return status;
}

gml_status
gml_view_destroy_doomed(gml_stitch *stitch)
{
    gml_status first = GML_OK;
    for (gml_link *link = stitch->doomed.next; link != &stitch->doomed;) {
        gml_placement *placement = gml_view_of_idle(link);
        link = link->next;
        gml_status status = unmap(stitch, placement);
        if (status == GML_OK) {
            gml_list_remove(&placement->idle);
            gml_placement_release(stitch, placement);
        } else if (first == GML_OK) {
            first = status;
        }
    }
    return first;
}

void
gml_view_abandon_doomed(gml_stitch *stitch)
{
    while (!gml_list_is_empty(&stitch->doomed)) {
        gml_placement *placement = gml_view_of_idle(stitch->doomed.next);
        gml_list_remove(&placement->idle);
        gml_placement_release(stitch, placement);
    }
}

/* ---- serving again --------------------------------------------------------------------------- */

/* The first extent of the range from `offset` to `end` that another pond holds free, or NULL.
 * pre: all of it is free. */
static const gml_extent *
first_foreign(const gml_stitch *stitch, const gml_pond *pond, uint64_t offset, uint64_t end)
{
    const gml_extent *extent = offset < end ? gml_home_find(&stitch->home, offset) : NULL;
    while (extent && extent->offset < end && extent->set == &pond->set) {
        extent = extent->next;
    }
    return extent && extent->offset < end ? extent : NULL;
}

/* Whether every byte of `run` is free; *is_foreign is set where another pond holds some of it. */
static bool
is_run_free(gml_stitch *stitch, const gml_pond *pond, const gml_run *run, bool *is_foreign)
{
    uint64_t end = run->offset + run->size_bytes;
    for (uint64_t at = run->offset; at < end;) {
        const gml_extent *extent = gml_home_find(&stitch->home, at);
        if (extent->kind == GML_EXTENT_USED) {
            const gml_placement *holder = extent->owner;
            if (holder->state != GML_PLACEMENT_PARKED) {
                return false;
            }
            gml_pond_settle(stitch, holder->pond);
            continue;
        }
        if (extent->kind != GML_EXTENT_FREE) {
            return false;
        }
        *is_foreign |= extent->set != &pond->set;
        at = extent->offset + extent->size_bytes;
    }
    return true;
}

/* Whether all that other ponds hold of the run is in reach. */
static bool
reach_run(gml_stitch *stitch, gml_pond *pond, const gml_run *run, gml_effort effort)
{
    uint64_t end = run->offset + run->size_bytes;
    const gml_extent *extent = first_foreign(stitch, pond, run->offset, end);
    while (extent && gml_share_reach(stitch, pond, extent, effort)) {
        extent = first_foreign(stitch, pond, extent->offset + extent->size_bytes, end);
    }
    return !extent;
}

/* Moves what other ponds hold of the run to `pond`, with what the same extents have of its first
 * and last chunk, so that chunks stay undivided. */
static gml_status
take_run(gml_stitch *stitch, gml_pond *pond, const gml_run *run)
{
    uint64_t run_end = run->offset + run->size_bytes;
    uint64_t from = gml_home_chunk_begin(&stitch->home, run->offset);
    uint64_t to = gml_home_boundary(&stitch->home, run_end);
    gml_status status = GML_OK;
    const gml_extent *extent = first_foreign(stitch, pond, run->offset, run_end);
    while (extent && status == GML_OK) {
        uint64_t end = extent->offset + extent->size_bytes;
        uint64_t begin = extent->offset > from ? extent->offset : from;
        status = gml_share_take(stitch, pond, begin, (end < to ? end : to) - begin);
        extent = first_foreign(stitch, pond, run->offset, run_end);
    }
    return status;
}

/* Whether all bytes of the view are free in `pond`, some of them perhaps only now. */
static bool
gather(gml_stitch *stitch, gml_pond *pond, const gml_placement *placement, gml_effort effort,
       gml_status *status)
{
    bool is_free = true, is_foreign = false;
    for (size_t i = 0; i < placement->run_count && is_free; i++) {
        is_free = is_run_free(stitch, pond, &placement->runs[i], &is_foreign);
    }
    if (!is_free || !is_foreign) {
        return is_free;
    }
    /* Before a wait is paid for, all of it shall be worth it: reach_run() keeps what it reaches. */
    for (size_t i = 0; i < placement->run_count && is_free; i++) {
        is_free = gml_share_is_open(stitch) && reach_run(stitch, pond, &placement->runs[i], effort);
    }
    for (size_t i = 0; i < placement->run_count && is_free && *status == GML_OK; i++) {
        *status = take_run(stitch, pond, &placement->runs[i]);
    }
    return is_free && *status == GML_OK;
}

static void
revive(gml_stitch *stitch, gml_pond *pond, gml_placement *placement)
{
    leave_rest(stitch, placement);
    placement->pond->user_count--;
    placement->pond = pond;
    pond->user_count++;
    placement->block = (gml_block){
        .address = placement->block.address,
        .block_bytes = placement->block.block_bytes,
        .state = GML_STATE_EXACT,
    };
    gml_placement_claim(stitch, placement);
    gml_economy_note_served(&stitch->economy);
}

gml_status
gml_view_take(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_effort effort,
              gml_placement **out)
{
    gml_status status = GML_OK;
    gml_tree_node *node = gml_tree_at_least(&stitch->idle, size_bytes, 0);
    for (int tried = 0; node && node->size_bytes == size_bytes && tried < MAX_VIEWS_TRIED &&
                        status == GML_OK && !*out;
         tried++) {
        gml_placement *placement = of_size(node);
        node = gml_tree_next(node);
        if (gather(stitch, pond, placement, effort, &status)) {
            status = gml_home_prepare(&stitch->home, 2 * placement->run_count);
            if (status == GML_OK) {
                revive(stitch, pond, placement);
                *out = placement;
            }
        }
    }
    return status;
}
