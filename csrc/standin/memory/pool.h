/* Pools of stream-ordered memory, between the calls of the program and what they change.
 *
 * A pool takes segments of plain memory from its device and cuts them into blocks. A block that was
 * freed may serve the stream that freed it at once, as CUDA has it, and any other when the freeing
 * stream got there; neighbours that are free become one block. Idle segments go back beyond the
 * release threshold whenever the program has waited for the device, and when memory runs out. A
 * real pool puts free pieces together by mapping; this one cannot, so it may hold more.
 *
 * Memory that is allocated while a stream captures belongs to the graph: it comes from a pool of
 * its own, at the capture rather than at the first launch, is not used again within the graph, and
 * goes back when the graph is gone and the last of its launches that ran has freed it.
 */
#ifndef GML_STANDIN_POOL_H
#define GML_STANDIN_POOL_H

#include "base/list.h"
#include "base/tree.h"
#include "standin/standin.h"

typedef struct standin_segment standin_segment;

/* What cudaMemPool_t points to. */
typedef struct standin_pool {
    struct standin_pool *next; /* of all pools */
    standin_device *device;
    standin_segment *segments;
    gml_tree free_blocks;       /* by size */
    uint64_t release_threshold; /* bytes */
    uint64_t used_bytes, used_peak_bytes;
    uint64_t reserved_bytes, reserved_peak_bytes;
    /* By cudaMemPoolAttr, kept for the program. That of internal dependencies alone has effect:
     * the pool waits for frees of other streams before it gives up. */
    int reuses[cudaMemPoolReuseAllowInternalDependencies + 1];
} standin_pool;

typedef enum standin_block_state {
    STANDIN_BLOCK_FREE,
    STANDIN_BLOCK_USED,
    STANDIN_BLOCK_LEAVING, /* freed in a stream that has not got there */
} standin_block_state;

typedef struct standin_block {
    gml_tree_node node;                    /* its address and size, also while it is in no tree */
    gml_link link;                         /* of those that are leaving */
    struct standin_block *previous, *next; /* its neighbours in the segment */
    standin_pool *pool;
    standin_segment *segment;
    standin_block_state state;
    gml_stream stream;  /* that freed it */
    uint64_t free_call; /* the number of the call that freed it */
    /* Of memory of a graph: whether it is one, whether a launch allocated and freed it, and whether
     * graph and launches are gone. */
    bool is_of_graph, is_launched, is_freed, is_orphan;
} standin_block;

/* ---- pool.c ---------------------------------------------------------------------------------- */

/* NULL for a handle that is no pool. */
standin_pool *standin_pool_of(cudaMemPool_t handle);

/* The pools of a device: that of the program, and that of its graphs. */
standin_pool *standin_default_pool(standin_device *device);
standin_pool *standin_graph_pool(standin_device *device);

/* A block for use in the stream; of the graph, from its pool, while the stream captures. */
cudaError_t standin_pool_allocate(standin_pool *pool, uint64_t size_bytes, standin_stream *stream,
                                  gml_address *out);

/* ---- pool_blocks.c --------------------------------------------------------------------------- */

enum { STANDIN_BLOCK_GRANULE_BYTES = 512 };

/* The block in use, or leaving, that begins here; NULL if there is none. */
standin_block *standin_block_at(gml_address address);

/* Those that are leaving, of all pools, oldest first; NULL past the last. */
standin_block *standin_first_leaving(void);
standin_block *standin_next_leaving(standin_block *after);

/* A new segment with room for a block: a coarse one, or a fine one where memory is short. */
gml_status standin_pool_grow(standin_pool *pool, uint64_t size_bytes);

/* Gives back what is idle, as long as `keep_bytes` stay reserved. */
void standin_pool_shrink(standin_pool *pool, uint64_t keep_bytes);

/* The best fit of what the pool has for this stream, as a block in use; NULL if nothing fits. */
standin_block *standin_pool_take(standin_pool *pool, uint64_t size_bytes,
                                 const standin_stream *stream);

/* A block in use is freed, once the stream has come to that call. */
void standin_block_leave(standin_block *block, gml_stream stream, uint64_t free_call);

/* A block in use, or leaving, is free, and may become part of a larger one. */
void standin_block_release(standin_block *block);

#endif
