/* The policy `expandable`: PyTorch's caching allocator with expandable_segments:True. Per stream
 * and pool it grows one range of addresses, so that its memory is contiguous where possible.
 *
 * The capacity bounds mapped memory, as the device's memory does; memory_limit bounds the size a
 * segment would have had, as PyTorch's own limit does. Unlike in PyTorch a partial failure is
 * undone, and there is no garbage collection: PyTorch's collects blocks that are a whole segment,
 * which expandable segments never have. */
#include "base/rounding.h"
#include "base/size.h"
#include "policy/torch/expandable_segment.h"
#include "policy/torch/heap.h"
#include "policy/torch/heap_check.h"

static gml_status expandable_destroy(gml_policy *self) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    gml_status first = GML_OK;
    for (gml_torch_segment *segment = heap->segments; segment; segment = segment->next) {
        gml_status status = gml_expandable_segment_abandon(heap, (gml_expandable_segment *)segment);
        if (first == GML_OK) {
            first = status;
        }
    }
    gml_torch_heap_destroy(heap);
    return first;
}

/* ---- finding a free block -------------------------------------------------------------------- */

/* The size to which the block could grow in place, used as its size for best fit. */
static uint64_t expandable_bytes(const gml_torch_block *block) {
    const gml_torch_block *next = block->next;
    bool can_grow = next && next->use == GML_TORCH_UNMAPPED;
    return block->base.block_bytes + (can_grow ? next->base.block_bytes : 0);
}

static gml_torch_block *find_free(gml_torch_heap *heap, const gml_torch_request *request) {
    gml_tree_node *node = gml_tree_at_least(&request->lane->free, request->size_bytes, 0);
    if (!node) {
        return NULL;
    }
    gml_torch_block *block = gml_torch_block_of(node);
    while ((node = gml_tree_next(node))) {
        gml_torch_block *next = gml_torch_block_of(node);
        if (expandable_bytes(next) >= expandable_bytes(block)) {
            break;
        }
        block = next;
    }
    return gml_torch_may_serve(heap, block, request->size_bytes) ? block : NULL;
}

/* ---- growing --------------------------------------------------------------------------------- */

static bool has_room_from(const gml_torch_block *block, uint64_t size_bytes) {
    uint64_t room_bytes = 0;
    while (room_bytes < size_bytes && block && block->use != GML_TORCH_LIVE) {
        room_bytes += block->base.block_bytes;
        block = block->next;
    }
    return room_bytes >= size_bytes;
}

/* The first of adjacent free and unmapped blocks, at the lowest address, that have room together;
 * else a new segment's block. */
static gml_status find_room(gml_torch_heap *heap, const gml_torch_request *request,
                            gml_torch_block **out) {
    gml_torch_lane *lane = request->lane;
    gml_tree_node *node = gml_tree_first(&lane->unmapped);
    for (; node; node = gml_tree_next(node)) {
        gml_torch_block *block = gml_torch_block_of(node);
        if (block->prev && block->prev->use == GML_TORCH_FREE) {
            block = block->prev;
        }
        if (has_room_from(block, request->size_bytes)) {
            *out = block;
            return GML_OK;
        }
    }
    if (request->size_bytes > gml_expandable_segment_span(heap, lane->is_small)) {
        return GML_OUT_OF_MEMORY;
    }
    gml_expandable_segment *segment;
    gml_status status = gml_expandable_segment_open(heap, lane, &segment);
    if (status == GML_OK) {
        *out = segment->base.head;
    }
    return status;
}

/* Backs an unmapped block for `size_bytes` at least, from its beginning on; *out is the free block
 * that then holds it, merged with its neighbours. */
static gml_status map_block(gml_torch_heap *heap, gml_torch_block *block, uint64_t size_bytes,
                            gml_torch_block **out) {
    gml_expandable_segment *segment = (gml_expandable_segment *)block->segment;
    uint64_t granule_bytes = segment->granule_bytes;
    size_t first = (size_t)((block->base.address - segment->base.address) / granule_bytes);
    size_t count = (size_t)(gml_divide_up(size_bytes, granule_bytes));
    uint64_t mapped_bytes = count * granule_bytes;
    gml_torch_block *rest = NULL;
    if (mapped_bytes < block->base.block_bytes) {
        rest = gml_pool_take(&heap->block_pool);
        if (!rest) {
            return gml_torch_no_host_memory(heap);
        }
    }
    gml_status status = gml_expandable_back(heap, segment, first, count);
    if (status != GML_OK) {
        gml_pool_give(&heap->block_pool, rest);
        return status;
    }
    gml_torch_take(block);
    if (rest) {
        gml_torch_cut(block, mapped_bytes, rest);
        gml_torch_put(heap, rest, GML_TORCH_UNMAPPED);
    }
    block = gml_torch_merge(heap, block, GML_TORCH_FREE);
    gml_torch_put(heap, block, GML_TORCH_FREE);
    heap->stats.num_device_alloc++;
    *out = block;
    return GML_OK;
}

/* Maps hole after hole until one free block holds the request. Memory mapped before a failure
 * stays, as free memory. */
static gml_status grow(gml_torch_heap *heap, const gml_torch_request *request,
                       gml_torch_block **out) {
    uint64_t limit_bytes = heap->knobs.memory_limit;
    if (limit_bytes && heap->base.reserved_bytes + request->segment_bytes > limit_bytes) {
        return GML_OUT_OF_MEMORY;
    }
    gml_torch_block *block = NULL;
    gml_status status = find_room(heap, request, &block);
    while (status == GML_OK) {
        uint64_t held_bytes = block->use == GML_TORCH_FREE ? block->base.block_bytes : 0;
        if (held_bytes >= request->size_bytes) {
            *out = block;
            return GML_OK;
        }
        gml_torch_block *hole = held_bytes ? block->next : block;
        uint64_t wanted_bytes = request->size_bytes - held_bytes;
        status = map_block(heap, hole, gml_least(wanted_bytes, hole->base.block_bytes), &block);
    }
    return status;
}

/* ---- giving memory back ---------------------------------------------------------------------- */

/* Marks a part of a free block unmapped: the parts before and behind it stay free, in the spare
 * blocks, which are set to NULL where used. Returns the unmapped block, merged with its neighbours.
 */
static gml_torch_block *take_out(gml_torch_heap *heap, gml_torch_block *block,
                                 uint64_t before_bytes, uint64_t unmapped_bytes,
                                 gml_torch_block *spare[2]) {
    gml_torch_take(block);
    if (before_bytes) {
        gml_torch_block *low = block;
        block = spare[0];
        spare[0] = NULL;
        gml_torch_cut(low, before_bytes, block);
        gml_torch_put(heap, low, GML_TORCH_FREE);
    }
    if (unmapped_bytes < block->base.block_bytes) {
        gml_torch_cut(block, unmapped_bytes, spare[1]);
        gml_torch_put(heap, spare[1], GML_TORCH_FREE);
        spare[1] = NULL;
    }
    block = gml_torch_merge(heap, block, GML_TORCH_UNMAPPED);
    gml_torch_put(heap, block, GML_TORCH_UNMAPPED);
    return block;
}

/* The whole granules in a block are those from place *first on; returns how many. */
static size_t granules_in(const gml_torch_block *block, size_t *first) {
    uint64_t granule_bytes = ((const gml_expandable_segment *)block->segment)->granule_bytes;
    uint64_t begin_bytes = block->base.address - block->segment->address;
    size_t end = (size_t)((begin_bytes + block->base.block_bytes) / granule_bytes);
    *first = (size_t)(gml_divide_up(begin_bytes, granule_bytes));
    return end > *first ? end - *first : 0;
}

/* Unmaps the last `most` whole granules in a free block, which no work uses; *out is the block of
 * the unmapped range, or the same block if it has none. */
static gml_status unmap_block(gml_torch_heap *heap, gml_torch_block *block, size_t most,
                              gml_torch_block **out) {
    *out = block;
    gml_expandable_segment *segment = (gml_expandable_segment *)block->segment;
    uint64_t granule_bytes = segment->granule_bytes;
    uint64_t begin_bytes = block->base.address - segment->base.address;
    size_t first, count = granules_in(block, &first);
    if (!count) {
        return GML_OK;
    }
    first += count > most ? count - most : 0;
    count = count > most ? most : count;
    gml_torch_block *spare[2] = {gml_pool_take(&heap->block_pool),
                                 gml_pool_take(&heap->block_pool)};
    size_t unbacked = 0;
    gml_status status = spare[0] && spare[1]
                            ? gml_expandable_unback(heap, segment, first, count, &unbacked)
                            : gml_torch_no_host_memory(heap);
    if (unbacked) {
        *out = take_out(heap, block, first * granule_bytes - begin_bytes, unbacked * granule_bytes,
                        spare);
        heap->stats.num_device_free++;
    }
    gml_pool_give(&heap->block_pool, spare[0]);
    gml_pool_give(&heap->block_pool, spare[1]);
    return status;
}

/* All of a free block, once the device is idle. */
static gml_status release_block(gml_torch_heap *heap, gml_torch_block *block,
                                gml_torch_block **out) {
    size_t first;
    gml_status status =
        granules_in(block, &first) ? gml_driver_device_synchronize(heap->base.driver) : GML_OK;
    *out = block;
    return status == GML_OK ? unmap_block(heap, block, SIZE_MAX, out) : status;
}

static gml_status release_segment(gml_torch_heap *heap, gml_expandable_segment *segment) {
    gml_status first = gml_expandable_sweep(heap, segment);
    for (gml_torch_block *block = segment->base.head; block; block = block->next) {
        if (block->use == GML_TORCH_FREE) {
            gml_status status = release_block(heap, block, &block);
            if (first == GML_OK) {
                first = status;
            }
        }
    }
    if (!segment->handle_count) { /* so that it is one unmapped block */
        gml_status status = gml_expandable_segment_close(heap, segment);
        if (first == GML_OK) {
            first = status;
        }
    }
    return first;
}

/* Releases every free granule, and the empty reservations; a no-op while the driver is frozen.
 * Continues after a failure and returns the first. */
static gml_status release_all(gml_torch_heap *heap) {
    if (gml_driver_is_frozen(heap->base.driver)) {
        return GML_OK;
    }
    heap->stats.num_sync_all_streams++;
    gml_policy_finish_frees(&heap->base);
    gml_status first = GML_OK;
    gml_torch_segment *segment = heap->segments;
    while (segment) {
        gml_torch_segment *next = segment->next;
        gml_status status = release_segment(heap, (gml_expandable_segment *)segment);
        if (first == GML_OK) {
            first = status;
        }
        segment = next;
    }
    return first;
}

/* ---- a part of it, without a wait ------------------------------------------------------------ */

/* Of one segment, until the heap holds no more than `least_bytes`. */
static gml_status give_of(gml_torch_heap *heap, const gml_expandable_segment *segment,
                          uint64_t least_bytes, bool *is_pending) {
    gml_status status = GML_OK;
    for (gml_torch_block *block = segment->base.head; block && status == GML_OK;
         block = block->next) {
        uint64_t held_bytes = heap->base.reserved_bytes;
        if (block->use == GML_TORCH_FREE && held_bytes > least_bytes &&
            gml_torch_is_over(heap, block, is_pending)) {
            uint64_t most = gml_divide_up(held_bytes - least_bytes, segment->granule_bytes);
            status = unmap_block(heap, block, (size_t)most, &block);
        }
    }
    return status;
}

static gml_status give(gml_torch_heap *heap, uint64_t wanted_bytes, bool *is_pending) {
    uint64_t held_bytes = heap->base.reserved_bytes;
    uint64_t least_bytes = held_bytes > wanted_bytes ? held_bytes - wanted_bytes : 0;
    gml_status status = GML_OK;
    for (const gml_torch_segment *each = heap->segments; each && status == GML_OK;
         each = each->next) {
        status = give_of(heap, (const gml_expandable_segment *)each, least_bytes, is_pending);
    }
    return status;
}

static uint64_t idle_bytes(const gml_torch_heap *heap) {
    uint64_t sum_bytes = 0;
    for (const gml_torch_segment *each = heap->segments; each; each = each->next) {
        uint64_t granule_bytes = ((const gml_expandable_segment *)each)->granule_bytes;
        for (const gml_torch_block *block = each->head; block; block = block->next) {
            size_t first;
            sum_bytes +=
                block->use == GML_TORCH_FREE ? granules_in(block, &first) * granule_bytes : 0;
        }
    }
    return sum_bytes;
}

/* ---- the policy ------------------------------------------------------------------------------ */

static bool must_split(const gml_torch_heap *heap, const gml_torch_block *block,
                       uint64_t size_bytes) {
    (void)heap;
    return block->base.block_bytes - size_bytes >= GML_ALIGNMENT;
}

static const gml_torch_rules rules = {
    .find_free = find_free,
    .obtain = grow,
    .obtain_again = grow,
    .must_split = must_split,
    .release_all = release_all,
    .give = give,
    .idle_bytes = idle_bytes,
};

static gml_status expandable_create(gml_driver *driver, uint64_t capacity_bytes,
                                    const gml_knobs *knobs, gml_policy **out) {
    uint64_t granularity_bytes = driver->info.granularity_bytes;
    if (!driver->info.has_virtual_memory || !granularity_bytes) {
        return gml_driver_fail(driver, GML_UNSUPPORTED,
                               "the policy expandable needs a device that can map memory at "
                               "chosen addresses; use caching");
    }
    if (knobs->large_segment_size % granularity_bytes) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "large_segment_size is %s, but must be a multiple of the device's "
                               "granularity of %s",
                               gml_exact_size_of(knobs->large_segment_size).text,
                               gml_exact_size_of(granularity_bytes).text);
    }
    gml_torch_heap *heap =
        gml_torch_heap_create(&gml_expandable_policy, &rules, driver, capacity_bytes, knobs,
                              sizeof(gml_expandable_segment));
    if (!heap) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                               "the host has no memory for an expandable policy");
    }
    heap->is_expandable = true;
    *out = &heap->base;
    return GML_OK;
}

/* The granules under mapped blocks are backed, no others are, and the counts agree. */
static gml_status check_granules(gml_torch_heap *heap, const gml_expandable_segment *segment) {
    size_t handles = 0;
    size_t backed = 0;
    for (size_t place = 0; place < segment->room; place++) {
        bool is_absent = segment->granules[place] == GML_GRANULE_ABSENT;
        if (is_absent != !segment->handles[place]) {
            return gml_torch_corrupt(heap, "a granule disagrees with its handle, place", place);
        }
        handles += !is_absent;
        backed += segment->granules[place] == GML_GRANULE_BACKED;
    }
    uint64_t mapped_bytes = 0;
    for (const gml_torch_block *block = segment->base.head; block; block = block->next) {
        uint64_t begin_bytes = block->base.address - segment->base.address;
        size_t place = (size_t)(begin_bytes / segment->granule_bytes);
        bool is_mapped = block->use != GML_TORCH_UNMAPPED;
        mapped_bytes += is_mapped ? block->base.block_bytes : 0;
        if (!is_mapped && (begin_bytes % segment->granule_bytes ||
                           block->base.block_bytes % segment->granule_bytes)) {
            return gml_torch_corrupt(heap, "an unmapped block is not made of whole granules",
                                     block->base.address);
        }
        uint64_t end_bytes = begin_bytes + block->base.block_bytes;
        for (; place < segment->room && place * segment->granule_bytes < end_bytes; place++) {
            if ((segment->granules[place] == GML_GRANULE_BACKED) != is_mapped) {
                return gml_torch_corrupt(heap, "a granule disagrees with its block",
                                         block->base.address);
            }
        }
    }
    if (handles != segment->handle_count || backed != segment->backed_count ||
        mapped_bytes != backed * segment->granule_bytes) {
        return gml_torch_corrupt(heap, "the granules of a segment are miscounted",
                                 segment->base.address);
    }
    return GML_OK;
}

static gml_status expandable_check(gml_policy *self) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    gml_torch_recount recount = {0};
    gml_status status = GML_OK;
    for (const gml_torch_segment *base = heap->segments; base && status == GML_OK;
         base = base->next) {
        const gml_expandable_segment *segment = (const gml_expandable_segment *)base;
        recount.reserved_bytes[base->lane->is_small] +=
            segment->handle_count * segment->granule_bytes;
        status = gml_torch_check_segment(heap, base, &recount);
        if (status == GML_OK) {
            status = check_granules(heap, segment);
        }
    }
    if (status == GML_OK) {
        status = gml_torch_check_lanes(heap, &recount);
    }
    return status == GML_OK ? gml_torch_check_stats(heap, &recount) : status;
}

const gml_policy_ops gml_expandable_policy = {
    .name = "expandable",
    .help = "PyTorch's expandable segments, address for address",
    .create = expandable_create,
    .destroy = expandable_destroy,
    .allocate = gml_torch_allocate,
    .free = gml_torch_heap_free,
    .trim = gml_torch_trim,
    .give = gml_torch_give,
    .idle_bytes = gml_torch_idle_bytes,
    .usage = gml_torch_usage,
    .check = expandable_check,
    .visit = gml_torch_visit,
    .torch_stats = gml_torch_stats_fill,
    .reset_peaks = gml_torch_reset_peaks,
};
