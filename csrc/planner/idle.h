/* Idle spans for plans: gml_planner_idle_spans() with a bound on what comes out. */
#ifndef GML_PLANNER_IDLE_H
#define GML_PLANNER_IDLE_H

#include "gmlake_plan.h"

/* As gml_planner_idle_spans(), but of each query only the `most` largest spans, still in ascending
 * order of addresses; of equal ones the lower. GML_INVALID_ARGUMENT for 0. */
gml_status gml_idle_largest(const gml_problem *problem, const uint64_t *offsets,
                            uint64_t limit_bytes, const gml_time_range *queries, size_t query_count,
                            size_t most, gml_span **spans, size_t *first);

#endif
