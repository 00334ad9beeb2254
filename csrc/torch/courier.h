/* Brings open files to other processes of this user, over a socket, when they ask for those of a
 * tensor: files are open only while they travel.
 *
 * A thread waits for those who ask, from the first tensor that is shared to the end of the process.
 * A forked child has no lakes, and no thread.
 */
#ifndef GML_TORCH_COURIER_H
#define GML_TORCH_COURIER_H

#include "gmlake_share.h"

enum { GML_COURIER_NAME_BYTES = 16 };

/* What leads to the files of a block. name: of the socket, which nobody can guess. */
typedef struct gml_ticket {
    uint8_t name[GML_COURIER_NAME_BYTES];
    uint64_t address, mark; /* see gml_lake_lend() */
} gml_ticket;

/* Sets the name of this process's courier, begun if need be; a negative errno where it cannot. */
int gml_courier_name(uint8_t name[GML_COURIER_NAME_BYTES]);

/* Asks the courier of another process. *pieces is the caller's to free and its files to close; on
 * failure there are none, and `reason` holds one line. */
gml_status gml_courier_fetch(const gml_ticket *ticket, gml_shared_piece **pieces, size_t *count,
                             char *reason, size_t reason_bytes);

#endif
