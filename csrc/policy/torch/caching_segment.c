/* Segments to and from the device, by the rules of PyTorch's CUDACachingAllocator. */
#include "policy/torch/caching_segment.h"

#include "base/size.h"
#include "base/status.h"

gml_status gml_caching_segment_add(gml_torch_heap *heap, gml_torch_lane *lane, uint64_t size_bytes,
                                   gml_torch_block **out) {
    gml_policy *self = &heap->base;
    uint64_t bound_bytes = gml_torch_bound(heap);
    if (bound_bytes && self->reserved_bytes + size_bytes > bound_bytes) {
        return gml_driver_fail(self->driver, GML_OUT_OF_MEMORY,
                               "a segment of %s would exceed the capacity of %s",
                               gml_size_of(size_bytes).text, gml_size_of(bound_bytes).text);
    }
    gml_torch_segment *segment = gml_torch_segment_new(heap, lane);
    if (!segment) {
        return gml_torch_no_host_memory(heap);
    }
    gml_address address;
    gml_status status = gml_driver_malloc(self->driver, size_bytes, &address);
    if (status != GML_OK) {
        gml_torch_segment_discard(heap, segment);
        return status;
    }
    gml_torch_segment_enter(heap, segment, address, size_bytes, GML_TORCH_FREE);
    self->reserved_bytes += size_bytes;
    self->small_bytes += lane->is_small ? size_bytes : 0;
    gml_torch_stats_raise(heap->stats.segment, lane->is_small, 1);
    gml_torch_stats_raise(heap->stats.reserved_bytes, lane->is_small, size_bytes);
    if (size_bytes >= heap->knobs.max_split_size) {
        gml_torch_stat_raise(&heap->stats.oversize_segments, 1);
    }
    heap->stats.num_device_alloc++;
    *out = segment->head;
    return GML_OK;
}

/* Gives the segment that consists of one free block back; on failure it stays. */
static gml_status release_segment(gml_torch_heap *heap, gml_torch_segment *segment) {
    gml_status status = gml_driver_free(heap->base.driver, segment->address);
    if (status != GML_OK) {
        return status;
    }
    uint64_t size_bytes = segment->size_bytes;
    bool is_small = segment->lane->is_small;
    gml_torch_segment_leave(heap, segment);
    gml_torch_segment_discard(heap, segment);
    heap->base.reserved_bytes -= size_bytes;
    heap->base.small_bytes -= is_small ? size_bytes : 0;
    gml_torch_stats_lower(heap->stats.segment, is_small, 1);
    gml_torch_stats_lower(heap->stats.reserved_bytes, is_small, size_bytes);
    if (size_bytes >= heap->knobs.max_split_size) {
        gml_torch_stat_lower(&heap->stats.oversize_segments, 1);
    }
    heap->stats.num_device_free++;
    return GML_OK;
}

/* ---- garbage collection ---------------------------------------------------------------------- */

typedef struct garbage {
    uint64_t blocks;       /* that could be freed */
    uint64_t total_age;    /* of these, in searches of the large pool since they were freed */
    uint64_t wanted_bytes; /* still to be freed; 0: enough */
} garbage;

static uint64_t age_of(const gml_torch_heap *heap, const gml_torch_block *block) {
    return heap->searches[false] - block->freed_at;
}

static void survey_garbage(const gml_torch_heap *heap, garbage *pile) {
    for (const gml_torch_lane *lane = heap->lanes[false]; lane; lane = lane->next) {
        for (gml_tree_node *node = gml_tree_first(&lane->free); node; node = gml_tree_next(node)) {
            const gml_torch_block *block = gml_torch_block_of(node);
            if (!gml_torch_is_split(block)) {
                pile->blocks++;
                pile->total_age += age_of(heap, block);
            }
        }
    }
}

/* Frees the blocks of one lane that are at least `least_age` old. */
static gml_status collect_lane(gml_torch_heap *heap, const gml_torch_lane *lane, double least_age,
                               garbage *pile) {
    gml_status first = GML_OK;
    gml_tree_node *next;
    for (gml_tree_node *node = gml_tree_first(&lane->free); node; node = next) {
        next = gml_tree_next(node);
        const gml_torch_block *block = gml_torch_block_of(node);
        uint64_t age = age_of(heap, block);
        uint64_t size_bytes = block->base.block_bytes;
        if (gml_torch_is_split(block) || (double)age < least_age) {
            continue;
        }
        gml_status status = release_segment(heap, block->segment);
        if (status == GML_OK) {
            pile->blocks--;
            pile->total_age -= age;
            pile->wanted_bytes -= size_bytes < pile->wanted_bytes ? size_bytes : pile->wanted_bytes;
        }
        first = gml_first_failure(first, status);
    }
    return first;
}

gml_status gml_caching_collect(gml_torch_heap *heap) {
    double share = (double)heap->knobs.garbage_collection_percent / 100.0;
    uint64_t threshold_bytes = (uint64_t)(share * (double)gml_torch_bound(heap));
    if (heap->base.reserved_bytes <= threshold_bytes) {
        return GML_OK;
    }
    garbage pile = {.wanted_bytes = heap->base.reserved_bytes - threshold_bytes};
    survey_garbage(heap, &pile);
    gml_status status = GML_OK;
    while (status == GML_OK && pile.wanted_bytes && pile.blocks) {
        uint64_t blocks_before = pile.blocks;
        double average_age = (double)pile.total_age / (double)pile.blocks;
        for (gml_torch_lane *lane = heap->lanes[false]; lane; lane = lane->next) {
            status = gml_first_failure(status, collect_lane(heap, lane, average_age, &pile));
        }
        if (pile.blocks == blocks_before) {
            break;
        }
    }
    return status;
}

/* ---- release for a request, and of everything ------------------------------------------------ */

/* The largest oversize blocks of the lane, until they add up to `wanted_bytes`. */
static gml_status release_largest(gml_torch_heap *heap, const gml_torch_lane *lane,
                                  uint64_t wanted_bytes, bool *enough) {
    uint64_t released_bytes = 0;
    gml_tree_node *node = gml_tree_last(&lane->free);
    while (node && released_bytes < wanted_bytes &&
           node->size_bytes >= heap->knobs.max_split_size) {
        gml_tree_node *smaller = gml_tree_previous(node);
        gml_torch_block *block = gml_torch_block_of(node);
        uint64_t size_bytes = block->base.block_bytes;
        if (!gml_torch_is_split(block)) {
            gml_status status = release_segment(heap, block->segment);
            if (status != GML_OK) {
                return status;
            }
            released_bytes += size_bytes;
        }
        node = smaller;
    }
    *enough = released_bytes >= wanted_bytes;
    return GML_OK;
}

gml_status gml_caching_release_oversize(gml_torch_heap *heap, const gml_torch_request *request,
                                        bool *enough) {
    uint64_t limit_bytes = heap->knobs.max_split_size;
    *enough = false;
    if (limit_bytes == UINT64_MAX) {
        return GML_OK;
    }
    uint64_t wanted_bytes = request->size_bytes < limit_bytes ? limit_bytes : request->size_bytes;
    gml_tree_node *node = gml_tree_at_least(&request->lane->free, wanted_bytes, 0);
    if (!node) {
        return release_largest(heap, request->lane, wanted_bytes, enough);
    }
    gml_torch_block *block = gml_torch_block_of(node);
    if (gml_torch_is_split(block)) {
        return GML_OK;
    }
    gml_status status = release_segment(heap, block->segment);
    *enough = status == GML_OK;
    return status;
}

/* It is one free block. */
static bool is_idle(const gml_torch_segment *segment) {
    return segment->head->use == GML_TORCH_FREE && !segment->head->next;
}

static bool can_release_any(const gml_torch_heap *heap) {
    const gml_torch_segment *segment = heap->segments;
    while (segment && !is_idle(segment)) {
        segment = segment->next;
    }
    return segment != NULL;
}

/* Gives idle segments back. */
static gml_status release_idle(gml_torch_heap *heap) {
    gml_status first = GML_OK;
    gml_torch_segment *segment = heap->segments;
    while (segment) {
        gml_torch_segment *next = segment->next;
        if (is_idle(segment)) {
            first = gml_first_failure(first, release_segment(heap, segment));
        }
        segment = next;
    }
    return first;
}

gml_status gml_caching_release_all(gml_torch_heap *heap) {
    if (gml_driver_is_frozen(heap->base.driver)) {
        return GML_OK;
    }
    heap->stats.num_sync_all_streams++;
    gml_policy_finish_frees(&heap->base);
    if (!can_release_any(heap)) {
        return GML_OK;
    }
    gml_status status = gml_driver_device_synchronize(heap->base.driver);
    return status == GML_OK ? release_idle(heap) : status;
}

/* ---- a part of it, without a wait ------------------------------------------------------------ */

/* Whether `one` serves better than `other` to give that much: enough rather than not, then little
 * beyond it, or little less. */
static bool is_better(const gml_torch_segment *one, const gml_torch_segment *other,
                      uint64_t wanted_bytes) {
    bool is_enough = other->size_bytes >= wanted_bytes;
    return is_enough ? one->size_bytes >= wanted_bytes && one->size_bytes < other->size_bytes
                     : one->size_bytes > other->size_bytes;
}

/* The idle segment that is to go next; NULL: there is none that no work uses. */
static gml_torch_segment *choose_given(const gml_torch_heap *heap, uint64_t wanted_bytes,
                                       bool *is_pending) {
    gml_torch_segment *best = NULL;
    for (gml_torch_segment *each = heap->segments; each; each = each->next) {
        if (is_idle(each) && gml_torch_is_over(heap, each->head, is_pending) &&
            (!best || is_better(each, best, wanted_bytes))) {
            best = each;
        }
    }
    return best;
}

gml_status gml_caching_give(gml_torch_heap *heap, uint64_t wanted_bytes, bool *is_pending) {
    uint64_t before_bytes = heap->base.reserved_bytes, given_bytes = 0;
    gml_status status = GML_OK;
    while (status == GML_OK && given_bytes < wanted_bytes) {
        gml_torch_segment *chosen = choose_given(heap, wanted_bytes - given_bytes, is_pending);
        if (!chosen) {
            break;
        }
        status = release_segment(heap, chosen);
        given_bytes = before_bytes - heap->base.reserved_bytes;
    }
    return status;
}

uint64_t gml_caching_idle_bytes(const gml_torch_heap *heap) {
    uint64_t sum_bytes = 0;
    for (const gml_torch_segment *each = heap->segments; each; each = each->next) {
        sum_bytes += is_idle(each) ? each->size_bytes : 0;
    }
    return sum_bytes;
}
