/* Chooses free bytes of a stream cache for a request that fits no single extent.
 *
 * Chunks are kept whole, and odd sizes are packed to leave the smallest leftovers. A request is
 * composed as
 *
 *     [head][whole chunks ...][tail]     or     [head][whole chunks ... cut]
 *
 * where a head is the free end of a chunk and a tail the free start of one (freeset.h). Of the
 * pairs of head and tail that leave next to nothing, the one with the most bytes is used: it
 * eliminates two leftovers, large ones first. A few dozen of each mostly contain such a pair.
 * Otherwise a head is used up before a chunk is cut, so the number of leftovers does not grow. Only
 * the last run may stop inside a chunk: behind it the view maps the rest of that chunk, which is
 * not its memory.
 */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

#include <inttypes.h>
#include <stdlib.h>

/* How many heads a search for a pair looks at: enough in practice, and a bound on the time. */
enum { MAX_HEADS_TRIED = 64 };

/* Bytes that a pair may leave of its tail. */
enum { NEXT_TO_NOTHING = 64 << 10 };

typedef struct assembly {
    uint64_t head_offset, head_bytes;
    uint64_t tail_offset, tail_bytes;
    uint64_t middle_bytes; /* out of whole chunks, the last of them cut unless there is a tail */
} assembly;

/* The next smaller head after `node`, of another size. */
static const gml_tree_node *smaller(const gml_tree *tree, const gml_tree_node *node) {
    const gml_tree_node *first = gml_tree_at_least(tree, node->size_bytes, 0);
    return gml_tree_previous(first);
}

/* With one side: that head used up. pre: it is smaller than the request, which no extent holds. */
static assembly plan_head(const gml_tree_node *head, uint64_t size_bytes) {
    if (!head) {
        return (assembly){.middle_bytes = size_bytes};
    }
    return (assembly){head->address, head->size_bytes, 0, 0, size_bytes - head->size_bytes};
}

/* The head that leaves least: of the odd size, else the smallest above, else the largest; NULL
 * where none is needed. */
static const gml_tree_node *best_head(const gml_freeset *set, uint64_t odd_bytes) {
    const gml_tree_node *head = odd_bytes ? gml_tree_at_least(&set->heads, odd_bytes, 0) : NULL;
    return head || !odd_bytes ? head : gml_tree_last(&set->heads);
}

/* With both sides: `middle_bytes` out of whole chunks, a head used up, and the rest from the tail
 * that leaves least. pre: the largest head and tail suffice, and no head alone does. */
static assembly plan_pair(const gml_freeset *set, uint64_t size_bytes, uint64_t middle_bytes) {
    uint64_t sides_bytes = size_bytes - middle_bytes;
    uint64_t least_slack = UINT64_MAX;
    assembly best = {.middle_bytes = middle_bytes};
    const gml_tree_node *head = gml_tree_last(&set->heads);
    for (int tried = 0; tried < MAX_HEADS_TRIED; tried++) {
        uint64_t head_bytes = head ? head->size_bytes : 0;
        uint64_t missing = sides_bytes - head_bytes;
        const gml_tree_node *tail = gml_tree_at_least(&set->tails, missing, 0);
        if (tail && tail->size_bytes - missing < least_slack) {
            least_slack = tail->size_bytes - missing;
            best = (assembly){head ? head->address : 0, head_bytes, tail->address, missing,
                              middle_bytes};
        }
        if (!head) {
            break;
        }
        head = smaller(&set->heads, head);
    }
    return best;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static gml_status add_run(gml_stitch *stitch, gml_choice *choice, uint64_t offset,
                          uint64_t size_bytes) {
    if (!size_bytes) {
        return GML_OK;
    }
    gml_run *last = choice->run_count ? &choice->runs[choice->run_count - 1] : NULL;
    if (last && last->offset + last->size_bytes == offset) {
        last->size_bytes += size_bytes;
        return GML_OK;
    }
    if (choice->run_count == stitch->scratch_capacity) {
        size_t capacity = stitch->scratch_capacity ? stitch->scratch_capacity * 2 : 64;
        gml_run *grown = realloc(stitch->scratch, capacity * sizeof *grown);
        if (!grown) {
            return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                                   "no host memory for a choice of %zu runs", capacity);
        }
        stitch->scratch = grown;
        stitch->scratch_capacity = capacity;
        choice->runs = grown;
    }
    choice->runs[choice->run_count++] = (gml_run){offset, size_bytes, NULL};
    return GML_OK;
}

/* Whole chunks for `bytes`: the largest ranges, then the smallest range that holds the remainder,
 * which may or may not be cut inside a chunk. False if bytes remain. */
static bool add_middle(gml_stitch *stitch, const gml_freeset *set, uint64_t bytes, bool may_cut,
                       gml_choice *choice, gml_status *status) {
    const gml_tree_node *node = gml_tree_last(&set->wholes);
    for (; bytes && node && *status == GML_OK; node = gml_tree_previous(node)) {
        uint64_t taken = node->size_bytes;
        if (taken > bytes || (may_cut && taken == bytes)) {
            node = gml_tree_at_least(&set->wholes, bytes, 0);
            uint64_t end = node->address + bytes;
            taken =
                (may_cut ? end : gml_base_range_chunk_begin(&stitch->range, end)) - node->address;
        }
        *status = add_run(stitch, choice, node->address, taken);
        bytes -= taken;
    }
    return !bytes && *status == GML_OK;
}

static bool build(gml_stitch *stitch, const gml_freeset *set, const assembly *plan, bool may_cut,
                  gml_choice *choice, gml_status *status) {
    choice->runs = stitch->scratch;
    choice->run_count = 0;
    *status = add_run(stitch, choice, plan->head_offset, plan->head_bytes);
    if (!add_middle(stitch, set, plan->middle_bytes, may_cut, choice, status)) {
        return false;
    }
    *status = add_run(stitch, choice, plan->tail_offset, plan->tail_bytes);
    choice->state = choice->run_count > 1 ? GML_STATE_STITCH : GML_STATE_SPLIT;
    return *status == GML_OK;
}

/* ---- the ways -------------------------------------------------------------------------------- */

/* Of those that go with the head, the tail with most bytes, if it and the head have more than
 * `best`. */
static void try_tails(const gml_freeset *set, const gml_tree_node *head, uint64_t size_bytes,
                      uint64_t granule_bytes, assembly *best) {
    uint64_t head_bytes = head ? head->size_bytes : 0;
    uint64_t most_bytes = gml_tree_largest(&set->tails);
    for (uint64_t tail_bytes = (size_bytes - head_bytes) % granule_bytes;
         tail_bytes <= most_bytes && head_bytes + tail_bytes <= size_bytes;
         tail_bytes += granule_bytes) {
        const gml_tree_node *tail =
            tail_bytes ? gml_tree_at_least(&set->tails, tail_bytes, 0) : NULL;
        bool leaves_much = tail && tail->size_bytes - tail_bytes > NEXT_TO_NOTHING;
        uint64_t middle_bytes = size_bytes - head_bytes - tail_bytes;
        if (!leaves_much && middle_bytes <= set->whole_bytes &&
            head_bytes + tail_bytes > best->head_bytes + best->tail_bytes) {
            *best = (assembly){head ? head->address : 0, head_bytes, tail ? tail->address : 0,
                               tail_bytes, middle_bytes};
        }
    }
}

/* A head, a tail, or both, that leave next to nothing, and whole chunks. */
static bool plan_exactly(const gml_freeset *set, uint64_t size_bytes, uint64_t granule_bytes,
                         assembly *out) {
    *out = (assembly){0};
    const gml_tree_node *head = gml_tree_last(&set->heads);
    for (int tried = 0; tried < MAX_HEADS_TRIED; tried++) {
        if (!head || head->size_bytes <= size_bytes) {
            try_tails(set, head, size_bytes, granule_bytes, out);
        }
        if (!head) {
            break;
        }
        head = smaller(&set->heads, head);
    }
    return out->head_bytes || out->tail_bytes;
}

static bool plan_stitch(const gml_freeset *set, uint64_t size_bytes, uint64_t chunk_bytes,
                        assembly *out) {
    *out = plan_head(best_head(set, size_bytes % chunk_bytes), size_bytes);
    if (out->middle_bytes > set->whole_bytes) {
        *out = plan_head(gml_tree_last(&set->heads), size_bytes);
    }
    if (out->middle_bytes <= set->whole_bytes) {
        return true;
    }
    if (gml_tree_largest(&set->heads) + gml_tree_largest(&set->tails) + set->whole_bytes <
        size_bytes) {
        return false;
    }
    *out = plan_pair(set, size_bytes, set->whole_bytes);
    return true;
}

bool gml_choose_stitched(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                         gml_choice *out, gml_status *status) {
    assembly plan;
    const gml_freeset *set = &cache->set;
    gml_freeset_index(&cache->set);
    if (plan_exactly(set, size_bytes, stitch->range.granule_bytes, &plan) &&
        (build(stitch, set, &plan, false, out, status) || *status != GML_OK)) {
        return *status == GML_OK;
    }
    return plan_stitch(set, size_bytes, stitch->range.largest_bytes, &plan) &&
           build(stitch, set, &plan, true, out, status);
}

uint64_t gml_choose_missing(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes) {
    const gml_freeset *set = &cache->set;
    gml_freeset_index(&cache->set);
    uint64_t there_bytes =
        gml_tree_largest(&set->heads) + gml_tree_largest(&set->tails) + set->whole_bytes;
    return there_bytes < size_bytes
               ? gml_round_up(size_bytes - there_bytes, stitch->range.granule_bytes)
               : 0;
}

uint64_t gml_choose_missing_behind(const gml_stitch *stitch, const gml_stream_cache *cache,
                                   uint64_t size_bytes) {
    const gml_base_range *range = &stitch->range;
    uint64_t chunk_bytes = gml_cost_model_chunk(&stitch->costs, range, size_bytes);
    uint64_t begin = gml_base_range_gap(range, chunk_bytes);
    const gml_extent *before = begin ? gml_base_range_find(range, begin - 1) : NULL;
    bool is_ours = before && before->kind == GML_EXTENT_FREE && before->set == &cache->set;
    uint64_t there_bytes = is_ours ? before->size_bytes : 0;
    return gml_round_up(size_bytes - there_bytes, range->granule_bytes);
}

/* The bytes that a growth of `size_bytes` takes: where chunks are whole, up to where one begins. */
static uint64_t step_of(const gml_stitch *stitch, uint64_t size_bytes, uint64_t chunk_bytes,
                        bool at_end) {
    const gml_base_range *range = &stitch->range;
    if (!gml_cost_model_makes_whole(&stitch->costs, range)) {
        return size_bytes;
    }
    if (at_end) {
        uint64_t end = gml_base_range_end(range), from = end > size_bytes ? end - size_bytes : 0;
        return end - from / chunk_bytes * chunk_bytes;
    }
    uint64_t begin = gml_base_range_gap(range, chunk_bytes);
    return gml_round_up(begin + size_bytes, chunk_bytes) - begin;
}

gml_status gml_stitch_grow(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                           bool at_end) {
    gml_base_range *range = &stitch->range;
    uint64_t chunk_bytes = gml_cost_model_chunk(&stitch->costs, range, size_bytes);
    size_bytes = gml_round_up(size_bytes, range->granule_bytes);
    uint64_t step_bytes = step_of(stitch, size_bytes, chunk_bytes, at_end);
    uint64_t wanted_bytes = cache->set.whole_bytes + size_bytes;
    gml_status status = GML_OUT_OF_MEMORY;
    if (step_bytes > size_bytes && step_bytes <= gml_cost_model_room(range)) {
        status = gml_base_range_grow(range, step_bytes, chunk_bytes, at_end, &cache->set);
    }
    /* A step that failed halfway has left its complete runs. */
    if (status == GML_OUT_OF_MEMORY && cache->set.whole_bytes < wanted_bytes) {
        status = gml_base_range_grow(range, wanted_bytes - cache->set.whole_bytes, chunk_bytes,
                                     at_end, &cache->set);
    }
    stitch->policy.reserved_bytes = range->held_bytes;
    return status == GML_OUT_OF_MEMORY && cache->set.whole_bytes >= wanted_bytes ? GML_OK : status;
}
