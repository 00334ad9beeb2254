/* How a process tells another where a tensor lies.
 *
 * A text ends with where gmlake gets the files of the tensor's chunks from, see letters.h. Before
 * it comes PyTorch's own, that of an expandable segment, wherever that can say it: where all chunks
 * are of one size, and there are not so many that this process would run out of files, each of
 * which stays open for it. Then the other process need not know of gmlake. PyTorch without gmlake
 * refuses the rest as one "from a future version".
 */
#ifndef GML_TORCH_IPC_H
#define GML_TORCH_IPC_H

#include "gmlake_share.h"

/* Receives a text; `size` bytes, of any value. */
typedef void (*gml_ipc_write)(void *to, const char *text, size_t size);

/* Writes the text for the live block at `address`; *offset_bytes is where the block begins in that
 * memory. minor: of PyTorch 2, whose form differs between versions. As gml_lake_export(), and
 * GML_NO_HOST_MEMORY. `reason` holds one line on failure. */
gml_status gml_ipc_share(gml_lake *lake, gml_address address, int minor, gml_ipc_write write,
                         void *to, uint64_t *offset_bytes, char *reason, size_t reason_bytes);

/* Whether gmlake made a text. */
bool gml_ipc_is_ours(const char *text, size_t size);

/* Maps what such a text leads to, until gml_lake_unimport(). */
gml_status gml_ipc_open(gml_lake *lake, const char *text, size_t size, gml_address *out,
                        char *reason, size_t reason_bytes);

#endif
