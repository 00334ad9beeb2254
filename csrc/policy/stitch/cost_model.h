/* The current worth of memory and driver calls.
 *
 * While the device has spare memory, a saved byte is worth nothing and a call costs time; when it
 * has none, a call is cheap compared to an out-of-memory. So there are two modes:
 *
 *   room      the base range may grow a little instead of mapping a new view, and chunks are as
 *             large as the memory held pays for, so that calls are few
 *   pressure  little is left: free memory is stitched before any is taken, and chunks are small
 *
 * Every sleep releases and remaps every chunk, and so do processes that hand memory to each other:
 * in memory that can sleep, and on a device that is shared, chunks are as large as for `time`,
 * unless `memory` is configured.
 *
 * The remaining memory follows from the capacity, the memory fraction and the device, which other
 * processes use too. The setting `optimize_for` overrides the choice.
 */
#ifndef GML_POLICY_STITCH_COST_MODEL_H
#define GML_POLICY_STITCH_COST_MODEL_H

#include "core/base_range.h"

typedef enum gml_optimize_for {
    GML_OPTIMIZE_FOR_TIME,     /* assumes room, until memory is refused */
    GML_OPTIMIZE_FOR_BALANCED, /* as described above */
    GML_OPTIMIZE_FOR_MEMORY,   /* assumes pressure */
} gml_optimize_for;

/* Fixed when the policy opens. Sizes of chunks are a granule times a power of two. */
typedef struct gml_cost_model {
    gml_optimize_for kind;
    gml_optimize_for chunks; /* by whose prices chunks are made where the device is not shared */
    uint64_t largest_bytes;  /* chunk */
    uint64_t large_bytes;    /* chunk of a large block in memory that can sleep */
} gml_cost_model;

/* `chunk_bytes`, where the user has set it, is the granule, and all chunks are so large; 0: not
 * set.
 */
void gml_cost_model_init(gml_cost_model *costs, gml_optimize_for kind, bool can_sleep,
                         uint64_t chunk_bytes, uint64_t granule_bytes, uint64_t limit_bytes);

/* Bytes that may still be taken from the driver, as far as is known. */
uint64_t gml_cost_model_room(const gml_base_range *range);

bool gml_cost_model_is_tight(const gml_cost_model *costs, const gml_base_range *range);

/* Whether growth goes on to where a chunk ends, so that the next begins with a whole one: chunks
 * are large so that they are mapped again with few calls. */
bool gml_cost_model_makes_whole(const gml_cost_model *costs, const gml_base_range *range);

/* Blocks of at most so many bytes lie in chunks of at most that size, apart from larger ones; 0
 * where the device is not shared. */
uint64_t gml_cost_model_small(const gml_cost_model *costs, const gml_base_range *range);

/* The chunk size for growing the base range by `size_bytes` now. */
uint64_t gml_cost_model_chunk(const gml_cost_model *costs, const gml_base_range *range,
                              uint64_t size_bytes);

/* Whether `more_bytes` may be taken instead of making a view, given the most that blocks ever held
 * together. */
bool gml_cost_model_may_spend(const gml_cost_model *costs, const gml_base_range *range,
                              uint64_t more_bytes, uint64_t peak_bytes);

#endif
