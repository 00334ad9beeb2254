/* Memory of a lake that other processes map, and theirs that is mapped through it. */
#include "base/fnv.h"
#include "base/status.h"
#include "gmlake_share.h"
#include "lake/lake.h"

#include <inttypes.h>
#include <unistd.h>

/* ---- export ---------------------------------------------------------------------------------- */

/* A block, and the chunks of it that were found so far. */
typedef struct tour {
    gml_lake *lake;
    gml_address address;
    uint64_t size_bytes;
    gml_shared_piece *out;
    size_t capacity, count;
    bool is_count;  /* no file is wanted */
    bool is_lent;   /* files are the caller's, not the lake's */
    bool are_alike; /* all chunks are of one size */
    uint64_t mark;
    uint64_t offset_bytes; /* of the block in the first chunk */
    uint64_t first_bytes;  /* of the first chunk */
    uint64_t found_bytes;  /* of the block */
    gml_policy *owner;     /* of the block */
    gml_status status;
} tour;

static gml_status not_exportable(const tour *of) {
    return gml_driver_fail(of->lake->driver, GML_UNSUPPORTED,
                           "the block at 0x%" PRIx64 " lies in memory that no other process can "
                           "map",
                           of->address);
}

/* The chunks below `size_bytes` at `range`, which come next in the block. All but the first begin
 * with the bytes that come next. */
static void add_chunks(tour *of, gml_address range, uint64_t size_bytes) {
    gml_policy *policy = of->owner;
    for (uint64_t done = 0; done < size_bytes && of->status == GML_OK;) {
        gml_chunk chunk = {0};
        int file = -1;
        of->status = policy->ops->chunk ? policy->ops->chunk(policy, range + done, &chunk)
                                        : not_exportable(of);
        if (of->status == GML_OK && !of->is_count) {
            of->status =
                gml_driver_export_file(of->lake->driver, chunk.handle, !of->is_lent, &file);
        }
        if (of->status != GML_OK) {
            return;
        }
        uint64_t skipped = range + done - chunk.address;
        if (of->count < of->capacity) {
            of->out[of->count] = (gml_shared_piece){file, chunk.size_bytes};
        } else if (of->is_lent) {
            (void)close(file);
        }
        of->first_bytes = of->count ? of->first_bytes : chunk.size_bytes;
        of->are_alike &= chunk.size_bytes == of->first_bytes;
        of->mark = gml_fnv_add(of->mark, chunk.handle);
        if (of->count++ == 0) {
            of->offset_bytes = skipped;
        } else if (skipped) {
            of->status = not_exportable(of);
            return;
        }
        done += chunk.size_bytes - skipped;
    }
    of->found_bytes += size_bytes;
}

static void pass_span(void *context, const gml_span_info *span) {
    (void)context, (void)span;
}

static void pass_range(void *context, const gml_range_info *range) {
    (void)context, (void)range;
}

/* Pieces come in the order of their addresses, and those of one block side by side. */
static void see_piece(void *context, const gml_piece_info *piece) {
    tour *of = context;
    gml_address begin = piece->address > of->address ? piece->address : of->address;
    gml_address end = of->address + of->size_bytes;
    gml_address piece_end = piece->address + piece->size_bytes;
    end = piece_end < end ? piece_end : end;
    if (begin < end && of->status == GML_OK) {
        add_chunks(of, piece->base_address + (begin - piece->address), end - begin);
    }
}

static gml_status export_locked(gml_lake *lake, gml_address address, tour *of) {
    gml_block *block = gml_map_find(&lake->blocks, address);
    if (!address || !block || block->is_elastic) {
        return gml_driver_fail(lake->driver, GML_UNKNOWN_ADDRESS,
                               "no live block begins at 0x%" PRIx64, address);
    }
    of->size_bytes = block->block_bytes;
    of->owner = block->owner;
    const gml_visitor visitor = {of, pass_span, pass_range, see_piece, NULL};
    of->status = GML_OK;
    gml_lake_visit_locked(lake, &visitor);
    if (of->status == GML_OK && of->found_bytes == 0) {
        add_chunks(of, address, of->size_bytes); /* in no view, so in the base range */
    }
    gml_status status = of->status;
    if (status == GML_OK && of->found_bytes < of->size_bytes) {
        status = not_exportable(of);
    }
    block->is_exported |= status == GML_OK && !of->is_count;
    return status;
}

gml_status gml_lake_export(gml_lake *lake, gml_address address, gml_shared_piece *out,
                           size_t capacity, size_t *count, uint64_t *offset_bytes) {
    tour of = {.lake = lake, .address = address, .out = out, .capacity = capacity};
    pthread_mutex_lock(&lake->lock);
    gml_status status = export_locked(lake, address, &of);
    pthread_mutex_unlock(&lake->lock);
    if (status == GML_OK) {
        *count = of.count;
        *offset_bytes = of.offset_bytes;
    }
    return status;
}

gml_status gml_lake_lend(gml_lake *lake, gml_address address, gml_shared_piece *out,
                         size_t capacity, gml_lent *about) {
    tour of = {.lake = lake,
               .address = address,
               .out = out,
               .capacity = capacity,
               .is_lent = true,
               .are_alike = true,
               .mark = gml_fnv_add(GML_FNV_BEGIN, address)};
    pthread_mutex_lock(&lake->lock);
    gml_status status = export_locked(lake, address, &of);
    pthread_mutex_unlock(&lake->lock);
    *about = (gml_lent){of.count, of.offset_bytes, of.mark, of.are_alike};
    for (size_t i = 0; status != GML_OK && i < of.count && i < capacity; i++) {
        (void)close(out[i].file);
    }
    return status;
}

gml_status gml_lake_count_chunks(gml_lake *lake, gml_address address, size_t *count) {
    tour of = {.lake = lake, .address = address, .is_count = true};
    pthread_mutex_lock(&lake->lock);
    gml_status status = export_locked(lake, address, &of);
    pthread_mutex_unlock(&lake->lock);
    if (status == GML_OK) {
        *count = of.count;
    }
    return status;
}

gml_status gml_lake_arena(gml_lake *lake, gml_address *out, uint64_t *size_bytes) {
    gml_status status = GML_OK;
    pthread_mutex_lock(&lake->lock);
    if (lake->driver->arena_bytes) {
        *out = lake->driver->arena;
        *size_bytes = lake->driver->arena_bytes;
    } else {
        status = gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                 "this lake is not served from one allocation: see the setting "
                                 "arena");
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

/* ---- import ---------------------------------------------------------------------------------- */

/* A mapped import: its size, and whether its user is done with it. Sizes are even. */
static void *import_of(uint64_t size_bytes, bool is_over) {
    return (void *)(uintptr_t)(size_bytes | is_over);
}

static gml_status end_import(gml_lake *lake, gml_address address) {
    uint64_t size_bytes = (uintptr_t)gml_map_take(&lake->imports, address) & ~UINT64_C(1);
    gml_status status = gml_driver_close_files(lake->driver, address, size_bytes);
    if (status != GML_OK) {
        /* Cannot fail: the entry just removed left room. */
        (void)gml_map_insert(&lake->imports, address, import_of(size_bytes, true));
        lake->over_imports++;
    }
    return status;
}

/* Ends imports that could not be ended earlier, for example during a graph capture. */
static void end_late_imports(gml_lake *lake) {
    size_t left = lake->over_imports;
    for (size_t i = 0; left && i < lake->imports.capacity; i++) {
        const gml_map_slot *slot = &lake->imports.slots[i];
        if (slot->key && (uintptr_t)slot->value & 1) {
            left--;
            lake->over_imports--;
            (void)end_import(lake, slot->key);
        }
    }
}

gml_status gml_lake_import(gml_lake *lake, const gml_shared_piece *pieces, size_t count,
                           gml_address *out) {
    gml_address address = 0;
    pthread_mutex_lock(&lake->lock);
    end_late_imports(lake);
    gml_status status = gml_map_reserve(&lake->imports, 1);
    if (status == GML_OK) {
        status = gml_driver_open_files(lake->driver, pieces, count, &address);
    }
    if (status == GML_OK) {
        uint64_t size_bytes = gml_shared_bytes(pieces, count);
        (void)gml_map_insert(&lake->imports, address, import_of(size_bytes, false));
        *out = address;
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_unimport(gml_lake *lake, gml_address address) {
    pthread_mutex_lock(&lake->lock);
    end_late_imports(lake);
    const void *found = address ? gml_map_find(&lake->imports, address) : NULL;
    gml_status status =
        found && !((uintptr_t)found & 1)
            ? end_import(lake, address)
            : gml_driver_fail(lake->driver, GML_UNKNOWN_ADDRESS,
                              "nothing of another process is mapped at 0x%" PRIx64, address);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_end_imports(gml_lake *lake) {
    gml_status first = GML_OK;
    for (size_t i = 0; i < lake->imports.capacity; i++) {
        const gml_map_slot *slot = &lake->imports.slots[i];
        if (slot->key) {
            uint64_t size_bytes = (uintptr_t)slot->value & ~UINT64_C(1);
            first = gml_first_failure(first,
                                      gml_driver_close_files(lake->driver, slot->key, size_bytes));
        }
    }
    gml_map_clear(&lake->imports);
    return first;
}
