/* The base range: the extents that tile it, growing, shrinking and lending it. */
#include "core/base_range.h"

#include "base/room.h"
#include "base/rounding.h"
#include "base/size.h"
#include "base/status.h"
#include "core/freeset.h"
#include "core/mapping.h"
#include "driver/handed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tiling: extents as a list in address order, with an index by granule ---------------- */

enum { WORD_BITS = 64 };

static void set_start(gml_base_range *range, uint64_t slot, gml_extent *extent) {
    uint64_t word = slot / WORD_BITS;
    range->starts[slot] = extent;
    if (extent) {
        range->start_bits[word] |= UINT64_C(1) << (slot % WORD_BITS);
        range->start_words[word / WORD_BITS] |= UINT64_C(1) << (word % WORD_BITS);
        return;
    }
    range->start_bits[word] &= ~(UINT64_C(1) << (slot % WORD_BITS));
    if (!range->start_bits[word]) {
        range->start_words[word / WORD_BITS] &= ~(UINT64_C(1) << (word % WORD_BITS));
    }
}

/* The highest set bit of `word` at or below `bit`, or -1. */
static int highest_up_to(uint64_t word, uint64_t bit) {
    uint64_t below = word & (UINT64_MAX >> (WORD_BITS - 1 - bit));
    return below ? WORD_BITS - 1 - __builtin_clzll(below) : -1;
}

/* The last slot at or before `slot` in which an extent begins. One does in slot 0. */
static uint64_t last_start(const gml_base_range *range, uint64_t slot) {
    uint64_t word = slot / WORD_BITS;
    int bit = highest_up_to(range->start_bits[word], slot % WORD_BITS);
    if (bit >= 0) {
        return word * WORD_BITS + (uint64_t)bit;
    }
    uint64_t group = (word - 1) / WORD_BITS;
    int in_group = highest_up_to(range->start_words[group], (word - 1) % WORD_BITS);
    while (in_group < 0) {
        group--;
        in_group = highest_up_to(range->start_words[group], WORD_BITS - 1);
    }
    word = group * WORD_BITS + (uint64_t)in_group;
    return word * WORD_BITS + (uint64_t)highest_up_to(range->start_bits[word], WORD_BITS - 1);
}

gml_extent *gml_base_range_find(const gml_base_range *range, uint64_t offset) {
    uint64_t slot = offset / range->granule_bytes;
    gml_extent *extent = range->starts[slot];
    if (slot && (!extent || extent->offset > offset)) {
        extent = range->starts[last_start(range, slot - 1)];
    }
    while (extent->offset + extent->size_bytes <= offset) {
        extent = extent->next;
    }
    return extent;
}

static void close_tiling(gml_base_range *range) {
    free(range->starts);
    free(range->start_bits);
    free(range->start_words);
    gml_pool_clear(&range->extents);
}

/* Begins a tiling of one absent extent over every slot. */
static gml_status open_tiling(gml_base_range *range) {
    uint64_t words = range->slots / WORD_BITS + 1;
    range->extents.object_bytes = sizeof(gml_extent);
    range->starts = calloc(range->slots, sizeof *range->starts);
    range->start_bits = calloc(words, sizeof *range->start_bits);
    range->start_words = calloc(words / WORD_BITS + 1, sizeof *range->start_words);
    gml_extent *all = gml_pool_take(&range->extents);
    if (!range->starts || !range->start_bits || !range->start_words || !all) {
        close_tiling(range);
        return gml_driver_fail(range->driver, GML_NO_HOST_MEMORY,
                               "no host memory for the index of %zu granules",
                               (size_t)range->slots);
    }
    all->size_bytes = range->slots * range->granule_bytes;
    all->kind = GML_EXTENT_ABSENT;
    all->fit.size_bytes = all->offset;
    gml_tree_insert(&range->absent, &all->fit);
    set_start(range, 0, all);
    return GML_OK;
}

/* Splits an extent at `offset`, strictly inside it, and returns the right part, a copy of the left
 * except for its range. Neither may be in a tree. pre: one extent is prepared. */
static gml_extent *split_extent(gml_base_range *range, gml_extent *extent, uint64_t offset) {
    gml_extent *right = gml_pool_take(&range->extents);
    right->kind = extent->kind;
    right->set = extent->set;
    right->owner = extent->owner;
    right->instant = extent->instant;
    right->offset = offset;
    right->size_bytes = extent->offset + extent->size_bytes - offset;
    right->previous = extent;
    right->next = extent->next;
    if (right->next) {
        right->next->previous = right;
    }
    extent->next = right;
    extent->size_bytes = offset - extent->offset;

    uint64_t slot = offset / range->granule_bytes;
    const gml_extent *first = range->starts[slot];
    if (!first || first->offset > offset) {
        set_start(range, slot, right);
    }
    return right;
}

/* Merges `left` with its next neighbour, which is freed. Neither may be in a tree. */
static void absorb_next(gml_base_range *range, gml_extent *left) {
    gml_extent *gone = left->next;
    uint64_t slot = gone->offset / range->granule_bytes;
    left->size_bytes += gone->size_bytes;
    left->next = gone->next;
    if (left->next) {
        left->next->previous = left;
    }
    if (range->starts[slot] == gone) {
        bool begins_here = left->next && left->next->offset / range->granule_bytes == slot;
        set_start(range, slot, begins_here ? left->next : NULL);
    }
    gml_pool_give(&range->extents, gone);
}

/* ---- opening and closing --------------------------------------------------------------------- */

gml_status gml_base_range_open(gml_base_range *range, gml_driver *driver, uint64_t granule_bytes,
                               uint64_t slots, uint64_t host_bytes) {
    uint64_t host_slots = host_bytes / granule_bytes;
    slots += host_slots;
    *range = (gml_base_range){.driver = driver,
                              .granule_bytes = granule_bytes,
                              .slots = slots,
                              .host_limit = host_slots * granule_bytes};
    range->largest_bytes = granule_bytes;
    range->handles = calloc(slots, sizeof *range->handles);
    range->orders = calloc(slots + 1, 1);
    gml_status status = GML_OK;
    if (!range->handles || !range->orders) {
        status = gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                                 "no host memory for %" PRIu64 " chunks", slots);
    }
    if (status == GML_OK) {
        status = open_tiling(range);
    }
    if (status == GML_OK) {
        status = gml_driver_reserve(driver, slots * granule_bytes, 0, &range->base);
        if (status != GML_OK) {
            close_tiling(range);
        }
    }
    if (status != GML_OK) {
        free(range->handles);
        free(range->orders);
    }
    return status;
}

/* The end of the run of extents from `extent` on that are all present; *next is behind it. */
static uint64_t present_end(const gml_extent *extent, const gml_extent **next) {
    while (extent->next && extent->next->kind != GML_EXTENT_ABSENT) {
        extent = extent->next;
    }
    *next = extent->next;
    return extent->offset + extent->size_bytes;
}

/* Unmaps what an earlier growth could not. */
static gml_status clear_stuck(gml_base_range *range) {
    if (!range->stuck_bytes) {
        return GML_OK;
    }
    if (gml_driver_is_frozen(range->driver)) {
        return gml_driver_fail(range->driver, GML_OUT_OF_MEMORY,
                               "the base range cannot grow while a graph is being captured: "
                               "addresses of an earlier growth must be unmapped first");
    }
    gml_status status =
        gml_unmap_finally(range->driver, range->base + range->stuck_offset, range->stuck_bytes);
    if (status == GML_OK) {
        range->stuck_bytes = 0;
    }
    return status;
}

gml_status gml_base_range_close(gml_base_range *range) {
    gml_status first = clear_stuck(range);
    const gml_extent *extent = gml_base_range_find(range, 0);
    while (extent) {
        const gml_extent *next = extent->next;
        if (extent->kind != GML_EXTENT_ABSENT) {
            uint64_t end = present_end(extent, &next);
            first = gml_first_failure(first,
                                      gml_unmap_finally(range->driver, range->base + extent->offset,
                                                        end - extent->offset));
        }
        extent = next;
    }
    first = gml_first_failure(
        first, gml_chunks_release_finally(range->driver, range->handles, range->slots));
    first = gml_first_failure(first, gml_unreserve_finally(range->driver, range->base,
                                                           range->slots * range->granule_bytes));
    close_tiling(range);
    free(range->handles);
    free(range->orders);
    free(range->collected);
    return first;
}

gml_status gml_base_range_prepare(gml_base_range *range, size_t count) {
    if (gml_pool_reserve(&range->extents, count)) {
        return GML_OK;
    }
    return gml_driver_fail(range->driver, GML_NO_HOST_MEMORY, "no host memory for %zu extents",
                           count);
}

static bool is_free_in(const gml_extent *extent, const gml_freeset *set) {
    return extent && extent->kind == GML_EXTENT_FREE && extent->set == set;
}

static uint64_t later(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

/* Makes an extent that is in no tree free in `set`, merged with its neighbours there. */
static gml_extent *set_free(gml_base_range *range, gml_extent *extent, gml_freeset *set,
                            uint64_t instant) {
    if (is_free_in(extent->next, set)) {
        instant = later(instant, extent->next->instant);
        gml_freeset_remove(set, extent->next);
        absorb_next(range, extent);
    }
    if (is_free_in(extent->previous, set)) {
        extent = extent->previous;
        instant = later(instant, extent->instant);
        gml_freeset_remove(set, extent);
        absorb_next(range, extent);
    }
    extent->instant = instant;
    extent->kind = GML_EXTENT_FREE;
    extent->set = set;
    extent->owner = NULL;
    gml_freeset_add(set, extent, range);
    return extent;
}

static void add_absent(gml_base_range *range, gml_extent *extent) {
    extent->fit.size_bytes = extent->offset;
    extent->fit.address = 0;
    gml_tree_insert(&range->absent, &extent->fit);
}

/* Makes an extent that is in no tree absent, merged with its neighbours. */
static void set_absent(gml_base_range *range, gml_extent *extent) {
    if (extent->next && extent->next->kind == GML_EXTENT_ABSENT) {
        gml_tree_remove(&range->absent, &extent->next->fit);
        absorb_next(range, extent);
    }
    if (extent->previous && extent->previous->kind == GML_EXTENT_ABSENT) {
        extent = extent->previous;
        gml_tree_remove(&range->absent, &extent->fit);
        absorb_next(range, extent);
    }
    extent->kind = GML_EXTENT_ABSENT;
    extent->set = NULL;
    extent->owner = NULL;
    add_absent(range, extent);
}

/* Cuts [offset, offset + size) out of an extent that is in no tree; the parts beside it, which may
 * be NULL, are in no tree either. */
static gml_extent *cut_out(gml_base_range *range, gml_extent *extent, uint64_t offset,
                           uint64_t size_bytes, gml_extent **before, gml_extent **behind) {
    *before = NULL;
    *behind = NULL;
    if (offset > extent->offset) {
        *before = extent;
        extent = split_extent(range, extent, offset);
    }
    if (extent->size_bytes > size_bytes) {
        *behind = split_extent(range, extent, offset + size_bytes);
    }
    return extent;
}

/* Cuts a range out of the free extent that covers it; the remainder stays free. */
static gml_extent *take_out(gml_base_range *range, uint64_t offset, uint64_t size_bytes) {
    gml_extent *extent = gml_base_range_find(range, offset);
    gml_freeset *set = extent->set;
    gml_extent *before, *behind;
    gml_freeset_remove(set, extent);
    extent = cut_out(range, extent, offset, size_bytes, &before, &behind);
    if (before) {
        gml_freeset_add(set, before, range);
    }
    if (behind) {
        gml_freeset_add(set, behind, range);
    }
    return extent;
}

gml_extent *gml_base_range_claim(gml_base_range *range, uint64_t offset, uint64_t size_bytes,
                                 void *owner) {
    gml_extent *extent = take_out(range, offset, size_bytes);
    extent->kind = GML_EXTENT_USED;
    extent->set = NULL;
    extent->owner = owner;
    return extent;
}

void gml_base_range_unclaim(gml_base_range *range, gml_extent *extent, gml_freeset *set,
                            uint64_t instant) {
    (void)set_free(range, extent, set, instant);
}

gml_extent *gml_base_range_move(gml_base_range *range, uint64_t offset, uint64_t size_bytes,
                                gml_freeset *set, uint64_t instant) {
    return set_free(range, take_out(range, offset, size_bytes), set, instant);
}

gml_status gml_base_range_collect(gml_base_range *range, uint64_t offset, uint64_t size_bytes) {
    uint64_t end = offset + size_bytes;
    for (uint64_t at = gml_base_range_chunk_begin(range, offset); at < end;
         at += gml_base_range_chunk_bytes(range, at)) {
        if (!gml_make_room(&range->collected, &range->collected_room, range->collected_count + 1,
                           sizeof *range->collected)) {
            return gml_driver_fail(range->driver, GML_NO_HOST_MEMORY,
                                   "no host memory for a mapping of more than %zu chunks",
                                   range->collected_count);
        }
        range->collected[range->collected_count++] = range->handles[at / range->granule_bytes];
    }
    return GML_OK;
}

/* Notes that a chunk of 1 << `order` granules covers those from `slot` on; order 0 where none does.
 */
static void set_order(gml_base_range *range, uint64_t slot, unsigned order, uint64_t granules) {
    memset(&range->orders[slot], (int)order, granules);
}

static uint64_t *held_on(gml_base_range *range, bool is_on_host) {
    return is_on_host ? &range->host_bytes : &range->held_bytes;
}

/* Releases the chunks that begin in [first, first + count); those refused stay, and are counted. */
static gml_status release_chunks(gml_base_range *range, uint64_t first, uint64_t count) {
    gml_status status = GML_OK;
    for (uint64_t slot = first; slot < first + count; slot++) {
        if (!range->handles[slot]) {
            continue;
        }
        uint64_t granules = UINT64_C(1) << range->orders[slot];
        bool is_on_host = gml_base_range_is_on_host(range, slot * range->granule_bytes);
        status =
            gml_first_failure(status, gml_chunks_release(range->driver, &range->handles[slot], 1));
        if (!range->handles[slot]) {
            *held_on(range, is_on_host) -= granules * range->granule_bytes;
            range->chunk_count--;
            set_order(range, slot, 0, granules);
        }
    }
    return status;
}

/* Whether chunks are left over in [first, first + count). */
static bool has_handle(const gml_base_range *range, uint64_t first, uint64_t count) {
    bool has = false;
    for (uint64_t i = 0; i < count && !has; i++) {
        has = range->handles[first + i] != 0;
    }
    return has;
}

/* The order of a new chunk at `slot`: as large as alignment, the `granules` to come, `most_order`
 * and chunks left over behind it allow. */
static unsigned order_at(const gml_base_range *range, uint64_t slot, uint64_t granules,
                         unsigned most_order) {
    unsigned order = 0;
    for (uint64_t half = 1; order < most_order && slot % (2 * half) == 0 && 2 * half <= granules &&
                            !has_handle(range, slot + half, half);
         half *= 2) {
        order++;
    }
    return order;
}

/* Creates chunks from `slot` on until they cover `granules`, or slightly more if a leftover handle
 * is reused. *made: the granules that have a chunk, also after a failure. */
static gml_status create_chunks(gml_base_range *range, uint64_t slot, uint64_t granules,
                                unsigned most_order, uint64_t *made) {
    *made = 0;
    while (*made < granules) {
        uint64_t at = slot + *made;
        if (!range->handles[at]) {
            unsigned order = order_at(range, at, granules - *made, most_order);
            uint64_t chunk_bytes = range->granule_bytes << order;
            gml_handle *made_at = &range->handles[at];
            gml_status status = range->takes_host
                                    ? gml_driver_create_on_host(range->driver, chunk_bytes, made_at)
                                    : gml_driver_create(range->driver, chunk_bytes, made_at);
            if (status != GML_OK) {
                return status;
            }
            *held_on(range, range->takes_host) += chunk_bytes;
            range->chunk_count++;
            if (range->largest_bytes < chunk_bytes) {
                range->largest_bytes = chunk_bytes;
            }
            set_order(range, at, order, UINT64_C(1) << order);
        }
        *made += UINT64_C(1) << range->orders[at];
    }
    return GML_OK;
}

/* Makes *granules of an absent extent, from `offset` on, present and free in `set`; *granules: how
 * many it became. */
static gml_status grow_run(gml_base_range *range, gml_extent *extent, uint64_t offset,
                           unsigned most_order, gml_freeset *set, uint64_t *granules) {
    uint64_t first = offset / range->granule_bytes;
    gml_status status = create_chunks(range, first, *granules, most_order, granules);
    range->collected_count = 0;
    if (status == GML_OK) {
        status = gml_base_range_collect(range, offset, *granules * range->granule_bytes);
    }
    if (status == GML_OK) {
        range->stuck_offset = offset;
        status = gml_mapping_add(range->driver, range->base + offset, range->collected,
                                 range->collected_count, &range->stuck_bytes);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_extent *before, *behind;
    gml_tree_remove(&range->absent, &extent->fit);
    extent = cut_out(range, extent, offset, *granules * range->granule_bytes, &before, &behind);
    if (before) {
        add_absent(range, before);
    }
    if (behind) {
        add_absent(range, behind);
    }
    (void)set_free(range, extent, set, 0);
    range->present_bytes += *granules * range->granule_bytes;
    range->driver->gone->changes++;
    return GML_OK;
}

gml_status gml_base_range_release_leftovers(gml_base_range *range, uint64_t *released_bytes) {
    /* Releasing a mapped handle would only hide it: the memory lives until it is unmapped. */
    gml_status first = clear_stuck(range);
    if (first != GML_OK) {
        return first;
    }
    uint64_t before_bytes = range->held_bytes;
    gml_tree_node *node = gml_tree_first(&range->absent);
    for (; node && gml_base_range_leftover(range); node = gml_tree_next(node)) {
        const gml_extent *extent = gml_extent_of_fit(node);
        first =
            gml_first_failure(first, release_chunks(range, extent->offset / range->granule_bytes,
                                                    extent->size_bytes / range->granule_bytes));
    }
    *released_bytes += before_bytes - range->held_bytes;
    return first;
}

/* Whether the driver's limit lets in `bytes` more. */
static gml_status check_limit(gml_base_range *range, uint64_t bytes) {
    if (bytes <= gml_device_room(range->driver->device)) {
        return GML_OK;
    }
    return gml_driver_fail(range->driver, GML_OUT_OF_MEMORY,
                           "%s more asked for, and the limit of %s leaves %s",
                           gml_size_of(bytes).text,
                           gml_size_of(GML_DEVICE_READ(range->driver->device, limit_bytes)).text,
                           gml_size_of(gml_device_room(range->driver->device)).text);
}

/* From this many bytes on it pays to ask the driver first, instead of creating most of the chunks
 * in vain when another process holds the memory; the answer also shows how scarce memory is. */
#define ASK_FIRST_BYTES (UINT64_C(64) << 20)

static gml_status check_room(gml_base_range *range, uint64_t size_bytes) {
    uint64_t free_bytes = UINT64_MAX, total_bytes;
    uint64_t there_bytes = gml_base_range_leftover(range) + gml_driver_spare(range->driver);
    uint64_t new_bytes = size_bytes > there_bytes ? size_bytes - there_bytes : 0;
    gml_status status = check_limit(range, new_bytes);
    uint64_t handed_bytes = gml_handed_bytes(gml_handed_to(range->driver->device));
    new_bytes -= handed_bytes < new_bytes ? handed_bytes : new_bytes;
    uint64_t spare_bytes = new_bytes ? gml_device_spare(range->driver->device) : 0;
    if (status == GML_OK && new_bytes && (size_bytes >= ASK_FIRST_BYTES || spare_bytes)) {
        status = gml_driver_memory_info(range->driver, &free_bytes, &total_bytes);
    }
    if (status == GML_OK && new_bytes + spare_bytes > free_bytes) {
        status = gml_driver_fail(range->driver, GML_OUT_OF_MEMORY,
                                 "%s more asked for, and the device has %s free",
                                 gml_size_of(size_bytes).text, gml_size_of(free_bytes).text);
    }
    return status;
}

uint64_t gml_base_range_gap(const gml_base_range *range, uint64_t chunk_bytes) {
    const gml_driver *driver = range->driver;
    bool may_leave_gaps = GML_DEVICE_READ(driver->device, spare_bytes) && !driver->arena_bytes;
    gml_tree_node *lowest = gml_tree_first(&range->absent), *node = may_leave_gaps ? lowest : NULL;
    for (; node; node = gml_tree_next(node)) {
        const gml_extent *extent = gml_extent_of_fit(node);
        uint64_t begin = gml_round_up(extent->offset, chunk_bytes);
        if (begin + chunk_bytes <= extent->offset + extent->size_bytes) {
            return begin;
        }
    }
    return lowest ? gml_extent_of_fit(lowest)->offset : range->slots * range->granule_bytes;
}

uint64_t gml_base_range_end(const gml_base_range *range) {
    gml_tree_node *highest = gml_tree_last(&range->absent);
    const gml_extent *extent = highest ? gml_extent_of_fit(highest) : NULL;
    return extent ? extent->offset + extent->size_bytes : 0;
}

/* Where the next run begins, and how many granules of it are absent: at most `missing`, unless a
 * chunk left over from a failure is to be used whole. */
static uint64_t next_run(const gml_base_range *range, uint64_t chunk_bytes, bool at_end,
                         uint64_t missing, uint64_t *granules) {
    if (at_end) {
        uint64_t end = gml_base_range_end(range), missing_bytes = missing * range->granule_bytes;
        const gml_extent *last = gml_base_range_find(range, end - range->granule_bytes);
        uint64_t from = missing_bytes < last->size_bytes ? end - missing_bytes : last->offset;
        from = gml_base_range_chunk_begin(range, from);
        *granules = (end - from) / range->granule_bytes;
        return from;
    }
    uint64_t offset = gml_base_range_gap(range, chunk_bytes);
    const gml_extent *extent = gml_base_range_find(range, offset);
    *granules = (extent->offset + extent->size_bytes - offset) / range->granule_bytes;
    *granules = *granules < missing ? *granules : missing;
    return offset;
}

gml_status gml_base_range_grow(gml_base_range *range, uint64_t size_bytes, uint64_t chunk_bytes,
                               bool at_end, gml_freeset *set) {
    uint64_t all_bytes = range->slots * range->granule_bytes - range->host_limit;
    uint64_t there_bytes = gml_difference(range->held_bytes, gml_base_range_leftover(range));
    gml_driver_note(range->driver, GML_TRIED_DRIVER);
    if (!range->takes_host && size_bytes > gml_difference(all_bytes, there_bytes)) {
        return gml_driver_fail(range->driver, GML_OUT_OF_MEMORY,
                               "%s more asked for, and %s of %s are held",
                               gml_size_of(size_bytes).text, gml_size_of(there_bytes).text,
                               gml_size_of(all_bytes).text);
    }
    unsigned most_order = 0;
    while (range->granule_bytes << (most_order + 1) <= chunk_bytes) {
        most_order++;
    }
    gml_status status = clear_stuck(range);
    if (status == GML_OK && !range->takes_host) {
        status = check_room(range, size_bytes);
    }
    uint64_t missing = size_bytes / range->granule_bytes;
    while (missing && status == GML_OK) {
        uint64_t granules;
        uint64_t offset = next_run(range, chunk_bytes, at_end, missing, &granules);
        status = gml_base_range_prepare(range, 2);
        if (status == GML_OK) {
            status = grow_run(range, gml_base_range_find(range, offset), offset, most_order, set,
                              &granules);
        }
        missing -= granules < missing ? granules : missing;
    }
    if (status != GML_OK) {
        uint64_t released_bytes = 0;
        gml_driver_begin_undo(range->driver);
        (void)gml_base_range_release_leftovers(range, &released_bytes);
        gml_driver_end_undo(range->driver);
    }
    return status;
}

gml_status gml_base_range_shrink(gml_base_range *range, const gml_extent *extent, uint64_t offset,
                                 uint64_t *released_bytes) {
    uint64_t end = extent->whole.address + extent->whole.size_bytes;
    offset = later(offset, extent->whole.address);
    uint64_t size_bytes = end - offset;
    gml_status status = gml_base_range_prepare(range, 2);
    if (status == GML_OK) {
        status = gml_driver_end_aliases(range->driver, range->base + offset, size_bytes);
    }
    if (status == GML_OK) {
        status = gml_driver_unmap(range->driver, range->base + offset, size_bytes);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_extent *taken = gml_base_range_claim(range, offset, size_bytes, NULL);
    set_absent(range, taken);
    range->present_bytes -= size_bytes;
    range->driver->gone->changes++;
    uint64_t before_bytes = range->held_bytes;
    status =
        release_chunks(range, offset / range->granule_bytes, size_bytes / range->granule_bytes);
    *released_bytes += before_bytes - range->held_bytes;
    return status;
}

static gml_status check_extent(const gml_base_range *range, const gml_extent *extent,
                               uint64_t expected_offset) {
    const gml_extent *next = extent->next;
    bool merges = next && next->kind == extent->kind && extent->kind != GML_EXTENT_USED &&
                  next->set == extent->set;
    if (extent->offset != expected_offset || (next && next->previous != extent) || merges ||
        gml_base_range_find(range, extent->offset) != extent) {
        return gml_driver_fail(range->driver, GML_CORRUPT,
                               "the extent at offset %" PRIu64 " is not where it should be",
                               extent->offset);
    }
    uint64_t end = extent->offset + extent->size_bytes;
    bool is_present = extent->kind != GML_EXTENT_ABSENT;
    for (uint64_t at = gml_base_range_chunk_begin(range, extent->offset); is_present && at < end;
         at += gml_base_range_chunk_bytes(range, at)) {
        gml_handle handle = range->handles[at / range->granule_bytes];
        if (!handle ||
            gml_driver_size(range->driver, handle) != gml_base_range_chunk_bytes(range, at)) {
            return gml_driver_fail(range->driver, GML_CORRUPT,
                                   "the chunk at offset %" PRIu64 " is in use and has no handle",
                                   at);
        }
    }
    return GML_OK;
}

gml_status gml_base_range_check(const gml_base_range *range) {
    uint64_t offset = 0, absent = 0, present_bytes = 0;
    gml_status status = GML_OK;
    for (const gml_extent *extent = gml_base_range_find(range, 0); extent && status == GML_OK;
         extent = extent->next) {
        status = check_extent(range, extent, offset);
        offset += extent->size_bytes;
        absent += extent->kind == GML_EXTENT_ABSENT;
        present_bytes += extent->kind == GML_EXTENT_ABSENT ? 0 : extent->size_bytes;
    }
    uint64_t held_bytes = 0, chunks = 0;
    for (uint64_t slot = 0; slot < range->slots; slot++) {
        held_bytes += range->handles[slot] ? range->granule_bytes << range->orders[slot] : 0;
        chunks += range->handles[slot] != 0;
    }
    if (status == GML_OK &&
        (offset != range->slots * range->granule_bytes || absent != range->absent.count ||
         !gml_tree_is_valid(&range->absent) ||
         held_bytes != range->held_bytes + range->host_bytes || chunks != range->chunk_count ||
         present_bytes != range->present_bytes)) {
        status = gml_driver_fail(range->driver, GML_CORRUPT,
                                 "extents cover %" PRIu64 " bytes, chunks %" PRIu64 ", and %" PRIu64
                                 " are counted",
                                 offset, held_bytes, range->held_bytes);
    }
    return status;
}
