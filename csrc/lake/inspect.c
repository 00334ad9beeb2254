/* The whole lake, read only: its invariants, and everything it holds. */
#include "lake/lake.h"

#include <inttypes.h>

/* ---- invariants ------------------------------------------------------------------------------ */

typedef struct check {
    gml_driver *driver; /* the lake's */
    gml_status status;
} check;

static void check_heap(void *context, const gml_heap *heap) {
    check *now = context;
    gml_policy *policy = heap->policy;
    if (now->status != GML_OK) {
        return;
    }
    now->status = policy->ops->check(policy);
    if (now->status != GML_OK && policy->driver != now->driver) {
        gml_driver_take_reason(now->driver, policy->driver);
    }
    if (now->status == GML_OK && !heap->turn && policy->reserved_bytes != heap->counted_bytes) {
        now->status =
            gml_driver_fail(now->driver, GML_CORRUPT,
                            "a private pool holds %" PRIu64 " bytes, %" PRIu64 " are counted",
                            policy->reserved_bytes, heap->counted_bytes);
    }
}

static gml_status check_policies(gml_lake *lake) {
    check now = {lake->driver, lake->policy->ops->check(lake->policy)};
    gml_pools_each_heap(&lake->pools, check_heap, &now);
    return now.status;
}

static gml_status check_counts(gml_lake *lake) {
    uint64_t known_blocks = lake->blocks.count + lake->uses.pending_count;
    if (known_blocks != lake->stats.live_blocks) {
        return gml_driver_fail(lake->driver, GML_CORRUPT,
                               "%" PRIu64 " live blocks in the tables, %" PRIu64 " counted",
                               known_blocks, lake->stats.live_blocks);
    }
    uint64_t reserved_bytes = gml_lake_reserved(lake);
    if (reserved_bytes != lake->driver->held_bytes) {
        return gml_driver_fail(lake->driver, GML_CORRUPT,
                               "%" PRIu64 " bytes reserved, %" PRIu64 " held from the device",
                               reserved_bytes, lake->driver->held_bytes);
    }
    return GML_OK;
}

gml_status gml_lake_check(gml_lake *lake) {
    pthread_mutex_lock(&lake->lock);
    gml_status status = check_policies(lake);
    if (status == GML_OK) {
        status = check_counts(lake);
    }
    if (status == GML_OK) {
        status = gml_elastics_check(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

static void visit_heap(void *context, const gml_heap *heap) {
    const gml_visitor *visitor = context;
    if (visitor->pool) {
        visitor->pool(visitor->context, heap->policy->pool);
    }
    heap->policy->ops->visit(heap->policy, visitor);
}

const char *gml_span_kind_name(gml_span_kind kind) {
    static const char *const names[GML_SPAN_KIND_COUNT] = {
        [GML_SPAN_SEGMENT] = "segment",
        [GML_SPAN_BASE] = "base",
        [GML_SPAN_VIEW] = "view",
    };
    return (unsigned)kind < GML_SPAN_KIND_COUNT ? names[kind] : "unknown kind";
}

void gml_lake_visit_locked(gml_lake *lake, const gml_visitor *visitor) {
    lake->policy->ops->visit(lake->policy, visitor);
    gml_visitor copy = *visitor;
    gml_pools_each_heap(&lake->pools, visit_heap, &copy);
}

gml_status gml_lake_visit(gml_lake *lake, const gml_visitor *visitor) {
    pthread_mutex_lock(&lake->lock);
    gml_lake_visit_locked(lake, visitor);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

void gml_lake_device(const gml_lake *lake, gml_device_info *out) {
    *out = lake->driver->info; /* never changes, so no lock */
}
