/* All streams placed at once: slots of each and slots of all, a tree for either. */
#include "planner/together.h"

#include "base/sort.h"
#include "planner/instance.h"
#include "planner/order_search.h"
#include "planner/run_tree.h"

#include <stdlib.h>
#include <string.h>

/* Items are numbered by member: those of one stream come one after the other. */
typedef struct together_state {
    const uint32_t *members;
    const gml_stream_group *groups;
    size_t count, group_count;
    uint64_t *sizes;
    uint32_t *group;                     /* of each item */
    uint32_t *begin, *end;               /* slots of its stream */
    uint32_t *shared_begin, *shared_end; /* slots that all streams have in common */
    uint32_t *slots;                     /* of each stream */
    uint32_t shared_slots;
    gml_run_tree *own, *shared; /* by stream */
    gml_run_reader *readers;
    uint64_t *found; /* where to note them; set by run() */
} together_state;

/* ---- slots ----------------------------------------------------------------------------------- */

static int compare_times(const void *left, const void *right) {
    const uint64_t *a = left, *b = right;
    return gml_compare(*a, *b);
}

/* How many of the ascending cuts are at or before `time`. */
static uint32_t cuts_until(const uint64_t *cuts, size_t count, uint64_t time) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cuts[middle] <= time) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

/* A lengthened life ends at a cut, so that it lasts from the slot of its start to the one before
 * that cut. `cuts` has room for all items. */
static void share_slots(together_state *state, const gml_problem *problem, const uint64_t *all,
                        uint64_t *cuts) {
    memcpy(cuts, all, state->count * sizeof *cuts);
    qsort(cuts, state->count, sizeof *cuts, compare_times);
    size_t kept = 0;
    for (size_t i = 0; i < state->count; i++) {
        if (!kept || cuts[kept - 1] != cuts[i]) {
            cuts[kept++] = cuts[i];
        }
    }
    for (size_t i = 0; i < state->count; i++) {
        state->shared_begin[i] =
            cuts_until(cuts, kept, problem->lifetimes[state->members[i]].start);
        state->shared_end[i] = cuts_until(cuts, kept, all[i]);
    }
    state->shared_slots = (uint32_t)kept;
}

/* `place_of`: room for the member of each lifetime. */
static gml_status take_stream(together_state *state, const gml_problem *problem, size_t group,
                              uint32_t *place_of) {
    size_t first = state->groups[group].first, count = state->groups[group].count;
    gml_instance instance;
    gml_status status = gml_instance_open(&instance, problem, state->members + first, count, NULL);
    if (status != GML_OK) {
        return status;
    }
    for (size_t i = first; i < first + count; i++) {
        place_of[state->members[i]] = (uint32_t)i;
    }
    for (size_t item = 0; item < count; item++) {
        uint32_t at = place_of[instance.lifetime[item]];
        state->group[at] = (uint32_t)group;
        state->sizes[at] = instance.sizes[item];
        state->begin[at] = instance.begin[item];
        state->end[at] = instance.end[item];
    }
    state->slots[group] = instance.slots;
    gml_instance_close(&instance);
    return GML_OK;
}

/* ---- one run --------------------------------------------------------------------------------- */

static void close_trees(together_state *state) {
    for (size_t g = 0; g < state->group_count; g++) {
        gml_run_tree_close(&state->own[g]);
        gml_run_tree_close(&state->shared[g]);
    }
}

static gml_status open_trees(together_state *state, gml_budget *budget) {
    gml_status status = GML_OK;
    for (size_t g = 0; g < state->group_count; g++) {
        gml_status own = gml_run_tree_open(&state->own[g], state->slots[g]);
        gml_status shared = gml_run_tree_open(&state->shared[g], state->shared_slots);
        status = own == GML_OK && shared == GML_OK ? status : GML_NO_HOST_MEMORY;
        (void)gml_budget_spend(budget, (state->own[g].leaves + state->shared[g].leaves) / 2);
    }
    return status;
}

static gml_status place_item(together_state *state, size_t item, uint64_t *visits) {
    size_t group = state->group[item], lists;
    uint64_t size = state->sizes[item];
    gml_run_cut own, shared;
    gml_run_tree_cut(&state->own[group], state->begin[item], state->end[item], &own);
    gml_run_tree_cut(&state->shared[group], state->shared_begin[item], state->shared_end[item],
                     &shared);
    lists = gml_run_tree_gather(&state->own[group], &own, state->readers);
    *visits = 2 * own.node_count + own.above_count;
    for (size_t g = 0; g < state->group_count; g++) {
        if (g != group) {
            lists += gml_run_tree_gather(&state->shared[g], &shared, state->readers + lists);
            *visits += shared.node_count + shared.above_count;
        }
    }
    uint64_t low = gml_run_lowest_free(state->readers, lists, size, visits);
    state->found[item] = low;
    gml_status status = gml_run_tree_add(&state->own[group], &own, low, low + size);
    return status == GML_OK ? gml_run_tree_add(&state->shared[group], &shared, low, low + size)
                            : status;
}

/* First fit in this order. GML_NOT_READY as soon as an item ends above `limit_bytes`, whose place
 * in the order is *failed then, or with the budget. */
static gml_status run(void *context, const uint32_t *order, uint64_t limit_bytes,
                      gml_budget *budget, uint64_t *found, size_t *failed) {
    together_state *state = context;
    state->found = found;
    gml_status status = open_trees(state, budget);
    for (size_t i = 0; i < state->count && status == GML_OK; i++) {
        uint64_t visits;
        status = place_item(state, order[i], &visits);
        *failed = i;
        if (gml_budget_spend(budget, visits) ||
            state->found[order[i]] + state->sizes[order[i]] > limit_bytes) {
            status = status == GML_OK ? GML_NOT_READY : status;
        }
    }
    close_trees(state);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static gml_status together_open(together_state *state, const gml_problem *problem,
                                const uint64_t *all, uint64_t *cuts) {
    size_t count = state->count, groups = state->group_count;
    enum { NARROW = 6 };
    state->sizes = calloc(count, sizeof *state->sizes + NARROW * sizeof *state->group);
    state->slots = calloc(groups, sizeof *state->slots);
    state->own = calloc(groups, 2 * sizeof *state->own);
    state->readers = malloc(groups * GML_RUN_MOST_READERS * sizeof *state->readers);
    if (!state->sizes || !state->slots || !state->own || !state->readers) {
        return GML_NO_HOST_MEMORY;
    }
    state->group = (uint32_t *)(state->sizes + count);
    state->begin = state->group + count;
    state->end = state->begin + count;
    state->shared_begin = state->end + count;
    state->shared_end = state->shared_begin + count;
    state->shared = state->own + groups;
    uint32_t *place_of = state->shared_end + count;
    gml_status status = GML_OK;
    for (size_t g = 0; g < groups && status == GML_OK; g++) {
        status = take_stream(state, problem, g, place_of);
    }
    share_slots(state, problem, all, cuts);
    return status;
}

static void together_close(together_state *state) {
    free(state->sizes);
    free(state->slots);
    free(state->own);
    free(state->readers);
}

gml_status gml_place_together(const gml_problem *problem, const uint32_t *members,
                              const gml_stream_group *groups, size_t group_count,
                              const uint64_t *all, uint64_t enough_bytes, gml_budget *budget,
                              uint64_t *offsets, uint64_t *peak_bytes, bool *is_better) {
    size_t count = problem->count;
    together_state state = {
        .members = members, .groups = groups, .count = count, .group_count = group_count};
    uint64_t *by_member = malloc((count + 1) * sizeof *by_member);
    gml_status status =
        by_member ? together_open(&state, problem, all, by_member) : GML_NO_HOST_MEMORY;
    *is_better = false;
    for (size_t i = 0; status == GML_OK && i < count; i++) {
        by_member[i] = offsets[members[i]];
    }
    if (status == GML_OK) {
        gml_first_fitting fitting = {
            .count = count,
            .sizes = state.sizes,
            .stream = state.group,
            .stream_count = group_count,
            .context = &state,
            .place = run,
        };
        status =
            gml_search_orders(&fitting, enough_bytes, budget, by_member, peak_bytes, is_better);
    }
    for (size_t i = 0; *is_better && i < count; i++) {
        offsets[members[i]] = by_member[i];
    }
    together_close(&state);
    free(by_member);
    return status;
}
