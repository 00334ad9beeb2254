/* Segments, blocks and free lists behind heap.h. */
#include "policy/torch/heap.h"

#include "base/size.h"
#include "policy/torch/rounding.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- heap and lanes -------------------------------------------------------------------------- */

static void add_lane(gml_torch_heap *heap, gml_torch_lane *lane, gml_stream stream, bool is_small) {
    lane->stream = stream;
    lane->is_small = is_small;
    gml_torch_lane **link = &heap->lanes[is_small];
    if (*link) { /* behind the lane of stream 0, which stays first */
        lane->next = (*link)->next;
        link = &(*link)->next;
    }
    *link = lane;
}

gml_torch_heap *gml_torch_heap_create(const gml_policy_ops *ops, const gml_torch_rules *rules,
                                      gml_driver *driver, uint64_t capacity_bytes,
                                      const gml_knobs *knobs, size_t segment_object_bytes) {
    gml_torch_heap *heap = calloc(1, sizeof *heap);
    if (!heap) {
        return NULL;
    }
    heap->base.ops = ops;
    heap->rules = rules;
    heap->base.driver = driver;
    heap->capacity_bytes = capacity_bytes;
    heap->knobs = *knobs;
    heap->stats.max_split_size =
        knobs->max_split_size > INT64_MAX ? -1 : (int64_t)knobs->max_split_size;
    heap->block_pool.object_bytes = sizeof(gml_torch_block);
    heap->segment_pool.object_bytes = segment_object_bytes;
    heap->lane_pool.object_bytes = sizeof(gml_torch_lane);
    gml_fences_init(&heap->fences, driver, &(gml_fence_rules){0});
    add_lane(heap, &heap->default_lanes[false], 0, false);
    add_lane(heap, &heap->default_lanes[true], 0, true);
    return heap;
}

void gml_torch_heap_destroy(gml_torch_heap *heap) {
    gml_fences_close(&heap->fences);
    gml_map_clear(&heap->lane_of_stream[false]);
    gml_map_clear(&heap->lane_of_stream[true]);
    gml_pool_clear(&heap->block_pool);
    gml_pool_clear(&heap->segment_pool);
    gml_pool_clear(&heap->lane_pool);
    free(heap);
}

gml_status gml_torch_no_host_memory(gml_torch_heap *heap) {
    return gml_driver_fail(heap->base.driver, GML_NO_HOST_MEMORY,
                           "the host has no memory for the records of the %s policy",
                           heap->base.ops->name);
}

gml_torch_lane *gml_torch_find_lane(gml_torch_heap *heap, gml_stream stream, bool is_small) {
    if (!stream) {
        return &heap->default_lanes[is_small];
    }
    gml_map *map = &heap->lane_of_stream[is_small];
    gml_torch_lane *lane = gml_map_find(map, stream);
    if (lane) {
        return lane;
    }
    lane = gml_pool_take(&heap->lane_pool);
    if (!lane || gml_map_insert(map, stream, lane) != GML_OK) {
        gml_pool_give(&heap->lane_pool, lane);
        return NULL;
    }
    add_lane(heap, lane, stream, is_small);
    return lane;
}

/* Errors: GML_NO_HOST_MEMORY. */
static gml_status make_request(gml_torch_heap *heap, uint64_t size_bytes, gml_stream stream,
                               gml_torch_request *out) {
    uint64_t rounded_bytes = gml_torch_round(heap->knobs.roundup_power2_divisions, size_bytes);
    bool is_small = rounded_bytes <= GML_SMALL_LIMIT;
    gml_torch_lane *lane = heap->recent[is_small];
    if (!lane || lane->stream != stream) {
        lane = gml_torch_find_lane(heap, stream, is_small);
        if (!lane) {
            return gml_torch_no_host_memory(heap);
        }
        heap->recent[is_small] = lane;
    }
    *out = (gml_torch_request){
        .requested_bytes = size_bytes,
        .size_bytes = rounded_bytes,
        .segment_bytes = gml_torch_segment_size(&heap->knobs, rounded_bytes),
        .lane = lane,
    };
    return GML_OK;
}

/* ---- segments -------------------------------------------------------------------------------- */

gml_torch_segment *gml_torch_segment_new(gml_torch_heap *heap, gml_torch_lane *lane) {
    gml_torch_segment *segment = gml_pool_take(&heap->segment_pool);
    gml_torch_block *head = gml_pool_take(&heap->block_pool);
    if (!segment || !head) {
        gml_pool_give(&heap->segment_pool, segment);
        gml_pool_give(&heap->block_pool, head);
        return NULL;
    }
    segment->head = head;
    segment->lane = lane;
    head->segment = segment;
    head->lane = lane;
    head->base.stream = lane->stream;
    head->base.is_small = lane->is_small;
    return segment;
}

void gml_torch_segment_enter(gml_torch_heap *heap, gml_torch_segment *segment, gml_address address,
                             uint64_t size_bytes, gml_torch_use use) {
    segment->address = address;
    segment->place = heap->knobs.oldest_segment_first ? heap->entered_bytes : address;
    segment->size_bytes = size_bytes;
    heap->entered_bytes += size_bytes;
    segment->head->base.address = address;
    segment->head->base.block_bytes = size_bytes;
    segment->prev = NULL;
    segment->next = heap->segments;
    if (segment->next) {
        segment->next->prev = segment;
    }
    heap->segments = segment;
    gml_torch_put(heap, segment->head, use);
}

void gml_torch_segment_leave(gml_torch_heap *heap, gml_torch_segment *segment) {
    gml_torch_take(segment->head);
    if (segment->prev) {
        segment->prev->next = segment->next;
    } else {
        heap->segments = segment->next;
    }
    if (segment->next) {
        segment->next->prev = segment->prev;
    }
}

void gml_torch_segment_discard(gml_torch_heap *heap, gml_torch_segment *segment) {
    gml_pool_give(&heap->block_pool, segment->head);
    gml_pool_give(&heap->segment_pool, segment);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void gml_torch_put(gml_torch_heap *heap, gml_torch_block *block, gml_torch_use use) {
    gml_torch_lane *lane = block->lane;
    block->use = use;
    block->node.address = use == GML_TORCH_FREE ? gml_torch_place(block) : block->base.address;
    if (use == GML_TORCH_FREE) {
        block->node.size_bytes = block->base.block_bytes;
        block->freed_at = heap->searches[lane->is_small];
        gml_tree_insert(&lane->free, &block->node);
    } else {
        block->node.size_bytes = 0; /* by address alone */
        gml_tree_insert(&lane->unmapped, &block->node);
    }
}

void gml_torch_take(gml_torch_block *block) {
    gml_torch_lane *lane = block->lane;
    gml_tree_remove(block->use == GML_TORCH_FREE ? &lane->free : &lane->unmapped, &block->node);
}

void gml_torch_cut(gml_torch_block *block, uint64_t low_bytes, gml_torch_block *rest) {
    rest->base.address = block->base.address + low_bytes;
    rest->base.block_bytes = block->base.block_bytes - low_bytes;
    rest->base.stream = block->base.stream;
    rest->base.is_small = block->base.is_small;
    rest->segment = block->segment;
    rest->lane = block->lane;
    rest->use = block->use;
    rest->freed = block->freed;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next) {
        rest->next->prev = rest;
    }
    block->next = rest;
    block->base.block_bytes = low_bytes;
}

/* `low` takes over the range of its upper neighbour; both are in no tree. */
static void absorb_next(gml_torch_heap *heap, gml_torch_block *low) {
    gml_torch_block *high = low->next;
    low->base.block_bytes += high->base.block_bytes;
    low->freed = low->freed > high->freed ? low->freed : high->freed;
    low->next = high->next;
    if (low->next) {
        low->next->prev = low;
    }
    gml_pool_give(&heap->block_pool, high);
}

gml_torch_block *gml_torch_merge(gml_torch_heap *heap, gml_torch_block *block, gml_torch_use use) {
    if (block->next && block->next->use == use) {
        gml_torch_take(block->next);
        absorb_next(heap, block);
    }
    if (block->prev && block->prev->use == use) {
        block = block->prev;
        gml_torch_take(block);
        absorb_next(heap, block);
    }
    return block;
}

/* ---- serving and freeing --------------------------------------------------------------------- */

bool gml_torch_may_serve(const gml_torch_heap *heap, const gml_torch_block *block,
                         uint64_t size_bytes) {
    uint64_t limit_bytes = heap->knobs.max_split_size;
    if (size_bytes < limit_bytes) {
        return block->base.block_bytes < limit_bytes;
    }
    return block->base.block_bytes - size_bytes < heap->knobs.max_non_split_rounding;
}

/* A free block becomes live, `cut_bytes` of it being left free behind it. Blocks that are a whole
 * segment are no split blocks, so the first cut makes one and later cuts shrink one. */
static void count_served(gml_torch_heap *heap, const gml_torch_block *block, bool was_split,
                         uint64_t cut_bytes) {
    gml_torch_stats *stats = &heap->stats;
    bool is_small = block->lane->is_small;
    uint64_t block_bytes = block->base.block_bytes;
    gml_torch_stats_raise(stats->active, is_small, 1);
    gml_torch_stats_raise(stats->active_bytes, is_small, block_bytes);
    if (heap->is_expandable) {
        return;
    }
    if (was_split) {
        gml_torch_stats_lower(stats->inactive_split_bytes, is_small, block_bytes);
        if (!cut_bytes) {
            gml_torch_stats_lower(stats->inactive_split, is_small, 1);
        }
    } else if (cut_bytes) {
        gml_torch_stats_raise(stats->inactive_split_bytes, is_small, cut_bytes);
        gml_torch_stats_raise(stats->inactive_split, is_small, 1);
    }
}

/* Makes a free block live, after splitting off the remainder if `must_split`. Errors:
 * GML_NO_HOST_MEMORY, where the block stays free. */
static gml_status serve(gml_torch_heap *heap, gml_torch_block *block,
                        const gml_torch_request *request, bool must_split, gml_state state) {
    gml_torch_block *rest = NULL;
    if (must_split) {
        rest = gml_pool_take(&heap->block_pool);
        if (!rest) {
            return gml_torch_no_host_memory(heap);
        }
    }
    bool was_split = gml_torch_is_split(block);
    gml_torch_take(block);
    if (rest) {
        gml_torch_cut(block, request->size_bytes, rest);
        gml_torch_put(heap, rest, GML_TORCH_FREE);
    }
    block->use = GML_TORCH_LIVE;
    block->base.requested_bytes = request->requested_bytes;
    block->base.state = state;
    count_served(heap, block, was_split, rest ? rest->base.block_bytes : 0);
    return GML_OK;
}

/* Nothing of what graphs use is released. */
static gml_status release_all(gml_torch_heap *heap) {
    gml_policy *policy = &heap->base;
    gml_status status = GML_OK;
    if (policy->awaits_device && !policy->is_kept && !gml_driver_is_frozen(policy->driver)) {
        gml_driver_note(policy->driver, GML_TRIED_DEVICE);
        status = gml_driver_device_synchronize(policy->driver);
        policy->awaits_device = status != GML_OK;
    }
    return status == GML_OK && !policy->is_kept ? heap->rules->release_all(heap) : status;
}

/* New memory, in PyTorch's order. While the driver is frozen nothing is released. */
static gml_status obtain(gml_torch_heap *heap, const gml_torch_request *request,
                         gml_torch_block **out) {
    bool is_closed = heap->base.is_closed;
    gml_status status = is_closed ? GML_OUT_OF_MEMORY : heap->rules->obtain(heap, request, out);
    if (status == GML_OUT_OF_MEMORY && !is_closed && !gml_driver_is_frozen(heap->base.driver)) {
        status = release_all(heap);
        if (status != GML_OK) {
            return status;
        }
        heap->stats.num_alloc_retries++;
        status = heap->rules->obtain_again(heap, request, out);
    }
    return status;
}

gml_status gml_torch_allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream,
                              gml_block **out) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    gml_torch_request request;
    gml_status status = make_request(heap, size_bytes, stream, &request);
    if (status != GML_OK) {
        return status;
    }
    gml_torch_block *block = heap->rules->find_free(heap, &request);
    bool is_new = !block;
    if (is_new) {
        status = obtain(heap, &request, &block);
        if (status != GML_OK) {
            return status;
        }
    }
    bool must_split = heap->rules->must_split(heap, block, request.size_bytes);
    gml_state state = is_new ? GML_STATE_GROW : must_split ? GML_STATE_SPLIT : GML_STATE_EXACT;
    status = serve(heap, block, &request, must_split, state);
    if (status == GML_OK) {
        *out = &block->base;
    }
    return status;
}

gml_status gml_torch_trim(gml_policy *self, uint64_t *released_bytes) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    uint64_t before_bytes = self->reserved_bytes;
    gml_status status = release_all(heap);
    if (released_bytes) {
        *released_bytes = before_bytes - self->reserved_bytes;
    }
    return status;
}

bool gml_torch_is_over(const gml_torch_heap *heap, const gml_torch_block *block, bool *is_pending) {
    bool is_over = gml_fence_is_over(&heap->fences, block->freed);
    *is_pending |= !is_over && block->freed <= heap->fences.marked;
    return is_over;
}

/* PyTorch's allocators wait before they release. What goes to another process waits for no stream:
 * the device is asked how far it has come, and where it cannot say that, nothing is known to be
 * over. */
gml_status gml_torch_give(gml_policy *self, uint64_t wanted_bytes, uint64_t *released_bytes,
                          bool *is_pending) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    *released_bytes = 0;
    *is_pending = false;
    if (self->is_kept || self->awaits_device) {
        return GML_OK;
    }
    gml_status status = gml_fence_mark(&heap->fences);
    gml_fence_poll(&heap->fences);
    uint64_t before_bytes = self->reserved_bytes;
    if (status == GML_OK) {
        status = heap->rules->give(heap, wanted_bytes, is_pending);
    }
    *released_bytes = before_bytes - self->reserved_bytes;
    return status;
}

uint64_t gml_torch_idle_bytes(gml_policy *self) {
    const gml_torch_heap *heap = (const gml_torch_heap *)self;
    return self->is_kept ? 0 : heap->rules->idle_bytes(heap);
}

/* Counts a free neighbour of a block being freed as an inactive split block. */
static void add_free_neighbour(const gml_torch_block *neighbour, uint64_t *count, uint64_t *bytes) {
    if (neighbour && neighbour->use == GML_TORCH_FREE) {
        *count += 1;
        *bytes += neighbour->base.block_bytes;
    }
}

void gml_torch_heap_free(gml_policy *self, gml_block *live) {
    gml_torch_heap *heap = (gml_torch_heap *)self;
    gml_torch_block *block = (gml_torch_block *)live;
    gml_torch_stats *stats = &heap->stats;
    bool is_small = block->lane->is_small;
    block->freed = gml_fence_now(&heap->fences);
    gml_torch_stats_lower(stats->active, is_small, 1);
    gml_torch_stats_lower(stats->active_bytes, is_small, block->base.block_bytes);
    uint64_t merged = 0;
    uint64_t merged_bytes = 0;
    add_free_neighbour(block->prev, &merged, &merged_bytes);
    add_free_neighbour(block->next, &merged, &merged_bytes);
    if (merged) {
        block = gml_torch_merge(heap, block, GML_TORCH_FREE);
    }
    gml_torch_put(heap, block, GML_TORCH_FREE);
    if (!heap->is_expandable) {
        bool is_split = gml_torch_is_split(block);
        gml_torch_stats_change(stats->inactive_split, is_small, is_split, merged);
        gml_torch_stats_change(stats->inactive_split_bytes, is_small,
                               is_split ? block->base.block_bytes : 0, merged_bytes);
    }
}

/* ---- what others may see --------------------------------------------------------------------- */

static uint64_t largest_in(const gml_torch_heap *heap, const gml_torch_lane *lane, bool is_small) {
    const gml_tree_node *last = lane ? gml_tree_last(&lane->free) : NULL;
    if (!last) {
        return 0;
    }
    uint64_t size_bytes = gml_torch_round_down(&heap->knobs, last->size_bytes);
    if (is_small) {
        return size_bytes < GML_SMALL_LIMIT ? size_bytes : (uint64_t)GML_SMALL_LIMIT;
    }
    return size_bytes > GML_SMALL_LIMIT ? size_bytes : 0;
}

/* Of the pieces of one stream. */
static uint64_t largest_servable(const gml_torch_heap *heap, gml_stream stream) {
    uint64_t largest_bytes = 0;
    for (int is_small = 0; is_small < 2 && !largest_bytes; is_small++) {
        const gml_torch_lane *lane = stream ? gml_map_find(&heap->lane_of_stream[is_small], stream)
                                            : &heap->default_lanes[is_small];
        largest_bytes = largest_in(heap, lane, is_small);
    }
    return largest_bytes;
}

/* What is idle of other streams can be told from the spans. */
void gml_torch_usage(gml_policy *self, gml_usage *out) {
    const gml_torch_heap *heap = (const gml_torch_heap *)self;
    *out = (gml_usage){
        .reserved_bytes = self->reserved_bytes,
        .small_bytes = self->small_bytes,
        .largest_free_bytes = largest_servable(heap, 0),
        .stream = out->stream,
        .stream_largest_bytes = largest_servable(heap, out->stream),
    };
}

/* Shows the mapped run that begins at `first` as one span; returns its successor. */
static const gml_torch_block *visit_run(const gml_torch_block *first, const gml_visitor *visitor) {
    gml_span_info span = {
        .address = first->base.address,
        .stream = first->lane->stream,
        .is_small = first->lane->is_small,
    };
    const gml_torch_block *end = first;
    for (; end && end->use != GML_TORCH_UNMAPPED; end = end->next) {
        span.size_bytes += end->base.block_bytes;
        span.used_bytes += end->use == GML_TORCH_LIVE ? end->base.block_bytes : 0;
    }
    if (visitor->span) {
        visitor->span(visitor->context, &span);
    }
    for (const gml_torch_block *block = first; block != end && visitor->range;
         block = block->next) {
        bool is_used = block->use == GML_TORCH_LIVE;
        gml_range_info range = {block->base.address, block->base.block_bytes,
                                is_used ? block->base.requested_bytes : 0, is_used};
        visitor->range(visitor->context, &range);
    }
    return end;
}

void gml_torch_visit(gml_policy *self, const gml_visitor *visitor) {
    const gml_torch_heap *heap = (const gml_torch_heap *)self;
    for (const gml_torch_segment *segment = heap->segments; segment; segment = segment->next) {
        const gml_torch_block *block = segment->head;
        while (block) {
            block = block->use == GML_TORCH_UNMAPPED ? block->next : visit_run(block, visitor);
        }
    }
}

void gml_torch_stats_fill(gml_policy *self, gml_torch_stats *out) {
    const gml_torch_stats *stats = &((const gml_torch_heap *)self)->stats;
    for (int pool = 0; pool < GML_POOL_COUNT; pool++) {
        out->segment[pool] = stats->segment[pool];
        out->active[pool] = stats->active[pool];
        out->inactive_split[pool] = stats->inactive_split[pool];
        out->reserved_bytes[pool] = stats->reserved_bytes[pool];
        out->active_bytes[pool] = stats->active_bytes[pool];
        out->inactive_split_bytes[pool] = stats->inactive_split_bytes[pool];
    }
    out->oversize_segments = stats->oversize_segments;
    out->num_alloc_retries = stats->num_alloc_retries;
    out->num_sync_all_streams = stats->num_sync_all_streams;
    out->num_device_alloc = stats->num_device_alloc;
    out->num_device_free = stats->num_device_free;
    out->max_split_size = stats->max_split_size;
}

void gml_torch_reset_peaks(gml_policy *self) {
    gml_torch_stats_reset_peaks(&((gml_torch_heap *)self)->stats);
}
