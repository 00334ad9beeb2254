/* Which request of one step is which of another step like it. */
#ifndef GML_PLANNER_ALIGN_H
#define GML_PLANNER_ALIGN_H

#include "gmlake_plan.h"

#define GML_NO_TWIN SIZE_MAX

/* twins[i]: the request of `previous` that request i of `last` is, or GML_NO_TWIN. Twins have the
 * same stream, and the same size or dynamic scope; where the steps differ a twin may be a request
 * like it nearby. GML_NO_HOST_MEMORY. */
gml_status gml_align_steps(const gml_step *last, const gml_step *previous, size_t *twins);

#endif
