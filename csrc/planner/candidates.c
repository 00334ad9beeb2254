#include "planner/candidates.h"

#include <stdlib.h>
#include <string.h>

enum { BITS = 3, LINE_BYTES = 64 };

_Static_assert(GML_CANDIDATE_CHILDREN == 1 << BITS, "positions are split by shifts");
_Static_assert(BITS *GML_CANDIDATE_LEVELS >= 32, "every position has a path from the root");
_Static_assert(sizeof(gml_candidate_node) == LINE_BYTES, "a node is a cache line");

/* ---- building -------------------------------------------------------------------------------- */

static gml_status
open_levels(gml_candidates *candidates)
{
    size_t on_level[GML_CANDIDATE_LEVELS];
    size_t below = candidates->count;
    do {
        below = (below + GML_CANDIDATE_CHILDREN - 1) >> BITS;
        on_level[candidates->levels++] = below;
        candidates->node_count += below;
    } while (below > 1);
    candidates->nodes = aligned_alloc(LINE_BYTES, candidates->node_count * LINE_BYTES);
    if (!candidates->nodes) {
        return GML_NO_HOST_MEMORY;
    }
    gml_candidate_node *next = candidates->nodes;
    for (unsigned level = 0; level < candidates->levels; level++) {
        candidates->level[level] = next;
        next += on_level[level];
    }
    return GML_OK;
}

/* Sorts by counting: first slot, then number. */
static void
sort_items(gml_candidates *candidates, size_t count, uint32_t slots, const uint32_t *begin,
           const uint32_t *end)
{
    uint32_t *first = candidates->first;
    for (size_t i = 0; i < count; i++) {
        if (begin[i] < end[i]) {
            first[begin[i] + 1]++;
        }
    }
    for (uint32_t slot = 0; slot < slots; slot++) {
        first[slot + 1] += first[slot];
    }
    /* first[slot] moves up to where slot + 1 begins ... */
    for (size_t i = 0; i < count; i++) {
        candidates->position[i] = GML_NO_CANDIDATE;
        if (begin[i] < end[i]) {
            uint32_t position = first[begin[i]]++;
            candidates->position[i] = position;
            candidates->item[position] = (uint32_t)i;
        }
    }
    /* ... and back. */
    memmove(&first[1], first, slots * sizeof *first);
    first[0] = 0;
}

gml_status
gml_candidates_open(gml_candidates *candidates, size_t count, uint32_t slots, const uint32_t *begin,
                    const uint32_t *end)
{
    *candidates = (gml_candidates){0};
    for (size_t i = 0; i < count; i++) {
        candidates->count += begin[i] < end[i];
    }
    if (candidates->count == 0) {
        return GML_OK;
    }
    candidates->first = calloc((size_t)slots + 1, sizeof *candidates->first);
    candidates->position = malloc(count * sizeof *candidates->position);
    candidates->item = malloc(candidates->count * sizeof *candidates->item);
    gml_status status = GML_NO_HOST_MEMORY;
    if (candidates->first && candidates->position && candidates->item) {
        status = open_levels(candidates);
    }
    if (status != GML_OK) {
        gml_candidates_close(candidates);
        return status;
    }
    sort_items(candidates, count, slots, begin, end);
    return GML_OK;
}

void
gml_candidates_close(gml_candidates *candidates)
{
    free(candidates->first);
    free(candidates->position);
    free(candidates->item);
    free(candidates->nodes);
    *candidates = (gml_candidates){0};
}

/* ---- changing -------------------------------------------------------------------------------- */

typedef struct summary {
    uint32_t rank, end;
} summary;

static summary
summarize(const gml_candidate_node *node)
{
    summary sum = {UINT32_MAX, UINT32_MAX};
    for (unsigned i = 0; i < GML_CANDIDATE_CHILDREN; i++) {
        sum.rank = node->rank[i] < sum.rank ? node->rank[i] : sum.rank;
        sum.end = node->end[i] < sum.end ? node->end[i] : sum.end;
    }
    return sum;
}

void
gml_candidates_fill(gml_candidates *candidates, const uint32_t *rank, const uint32_t *end)
{
    if (candidates->count == 0) {
        return;
    }
    memset(candidates->nodes, 0xff, candidates->node_count * sizeof *candidates->nodes);
    for (size_t position = 0; position < candidates->count; position++) {
        gml_candidate_node *leaf = &candidates->level[0][position >> BITS];
        uint32_t item = candidates->item[position];
        leaf->rank[position % GML_CANDIDATE_CHILDREN] = rank[item];
        leaf->end[position % GML_CANDIDATE_CHILDREN] = end[item];
    }
    size_t nodes = (candidates->count + GML_CANDIDATE_CHILDREN - 1) >> BITS;
    for (unsigned level = 0; level + 1 < candidates->levels; level++) {
        for (size_t i = 0; i < nodes; i++) {
            summary sum = summarize(&candidates->level[level][i]);
            gml_candidate_node *parent = &candidates->level[level + 1][i >> BITS];
            parent->rank[i % GML_CANDIDATE_CHILDREN] = sum.rank;
            parent->end[i % GML_CANDIDATE_CHILDREN] = sum.end;
        }
        nodes = (nodes + GML_CANDIDATE_CHILDREN - 1) >> BITS;
    }
}

void
gml_candidates_remove(gml_candidates *candidates, uint32_t item, uint64_t *visits)
{
    size_t at = candidates->position[item];
    summary sum = {GML_NO_CANDIDATE, UINT32_MAX};
    for (unsigned level = 0; level < candidates->levels; level++) {
        gml_candidate_node *node = &candidates->level[level][at >> BITS];
        unsigned child = (unsigned)(at % GML_CANDIDATE_CHILDREN);
        if (node->rank[child] == sum.rank && node->end[child] == sum.end) {
            return;
        }
        node->rank[child] = sum.rank;
        node->end[child] = sum.end;
        sum = summarize(node);
        at >>= BITS;
        ++*visits;
    }
}

/* ---- searching ------------------------------------------------------------------------------- */

typedef struct query {
    const gml_candidates *candidates;
    size_t first, last; /* positions */
    uint32_t end, best;
    uint64_t visits;
} query;

/* Which children of node `at` on `level` begin late enough, as bits. What begins too late ends too
 * late as well. */
static unsigned
children_in_range(const query *search, unsigned level, size_t at)
{
    const unsigned all = (1U << GML_CANDIDATE_CHILDREN) - 1;
    size_t first = search->first >> (BITS * level);
    return at == first >> BITS ? all & (all << first % GML_CANDIDATE_CHILDREN) : all;
}

static void
search_leaf(query *search, size_t at)
{
    const gml_candidate_node *node = &search->candidates->level[0][at];
    unsigned mask = children_in_range(search, 0, at);
    for (unsigned i = 0; i < GML_CANDIDATE_CHILDREN; i++) {
        uint32_t rank = (mask >> i & 1) && node->end[i] <= search->end ? node->rank[i] : UINT32_MAX;
        search->best = rank < search->best ? rank : search->best;
    }
}

/* Takes the best child that may hold something better out of *mask; no child is left: false. */
static bool
take_child(const query *search, const gml_candidate_node *node, unsigned *mask, unsigned *child)
{
    uint32_t best = search->best;
    for (unsigned i = 0; i < GML_CANDIDATE_CHILDREN; i++) {
        if ((*mask >> i & 1) && node->end[i] <= search->end && node->rank[i] < best) {
            best = node->rank[i];
            *child = i;
        }
    }
    *mask &= ~(1U << *child);
    return best < search->best;
}

/* Everything below node `top` on `level`. */
static void
search_tree(query *search, unsigned level, size_t top)
{
    struct {
        size_t at;
        unsigned mask;
    } path[GML_CANDIDATE_LEVELS];
    unsigned highest = level;
    path[level].at = top;
    path[level].mask = children_in_range(search, level, top);
    for (;;) {
        size_t at = path[level].at;
        unsigned child = 0;
        search->visits++;
        if (!take_child(search, &search->candidates->level[level][at], &path[level].mask, &child)) {
            if (level++ == highest) {
                return;
            }
        } else if (level == 1) {
            search->visits++;
            search_leaf(search, (at << BITS) + child);
        } else {
            level--;
            path[level].at = (at << BITS) + child;
            path[level].mask = children_in_range(search, level, path[level].at);
        }
    }
}

uint32_t
gml_candidates_best(const gml_candidates *candidates, uint32_t begin, uint32_t end,
                    uint64_t *visits)
{
    if (candidates->count == 0 || candidates->first[begin] == candidates->first[end]) {
        return GML_NO_CANDIDATE;
    }
    query search = {candidates, candidates->first[begin], candidates->first[end] - 1U,
                    end,        GML_NO_CANDIDATE,         0};
    unsigned level = 0;
    while (search.first >> (BITS * (level + 1)) != search.last >> (BITS * (level + 1))) {
        level++;
    }
    size_t top = search.first >> (BITS * (level + 1));
    if (level == 0) {
        search.visits++;
        search_leaf(&search, top);
    } else {
        search_tree(&search, level, top);
    }
    *visits += search.visits;
    return search.best;
}
