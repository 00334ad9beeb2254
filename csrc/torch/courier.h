/* Sends the files of a tensor to other processes of this user, over a socket, on request: files are
 * open only in transit.
 *
 * A thread waits for requests, from the first shared tensor to the end of the process. A forked
 * child has no lakes, and no thread.
 */
#ifndef GML_TORCH_COURIER_H
#define GML_TORCH_COURIER_H

#include "gmlake_share.h"

enum { GML_COURIER_NAME_BYTES = 16 };

/* The key to the files of a block. name: of the socket, unguessable. */
typedef struct gml_ticket {
    uint8_t name[GML_COURIER_NAME_BYTES];
    uint64_t address, mark; /* see gml_lake_lend() */
} gml_ticket;

/* Sets the name of this process's courier, begun if need be; a negative errno where it cannot. */
int gml_courier_name(uint8_t name[GML_COURIER_NAME_BYTES]);

/* Asks the courier of another process. The caller frees *pieces and closes its files; on failure
 * there are none, and `reason` holds one line. */
gml_status gml_courier_fetch(const gml_ticket *ticket, gml_shared_piece **pieces, size_t *count,
                             char *reason, size_t reason_bytes);

#endif
