/* The recount behind heap_check.h. */
#include "policy/torch/heap_check.h"

#include <inttypes.h>

gml_status gml_torch_corrupt(gml_torch_heap *heap, const char *what, gml_address address) {
    return gml_driver_fail(heap->base.driver, GML_CORRUPT, "%s policy: %s at 0x%" PRIx64,
                           heap->base.ops->name, what, address);
}

static void count_block(const gml_torch_heap *heap, const gml_torch_block *block,
                        gml_torch_recount *recount) {
    bool is_small = block->lane->is_small;
    switch (block->use) {
    case GML_TORCH_LIVE:
        recount->active[is_small]++;
        recount->active_bytes[is_small] += block->base.block_bytes;
        break;
    case GML_TORCH_FREE:
        recount->free_blocks++;
        if (gml_torch_is_split(block) && !heap->is_expandable) {
            recount->inactive_split[is_small]++;
            recount->inactive_split_bytes[is_small] += block->base.block_bytes;
        }
        break;
    case GML_TORCH_UNMAPPED:
        recount->unmapped_blocks++;
        break;
    }
}

/* The error in one block, given where it should begin; NULL if it is correct. */
static const char *fault_of(const gml_torch_segment *segment, const gml_torch_block *block,
                            gml_address expected) {
    if (block->base.address != expected || !block->base.block_bytes) {
        return "blocks do not tile their segment";
    }
    if (block->base.block_bytes % GML_ALIGNMENT || block->base.address % GML_ALIGNMENT) {
        return "a block is not aligned to 512 bytes";
    }
    if (block->segment != segment || block->lane != segment->lane) {
        return "a block names another segment or stream";
    }
    if (block->next && block->next->prev != block) {
        return "the links between neighbours disagree";
    }
    if (block->next && block->use != GML_TORCH_LIVE && block->next->use == block->use) {
        return "two idle neighbours are not merged";
    }
    if (block->use == GML_TORCH_LIVE &&
        (!block->base.requested_bytes || block->base.requested_bytes > block->base.block_bytes)) {
        return "a live block is smaller than what it serves";
    }
    return NULL;
}

gml_status gml_torch_check_segment(gml_torch_heap *heap, const gml_torch_segment *segment,
                                   gml_torch_recount *recount) {
    gml_address expected = segment->address;
    if (segment->head->prev) {
        return gml_torch_corrupt(heap, "a segment does not begin with its first block", expected);
    }
    for (const gml_torch_block *block = segment->head; block; block = block->next) {
        const char *fault = fault_of(segment, block, expected);
        if (fault) {
            return gml_torch_corrupt(heap, fault, expected);
        }
        expected += block->base.block_bytes;
        count_block(heap, block, recount);
    }
    if (expected != segment->address + segment->size_bytes) {
        return gml_torch_corrupt(heap, "blocks do not fill their segment", segment->address);
    }
    return GML_OK;
}

/* The tree is in order and each node is an idle block of this lane, under its own key. */
static gml_status check_tree(gml_torch_heap *heap, const gml_torch_lane *lane, const gml_tree *tree,
                             gml_torch_use use) {
    if (!gml_tree_is_valid(tree)) {
        return gml_torch_corrupt(heap, "an idle list is out of order for stream", lane->stream);
    }
    for (gml_tree_node *node = gml_tree_first(tree); node; node = gml_tree_next(node)) {
        const gml_torch_block *block = gml_torch_block_of(node);
        bool is_free = use == GML_TORCH_FREE;
        uint64_t key_bytes = is_free ? block->base.block_bytes : 0;
        uint64_t place = is_free ? gml_torch_place(block) : block->base.address;
        if (block->use != use || block->lane != lane || node->address != place ||
            node->size_bytes != key_bytes) {
            return gml_torch_corrupt(heap, "an idle list holds a wrong block", node->address);
        }
    }
    return GML_OK;
}

gml_status gml_torch_check_lanes(gml_torch_heap *heap, const gml_torch_recount *recount) {
    uint64_t free_blocks = 0;
    uint64_t unmapped_blocks = 0;
    for (int is_small = 0; is_small < 2; is_small++) {
        for (const gml_torch_lane *lane = heap->lanes[is_small]; lane; lane = lane->next) {
            gml_status status = check_tree(heap, lane, &lane->free, GML_TORCH_FREE);
            if (status == GML_OK) {
                status = check_tree(heap, lane, &lane->unmapped, GML_TORCH_UNMAPPED);
            }
            if (status != GML_OK) {
                return status;
            }
            free_blocks += lane->free.count;
            unmapped_blocks += lane->unmapped.count;
        }
    }
    if (free_blocks != recount->free_blocks || unmapped_blocks != recount->unmapped_blocks) {
        return gml_torch_corrupt(heap, "an idle list misses a block, blocks listed", free_blocks);
    }
    return GML_OK;
}

static bool row_is(const gml_stat stats[GML_POOL_COUNT], const uint64_t counted[2]) {
    return stats[GML_POOL_LARGE].current == counted[false] &&
           stats[GML_POOL_SMALL].current == counted[true] &&
           stats[GML_POOL_ALL].current == counted[false] + counted[true];
}

gml_status gml_torch_check_stats(gml_torch_heap *heap, const gml_torch_recount *recount) {
    const gml_torch_stats *stats = &heap->stats;
    const struct {
        const char *name;
        const gml_stat *kept;
        const uint64_t *counted;
    } rows[] = {
        {"the statistic segment", stats->segment, recount->segments},
        {"the statistic reserved_bytes", stats->reserved_bytes, recount->reserved_bytes},
        {"the statistic active", stats->active, recount->active},
        {"the statistic active_bytes", stats->active_bytes, recount->active_bytes},
        {"the statistic inactive_split", stats->inactive_split, recount->inactive_split},
        {"the statistic inactive_split_bytes", stats->inactive_split_bytes,
         recount->inactive_split_bytes},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!row_is(rows[i].kept, rows[i].counted)) {
            return gml_driver_fail(heap->base.driver, GML_CORRUPT,
                                   "%s policy: %s differs from a recount", heap->base.ops->name,
                                   rows[i].name);
        }
    }
    if (heap->base.reserved_bytes != recount->reserved_bytes[0] + recount->reserved_bytes[1] ||
        heap->base.small_bytes != recount->reserved_bytes[1] ||
        stats->oversize_segments.current != recount->oversize_segments) {
        return gml_torch_corrupt(heap, "reserved bytes differ from a recount, bytes kept",
                                 heap->base.reserved_bytes);
    }
    return GML_OK;
}
