/* The policy `stitch`: home space and views (GMLake, ASPLOS 2024, with permanent home addresses).
 */
#include "policy/stitch/stitch.h"

#include "core/mapping.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#define DEFAULT_CHUNK_BYTES (UINT64_C(2) << 20)

static gml_stitch *
of_policy(gml_policy *policy)
{
    return (gml_stitch *)(void *)policy;
}

static gml_pond *
of_ponds(gml_link *link)
{
    return (gml_pond *)(void *)((char *)link - offsetof(gml_pond, ponds));
}

static uint64_t
rounded(uint64_t size_bytes)
{
    return (size_bytes + GML_ALIGNMENT - 1) / GML_ALIGNMENT * GML_ALIGNMENT;
}

/* ---- opening and closing ----------------------------------------------------------------------
 */

/* The size of a chunk, or 0 with a reason. */
static uint64_t
choose_chunk(gml_driver *driver, const gml_knobs *knobs)
{
    uint64_t granularity = driver->info.granularity_bytes;
    uint64_t chunk_bytes = knobs->chunk_size;
    if (!chunk_bytes) {
        chunk_bytes = (DEFAULT_CHUNK_BYTES + granularity - 1) / granularity * granularity;
    }
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
    stitch->placements.object_bytes = sizeof(gml_placement);
    stitch->classes.object_bytes = sizeof(gml_class);
    stitch->view_credit = GML_VIEW_CREDIT_FIRST;
    gml_small_init(stitch);
    gml_list_init(&stitch->ponds);
    gml_list_init(&stitch->idle_views);
    gml_list_init(&stitch->idle_homes);
    gml_list_init(&stitch->doomed);
    gml_list_init(&stitch->stranded);
}

static gml_status
create(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs, gml_policy **out)
{
    if (!driver->info.has_virtual_memory) {
        return gml_driver_fail(driver, GML_UNSUPPORTED,
                               "stitching needs virtual memory management, which this device does "
                               "not offer; use the policy caching");
    }
    uint64_t chunk_bytes = choose_chunk(driver, knobs);
    if (!chunk_bytes) {
        return GML_INVALID_ARGUMENT;
    }
    uint64_t limit = driver->info.total_bytes;
    if (capacity_bytes && capacity_bytes < limit) {
        limit = capacity_bytes;
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

static void
keep_first(gml_status *first, gml_status status)
{
    if (*first == GML_OK) {
        *first = status;
    }
}

static gml_status
destroy(gml_policy *self)
{
    gml_stitch *stitch = of_policy(self);
    gml_status first = gml_synchronize_finally(self->driver);
    park_all(stitch);
    while (!gml_list_is_empty(&stitch->idle_views)) {
        /* One that the driver refuses is doomed, and tried again below. */
        (void)gml_placement_destroy(stitch, gml_placement_of_idle(stitch->idle_views.next));
    }
    while (!gml_list_is_empty(&stitch->idle_homes)) {
        (void)gml_placement_destroy(stitch, gml_placement_of_idle(stitch->idle_homes.next));
    }
    keep_first(&first, gml_placement_destroy_doomed(stitch));
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds;) {
        gml_pond *pond = of_ponds(link);
        link = link->next;
        gml_map_clear(&pond->classes);
        free(pond);
    }
    keep_first(&first, gml_home_close(&stitch->home));
    gml_map_clear(&stitch->pond_by_stream);
    gml_pool_clear(&stitch->placements);
    gml_pool_clear(&stitch->classes);
    gml_pool_clear(&stitch->pieces);
    gml_pool_clear(&stitch->slabs);
    free(stitch->scratch);
    free(stitch->scratch_handles);
    free(stitch);
    return first;
}

/* ---- ponds and classes ------------------------------------------------------------------------
 */

static gml_status
add_pond(gml_stitch *stitch, gml_stream stream, gml_pond **out)
{
    gml_pond *pond = calloc(1, sizeof *pond);
    if (!pond || gml_map_insert(&stitch->pond_by_stream, stream + 1, pond) != GML_OK) {
        free(pond);
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a stream");
    }
    pond->stream = stream;
    gml_freeset_init(&pond->set);
    gml_list_init(&pond->parked);
    gml_list_append(&stitch->ponds, &pond->ponds);
    *out = pond;
    return GML_OK;
}

static gml_status
find_pond(gml_stitch *stitch, gml_stream stream, gml_pond **out)
{
    if (stitch->last_pond && stitch->last_pond->stream == stream) {
        *out = stitch->last_pond;
        return GML_OK;
    }
    gml_status status = GML_OK;
    *out = gml_map_find(&stitch->pond_by_stream, stream + 1);
    if (!*out) {
        status = add_pond(stitch, stream, out);
    }
    if (status == GML_OK) {
        stitch->last_pond = *out;
    }
    return status;
}

/* The class of that size, made if need be; NULL, with a reason, when the host has no memory. */
static gml_class *
find_class(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes)
{
    gml_class *class = gml_map_find(&pond->classes, size_bytes);
    if (class) {
        return class;
    }
    class = gml_pool_take(&stitch->classes);
    if (!class || gml_map_insert(&pond->classes, size_bytes, class) != GML_OK) {
        gml_pool_give(&stitch->classes, class);
        (void)gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a size class");
        return NULL;
    }
    class->pond = pond;
    class->size_bytes = size_bytes;
    return class;
}

/* ---- serving ----------------------------------------------------------------------------------
 */

/* Moves what every other stream holds free to `pond`, once all work is done. *moved tells whether
 * there was anything. */
static gml_status
take_over(gml_stitch *stitch, gml_pond *pond, bool *moved)
{
    gml_driver *driver = stitch->policy.driver;
    bool is_capturing = false;
    *moved = false;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *other = of_ponds(link);
        gml_pond_unpark(stitch, other);
        *moved |= other != pond && other->set.free_bytes != 0;
    }
    if (!*moved) {
        return GML_OK;
    }
    gml_status status = gml_driver_stream_capturing(driver, pond->stream, &is_capturing);
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_device_synchronize(driver);
    }
    if (status != GML_OK || is_capturing) {
        *moved = false;
        return status;
    }
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *other = of_ponds(link);
        while (other != pond && other->set.fit.root) {
            gml_extent *extent = gml_extent_of_fit(other->set.fit.root);
            (void)gml_home_transfer(&stitch->home, extent, &pond->set);
        }
    }
    gml_placement_retry_stranded(stitch);
    return GML_OK;
}

/* A new placement: chosen, with the ladder behind it, and mapped. */
static gml_status
place_new(gml_stitch *stitch, gml_class *class, gml_placement **out)
{
    gml_pond *pond = class->pond;
    gml_choice choice = {0};
    gml_pond_unpark(stitch, pond);
    bool may_stitch = class->size_bytes >= stitch->frag_limit;
    gml_status status = gml_choose(stitch, class, may_stitch, &choice);
    if (status == GML_OUT_OF_MEMORY) {
        bool moved;
        gml_status taken = take_over(stitch, pond, &moved);
        if (taken != GML_OK) {
            return taken;
        }
        if (moved || !may_stitch) {
            status = gml_choose(stitch, class, true, &choice);
        }
    }
    if (status == GML_OK) {
        status = gml_placement_create(stitch, class, choice.runs, choice.run_count, out);
    }
    if (status == GML_OK) {
        (*out)->block.state = choice.state;
        stitch->view_credit -= choice.state == GML_STATE_STITCH && stitch->view_credit;
    }
    return status;
}

/* Counts a placement that begins to live. */
static void
note_placed(gml_stitch *stitch, const gml_placement *placement)
{
    stitch->held_bytes += placement->class->size_bytes;
    if (stitch->peak_held_bytes < stitch->held_bytes) {
        stitch->peak_held_bytes = stitch->held_bytes;
    }
}

gml_status
gml_stitch_place(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_placement **out)
{
    gml_class *class = find_class(stitch, pond, size_bytes);
    if (!class) {
        return GML_NO_HOST_MEMORY;
    }
    gml_placement *placement = NULL;
    gml_status status = gml_placement_take(stitch, class, &placement);
    if (status != GML_OK) {
        return status;
    }
    if (placement) {
        placement->block.state = GML_STATE_EXACT;
        stitch->view_credit += placement->view && stitch->view_credit < GML_VIEW_CREDIT_MOST;
    } else {
        status = place_new(stitch, class, &placement);
    }
    if (status == GML_OK) {
        placement->block.address = placement->address;
        placement->block.block_bytes = size_bytes;
        placement->block.stream = pond->stream;
        note_placed(stitch, placement);
        *out = placement;
    }
    return status;
}

static gml_status
allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream, gml_block **out)
{
    gml_stitch *stitch = of_policy(self);
    uint64_t block_bytes = rounded(size_bytes);
    gml_pond *pond;
    gml_block *block = NULL;
    gml_status status = find_pond(stitch, stream, &pond);
    if (status == GML_OK && block_bytes <= GML_SMALL_LIMIT) {
        status = gml_small_allocate(stitch, pond, block_bytes, &block);
    } else if (status == GML_OK) {
        gml_placement *placement = NULL;
        status = gml_stitch_place(stitch, pond, block_bytes, &placement);
        block = placement ? &placement->block : NULL;
    }
    if (status == GML_OK) {
        block->requested_bytes = size_bytes;
        *out = block;
    }
    return status;
}

static void
free_block(gml_policy *self, gml_block *block)
{
    gml_stitch *stitch = of_policy(self);
    if (block->is_small) {
        gml_small_free(stitch, block);
    } else {
        gml_placement_park(stitch, (gml_placement *)(void *)block);
    }
}

/* ---- giving memory back -----------------------------------------------------------------------
 */

/* Whether a chunk that `placement` lies in is wholly free, and so about to go. */
static bool
loses_chunk(const gml_stitch *stitch, const gml_placement *placement)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    for (size_t i = 0; i < placement->run_count; i++) {
        const gml_run *run = &placement->runs[i];
        uint64_t end = run->offset + run->size_bytes;
        uint64_t begin = run->offset / chunk_bytes * chunk_bytes;
        const gml_extent *extent = gml_home_find(&stitch->home, begin);
        for (; extent && extent->offset < end; extent = extent->next) {
            if (extent->kind == GML_EXTENT_FREE && extent->whole.size_bytes &&
                extent->whole.address < end &&
                extent->whole.address + extent->whole.size_bytes > begin) {
                return true;
            }
        }
    }
    return false;
}

/* Forgets the idle placements of `list` that lose a chunk. */
static gml_status
forget_losers(gml_stitch *stitch, gml_link *list)
{
    gml_status status = GML_OK;
    for (gml_link *link = list->next; link != list && status == GML_OK;) {
        gml_placement *placement = gml_placement_of_idle(link);
        link = link->next;
        if (loses_chunk(stitch, placement)) {
            status = gml_placement_destroy(stitch, placement);
        }
    }
    return status;
}

/* Releases every whole chunk that is free in `pond`. */
static gml_status
release_chunks(gml_stitch *stitch, gml_pond *pond, uint64_t *released_bytes)
{
    gml_status status = GML_OK;
    while (status == GML_OK && pond->set.whole_bytes) {
        gml_freeset_index(&pond->set);
        gml_extent *extent = gml_extent_of_whole(gml_tree_last(&pond->set.wholes));
        status = gml_home_shrink(&stitch->home, extent, released_bytes);
    }
    return status;
}

/* The bytes of chunks that are wholly free, whichever streams own their parts. */
static uint64_t
count_idle_bytes(const gml_home *home)
{
    uint64_t idle_bytes = 0;
    const gml_extent *extent = gml_home_find(home, 0);
    while (extent) {
        uint64_t begin = extent->offset;
        bool is_free = extent->kind == GML_EXTENT_FREE;
        while (is_free && extent->next && extent->next->kind == GML_EXTENT_FREE) {
            extent = extent->next;
        }
        uint64_t first = (begin + home->chunk_bytes - 1) / home->chunk_bytes;
        uint64_t last = (extent->offset + extent->size_bytes) / home->chunk_bytes;
        idle_bytes += is_free && last > first ? (last - first) * home->chunk_bytes : 0;
        extent = extent->next;
    }
    return idle_bytes;
}

/* Joins free neighbours of different streams that meet inside a chunk, so that the chunk is whole
 * in one of them. pre: the device was synchronised. */
static void
join_shared_chunks(gml_stitch *stitch)
{
    gml_home *home = &stitch->home;
    gml_extent *extent = gml_home_find(home, 0);
    while (extent->next) {
        gml_extent *next = extent->next;
        bool meet = extent->kind == GML_EXTENT_FREE && next->kind == GML_EXTENT_FREE &&
                    next->offset % home->chunk_bytes != 0;
        extent = meet ? gml_home_transfer(home, next, extent->set) : next;
    }
    gml_placement_retry_stranded(stitch);
}

/* What trim() does once it has found something to give back. */
static gml_status
give_back(gml_stitch *stitch, uint64_t *released_bytes)
{
    gml_status status = gml_driver_device_synchronize(stitch->policy.driver);
    if (status == GML_OK) {
        status = gml_placement_destroy_doomed(stitch);
    }
    if (status == GML_OK) {
        join_shared_chunks(stitch);
        status = forget_losers(stitch, &stitch->idle_views);
    }
    if (status == GML_OK) {
        status = forget_losers(stitch, &stitch->idle_homes);
    }
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds && status == GML_OK;
         link = link->next) {
        status = release_chunks(stitch, of_ponds(link), released_bytes);
    }
    return status == GML_OK ? gml_home_release_leftovers(&stitch->home, released_bytes) : status;
}

static gml_status
trim(gml_policy *self, uint64_t *released_bytes)
{
    gml_stitch *stitch = of_policy(self);
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond_unpark(stitch, of_ponds(link));
    }
    *released_bytes = 0;
    bool has_leftovers = stitch->home.handle_count > stitch->home.present_count;
    if (!has_leftovers && gml_list_is_empty(&stitch->doomed) && !count_idle_bytes(&stitch->home)) {
        return GML_OK;
    }
    gml_status status = give_back(stitch, released_bytes);
    self->reserved_bytes = stitch->home.handle_count * stitch->home.chunk_bytes;
    return status;
}

const gml_policy_ops gml_stitch_policy = {
    .name = "stitch",
    .create = create,
    .destroy = destroy,
    .allocate = allocate,
    .free = free_block,
    .trim = trim,
    .usage = gml_stitch_usage,
    .check = gml_stitch_check,
    .visit = gml_stitch_visit,
};
