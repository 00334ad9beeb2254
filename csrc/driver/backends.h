/* The backends, opened one by one; gml_driver_open() knows them by name. */
#ifndef GML_DRIVER_BACKENDS_H
#define GML_DRIVER_BACKENDS_H

#include "driver/driver.h"

/* ---- `cuda`: one NVIDIA device through libcuda.so.1, found at run time ----------------------- */

/* Opens the device with that ordinal and retains its primary context. GML_DRIVER_ABSENT without a
 * usable library or device. */
gml_status gml_cuda_driver_open(int device, gml_driver **out, char *reason, size_t reason_bytes);

/* ---- `host`: the model plus real bytes, in this process -----------------------------------------
 *
 * Physical memory lies in one memfd, so that a handle mapped at several addresses shows the same
 * bytes at each. A reservation and a mapping without access are PROT_NONE: touching them kills the
 * process, as it kills a context on a device. Streams and events are queues (streams.h).
 */

/* capacity_bytes 0: 1 GiB; granularity_bytes 0: 2 MiB, else a power of two that is a multiple of
 * the page size. */
gml_status gml_host_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                                gml_driver **out, char *reason, size_t reason_bytes);

/* The same device without bytes: addresses are real, unique in the process and never accessible, so
 * that any capacity costs no memory. gml_driver_bytes() still applies the rules, then answers
 * GML_UNSUPPORTED. */
gml_status gml_hollow_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                                  gml_driver **out, char *reason, size_t reason_bytes);

/* Where the bytes of a held handle lie: in the file *file, which stays the driver's, from
 * *offset_bytes on. False for a device without bytes, and for another handle. */
bool gml_host_place(gml_driver *driver, gml_handle handle, int *file, uint64_t *offset_bytes);

/* ---- `sim`: accounting without memory. Any capacity, strict rules, modelled costs ---------------
 *
 * Addresses of reservations and blocks ascend from 2^47; blocks of 2 MiB or more are aligned to 2
 * MiB, others to 512 bytes. expect_malloc queues addresses per size: a malloc takes the oldest one
 * of its size that is free address space, else an address of its own choice. bytes() is
 * GML_UNSUPPORTED, or GML_MISUSE for a range that a kernel could not touch.
 */

/* capacity_bytes 0: 80 GiB; granularity_bytes 0: 2 MiB, else a power of two of 512 or more. */
gml_status gml_sim_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                               gml_driver **out, char *reason, size_t reason_bytes);

#endif
