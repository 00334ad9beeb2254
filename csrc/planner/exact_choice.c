/* Where an exact search branches. */
#include "planner/exact.h"

#include <string.h>

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

static uint64_t badness(const gml_exact_space *space, const gml_exact_slot *slot, uint32_t origin,
                        uint32_t least_size) {
    uint64_t failures = space->failures[origin], slack = slack_of(space, slot);
    uint64_t branches = ways(space, slot, least_size);
    switch (space->strategy.choice) {
    case GML_EXACT_BY_LOW_SLACK:
        return pair(slot->low, slack);
    case GML_EXACT_BY_LOW_OPTIONS:
        return pair(slot->low, slot->options);
    case GML_EXACT_BY_OPTIONS:
        return pair(slot->options, slack);
    case GML_EXACT_BY_REMAINING:
        return pair(slot->low + slack, branches);
    case GML_EXACT_BY_FAILURES:
    default:
        return pair(branches, 0) / failures;
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
        uint64_t bad = badness(space, slot, part->origin[i], least_size);
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

uint32_t gml_exact_branches(gml_exact_space *space, const gml_exact_node *node) {
    uint32_t *is_refused = space->slot_count;
    memset(is_refused, 0, node->part->slots * sizeof *is_refused);
    uint32_t least_size = least_size_of(node), count = 0;
    while (!count) { /* ends: all other items are higher */
        count = options_of(node, best_slot(space, node, least_size, is_refused), is_refused);
        space->visits += node->unplaced;
    }
    return count;
}

bool gml_exact_is_repeated(const gml_exact_node *node, uint32_t at) {
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
