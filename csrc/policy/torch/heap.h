/* Shared by PyTorch's two allocators: segments split into blocks, the free blocks of each stream in
 * each pool, and the statistics that serving and freeing a block change.
 *
 * Blocks tile their segment in address order. A block that is cut keeps its low part, and a merge
 * keeps the lower block, so that the first block of a segment stays the same object for its life.
 */
#ifndef GML_POLICY_TORCH_HEAP_H
#define GML_POLICY_TORCH_HEAP_H

#include "base/map.h"
#include "base/pool.h"
#include "base/tree.h"
#include "core/fences.h"
#include "policy/policy.h"
#include "policy/torch/stat.h"

typedef struct gml_torch_block gml_torch_block;
typedef struct gml_torch_segment gml_torch_segment;

typedef enum gml_torch_use {
    GML_TORCH_LIVE,
    GML_TORCH_FREE,     /* in its lane's `free` */
    GML_TORCH_UNMAPPED, /* addresses without memory, in its lane's `unmapped`; `expandable` only */
} gml_torch_use;

/* The idle blocks of one stream in one pool: streams never share them. */
typedef struct gml_torch_lane {
    gml_tree free;     /* by size, then place */
    gml_tree unmapped; /* by address */
    gml_stream stream;
    bool is_small;
    struct gml_torch_lane *next; /* of the same pool */
} gml_torch_lane;

struct gml_torch_block {
    gml_block base; /* address and block_bytes hold for idle blocks too */
    gml_tree_node node;
    gml_torch_block *prev, *next; /* neighbours in the segment */
    gml_torch_segment *segment;
    gml_torch_lane *lane;
    uint64_t freed_at; /* the pool's count of searches when it became free */
    uint64_t freed;    /* the instant of the last free of any of its bytes, see fences.h; 0: none */
    gml_torch_use use;
};

struct gml_torch_segment {
    gml_torch_segment *prev, *next; /* of all segments */
    gml_torch_block *head;
    gml_torch_lane *lane;
    gml_address address;
    uint64_t place; /* where it comes among blocks of one size, see gml_torch_place() */
    uint64_t size_bytes;
};

typedef struct gml_torch_heap gml_torch_heap;
typedef struct gml_torch_request gml_torch_request;

/* The differences between PyTorch's two allocators. */
typedef struct gml_torch_rules {
    /* NULL where no free block serves. */
    gml_torch_block *(*find_free)(gml_torch_heap *heap, const gml_torch_request *request);
    /* New memory without releasing the cache: tried first, and again after the cache is released.
     * On GML_OUT_OF_MEMORY the request continues; any other failure ends it. */
    gml_status (*obtain)(gml_torch_heap *heap, const gml_torch_request *request,
                         gml_torch_block **out);
    gml_status (*obtain_again)(gml_torch_heap *heap, const gml_torch_request *request,
                               gml_torch_block **out);
    bool (*must_split)(const gml_torch_heap *heap, const gml_torch_block *block,
                       uint64_t size_bytes);
    gml_status (*release_all)(gml_torch_heap *heap);
    /* Releases free memory that gml_torch_is_over() until it is `wanted_bytes`, or a segment or
     * granule more; and counts what could be released once all of it is. */
    gml_status (*give)(gml_torch_heap *heap, uint64_t wanted_bytes, bool *is_pending);
    uint64_t (*idle_bytes)(const gml_torch_heap *heap);
} gml_torch_rules;

struct gml_torch_heap {
    gml_policy base;
    const gml_torch_rules *rules;
    uint64_t capacity_bytes; /* 0: no bound but the device's */
    gml_knobs knobs;
    bool is_expandable;     /* its blocks do not count as inactive_split */
    gml_torch_stats stats;  /* the part that a policy keeps */
    uint64_t searches[2];   /* [is_small], for the age of free blocks */
    gml_fences fences;      /* for giving: streams never share memory */
    uint64_t entered_bytes; /* of all segments that there ever were */
    gml_torch_segment *segments;
    gml_torch_lane *lanes[2];  /* [is_small], in order of first use */
    gml_torch_lane *recent[2]; /* served last; NULL before the first request */
    gml_map lane_of_stream[2]; /* except stream 0, which is first in `lanes` */
    gml_torch_lane default_lanes[2];
    gml_pool block_pool, segment_pool, lane_pool;
};

/* The most PyTorch may take from the device, 0 for all of it: its own limit, or else the
 * capacity. */
static inline uint64_t gml_torch_bound(const gml_torch_heap *heap) {
    uint64_t limit_bytes = heap->knobs.memory_limit;
    bool is_less = limit_bytes && (!heap->capacity_bytes || limit_bytes < heap->capacity_bytes);
    return is_less ? limit_bytes : heap->capacity_bytes;
}

/* A request with everything that follows from its size and stream. */
struct gml_torch_request {
    uint64_t requested_bytes;
    uint64_t size_bytes;    /* rounded */
    uint64_t segment_bytes; /* what PyTorch would ask of the device */
    gml_torch_lane *lane;
};

static inline gml_torch_block *gml_torch_block_of(gml_tree_node *node) {
    return (gml_torch_block *)(void *)((char *)node - offsetof(gml_torch_block, node));
}

/* Of free blocks of one size the one of the lowest place serves: its address, or what all segments
 * had that came before it. */
static inline uint64_t gml_torch_place(const gml_torch_block *block) {
    return block->segment->place + (block->base.address - block->segment->address);
}

static inline bool gml_torch_is_split(const gml_torch_block *block) {
    return block->prev || block->next;
}

/* A zeroed heap behind `ops` and `rules`; `segment_object_bytes` is the size of the struct that
 * begins with a gml_torch_segment. NULL when the host has no memory. */
gml_torch_heap *gml_torch_heap_create(const gml_policy_ops *ops, const gml_torch_rules *rules,
                                      gml_driver *driver, uint64_t capacity_bytes,
                                      const gml_knobs *knobs, size_t segment_object_bytes);

/* Frees the host memory; the device memory has been dealt with. */
void gml_torch_heap_destroy(gml_torch_heap *heap);

/* The lane of a stream, made on first use; NULL when the host has no memory. */
gml_torch_lane *gml_torch_find_lane(gml_torch_heap *heap, gml_stream stream, bool is_small);

/* Puts a reason into the driver and returns GML_NO_HOST_MEMORY. */
gml_status gml_torch_no_host_memory(gml_torch_heap *heap);

/* A segment with a head, in no list yet; NULL when the host has no memory. */
gml_torch_segment *gml_torch_segment_new(gml_torch_heap *heap, gml_torch_lane *lane);

/* Gives the range its one block in state `use` and enters both. */
void gml_torch_segment_enter(gml_torch_heap *heap, gml_torch_segment *segment, gml_address address,
                             uint64_t size_bytes, gml_torch_use use);

/* Undoes enter, for a segment of one idle block. */
void gml_torch_segment_leave(gml_torch_heap *heap, gml_torch_segment *segment);

/* Frees the segment and its head, which are in no list. */
void gml_torch_segment_discard(gml_torch_heap *heap, gml_torch_segment *segment);

/* Into and out of the tree that `use` names. */
void gml_torch_put(gml_torch_heap *heap, gml_torch_block *block, gml_torch_use use);
void gml_torch_take(gml_torch_block *block);

/* Cuts `block`, which is in no tree, after `low_bytes`; `rest`, fresh from block_pool, becomes its
 * upper neighbour, in no tree either. */
void gml_torch_cut(gml_torch_block *block, uint64_t low_bytes, gml_torch_block *rest);

/* Merges `block`, in no tree, with each neighbour that is idle in state `use`; returns the block
 * that holds the union, in no tree. */
gml_torch_block *gml_torch_merge(gml_torch_heap *heap, gml_torch_block *block, gml_torch_use use);

/* Whether PyTorch may hand `block` out for a rounded size, by max_split_size. */
bool gml_torch_may_serve(const gml_torch_heap *heap, const gml_torch_block *block,
                         uint64_t size_bytes);

/* Whether no work uses a free block, as far as is known; *is_pending is set where that will be
 * known once work is done that is queued now. */
bool gml_torch_is_over(const gml_torch_heap *heap, const gml_torch_block *block, bool *is_pending);

/* The policy entries that both share. */
gml_status gml_torch_allocate(gml_policy *self, uint64_t size_bytes, gml_stream stream,
                              gml_block **out);
gml_status gml_torch_trim(gml_policy *self, uint64_t *released_bytes);
gml_status gml_torch_give(gml_policy *self, uint64_t wanted_bytes, uint64_t *released_bytes,
                          bool *is_pending);
uint64_t gml_torch_idle_bytes(gml_policy *self);
void gml_torch_heap_free(gml_policy *self, gml_block *block);
void gml_torch_usage(gml_policy *self, gml_usage *out);
void gml_torch_visit(gml_policy *self, const gml_visitor *visitor);
void gml_torch_stats_fill(gml_policy *self, gml_torch_stats *out);
void gml_torch_reset_peaks(gml_policy *self);

#endif
