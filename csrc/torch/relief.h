/* Who gives up memory before a request is refused. */
#ifndef GML_TORCH_RELIEF_H
#define GML_TORCH_RELIEF_H

#include "gmlake_torch.h"

/* Whether other processes gave up memory, or else the relief that was set. */
bool gml_relief_ask(int device, uint64_t size_bytes);

/* Whether one is set that may give up memory of the device for another process. */
bool gml_relief_may_give(int device);

/* Has it give up about so many bytes, in this thread, which has no locks; returns how many fewer
 * this process holds then. */
uint64_t gml_relief_give(int device, uint64_t wanted_bytes);

#endif
