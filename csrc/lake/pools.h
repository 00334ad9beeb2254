/* Private pools: they serve the streams that capture a graph.
 *
 * Each pool is a policy `caching` of its own on the lake's driver, so nothing else touches its
 * segments. While any is begun the device is frozen: see gml_device.captures.
 */
#ifndef GML_LAKE_POOLS_H
#define GML_LAKE_POOLS_H

#include "base/list.h"
#include "base/map.h"
#include "policy/policy.h"

typedef struct gml_pools {
    gml_link all;          /* of pools, the oldest first */
    gml_map by_id;         /* the same */
    gml_link begun;        /* of begins that have not ended, the latest last */
    uint64_t closed_bytes; /* held by pools that are not begun: only trimming changes it */
} gml_pools;

void gml_pools_init(gml_pools *pools);

/* Ends every open begin, before the lake closes. */
void gml_pools_end_all(gml_pools *pools, gml_driver *driver);

/* Gives everything back, live blocks included, and returns the first failure. */
gml_status gml_pools_close(gml_pools *pools);

/* See gml_lake_begin_pool(), gml_lake_end_pool() and gml_lake_release_pool(). */
gml_status gml_pools_begin(gml_pools *pools, gml_driver *driver, uint64_t capacity_bytes,
                           const gml_knobs *knobs, gml_pool_id id);
gml_status gml_pools_end(gml_pools *pools, gml_driver *driver, gml_pool_id id);
gml_status gml_pools_release(gml_pools *pools, gml_driver *driver, gml_pool_id id);

/* The pool that serves `stream` now, or NULL: none is begun, or the stream does not capture. */
gml_status gml_pools_find(gml_pools *pools, gml_driver *driver, gml_stream stream,
                          gml_policy **out);

/* Releases the idle memory of released pools, and frees those that are empty. Continues after a
 * failure and returns the first. pre: the driver is not frozen. */
gml_status gml_pools_trim(gml_pools *pools);

/* The memory that all pools hold from the device. */
uint64_t gml_pools_reserved(const gml_pools *pools);

/* Calls `see` with the policy of each pool, the oldest first. */
void gml_pools_each(const gml_pools *pools,
                    void (*see)(void *context, gml_pool_id id, gml_policy *policy), void *context);

#endif
