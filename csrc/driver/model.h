/* The rules of CUDA's virtual memory, as a model without a device: handles, mappings, access
 * rights, and the physical memory they take.
 *
 * A backend checks each operation with the model before, and records it after. Each function either
 * returns GML_OK or changes nothing and leaves one line in driver->reason: GML_MISUSE where a real
 * driver would refuse, GML_OUT_OF_MEMORY beyond the capacity, GML_NO_HOST_MEMORY. Addresses of
 * reservations come from the caller, or from gml_model_find_hole() where there is no real address
 * space. Not locked: the driver's owner serialises the calls.
 *
 * Costs: map and lookup of a handle O(1) in the number of handles, ranges O(log ranges), set_access
 * and unmap linear in the granules of their range.
 */
#ifndef GML_DRIVER_MODEL_H
#define GML_DRIVER_MODEL_H

#include "base/map.h"
#include "base/pool.h"
#include "base/tree.h"
#include "driver/driver.h"

/* Physical memory: alive while its handle is held or a mapping is left. */
typedef struct gml_physical {
    gml_handle handle;     /* never used again for other memory */
    uint64_t size_bytes;   /* a multiple of the granularity */
    uint64_t offset_bytes; /* its place in an endless physical memory; never used again */
    uint64_t mappings;     /* address ranges that map it now */
    bool is_released;      /* the handle was released */
} gml_physical;

/* One granule of a reservation. */
typedef struct gml_model_granule {
    gml_physical *physical; /* NULL: nothing is mapped here */
    uint32_t index;         /* of the granule within its mapping; 0 begins a mapping */
    bool is_accessible;     /* set_access was called since the mapping */
} gml_model_granule;

/* A reservation, or a plain block as malloc gives it. */
typedef struct gml_range {
    gml_tree_node node; /* ordered by address; its size is unused */
    uint64_t size_bytes;
    gml_model_granule *slots; /* one per granule; NULL for a plain block */
    uint64_t mapped_slots;    /* how many of them are mapped */
} gml_range;

typedef struct gml_model {
    gml_driver *driver;         /* receives the reasons */
    uint64_t granularity_bytes; /* a power of two */
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* physical memory plus plain blocks */
    gml_handle next_handle;
    uint64_t next_offset_bytes;
    gml_address next_hole; /* where gml_model_find_hole continues */
    gml_tree ranges;       /* every reservation and plain block, by address */
    gml_range *last_range; /* found last, a cache; NULL if none */
    gml_map handles;       /* held handles to gml_physical */
    gml_pool physicals, range_objects;
    /* Called just before physical memory is released; may be NULL. */
    void (*on_gone)(gml_driver *driver, const gml_physical *physical);
} gml_model;

/* GML_INVALID_ARGUMENT unless the granularity is a power of two of 512 or more. The capacity is
 * rounded down to a multiple of 512. */
gml_status gml_model_init(gml_model *model, gml_driver *driver, uint64_t capacity_bytes,
                          uint64_t granularity_bytes);
void gml_model_clear(gml_model *model);

gml_status gml_model_create(gml_model *model, uint64_t size_bytes, gml_handle *out);
gml_status gml_model_release(gml_model *model, gml_handle handle);

/* The memory behind a held handle, or NULL. */
const gml_physical *gml_model_physical(const gml_model *model, gml_handle handle);

/* Size and alignment of a reservation that is asked for; alignment 0 becomes the granularity. */
gml_status gml_model_check_reserve(gml_model *model, uint64_t size_bytes,
                                   uint64_t *alignment_bytes);

/* Free addresses in [2^47, 2^52), which no recorded user-space address can meet. They ascend, and
 * start again from the bottom after that. */
gml_status gml_model_find_hole(gml_model *model, uint64_t size_bytes, uint64_t alignment_bytes,
                               gml_address *out);

/* Whether no reservation or plain block touches the range. */
bool gml_model_is_hole(const gml_model *model, gml_address address, uint64_t size_bytes);

gml_status gml_model_reserve(gml_model *model, gml_address address, uint64_t size_bytes);
gml_status gml_model_unreserve(gml_model *model, gml_address address, uint64_t size_bytes);

gml_status gml_model_map(gml_model *model, gml_address address, uint64_t size_bytes,
                         gml_handle handle);

/* `mappings` (may be NULL) receives how many whole mappings the range has. */
gml_status gml_model_unmap(gml_model *model, gml_address address, uint64_t size_bytes,
                           uint64_t *mappings);
gml_status gml_model_set_access(gml_model *model, gml_address address, uint64_t size_bytes,
                                uint64_t *mappings);

/* The same questions without the deed, for a backend that must act in between. */
gml_status gml_model_check_unreserve(gml_model *model, gml_address address, uint64_t size_bytes);
gml_status gml_model_check_map(gml_model *model, gml_address address, uint64_t size_bytes,
                               gml_handle handle);
gml_status gml_model_check_whole(gml_model *model, const char *call, gml_address address,
                                 uint64_t size_bytes);
gml_status gml_model_check_malloc(gml_model *model, uint64_t size_bytes);
/* `size_bytes` (may be NULL) receives the size that malloc was asked for. */
gml_status gml_model_check_free(gml_model *model, gml_address address, uint64_t *size_bytes);

/* A plain block at a hole; its memory counts in multiples of 512. */
gml_status gml_model_malloc(gml_model *model, gml_address address, uint64_t size_bytes);
gml_status gml_model_free(gml_model *model, gml_address address);

/* Whether a kernel could touch every byte: mapped and opened, or inside one plain block. */
gml_status gml_model_check_touch(gml_model *model, gml_address address, uint64_t size_bytes);

/* ---- between the two files of the model ------------------------------------------------------ */

/* GML_MISUSE unless both are multiples of the granularity and the size is not 0. */
gml_status gml_model_check_aligned(gml_model *model, const char *call, gml_address address,
                                   uint64_t size_bytes);

/* The reservation or plain block that `address` lies in, or NULL. */
gml_range *gml_model_range_at(gml_model *model, gml_address address);

/* Releases physical memory without a handle or mapping. */
void gml_model_drop_if_gone(gml_model *model, gml_physical *physical);

#endif
