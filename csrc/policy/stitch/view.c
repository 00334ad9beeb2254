/* Views: placements with a mapping of their own, which outlive the blocks they serve. */
#include "base/rounding.h"
#include "base/status.h"
#include "core/mapping.h"
#include "policy/stitch/stitch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- mapping --------------------------------------------------------------------------------- */

/* The driver keeps some KiB of host memory for each mapping of a chunk. So the views of a program
 * whose sizes never repeat, which are of no use to it again, may map each chunk some times over,
 * and not without end. */
enum { LEAST_VIEW_CHUNKS = 16384, VIEWS_OF_A_CHUNK = 16 };

/* Addresses of views at most: a process has some hundred TiB of them. */
#define MOST_VIEW_BYTES (UINT64_C(1) << 44)

/* What the views may come to; and where a new one finds more than that, it is made less, by an
 * eighth. */
typedef struct extent_of_views {
    uint64_t views, bytes, chunks;
} extent_of_views;

static uint64_t without(uint64_t bytes, uint64_t part_bytes) {
    return bytes > part_bytes ? bytes - part_bytes : 0;
}

static extent_of_views most_views(const gml_stitch *stitch) {
    uint64_t chunks = VIEWS_OF_A_CHUNK * stitch->range.chunk_count;
    return (extent_of_views){stitch->max_views, MOST_VIEW_BYTES,
                             chunks > LEAST_VIEW_CHUNKS ? chunks : LEAST_VIEW_CHUNKS};
}

static extent_of_views less_by_an_eighth(extent_of_views most) {
    return (extent_of_views){most.views - gml_divide_up(most.views, 8), most.bytes - most.bytes / 8,
                             most.chunks - most.chunks / 8};
}

/* Whether they do not leave room for one that maps so many chunks. */
static bool is_over(const gml_stitch *stitch, extent_of_views most, uint64_t view_bytes,
                    uint64_t view_chunks) {
    return stitch->views >= most.views || stitch->view_bytes > without(most.bytes, view_bytes) ||
           stitch->view_chunks > without(most.chunks, view_chunks);
}

/* Forgets idle views that no work can use any more, those idle longest first, until there is room
 * or the next one may still be used. */
static gml_status forget_unused(gml_stitch *stitch, extent_of_views most, uint64_t view_bytes,
                                uint64_t view_chunks) {
    gml_status status = GML_OK;
    while (status == GML_OK && !gml_list_is_empty(&stitch->idle_views) &&
           is_over(stitch, most, view_bytes, view_chunks)) {
        gml_placement *oldest = gml_view_of_idle(stitch->idle_views.next);
        if (!gml_view_is_unused(stitch, oldest)) {
            break;
        }
        status = gml_view_destroy(stitch, oldest);
    }
    return status;
}

/* Makes room for one more view of `cache` by forgetting those that were idle longest, an eighth of
 * all at a time. Where the last eighth has begun, the device is asked how far it has come, so that
 * nobody has to wait for it once the room is needed. During a capture the limits give way, and
 * where graphs use the memory, or did until lately. */
static gml_status make_room(gml_stitch *stitch, const gml_stream_cache *cache, uint64_t view_bytes,
                            uint64_t view_chunks) {
    extent_of_views most = most_views(stitch), fewer = less_by_an_eighth(most);
    if (gml_driver_is_frozen(stitch->policy.driver) || gml_stitch_has_graphs(stitch) ||
        !is_over(stitch, fewer, view_bytes, view_chunks)) {
        return GML_OK;
    }
    if (stitch->fences.rules.is_opportunistic) {
        gml_fence_poll(&stitch->fences);
        if (!stitch->fences.mark_count) {
            (void)gml_fence_mark_for(&stitch->fences, &cache->seeker);
        }
    }
    if (!is_over(stitch, most, view_bytes, view_chunks)) {
        return GML_OK;
    }
    gml_status status = forget_unused(stitch, fewer, view_bytes, view_chunks);
    if (status != GML_OK || gml_list_is_empty(&stitch->idle_views) ||
        !is_over(stitch, most, view_bytes, view_chunks)) {
        return status;
    }
    bool is_done;
    status = gml_stitch_wait(stitch, cache, &is_done);
    return status == GML_OK && is_done ? forget_unused(stitch, fewer, view_bytes, view_chunks)
                                       : status;
}

/* Gives a placement of several runs its own mapping, within the limits: idle views make room. After
 * a failure placement->view is 0, or a range that the driver did not take back. */
static gml_status map(gml_stitch *stitch, gml_placement *placement) {
    gml_base_range *range = &stitch->range;
    uint64_t first = placement->runs[0].offset, begin = gml_base_range_chunk_begin(range, first);
    uint64_t view_bytes = 0;
    gml_status status = GML_OK;
    range->collected_count = 0;
    for (size_t i = 0; i < placement->run_count && status == GML_OK; i++) {
        const gml_run *run = &placement->runs[i];
        uint64_t end = run->offset + run->size_bytes;
        status = gml_base_range_collect(range, run->offset, run->size_bytes);
        view_bytes +=
            gml_base_range_boundary(range, end) - gml_base_range_chunk_begin(range, run->offset);
    }
    if (status == GML_OK) {
        status = make_room(stitch, placement->cache, view_bytes, range->collected_count);
    }
    if (status == GML_OK) {
        status = gml_mapping_create(stitch->policy.driver, range->collected, range->collected_count,
                                    &placement->view, &placement->mapped_bytes);
    }
    if (placement->view) {
        placement->view_bytes = view_bytes;
        placement->view_chunks = range->collected_count;
        placement->block.address = placement->view + (first - begin);
        placement->by_age.address = stitch->made_views++;
        stitch->views++;
        stitch->view_bytes += view_bytes;
        stitch->view_chunks += placement->view_chunks;
    }
    return status;
}

/* Unmaps the view. A later call resumes where a failed one stopped. */
static gml_status unmap(gml_stitch *stitch, gml_placement *placement) {
    gml_status status = gml_mapping_destroy(stitch->policy.driver, placement->view,
                                            placement->view_bytes, &placement->mapped_bytes);
    if (status == GML_OK) {
        stitch->views--;
        stitch->view_bytes -= placement->view_bytes;
        stitch->view_chunks -= placement->view_chunks;
        placement->view = 0;
    }
    return status;
}

/* ---- forgetting ------------------------------------------------------------------------------ */

/* Once it is unmapped, and it is not pinned. */
static void release_gone(gml_stitch *stitch, gml_placement *placement) {
    if (!placement->view && !placement->pin_count) {
        gml_placement_release(stitch, placement);
    }
}

void gml_view_unpin(gml_stitch *stitch, gml_placement *placement) {
    placement->pin_count--;
    release_gone(stitch, placement);
}

gml_status gml_view_destroy(gml_stitch *stitch, gml_placement *placement) {
    gml_idle_view_remove(stitch, placement);
    placement->state = GML_PLACEMENT_GONE;
    gml_status status = unmap(stitch, placement);
    if (status == GML_OK) {
        release_gone(stitch, placement);
    } else {
        gml_list_append(&stitch->pending_unmaps, &placement->idle);
    }
    return status;
}

gml_status gml_view_unmap_pending(gml_stitch *stitch) {
    gml_status first = GML_OK;
    for (gml_link *link = stitch->pending_unmaps.next; link != &stitch->pending_unmaps;) {
        gml_placement *placement = gml_view_of_idle(link);
        link = link->next;
        gml_status status = unmap(stitch, placement);
        if (status == GML_OK) {
            gml_list_remove(&placement->idle);
            release_gone(stitch, placement);
        } else if (first == GML_OK) {
            first = status;
        }
    }
    return first;
}

void gml_view_abandon_pending(gml_stitch *stitch) {
    while (!gml_list_is_empty(&stitch->pending_unmaps)) {
        gml_placement *placement = gml_view_of_idle(stitch->pending_unmaps.next);
        gml_list_remove(&placement->idle);
        gml_placement_release(stitch, placement);
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

void gml_view_revive(gml_stitch *stitch, gml_stream_cache *cache, gml_placement *placement) {
    gml_idle_view_remove(stitch, placement);
    placement->cache->user_count--;
    placement->cache = cache;
    cache->user_count++;
    placement->block = (gml_block){
        .address = placement->block.address,
        .block_bytes = placement->block.block_bytes,
    };
    gml_placement_claim(stitch, placement);
    placement->block.state = GML_STATE_EXACT;
}

/* Whether the runs lie side by side under whole mappings: none but the first begins inside a chunk,
 * and none but the last ends there. */
static bool is_seamless(const gml_base_range *range, const gml_choice *choice) {
    bool is_seamless = true;
    for (size_t i = 1; i < choice->run_count && is_seamless; i++) {
        const gml_run *before = &choice->runs[i - 1];
        uint64_t begin = choice->runs[i].offset, end = before->offset + before->size_bytes;
        is_seamless = gml_base_range_boundary(range, begin) == begin &&
                      gml_base_range_boundary(range, end) == end;
    }
    return is_seamless;
}

/* A choice that does not add up must not become a block: it would reach into another one. */
static gml_status check_choice(gml_stitch *stitch, uint64_t size_bytes, const gml_choice *choice) {
    uint64_t sum_bytes = 0;
    for (size_t i = 0; i < choice->run_count; i++) {
        sum_bytes += choice->runs[i].size_bytes;
    }
    if (sum_bytes == size_bytes && is_seamless(&stitch->range, choice)) {
        return GML_OK;
    }
    return gml_driver_fail(stitch->policy.driver, GML_CORRUPT,
                           "%" PRIu64 " bytes in %zu runs were chosen for a request of %" PRIu64,
                           sum_bytes, choice->run_count, size_bytes);
}

static gml_status create_view(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                              const gml_choice *choice, gml_placement **out) {
    gml_placement *again = gml_idle_view_find(stitch, cache, size_bytes);
    size_t count = again ? again->run_count : choice->run_count;
    gml_status status = gml_base_range_prepare(&stitch->range, 2 * count);
    if (status != GML_OK) {
        return status;
    }
    if (again) {
        gml_view_revive(stitch, cache, again);
        *out = again;
        return GML_OK;
    }
    gml_run *runs = malloc(count * sizeof *runs);
    if (!runs) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a view of %zu runs", count);
    }
    gml_placement *placement = gml_placement_new(stitch, cache, size_bytes);
    if (!placement) {
        free(runs);
        return GML_NO_HOST_MEMORY;
    }
    memcpy(runs, choice->runs, count * sizeof *runs);
    placement->runs = runs;
    placement->run_count = count;
    status = map(stitch, placement);
    if (status == GML_OK) {
        gml_placement_claim(stitch, placement);
        placement->block.state = choice->state;
        *out = placement;
    } else if (placement->view) {
        gml_list_append(&stitch->pending_unmaps, &placement->idle);
    } else {
        gml_placement_release(stitch, placement);
    }
    return status;
}

gml_status gml_placement_create(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                                const gml_choice *choice, gml_placement **out) {
    gml_status status = check_choice(stitch, size_bytes, choice);
    if (status == GML_OK && choice->run_count > 1) {
        return create_view(stitch, cache, size_bytes, choice, out);
    }
    if (status == GML_OK) {
        status = gml_placement_fit(stitch, cache, choice->runs[0].offset, size_bytes, out);
    }
    if (status == GML_OK) {
        (*out)->block.state = choice->state;
    }
    return status;
}
