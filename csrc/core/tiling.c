/* Splitting, merging and finding extents. */
#include "core/tiling.h"

#include <stdlib.h>

enum { WORD_BITS = 64 };

static void
set_start(gml_home *home, uint64_t slot, gml_extent *extent)
{
    uint64_t word = slot / WORD_BITS;
    home->starts[slot] = extent;
    if (extent) {
        home->start_bits[word] |= UINT64_C(1) << (slot % WORD_BITS);
        home->start_words[word / WORD_BITS] |= UINT64_C(1) << (word % WORD_BITS);
        return;
    }
    home->start_bits[word] &= ~(UINT64_C(1) << (slot % WORD_BITS));
    if (!home->start_bits[word]) {
        home->start_words[word / WORD_BITS] &= ~(UINT64_C(1) << (word % WORD_BITS));
    }
}

/* The highest set bit of `word` at or below `bit`, or -1. */
static int
highest_up_to(uint64_t word, uint64_t bit)
{
    uint64_t below = word & (UINT64_MAX >> (WORD_BITS - 1 - bit));
    return below ? WORD_BITS - 1 - __builtin_clzll(below) : -1;
}

/* The last slot at or before `slot` in which an extent begins. One does in slot 0. */
static uint64_t
last_start(const gml_home *home, uint64_t slot)
{
    uint64_t word = slot / WORD_BITS;
    int bit = highest_up_to(home->start_bits[word], slot % WORD_BITS);
    if (bit >= 0) {
        return word * WORD_BITS + (uint64_t)bit;
    }
    uint64_t group = (word - 1) / WORD_BITS;
    int in_group = highest_up_to(home->start_words[group], (word - 1) % WORD_BITS);
    while (in_group < 0) {
        group--;
        in_group = highest_up_to(home->start_words[group], WORD_BITS - 1);
    }
    word = group * WORD_BITS + (uint64_t)in_group;
    return word * WORD_BITS + (uint64_t)highest_up_to(home->start_bits[word], WORD_BITS - 1);
}

gml_extent *
gml_home_find(const gml_home *home, uint64_t offset)
{
    uint64_t slot = offset / home->grain_bytes;
    gml_extent *extent = home->starts[slot];
    if (!extent || extent->offset > offset) {
        extent = slot ? home->starts[last_start(home, slot - 1)] : home->starts[0];
    }
    while (extent->offset + extent->size_bytes <= offset) {
        extent = extent->next;
    }
    return extent;
}

gml_status
gml_tiling_open(gml_home *home)
{
    uint64_t words = home->slots / WORD_BITS + 1;
    home->extents.object_bytes = sizeof(gml_extent);
    home->starts = calloc(home->slots, sizeof *home->starts);
    home->start_bits = calloc(words, sizeof *home->start_bits);
    home->start_words = calloc(words / WORD_BITS + 1, sizeof *home->start_words);
    gml_extent *all = gml_pool_take(&home->extents);
    if (!home->starts || !home->start_bits || !home->start_words || !all) {
        gml_tiling_close(home);
        return gml_driver_fail(home->driver, GML_NO_HOST_MEMORY,
                               "no host memory for the index of %zu grains", (size_t)home->slots);
    }
    all->size_bytes = home->slots * home->grain_bytes;
    all->kind = GML_EXTENT_ABSENT;
    all->fit.size_bytes = all->offset;
    gml_tree_insert(&home->absent, &all->fit);
    set_start(home, 0, all);
    return GML_OK;
}

void
gml_tiling_close(gml_home *home)
{
    free(home->starts);
    free(home->start_bits);
    free(home->start_words);
    gml_pool_clear(&home->extents);
}

gml_extent *
gml_tiling_split(gml_home *home, gml_extent *extent, uint64_t offset)
{
    gml_extent *right = gml_pool_take(&home->extents);
    right->kind = extent->kind;
    right->set = extent->set;
    right->owner = extent->owner;
    right->instant = extent->instant;
    right->offset = offset;
    right->size_bytes = extent->offset + extent->size_bytes - offset;
    right->previous = extent;
    right->next = extent->next;
    if (right->next) {
        right->next->previous = right;
    }
    extent->next = right;
    extent->size_bytes = offset - extent->offset;

    uint64_t slot = offset / home->grain_bytes;
    const gml_extent *first = home->starts[slot];
    if (!first || first->offset > offset) {
        set_start(home, slot, right);
    }
    return right;
}

void
gml_tiling_absorb(gml_home *home, gml_extent *left)
{
    gml_extent *gone = left->next;
    uint64_t slot = gone->offset / home->grain_bytes;
    left->size_bytes += gone->size_bytes;
    left->next = gone->next;
    if (left->next) {
        left->next->previous = left;
    }
    if (home->starts[slot] == gone) {
        bool begins_here = left->next && left->next->offset / home->grain_bytes == slot;
        set_start(home, slot, begins_here ? left->next : NULL);
    }
    gml_pool_give(&home->extents, gone);
}
