/* Physical chunks, and address ranges mapped onto them: multi-step driver work that is done whole
 * or not at all. */
#ifndef GML_CORE_MAPPING_H
#define GML_CORE_MAPPING_H

#include "driver/driver.h"

/* Releases every handle that is not 0 and sets it to 0; continues after a failure, where the handle
 * stays, and returns the first. */
gml_status gml_chunks_release(gml_driver *driver, gml_handle *handles, size_t count);

/* For the last moment there is, unwinding or closing: tries a few times before giving up. */
gml_status gml_synchronize_finally(gml_driver *driver);
gml_status gml_unmap_finally(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_unreserve_finally(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_chunks_release_finally(gml_driver *driver, gml_handle *handles, size_t count);

/* Maps `count` chunks, which may differ in size, side by side at `address`, inside a reservation,
 * and opens access. On failure nothing is mapped there, unless the driver refused to unmap as well;
 * *stuck_bytes (may be NULL) then tells how many bytes from `address` on are still mapped. */
gml_status gml_mapping_add(gml_driver *driver, gml_address address, const gml_handle *handles,
                           size_t count, uint64_t *stuck_bytes);

/* Reserves a range and maps the chunks into it: 1 reserve, `count` maps, 1 set_access.
 * After a failure *out is 0 if everything was undone; else it is the range that the driver refused
 * to unmap or free, for gml_mapping_destroy later. *mapped_bytes: how much of it is mapped, from
 * its beginning on. */
gml_status gml_mapping_create(gml_driver *driver, const gml_handle *handles, size_t count,
                              gml_address *out, uint64_t *mapped_bytes);

/* Undoes gml_mapping_create, with *mapped_bytes as that function left it: 1 unmap, 1 unreserve.
 * After a failure a later call resumes where this one stopped. */
gml_status gml_mapping_destroy(gml_driver *driver, gml_address address, uint64_t size_bytes,
                               uint64_t *mapped_bytes);

#endif
