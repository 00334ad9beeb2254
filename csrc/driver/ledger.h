/* The books of a driver that hands out handles of its own: what is behind each, and where it is
 * mapped.
 *
 * Who keeps more of a chunk or a mapping has its first member be one of these, and says how large
 * the whole is. An entry is prepared first, which can fail, and entered after the call that it is
 * about has succeeded. Not locked: the driver's owner serialises the calls.
 */
#ifndef GML_DRIVER_LEDGER_H
#define GML_DRIVER_LEDGER_H

#include "base/list.h"
#include "base/pool.h"
#include "base/tree.h"
#include "driver/driver.h"

/* Physical memory as the user of the driver knows it. */
typedef struct gml_physical {
    gml_handle handle; /* never used again for other memory */
    uint64_t size_bytes;
    gml_link mappings; /* the oldest first */
    bool is_released;  /* by its handle: it ends with its last mapping */
} gml_physical;

typedef struct gml_mapping {
    gml_tree_node node; /* by address; its size is unused */
    uint64_t size_bytes;
    gml_physical *chunk;
    gml_link of_chunk;
    bool is_open;   /* access was set */
    bool is_absent; /* the driver below does not map it now */
} gml_mapping;

typedef struct gml_ledger {
    gml_driver *driver; /* receives the reasons */
    gml_handle last_handle;
    gml_map chunks;    /* by handle, those released and still mapped included */
    gml_tree mappings; /* by address */
    gml_pool chunk_objects, mapping_objects;
} gml_ledger;

/* A ledger that was zeroed memory. */
void gml_ledger_init(gml_ledger *ledger, gml_driver *driver, size_t chunk_bytes,
                     size_t mapping_bytes);
void gml_ledger_clear(gml_ledger *ledger);

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A chunk that is entered or dropped next; NULL, with a reason, without host memory. */
void *gml_ledger_prepare_chunk(gml_ledger *ledger, uint64_t size_bytes);
gml_handle gml_ledger_enter_chunk(gml_ledger *ledger, gml_physical *chunk);
void gml_ledger_drop_chunk(gml_ledger *ledger, gml_physical *chunk);

/* The chunk whose handle is held; NULL, with a reason for GML_MISUSE by `call`, if there is none.
 */
void *gml_ledger_demand(gml_ledger *ledger, const char *call, gml_handle handle);
void *gml_ledger_find(const gml_ledger *ledger, gml_handle handle);

/* Whether neither a handle nor a mapping is left. */
static inline bool gml_physical_is_over(const gml_physical *chunk) {
    return chunk->is_released && gml_list_is_empty(&chunk->mappings);
}

/* pre: gml_physical_is_over() */
void gml_ledger_remove_chunk(gml_ledger *ledger, gml_physical *chunk);

/* The chunk in a slot of ledger->chunks, or NULL. */
void *gml_ledger_in_slot(const gml_ledger *ledger, size_t slot);

/* ---- mappings -------------------------------------------------------------------------------- */

/* As for chunks. */
void *gml_ledger_prepare_mapping(gml_ledger *ledger);
void gml_ledger_enter_mapping(gml_ledger *ledger, gml_mapping *mapping, gml_physical *chunk,
                              gml_address address);
void gml_ledger_drop_mapping(gml_ledger *ledger, gml_mapping *mapping);

/* Whether its chunk is over now. */
bool gml_ledger_remove_mapping(gml_ledger *ledger, gml_mapping *mapping);

/* The first mapping that begins at `address` or behind it; the next one; NULL. */
void *gml_ledger_from(const gml_ledger *ledger, gml_address address);
void *gml_ledger_next(const gml_mapping *mapping);

/* The mapping that `address` lies in, or NULL. */
void *gml_ledger_at(const gml_ledger *ledger, gml_address address);

/* Access was set. */
void gml_ledger_open(gml_ledger *ledger, gml_address address, uint64_t size_bytes);

static inline gml_address gml_mapping_end(const gml_mapping *mapping) {
    return mapping->node.address + mapping->size_bytes;
}

static inline gml_mapping *gml_mapping_of_link(gml_link *link) {
    return (gml_mapping *)(void *)((char *)link - offsetof(gml_mapping, of_chunk));
}

#endif
