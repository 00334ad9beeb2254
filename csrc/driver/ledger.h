/* The books of a driver that hands out handles of its own: what is behind each, and where it is
 * mapped.
 *
 * Who keeps more of a chunk or a mapping has its first member be one of these, and says how large
 * the whole is. What has to happen below is asked of the user: room for the record is made before,
 * the record after it has succeeded. Not locked: the driver's owner serialises the calls.
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

/* What a user does below, whose ledger->driver is `self`. */
typedef struct gml_ledger_user {
    /* Takes the memory of a chunk that is new. */
    gml_status (*take)(gml_driver *self, gml_physical *chunk);
    gml_status (*map)(gml_driver *self, gml_address address, gml_physical *chunk);
    gml_status (*unmap)(gml_driver *self, gml_address address, uint64_t size_bytes);
    /* Gives the memory of a chunk back; it stays in the books after a failure. */
    gml_status (*give)(gml_driver *self, gml_physical *chunk);
    size_t chunk_bytes, mapping_bytes;
} gml_ledger_user;

typedef struct gml_ledger {
    const gml_ledger_user *user;
    gml_driver *driver; /* receives the reasons, too */
    gml_handle last_handle;
    gml_map chunks;      /* by handle, those released and still mapped included */
    gml_tree mappings;   /* by address */
    size_t absent_count; /* of the mappings */
    gml_pool chunk_objects, mapping_objects;
} gml_ledger;

/* A ledger that was zeroed memory. */
void gml_ledger_init(gml_ledger *ledger, gml_driver *driver, const gml_ledger_user *user);
void gml_ledger_clear(gml_ledger *ledger);

/* ---- chunks ---------------------------------------------------------------------------------- */

gml_status gml_ledger_create(gml_ledger *ledger, uint64_t size_bytes, gml_handle *out);

/* A chunk that is mapped is given back with its last mapping. */
gml_status gml_ledger_release(gml_ledger *ledger, gml_handle handle);

/* The chunk whose handle is held, or NULL; the first with a reason for GML_MISUSE by `call`. */
void *gml_ledger_demand(gml_ledger *ledger, const char *call, gml_handle handle);
void *gml_ledger_find(const gml_ledger *ledger, gml_handle handle);

/* Whether neither a handle nor a mapping is left. */
static inline bool gml_physical_is_over(const gml_physical *chunk) {
    return chunk->is_released && gml_list_is_empty(&chunk->mappings);
}

/* Gives the chunk back, if it is over. */
gml_status gml_ledger_end(gml_ledger *ledger, gml_physical *chunk);

/* The chunk in a slot of ledger->chunks, or NULL. */
void *gml_ledger_in_slot(const gml_ledger *ledger, size_t slot);

/* ---- mappings -------------------------------------------------------------------------------- */

gml_status gml_ledger_map(gml_ledger *ledger, gml_address address, uint64_t size_bytes,
                          gml_handle handle);

/* Ends the mappings of a range: in one call below, unless some are absent. After a failure all
 * remain in the books. A chunk that cannot be given back with its last one is kept. */
gml_status gml_ledger_unmap(gml_ledger *ledger, gml_address address, uint64_t size_bytes);

/* Unmaps one mapping below, unless it is absent, which it is then. */
gml_status gml_ledger_lose(gml_ledger *ledger, gml_mapping *mapping);

/* It is mapped below again. */
void gml_ledger_regain(gml_ledger *ledger, gml_mapping *mapping);

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
