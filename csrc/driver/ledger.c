/* A map of chunks, each of which lists its mappings, and a tree of these by address. */
#include "driver/ledger.h"

#include <inttypes.h>

void gml_ledger_init(gml_ledger *ledger, gml_driver *driver, size_t chunk_bytes,
                     size_t mapping_bytes) {
    ledger->driver = driver;
    ledger->chunk_objects.object_bytes = chunk_bytes;
    ledger->mapping_objects.object_bytes = mapping_bytes;
}

void gml_ledger_clear(gml_ledger *ledger) {
    gml_map_clear(&ledger->chunks);
    gml_pool_clear(&ledger->chunk_objects);
    gml_pool_clear(&ledger->mapping_objects);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

void *gml_ledger_prepare_chunk(gml_ledger *ledger, uint64_t size_bytes) {
    gml_physical *made = gml_pool_take(&ledger->chunk_objects);
    if (!made || gml_map_reserve(&ledger->chunks, 1) != GML_OK) {
        gml_pool_give(&ledger->chunk_objects, made);
        (void)gml_driver_fail(ledger->driver, GML_NO_HOST_MEMORY,
                              "create: no host memory for a handle");
        return NULL;
    }
    made->size_bytes = size_bytes;
    gml_list_init(&made->mappings);
    return made;
}

gml_handle gml_ledger_enter_chunk(gml_ledger *ledger, gml_physical *chunk) {
    chunk->handle = ++ledger->last_handle;
    (void)gml_map_insert(&ledger->chunks, chunk->handle, chunk); /* there is room */
    return chunk->handle;
}

void gml_ledger_drop_chunk(gml_ledger *ledger, gml_physical *chunk) {
    gml_pool_give(&ledger->chunk_objects, chunk);
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

void gml_ledger_remove_chunk(gml_ledger *ledger, gml_physical *chunk) {
    (void)gml_map_take(&ledger->chunks, chunk->handle);
    gml_pool_give(&ledger->chunk_objects, chunk);
}

void *gml_ledger_in_slot(const gml_ledger *ledger, size_t slot) {
    const gml_map_slot *at = &ledger->chunks.slots[slot];
    return at->key ? at->value : NULL;
}

/* ---- mappings -------------------------------------------------------------------------------- */

void *gml_ledger_prepare_mapping(gml_ledger *ledger) {
    gml_mapping *made = gml_pool_take(&ledger->mapping_objects);
    if (!made) {
        (void)gml_driver_fail(ledger->driver, GML_NO_HOST_MEMORY,
                              "map: no host memory for a mapping");
    }
    return made;
}

void gml_ledger_enter_mapping(gml_ledger *ledger, gml_mapping *mapping, gml_physical *chunk,
                              gml_address address) {
    mapping->node.address = address;
    mapping->size_bytes = chunk->size_bytes;
    mapping->chunk = chunk;
    gml_list_append(&chunk->mappings, &mapping->of_chunk);
    gml_tree_insert(&ledger->mappings, &mapping->node);
}

void gml_ledger_drop_mapping(gml_ledger *ledger, gml_mapping *mapping) {
    gml_pool_give(&ledger->mapping_objects, mapping);
}

bool gml_ledger_remove_mapping(gml_ledger *ledger, gml_mapping *mapping) {
    const gml_physical *chunk = mapping->chunk;
    gml_tree_remove(&ledger->mappings, &mapping->node);
    gml_list_remove(&mapping->of_chunk);
    gml_pool_give(&ledger->mapping_objects, mapping);
    return gml_physical_is_over(chunk);
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
