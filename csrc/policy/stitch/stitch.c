/* The policy `stitch`: home space and views (GMLake, ASPLOS 2024, with permanent home addresses).
 */
#include "policy/stitch/stitch.h"

#include "base/rounding.h"
#include "base/status.h"
#include "core/mapping.h"

#include <inttypes.h>
#include <stdlib.h>

#define DEFAULT_CHUNK_BYTES (UINT64_C(2) << 20)

enum { LAST_ATTEMPTS = 3 }; /* at closing there is no later moment */

/* The size of a chunk where none is set. */
static uint64_t
default_chunk(const gml_driver *driver, const gml_knobs *knobs, uint64_t limit_bytes)
{
    uint64_t chunk_bytes = gml_round_up(DEFAULT_CHUNK_BYTES, driver->info.granularity_bytes);
    while (knobs->max_chunks && limit_bytes / chunk_bytes > knobs->max_chunks) {
        chunk_bytes *= 2;
    }
    return chunk_bytes;
}

/* The size of a chunk, or 0 with a reason. */
static uint64_t
choose_chunk(gml_driver *driver, const gml_knobs *knobs, uint64_t limit_bytes)
{
    uint64_t granularity = driver->info.granularity_bytes;
    uint64_t chunk_bytes =
        knobs->chunk_size ? knobs->chunk_size : default_chunk(driver, knobs, limit_bytes);
    if (chunk_bytes % granularity) {
        (void)gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                              "chunk_size is %" PRIu64 ", but must be a multiple of the device's "
                              "granularity of %" PRIu64 " bytes",
                              chunk_bytes, granularity);
        return 0;
    }
    return chunk_bytes;
}

static void
init_parts(gml_stitch *stitch, const gml_knobs *knobs)
{
    stitch->frag_limit = knobs->frag_limit;
    stitch->growth_bytes = knobs->growth;
    stitch->max_views = knobs->max_views;
    stitch->max_view_bytes = knobs->max_view_bytes;
    stitch->share = (gml_share_rules){
        .ratio = knobs->borrow_ratio,
        .slack_bytes = knobs->borrow_slack,
        .pieces = knobs->borrow_pieces,
        .is_earliest_first = knobs->borrow_earliest,
        .lends_views = knobs->borrow_views,
    };
    const gml_fence_rules rules = {
        .follows_events = knobs->reuse_follow_event_dependencies,
        .is_opportunistic = knobs->reuse_allow_opportunistic,
        .may_wait = knobs->reuse_allow_internal_dependencies,
        .most_waits = knobs->borrow_waits,
    };
    gml_fences_init(&stitch->fences, stitch->policy.driver, &rules);
    stitch->classes.object_bytes = sizeof(gml_class);
    stitch->view_credit = GML_VIEW_CREDIT_FIRST;
    gml_placement_init(stitch);
    gml_small_init(stitch);
    gml_list_init(&stitch->ponds);
    gml_watch_init(stitch);
}

static gml_status
create(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs, gml_policy **out)
{
    if (!driver->info.has_virtual_memory) {
        return gml_driver_fail(driver, GML_UNSUPPORTED,
                               "stitching needs virtual memory management, which this device does "
                               "not offer; use the policy caching");
    }
    uint64_t limit = driver->info.total_bytes;
    if (capacity_bytes && capacity_bytes < limit) {
        limit = capacity_bytes;
    }
    uint64_t chunk_bytes = choose_chunk(driver, knobs, limit);
    if (!chunk_bytes) {
        return GML_INVALID_ARGUMENT;
    }
    if (limit < chunk_bytes) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "a capacity of %" PRIu64
                               " bytes does not hold one chunk of %" PRIu64,
                               limit, chunk_bytes);
    }
    gml_stitch *stitch = calloc(1, sizeof *stitch);
    if (!stitch) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for the policy");
    }
    stitch->policy = (gml_policy){.ops = &gml_stitch_policy, .driver = driver};
    init_parts(stitch, knobs);
    gml_status status = gml_home_open(&stitch->home, driver, chunk_bytes, limit / chunk_bytes);
    if (status != GML_OK) {
        free(stitch);
        return status;
    }
    *out = &stitch->policy;
    return GML_OK;
}

/* Ends the life of every block, so that everything is idle. */
static void
park_all(gml_stitch *stitch)
{
    for (gml_extent *extent = gml_home_find(&stitch->home, 0); extent; extent = extent->next) {
        if (extent->kind != GML_EXTENT_USED) {
            continue;
        }
        gml_placement *holder = extent->owner;
        if (holder->state == GML_PLACEMENT_LIVE) {
            gml_placement_park(stitch, holder);
        }
    }
}

static gml_status
destroy(gml_policy *self)
{
    gml_stitch *stitch = gml_stitch_of(self);
    gml_status first = gml_synchronize_finally(self->driver);
    park_all(stitch);
    gml_link *const lists[] = {&stitch->idle_views, &stitch->idle_fresh, &stitch->idle_proven};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        while (!gml_list_is_empty(lists[i])) {
            /* One that the driver refuses is doomed, and tried again below. */
            (void)gml_placement_destroy(stitch, gml_placement_of_idle(lists[i]->next));
        }
    }
    for (int i = 0; i < LAST_ATTEMPTS && !gml_list_is_empty(&stitch->doomed); i++) {
        gml_status status = gml_placement_destroy_doomed(stitch);
        if (i + 1 == LAST_ATTEMPTS) {
            first = gml_first_failure(first, status);
        }
    }
    gml_placement_abandon_doomed(stitch);
    gml_ponds_close(stitch);
    gml_fences_close(&stitch->fences);
    first = gml_first_failure(first, gml_home_close(&stitch->home));
    gml_pool_clear(&stitch->placements);
    gml_pool_clear(&stitch->classes);
    gml_pool_clear(&stitch->watches);
    gml_pool_clear(&stitch->pieces);
    gml_pool_clear(&stitch->slabs);
    free(stitch->scratch);
    free(stitch->scratch_handles);
    free(stitch->scratch_offers);
    free(stitch);
    return first;
}

static gml_status
allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_stitch *stitch = gml_stitch_of(self);
    uint64_t block_bytes = gml_round_up(size_bytes, GML_ALIGNMENT);
    gml_pond *pond;
    gml_block *block = NULL;
    gml_status status = gml_pond_find(stitch, stream, &pond);
    if (status == GML_OK) {
        pond->timeline.requests++;
    }
    if (status == GML_OK && block_bytes <= GML_SMALL_LIMIT) {
        status = gml_small_allocate(stitch, pond, block_bytes, &block);
    } else if (status == GML_OK) {
        gml_placement *placement = NULL;
        status = gml_stitch_place(stitch, pond, block_bytes, &placement);
        block = placement ? &placement->block : NULL;
    }
    if (block) {
        block->requested_bytes = size_bytes;
        *out = block;
    }
    return status;
}

static void
free_block(gml_policy *self, gml_block *block)
{
    gml_stitch *stitch = gml_stitch_of(self);
    if (block->is_small) {
        gml_small_free(stitch, block);
    } else {
        gml_placement_park(stitch, (gml_placement *)(void *)block);
    }
}

const gml_policy_ops gml_stitch_policy = {
    .name = "stitch",
    .create = create,
    .destroy = destroy,
    .allocate = allocate,
    .free = free_block,
    .trim = gml_stitch_trim,
    .usage = gml_stitch_usage,
    .check = gml_stitch_check,
    .visit = gml_stitch_visit,
    .forget_stream = gml_pond_forget,
    .distrust_stream = gml_pond_distrust,
    .order_streams = gml_share_order,
    .stream_pairs = gml_share_pairs,
};
