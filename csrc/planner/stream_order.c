#include "planner/stream_order.h"

#include "base/sort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

gml_status
gml_group_by_stream(const gml_problem *problem, uint32_t *members, gml_stream_group *groups,
                    size_t *group_count)
{
    gml_keyed *list = calloc(2 * problem->count + 1, sizeof *list);
    if (!list) {
        return GML_NO_HOST_MEMORY;
    }
    size_t count = problem->count, found = 0;
    for (size_t i = 0; i < count; i++) {
        list[i] = (gml_keyed){problem->lifetimes[i].stream, i};
    }
    gml_sort_keyed(list, list + count, count);
    for (size_t i = 0; i < count; i++) {
        members[i] = (uint32_t)list[i].index;
        if (!found || groups[found - 1].stream != list[i].key) {
            groups[found++] = (gml_stream_group){.stream = list[i].key, .first = i};
        }
        groups[found - 1].count++;
    }
    free(list);
    *group_count = found;
    return GML_OK;
}

/* ---- orderings ------------------------------------------------------------------------------- */

static int
compare(const void *left, const void *right)
{
    const gml_ordering *a = left, *b = right;
    if (a->before != b->before) {
        return a->before < b->before ? -1 : 1;
    }
    if (a->after != b->after) {
        return a->after < b->after ? -1 : 1;
    }
    return (a->time > b->time) - (a->time < b->time);
}

/* The time of the first ordering from `time` on; `never` if none. */
static uint64_t
ordered_from(const gml_ordering *sorted, size_t count, gml_ordering wanted, uint64_t never)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare(&sorted[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool is_found = low < count && sorted[low].before == wanted.before &&
                    sorted[low].after == wanted.after && sorted[low].time < never;
    return is_found ? sorted[low].time : never;
}

static uint64_t
last_end(const gml_problem *problem)
{
    uint64_t last = 0;
    for (size_t i = 0; i < problem->count; i++) {
        last = problem->lifetimes[i].end > last ? problem->lifetimes[i].end : last;
    }
    return last;
}

gml_status
gml_lengthen_ends(const gml_problem *problem, const uint32_t *members,
                  const gml_stream_group *groups, size_t group_count, uint64_t *ends)
{
    gml_ordering *sorted = malloc((problem->ordering_count + 1) * sizeof *sorted);
    if (!sorted) {
        return GML_NO_HOST_MEMORY;
    }
    if (problem->ordering_count) {
        memcpy(sorted, problem->orderings, problem->ordering_count * sizeof *sorted);
        qsort(sorted, problem->ordering_count, sizeof *sorted, compare);
    }
    uint64_t never = last_end(problem);
    for (size_t g = 0; g < group_count; g++) {
        for (size_t i = groups[g].first; i < groups[g].first + groups[g].count; i++) {
            gml_ordering wanted = {problem->lifetimes[members[i]].end, groups[g].stream, 0};
            ends[i] = wanted.time;
            for (size_t other = 0; other < group_count && ends[i] < never; other++) {
                wanted.after = groups[other].stream;
                uint64_t ordered =
                    other == g ? wanted.time
                               : ordered_from(sorted, problem->ordering_count, wanted, never);
                ends[i] = ordered > ends[i] ? ordered : ends[i];
            }
        }
    }
    free(sorted);
    return GML_OK;
}
