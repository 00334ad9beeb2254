/* Elastic buffers: addresses that stay, and memory that comes and goes.
 *
 * A buffer reserves addresses for all that it may ever hold, and has memory from its beginning on,
 * chunk by chunk, as much as it was last resized to. For what grows and shrinks while the device is
 * full, as the keys and values of sequences do. The chunks are the lake's: what one buffer gives
 * back serves any other request at once, and every buffer. Where the policy keeps them they are no
 * blocks to be freed: GML_UNKNOWN_ADDRESS.
 */
#ifndef GMLAKE_ELASTIC_H
#define GMLAKE_ELASTIC_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gml_elastic_info {
    gml_address address;
    uint64_t size_bytes;   /* of the addresses: the most that it can hold */
    uint64_t memory_bytes; /* that it has, from its beginning on */
    uint64_t chunk_bytes;  /* by which it grows and shrinks; the other two are multiples */
} gml_elastic_info;

/* Reserves addresses for `size_bytes`, rounded up to whole chunks, without memory. Work on the
 * buffer is queued on `stream`, which must exist as long as the buffer has memory; what other
 * streams do must be ordered before it when the buffer shrinks. GML_UNSUPPORTED where the lake's
 * policy is neither `stitch` nor one around it, or serves an arena; GML_INVALID_ARGUMENT for a size
 * of 0 or above 2^48; GML_OUT_OF_MEMORY without addresses; GML_NO_HOST_MEMORY, GML_DRIVER_FAILED.
 */
GML_API gml_status gml_lake_open_elastic(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                                         gml_address *out);

/* Resizes the buffer's memory to its first `size_bytes`, rounded up to whole chunks; *memory_bytes
 * receives the result.
 *
 * Growing takes free chunks of the lake, or new ones, each with a map, and one set_access for all.
 * It also takes `ahead_bytes` more, up to its size, if the lake can get them without releasing idle
 * memory to the device: growing in small steps then makes fewer calls. Existing contents are kept;
 * new memory is uninitialized. Shrinking never fails and records only an event: others reuse the
 * released chunks after the work queued on the stream. The addresses given up must not be used, but
 * stay mapped for a while: a buffer that grows again while the same chunks are free takes them
 * without a call.
 *
 * On failure nothing changes: GML_UNKNOWN_ADDRESS if no buffer begins there; GML_INVALID_ARGUMENT
 * above its size; GML_OUT_OF_MEMORY; GML_UNSUPPORTED for growing while a graph is captured or the
 * lake is asleep; GML_NO_HOST_MEMORY, GML_DRIVER_FAILED. */
GML_API gml_status gml_lake_resize_elastic(gml_lake *lake, gml_address address, uint64_t size_bytes,
                                           uint64_t ahead_bytes, uint64_t *memory_bytes);

/* The same for a caller that makes room after GML_OUT_OF_MEMORY and asks again: that is no refusal
 * yet, so it is neither counted nor kept in the history, and has no reason. */
GML_API gml_status gml_lake_try_elastic(gml_lake *lake, gml_address address, uint64_t size_bytes,
                                        uint64_t ahead_bytes, uint64_t *memory_bytes);

/* Ends the buffer: its memory serves others, its addresses are freed. Where the driver refuses that
 * now, a later call or the end of the lake tries again. GML_UNKNOWN_ADDRESS. */
GML_API gml_status gml_lake_close_elastic(gml_lake *lake, gml_address address);

/* Describes the buffer; GML_UNKNOWN_ADDRESS. */
GML_API gml_status gml_lake_elastic(gml_lake *lake, gml_address address, gml_elastic_info *out);

/* A host pointer to the bytes of a buffer's memory, valid until it shrinks. GML_UNSUPPORTED unless
 * the driver is `host`. */
GML_API gml_status gml_lake_elastic_bytes(gml_lake *lake, gml_address address, void **out);

#ifdef __cplusplus
}
#endif

#endif
