/* Rebuilding a recorded state: everything is checked and every host object taken before the first
 * driver call, so that only the driver can fail half-way, when everything can still be released. */
#include "policy/torch/caching_restore.h"

#include "policy/torch/caching_segment.h"

#include <inttypes.h>

static bool is_range(gml_address address, uint64_t size_bytes) {
    return address && size_bytes && address % GML_ALIGNMENT == 0 &&
           size_bytes % GML_ALIGNMENT == 0 && size_bytes <= UINT64_MAX - address;
}

static gml_status refuse(gml_policy *self, const char *what, gml_address address) {
    return gml_driver_fail(self->driver, GML_CORRUPT,
                           "the recorded %s at 0x%" PRIx64
                           " is empty, not aligned to 512 bytes, out of order, overlaps the one "
                           "before or lies in no segment",
                           what, address);
}

/* Both lists ascend without overlap, and every block lies in one segment. */
static gml_status check_record(gml_policy *self, const gml_recorded_segment *segments,
                               size_t segment_count, const gml_recorded_block *blocks,
                               size_t block_count) {
    size_t next = 0; /* first block not yet found in a segment */
    gml_address above = 0;
    for (size_t i = 0; i < segment_count; i++) {
        gml_address address = segments[i].address;
        if (!is_range(address, segments[i].size_bytes) || address < above) {
            return refuse(self, "segment", address);
        }
        above = address + segments[i].size_bytes;
        gml_address cursor = address;
        for (; next < block_count && blocks[next].address < above; next++) {
            const gml_recorded_block *block = &blocks[next];
            if (!is_range(block->address, block->block_bytes) || block->address < cursor ||
                block->block_bytes > above - block->address || !block->requested_bytes ||
                block->requested_bytes > block->block_bytes) {
                return refuse(self, "block", block->address);
            }
            cursor = block->address + block->block_bytes;
        }
    }
    return next == block_count ? GML_OK : refuse(self, "block", blocks[next].address);
}

static gml_status add_segments(gml_torch_heap *heap, const gml_recorded_segment *segments,
                               size_t segment_count) {
    gml_status status = GML_OK;
    for (size_t i = 0; i < segment_count && status == GML_OK; i++) {
        const gml_recorded_segment *segment = &segments[i];
        gml_torch_lane *lane = gml_torch_find_lane(heap, segment->stream, segment->is_small);
        if (!lane) {
            return gml_torch_no_host_memory(heap);
        }
        status = gml_driver_expect_malloc(heap->base.driver, segment->address, segment->size_bytes);
        gml_torch_block *head = NULL;
        if (status == GML_OK) {
            status = gml_caching_segment_add(heap, lane, segment->size_bytes, &head);
        }
        if (status == GML_OK && head->base.address != segment->address) {
            status = gml_driver_fail(heap->base.driver, GML_UNSUPPORTED,
                                     "this driver does not place memory where it was recorded");
        }
    }
    return status;
}

/* Cuts `block`, which is in no tree, in two; returns the upper part. */
static gml_torch_block *cut_off(gml_torch_heap *heap, gml_torch_block *block, uint64_t low_bytes) {
    gml_torch_block *rest = gml_pool_take(&heap->block_pool);
    gml_torch_cut(block, low_bytes, rest);
    return rest;
}

static void count_inactive(gml_torch_heap *heap, const gml_torch_block *block) {
    if (gml_torch_is_split(block)) {
        gml_torch_stats_raise(heap->stats.inactive_split, block->lane->is_small, 1);
        gml_torch_stats_raise(heap->stats.inactive_split_bytes, block->lane->is_small,
                              block->base.block_bytes);
    }
}

/* The true size of a recorded block. PyTorch leaves no free block of up to 1 MiB in a large
 * segment, so such a gap behind a block is slack that the block owns and that the record does not
 * show. */
static uint64_t with_slack(const gml_torch_segment *segment, const gml_recorded_block *block,
                           gml_address next) {
    uint64_t gap_bytes = next - block->address - block->block_bytes;
    bool is_slack = !segment->lane->is_small && gap_bytes <= GML_SMALL_LIMIT;
    return block->block_bytes + (is_slack ? gap_bytes : 0);
}

/* Makes the recorded blocks that lie in a wholly free segment live; returns how many there are. */
static size_t carve(gml_torch_heap *heap, gml_torch_segment *segment,
                    const gml_recorded_block *blocks, size_t block_count, gml_block **blocks_out) {
    gml_address end = segment->address + segment->size_bytes;
    gml_torch_block *free_part = segment->head;
    gml_torch_take(free_part);
    size_t count = 0;
    for (; count < block_count && blocks[count].address < end; count++) {
        const gml_recorded_block *record = &blocks[count];
        gml_torch_block *live = free_part;
        if (record->address > live->base.address) {
            live = cut_off(heap, free_part, record->address - live->base.address);
            gml_torch_put(heap, free_part, GML_TORCH_FREE);
            count_inactive(heap, free_part);
        }
        bool is_last = count + 1 == block_count || blocks[count + 1].address >= end;
        uint64_t block_bytes =
            with_slack(segment, record, is_last ? end : blocks[count + 1].address);
        bool reaches_end = live->base.block_bytes == block_bytes;
        free_part = reaches_end ? NULL : cut_off(heap, live, block_bytes);
        live->use = GML_TORCH_LIVE;
        live->base.requested_bytes = record->requested_bytes;
        live->base.state = GML_STATE_EXACT;
        gml_torch_stats_raise(heap->stats.active, segment->lane->is_small, 1);
        gml_torch_stats_raise(heap->stats.active_bytes, segment->lane->is_small, block_bytes);
        blocks_out[count] = &live->base;
        if (reaches_end) {
            return count + 1;
        }
    }
    gml_torch_put(heap, free_part, GML_TORCH_FREE);
    count_inactive(heap, free_part);
    return count;
}

gml_status gml_caching_restore(gml_policy *self, const gml_recorded_segment *segments,
                               size_t segment_count, const gml_recorded_block *blocks,
                               size_t block_count, gml_block **blocks_out) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    if (heap->segments) {
        return gml_driver_fail(self->driver, GML_INVALID_ARGUMENT,
                               "a recorded state can only be put into an empty lake");
    }
    gml_status status = check_record(self, segments, segment_count, blocks, block_count);
    if (status == GML_OK && /* each block can leave a free part before and behind it */
        (!gml_pool_reserve(&heap->block_pool, segment_count + 2 * block_count) ||
         !gml_pool_reserve(&heap->segment_pool, segment_count))) {
        status = gml_torch_no_host_memory(heap);
    }
    if (status != GML_OK) {
        return status;
    }
    status = add_segments(heap, segments, segment_count);
    if (status != GML_OK) {
        (void)gml_caching_release_all(heap);
        return status;
    }
    gml_torch_segment *segment = heap->segments; /* the last one added comes first */
    while (segment && segment->next) {
        segment = segment->next;
    }
    size_t done = 0;
    for (; segment; segment = segment->prev) {
        done += carve(heap, segment, blocks + done, block_count - done, blocks_out + done);
    }
    return GML_OK;
}
