/* What memory and driver calls are worth right now.
 *
 * While the device has memory to spare, a byte saved is worth nothing and a call costs time; when
 * it has none, a call is cheap beside an out-of-memory. So there is
 *
 *   room      the base range may grow a little instead of a new view being made, and chunks are
 * as large as what is held pays for, so that calls are few pressure  little is left: what is free
 * is stitched before anything is taken, and chunks are small
 *
 * Memory that can sleep pays for its chunks again with every sleep, so there they are as large as
 * for `time`, unless `memory` was asked for.
 *
 * What is left is told by the capacity, the memory fraction and the device, where other processes
 * take memory too. Whoever knows better says so by the setting `optimize_for`.
 */
#ifndef GML_POLICY_STITCH_COST_MODEL_H
#define GML_POLICY_STITCH_COST_MODEL_H

#include "core/base_range.h"

typedef enum gml_optimize_for {
    GML_OPTIMIZE_FOR_TIME,     /* as if there were always room, until memory is refused */
    GML_OPTIMIZE_FOR_BALANCED, /* as told above */
    GML_OPTIMIZE_FOR_MEMORY,   /* as if there were never room */
} gml_optimize_for;

/* Fixed when the policy opens. Sizes of chunks are a granule times a power of two. */
typedef struct gml_cost_model {
    gml_optimize_for kind;
    gml_optimize_for chunks; /* by whose prices chunks are made */
    uint64_t largest_bytes;  /* chunk */
} gml_cost_model;

/* `chunk_bytes`, where the user has set it, is the granule, and all chunks are so large; 0: not
 * set.
 */
void gml_cost_model_init(gml_cost_model *costs, gml_optimize_for kind, bool can_sleep,
                         uint64_t chunk_bytes, uint64_t granule_bytes, uint64_t limit_bytes);

/* Bytes that may still be taken from the driver, as far as is known. */
uint64_t gml_cost_model_room(const gml_base_range *range);

bool gml_cost_model_is_tight(const gml_cost_model *costs, const gml_base_range *range);

/* How large chunks shall be that the base range grows by now. */
uint64_t gml_cost_model_chunk(const gml_cost_model *costs, const gml_base_range *range);

/* Whether `more_bytes` may be taken instead of making a view, given the most that blocks ever held
 * together. */
bool gml_cost_model_may_spend(const gml_cost_model *costs, const gml_base_range *range,
                              uint64_t more_bytes, uint64_t peak_bytes);

#endif
