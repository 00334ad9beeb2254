#include "planner/exact_search.h"

#include "planner/exact_choice.h"

#include <stdlib.h>
#include <string.h>

enum { VISITS_PER_WORK = 3 };

/* One step of the search. Either it branches over the items of a slot, or it searches the parts of
 * a node one after the other. */
typedef struct frame {
    gml_arena_mark mark; /* all that the step took lies behind it */
    gml_exact_node node;
    bool is_split;
    bool was_felt;     /* the last branch raised another item */
    uint16_t *options; /* NULL: not looked at yet */
    uint32_t option_count, next_option;
    uint32_t *cuts; /* the ends of the parts, in slots */
    uint32_t cut_count, next_cut;
} frame;

typedef enum answer { GO_ON, PLACED, FAILED, STOPPED, NO_MEMORY } answer;

typedef struct search_state {
    gml_exact_space *space;
    gml_exact_choice choice;
    gml_budget *budget;
    uint64_t nodes_left;
    frame *frames;
    uint32_t depth;
    uint32_t *members; /* scratch by item */
} search_state;

/* ---- work ------------------------------------------------------------------------------------ */

static bool
is_over(search_state *search)
{
    uint64_t work = 1 + search->space->visits / VISITS_PER_WORK;
    search->space->visits %= VISITS_PER_WORK;
    if (gml_budget_spend(search->budget, work) || !search->nodes_left) {
        return true;
    }
    search->nodes_left--;
    return false;
}

static frame *
push(search_state *search, const gml_exact_node *node, gml_arena_mark mark)
{
    frame *pushed = &search->frames[search->depth++];
    *pushed = (frame){.mark = mark, .node = *node};
    return pushed;
}

/* ---- splitting ------------------------------------------------------------------------------- */

/* Writes the slots in (from, to) whose beginning no item of the node crosses. */
static uint32_t
find_cuts(gml_exact_space *space, const gml_exact_node *node, uint32_t from, uint32_t to,
          uint32_t *cuts)
{
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

/* Goes on with what is left after an item in [from, to) was placed. */
static answer
descend(search_state *search, const gml_exact_node *node, uint32_t from, uint32_t to,
        gml_arena_mark mark)
{
    if (!node->unplaced) {
        gml_arena_release(&search->space->arena, mark);
        return PLACED;
    }
    uint32_t *cuts = gml_arena_take(&search->space->arena, ((size_t)to - from + 1) * sizeof *cuts);
    if (!cuts) {
        return NO_MEMORY;
    }
    uint32_t count = find_cuts(search->space, node, from, to, cuts);
    frame *pushed = push(search, node, mark);
    if (count) {
        cuts[count++] = node->part->slots;
        pushed->is_split = true;
        pushed->cuts = cuts;
        pushed->cut_count = count;
    }
    return GO_ON;
}

static uint32_t
take_members(search_state *search, const gml_exact_node *node, uint32_t from, uint32_t to)
{
    const gml_exact_part *part = node->part;
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->unplaced; i++) {
        uint32_t rank = node->order[i];
        if (part->begin[rank] >= from && part->end[rank] <= to) {
            search->members[count++] = part->item[rank];
            search->space->low[part->item[rank]] = node->low[rank];
        }
    }
    search->space->visits += node->unplaced;
    return count;
}

static answer
open_part(search_state *search, uint32_t *members, uint32_t count)
{
    gml_arena_mark mark = gml_arena_here(&search->space->arena);
    gml_exact_node node;
    switch (gml_exact_first_node(search->space, members, count, &node)) {
    case GML_EXACT_OPEN:
        push(search, &node, mark);
        return GO_ON;
    case GML_EXACT_CLOSED:
        return FAILED;
    case GML_EXACT_NO_MEMORY:
    default:
        return NO_MEMORY;
    }
}

static answer
next_part(search_state *search, frame *top)
{
    while (top->next_cut < top->cut_count) {
        uint32_t from = top->next_cut ? top->cuts[top->next_cut - 1] : 0;
        uint32_t to = top->cuts[top->next_cut++];
        uint32_t count = take_members(search, &top->node, from, to);
        if (count) {
            return open_part(search, search->members, count);
        }
    }
    return PLACED;
}

/* ---- branching ------------------------------------------------------------------------------- */

static answer
look_for_options(search_state *search, frame *top)
{
    if (!top->options) {
        top->options =
            gml_arena_take(&search->space->arena, top->node.unplaced * sizeof *top->options);
        if (!top->options) {
            return NO_MEMORY;
        }
    }
    top->option_count = gml_exact_branches(search->space, search->choice, &top->node, top->options);
    top->next_option = 0;
    top->was_felt = true;
    return GO_ON;
}

static answer
place_next(search_state *search, frame *top)
{
    gml_exact_space *space = search->space;
    const gml_exact_part *part = top->node.part;
    uint32_t at = top->next_option++, rank = top->options[at];
    if (gml_exact_is_repeated(&top->node, top->options, at)) {
        return GO_ON;
    }
    gml_arena_mark mark = gml_arena_here(&space->arena);
    gml_exact_node child;
    switch (gml_exact_place(space, &top->node, rank, &child, &top->was_felt)) {
    case GML_EXACT_OPEN:
        space->items.offset[part->item[rank]] = top->node.low[rank];
        return descend(search, &child, part->begin[rank], part->end[rank], mark);
    case GML_EXACT_CLOSED:
        gml_arena_release(&space->arena, mark);
        return GO_ON;
    case GML_EXACT_NO_MEMORY:
    default:
        return NO_MEMORY;
    }
}

/* None of the options is at the lowest offset; nothing is left to come back to, so the step itself
 * goes on from there. */
static answer
raise_options(search_state *search, frame *top)
{
    if (gml_exact_raise(search->space, &top->node, top->options, top->option_count) !=
        GML_EXACT_OPEN) {
        return FAILED;
    }
    return look_for_options(search, top);
}

static answer
step(search_state *search)
{
    frame *top = &search->frames[search->depth - 1];
    if (top->is_split) {
        return next_part(search, top);
    }
    if (is_over(search)) {
        return STOPPED;
    }
    if (!top->options) {
        answer looked = look_for_options(search, top);
        if (looked != GO_ON) {
            return looked;
        }
    }
    if (!top->was_felt) {
        return FAILED; /* the item is in nobody's way where it was, so nothing else would help */
    }
    return top->next_option < top->option_count ? place_next(search, top)
                                                : raise_options(search, top);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The answer of the last step is one of the step below it. */
static answer
pop(search_state *search, answer given)
{
    frame *top = &search->frames[--search->depth];
    gml_arena_release(&search->space->arena, top->mark);
    bool has_more =
        search->depth && (given == PLACED ? search->frames[search->depth - 1].is_split
                                          : !search->frames[search->depth - 1].is_split);
    return has_more ? GO_ON : given;
}

static answer
search_all(search_state *search, uint32_t *items, uint32_t count)
{
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

gml_status
gml_exact_run(gml_exact_space *space, const gml_exact_strategy *strategy, uint32_t *items,
              uint32_t count, uint64_t node_limit, gml_budget *budget, gml_exact_outcome *out)
{
    search_state search = {
        .space = space,
        .choice = strategy->choice,
        .budget = budget,
        .nodes_left = node_limit,
        /* each step but the first has placed an item or follows one that splits */
        .frames = calloc(2 * (size_t)count + 2, sizeof *search.frames),
        .members = calloc(count + 1, sizeof *search.members),
    };
    memcpy(space->ranking, strategy->ranking, sizeof space->ranking);
    memset(space->low, 0, space->items.count * sizeof *space->low);
    gml_arena_mark mark = gml_arena_here(&space->arena);
    answer given = NO_MEMORY;
    if (search.frames && search.members) {
        given = search_all(&search, items, count);
    }
    gml_arena_release(&space->arena, mark);
    free(search.frames);
    free(search.members);
    *out = given == PLACED   ? GML_EXACT_FOUND
           : given == FAILED ? GML_EXACT_IMPOSSIBLE
                             : GML_EXACT_UNDECIDED;
    return given == NO_MEMORY ? GML_NO_HOST_MEMORY : GML_OK;
}
