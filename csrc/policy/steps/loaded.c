/* Places that come from elsewhere, as from a file, and not from how the policy served a step: their
 * pool is taken in one piece. */
#include "policy/steps/planned.h"

/* Where the places of one stream lie, one step over the other: no two are served at a time. */
typedef struct place_pool {
    gml_reservation *reservation;
    gml_stream stream;
    uint64_t offset, size_bytes; /* in the base range */
} place_pool;

static bool is_of(const place_pool *pool, const gml_layout *layout) {
    return layout->entry_count && layout->entries->stream == pool->stream;
}

static uint64_t bytes_of(const gml_layout *layout) {
    uint64_t most = 0;
    for (size_t i = 0; i < layout->entry_count; i++) {
        const gml_run *run = &layout->entries[i].place.run;
        uint64_t end = run->offset + run->size_bytes;
        most = end > most ? end : most;
    }
    return most;
}

/* Room for the largest step of the first one's stream, free in the stream cache; false if there is
 * none. */
static bool find_pool(gml_planned *planned, place_pool *pool) {
    bool is_any = false;
    for (const gml_kind *kind = planned->kinds; kind; kind = kind->next) {
        for (size_t i = 0; i < kind->loaded_count; i++) {
            const gml_layout *layout = kind->loaded[i];
            if (!is_any && layout->entry_count) {
                pool->stream = layout->entries->stream;
                is_any = true;
            }
            uint64_t bytes = is_of(pool, layout) ? bytes_of(layout) : 0;
            pool->size_bytes = bytes > pool->size_bytes ? bytes : pool->size_bytes;
        }
    }
    pool->reservation = pool->size_bytes ? gml_planned_reservation(planned, pool->stream) : NULL;
    if (!pool->reservation) {
        return false;
    }
    const gml_tree *fit = &pool->reservation->cache->set.fit;
    const gml_tree_node *node = gml_tree_at_least(fit, pool->size_bytes, 0);
    if (!node && gml_stitch_grow(planned->stitch, pool->reservation->cache, pool->size_bytes,
                                 false) == GML_OK) {
        node = gml_tree_at_least(fit, pool->size_bytes, 0);
    }
    pool->offset = node ? node->address : 0;
    return node != NULL;
}

static void place(const place_pool *pool, gml_layout *layout) {
    for (size_t i = 0; i < layout->entry_count; i++) {
        gml_entry *entry = &layout->entries[i];
        if (entry->place.run.size_bytes) {
            entry->reservation = pool->reservation;
            entry->place.run.offset += pool->offset;
        }
    }
}

void gml_planned_place_loaded(gml_planned *planned) {
    place_pool pool = {0};
    if (gml_planned_yield(planned) != GML_OK) {
        return;
    }
    bool is_found = find_pool(planned, &pool);
    for (gml_kind *kind = planned->kinds; kind; kind = kind->next) {
        while (kind->loaded_count) {
            gml_layout *layout = kind->loaded[--kind->loaded_count];
            if (is_found && is_of(&pool, layout)) {
                place(&pool, layout);
                (void)gml_kind_keep_layout(planned, kind, layout);
            } else {
                gml_layout_free(planned, layout);
            }
        }
    }
    planned->has_loaded = false;
    /* Long-lived blocks, which have no place there, must lie elsewhere. */
    if (is_found) {
        (void)gml_reservation_keep(pool.reservation, pool.offset, pool.size_bytes);
    }
}

/* ---- for the lake ---------------------------------------------------------------------------- */

static bool is_in_range(const gml_placed_request *request) {
    return request->offset == GML_NO_OFFSET ||
           ((request->offset | request->size_bytes) % GML_ALIGNMENT == 0 &&
            request->size_bytes <= GML_NO_OFFSET - request->offset);
}

/* A layout whose offsets are in the pool. */
static gml_status make_layout(gml_driver *driver, const gml_placed_request *requests, size_t count,
                              gml_layout **out) {
    *out = gml_layout_new(0);
    bool is_added = *out != NULL;
    for (size_t i = 0; i < count && is_added; i++) {
        const gml_placed_request *request = &requests[i];
        gml_entry entry = {.size_bytes = request->size_bytes, .stream = request->stream};
        if (!is_in_range(request)) {
            return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                                   "place %zu of a step is not aligned, or overflows", i);
        }
        if (request->offset != GML_NO_OFFSET && request->stream == requests->stream) {
            entry.place.run =
                (gml_run){.offset = request->offset, .size_bytes = request->size_bytes};
        }
        is_added = gml_layout_push(*out, &entry);
    }
    return is_added ? GML_OK
                    : gml_driver_fail(driver, GML_NO_HOST_MEMORY,
                                      "no host memory for %zu places of a step", count);
}

gml_status gml_steps_add_places(gml_policy *policy, uint64_t id, const gml_placed_request *requests,
                                size_t count) {
    gml_planned *planned = gml_planned_of(policy);
    gml_kind *kind = gml_kind_make(planned, id);
    if (!kind) {
        return GML_NO_HOST_MEMORY;
    }
    gml_layout *layout;
    gml_status status = make_layout(policy->driver, requests, count, &layout);
    if (status != GML_OK) {
        gml_layout_free(planned, layout);
        return status;
    }
    if (kind->loaded_count == GML_KEPT_PLANS) {
        gml_layout_free(planned, kind->loaded[--kind->loaded_count]);
    }
    layout->is_loaded = true;
    kind->loaded[kind->loaded_count++] = layout;
    planned->has_loaded = true;
    return GML_OK;
}
