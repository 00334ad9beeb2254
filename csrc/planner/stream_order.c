/* Streams, the orderings between them, and what they need at least. */
#include "planner/stream_order.h"

#include "base/rounding.h"
#include "base/sort.h"
#include "planner/instance.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups ---------------------------------------------------------------------------------- */

gml_status gml_group_by_stream(const gml_problem *problem, uint32_t *members,
                               gml_stream_group *groups, size_t *group_count) {
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

static int compare(const void *left, const void *right) {
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
static uint64_t ordered_from(const gml_ordering *sorted, size_t count, gml_ordering wanted,
                             uint64_t never) {
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

static uint64_t last_end(const gml_problem *problem) {
    uint64_t last = 0;
    for (size_t i = 0; i < problem->count; i++) {
        last = problem->lifetimes[i].end > last ? problem->lifetimes[i].end : last;
    }
    return last;
}

gml_status gml_lengthen_ends(const gml_problem *problem, const uint32_t *members,
                             const gml_stream_group *groups, size_t group_count, uint64_t *all,
                             uint64_t *any) {
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
            all[i] = wanted.time;
            any[i] = never;
            for (size_t other = 0; other < group_count; other++) {
                wanted.after = groups[other].stream;
                uint64_t ordered =
                    other == g ? never
                               : ordered_from(sorted, problem->ordering_count, wanted, never);
                any[i] = ordered < any[i] ? ordered : any[i];
                all[i] = other != g && ordered > all[i] ? ordered : all[i];
            }
        }
    }
    free(sorted);
    return GML_OK;
}

/* ---- the bound ------------------------------------------------------------------------------- */

/* Starts and ends of one stream in the order of time, ends first. */
typedef struct turn {
    uint64_t time;
    uint64_t size_bytes;
    bool is_start;
} turn;

static int compare_turns(const void *left, const void *right) {
    const turn *a = left, *b = right;
    return a->time != b->time ? gml_compare(a->time, b->time) : (int)a->is_start - (int)b->is_start;
}

static int compare_times(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return gml_compare(*a, *b);
}

/* Adds to each part of time [cuts[i - 1], cuts[i]) the most that is live in it. */
static void add_most_live(const turn *turns, size_t turn_count, const uint64_t *cuts,
                          uint64_t *sums) {
    uint64_t live = 0, most = 0;
    size_t part = 0;
    for (size_t i = 0; i < turn_count; i++) {
        while (turns[i].is_start ? cuts[part] <= turns[i].time : cuts[part] < turns[i].time) {
            sums[part++] += most;
            most = live;
        }
        live = turns[i].is_start ? live + turns[i].size_bytes : live - turns[i].size_bytes;
        most = live > most ? live : most;
    }
    sums[part] += most;
}

gml_status gml_unordered_bound(const gml_problem *problem, const uint32_t *members,
                               const gml_stream_group *groups, size_t group_count,
                               const uint64_t *any, uint64_t *bound_bytes) {
    size_t count = problem->count;
    turn *turns = malloc((2 * count + 1) * sizeof *turns);
    uint64_t *cuts = malloc((count + 1) * sizeof *cuts);
    uint64_t *sums = calloc(count + 1, sizeof *sums);
    gml_status status = turns && cuts && sums ? GML_OK : GML_NO_HOST_MEMORY;
    *bound_bytes = 0;
    if (status == GML_OK && count) {
        memcpy(cuts, any, count * sizeof *cuts);
        qsort(cuts, count, sizeof *cuts, compare_times);
        cuts[count] = UINT64_MAX;
        for (size_t g = 0; g < group_count; g++) {
            size_t turn_count = 0;
            for (size_t i = groups[g].first; i < groups[g].first + groups[g].count; i++) {
                const gml_lifetime *life = &problem->lifetimes[members[i]];
                uint64_t size = gml_round_up(life->size_bytes, gml_problem_alignment(problem));
                turns[turn_count++] = (turn){life->start, size, true};
                turns[turn_count++] = (turn){life->end, size, false};
            }
            qsort(turns, turn_count, sizeof *turns, compare_turns);
            add_most_live(turns, turn_count, cuts, sums);
        }
        for (size_t i = 0; i <= count; i++) {
            *bound_bytes = sums[i] > *bound_bytes ? sums[i] : *bound_bytes;
        }
    }
    free(turns);
    free(cuts);
    free(sums);
    return status;
}
