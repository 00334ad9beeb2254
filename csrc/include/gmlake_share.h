/* gmlake between processes, and for what registers memory: another process may map the chunks that
 * a block lies in.
 *
 * Both see the same bytes. The block must stay alive until the other process is done with it, and
 * until then its lake does not sleep. How its file descriptors reach the other process is the
 * caller's affair.
 */
#ifndef GMLAKE_SHARE_H
#define GMLAKE_SHARE_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A chunk as another process gets it. file: a descriptor for cuMemImportFromShareableHandle(), of
 * the process that holds the chunk. */
typedef struct gml_shared_piece {
    int file;
    uint64_t size_bytes;
} gml_shared_piece;

/* Describes at most `capacity` of the chunks that hold the live block at `address`, in the order in
 * which they have to be mapped; *count is how many there are, and *offset_bytes is where the block
 * begins in the first. The files stay the lake's, and are open as long as the block lives. `out`
 * may be NULL when `capacity` is 0. GML_UNKNOWN_ADDRESS; GML_UNSUPPORTED where the policy, the
 * driver or the memory has no chunks to give. Linear in what the lake holds. */
GML_API gml_status gml_lake_export(gml_lake *lake, gml_address address, gml_shared_piece *out,
                                   size_t capacity, size_t *count, uint64_t *offset_bytes);

/* The chunks of a block as lent files show them. mark: another one for another block, also for one
 * that lies at the same address later. */
typedef struct gml_lent {
    size_t count;
    uint64_t offset_bytes, mark;
    bool are_alike; /* all of one size */
} gml_lent;

/* As gml_lake_export(), with files that are the caller's to close; on failure none is open. With a
 * `capacity` of 0 it tells about them without keeping one open. */
GML_API gml_status gml_lake_lend(gml_lake *lake, gml_address address, gml_shared_piece *out,
                                 size_t capacity, gml_lent *about);

/* The number of chunks under the live block at `address`, without opening a file. Transports (NCCL,
 * RDMA) need a block in one chunk, see gml_region. Otherwise as gml_lake_export(). */
GML_API gml_status gml_lake_count_chunks(gml_lake *lake, gml_address address, size_t *count);

/* Maps what another process exported, side by side, for the device of this lake. The files are this
 * process's own and stay the caller's. The memory is not counted as the lake's. */
GML_API gml_status gml_lake_import(gml_lake *lake, const gml_shared_piece *pieces, size_t count,
                                   gml_address *out);

/* Ends that mapping once the device has done all its work. Where the driver refuses, a later import
 * or the end of the lake tries again. GML_UNKNOWN_ADDRESS. */
GML_API gml_status gml_lake_unimport(gml_lake *lake, gml_address address);

/* The single allocation that serves this lake, see the setting `arena`, for APIs that register
 * memory once (ncclCommRegister(), ibv_reg_mr(), cudaIpcGetMemHandle()). Its address is fixed until
 * the lake is closed. GML_UNSUPPORTED without an arena. */
GML_API gml_status gml_lake_arena(gml_lake *lake, gml_address *out, uint64_t *size_bytes);

#ifdef __cplusplus
}
#endif

#endif
