/* Private pools: memory that serves only who names the pool, or captures a graph in it.
 *
 * Each pool has a heap: a policy of the lake's own kind on the lake's driver, made with the pool's
 * first request, so nothing else touches its memory. Once a graph was captured in a pool, or its
 * state was saved, its heap is kept (gml_policy.is_kept) until its last use ends.
 *
 * A capture that takes turns has a heap of its own in the pool (turns.h), kept alike.
 *
 * A program that makes a pool and drops it in each step needs the same memory again. So from the
 * second time on the heap of a pool that was dropped is parked: the next pool that needs one has
 * it, with its memory and its views. It goes as soon as other memory grows beside it.
 *
 * While a capture is begun the device is frozen: see gml_device.captures.
 */
#ifndef GML_LAKE_POOLS_H
#define GML_LAKE_POOLS_H

#include "base/list.h"
#include "base/map.h"
#include "lake/turns.h"
#include "policy/policy.h"

/* Memory of a pool. */
typedef struct gml_heap {
    gml_policy *policy;     /* NULL before the first request */
    gml_turn *turn;         /* whose memory it has; NULL: memory of its own */
    uint64_t counted_bytes; /* of its own memory in gml_pools.reserved_bytes */
} gml_heap;

/* The fields before `all` are fixed when the lake opens. */
typedef struct gml_pools {
    gml_driver *driver; /* the lake's */
    const gml_policy_ops *ops;
    const gml_knobs *knobs;
    uint64_t capacity_bytes;
    void (*finish_frees)(void *context); /* of each heap, see gml_policy */
    void *finish_context;
    gml_link all;            /* of pools, the oldest first */
    gml_map by_id;           /* the same */
    gml_link begun;          /* of begins that have not ended, the latest last */
    uint64_t reserved_bytes; /* by all heaps that take no turns */
    size_t drops;            /* of pools, since the lake's own memory last grew */
    bool has_parked;
    gml_turns turns;
} gml_pools;

/* pre: the fields before `all` are set. */
void gml_pools_init(gml_pools *pools);

/* Ends every open begin, before the lake closes. */
void gml_pools_end_all(gml_pools *pools);

/* Gives everything back, live blocks included, and returns the first failure. */
gml_status gml_pools_close(gml_pools *pools);

/* See the functions of gmlake.h: gml_lake_hold_pool() and those that follow it there. */
gml_status gml_pools_hold(gml_pools *pools, gml_pool_id id);
gml_status gml_pools_begin(gml_pools *pools, gml_pool_id id, bool is_capture, uint64_t turn);
gml_status gml_pools_end(gml_pools *pools, gml_pool_id id, bool has_failed);
gml_status gml_pools_release(gml_pools *pools, gml_pool_id id);
gml_status gml_pools_set(gml_pools *pools, gml_pool_id id, gml_pool_flag flag, bool is_set);

/* The heap of the pool, made if need be, for a request of `stream`. GML_INVALID_ARGUMENT for a pool
 * that is not in use. */
gml_status gml_pools_find(gml_pools *pools, gml_pool_id id, gml_stream stream, gml_heap **out);

/* The heap of a pool in use, made if need be, and the number of its life, which lasts from its
 * first use to the end of the last one; no other pool of the process has the same. */
gml_status gml_pools_look_up(gml_pools *pools, gml_pool_id id, gml_heap **out, uint64_t *life);

/* The heap of the pool in that life; GML_INVALID_ARGUMENT where it is over. */
gml_status gml_pools_look_up_again(gml_pools *pools, gml_pool_id id, uint64_t life, gml_heap **out);

/* As if a graph were captured in the pool, until its last use ends. pre: it is in use. */
void gml_pools_keep(gml_pools *pools, gml_pool_id id);

/* The heap that serves `stream` unasked, or NULL: no capture is begun, or the stream does not
 * capture. */
gml_status gml_pools_find_capture(gml_pools *pools, gml_stream stream, gml_heap **out);

/* A block out of the idle memory of a pool that helps out, the oldest pool first; *out is NULL
 * where none has it. */
gml_status gml_pools_help(gml_pools *pools, uint64_t size_bytes, gml_stream stream, gml_heap **heap,
                          gml_block **out);

/* Counts the memory of a heap after a call on its policy. */
static inline void gml_pools_count(gml_pools *pools, gml_heap *heap) {
    if (!heap->turn) {
        pools->reserved_bytes += heap->policy->reserved_bytes - heap->counted_bytes;
        heap->counted_bytes = heap->policy->reserved_bytes;
    }
}

/* Memory other than that of pools has grown, or that of one: what is parked goes. */
void gml_pools_unpark(gml_pools *pools, bool is_of_pool);

/* The memory that all pools hold. */
static inline uint64_t gml_pools_reserved(const gml_pools *pools) {
    return pools->reserved_bytes + pools->turns.held_bytes;
}

/* Releases the idle memory of released pools, and frees those that are empty. Living pools that no
 * graph uses give up theirs too: all of them where `is_urgent`, else those that nobody is in now
 * and that hold more than a slab. Continues after a failure and returns the first. pre: the driver
 * is not frozen. */
gml_status gml_pools_trim(gml_pools *pools, bool is_urgent);

/* What that could release of the pools, but for the memory of turns; 0 for heaps that graphs use.
 */
uint64_t gml_pools_idle(const gml_pools *pools);

/* See gml_lake_spoil_graph(). */
gml_status gml_pools_spoil(gml_pools *pools, uint64_t graph_number, gml_stream stream);

/* Calls `see` with each pool, the oldest first. */
void gml_pools_each(const gml_pools *pools, void (*see)(void *context, const gml_pool_info *info),
                    void *context);

/* Calls `see` with each heap that has a policy, in the order of their pools. */
void gml_pools_each_heap(const gml_pools *pools, void (*see)(void *context, const gml_heap *heap),
                         void *context);

#endif
