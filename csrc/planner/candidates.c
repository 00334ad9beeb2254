#include "planner/candidates.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 3, LINE_BYTES = 64 };

_Static_assert(GML_CANDIDATE_CHILDREN == 1 << BITS, "positions are split by shifts");
_Static_assert(BITS *GML_CANDIDATE_LEVELS >= 32, "every position has a path from the root");
_Static_assert(sizeof(gml_candidate_node) == LINE_BYTES, "a node is a cache line");

/* ---- building -------------------------------------------------------------------------------- */

gml_status gml_candidates_open(gml_candidates *candidates, size_t count, uint32_t slots,
                               const uint32_t *begin) {
    size_t on_level[GML_CANDIDATE_LEVELS], below = count;
    *candidates = (gml_candidates){.count = count};
    do {
        below = (below + GML_CANDIDATE_CHILDREN - 1) >> BITS;
        on_level[candidates->levels++] = below;
        candidates->node_count += below;
    } while (below > 1);
    candidates->first = malloc(((size_t)slots + 1) * sizeof *candidates->first);
    gml_candidate_node *next = aligned_alloc(LINE_BYTES, (candidates->node_count + 1) * LINE_BYTES);
    candidates->level[0] = next;
    if (!candidates->first || !next) {
        gml_candidates_close(candidates);
        return GML_NO_HOST_MEMORY;
    }
    for (unsigned level = 0; level < candidates->levels; level++) {
        candidates->level[level] = next;
        next += on_level[level];
    }
    uint32_t item = 0;
    for (uint32_t slot = 0; slot <= slots; slot++) {
        while (item < count && begin[item] < slot) {
            item++;
        }
        candidates->first[slot] = item;
    }
    return GML_OK;
}

void gml_candidates_close(gml_candidates *candidates) {
    free(candidates->first);
    free(candidates->level[0]);
    *candidates = (gml_candidates){0};
}

/* ---- changing -------------------------------------------------------------------------------- */

typedef struct summary {
    uint32_t rank, end;
} summary;

static summary summarize(const gml_candidate_node *node) {
    summary sum = {UINT32_MAX, UINT32_MAX};
    for (unsigned i = 0; i < GML_CANDIDATE_CHILDREN; i++) {
        sum.rank = node->rank[i] < sum.rank ? node->rank[i] : sum.rank;
        sum.end = node->end[i] < sum.end ? node->end[i] : sum.end;
    }
    return sum;
}

void gml_candidates_fill(gml_candidates *candidates, const uint32_t *rank, const uint32_t *begin,
                         const uint32_t *end) {
    memset(candidates->level[0], 0xff, candidates->node_count * LINE_BYTES);
    for (size_t item = 0; item < candidates->count; item++) {
        if (begin[item] < end[item]) {
            gml_candidate_node *leaf = &candidates->level[0][item >> BITS];
            leaf->rank[item % GML_CANDIDATE_CHILDREN] = rank[item];
            leaf->end[item % GML_CANDIDATE_CHILDREN] = end[item];
        }
    }
    size_t nodes = candidates->count;
    for (unsigned level = 0; level + 1 < candidates->levels; level++) {
        nodes = (nodes + GML_CANDIDATE_CHILDREN - 1) >> BITS;
        for (size_t i = 0; i < nodes; i++) {
            summary sum = summarize(&candidates->level[level][i]);
            gml_candidate_node *parent = &candidates->level[level + 1][i >> BITS];
            parent->rank[i % GML_CANDIDATE_CHILDREN] = sum.rank;
            parent->end[i % GML_CANDIDATE_CHILDREN] = sum.end;
        }
    }
}

void gml_candidates_remove(gml_candidates *candidates, uint32_t item, uint64_t *visits) {
    size_t at = item;
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
    size_t first; /* earlier items begin too early; items that begin too late end too late */
    uint32_t end, best;
    uint64_t visits;
} query;

/* Goes down from node `at` of `level`, each time to the best child that may hold something better
 * than was found. */
static void search(query *wanted, unsigned level, size_t at) {
    const gml_candidate_node *node = &wanted->candidates->level[level][at];
    size_t first = wanted->first >> (BITS * level);
    unsigned from = at == first >> BITS ? (unsigned)(first % GML_CANDIDATE_CHILDREN) : 0;
    bool is_left[GML_CANDIDATE_CHILDREN] = {false};
    wanted->visits++;
    for (;;) {
        uint32_t best = wanted->best;
        unsigned child = 0;
        for (unsigned i = from; i < GML_CANDIDATE_CHILDREN; i++) {
            if (!is_left[i] && node->end[i] <= wanted->end && node->rank[i] < best) {
                best = node->rank[i];
                child = i;
            }
        }
        if (best == wanted->best) {
            return;
        }
        if (level == 0) {
            wanted->best = best;
            return;
        }
        is_left[child] = true;
        search(wanted, level - 1, (at << BITS) + child);
    }
}

uint32_t gml_candidates_best(const gml_candidates *candidates, uint32_t begin, uint32_t end,
                             uint64_t *visits) {
    size_t first = candidates->first[begin], last = candidates->first[end];
    if (first == last) {
        return GML_NO_CANDIDATE;
    }
    query wanted = {candidates, first, end, GML_NO_CANDIDATE, 0};
    unsigned level = 0; /* of the lowest node above all that begin in the range */
    for (last--; first >> (BITS * (level + 1)) != last >> (BITS * (level + 1)); level++) {
    }
    search(&wanted, level, first >> (BITS * (level + 1)));
    *visits += wanted.visits;
    return wanted.best;
}
