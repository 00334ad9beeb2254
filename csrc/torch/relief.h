/* Who gives up memory before a request is refused. */
#ifndef GML_TORCH_RELIEF_H
#define GML_TORCH_RELIEF_H

#include "gmlake_torch.h"

/* Whether other processes gave up memory, or else the relief that was set. */
bool gml_relief_ask(int device, uint64_t size_bytes);

#endif
