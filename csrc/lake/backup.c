/* The contents of live blocks, in host memory, while a lake sleeps. */
#include "lake/backup.h"

#include <stdlib.h>

/* ---- what is saved --------------------------------------------------------------------------- */

static int by_address(const void *left, const void *right) {
    gml_address a = ((const gml_saved *)left)->address, b = ((const gml_saved *)right)->address;
    return (a > b) - (a < b);
}

typedef struct listing {
    gml_lake *lake;
    gml_saved *found; /* NULL: they are only counted */
    size_t count, room;
} listing;

static void list(listing *to, const gml_saved *saved) {
    if (to->found && to->count < to->room) {
        to->found[to->count] = *saved;
    }
    to->count++;
}

/* One entry for each mapping: it is there, or not, as a whole. */
static void list_span(void *context, const gml_span_info *span) {
    listing *to = context;
    gml_address end = span->address + span->size_bytes;
    for (gml_address at = span->address, next; !span->is_view && at < end; at = next) {
        next = gml_remapper_mapping_end(to->lake->remapper, at);
        next = next && next < end ? next : end;
        list(to, &(gml_saved){.address = at, .size_bytes = next - at, .is_pools = true});
    }
}

static void skip_range(void *context, const gml_range_info *range) {
    (void)context;
    (void)range;
}

static void list_heap(void *context, const gml_heap *heap) {
    const gml_visitor visitor = {.context = context, .span = list_span, .range = skip_range};
    if (heap->policy->holds_results) {
        heap->policy->ops->visit(heap->policy, &visitor);
    }
}

static void list_all(listing *to) {
    const gml_map *blocks = &to->lake->blocks;
    to->count = 0;
    for (size_t i = 0; i < blocks->capacity; i++) {
        const gml_block *block = blocks->slots[i].value;
        if (blocks->slots[i].key && !block->owner->holds_results) {
            list(to, &(gml_saved){.address = block->address,
                                  .size_bytes = block->requested_bytes,
                                  .id = block->id});
        }
    }
    gml_pools_each_heap(&to->lake->pools, list_heap, to);
}

gml_status gml_backup_list(gml_lake *lake, gml_backup_store *store) {
    listing to = {.lake = lake};
    list_all(&to);
    to.room = to.count;
    to.found = malloc((to.room ? to.room : 1) * sizeof *to.found);
    if (!to.found) {
        return gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                               "no host memory for a list of blocks");
    }
    list_all(&to);
    qsort(to.found, to.count, sizeof *to.found, by_address);
    uint64_t offset_bytes = 0;
    for (size_t i = 0; i < to.count; i++) {
        to.found[i].offset_bytes = offset_bytes;
        offset_bytes += (to.found[i].size_bytes + 511) & ~UINT64_C(511);
    }
    free(store->blocks);
    store->blocks = to.found;
    store->count = to.count;
    store->room_bytes = offset_bytes;
    return GML_OK;
}

/* The entry that begins there or below, or NULL. */
static gml_saved *find_saved(const gml_backup_store *store, gml_address address) {
    size_t first = 0, end = store->count; /* it is at `first` - 1 */
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (store->blocks[middle].address <= address) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first ? &store->blocks[first - 1] : NULL;
}

const gml_saved *gml_backup_find(const gml_backup_store *store, gml_address address) {
    return find_saved(store, address);
}

void gml_backup_adopt(gml_backup_store *store, const gml_block *block) {
    gml_saved *saved = find_saved(store, block->address);
    if (saved && !saved->is_pools && saved->address == block->address) {
        saved->id = block->id;
    }
}

bool gml_backup_is_live(const gml_lake *lake, const gml_saved *saved) {
    if (saved->is_pools) {
        return gml_remapper_mapping_end(lake->remapper, saved->address) >=
               saved->address + saved->size_bytes;
    }
    const gml_block *block = gml_map_find(&lake->blocks, saved->address);
    return block && block->id == saved->id;
}

bool gml_backup_is_away(const gml_lake *lake, const gml_saved *saved) {
    return saved->is_saved &&
           !gml_remapper_holds(lake->remapper, saved->address, saved->size_bytes);
}

bool gml_backup_is_needed(const gml_lake *lake, const gml_backup_store *store) {
    bool is_needed = false;
    for (size_t i = 0; i < store->count && !is_needed; i++) {
        is_needed = gml_backup_is_live(lake, &store->blocks[i]);
    }
    return is_needed && gml_remapper_is_asleep(lake->remapper);
}

void gml_backup_drop_freed(const gml_lake *lake, gml_backup_store *store) {
    size_t left = 0;
    for (size_t i = 0; i < store->count; i++) {
        if (gml_backup_is_live(lake, &store->blocks[i])) {
            store->blocks[left++] = store->blocks[i];
        }
    }
    store->count = left;
}

uint64_t gml_backup_bytes(const gml_backup_store *store) {
    uint64_t sum = 0;
    for (size_t i = 0; i < store->count; i++) {
        sum += store->blocks[i].is_saved ? store->blocks[i].size_bytes : 0;
    }
    return sum;
}

/* ---- the host's memory ----------------------------------------------------------------------- */

gml_status gml_backup_have_memory(gml_lake *lake, gml_backup_store *store, uint64_t size_bytes) {
    if (store->memory && store->memory_bytes >= size_bytes) {
        return GML_OK;
    }
    if (store->memory) {
        gml_status status = gml_driver_host_free(lake->driver, store->memory, store->memory_bytes);
        if (status != GML_OK) {
            return status;
        }
        store->memory = NULL;
    }
    gml_status status =
        size_bytes ? gml_driver_host_malloc(lake->driver, size_bytes, &store->memory) : GML_OK;
    store->memory_bytes = status == GML_OK ? size_bytes : 0;
    return status;
}

gml_stream gml_backup_stream(const gml_lake *lake) {
    return lake->driver->per_thread_stream;
}

gml_status gml_backup_copy(gml_lake *lake, const gml_backup_store *store, size_t block,
                           bool is_out) {
    const gml_saved *at = &store->blocks[block];
    gml_stream stream = gml_backup_stream(lake);
    char *host = (char *)store->memory + at->offset_bytes;
    return is_out ? gml_driver_copy_out(lake->driver, host, at->address, at->size_bytes, stream)
                  : gml_driver_copy_in(lake->driver, at->address, host, at->size_bytes, stream);
}

void gml_backup_forget(gml_backup_store *store) {
    free(store->blocks);
    store->blocks = NULL;
    store->count = 0;
}

gml_status gml_backup_give_memory(gml_lake *lake) {
    gml_backup_store *store = lake->backup;
    gml_backup_forget(store);
    gml_status status = store->memory
                            ? gml_driver_host_free(lake->driver, store->memory, store->memory_bytes)
                            : GML_OK;
    store->memory = status == GML_OK ? NULL : store->memory;
    return status;
}

void gml_backup_end(gml_lake *lake) {
    if (lake->backup) {
        (void)gml_backup_give_memory(lake);
        if (lake->backup->event) {
            (void)gml_driver_event_destroy(lake->driver, lake->backup->event);
        }
        free(lake->backup);
        lake->backup = NULL;
    }
}
