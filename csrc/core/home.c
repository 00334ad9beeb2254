/* Growing, shrinking and lending the home space. */
#include "core/home.h"

#include "base/status.h"
#include "core/freeset.h"
#include "core/mapping.h"
#include "core/tiling.h"

#include <inttypes.h>
#include <stdlib.h>

gml_status
gml_home_open(gml_home *home, gml_driver *driver, uint64_t chunk_bytes, uint64_t slots)
{
    *home = (gml_home){.driver = driver, .chunk_bytes = chunk_bytes, .slots = slots};
    home->handles = calloc(slots, sizeof *home->handles);
    if (!home->handles) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for %" PRIu64 " chunks",
                               slots);
    }
    gml_status status = gml_tiling_open(home);
    if (status == GML_OK) {
        status = gml_driver_reserve(driver, slots * chunk_bytes, 0, &home->base);
        if (status != GML_OK) {
            gml_tiling_close(home);
        }
    }
    if (status != GML_OK) {
        free(home->handles);
    }
    return status;
}

/* The end of the run of extents from `extent` on that are all present; *next is behind it. */
static uint64_t
present_end(const gml_extent *extent, const gml_extent **next)
{
    while (extent->next && extent->next->kind != GML_EXTENT_ABSENT) {
        extent = extent->next;
    }
    *next = extent->next;
    return extent->offset + extent->size_bytes;
}

/* Unmaps what an earlier growth could not. */
static gml_status
clear_stuck(gml_home *home)
{
    if (!home->stuck_bytes) {
        return GML_OK;
    }
    if (home->driver->is_frozen) {
        return gml_driver_fail(home->driver, GML_OUT_OF_MEMORY,
                               "the home space cannot grow while a graph is being captured: "
                               "addresses of an earlier growth must be unmapped first");
    }
    gml_status status =
        gml_unmap_finally(home->driver, home->base + home->stuck_offset, home->stuck_bytes);
    if (status == GML_OK) {
        home->stuck_bytes = 0;
    }
    return status;
}

gml_status
gml_home_close(gml_home *home)
{
    gml_status first = clear_stuck(home);
    const gml_extent *extent = gml_home_find(home, 0);
    while (extent) {
        const gml_extent *next = extent->next;
        if (extent->kind != GML_EXTENT_ABSENT) {
            uint64_t end = present_end(extent, &next);
            first = gml_first_failure(
                first,
                gml_unmap_finally(home->driver, home->base + extent->offset, end - extent->offset));
        }
        extent = next;
    }
    first = gml_first_failure(first,
                              gml_chunks_release_finally(home->driver, home->handles, home->slots));
    first = gml_first_failure(
        first, gml_unreserve_finally(home->driver, home->base, home->slots * home->chunk_bytes));
    gml_tiling_close(home);
    free(home->handles);
    return first;
}

gml_status
gml_home_prepare(gml_home *home, size_t count)
{
    if (gml_pool_reserve(&home->extents, count)) {
        return GML_OK;
    }
    return gml_driver_fail(home->driver, GML_NO_HOST_MEMORY, "no host memory for %zu extents",
                           count);
}

static bool
is_free_in(const gml_extent *extent, const gml_freeset *set)
{
    return extent && extent->kind == GML_EXTENT_FREE && extent->set == set;
}

static uint64_t
later(uint64_t instant, uint64_t other)
{
    return instant > other ? instant : other;
}

/* Makes an extent that is in no tree free in `set`, merged with its neighbours there. */
static gml_extent *
set_free(gml_home *home, gml_extent *extent, gml_freeset *set, uint64_t instant)
{
    if (is_free_in(extent->next, set)) {
        instant = later(instant, extent->next->instant);
        gml_freeset_remove(set, extent->next);
        gml_tiling_absorb(home, extent);
    }
    if (is_free_in(extent->previous, set)) {
        extent = extent->previous;
        instant = later(instant, extent->instant);
        gml_freeset_remove(set, extent);
        gml_tiling_absorb(home, extent);
    }
    extent->instant = instant;
    extent->kind = GML_EXTENT_FREE;
    extent->set = set;
    extent->owner = NULL;
    gml_freeset_add(set, extent, home->chunk_bytes);
    return extent;
}

static void
add_absent(gml_home *home, gml_extent *extent)
{
    extent->fit.size_bytes = extent->offset;
    extent->fit.address = 0;
    gml_tree_insert(&home->absent, &extent->fit);
}

/* Makes an extent that is in no tree absent, merged with its neighbours. */
static void
set_absent(gml_home *home, gml_extent *extent)
{
    if (extent->next && extent->next->kind == GML_EXTENT_ABSENT) {
        gml_tree_remove(&home->absent, &extent->next->fit);
        gml_tiling_absorb(home, extent);
    }
    if (extent->previous && extent->previous->kind == GML_EXTENT_ABSENT) {
        extent = extent->previous;
        gml_tree_remove(&home->absent, &extent->fit);
        gml_tiling_absorb(home, extent);
    }
    extent->kind = GML_EXTENT_ABSENT;
    extent->set = NULL;
    extent->owner = NULL;
    add_absent(home, extent);
}

/* Cuts [offset, offset + size) out of an extent that is in no tree; the parts beside it, which may
 * be NULL, are in no tree either. */
static gml_extent *
cut_out(gml_home *home, gml_extent *extent, uint64_t offset, uint64_t size_bytes,
        gml_extent **before, gml_extent **behind)
{
    *before = NULL;
    *behind = NULL;
    if (offset > extent->offset) {
        *before = extent;
        extent = gml_tiling_split(home, extent, offset);
    }
    if (extent->size_bytes > size_bytes) {
        *behind = gml_tiling_split(home, extent, offset + size_bytes);
    }
    return extent;
}

/* Cuts a range out of the free extent that covers it; what is left stays free. */
static gml_extent *
take_out(gml_home *home, uint64_t offset, uint64_t size_bytes)
{
    gml_extent *extent = gml_home_find(home, offset);
    gml_freeset *set = extent->set;
    gml_extent *before, *behind;
    gml_freeset_remove(set, extent);
    extent = cut_out(home, extent, offset, size_bytes, &before, &behind);
    if (before) {
        gml_freeset_add(set, before, home->chunk_bytes);
    }
    if (behind) {
        gml_freeset_add(set, behind, home->chunk_bytes);
    }
    return extent;
}

gml_extent *
gml_home_claim(gml_home *home, uint64_t offset, uint64_t size_bytes, void *owner)
{
    gml_extent *extent = take_out(home, offset, size_bytes);
    extent->kind = GML_EXTENT_USED;
    extent->set = NULL;
    extent->owner = owner;
    return extent;
}

void
gml_home_unclaim(gml_home *home, gml_extent *extent, gml_freeset *set, uint64_t instant)
{
    (void)set_free(home, extent, set, instant);
}

gml_extent *
gml_home_move(gml_home *home, uint64_t offset, uint64_t size_bytes, gml_freeset *set,
              uint64_t instant)
{
    return set_free(home, take_out(home, offset, size_bytes), set, instant);
}

/* Creates the chunks of [first, first + count) that have no handle left over from a failure. */
static gml_status
create_handles(gml_home *home, uint64_t first, uint64_t count)
{
    for (uint64_t chunk = first; chunk < first + count; chunk++) {
        if (home->handles[chunk]) {
            continue;
        }
        size_t created;
        gml_status status =
            gml_chunks_create(home->driver, home->chunk_bytes, 1, &home->handles[chunk], &created);
        home->handle_count += created;
        if (status != GML_OK) {
            return status;
        }
    }
    return GML_OK;
}

static uint64_t
count_handles(const gml_home *home, uint64_t first, uint64_t count)
{
    uint64_t held = 0;
    for (uint64_t chunk = first; chunk < first + count; chunk++) {
        held += home->handles[chunk] != 0;
    }
    return held;
}

/* Releases the handles of [first, first + count); those refused stay, and stay counted. */
static gml_status
release_handles(gml_home *home, uint64_t first, uint64_t count)
{
    uint64_t held = count_handles(home, first, count);
    gml_status status = gml_chunks_release(home->driver, &home->handles[first], count);
    home->handle_count -= held - count_handles(home, first, count);
    return status;
}

/* Makes the first `count` chunks of an absent extent present and free in `set`. */
static gml_status
grow_run(gml_home *home, gml_extent *extent, uint64_t count, gml_freeset *set)
{
    uint64_t first = extent->offset / home->chunk_bytes;
    gml_status status = create_handles(home, first, count);
    if (status == GML_OK) {
        home->stuck_offset = extent->offset;
        status =
            gml_mapping_add(home->driver, home->base + extent->offset, home->chunk_bytes,
                            &home->handles[first], count, GML_ACCESS_RANGE, &home->stuck_bytes);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_extent *before, *behind;
    gml_tree_remove(&home->absent, &extent->fit);
    extent = cut_out(home, extent, extent->offset, count * home->chunk_bytes, &before, &behind);
    if (behind) {
        add_absent(home, behind);
    }
    (void)set_free(home, extent, set, 0);
    home->present_count += count;
    return GML_OK;
}

gml_status
gml_home_release_leftovers(gml_home *home, uint64_t *released_bytes)
{
    /* Releasing what is still mapped would only hide it: the memory goes with the mapping. */
    gml_status first = clear_stuck(home);
    if (first != GML_OK) {
        return first;
    }
    uint64_t before = home->handle_count;
    gml_tree_node *node = gml_tree_first(&home->absent);
    for (; node && home->handle_count > home->present_count; node = gml_tree_next(node)) {
        const gml_extent *extent = gml_extent_of_fit(node);
        first = gml_first_failure(first, release_handles(home, extent->offset / home->chunk_bytes,
                                                         extent->size_bytes / home->chunk_bytes));
    }
    *released_bytes += (before - home->handle_count) * home->chunk_bytes;
    return first;
}

/* Whether the driver's limit lets in `bytes` more. */
static gml_status
check_limit(gml_home *home, uint64_t bytes)
{
    if (bytes <= gml_driver_room(home->driver)) {
        return GML_OK;
    }
    return gml_driver_fail(home->driver, GML_OUT_OF_MEMORY,
                           "%" PRIu64 " bytes more asked for, and the limit of %" PRIu64
                           " leaves %" PRIu64,
                           bytes, home->driver->limit_bytes, gml_driver_room(home->driver));
}

/* From this many chunks on it pays to ask the driver first, instead of creating most of them in
 * vain when another process holds the memory. */
enum { ASK_FIRST_CHUNKS = 32 };

static gml_status
check_room(gml_home *home, uint64_t count)
{
    uint64_t free_bytes = UINT64_MAX, total_bytes;
    uint64_t leftover = home->handle_count - home->present_count;
    uint64_t new_bytes = count > leftover ? (count - leftover) * home->chunk_bytes : 0;
    gml_status status = check_limit(home, new_bytes);
    if (status == GML_OK && count >= ASK_FIRST_CHUNKS) {
        status = gml_driver_memory_info(home->driver, &free_bytes, &total_bytes);
    }
    if (status == GML_OK && new_bytes > free_bytes) {
        status = gml_driver_fail(home->driver, GML_OUT_OF_MEMORY,
                                 "%" PRIu64 " more chunks asked for, and the device has %" PRIu64
                                 " bytes free",
                                 count, free_bytes);
    }
    return status;
}

gml_status
gml_home_grow(gml_home *home, uint64_t count, gml_freeset *set)
{
    if (count > home->slots - home->present_count) {
        return gml_driver_fail(home->driver, GML_OUT_OF_MEMORY,
                               "%" PRIu64 " more chunks asked for, and %" PRIu64 " of %" PRIu64
                               " are held",
                               count, home->present_count, home->slots);
    }
    gml_status status = clear_stuck(home);
    if (status == GML_OK) {
        status = check_room(home, count);
    }
    while (count && status == GML_OK) {
        gml_extent *extent = gml_extent_of_fit(gml_tree_first(&home->absent));
        uint64_t run = extent->size_bytes / home->chunk_bytes;
        run = run < count ? run : count;
        status = gml_home_prepare(home, 2);
        if (status == GML_OK) {
            status = grow_run(home, extent, run, set);
        }
        count -= run;
    }
    if (status != GML_OK) {
        uint64_t released_bytes = 0;
        (void)gml_home_release_leftovers(home, &released_bytes);
    }
    return status;
}

gml_status
gml_home_shrink(gml_home *home, gml_extent *extent, uint64_t *released_bytes)
{
    uint64_t offset = extent->whole.address;
    uint64_t size_bytes = extent->whole.size_bytes;
    gml_status status = gml_home_prepare(home, 2);
    if (status == GML_OK) {
        status = gml_driver_unmap(home->driver, home->base + offset, size_bytes);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_extent *taken = gml_home_claim(home, offset, size_bytes, NULL);
    set_absent(home, taken);
    home->present_count -= size_bytes / home->chunk_bytes;
    uint64_t before = home->handle_count;
    status = release_handles(home, offset / home->chunk_bytes, size_bytes / home->chunk_bytes);
    *released_bytes += (before - home->handle_count) * home->chunk_bytes;
    return status;
}

static gml_status
check_extent(const gml_home *home, const gml_extent *extent, uint64_t expected_offset)
{
    const gml_extent *next = extent->next;
    bool merges = next && next->kind == extent->kind && extent->kind != GML_EXTENT_USED &&
                  next->set == extent->set;
    if (extent->offset != expected_offset || (next && next->previous != extent) || merges ||
        gml_home_find(home, extent->offset) != extent) {
        return gml_driver_fail(home->driver, GML_CORRUPT,
                               "the extent at offset %" PRIu64 " is not where it should be",
                               extent->offset);
    }
    if (extent->kind == GML_EXTENT_ABSENT) {
        return GML_OK;
    }
    uint64_t first = extent->offset / home->chunk_bytes;
    uint64_t last = (extent->offset + extent->size_bytes - 1) / home->chunk_bytes;
    for (uint64_t chunk = first; chunk <= last; chunk++) {
        if (!home->handles[chunk]) {
            return gml_driver_fail(home->driver, GML_CORRUPT,
                                   "chunk %" PRIu64 " is in use and has no handle", chunk);
        }
    }
    return GML_OK;
}

gml_status
gml_home_check(const gml_home *home)
{
    uint64_t offset = 0, absent = 0, present_bytes = 0;
    gml_status status = GML_OK;
    for (const gml_extent *extent = gml_home_find(home, 0); extent && status == GML_OK;
         extent = extent->next) {
        status = check_extent(home, extent, offset);
        offset += extent->size_bytes;
        absent += extent->kind == GML_EXTENT_ABSENT;
        present_bytes += extent->kind == GML_EXTENT_ABSENT ? 0 : extent->size_bytes;
    }
    uint64_t handles = count_handles(home, 0, home->slots);
    if (status == GML_OK &&
        (offset != home->slots * home->chunk_bytes || absent != home->absent.count ||
         !gml_tree_is_valid(&home->absent) || handles != home->handle_count ||
         present_bytes != home->present_count * home->chunk_bytes)) {
        status = gml_driver_fail(home->driver, GML_CORRUPT,
                                 "extents cover %" PRIu64 " bytes, %" PRIu64
                                 " chunks have handles and %" PRIu64 " are counted",
                                 offset, handles, home->handle_count);
    }
    return status;
}
