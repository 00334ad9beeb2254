/* Which bytes serve a request that no existing placement can.
 *
 * Chunks are kept whole, and what is odd about sizes is packed where it leaves least behind. A
 * request of q chunks and r bytes is put together as
 *
 *     [head][whole chunks ...][tail]     or     [head][whole chunks ... cut]
 *
 * where a head is the free end of a chunk and a tail the free start of one (freeset.h). In order:
 *   1. a head or a tail of exactly r, or a head and a tail that leave only whole chunks: nothing is
 *      cut, and one leftover is gone for good. Only for sizes that come back, and with view credit;
 *   2. the smallest free extent that holds the request;
 *   3. a head used up whole, then whole chunks, the last of them cut: there are as many leftovers
 *      afterwards as before, so leftovers do not multiply;
 *   4. a head used up, the whole chunks there are, and a part of a tail;
 *   5. the same with the fewest new chunks.
 */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

#include <inttypes.h>
#include <stdlib.h>

/* How many heads a search for a pair looks at: enough in practice, and a bound on the time. */
enum { MAX_HEADS_TRIED = 32 };

/* In restless mode (stitch.h) the home space may grow to 1/SLACK_DIVISOR above the peak of what was
 * held: with that slack the smallest free extent mostly fits. */
enum { SLACK_DIVISOR = 12 };

typedef struct assembly {
    uint64_t head_offset, head_bytes;
    uint64_t tail_offset, tail_bytes;
    uint64_t middle_bytes; /* out of whole chunks; a multiple unless there is no tail */
} assembly;

static bool
has_chunks(const gml_freeset *set, uint64_t bytes, uint64_t chunk_bytes)
{
    return gml_round_up(bytes, chunk_bytes) <= set->whole_bytes;
}

/* The node of exactly that size, or NULL. */
static const gml_tree_node *
exactly(const gml_tree *tree, uint64_t size_bytes)
{
    const gml_tree_node *node = gml_tree_at_least(tree, size_bytes, 0);
    return node && node->size_bytes == size_bytes ? node : NULL;
}

/* The next smaller head after `node`, of another size. */
static const gml_tree_node *
smaller(const gml_tree *tree, const gml_tree_node *node)
{
    const gml_tree_node *first = gml_tree_at_least(tree, node->size_bytes, 0);
    return gml_tree_previous(first);
}

/* Rule 1. pre: odd_bytes is not 0. */
static bool
plan_exact(const gml_freeset *set, uint64_t size_bytes, uint64_t chunk_bytes, assembly *out)
{
    uint64_t odd_bytes = size_bytes % chunk_bytes;
    uint64_t even_bytes = size_bytes - odd_bytes;
    if (has_chunks(set, even_bytes, chunk_bytes)) {
        const gml_tree_node *head = exactly(&set->heads, odd_bytes);
        if (head) {
            *out = (assembly){head->address, odd_bytes, 0, 0, even_bytes};
            return true;
        }
        const gml_tree_node *tail = exactly(&set->tails, odd_bytes);
        if (tail) {
            *out = (assembly){0, 0, tail->address, odd_bytes, even_bytes};
            return true;
        }
    }
    const gml_tree_node *head = gml_tree_last(&set->heads);
    for (int tried = 0; head && tried < MAX_HEADS_TRIED; tried++) {
        uint64_t head_bytes = head->size_bytes;
        uint64_t tail_bytes = (chunk_bytes + odd_bytes - head_bytes) % chunk_bytes;
        const gml_tree_node *tail = tail_bytes ? exactly(&set->tails, tail_bytes) : NULL;
        if (tail && head_bytes + tail_bytes <= size_bytes &&
            has_chunks(set, size_bytes - head_bytes - tail_bytes, chunk_bytes)) {
            *out = (assembly){head->address, head_bytes, tail->address, tail_bytes,
                              size_bytes - head_bytes - tail_bytes};
            return true;
        }
        head = smaller(&set->heads, head);
    }
    return false;
}

/* The head that rules 3 and 5 use up: of the odd size, else the smallest above, else the largest.
 */
static const gml_tree_node *
best_head(const gml_freeset *set, uint64_t odd_bytes)
{
    const gml_tree_node *node = gml_tree_at_least(&set->heads, odd_bytes, 0);
    return node ? node : gml_tree_last(&set->heads);
}

/* Rule 3, and rule 5 with one side, given enough whole chunks. */
static assembly
plan_head(const gml_freeset *set, uint64_t size_bytes, uint64_t chunk_bytes)
{
    uint64_t odd_bytes = size_bytes % chunk_bytes;
    const gml_tree_node *head = odd_bytes ? best_head(set, odd_bytes) : NULL;
    if (!head || head->size_bytes >= size_bytes) {
        return (assembly){.middle_bytes = size_bytes};
    }
    return (assembly){head->address, head->size_bytes, 0, 0, size_bytes - head->size_bytes};
}

/* Rules 4 and 5 with both sides: `middle_bytes` out of whole chunks, a head used up, and the rest
 * from the tail that leaves least. pre: the largest head and tail suffice, and no head alone does,
 * or plan_head would have taken it. */
static assembly
plan_pair(const gml_freeset *set, uint64_t size_bytes, uint64_t middle_bytes)
{
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
            best.head_bytes = head_bytes;
            best.head_offset = head ? head->address : 0;
            best.tail_bytes = missing;
            best.tail_offset = tail->address;
        }
        if (!head) {
            break;
        }
        head = smaller(&set->heads, head);
    }
    return best;
}

static gml_status
add_run(gml_stitch *stitch, gml_choice *choice, uint64_t offset, uint64_t size_bytes)
{
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

/* Whole chunks for `bytes`: the smallest run that holds them all, else the largest runs. */
static gml_status
add_middle(gml_stitch *stitch, const gml_freeset *set, uint64_t bytes, gml_choice *choice)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    const gml_tree_node *node =
        gml_tree_at_least(&set->wholes, gml_round_up(bytes, chunk_bytes), 0);
    if (!node) {
        node = gml_tree_last(&set->wholes);
    }
    gml_status status = GML_OK;
    while (bytes && status == GML_OK) {
        uint64_t taken = node->size_bytes < bytes ? node->size_bytes : bytes;
        status = add_run(stitch, choice, node->address, taken);
        bytes -= taken;
        node = gml_tree_previous(node);
    }
    return status;
}

static gml_status
build(gml_stitch *stitch, const gml_freeset *set, const assembly *plan, gml_choice *choice)
{
    choice->runs = stitch->scratch;
    choice->run_count = 0;
    gml_status status = add_run(stitch, choice, plan->head_offset, plan->head_bytes);
    if (status == GML_OK) {
        status = add_middle(stitch, set, plan->middle_bytes, choice);
    }
    if (status == GML_OK) {
        status = add_run(stitch, choice, plan->tail_offset, plan->tail_bytes);
    }
    return status;
}

/* Rule 2. */
static bool
choose_fit(gml_stitch *stitch, const gml_freeset *set, uint64_t size_bytes, gml_choice *choice,
           gml_status *status)
{
    const gml_tree_node *node = gml_tree_at_least(&set->fit, size_bytes, 0);
    if (!node) {
        return false;
    }
    choice->runs = stitch->scratch;
    choice->run_count = 0;
    choice->state = node->size_bytes == size_bytes ? GML_STATE_EXACT : GML_STATE_SPLIT;
    *status = add_run(stitch, choice, node->address, size_bytes);
    return true;
}

/* Rules 3 and 4. */
static bool
plan_stitch(const gml_freeset *set, uint64_t size_bytes, uint64_t chunk_bytes, assembly *out)
{
    *out = plan_head(set, size_bytes, chunk_bytes);
    if (has_chunks(set, out->middle_bytes, chunk_bytes)) {
        return true;
    }
    if (gml_tree_largest(&set->heads) + gml_tree_largest(&set->tails) + set->whole_bytes <
        size_bytes) {
        return false;
    }
    *out = plan_pair(set, size_bytes, set->whole_bytes);
    return true;
}

gml_status
gml_stitch_grow(gml_stitch *stitch, gml_pond *pond, uint64_t count)
{
    gml_home *home = &stitch->home;
    if (stitch->is_bounded) {
        return gml_driver_fail(stitch->policy.driver, GML_OUT_OF_MEMORY,
                               "%" PRIu64 " more chunks needed", count);
    }
    uint64_t step = stitch->growth_bytes / home->chunk_bytes;
    uint64_t wanted_bytes = pond->set.whole_bytes + count * home->chunk_bytes;
    gml_status status = GML_OUT_OF_MEMORY;
    if (step > count && step <= home->slots - home->handle_count) {
        status = gml_home_grow(home, step, &pond->set);
    }
    /* A step that failed halfway has left its complete runs. */
    if (status == GML_OUT_OF_MEMORY && pond->set.whole_bytes < wanted_bytes) {
        uint64_t missing_bytes = wanted_bytes - pond->set.whole_bytes;
        status = gml_home_grow(home, missing_bytes / home->chunk_bytes, &pond->set);
    }
    stitch->policy.reserved_bytes = home->handle_count * home->chunk_bytes;
    return status == GML_OUT_OF_MEMORY && pond->set.whole_bytes >= wanted_bytes ? GML_OK : status;
}

/* Rule 5: the chunks that are missing, and how the request is made with them. pre: rules 2 to 4 do
 * not serve. */
static uint64_t
plan_growth(const gml_freeset *set, uint64_t size_bytes, uint64_t chunk_bytes, assembly *out)
{
    uint64_t present = set->whole_bytes / chunk_bytes;
    *out = plan_head(set, size_bytes, chunk_bytes);
    uint64_t missing = gml_divide_up(out->middle_bytes, chunk_bytes) - present;

    uint64_t sides_bytes = gml_tree_largest(&set->heads) + gml_tree_largest(&set->tails);
    uint64_t least =
        sides_bytes < size_bytes ? gml_divide_up(size_bytes - sides_bytes, chunk_bytes) : 0;
    if (least < present + missing) {
        missing = least - present;
        *out = plan_pair(set, size_bytes, least * chunk_bytes);
    }
    return missing;
}

static gml_status
choose_growth(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_choice *choice)
{
    const gml_freeset *set = &pond->set;
    assembly plan;
    uint64_t missing = plan_growth(set, size_bytes, stitch->home.chunk_bytes, &plan);
    gml_status status = gml_stitch_grow(stitch, pond, missing);
    gml_freeset_index(&pond->set);
    choice->state = GML_STATE_GROW;
    return status == GML_OK ? build(stitch, set, &plan, choice) : status;
}

uint64_t
gml_choose_missing(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, bool may_stitch)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    assembly plan;
    if (gml_tree_at_least(&pond->set.fit, size_bytes, 0)) {
        return 0;
    }
    if (!may_stitch) {
        return gml_divide_up(size_bytes, chunk_bytes);
    }
    gml_freeset_index(&pond->set);
    return plan_stitch(&pond->set, size_bytes, chunk_bytes, &plan)
               ? 0
               : plan_growth(&pond->set, size_bytes, chunk_bytes, &plan);
}

/* The bytes free in the pond right before the place where the home space grows. */
static uint64_t
bytes_before_growth(const gml_home *home, const gml_freeset *set)
{
    gml_tree_node *lowest = gml_tree_first(&home->absent);
    const gml_extent *before = lowest ? gml_extent_of_fit(lowest)->previous : NULL;
    bool is_ours = before && before->kind == GML_EXTENT_FREE && before->set == set;
    return is_ours ? before->size_bytes : 0;
}

/* One range only: what is free at the end of the home space and new chunks, which lie side by side
 * unless the home space has holes. What was taken from the driver stays, also after a failure. */
static gml_status
choose_contiguous(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_choice *choice)
{
    const gml_home *home = &stitch->home;
    uint64_t missing_bytes = size_bytes - bytes_before_growth(home, &pond->set);
    gml_status status =
        gml_stitch_grow(stitch, pond, gml_divide_up(missing_bytes, home->chunk_bytes));
    if (status == GML_OK && !choose_fit(stitch, &pond->set, size_bytes, choice, &status)) {
        status = gml_driver_fail(stitch->policy.driver, GML_OUT_OF_MEMORY,
                                 "the home space has no room in one piece");
    }
    choice->state = GML_STATE_GROW;
    return status;
}

/* Whether memory may be grown although stitching would do. */
static bool
may_grow_freely(const gml_stitch *stitch, uint64_t size_bytes)
{
    uint64_t allowed_bytes = stitch->peak_held_bytes + stitch->peak_held_bytes / SLACK_DIVISOR;
    return stitch->mode == GML_MODE_RESTLESS &&
           stitch->policy.reserved_bytes + size_bytes <= allowed_bytes;
}

gml_status
gml_choose(gml_stitch *stitch, const gml_class *class, bool may_stitch, gml_choice *out)
{
    gml_pond *pond = class->pond;
    gml_freeset *set = &pond->set;
    uint64_t size_bytes = class->size_bytes;
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    gml_status status = GML_OK;
    assembly plan;
    bool is_odd = size_bytes > chunk_bytes && size_bytes % chunk_bytes != 0;
    if (may_stitch && is_odd && stitch->view_credit && class->placement_count) {
        gml_freeset_index(set);
        if (plan_exact(set, size_bytes, chunk_bytes, &plan)) {
            status = build(stitch, set, &plan, out);
            out->state = out->run_count > 1 ? GML_STATE_STITCH : GML_STATE_SPLIT;
            return status;
        }
    }
    if (choose_fit(stitch, set, size_bytes, out, &status)) {
        return status;
    }
    if (!may_stitch || may_grow_freely(stitch, size_bytes)) {
        status = choose_contiguous(stitch, pond, size_bytes, out);
        if (status != GML_OUT_OF_MEMORY || !may_stitch) {
            return status;
        }
    }
    gml_freeset_index(set);
    if (plan_stitch(set, size_bytes, chunk_bytes, &plan)) {
        status = build(stitch, set, &plan, out);
        out->state = GML_STATE_STITCH;
        return status;
    }
    return choose_growth(stitch, pond, size_bytes, out);
}
