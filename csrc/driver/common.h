/* Common memory: physical memory that several drivers map, each at addresses of its own.
 *
 * Each such driver wraps the same one, and hands out handles of its own. Behind each handle lies a
 * piece of the common memory, another one for each handle of a driver: the first handle has the
 * first piece, and so on, so the common memory is as large as the largest of the drivers needs.
 * gml_common_keep() replaces the piece behind a handle by one that no other driver maps.
 *
 * Users whose work never overlaps, and who expect nothing of their memory's content, need no more.
 */
#ifndef GML_DRIVER_COMMON_H
#define GML_DRIVER_COMMON_H

#include "base/tree.h"
#include "driver/driver.h"

/* Zeroed but for the first two: without memory, which comes and goes with the drivers' handles. */
typedef struct gml_common {
    gml_driver *driver;   /* of the memory; every call is made, counted and checked there */
    uint64_t *held_bytes; /* a counter to which pieces are added, shared and kept ones */
    gml_tree pieces;      /* those that are shared, by number */
    uint64_t last_number; /* of a piece */
} gml_common;

/* The wrapper leaves the inner driver open when it is closed. pre: that has virtual memory and is
 * no arena. */
gml_status gml_common_open(gml_common *common, gml_driver **out);

/* From here on no other driver maps the memory behind the handle. Its content is lost, and nothing
 * may be using it. After a failure the memory is shared as before; should the driver refuse to map
 * it again as well, the addresses are without memory until they are unmapped. */
gml_status gml_common_keep(gml_driver *driver, gml_handle handle);

/* Overwrites the shared memory that this driver maps with bytes of 0xFF, as work of `stream`. */
gml_status gml_common_spoil(gml_driver *driver, gml_stream stream);

/* The memory that this driver stands for: of the drivers that map a piece, the one that took it
 * first. */
uint64_t gml_common_bytes(const gml_driver *driver);

/* Releases what a failure left without a user. Continues after a failure and returns the first. */
gml_status gml_common_trim(gml_common *common);

#endif
