/* What driver calls cost in the model of `sim`. */
#ifndef GML_DRIVER_SIM_COST_H
#define GML_DRIVER_SIM_COST_H

#include "gmlake.h"

/* One call on `handles` handles that have `size_bytes` together; `handles` is 1 where the call has
 * none. */
uint64_t gml_sim_cost_ns(gml_driver_call call, uint64_t size_bytes, uint64_t handles);

#endif
