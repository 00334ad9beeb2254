/* Views: placements with a mapping of their own, which outlive the blocks they serve. */
#include "base/mix.h"
#include "base/rounding.h"
#include "core/mapping.h"
#include "policy/stitch/stitch.h"

#include <stddef.h>

static gml_placement *
of_node(gml_tree_node *node)
{
    return (gml_placement *)(void *)((char *)node - offsetof(gml_placement, by_runs));
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

static void
leave_rest(gml_stitch *stitch, gml_placement *placement)
{
    gml_tree_remove(&stitch->idle, &placement->by_runs);
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

/* Where views of a size with these runs are looked for. */
static uint64_t
mark_of(const gml_run *runs, size_t run_count)
{
    uint64_t mark = run_count;
    for (size_t i = 0; i < run_count; i++) {
        mark = gml_mix(mark ^ runs[i].offset) + gml_mix(runs[i].size_bytes);
    }
    return mark;
}

static bool
is_over_runs(const gml_placement *placement, const gml_choice *choice)
{
    bool is_same = placement->run_count == choice->run_count;
    for (size_t i = 0; i < choice->run_count && is_same; i++) {
        is_same = placement->runs[i].offset == choice->runs[i].offset &&
                  placement->runs[i].size_bytes == choice->runs[i].size_bytes;
    }
    return is_same;
}

/* The node with that mark, or NULL. */
static gml_tree_node *
at_mark(const gml_stitch *stitch, uint64_t size_bytes, uint64_t mark)
{
    gml_tree_node *node = gml_tree_at_least(&stitch->idle, size_bytes, mark);
    return node && node->size_bytes == size_bytes && node->address == mark ? node : NULL;
}

void
gml_view_rest(gml_stitch *stitch, gml_placement *placement)
{
    uint64_t mark = mark_of(placement->runs, placement->run_count);
    while (at_mark(stitch, placement->block.block_bytes, mark)) {
        mark++; /* of other runs, by chance */
    }
    placement->by_runs.size_bytes = placement->block.block_bytes;
    placement->by_runs.address = mark;
    placement->state = GML_PLACEMENT_IDLE;
    gml_tree_insert(&stitch->idle, &placement->by_runs);
    gml_list_append(&stitch->idle_views, &placement->idle);
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
    };
    gml_placement_claim(stitch, placement);
    gml_economy_note_served(&stitch->economy);
}

gml_placement *
gml_view_again(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, const gml_choice *choice)
{
    uint64_t mark = mark_of(choice->runs, choice->run_count);
    gml_tree_node *node = at_mark(stitch, size_bytes, mark);
    while (node && !is_over_runs(of_node(node), choice)) {
        node = at_mark(stitch, size_bytes, ++mark);
    }
    if (!node) {
        return NULL;
    }
    revive(stitch, pond, of_node(node));
    return of_node(node);
}
