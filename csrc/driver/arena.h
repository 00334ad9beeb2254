/* The driver `arena`: one piece of plain memory, allocated up front from the driver it wraps, in
 * place of virtual memory.
 *
 * A device may have no virtual memory management (WSL2, some virtual GPUs), and APIs that register
 * memory once (NCCL, RDMA, cudaIpcGetMemHandle) need one allocation. Here the first reservation
 * begins where that allocation does, and a handle stands for a number of its bytes: mapping one
 * makes no device call. The arena refuses a second reservation, and so a second address for the
 * same memory. gml_driver.arena_bytes tells policies.
 */
#ifndef GML_DRIVER_ARENA_H
#define GML_DRIVER_ARENA_H

#include "driver/driver.h"

/* Wraps *driver, which is the arena's then. GML_OUT_OF_MEMORY where the device cannot give so much
 * in one piece; on failure *driver is as it was, with a reason. */
gml_status gml_arena_driver_open(uint64_t size_bytes, gml_driver **driver);

#endif
