/* Which lifetimes of different streams may share addresses. */
#ifndef GML_PLANNER_STREAM_ORDER_H
#define GML_PLANNER_STREAM_ORDER_H

#include "gmlake_plan.h"

/* The lifetimes of one stream: members[first] to members[first + count - 1]. */
typedef struct gml_stream_group {
    gml_stream stream;
    size_t first, count;
} gml_stream_group;

/* The lifetimes by stream, each in the order of the problem. Both arrays have
 * room for every lifetime. GML_NO_HOST_MEMORY. */
gml_status gml_group_by_stream(const gml_problem *problem, uint32_t *members,
                               gml_stream_group *groups, size_t *group_count);

/* For every member the first moment at which every other stream is ordered behind its free, or the
 * last end of all if there is none: members whose longer lives do not overlap may share addresses,
 * regardless of their streams. Cost: members times groups. GML_NO_HOST_MEMORY. */
gml_status gml_lengthen_ends(const gml_problem *problem, const uint32_t *members,
                             const gml_stream_group *groups, size_t group_count, uint64_t *ends);

#endif
