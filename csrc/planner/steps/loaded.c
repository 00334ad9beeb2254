/* Plans of a file, not yet served by the policy: their pool is taken in one piece. */
#include "planner/plan.h"
#include "planner/steps/planned.h"

/* Where the plans of one stream lie, one over the other: no two serve at a time. */
typedef struct plan_pool {
    gml_reservation *reservation;
    gml_stream stream;
    uint64_t offset, size_bytes; /* in the base range */
} plan_pool;

static bool is_of(const plan_pool *pool, const gml_plan *plan) {
    return plan->lane_count && plan->lanes->stream == pool->stream;
}

static bool add_entry(const plan_pool *pool, const gml_plan *plan,
                      const gml_plan_entry *planned_entry, gml_layout *layout) {
    uint64_t size_bytes = planned_entry->size_bytes, offset = planned_entry->offset;
    gml_entry entry = {.size_bytes = size_bytes, .stream = plan->lanes[planned_entry->lane].stream};
    if (planned_entry->lane == 0 && size_bytes <= pool->size_bytes &&
        offset <= pool->size_bytes - size_bytes) {
        entry.reservation = pool->reservation;
        entry.place.run = (gml_run){.offset = pool->offset + offset, .size_bytes = size_bytes};
    }
    return gml_layout_push(layout, &entry);
}

static void add_step(gml_planned *planned, const plan_pool *pool, gml_kind *kind,
                     const gml_plan *plan, unsigned step) {
    gml_layout *layout = gml_layout_new(0);
    bool is_whole = layout != NULL;
    for (size_t i = plan->step_entry[step]; i < plan->step_entry[step + 1] && is_whole; i++) {
        is_whole = add_entry(pool, plan, &plan->entries[i], layout);
    }
    if (is_whole) {
        layout->is_loaded = true;
        (void)gml_kind_keep_layout(planned, kind, layout);
    } else {
        gml_layout_free(planned, layout);
    }
}

/* Room for the largest plan of the first plan's stream, free in the stream cache; false if there is
 * none. */
static bool find_pool(gml_planned *planned, plan_pool *pool) {
    bool is_any = false;
    for (const gml_kind *kind = planned->kinds; kind; kind = kind->next) {
        for (size_t i = 0; i < kind->loaded_count; i++) {
            const gml_plan *plan = kind->loaded[i];
            if (!is_any && plan->lane_count) {
                pool->stream = plan->lanes->stream;
                is_any = true;
            }
            if (is_of(pool, plan) && plan->lanes->peak_bytes > pool->size_bytes) {
                pool->size_bytes = plan->lanes->peak_bytes;
            }
        }
    }
    pool->reservation = pool->size_bytes ? gml_planned_reservation(planned, pool->stream) : NULL;
    if (!pool->reservation) {
        return false;
    }
    const gml_tree *fit = &pool->reservation->cache->set.fit;
    const gml_tree_node *node = gml_tree_at_least(fit, pool->size_bytes, 0);
    if (!node &&
        gml_stitch_grow(planned->stitch, pool->reservation->cache, pool->size_bytes) == GML_OK) {
        node = gml_tree_at_least(fit, pool->size_bytes, 0);
    }
    pool->offset = node ? node->address : 0;
    return node != NULL;
}

void gml_planned_place_loaded(gml_planned *planned) {
    plan_pool pool = {0};
    if (gml_planned_yield(planned) != GML_OK) {
        return;
    }
    bool is_found = find_pool(planned, &pool);
    for (gml_kind *kind = planned->kinds; kind; kind = kind->next) {
        while (kind->loaded_count) {
            gml_plan *plan = kind->loaded[--kind->loaded_count];
            for (unsigned step = 0; step < plan->steps && is_found && is_of(&pool, plan); step++) {
                add_step(planned, &pool, kind, plan, step);
            }
            gml_plan_release(plan);
        }
    }
    planned->has_loaded = false;
    /* Long-lived blocks, which the plans leave out, must lie elsewhere. */
    if (is_found) {
        (void)gml_reservation_keep(pool.reservation, pool.offset, pool.size_bytes);
    }
}

/* ---- for the lake ---------------------------------------------------------------------------- */

gml_status gml_steps_add_plan(gml_policy *policy, uint64_t id, gml_plan *plan) {
    gml_planned *planned = gml_planned_of(policy);
    gml_kind *kind = gml_kind_make(planned, id);
    if (!kind) {
        return GML_NO_HOST_MEMORY;
    }
    if (kind->loaded_count == GML_KEPT_PLANS) {
        gml_plan_release(kind->loaded[--kind->loaded_count]);
    }
    kind->loaded[kind->loaded_count++] = gml_plan_retain(plan);
    planned->has_loaded = true;
    return GML_OK;
}
