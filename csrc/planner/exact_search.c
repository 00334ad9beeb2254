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

/* ---- branching ------------------------------------------------------------------------------- */

static void look_for_options(search_state *search, frame *top) {
    top->option_count = gml_exact_branches(search->space, &top->node);
    top->next_option = 0;
    top->has_options = true;
    top->was_felt = true;
}

static answer place_next(search_state *search, frame *top) {
    gml_exact_space *space = search->space;
    const gml_exact_part *part = top->node.part;
    uint32_t at = top->next_option++, rank = top->node.options[at];
    if (gml_exact_is_repeated(&top->node, at)) {
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
