/* The life of a placement: made over one extent, ended, retired; and idle views, which serve no
 * block and are indexed by their runs. */
#include "base/mix.h"
#include "policy/stitch/stitch.h"

#include <stdlib.h>

gml_placement *
gml_placement_new(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes)
{
    gml_placement *placement = gml_pool_take(&stitch->placements);
    if (!placement) {
        (void)gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a placement");
        return NULL;
    }
    placement->cache = cache;
    cache->user_count++;
    placement->block.block_bytes = size_bytes;
    placement->runs = &placement->only_run;
    placement->run_count = 1;
    return placement;
}

void
gml_placement_release(gml_stitch *stitch, gml_placement *placement)
{
    placement->cache->user_count--;
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
        run->extent = gml_base_range_claim(&stitch->range, run->offset, run->size_bytes, placement);
    }
    placement->state = GML_PLACEMENT_LIVE;
}

gml_status
gml_placement_fit(gml_stitch *stitch, gml_stream_cache *cache, uint64_t offset, uint64_t size_bytes,
                  gml_placement **out)
{
    gml_status status = gml_base_range_prepare(&stitch->range, 2);
    if (status != GML_OK) {
        return status;
    }
    gml_placement *placement = gml_placement_new(stitch, cache, size_bytes);
    if (!placement) {
        return GML_NO_HOST_MEMORY;
    }
    placement->only_run.offset = offset;
    placement->only_run.size_bytes = size_bytes;
    placement->block.address = stitch->range.base + offset;
    gml_placement_claim(stitch, placement);
    *out = placement;
    return GML_OK;
}

void
gml_placement_end(gml_stitch *stitch, gml_placement *placement)
{
    gml_stream_cache *cache = placement->cache;
    stitch->held_bytes -= placement->block.block_bytes;
    placement->freed = gml_fence_now(&stitch->fences, &cache->timeline);
    if (!placement->view) {
        gml_placement_retire(stitch, placement);
        return;
    }
    gml_stream_cache_flush(stitch, cache);
    placement->state = GML_PLACEMENT_CACHED;
    cache->cached = placement;
}

void
gml_placement_retire(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_base_range_unclaim(&stitch->range, placement->runs[i].extent, &placement->cache->set,
                               placement->freed);
        placement->runs[i].extent = NULL;
    }
    if (placement->view) {
        gml_idle_view_add(stitch, placement);
    } else {
        gml_placement_release(stitch, placement);
    }
}

/* ---- idle views ------------------------------------------------------------------------------ */

static gml_placement *
of_node(gml_tree_node *node)
{
    return (gml_placement *)(void *)((char *)node - offsetof(gml_placement, by_runs));
}

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
gml_idle_view_add(gml_stitch *stitch, gml_placement *placement)
{
    uint64_t mark = mark_of(placement->runs, placement->run_count);
    /* A collision with other runs happens once in 2^64: take the next unused number. Marks are not
     * chained: when the first of two views is unmapped, the second is no longer found and a new
     * view is mapped, at the cost of a mapping only. */
    while (at_mark(stitch, placement->block.block_bytes, mark)) {
        mark++;
    }
    placement->by_runs.size_bytes = placement->block.block_bytes;
    placement->by_runs.address = mark;
    placement->state = GML_PLACEMENT_IDLE;
    gml_tree_insert(&stitch->idle, &placement->by_runs);
    gml_list_append(&stitch->idle_views, &placement->idle);
}

void
gml_idle_view_remove(gml_stitch *stitch, gml_placement *placement)
{
    gml_tree_remove(&stitch->idle, &placement->by_runs);
    gml_list_remove(&placement->idle);
}

gml_placement *
gml_idle_view_find(const gml_stitch *stitch, uint64_t size_bytes, const gml_choice *choice)
{
    uint64_t mark = mark_of(choice->runs, choice->run_count);
    gml_tree_node *node = at_mark(stitch, size_bytes, mark);
    while (node && !is_over_runs(of_node(node), choice)) {
        node = at_mark(stitch, size_bytes, ++mark);
    }
    return node ? of_node(node) : NULL;
}
