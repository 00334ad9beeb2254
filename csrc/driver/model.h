/* The backend without a device: the rules of CUDA's virtual memory, as a model, and queues for
 * streams. backends.h lists its kinds.
 *
 * Each call is checked with the books, then done with the host's addresses and bytes where there
 * are any, then recorded. A call either does so or changes nothing and leaves one line in
 * driver->reason: GML_MISUSE where a real driver would refuse, GML_OUT_OF_MEMORY beyond the
 * capacity, GML_NO_HOST_MEMORY. Not locked: the driver's owner serialises the calls.
 *
 * Costs: handles O(1), ranges and mappings O(log of their number), set_access and unmap linear in
 * the mappings of their range.
 */
#ifndef GML_DRIVER_MODEL_H
#define GML_DRIVER_MODEL_H

#include "driver/backends.h"
#include "driver/ledger.h"
#include "driver/ranges.h"
#include "driver/sim_cost.h"

typedef struct gml_model_chunk {
    gml_physical chunk;    /* must be first */
    uint64_t offset_bytes; /* its place in an endless physical memory; never used again */
    bool is_on_host;       /* not of the capacity */
} gml_model_chunk;

typedef struct gml_model {
    gml_driver base; /* must be first */
    uint64_t capacity_bytes;
    uint64_t used_bytes; /* physical memory plus plain blocks */
    uint64_t next_offset_bytes;
    bool takes_host;     /* in take_host() */
    gml_ledger ledger;   /* of gml_model_chunk */
    gml_ranges ranges;   /* every reservation and plain block */
    uint64_t page_bytes; /* of the host, which gives the addresses; 0: they are counted */
    int memory;          /* memfd: byte i is byte i of the physical memory; -1: no bytes */
    gml_link expected;   /* addresses for later mallocs, the oldest first */
    gml_pool expectations;
    const gml_sim_prices *prices; /* NULL: calls are timed */
    uint64_t last_mappings;       /* of the last call that took mappings */
    uint64_t last_size_bytes;     /* of the memory that the last release or free gave up */
} gml_model;

enum { GML_PLAIN_GRANULE_BYTES = 512 };

/* ---- model.c: the books ---------------------------------------------------------------------- */

/* GML_MISUSE unless both are multiples of the granularity and the size is not 0. */
gml_status gml_model_check_aligned(gml_model *model, const char *call, gml_address address,
                                   uint64_t size_bytes);

/* Whether `size_bytes` of the capacity are left. */
gml_status gml_model_check_room(gml_model *model, const char *call, uint64_t size_bytes);

/* Takes addresses for a range: those that `wanted` names, or any of that alignment where it names
 * 0. GML_INVALID_ARGUMENT where the ones named are not free. */
gml_status gml_model_add_range(gml_model *model, const char *call, const gml_range *wanted,
                               uint64_t alignment_bytes, gml_address *out);

/* Whether each may be done. */
gml_status gml_model_check_unreserve(gml_model *model, gml_address address, uint64_t size_bytes);
gml_status gml_model_check_map(gml_model *model, gml_address address, uint64_t size_bytes);
gml_status gml_model_check_free(gml_model *model, gml_address address);

/* Whether whole mappings cover the range exactly; `mappings` (may be NULL) receives how many. */
gml_status gml_model_check_whole(gml_model *model, const char *call, gml_address address,
                                 uint64_t size_bytes, uint64_t *mappings);

/* Whether a kernel could touch every byte: mapped and opened, or inside one plain block. */
gml_status gml_model_check_touch(gml_model *model, gml_address address, uint64_t size_bytes);

/* ---- model_host.c: addresses and bytes of the host, where the model has them ----------------- */

gml_status gml_model_host_open(gml_model *model, bool has_bytes);

/* Unmaps every range that is still there, too. */
void gml_model_host_close(gml_model *model);

/* Address space without access. The second is GML_INVALID_ARGUMENT where something is. */
gml_status gml_model_host_take(gml_model *model, const char *call, uint64_t size_bytes,
                               uint64_t alignment_bytes, gml_address *out);
gml_status gml_model_host_give(gml_model *model, const char *call, gml_address address,
                               uint64_t size_bytes);

/* Makes the physical memory of `size_bytes` more; returns bytes of it to the host. */
gml_status gml_model_host_grow(gml_model *model, uint64_t size_bytes);
void gml_model_host_shrink(gml_model *model, const gml_model_chunk *physical);

gml_status gml_model_host_map(gml_model *model, gml_address address,
                              const gml_model_chunk *physical);
gml_status gml_model_host_unmap(gml_model *model, gml_address address, uint64_t size_bytes);
gml_status gml_model_host_allow(gml_model *model, const char *call, gml_address address,
                                uint64_t size_bytes);

#endif
