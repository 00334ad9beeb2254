/* The steps of an exact search. */
#include "planner/exact.h"

#include <stdlib.h>
#include <string.h>

enum { VISITS_PER_WORK = 3 };

/* One step of the search. Either it branches over the items of a slot, or it searches the parts of
 * a node one after the other. A step that was left keeps its memory for the next of its depth. */
typedef struct frame {
    gml_exact_part part; /* that begins with this step; else the node's is that of a step below */
    gml_exact_node node;
    bool is_split;
    bool has_options;
    bool was_felt; /* the last branch raised another item */
    uint32_t option_count, next_option;
    uint32_t cut_count, next_cut; /* of node.cuts: the ends of the parts, in slots */
} frame;

typedef enum answer { GO_ON, PLACED, FAILED, STOPPED, NO_MEMORY } answer;

typedef struct search_state {
    gml_exact_space *space;
    gml_budget *budget;
    uint64_t nodes_left;
    frame *frames;
    uint32_t depth;
    uint32_t *members; /* scratch by item */
} search_state;

/* ---- work ------------------------------------------------------------------------------------ */

static bool is_over(search_state *search) {
    uint64_t work = 1 + search->space->visits / VISITS_PER_WORK;
    search->space->visits %= VISITS_PER_WORK;
    if (gml_budget_spend(search->budget, work) || !search->nodes_left) {
        return true;
    }
    search->nodes_left--;
    return false;
}

/* The step whose part or node was made above all others begins. */
static frame *push(search_state *search) {
    frame *pushed = &search->frames[search->depth++];
    pushed->is_split = pushed->has_options = false;
    return pushed;
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* Writes the slots in (from, to) whose beginning no item of the node crosses. */
static uint32_t find_cuts(gml_exact_space *space, const gml_exact_node *node, uint32_t from,
                          uint32_t to, uint32_t *cuts) {
    const gml_exact_part *part = node->part;
    uint32_t *change = space->slot_count;
    memset(change + from, 0, (to - from + 1) * sizeof *change);
    for (uint32_t i = 0; i < node->unplaced; i++) {
        uint32_t rank = node->order[i];
        uint32_t first = part->begin[rank] > from ? part->begin[rank] + 1 : from + 1;
        uint32_t end = part->end[rank] < to ? part->end[rank] : to;
        if (first < end) {
            change[first]++;
            change[end]--;
        }
    }
    space->visits += node->unplaced + to - from;
    uint32_t count = 0, crossing = 0;
    for (uint32_t slot = from + 1; slot < to; slot++) {
        crossing += change[slot];
        if (!crossing) {
            cuts[count++] = slot;
        }
    }
    return count;
}

/* Continues with the remaining items after an item in [from, to) was placed. */
static answer descend(search_state *search, uint32_t from, uint32_t to) {
    const gml_exact_node *node = &search->frames[search->depth].node;
    if (!node->unplaced) {
        return PLACED;
    }
    frame *pushed = push(search);
    uint32_t count = find_cuts(search->space, node, from, to, node->cuts);
    if (count) {
        node->cuts[count++] = node->part->slots;
        pushed->is_split = true;
        pushed->cut_count = count;
        pushed->next_cut = 0;
    }
    return GO_ON;
}

static uint32_t take_members(search_state *search, const gml_exact_node *node, uint32_t from,
                             uint32_t to) {
    const gml_exact_part *part = node->part;
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->unplaced; i++) {
        uint32_t rank = node->order[i];
        if (part->begin[rank] >= from && part->end[rank] <= to) {
            /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): room for every item */
            search->members[count++] = part->item[rank];
            search->space->items[part->item[rank]].low = node->low[rank];
        }
    }
    search->space->visits += node->unplaced;
    return count;
}

/* The verdict on a new top node, if it ends the step before. */
static answer answer_of(gml_exact_verdict verdict) {
    return verdict == GML_EXACT_OPEN ? GO_ON : verdict == GML_EXACT_CLOSED ? FAILED : NO_MEMORY;
}

static answer open_part(search_state *search, const uint32_t *members, uint32_t count) {
    frame *above = &search->frames[search->depth];
    if (!gml_exact_part_make(search->space, members, count, &above->part)) {
        return NO_MEMORY;
    }
    answer given = answer_of(gml_exact_first_node(search->space, &above->part, &above->node));
    if (given == GO_ON) {
        (void)push(search);
    }
    return given;
}

static answer next_part(search_state *search, frame *top) {
    while (top->next_cut < top->cut_count) {
        uint32_t from = top->next_cut ? top->node.cuts[top->next_cut - 1] : 0;
        uint32_t to = top->node.cuts[top->next_cut++];
        uint32_t count = take_members(search, &top->node, from, to);
        if (count) {
            return open_part(search, search->members, count);
        }
    }
    return PLACED;
}

/* ---- where it branches ----------------------------------------------------------------------- */

static uint32_t slack_of(const gml_exact_space *space, const gml_exact_slot *slot) {
    return space->capacity - slot->low - slot->remaining;
}

/* How many branches there would be: the last is that no item is at the lowest offset. */
static uint64_t ways(const gml_exact_space *space, const gml_exact_slot *slot,
                     uint32_t least_size) {
    uint32_t slack = slack_of(space, slot);
    bool can_be_none = slack >= least_size ||
                       (slot->next_low != GML_EXACT_NONE && slot->next_low - slot->low <= slack);
    return (uint64_t)slot->options + can_be_none;
}

static uint64_t pair(uint64_t first, uint64_t second) {
    return first << 32 | second;
}

static uint64_t badness(const gml_exact_space *space, const gml_exact_slot *slot,
                        uint32_t least_size) {
    uint64_t slack = slack_of(space, slot);
    switch (space->strategy.choice) {
    case GML_EXACT_BY_LOW_SLACK:
        return pair(slot->low, slack);
    case GML_EXACT_BY_LOW_OPTIONS:
        return pair(slot->low, slot->options);
    case GML_EXACT_BY_OPTIONS:
        return pair(slot->options, slack);
    case GML_EXACT_BY_REMAINING:
    default:
        return pair(slot->low + slack, ways(space, slot, least_size));
    }
}

static uint32_t least_size_of(const gml_exact_node *node) {
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < node->unplaced; i++) {
        uint32_t size = node->part->size[node->order[i]];
        least = size < least ? size : least;
    }
    return least;
}

static uint32_t best_slot(gml_exact_space *space, const gml_exact_node *node, uint32_t least_size,
                          const uint32_t *is_refused) {
    const gml_exact_part *part = node->part;
    uint32_t best = 0;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < part->slots; i++) {
        const gml_exact_slot *slot = &node->slots[i];
        if (slot->low == GML_EXACT_NONE || is_refused[i]) {
            continue;
        }
        uint64_t bad = badness(space, slot, least_size);
        if (bad < least) {
            least = bad;
            best = i;
        }
    }
    space->visits += 2 * (uint64_t)part->slots;
    return best;
}

/* Whether another item could come below this one. */
static bool is_hollow(const gml_exact_node *node, uint32_t rank) {
    for (uint32_t i = node->part->begin[rank]; i < node->part->end[rank]; i++) {
        if (node->slots[i].low < node->low[rank]) {
            return true;
        }
    }
    return false;
}

static void refuse(const gml_exact_node *node, uint32_t rank, uint32_t *is_refused) {
    for (uint32_t i = node->part->begin[rank]; i < node->part->end[rank]; i++) {
        is_refused[i] |= node->slots[i].low == node->low[rank];
    }
}

/* Ascending by rank. */
static void insert(uint16_t *ranks, uint32_t count, uint16_t rank) {
    uint32_t at = count;
    for (; at > 0 && ranks[at - 1] > rank; at--) {
        ranks[at] = ranks[at - 1];
    }
    ranks[at] = rank;
}

/* The options of a slot; 0 where one of them is hollow: the slots that it keeps from being next are
 * refused. */
static uint32_t options_of(const gml_exact_node *node, uint32_t slot, uint32_t *is_refused) {
    const gml_exact_part *part = node->part;
    uint32_t low = node->slots[slot].low, count = 0;
    for (uint32_t i = 0; i < node->unplaced && node->low[node->order[i]] <= low; i++) {
        uint16_t rank = node->order[i];
        if (node->low[rank] != low || part->begin[rank] > slot || part->end[rank] <= slot) {
            continue;
        }
        if (is_hollow(node, rank)) {
            refuse(node, rank, is_refused);
            return 0;
        }
        insert(node->options, count++, rank);
    }
    return count;
}

/* The ranks that can be at the lowest offset of the slot that comes next, in the order in which
 * they are tried, in node->options; their number. */
static uint32_t find_branches(gml_exact_space *space, const gml_exact_node *node) {
    uint32_t *is_refused = space->slot_count;
    memset(is_refused, 0, node->part->slots * sizeof *is_refused);
    uint32_t least_size = least_size_of(node), count = 0;
    while (!count) { /* ends: all other items are higher */
        count = options_of(node, best_slot(space, node, least_size, is_refused), is_refused);
        space->visits += node->unplaced;
    }
    return count;
}

/* Whether one of the options before `at` differs from it only in its number. */
static bool is_repeated(const gml_exact_node *node, uint32_t at) {
    const gml_exact_part *part = node->part;
    uint32_t b = node->options[at];
    for (uint32_t i = 0; i < at; i++) {
        uint32_t a = node->options[i];
        if (part->size[a] == part->size[b] && part->begin[a] == part->begin[b] &&
            part->end[a] == part->end[b]) {
            return true;
        }
    }
    return false;
}

/* ---- branching ------------------------------------------------------------------------------- */

static void look_for_options(search_state *search, frame *top) {
    top->option_count = find_branches(search->space, &top->node);
    top->next_option = 0;
    top->has_options = true;
    top->was_felt = true;
}

static answer place_next(search_state *search, frame *top) {
    gml_exact_space *space = search->space;
    const gml_exact_part *part = top->node.part;
    uint32_t at = top->next_option++, rank = top->node.options[at];
    if (is_repeated(&top->node, at)) {
        return GO_ON;
    }
    /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): a frame more than there are steps */
    gml_exact_node *above = &search->frames[search->depth].node;
    answer given = answer_of(gml_exact_place(space, &top->node, rank, above, &top->was_felt));
    if (given != GO_ON) {
        return given == FAILED ? GO_ON : given; /* with the next one */
    }
    space->items[part->item[rank]].offset = top->node.low[rank];
    return descend(search, part->begin[rank], part->end[rank]);
}

/* No option is at the lowest offset; there is no choice to return to, so the step itself continues
 * from there. */
static answer raise_options(search_state *search, frame *top) {
    answer given =
        answer_of(gml_exact_raise(search->space, &top->node, top->node.options, top->option_count));
    if (given == GO_ON) {
        look_for_options(search, top);
    }
    return given;
}

static answer step(search_state *search) {
    frame *top = &search->frames[search->depth - 1];
    if (top->is_split) {
        return next_part(search, top);
    }
    if (is_over(search)) {
        return STOPPED;
    }
    if (!top->has_options) {
        look_for_options(search, top);
    }
    if (!top->was_felt) {
        return FAILED; /* the item obstructs no other one, so no other choice would help */
    }
    return top->next_option < top->option_count ? place_next(search, top)
                                                : raise_options(search, top);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The result of the last step is a result for the step below it. */
static answer pop(search_state *search, answer given) {
    search->depth--;
    bool has_more =
        search->depth && (given == PLACED ? search->frames[search->depth - 1].is_split
                                          : !search->frames[search->depth - 1].is_split);
    return has_more ? GO_ON : given;
}

static answer search_all(search_state *search, const uint32_t *items, uint32_t count) {
    answer given = open_part(search, items, count);
    while (given != STOPPED && given != NO_MEMORY) {
        if (given == GO_ON) {
            given = step(search);
        } else if (search->depth) {
            given = pop(search, given);
        } else {
            break;
        }
    }
    return given;
}

gml_status gml_exact_run(gml_exact_space *space, const gml_exact_strategy *strategy,
                         const uint32_t *items, uint32_t count, uint64_t node_limit,
                         gml_budget *budget, gml_exact_outcome *out) {
    /* Each step except the first has placed an item or follows a split; one is added above. */
    size_t most_frames = 2 * (size_t)count + 3;
    search_state search = {
        .space = space,
        .budget = budget,
        .nodes_left = node_limit,
        .frames = calloc(most_frames, sizeof *search.frames),
        .members = calloc(count + 1, sizeof *search.members),
    };
    space->strategy = *strategy;
    for (uint32_t i = 0; i < count; i++) {
        space->items[items[i]].low = 0;
    }
    answer given = NO_MEMORY;
    if (search.frames && search.members) {
        given = search_all(&search, items, count);
    }
    for (size_t i = 0; search.frames && i < most_frames; i++) {
        free(search.frames[i].part.item);
        free(search.frames[i].node.slots);
    }
    free(search.frames);
    free(search.members);
    *out = given == PLACED   ? GML_EXACT_FOUND
           : given == FAILED ? GML_EXACT_IMPOSSIBLE
                             : GML_EXACT_UNDECIDED;
    return given == NO_MEMORY ? GML_NO_HOST_MEMORY : GML_OK;
}
