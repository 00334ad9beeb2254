/* A map of chunks, each of which lists its mappings, and a tree of these by address. */
#include "driver/ledger.h"

#include <inttypes.h>

void gml_ledger_init(gml_ledger *ledger, gml_driver *driver, const gml_ledger_user *user) {
    ledger->driver = driver;
    ledger->user = user;
    ledger->chunk_objects.object_bytes = user->chunk_bytes;
    ledger->mapping_objects.object_bytes = user->mapping_bytes;
}

void gml_ledger_clear(gml_ledger *ledger) {
    gml_map_clear(&ledger->chunks);
    gml_pool_clear(&ledger->chunk_objects);
    gml_pool_clear(&ledger->mapping_objects);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

gml_status gml_ledger_create(gml_ledger *ledger, uint64_t size_bytes, gml_handle *out) {
    gml_physical *made = gml_pool_take(&ledger->chunk_objects);
    if (!made || gml_map_reserve(&ledger->chunks, 1) != GML_OK) {
        gml_pool_give(&ledger->chunk_objects, made);
        return gml_driver_fail(ledger->driver, GML_NO_HOST_MEMORY,
                               "create: no host memory for a handle");
    }
    made->size_bytes = size_bytes;
    gml_list_init(&made->mappings);
    gml_status status = ledger->user->take(ledger->driver, made);
    if (status != GML_OK) {
        gml_pool_give(&ledger->chunk_objects, made);
        return status;
    }
    *out = made->handle = ++ledger->last_handle;
    (void)gml_map_insert(&ledger->chunks, made->handle, made); /* there is room */
    return GML_OK;
}

void *gml_ledger_find(const gml_ledger *ledger, gml_handle handle) {
    gml_physical *found = gml_map_find(&ledger->chunks, handle);
    return found && !found->is_released ? found : NULL;
}

void *gml_ledger_demand(gml_ledger *ledger, const char *call, gml_handle handle) {
    gml_physical *found = gml_ledger_find(ledger, handle);
    if (!found) {
        (void)gml_driver_fail(ledger->driver, GML_MISUSE,
                              "%s: handle %" PRIu64 " does not exist or was released", call,
                              handle);
    }
    return found;
}

gml_status gml_ledger_end(gml_ledger *ledger, gml_physical *chunk) {
    gml_status status = GML_OK;
    if (gml_physical_is_over(chunk)) {
        status = ledger->user->give(ledger->driver, chunk);
        if (status == GML_OK) {
            (void)gml_map_take(&ledger->chunks, chunk->handle);
            gml_pool_give(&ledger->chunk_objects, chunk);
        }
    }
    return status;
}

gml_status gml_ledger_release(gml_ledger *ledger, gml_handle handle) {
    gml_physical *released = gml_ledger_demand(ledger, "release", handle);
    if (!released) {
        return GML_MISUSE;
    }
    released->is_released = true;
    gml_status status = gml_ledger_end(ledger, released);
    if (status != GML_OK) {
        released->is_released = false;
    }
    return status;
}

void *gml_ledger_in_slot(const gml_ledger *ledger, size_t slot) {
    const gml_map_slot *at = &ledger->chunks.slots[slot];
    return at->key ? at->value : NULL;
}

/* ---- mappings -------------------------------------------------------------------------------- */

gml_status gml_ledger_map(gml_ledger *ledger, gml_address address, uint64_t size_bytes,
                          gml_handle handle) {
    gml_physical *chunk = gml_ledger_demand(ledger, "map", handle);
    if (!chunk) {
        return GML_MISUSE;
    }
    if (chunk->size_bytes != size_bytes) {
        return gml_driver_fail(ledger->driver, GML_MISUSE,
                               "map: %" PRIu64 " bytes of handle %" PRIu64 " that has %" PRIu64
                               "; a handle is mapped whole",
                               size_bytes, handle, chunk->size_bytes);
    }
    gml_mapping *made = gml_pool_take(&ledger->mapping_objects);
    if (!made) {
        return gml_driver_fail(ledger->driver, GML_NO_HOST_MEMORY,
                               "map: no host memory for a mapping");
    }
    gml_status status = ledger->user->map(ledger->driver, address, chunk);
    if (status != GML_OK) {
        gml_pool_give(&ledger->mapping_objects, made);
        return status;
    }
    made->node.address = address;
    made->size_bytes = chunk->size_bytes;
    made->chunk = chunk;
    gml_list_append(&chunk->mappings, &made->of_chunk);
    gml_tree_insert(&ledger->mappings, &made->node);
    return GML_OK;
}

gml_status gml_ledger_lose(gml_ledger *ledger, gml_mapping *mapping) {
    gml_status status = GML_OK;
    if (!mapping->is_absent) {
        status = ledger->user->unmap(ledger->driver, mapping->node.address, mapping->size_bytes);
        mapping->is_absent = status == GML_OK;
        ledger->absent_count += mapping->is_absent;
    }
    return status;
}

void gml_ledger_regain(gml_ledger *ledger, gml_mapping *mapping) {
    ledger->absent_count -= mapping->is_absent;
    mapping->is_absent = false;
}

/* Takes a mapping that has ended out of the books. */
static void forget(gml_ledger *ledger, gml_mapping *gone) {
    gml_physical *chunk = gone->chunk;
    gml_ledger_regain(ledger, gone);
    gml_tree_remove(&ledger->mappings, &gone->node);
    gml_list_remove(&gone->of_chunk);
    gml_pool_give(&ledger->mapping_objects, gone);
    (void)gml_ledger_end(ledger, chunk);
}

gml_status gml_ledger_unmap(gml_ledger *ledger, gml_address address, uint64_t size_bytes) {
    gml_address end = address + size_bytes;
    gml_status status =
        ledger->absent_count ? GML_OK : ledger->user->unmap(ledger->driver, address, size_bytes);
    gml_mapping *at = ledger->absent_count ? gml_ledger_from(ledger, address) : NULL;
    for (; at && at->node.address < end && status == GML_OK; at = gml_ledger_next(at)) {
        status = gml_ledger_lose(ledger, at);
    }
    at = status == GML_OK ? gml_ledger_from(ledger, address) : NULL;
    for (gml_mapping *next; at && at->node.address < end; at = next) {
        next = gml_ledger_next(at);
        forget(ledger, at);
    }
    return status;
}

void *gml_ledger_from(const gml_ledger *ledger, gml_address address) {
    return gml_tree_at_least(&ledger->mappings, 0, address);
}

void *gml_ledger_next(const gml_mapping *mapping) {
    return gml_tree_next(&mapping->node);
}

void *gml_ledger_at(const gml_ledger *ledger, gml_address address) {
    gml_tree_node *behind = gml_tree_at_least(&ledger->mappings, 0, address + 1);
    gml_tree_node *node = behind ? gml_tree_previous(behind) : gml_tree_last(&ledger->mappings);
    gml_mapping *below = (gml_mapping *)(void *)node;
    return below && address < gml_mapping_end(below) ? below : NULL;
}

void gml_ledger_open(gml_ledger *ledger, gml_address address, uint64_t size_bytes) {
    gml_mapping *at = gml_ledger_from(ledger, address);
    for (; at && at->node.address < address + size_bytes; at = gml_ledger_next(at)) {
        at->is_open = true;
    }
}
