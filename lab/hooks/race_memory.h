/* Which work used which memory last: physical memory in pieces, and the addresses it is mapped at.
 *
 *   memory   a handle, or a block of malloc; in pieces of which each is of one use
 *   mapping  addresses that show a memory
 *   use      a range of addresses, from begin to end, on one or several streams
 *
 * A piece keeps its last use only: work ordered after that use is ordered after all earlier ones.
 */
#ifndef GML_HOOKS_RACE_MEMORY_H
#define GML_HOOKS_RACE_MEMORY_H

#include "base/pool.h"
#include "base/tree.h"
#include "hooks/race_order.h"

typedef struct gml_race_memory {
    gml_driver *driver; /* for reasons */
    gml_order *order;
    gml_map handles;   /* handle -> memory, until it is released */
    gml_map live;      /* address -> use that has not ended */
    gml_tree mappings; /* by address */
    gml_pool memory_objects, mapping_objects, pieces, uses;
} gml_race_memory;

void gml_race_memory_init(gml_race_memory *all, gml_driver *driver, gml_order *order);
void gml_race_memory_close(gml_race_memory *all);

/* Room for what the driver is about to make, so that noting it cannot fail: a memory and a mapping.
 * GML_NO_HOST_MEMORY. */
gml_status gml_race_memory_prepare(gml_race_memory *all);

/* Records a driver call. pre: prepared, for the first three. */
void gml_race_memory_create(gml_race_memory *all, gml_handle handle);
void gml_race_memory_map(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                         gml_handle handle);
void gml_race_memory_malloc(gml_race_memory *all, gml_address address, uint64_t size_bytes);
void gml_race_memory_release(gml_race_memory *all, gml_handle handle);
void gml_race_memory_unmap(gml_race_memory *all, gml_address address, uint64_t size_bytes);
void gml_race_memory_free(gml_race_memory *all, gml_address address);

/* GML_CORRUPT where work that may touch the addresses is not known to have run. */
gml_status gml_race_memory_check_unmap(gml_race_memory *all, gml_address address,
                                       uint64_t size_bytes);

/* GML_CORRUPT if the plain block at `address` is in use. Ended uses are safe: the device itself
 * waits before it frees such memory. */
gml_status gml_race_memory_check_free(gml_race_memory *all, gml_address address);

/* See gml_driver_ops. */
gml_status gml_race_memory_begin(gml_race_memory *all, gml_address address, uint64_t size_bytes,
                                 gml_stream stream);
gml_status gml_race_memory_join(gml_race_memory *all, gml_address address, gml_stream stream);
void gml_race_memory_end(gml_race_memory *all, gml_address address);

#endif
