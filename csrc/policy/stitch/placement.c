/* The life of a placement: made, ended, settled. */
#include "base/status.h"
#include "policy/stitch/stitch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static gml_placement *
new_placement(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes)
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
    gml_placement *placement = new_placement(stitch, pond, size_bytes);
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

/* Whether the runs lie side by side under whole mappings: none but the first begins inside a chunk,
 * and none but the last ends there. */
static bool
is_seamless(const gml_home *home, const gml_choice *choice)
{
    bool is_seamless = true;
    for (size_t i = 1; i < choice->run_count && is_seamless; i++) {
        const gml_run *before = &choice->runs[i - 1];
        uint64_t begin = choice->runs[i].offset, end = before->offset + before->size_bytes;
        is_seamless =
            gml_home_boundary(home, begin) == begin && gml_home_boundary(home, end) == end;
    }
    return is_seamless;
}

/* A choice that does not add up must not become a block: it would reach into another one. */
static gml_status
check_choice(gml_stitch *stitch, uint64_t size_bytes, const gml_choice *choice)
{
    uint64_t sum_bytes = 0;
    for (size_t i = 0; i < choice->run_count; i++) {
        sum_bytes += choice->runs[i].size_bytes;
    }
    if (sum_bytes == size_bytes && is_seamless(&stitch->home, choice)) {
        return GML_OK;
    }
    return gml_driver_fail(stitch->policy.driver, GML_CORRUPT,
                           "%" PRIu64 " bytes in %zu runs were chosen for a request of %" PRIu64,
                           sum_bytes, choice->run_count, size_bytes);
}

static gml_status
create_view(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, const gml_choice *choice,
            gml_placement **out)
{
    size_t count = choice->run_count;
    gml_status status = gml_home_prepare(&stitch->home, 2 * count);
    if (status != GML_OK) {
        return status;
    }
    *out = gml_view_again(stitch, pond, size_bytes, choice);
    if (*out) {
        (*out)->block.state = GML_STATE_EXACT;
        return GML_OK;
    }
    gml_run *runs = malloc(count * sizeof *runs);
    if (!runs) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a view of %zu runs", count);
    }
    gml_placement *placement = new_placement(stitch, pond, size_bytes);
    if (!placement) {
        free(runs);
        return GML_NO_HOST_MEMORY;
    }
    memcpy(runs, choice->runs, count * sizeof *runs);
    placement->runs = runs;
    placement->run_count = count;
    status = gml_view_map(stitch, placement);
    if (status == GML_OK) {
        gml_placement_claim(stitch, placement);
        placement->block.state = choice->state;
        gml_economy_note_made(&stitch->economy);
        *out = placement;
    } else if (placement->view) {
        gml_list_append(&stitch->doomed, &placement->idle);
    } else {
        gml_placement_release(stitch, placement);
    }
    return status;
}

gml_status
gml_placement_create(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes,
                     const gml_choice *choice, gml_placement **out)
{
    gml_status status = check_choice(stitch, size_bytes, choice);
    if (status == GML_OK && choice->run_count > 1) {
        return create_view(stitch, pond, size_bytes, choice, out);
    }
    if (status == GML_OK) {
        status = gml_placement_fit(stitch, pond, choice->runs[0].offset, size_bytes, out);
    }
    if (status == GML_OK) {
        (*out)->block.state = choice->state;
    }
    return status;
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
        gml_view_rest(stitch, placement);
    } else {
        gml_placement_release(stitch, placement);
    }
}
