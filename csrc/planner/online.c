/* Models an allocator without foresight: requests in the order of time, each into the smallest free
 * range that fits, lowest address first; freed ranges merge with free neighbours.
 */
#include "base/tree.h"
#include "planner/methods.h"

#include <stdlib.h>

#define NO_BLOCK UINT32_MAX

typedef struct piece {
    gml_tree_node node; /* its range; first, so that a node is its block */
    uint32_t below, above;
    bool is_free;
} piece;

typedef struct arena {
    piece *blocks;
    gml_tree free;
    uint32_t last;   /* the one with the highest address */
    uint32_t unused; /* first of a list through `above` */
} arena;

/* ---- blocks ---------------------------------------------------------------------------------- */

static gml_status heap_open(arena *heap, size_t most_blocks) {
    *heap = (arena){.last = NO_BLOCK};
    /* NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): there are two at least */
    heap->blocks = calloc(most_blocks, sizeof *heap->blocks);
    if (!heap->blocks) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < most_blocks; i++) {
        heap->blocks[i].above = i + 1 < most_blocks ? (uint32_t)(i + 1) : NO_BLOCK;
    }
    return GML_OK;
}

/* Right above `below`. pre: one is unused. */
static uint32_t add_block(arena *heap, uint32_t below, uint64_t address, uint64_t size) {
    uint32_t added = heap->unused;
    piece *block = &heap->blocks[added];
    heap->unused = block->above;
    block->node.address = address;
    block->node.size_bytes = size;
    block->is_free = false;
    block->below = below;
    block->above = NO_BLOCK;
    if (below != NO_BLOCK) {
        block->above = heap->blocks[below].above;
        heap->blocks[below].above = added;
    }
    if (block->above != NO_BLOCK) {
        heap->blocks[block->above].below = added;
    } else {
        heap->last = added;
    }
    return added;
}

/* Makes the block below as large as both. pre: neither is in the tree. */
static void join_below(arena *heap, uint32_t at) {
    piece *gone = &heap->blocks[at];
    piece *below = &heap->blocks[gone->below];
    below->node.size_bytes += gone->node.size_bytes;
    below->above = gone->above;
    if (gone->above != NO_BLOCK) {
        heap->blocks[gone->above].below = gone->below;
    } else {
        heap->last = gone->below;
    }
    gone->above = heap->unused;
    heap->unused = at;
}

static void set_free(arena *heap, uint32_t at, bool is_free) {
    piece *block = &heap->blocks[at];
    block->is_free = is_free;
    if (is_free) {
        gml_tree_insert(&heap->free, &block->node);
    } else {
        gml_tree_remove(&heap->free, &block->node);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static uint32_t take_free(arena *heap, uint32_t at, uint64_t size) {
    set_free(heap, at, false);
    gml_tree_node *node = &heap->blocks[at].node;
    if (node->size_bytes > size) {
        uint64_t rest = node->size_bytes - size;
        node->size_bytes = size;
        set_free(heap, add_block(heap, at, node->address + size, rest), true);
    }
    return at;
}

static uint32_t allocate(arena *heap, uint64_t size) {
    gml_tree_node *fit = gml_tree_at_least(&heap->free, size, 0);
    if (fit) {
        return take_free(heap, (uint32_t)((piece *)fit - heap->blocks), size);
    }
    if (heap->last == NO_BLOCK) {
        return add_block(heap, NO_BLOCK, 0, size);
    }
    piece *last = &heap->blocks[heap->last];
    if (last->is_free) {
        set_free(heap, heap->last, false);
        last->node.size_bytes = size;
        return heap->last;
    }
    return add_block(heap, heap->last, last->node.address + last->node.size_bytes, size);
}

static void release(arena *heap, uint32_t at) {
    uint32_t above = heap->blocks[at].above, below = heap->blocks[at].below;
    if (above != NO_BLOCK && heap->blocks[above].is_free) {
        set_free(heap, above, false);
        join_below(heap, above);
    }
    if (below != NO_BLOCK && heap->blocks[below].is_free) {
        set_free(heap, below, false);
        join_below(heap, at);
        at = below;
    }
    set_free(heap, at, true);
}

/* ---- the order of time ----------------------------------------------------------------------- */

/* Two free blocks are never adjacent. */
static size_t most_blocks(const gml_instance *instance) {
    size_t live = 0, most = 0, ended = 0;
    for (size_t item = 0; item < instance->count; item++) {
        while (instance->end[instance->by_end[ended]] <= instance->begin[item]) {
            ended++;
        }
        live = item + 1 - ended;
        most = live > most ? live : most;
    }
    return 2 * most + 2;
}

gml_status gml_online_best_fit(const gml_instance *instance, uint64_t *offsets,
                               uint64_t *peak_bytes) {
    arena heap;
    uint32_t *block_of = malloc((instance->count + 1) * sizeof *block_of);
    gml_status status = heap_open(&heap, most_blocks(instance));
    if (status != GML_OK || !block_of) {
        free(block_of);
        free(heap.blocks);
        return GML_NO_HOST_MEMORY;
    }
    size_t ended = 0;
    for (size_t item = 0; item < instance->count; item++) {
        while (instance->end[instance->by_end[ended]] <= instance->begin[item]) {
            release(&heap, block_of[instance->by_end[ended++]]);
        }
        block_of[item] = allocate(&heap, instance->sizes[item]);
        offsets[item] = heap.blocks[block_of[item]].node.address;
    }
    *peak_bytes = gml_instance_peak(instance, offsets);
    free(block_of);
    free(heap.blocks);
    return GML_OK;
}
