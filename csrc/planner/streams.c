#include "planner/streams.h"

#include "base/sort.h"

#include <stdbool.h>
#include <stdlib.h>

/* ---- groups ---------------------------------------------------------------------------------- */

static size_t
list_placed(const gml_problem *problem, gml_keyed *list)
{
    size_t count = 0;
    for (size_t i = 0; i < problem->count; i++) {
        if (!(problem->lifetimes[i].flags & GML_LIFETIME_DYNAMIC)) {
            list[count++] = (gml_keyed){problem->lifetimes[i].stream, i};
        }
    }
    return count;
}

gml_status
gml_group_by_stream(const gml_problem *problem, uint32_t *members, size_t *member_count,
                    gml_stream_group *groups, size_t *group_count)
{
    gml_keyed *list = calloc(2 * problem->count + 1, sizeof *list);
    if (!list) {
        return GML_NO_HOST_MEMORY;
    }
    size_t count = list_placed(problem, list), found = 0;
    gml_sort_keyed(list, list + count, count);
    for (size_t i = 0; i < count; i++) {
        members[i] = (uint32_t)list[i].index;
        if (!found || groups[found - 1].stream != list[i].key) {
            groups[found++] = (gml_stream_group){.stream = list[i].key, .first = i};
        }
        groups[found - 1].count++;
    }
    free(list);
    *member_count = count;
    *group_count = found;
    return GML_OK;
}

/* ---- orderings ------------------------------------------------------------------------------- */

typedef enum ordering_field { FIELD_TIME, FIELD_AFTER, FIELD_BEFORE, FIELD_COUNT } ordering_field;

static uint64_t
field_of(const gml_ordering *ordering, ordering_field field)
{
    return field == FIELD_TIME    ? ordering->time
           : field == FIELD_AFTER ? ordering->after
                                  : ordering->before;
}

static int
compare(const gml_ordering *a, const gml_ordering *b)
{
    for (int field = FIELD_COUNT; field-- > 0;) {
        uint64_t left = field_of(a, (ordering_field)field),
                 right = field_of(b, (ordering_field)field);
        if (left != right) {
            return left < right ? -1 : 1;
        }
    }
    return 0;
}

/* The orderings by what is before, what is after and time; NULL without memory. */
static gml_ordering *
sorted_orderings(const gml_problem *problem)
{
    size_t count = problem->ordering_count;
    gml_keyed *list = calloc(2 * count + 1, sizeof *list);
    gml_ordering *sorted = calloc(count + 1, sizeof *sorted);
    if (!list || !sorted) {
        free(list);
        free(sorted);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        list[i].index = i;
    }
    for (int field = 0; field < FIELD_COUNT; field++) {
        for (size_t i = 0; i < count; i++) {
            list[i].key = field_of(&problem->orderings[list[i].index], (ordering_field)field);
        }
        gml_sort_keyed(list, list + count, count);
    }
    for (size_t i = 0; i < count; i++) {
        sorted[i] = problem->orderings[list[i].index];
    }
    free(list);
    return sorted;
}

/* The time of the first ordering from `time` on; `never` if there is none. */
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
    gml_ordering *sorted = sorted_orderings(problem);
    if (!sorted) {
        return GML_NO_HOST_MEMORY;
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
