/* The life of a placement: made, taken, parked, scattered, forgotten. */
#include "core/mapping.h"
#include "policy/stitch/stitch.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Idle placements in the home space hold no driver resource, only some 400 bytes of the host each.
 */
enum { MAX_IDLE_HOMES = 16384 };

static gml_placement *
of_ready(gml_tree_node *node)
{
    return (gml_placement *)(void *)((char *)node - offsetof(gml_placement, ready));
}

static gml_placement *
of_waiting(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, waiting));
}

static gml_placement *
of_parked(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, parked));
}

gml_placement *
gml_placement_of_idle(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, idle));
}

static void
set_ready(gml_placement *placement)
{
    placement->ready.size_bytes = placement->number;
    placement->ready.address = 0;
    gml_tree_insert(&placement->class->ready, &placement->ready);
    placement->is_ready = true;
}

static void
unset_ready(gml_placement *placement)
{
    gml_tree_remove(&placement->class->ready, &placement->ready);
    placement->is_ready = false;
}

static void
wait_in(gml_placement *placement, gml_link *list)
{
    gml_list_append(list, &placement->waiting);
    placement->is_waiting = true;
}

/* Lets every placement that waits in `list` be tried again. */
static void
wake(gml_link *list)
{
    while (!gml_list_is_empty(list)) {
        gml_placement *placement = of_waiting(list->next);
        gml_list_remove(&placement->waiting);
        placement->is_waiting = false;
        set_ready(placement);
    }
}

void
gml_placement_retry_stranded(gml_stitch *stitch)
{
    wake(&stitch->stranded);
}

static void
scatter(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_home_unclaim(&stitch->home, placement->runs[i].extent, &placement->class->pond->set);
        placement->runs[i].extent = NULL;
    }
    gml_list_remove(&placement->parked);
    placement->state = GML_PLACEMENT_SCATTERED;
}

void
gml_pond_unpark(gml_stitch *stitch, gml_pond *pond)
{
    while (!gml_list_is_empty(&pond->parked)) {
        scatter(stitch, of_parked(pond->parked.next));
    }
}

/* Whether every byte of `run` is free in the pond of `placement`. If not, the placement now waits
 * for what stands in the way. */
static bool
is_run_free(gml_stitch *stitch, gml_placement *placement, const gml_run *run)
{
    uint64_t end = run->offset + run->size_bytes;
    const gml_extent *extent = gml_home_find(&stitch->home, run->offset);
    for (;;) {
        if (extent->kind == GML_EXTENT_USED) {
            gml_placement *holder = extent->owner;
            if (holder->state == GML_PLACEMENT_LIVE) {
                wait_in(placement, &holder->watchers);
                return false;
            }
            scatter(stitch, holder);
            extent = gml_home_find(&stitch->home, run->offset);
        } else if (extent->kind == GML_EXTENT_ABSENT ||
                   extent->set != &placement->class->pond->set) {
            wait_in(placement, &stitch->stranded);
            return false;
        } else if (extent->offset + extent->size_bytes >= end) {
            return true;
        } else {
            extent = extent->next;
        }
    }
}

static void
claim(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_run *run = &placement->runs[i];
        run->extent = gml_home_claim(&stitch->home, run->offset, run->size_bytes, placement);
    }
}

/* Whether a scattered placement could be had; it then holds its extents. */
static bool
try_claim(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        if (!is_run_free(stitch, placement, &placement->runs[i])) {
            return false;
        }
    }
    claim(stitch, placement);
    return true;
}

static void
leave_idle(gml_stitch *stitch, gml_placement *placement)
{
    gml_list_remove(&placement->idle);
    stitch->idle_home_count -= placement->view == 0;
}

gml_status
gml_placement_take(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    *out = NULL;
    for (gml_tree_node *node = gml_tree_first(&class->ready); node;
         node = gml_tree_first(&class->ready)) {
        gml_placement *placement = of_ready(node);
        if (placement->state == GML_PLACEMENT_PARKED) {
            gml_list_remove(&placement->parked);
        } else {
            gml_status status = gml_home_prepare(&stitch->home, 2 * placement->run_count);
            if (status != GML_OK) {
                return status;
            }
            unset_ready(placement);
            if (!try_claim(stitch, placement)) {
                continue;
            }
        }
        if (placement->is_ready) {
            unset_ready(placement);
        }
        leave_idle(stitch, placement);
        placement->state = GML_PLACEMENT_LIVE;
        *out = placement;
        return GML_OK;
    }
    return GML_OK;
}

/* Takes an idle placement out of every list and gives its host memory back. */
static void
forget(gml_stitch *stitch, gml_placement *placement)
{
    if (placement->is_ready) {
        unset_ready(placement);
    }
    if (placement->is_waiting) {
        gml_list_remove(&placement->waiting);
        placement->is_waiting = false;
    }
    if (placement->state == GML_PLACEMENT_PARKED) {
        scatter(stitch, placement);
    }
    leave_idle(stitch, placement);
}

/* Gives back the host memory of a placement, and of its class if that was the last. */
static void
release_host(gml_stitch *stitch, gml_placement *placement)
{
    gml_class *class = placement->class;
    if (--class->placement_count == 0) {
        (void)gml_map_take(&class->pond->classes, class->size_bytes);
        gml_pool_give(&stitch->classes, class);
    }
    if (placement->runs != &placement->only_run) {
        free(placement->runs);
    }
    gml_pool_give(&stitch->placements, placement);
}

gml_status
gml_placement_destroy(gml_stitch *stitch, gml_placement *placement)
{
    gml_status status = GML_OK;
    forget(stitch, placement);
    if (placement->view) {
        status = gml_mapping_destroy(stitch->policy.driver, placement->view, placement->view_bytes,
                                     &placement->is_view_mapped);
    }
    if (status != GML_OK) {
        gml_list_append(&stitch->doomed, &placement->idle);
        return status;
    }
    if (placement->view) {
        stitch->views--;
        stitch->view_bytes -= placement->view_bytes;
    }
    release_host(stitch, placement);
    return GML_OK;
}

gml_status
gml_placement_destroy_doomed(gml_stitch *stitch)
{
    while (!gml_list_is_empty(&stitch->doomed)) {
        gml_placement *placement = gml_placement_of_idle(stitch->doomed.next);
        gml_status status = gml_mapping_destroy(stitch->policy.driver, placement->view,
                                                placement->view_bytes, &placement->is_view_mapped);
        if (status != GML_OK) {
            return status;
        }
        gml_list_remove(&placement->idle);
        stitch->views--;
        stitch->view_bytes -= placement->view_bytes;
        release_host(stitch, placement);
    }
    return GML_OK;
}

void
gml_placement_park(gml_stitch *stitch, gml_placement *placement)
{
    placement->state = GML_PLACEMENT_PARKED;
    stitch->held_bytes -= placement->block.block_bytes;
    gml_list_append(&placement->class->pond->parked, &placement->parked);
    set_ready(placement);
    wake(&placement->watchers);
    if (placement->view) {
        gml_list_append(&stitch->idle_views, &placement->idle);
        return;
    }
    gml_list_append(&stitch->idle_homes, &placement->idle);
    if (++stitch->idle_home_count > MAX_IDLE_HOMES) {
        (void)gml_placement_destroy(stitch, gml_placement_of_idle(stitch->idle_homes.next));
    }
}

/* Makes room for one more view by forgetting those that were idle longest, an eighth of all at a
 * time so that the wait for the device is rare. During a capture the limits give way. */
static gml_status
make_room(gml_stitch *stitch, gml_stream stream, uint64_t view_bytes)
{
    gml_driver *driver = stitch->policy.driver;
    bool is_full = stitch->views >= stitch->max_views ||
                   stitch->view_bytes + view_bytes > stitch->max_view_bytes;
    if (!is_full || gml_list_is_empty(&stitch->idle_views)) {
        return GML_OK;
    }
    bool is_capturing = false;
    gml_status status = gml_driver_stream_capturing(driver, stream, &is_capturing);
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_device_synchronize(driver);
    }
    if (status != GML_OK || is_capturing) {
        return status;
    }
    uint64_t target_views = stitch->max_views - (stitch->max_views + 7) / 8;
    uint64_t target_bytes = stitch->max_view_bytes - stitch->max_view_bytes / 8;
    target_bytes = target_bytes > view_bytes ? target_bytes - view_bytes : 0;
    while (status == GML_OK && !gml_list_is_empty(&stitch->idle_views) &&
           (stitch->views > target_views || stitch->view_bytes > target_bytes)) {
        status = gml_placement_destroy(stitch, gml_placement_of_idle(stitch->idle_views.next));
    }
    return status;
}

/* The chunk handles under `runs`, in view order, into scratch_handles. */
static gml_status
collect_handles(gml_stitch *stitch, const gml_run *runs, size_t run_count, size_t *count)
{
    const gml_home *home = &stitch->home;
    size_t needed = 0;
    for (size_t i = 0; i < run_count; i++) {
        needed += (size_t)(runs[i].size_bytes / home->chunk_bytes) + 2;
    }
    if (needed > stitch->scratch_handle_capacity) {
        gml_handle *grown = realloc(stitch->scratch_handles, needed * sizeof *grown);
        if (!grown) {
            return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                                   "no host memory for a view of %zu chunks", needed);
        }
        stitch->scratch_handles = grown;
        stitch->scratch_handle_capacity = needed;
    }
    *count = 0;
    for (size_t i = 0; i < run_count; i++) {
        uint64_t end = runs[i].offset + runs[i].size_bytes;
        for (uint64_t chunk = runs[i].offset / home->chunk_bytes; chunk * home->chunk_bytes < end;
             chunk++) {
            stitch->scratch_handles[(*count)++] = home->handles[chunk];
        }
    }
    return GML_OK;
}

/* Gives a placement of several runs its own mapping. */
static gml_status
map_view(gml_stitch *stitch, gml_placement *placement, const gml_run *runs, size_t run_count)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    size_t count = 0;
    gml_status status = collect_handles(stitch, runs, run_count, &count);
    if (status == GML_OK) {
        status = make_room(stitch, placement->class->pond->stream, count * chunk_bytes);
    }
    if (status == GML_OK) {
        status = gml_mapping_create(stitch->policy.driver, chunk_bytes, stitch->scratch_handles,
                                    count, GML_ACCESS_RANGE, &placement->view);
    }
    if (status != GML_OK) {
        return status;
    }
    placement->is_view_mapped = true;
    placement->view_bytes = count * chunk_bytes;
    placement->address = placement->view + runs[0].offset % chunk_bytes;
    stitch->views++;
    stitch->view_bytes += placement->view_bytes;
    return GML_OK;
}

static gml_status
copy_runs(gml_stitch *stitch, gml_placement *placement, const gml_run *runs, size_t run_count)
{
    placement->runs = &placement->only_run;
    gml_run *several = run_count > 1 ? malloc(run_count * sizeof *runs) : NULL;
    if (run_count > 1 && !several) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a view of %zu runs", run_count);
    }
    if (several) {
        placement->runs = several;
    }
    placement->run_count = run_count;
    memcpy(placement->runs, runs, run_count * sizeof *runs);
    return GML_OK;
}

gml_status
gml_placement_create(gml_stitch *stitch, gml_class *class, const gml_run *runs, size_t run_count,
                     gml_placement **out)
{
    gml_status status = gml_home_prepare(&stitch->home, 2 * run_count);
    if (status != GML_OK) {
        return status;
    }
    gml_placement *placement = gml_pool_take(&stitch->placements);
    if (!placement) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a placement");
    }
    placement->class = class;
    class->placement_count++;
    status = copy_runs(stitch, placement, runs, run_count);
    if (status == GML_OK && run_count > 1) {
        status = map_view(stitch, placement, runs, run_count);
    }
    if (status != GML_OK) {
        release_host(stitch, placement);
        return status;
    }
    if (run_count == 1) {
        placement->address = stitch->home.base + runs[0].offset;
    }
    placement->number = stitch->next_number++;
    placement->state = GML_PLACEMENT_LIVE;
    gml_list_init(&placement->watchers);
    claim(stitch, placement);
    *out = placement;
    return GML_OK;
}
