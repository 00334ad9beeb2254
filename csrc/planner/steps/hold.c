/* Atoms; keeping, taking, giving, yielding. */
#include "planner/steps/hold.h"

#include "base/sort.h"

#include <stdlib.h>
#include <string.h>

#define WORD_BITS 64U
#define ALL_BITS UINT64_MAX

/* ---- bits ------------------------------------------------------------------------------------ */

/* A range of bits as a part of a first word, whole words, and a part of a last one. */
typedef struct bit_range {
    size_t word;         /* the first */
    uint64_t head, tail; /* masks; tail 0: none */
    size_t middle;       /* whole words between */
} bit_range;

/* pre: there are atoms */
static bit_range
range_of(gml_atoms atoms)
{
    unsigned first = atoms.first % WORD_BITS;
    uint64_t end = (uint64_t)first + atoms.count;
    bit_range range = {.word = atoms.first / WORD_BITS, .head = ALL_BITS << first};
    if (end <= WORD_BITS) {
        range.head &= ALL_BITS >> (WORD_BITS - end);
        return range;
    }
    range.middle = end / WORD_BITS - 1;
    range.tail = (UINT64_C(1) << (end % WORD_BITS)) - 1;
    return range;
}

static void
set_bits(uint64_t *words, gml_atoms atoms)
{
    bit_range range = range_of(atoms);
    uint64_t *word = words + range.word;
    *word++ |= range.head;
    memset(word, 0xff, range.middle * sizeof *word);
    if (range.tail) {
        word[range.middle] |= range.tail;
    }
}

static void
clear_bits(uint64_t *words, gml_atoms atoms)
{
    bit_range range = range_of(atoms);
    uint64_t *word = words + range.word;
    *word++ &= ~range.head;
    memset(word, 0, range.middle * sizeof *word);
    if (range.tail) {
        word[range.middle] &= ~range.tail;
    }
}

static bool
are_bits_clear(const uint64_t *words, gml_atoms atoms)
{
    bit_range range = range_of(atoms);
    const uint64_t *word = words + range.word;
    uint64_t set = *word++ & range.head;
    if (range.tail) {
        set |= word[range.middle] & range.tail;
    }
    for (size_t i = 0; i < range.middle && !set; i++) {
        set |= word[i];
    }
    return !set;
}

/* ---- atoms ----------------------------------------------------------------------------------- */

gml_hold *
gml_hold_open(gml_stitch *stitch, gml_stream_cache *cache)
{
    gml_hold *hold = calloc(1, sizeof *hold);
    if (hold) {
        hold->stitch = stitch;
        hold->cache = cache;
        hold->holder.state = GML_PLACEMENT_HELD;
        hold->holder.runs = &hold->holder.only_run;
        gml_list_init(&hold->live);
        cache->user_count++;
    }
    return hold;
}

void
gml_hold_close(gml_hold *hold)
{
    hold->cache->user_count--;
    free(hold->ends);
    free(hold->taken);
    free(hold);
}

static int
compare(const void *one, const void *other)
{
    return gml_compare(*(const uint64_t *)one, *(const uint64_t *)other);
}

gml_status
gml_hold_cut(gml_hold *hold, uint64_t *ends, size_t end_count)
{
    size_t count = 0, words = end_count / WORD_BITS + 1;
    qsort(ends, end_count, sizeof *ends, compare);
    for (size_t i = 0; i < end_count; i++) {
        if (!count || ends[i] != ends[count - 1]) {
            ends[count++] = ends[i];
        }
    }
    free(hold->ends);
    free(hold->taken);
    hold->ends = ends;
    hold->end_count = count;
    hold->taken = malloc(words * sizeof *hold->taken);
    if (!hold->taken) {
        hold->end_count = 0;
        return GML_NO_HOST_MEMORY;
    }
    memset(hold->taken, 0xff, words * sizeof *hold->taken);
    return GML_OK;
}

/* The first atom that does not begin before `offset`. */
static uint32_t
atom_from(const gml_hold *hold, uint64_t offset)
{
    size_t first = 0, count = hold->end_count;
    while (count) {
        size_t half = count / 2;
        if (hold->ends[first + half] < offset) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return (uint32_t)first;
}

gml_atoms
gml_hold_atoms(const gml_hold *hold, uint64_t offset, uint64_t size_bytes)
{
    uint32_t first = atom_from(hold, offset);
    return (gml_atoms){first, atom_from(hold, offset + size_bytes) - first};
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* The end of what of [offset, end) is all free in the stream cache, or all held; 0: it is neither.
 */
static uint64_t
end_of_part(const gml_hold *hold, uint64_t offset, uint64_t end, bool *is_held)
{
    const gml_extent *extent = gml_base_range_find(&hold->stitch->range, offset);
    uint64_t behind = extent->offset + extent->size_bytes;
    bool is_free = extent->kind == GML_EXTENT_FREE && extent->set == &hold->cache->set;
    *is_held = extent->kind == GML_EXTENT_USED && extent->owner == &hold->holder;
    return !is_free && !*is_held ? 0 : behind < end ? behind : end;
}

/* A part of one free extent of the stream cache. */
static bool
keep_part(gml_hold *hold, uint64_t offset, uint64_t size_bytes)
{
    gml_base_range *range = &hold->stitch->range;
    if (gml_base_range_prepare(range, 2) != GML_OK) {
        return false;
    }
    uint64_t instant = gml_base_range_find(range, offset)->instant;
    hold->instant = instant > hold->instant ? instant : hold->instant;
    hold->held_bytes += size_bytes;
    (void)gml_base_range_claim(range, offset, size_bytes, &hold->holder);
    gml_atoms atoms = gml_hold_atoms(hold, offset, size_bytes);
    if (atoms.count) {
        clear_bits(hold->taken, atoms);
    }
    return true;
}

/* Whether all of [offset, end) is free in the stream cache or held. */
static bool
can_keep(const gml_hold *hold, uint64_t offset, uint64_t end)
{
    bool is_held;
    do {
        offset = end_of_part(hold, offset, end, &is_held);
    } while (offset && offset < end);
    return offset == end;
}

bool
gml_hold_keep(gml_hold *hold, uint64_t offset, uint64_t size_bytes)
{
    uint64_t end = offset + size_bytes;
    /* All or nothing, so that extents of the hold end where atoms do. */
    bool is_kept = can_keep(hold, offset, end);
    while (is_kept && offset < end) {
        bool is_held;
        uint64_t behind = end_of_part(hold, offset, end, &is_held);
        is_kept = is_held || keep_part(hold, offset, behind - offset);
        offset = behind;
    }
    return is_kept;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool
make_idle(gml_hold *hold, const gml_run *run, gml_atoms atoms)
{
    return are_bits_clear(hold->taken, atoms) ||
           (gml_hold_keep(hold, run->offset, run->size_bytes) &&
            are_bits_clear(hold->taken, atoms));
}

/* The view serves the hold's stream cache now. It can be found as ever, and is not forgotten. */
static gml_placement *
take_view(gml_hold *hold, const gml_place *place)
{
    gml_stitch *stitch = hold->stitch;
    gml_placement *view = place->view;
    uint64_t missing_bytes = place->missing_bytes;
    if (view->state != GML_PLACEMENT_IDLE ||
        (missing_bytes && gml_stitch_may_spend(stitch, view->block.block_bytes, missing_bytes))) {
        return NULL;
    }
    for (size_t i = 0; i < view->run_count; i++) {
        if (!make_idle(hold, &view->runs[i], place->of_view[i])) {
            return NULL;
        }
    }
    for (size_t i = 0; i < view->run_count; i++) {
        set_bits(hold->taken, place->of_view[i]);
    }
    gml_list_remove(&view->idle);
    view->cache->user_count--;
    view->cache = hold->cache;
    view->cache->user_count++;
    return view;
}

static gml_placement *
take_run(gml_hold *hold, const gml_place *place, uint64_t size_bytes)
{
    gml_placement *placement = make_idle(hold, &place->run, place->atoms)
                                   ? gml_placement_new(hold->stitch, hold->cache, size_bytes)
                                   : NULL;
    if (placement) {
        set_bits(hold->taken, place->atoms);
        placement->only_run = place->run;
        placement->block.address = hold->stitch->range.base + place->run.offset;
    }
    return placement;
}

gml_placement *
gml_hold_take(gml_hold *hold, const gml_place *place, uint64_t size_bytes)
{
    gml_stitch *stitch = hold->stitch;
    const gml_placement *cached = hold->cache->cached ? hold->cache->cached : hold->cached;
    cached = cached && cached->block.block_bytes == size_bytes ? cached : NULL;
    if (cached != (place->missing_bytes ? NULL : place->view)) {
        return NULL; /* the stream cache would serve the one that is cached, or has it not */
    }
    gml_stream_cache_flush(stitch, hold->cache);
    hold->cached = NULL;
    gml_placement *placement =
        place->view ? take_view(hold, place) : take_run(hold, place, size_bytes);
    if (!placement) {
        return NULL;
    }
    placement->state = GML_PLACEMENT_HELD;
    placement->place = place;
    placement->block = (gml_block){
        .address = placement->block.address,
        .block_bytes = size_bytes,
        .stream = hold->cache->stream,
        .state = GML_STATE_PLAN,
    };
    gml_list_append(&hold->live, &placement->live);
    hold->live_bytes += size_bytes;
    stitch->held_bytes += size_bytes;
    if (stitch->peak_held_bytes < stitch->held_bytes) {
        stitch->peak_held_bytes = stitch->held_bytes;
    }
    return placement;
}

void
gml_hold_give(gml_hold *hold, gml_placement *placement)
{
    gml_stitch *stitch = hold->stitch;
    const gml_place *place = placement->place;
    hold->instant = gml_fence_now(&stitch->fences, &hold->cache->timeline);
    hold->live_bytes -= placement->block.block_bytes;
    stitch->held_bytes -= placement->block.block_bytes;
    gml_list_remove(&placement->live);
    if (!place->view) {
        clear_bits(hold->taken, place->atoms);
        gml_placement_release(stitch, placement);
        return;
    }
    for (size_t i = 0; i < placement->run_count; i++) {
        clear_bits(hold->taken, place->of_view[i]);
    }
    gml_stream_cache_flush(stitch, hold->cache);
    hold->cached = placement;
    placement->freed = hold->instant;
    placement->state = GML_PLACEMENT_IDLE;
    gml_list_append(&stitch->idle_views, &placement->idle);
}

/* ---- yielding -------------------------------------------------------------------------------- */

/* Makes all that is held free in the stream cache, also where blocks live. */
static void
free_extents(gml_hold *hold)
{
    gml_base_range *range = &hold->stitch->range;
    gml_extent *extent = gml_base_range_find(range, 0);
    while (extent) {
        if (extent->kind == GML_EXTENT_USED && extent->owner == &hold->holder) {
            uint64_t offset = extent->offset;
            gml_base_range_unclaim(range, extent, &hold->cache->set, hold->instant);
            extent = gml_base_range_find(range, offset);
        }
        extent = extent->next;
    }
}

/* The blocks that live in the hold claim their bytes themselves. */
static void
let_blocks_claim(gml_hold *hold)
{
    for (gml_link *link = hold->live.next; link != &hold->live; link = link->next) {
        gml_placement *placement = gml_placement_of_live(link);
        if (placement->view) {
            gml_tree_remove(&hold->stitch->idle, &placement->by_runs);
        }
        gml_placement_claim(hold->stitch, placement);
    }
    gml_list_init(&hold->live);
}

/* So does the view that was given last, unless the stream cache has cached another one since then.
 */
static void
park(gml_hold *hold)
{
    gml_placement *cached = hold->cached;
    hold->cached = NULL;
    if (cached && !hold->cache->cached) {
        gml_idle_view_remove(hold->stitch, cached);
        gml_placement_claim(hold->stitch, cached);
        cached->state = GML_PLACEMENT_CACHED;
        hold->cache->cached = cached;
    }
}

gml_status
gml_hold_yield(gml_hold *hold)
{
    if (!hold->held_bytes) {
        return GML_OK;
    }
    size_t run_count = hold->cached ? hold->cached->run_count : 0;
    for (gml_link *link = hold->live.next; link != &hold->live; link = link->next) {
        run_count += gml_placement_of_live(link)->run_count;
    }
    gml_status status = gml_base_range_prepare(&hold->stitch->range, 2 * run_count);
    if (status != GML_OK) {
        return status;
    }
    free_extents(hold);
    let_blocks_claim(hold);
    park(hold);
    if (hold->taken) { /* else the host had no memory for atoms, and no place is known */
        memset(hold->taken, 0xff, (hold->end_count / WORD_BITS + 1) * sizeof *hold->taken);
    }
    hold->held_bytes = hold->live_bytes = 0;
    return GML_OK;
}
