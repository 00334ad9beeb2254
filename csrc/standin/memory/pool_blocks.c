/* The segments of pools and the blocks that they are cut into. */
#include "base/rounding.h"
#include "standin/memory/pool.h"

#include <stdlib.h>

static const uint64_t SEGMENT_GRANULE_BYTES = UINT64_C(32) << 20;
static const uint64_t SMALL_SEGMENT_GRANULE_BYTES = UINT64_C(2) << 20;

struct standin_segment {
    standin_segment *next;
    standin_block *first;
    uint64_t size_bytes;
};

static gml_map blocks;   /* used and leaving ones, by address */
static gml_link leaving; /* all leaving blocks, oldest first */

static standin_block *block_of_node(gml_tree_node *node) {
    return (standin_block *)(void *)node;
}

static standin_block *block_of_link(gml_link *link) {
    return (standin_block *)(void *)((char *)link - offsetof(standin_block, link));
}

standin_block *standin_first_leaving(void) {
    if (!leaving.next) {
        gml_list_init(&leaving);
    }
    return gml_list_is_empty(&leaving) ? NULL : block_of_link(leaving.next);
}

standin_block *standin_next_leaving(standin_block *after) {
    return after->link.next == &leaving ? NULL : block_of_link(after->link.next);
}

standin_block *standin_block_at(gml_address address) {
    return gml_map_find(&blocks, address);
}

/* ---- blocks of a segment --------------------------------------------------------------------- */

static void add_free(standin_block *added) {
    added->state = STANDIN_BLOCK_FREE;
    gml_tree_insert(&added->pool->free_blocks, &added->node);
}

static void remove_free(standin_block *taken) {
    gml_tree_remove(&taken->pool->free_blocks, &taken->node);
}

/* Takes the right neighbour into a block; neither is in a tree or a list. */
static void swallow_next(standin_block *left) {
    standin_block *right = left->next;
    left->node.size_bytes += right->node.size_bytes;
    left->next = right->next;
    if (right->next) {
        right->next->previous = left;
    }
    free(right);
}

/* Makes a block free, together with free neighbours. It is not in the map or a list any more. */
static void merge_free(standin_block *freed) {
    if (freed->next && freed->next->state == STANDIN_BLOCK_FREE) {
        remove_free(freed->next);
        swallow_next(freed);
    }
    standin_block *left = freed->previous;
    if (left && left->state == STANDIN_BLOCK_FREE) {
        remove_free(left);
        swallow_next(left);
        freed = left;
    }
    add_free(freed);
}

/* Cuts what exceeds `size_bytes` off, as a block of its own without a state; NULL if nothing does.
 */
static standin_block *cut(standin_block *whole, uint64_t size_bytes) {
    uint64_t rest_bytes = whole->node.size_bytes - size_bytes;
    if (rest_bytes == 0) {
        return NULL;
    }
    standin_block *rest = standin_new(sizeof *rest);
    whole->node.size_bytes = size_bytes;
    rest->node.address = whole->node.address + size_bytes;
    rest->node.size_bytes = rest_bytes;
    rest->pool = whole->pool;
    rest->segment = whole->segment;
    rest->previous = whole;
    rest->next = whole->next;
    if (rest->next) {
        rest->next->previous = rest;
    }
    whole->next = rest;
    return rest;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* A segment of that size, as one free block. */
static gml_status add_segment(standin_pool *pool, uint64_t size_bytes) {
    gml_address address = 0;
    gml_status status = gml_driver_malloc(pool->device->driver, size_bytes, &address);
    if (status != GML_OK) {
        return status;
    }
    standin_segment *segment = standin_new(sizeof *segment);
    standin_block *first = standin_new(sizeof *first);
    first->node.address = address;
    first->node.size_bytes = size_bytes;
    first->pool = pool;
    first->segment = segment;
    *segment = (standin_segment){pool->segments, first, size_bytes};
    pool->segments = segment;
    pool->reserved_bytes += size_bytes;
    if (pool->reserved_bytes > pool->reserved_peak_bytes) {
        pool->reserved_peak_bytes = pool->reserved_bytes;
    }
    add_free(first);
    return GML_OK;
}

/* Room for a block in a new segment: a coarse one, or a fine one where memory is short. */
gml_status standin_pool_grow(standin_pool *pool, uint64_t size_bytes) {
    const uint64_t granules[] = {SEGMENT_GRANULE_BYTES, SMALL_SEGMENT_GRANULE_BYTES,
                                 STANDIN_BLOCK_GRANULE_BYTES};
    gml_status status = GML_OUT_OF_MEMORY;
    for (int i = 0; i < 3 && status == GML_OUT_OF_MEMORY; i++) {
        uint64_t segment_bytes = gml_round_up(size_bytes, granules[i]);
        status = add_segment(pool, segment_bytes);
    }
    return status;
}

static bool is_idle(const standin_segment *segment) {
    return segment->first->state == STANDIN_BLOCK_FREE &&
           segment->first->node.size_bytes == segment->size_bytes;
}

/* Gives an idle segment back and returns whether that worked. */
static bool drop_segment(standin_pool *pool, standin_segment *segment) {
    gml_status status = gml_driver_free(pool->device->driver, segment->first->node.address);
    if (standin_error_of(pool->device, status) != cudaSuccess) {
        return false;
    }
    remove_free(segment->first);
    pool->reserved_bytes -= segment->size_bytes;
    free(segment->first);
    free(segment);
    return true;
}

void standin_pool_shrink(standin_pool *pool, uint64_t keep_bytes) {
    standin_segment **place = &pool->segments;
    while (*place) {
        standin_segment *segment = *place;
        standin_segment *next = segment->next;
        bool is_spare = pool->reserved_bytes > keep_bytes &&
                        pool->reserved_bytes - keep_bytes >= segment->size_bytes;
        if (is_spare && is_idle(segment) && drop_segment(pool, segment)) {
            *place = next;
        } else {
            place = &segment->next;
        }
    }
}

/* ---- taking and giving blocks ---------------------------------------------------------------- */

/* The smallest block that the same stream freed and is not yet past, or NULL. */
static standin_block *find_leaving(const standin_pool *pool, uint64_t size_bytes,
                                   const standin_stream *stream) {
    standin_block *best = NULL;
    for (standin_block *other = standin_first_leaving(); other;
         other = standin_next_leaving(other)) {
        bool is_fit = other->pool == pool && other->stream == stream->number &&
                      other->node.size_bytes >= size_bytes;
        if (is_fit && (!best || other->node.size_bytes < best->node.size_bytes)) {
            best = other;
        }
    }
    return best;
}

void standin_block_leave(standin_block *freed, gml_stream stream, uint64_t free_call) {
    freed->state = STANDIN_BLOCK_LEAVING;
    freed->stream = stream;
    freed->free_call = free_call;
    (void)standin_first_leaving(); /* the list exists */
    gml_list_append(&leaving, &freed->link);
}

/* Takes a leaving block; what is too much of it goes on leaving. */
static void take_leaving(standin_block *taken, uint64_t size_bytes) {
    standin_block *rest = cut(taken, size_bytes);
    gml_list_remove(&taken->link);
    if (rest) {
        standin_insert(&blocks, rest->node.address, rest);
        standin_block_leave(rest, taken->stream, taken->free_call);
    }
    taken->state = STANDIN_BLOCK_USED;
}

static void take_free(standin_block *taken, uint64_t size_bytes) {
    standin_insert(&blocks, taken->node.address, taken);
    remove_free(taken);
    standin_block *rest = cut(taken, size_bytes);
    if (rest) {
        add_free(rest);
    }
    taken->state = STANDIN_BLOCK_USED;
}

/* The best fit of what the pool has for this stream, or NULL. */
standin_block *standin_pool_take(standin_pool *pool, uint64_t size_bytes,
                                 const standin_stream *stream) {
    gml_tree_node *node = gml_tree_at_least(&pool->free_blocks, size_bytes, 0);
    standin_block *own = find_leaving(pool, size_bytes, stream);
    if (own && (!node || own->node.size_bytes <= node->size_bytes)) {
        take_leaving(own, size_bytes);
        return own;
    }
    if (!node) {
        return NULL;
    }
    take_free(block_of_node(node), size_bytes);
    return block_of_node(node);
}

void standin_block_release(standin_block *gone) {
    if (gone->state == STANDIN_BLOCK_LEAVING) {
        gml_list_remove(&gone->link);
    }
    (void)gml_map_take(&blocks, gone->node.address);
    merge_free(gone);
}
