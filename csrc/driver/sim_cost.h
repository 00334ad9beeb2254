/* Costs of driver calls in the model of `sim`. */
#ifndef GML_DRIVER_SIM_COST_H
#define GML_DRIVER_SIM_COST_H

#include "gmlake.h"

/* Of one kind of device. */
typedef struct gml_sim_prices gml_sim_prices;

/* Those of an H100 up to 96 GiB, of an H200 above. */
const gml_sim_prices *gml_sim_prices_of(uint64_t capacity_bytes);

/* The device that they were measured on: "NVIDIA H200". */
const char *gml_sim_prices_name(const gml_sim_prices *prices);

/* One call on `handles` handles of `size_bytes` in total; `handles` is 1 for calls without
 * handles. */
uint64_t gml_sim_cost_ns(const gml_sim_prices *prices, gml_driver_call call, uint64_t size_bytes,
                         uint64_t handles);

#endif
