/* The contents of live blocks, in host memory or in a file, while a lake sleeps. */
#include "lake/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t RING_BYTES = UINT64_C(32) << 20; /* of each buffer between device and disk */

enum { RING_BUFFERS = 2 };

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

/* Queues the copy of a piece of memory to the host, or back. */
static gml_status copy(gml_lake *lake, bool is_out, gml_address address, char *host,
                       uint64_t size_bytes) {
    gml_stream stream = gml_backup_stream(lake);
    return is_out ? gml_driver_copy_out(lake->driver, host, address, size_bytes, stream)
                  : gml_driver_copy_in(lake->driver, address, host, size_bytes, stream);
}

gml_status gml_backup_copy(gml_lake *lake, const gml_backup_store *store, size_t block,
                           bool is_out) {
    const gml_saved *at = &store->blocks[block];
    return copy(lake, is_out, at->address, (char *)store->memory + at->offset_bytes,
                at->size_bytes);
}

/* ---- a file ---------------------------------------------------------------------------------- */

static gml_status fail_file(gml_lake *lake, const char *what, const char *where) {
    return gml_driver_fail(lake->driver, GML_DRIVER_FAILED, "%s %.120s: %m", what, where);
}

static void close_file(gml_backup_store *store) {
    if (store->file != GML_NO_FILE) {
        (void)close(store->file);
        store->file = GML_NO_FILE;
    }
}

/* Transfers all bytes, across partial reads and writes. */
static gml_status move_file(gml_lake *lake, const gml_backup_store *store, bool is_out, char *bytes,
                            uint64_t size_bytes, uint64_t offset_bytes) {
    while (size_bytes) {
        ssize_t moved = is_out ? pwrite(store->file, bytes, (size_t)size_bytes, (off_t)offset_bytes)
                               : pread(store->file, bytes, (size_t)size_bytes, (off_t)offset_bytes);
        if (moved <= 0) {
            if (moved < 0 && errno == EINTR) {
                continue;
            }
            errno = moved < 0 ? errno : EIO;
            return fail_file(lake, "what sleeps:", is_out ? "writing" : "reading");
        }
        bytes += moved;
        size_bytes -= (uint64_t)moved;
        offset_bytes += (uint64_t)moved;
    }
    return GML_OK;
}

/* A piece of a block, as large as a buffer at most. */
typedef struct piece {
    size_t block;
    uint64_t begin_bytes; /* in the block */
    uint64_t size_bytes;
} piece;

/* The piece after `at` of those that move; false at the end. */
static bool next_piece(const gml_lake *lake, const gml_backup_store *store, bool is_out,
                       piece *at) {
    at->begin_bytes += at->size_bytes;
    while (at->block < store->count &&
           (at->begin_bytes == store->blocks[at->block].size_bytes ||
            !(is_out || gml_backup_is_away(lake, &store->blocks[at->block])))) {
        at->block++;
        at->begin_bytes = 0;
    }
    if (at->block == store->count) {
        return false;
    }
    uint64_t left_bytes = store->blocks[at->block].size_bytes - at->begin_bytes;
    at->size_bytes = left_bytes < RING_BYTES ? left_bytes : RING_BYTES;
    return true;
}

/* Writes the pending piece, if any. */
static gml_status write_piece(gml_lake *lake, const gml_backup_store *store, const piece *at,
                              char *buffer) {
    return at->size_bytes ? move_file(lake, store, true, buffer, at->size_bytes,
                                      store->blocks[at->block].offset_bytes + at->begin_bytes)
                          : GML_OK;
}

/* Between device and file, by two buffers: the device copies one while the file transfers the
 * other. */
gml_status gml_backup_move_all(gml_lake *lake, gml_backup_store *store, bool is_out) {
    char *ring = store->memory;
    piece at = {0}, before = {0};
    size_t turn = 0;
    gml_status status = GML_OK;
    while (status == GML_OK && next_piece(lake, store, is_out, &at)) {
        char *buffer = ring + turn * RING_BYTES;
        char *other = ring + (1 - turn) * RING_BYTES;
        const gml_saved *of = &store->blocks[at.block];
        if (!is_out) {
            status = move_file(lake, store, false, buffer, at.size_bytes,
                               of->offset_bytes + at.begin_bytes);
        }
        if (status == GML_OK) {
            status = gml_driver_stream_synchronize(lake->driver, gml_backup_stream(lake));
        }
        if (status == GML_OK) {
            status = copy(lake, is_out, of->address + at.begin_bytes, buffer, at.size_bytes);
        }
        if (status == GML_OK && is_out) {
            status = write_piece(lake, store, &before, other);
        }
        before = at;
        turn = 1 - turn;
    }
    gml_status waited = gml_driver_stream_synchronize(lake->driver, gml_backup_stream(lake));
    status = status == GML_OK ? waited : status;
    if (status == GML_OK && is_out) {
        status = write_piece(lake, store, &before, ring + (1 - turn) * RING_BYTES);
    }
    for (size_t i = 0; i < store->count && status == GML_OK && is_out; i++) {
        store->blocks[i].is_saved = true;
    }
    return status;
}

gml_status gml_backup_save_to_file(gml_lake *lake, gml_backup_store *store, const char *folder) {
    const char *where = folder ? folder : "/tmp";
    store->file = open(where, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (store->file < 0) {
        return fail_file(lake, "what sleeps cannot be saved to a file in", where);
    }
    gml_status status = gml_backup_have_memory(lake, store, RING_BUFFERS * RING_BYTES);
    return status == GML_OK ? gml_backup_move_all(lake, store, true) : status;
}

void gml_backup_forget(gml_backup_store *store) {
    free(store->blocks);
    store->blocks = NULL;
    store->count = 0;
    close_file(store);
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
