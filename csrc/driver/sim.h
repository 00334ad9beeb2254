/* The driver `sim`: accounting without memory. Any capacity, strict rules, modelled costs.
 *
 * Addresses of reservations and blocks ascend from 2^47; blocks of 2 MiB or more are aligned to
 * 2 MiB, others to 512 bytes. expect_malloc queues addresses per size: a malloc takes the oldest
 * one of its size that is free address space, and an own address where there is none. bytes() is
 * GML_UNSUPPORTED, or GML_MISUSE for a range that a kernel could not touch.
 */
#ifndef GML_DRIVER_SIM_H
#define GML_DRIVER_SIM_H

#include "driver/driver.h"

/* capacity_bytes 0: 80 GiB; granularity_bytes 0: 2 MiB, else a power of two of 512 or more. */
gml_status gml_sim_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                               gml_driver **out, char *reason, size_t reason_bytes);

#endif
