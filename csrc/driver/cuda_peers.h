/* Who may touch the virtual memory of a device, and which ranges of it are open.
 *
 * CUDA grants access to mapped memory per device, and drops it at each unmap: a device granted
 * access later needs a call for every range open by then, so ranges are kept. With a single device
 * nothing is kept, at no cost. Not locked: the driver's owner serialises the calls.
 */
#ifndef GML_DRIVER_CUDA_PEERS_H
#define GML_DRIVER_CUDA_PEERS_H

#include "driver/cuda_api.h"
#include "driver/ranges.h"

enum { GML_CUDA_MOST_DEVICES = 128 };

typedef struct gml_cuda_peers {
    gml_cu_access access[GML_CUDA_MOST_DEVICES]; /* the owner's, then one for each peer */
    size_t count;                                /* the owner included */
    bool keeps_ranges;                           /* there are other devices */
    gml_ranges open;                             /* what set_access opened, and is mapped still */
} gml_cuda_peers;

/* `peers` is zeroed memory. */
void gml_cuda_peers_init(gml_cuda_peers *peers, gml_cu_location owner, bool has_others);
void gml_cuda_peers_clear(gml_cuda_peers *peers);

/* Whether the device may touch opened ranges; true for the owner. */
bool gml_cuda_peers_has(const gml_cuda_peers *peers, gml_cu_device device);

/* pre: it is not among them, and they are fewer than GML_CUDA_MOST_DEVICES. */
void gml_cuda_peers_add(gml_cuda_peers *peers, gml_cu_device device);

/* Makes sure that one call of the next two cannot fail; false when the host has no memory. */
bool gml_cuda_peers_prepare(gml_cuda_peers *peers);

/* After a prepare: records that a range is now open, in whole; or is now unmapped. */
void gml_cuda_peers_opened(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes);
void gml_cuda_peers_closed(gml_cuda_peers *peers, uint64_t address, uint64_t size_bytes);

#endif
