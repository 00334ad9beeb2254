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

/* For every member the first moment from which no other stream has to be told apart: `all`, where
 * every other stream is ordered behind its free, and `any`, where one is; the last end of all where
 * there is none. Members of two streams may share addresses if their lives, lengthened to `all`, do
 * not overlap, and may not if those lengthened to `any` do. Cost: members times groups.
 * GML_NO_HOST_MEMORY. */
gml_status gml_lengthen_ends(const gml_problem *problem, const uint32_t *members,
                             const gml_stream_group *groups, size_t group_count, uint64_t *all,
                             uint64_t *any);

/* What all streams need at least: between two neighbouring moments of `any` they share nothing, so
 * the most that each of them holds there adds up. pre: no period. GML_NO_HOST_MEMORY. */
gml_status gml_unordered_bound(const gml_problem *problem, const uint32_t *members,
                               const gml_stream_group *groups, size_t group_count,
                               const uint64_t *any, uint64_t *bound_bytes);

#endif
