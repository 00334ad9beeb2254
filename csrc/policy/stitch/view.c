/* The mappings of views: made within the limits, and taken away. */
#include "core/mapping.h"
#include "policy/stitch/stitch.h"

#include <stdlib.h>

static bool
is_over(const gml_stitch *stitch, uint64_t most_views, uint64_t most_bytes)
{
    return stitch->views > most_views || stitch->view_bytes > most_bytes;
}

/* Forgets idle views that no work can use any more, those idle longest first, until the limits hold
 * or the next one may still be used. */
static gml_status
forget_settled(gml_stitch *stitch, uint64_t most_views, uint64_t most_bytes)
{
    gml_status status = GML_OK;
    while (status == GML_OK && !gml_list_is_empty(&stitch->idle_views) &&
           is_over(stitch, most_views, most_bytes)) {
        gml_placement *oldest = gml_placement_of_idle(stitch->idle_views.next);
        if (!gml_placement_is_settled(oldest)) {
            break;
        }
        status = gml_placement_destroy(stitch, oldest);
    }
    return status;
}

/* Makes room for one more view of `pond` by forgetting those that were idle longest, an eighth of
 * all at a time so that waiting for their streams is rare. During a capture the limits give way. */
static gml_status
make_room(gml_stitch *stitch, const gml_pond *pond, uint64_t view_bytes)
{
    uint64_t most_bytes =
        stitch->max_view_bytes > view_bytes ? stitch->max_view_bytes - view_bytes : 0;
    bool is_frozen = stitch->policy.driver->is_frozen;
    if (is_frozen || !is_over(stitch, stitch->max_views - 1, most_bytes)) {
        return GML_OK;
    }
    uint64_t target_views = stitch->max_views - (stitch->max_views + 7) / 8;
    uint64_t target_bytes =
        most_bytes -
        (most_bytes < stitch->max_view_bytes / 8 ? most_bytes : stitch->max_view_bytes / 8);
    gml_status status = forget_settled(stitch, target_views, target_bytes);
    if (status != GML_OK || gml_list_is_empty(&stitch->idle_views) ||
        !is_over(stitch, stitch->max_views - 1, most_bytes)) {
        return status;
    }
    bool is_done;
    status = gml_stitch_settle(stitch, pond, &is_done);
    return status == GML_OK && is_done ? forget_settled(stitch, target_views, target_bytes)
                                       : status;
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

gml_status
gml_view_map(gml_stitch *stitch, gml_placement *placement, const gml_run *runs, size_t run_count)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    size_t count = 0;
    gml_status status = collect_handles(stitch, runs, run_count, &count);
    if (status == GML_OK) {
        status = make_room(stitch, placement->class->pond, count * chunk_bytes);
    }
    if (status == GML_OK) {
        status =
            gml_mapping_create(stitch->policy.driver, chunk_bytes, stitch->scratch_handles, count,
                               GML_ACCESS_RANGE, &placement->view, &placement->mapped_bytes);
    }
    if (placement->view) {
        placement->view_bytes = count * chunk_bytes;
        placement->address = placement->view + runs[0].offset % chunk_bytes;
        stitch->views++;
        stitch->view_bytes += placement->view_bytes;
    }
    return status;
}

gml_status
gml_view_unmap(gml_stitch *stitch, gml_placement *placement)
{
    if (!placement->view) {
        return GML_OK;
    }
    gml_status status = gml_mapping_destroy(stitch->policy.driver, placement->view,
                                            placement->view_bytes, &placement->mapped_bytes);
    if (status == GML_OK) {
        stitch->views--;
        stitch->view_bytes -= placement->view_bytes;
        placement->view = 0;
    }
    return status;
}
