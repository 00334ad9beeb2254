/* The life of a placement: made over one extent, ended, settled. */
#include "base/status.h"
#include "policy/stitch/stitch.h"

#include <stdlib.h>

gml_placement *
gml_placement_new(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes)
{
    gml_placement *placement = gml_pool_take(&stitch->placements);
    if (!placement) {
        (void)gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a placement");
        return NULL;
    }
    placement->pond = pond;
    pond->user_count++;
    placement->block.block_bytes = size_bytes;
    placement->runs = &placement->only_run;
    placement->run_count = 1;
    return placement;
}

void
gml_placement_release(gml_stitch *stitch, gml_placement *placement)
{
    placement->pond->user_count--;
    if (placement->runs != &placement->only_run) {
        free(placement->runs);
    }
    gml_pool_give(&stitch->placements, placement);
}

void
gml_placement_claim(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_run *run = &placement->runs[i];
        run->extent = gml_home_claim(&stitch->home, run->offset, run->size_bytes, placement);
    }
    placement->state = GML_PLACEMENT_LIVE;
}

gml_status
gml_placement_fit(gml_stitch *stitch, gml_pond *pond, uint64_t offset, uint64_t size_bytes,
                  gml_placement **out)
{
    gml_status status = gml_home_prepare(&stitch->home, 2);
    if (status != GML_OK) {
        return status;
    }
    gml_placement *placement = gml_placement_new(stitch, pond, size_bytes);
    if (!placement) {
        return GML_NO_HOST_MEMORY;
    }
    placement->only_run.offset = offset;
    placement->only_run.size_bytes = size_bytes;
    placement->block.address = stitch->home.base + offset;
    gml_placement_claim(stitch, placement);
    *out = placement;
    return GML_OK;
}

void
gml_placement_end(gml_stitch *stitch, gml_placement *placement)
{
    gml_pond *pond = placement->pond;
    stitch->held_bytes -= placement->block.block_bytes;
    placement->freed = gml_fence_now(&stitch->fences, &pond->timeline);
    if (!placement->view) {
        gml_placement_settle(stitch, placement);
        return;
    }
    gml_pond_settle(stitch, pond);
    placement->state = GML_PLACEMENT_PARKED;
    pond->parked = placement;
}

void
gml_placement_settle(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_home_unclaim(&stitch->home, placement->runs[i].extent, &placement->pond->set,
                         placement->freed);
        placement->runs[i].extent = NULL;
    }
    if (placement->view) {
        gml_idle_view_add(stitch, placement);
    } else {
        gml_placement_release(stitch, placement);
    }
}
