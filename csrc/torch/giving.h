/* What this process gives others of a device. */
#ifndef GML_TORCH_GIVING_H
#define GML_TORCH_GIVING_H

#include "driver/handed.h"
#include "gmlake_torch.h"

/* Who gives first: those of the lowest priority, of these the one with most idle memory for its
 * weight. */
typedef struct gml_share_terms {
    int32_t priority;
    uint32_t weight; /* above 0 */
} gml_share_terms;

typedef struct gml_giver {
    gml_share_terms terms;        /* written while nobody is answered */
    gml_handed incoming;          /* files of others for this process, which go on first */
    gml_handed outgoing;          /* of the thread that answers */
    _Atomic uint64_t given_bytes; /* so far */
} gml_giver;

/* Left to what CUDA takes itself, as for kernels when they are first used: nobody is asked for that
 * memory. */
#define GML_SPARE_BYTES (UINT64_C(256) << 20)

/* The number of the first lake of the device after `number`, -1 at first; -1: none. */
int gml_giver_lake(int device, int number);

/* The device's memory, as its first lake sees it; 0 where there is no lake. */
void gml_giver_memory_info(int device, uint64_t *free_bytes, uint64_t *total_bytes);

/* What it could give. */
uint64_t gml_giver_idle(gml_giver *giver, int device);

/* What all lakes of the device hold. */
uint64_t gml_giver_held(int device);

/* Gives the device, of the memory that is left to CUDA, what it lacks; returns how much. */
uint64_t gml_giver_spare(gml_giver *giver, int device);

/* Gives up to about `wanted_bytes`: into `to`, or to the device if that is NULL; returns how much.
 * *is_pending: more will follow as work ends. waits: also what cannot be told to be unused, after a
 * wait for all work. */
uint64_t gml_giver_give(gml_giver *giver, int device, uint64_t wanted_bytes, gml_handed *to,
                        bool waits, bool *is_pending);

#endif
