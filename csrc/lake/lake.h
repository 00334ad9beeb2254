/* One device: a driver, a policy, the table of live blocks, the counters, one lock.
 *
 * Lock: `lock` guards every field but itself, everything below the policy, and the driver. It is
 * the only lock of the library that is held while the driver is called, and nothing is called back
 * under it but the functions of a gml_visitor. Under Python the GIL is released before it is taken.
 */
#ifndef GML_LAKE_LAKE_H
#define GML_LAKE_LAKE_H

#include "base/map.h"
#include "policy/policy.h"

#include <pthread.h>

struct gml_lake {
    pthread_mutex_t lock;
    gml_driver *driver;
    gml_policy *policy;
    gml_map blocks;          /* live: address -> gml_block */
    gml_stats stats;         /* but for what gml_policy and gml_driver hold themselves */
    gml_torch_stats torch;   /* the part that policies leave to the lake */
    uint64_t max_split_size; /* as configured; from here on an allocation is "oversize" */
    uint64_t capacity_bytes; /* as configured; 0: the device's */
    int device;
};

/* Counts a block that was served, one that begins to live without a request (a restored one), and
 * one that ends. pre: the lock is held, or nobody else knows the lake. */
void gml_lake_count_allocation(gml_lake *lake, gml_block *block);
void gml_lake_count_begin(gml_lake *lake, gml_block *block);
void gml_lake_count_free(gml_lake *lake, gml_block *block);

/* The program let go of the live block at `address`, which other streams may still use: PyTorch
 * counts it as active from here on until it is freed, no longer as allocated. Nothing where no live
 * block begins there, or at the second time. */
void gml_lake_let_go(gml_lake *lake, gml_address address);

/* gml_lake_free() for a caller that holds the lock. */
gml_status gml_lake_free_locked(gml_lake *lake, gml_address address);

/* Raises the peak of reserved bytes; call after anything that may have grown it. */
void gml_lake_note_reserved(gml_lake *lake);

/* Puts the reason of a refused allocation into driver->reason. pre: the lock is held. */
void gml_lake_explain_refusal(gml_lake *lake, uint64_t size_bytes);

#endif
