/* Atoms; keeping, taking, giving, yielding. */
#include "policy/steps/reservation.h"

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

/* pre: there are slots */
static bit_range range_of(gml_slots slots) {
    unsigned first = slots.first % WORD_BITS;
    uint64_t end = (uint64_t)first + slots.count;
    bit_range range = {.word = slots.first / WORD_BITS, .head = ALL_BITS << first};
    if (end <= WORD_BITS) {
        range.head &= ALL_BITS >> (WORD_BITS - end);
        return range;
    }
    range.middle = end / WORD_BITS - 1;
    range.tail = (UINT64_C(1) << (end % WORD_BITS)) - 1;
    return range;
}

static void set_bits(uint64_t *words, gml_slots slots) {
    bit_range range = range_of(slots);
    uint64_t *word = words + range.word;
    *word++ |= range.head;
    memset(word, 0xff, range.middle * sizeof *word);
    if (range.tail) {
        word[range.middle] |= range.tail;
    }
}

static void clear_bits(uint64_t *words, gml_slots slots) {
    bit_range range = range_of(slots);
    uint64_t *word = words + range.word;
    *word++ &= ~range.head;
    memset(word, 0, range.middle * sizeof *word);
    if (range.tail) {
        word[range.middle] &= ~range.tail;
    }
}

static bool are_bits_clear(const uint64_t *words, gml_slots slots) {
    bit_range range = range_of(slots);
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

/* ---- slots ----------------------------------------------------------------------------------- */

gml_reservation *gml_reservation_open(gml_stitch *stitch, gml_stream_cache *cache) {
    gml_reservation *reservation = calloc(1, sizeof *reservation);
    if (reservation) {
        reservation->stitch = stitch;
        reservation->cache = cache;
        reservation->holder.state = GML_PLACEMENT_HELD;
        reservation->holder.runs = &reservation->holder.only_run;
        gml_list_init(&reservation->live);
        cache->user_count++;
    }
    return reservation;
}

void gml_reservation_close(gml_reservation *reservation) {
    reservation->cache->user_count--;
    free(reservation->ends);
    free(reservation->taken);
    free(reservation);
}

static int compare(const void *one, const void *other) {
    return gml_compare(*(const uint64_t *)one, *(const uint64_t *)other);
}

gml_status gml_reservation_cut(gml_reservation *reservation, uint64_t *ends, size_t end_count) {
    size_t count = 0, words = end_count / WORD_BITS + 1;
    qsort(ends, end_count, sizeof *ends, compare);
    for (size_t i = 0; i < end_count; i++) {
        if (!count || ends[i] != ends[count - 1]) {
            ends[count++] = ends[i];
        }
    }
    free(reservation->ends);
    free(reservation->taken);
    reservation->ends = ends;
    reservation->end_count = count;
    reservation->taken = malloc(words * sizeof *reservation->taken);
    if (!reservation->taken) {
        reservation->end_count = 0;
        return GML_NO_HOST_MEMORY;
    }
    memset(reservation->taken, 0xff, words * sizeof *reservation->taken);
    return GML_OK;
}

/* The first slot that does not begin before `offset`. */
static uint32_t slot_from(const gml_reservation *reservation, uint64_t offset) {
    size_t first = 0, count = reservation->end_count;
    while (count) {
        size_t half = count / 2;
        if (reservation->ends[first + half] < offset) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return (uint32_t)first;
}

gml_slots gml_reservation_slots(const gml_reservation *reservation, uint64_t offset,
                                uint64_t size_bytes) {
    uint32_t first = slot_from(reservation, offset);
    return (gml_slots){first, slot_from(reservation, offset + size_bytes) - first};
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* The end of what of [offset, end) is all free in the stream cache, or all held; 0: it is neither.
 */
static uint64_t end_of_part(const gml_reservation *reservation, uint64_t offset, uint64_t end,
                            bool *is_held) {
    const gml_extent *extent = gml_base_range_find(&reservation->stitch->range, offset);
    uint64_t behind = extent->offset + extent->size_bytes;
    bool is_free = extent->kind == GML_EXTENT_FREE && extent->set == &reservation->cache->set;
    *is_held = extent->kind == GML_EXTENT_USED && extent->owner == &reservation->holder;
    return !is_free && !*is_held ? 0 : behind < end ? behind : end;
}

/* A part of one free extent of the stream cache. */
static bool keep_part(gml_reservation *reservation, uint64_t offset, uint64_t size_bytes) {
    gml_base_range *range = &reservation->stitch->range;
    if (gml_base_range_prepare(range, 2) != GML_OK) {
        return false;
    }
    uint64_t instant = gml_base_range_find(range, offset)->instant;
    reservation->instant = instant > reservation->instant ? instant : reservation->instant;
    reservation->held_bytes += size_bytes;
    (void)gml_base_range_claim(range, offset, size_bytes, &reservation->holder);
    gml_slots slots = gml_reservation_slots(reservation, offset, size_bytes);
    if (slots.count) {
        clear_bits(reservation->taken, slots);
    }
    return true;
}

/* Whether all of [offset, end) is free in the stream cache or held. */
static bool can_keep(const gml_reservation *reservation, uint64_t offset, uint64_t end) {
    bool is_held;
    do {
        offset = end_of_part(reservation, offset, end, &is_held);
    } while (offset && offset < end);
    return offset == end;
}

bool gml_reservation_keep(gml_reservation *reservation, uint64_t offset, uint64_t size_bytes) {
    uint64_t end = offset + size_bytes;
    /* All or nothing, so that extents of the reservation end where slots do. */
    bool is_kept = can_keep(reservation, offset, end);
    while (is_kept && offset < end) {
        bool is_held;
        uint64_t behind = end_of_part(reservation, offset, end, &is_held);
        is_kept = is_held || keep_part(reservation, offset, behind - offset);
        offset = behind;
    }
    return is_kept;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool make_idle(gml_reservation *reservation, const gml_run *run, gml_slots slots) {
    return are_bits_clear(reservation->taken, slots) ||
           (gml_reservation_keep(reservation, run->offset, run->size_bytes) &&
            are_bits_clear(reservation->taken, slots));
}

/* The view serves the reservation's stream cache now. It remains indexed and pinned. */
static gml_placement *take_view(gml_reservation *reservation, const gml_place *place) {
    gml_stitch *stitch = reservation->stitch;
    gml_placement *view = place->view;
    uint64_t missing_bytes = place->missing_bytes;
    if (view->state != GML_PLACEMENT_IDLE ||
        (missing_bytes && gml_stitch_may_spend(stitch, view->block.block_bytes, missing_bytes))) {
        return NULL;
    }
    for (size_t i = 0; i < view->run_count; i++) {
        if (!make_idle(reservation, &view->runs[i], place->of_view[i])) {
            return NULL;
        }
    }
    for (size_t i = 0; i < view->run_count; i++) {
        set_bits(reservation->taken, place->of_view[i]);
    }
    gml_list_remove(&view->idle);
    view->cache->user_count--;
    view->cache = reservation->cache;
    view->cache->user_count++;
    return view;
}

static gml_placement *take_run(gml_reservation *reservation, const gml_place *place,
                               uint64_t size_bytes) {
    gml_placement *placement =
        make_idle(reservation, &place->run, place->slots)
            ? gml_placement_new(reservation->stitch, reservation->cache, size_bytes)
            : NULL;
    if (placement) {
        set_bits(reservation->taken, place->slots);
        placement->only_run = place->run;
        placement->block.address = reservation->stitch->range.base + place->run.offset;
    }
    return placement;
}

gml_placement *gml_reservation_take(gml_reservation *reservation, const gml_place *place,
                                    uint64_t size_bytes) {
    gml_stitch *stitch = reservation->stitch;
    const gml_placement *cached =
        reservation->cache->cached ? reservation->cache->cached : reservation->cached;
    cached = cached && cached->block.block_bytes == size_bytes ? cached : NULL;
    if (cached != (place->missing_bytes ? NULL : place->view)) {
        return NULL; /* the stream cache would serve its cached view, or lacks it */
    }
    gml_stream_cache_flush(stitch, reservation->cache);
    reservation->cached = NULL;
    gml_placement *placement =
        place->view ? take_view(reservation, place) : take_run(reservation, place, size_bytes);
    if (!placement) {
        return NULL;
    }
    placement->state = GML_PLACEMENT_HELD;
    placement->place = place;
    placement->block = (gml_block){
        .address = placement->block.address,
        .block_bytes = size_bytes,
        .stream = reservation->cache->stream,
        .state = GML_STATE_PLAN,
    };
    gml_list_append(&reservation->live, &placement->live);
    reservation->live_bytes += size_bytes;
    stitch->live_bytes += size_bytes;
    if (stitch->peak_live_bytes < stitch->live_bytes) {
        stitch->peak_live_bytes = stitch->live_bytes;
    }
    return placement;
}

void gml_reservation_give(gml_reservation *reservation, gml_placement *placement) {
    gml_stitch *stitch = reservation->stitch;
    const gml_place *place = placement->place;
    reservation->instant = gml_fence_now(&stitch->fences);
    reservation->live_bytes -= placement->block.block_bytes;
    stitch->live_bytes -= placement->block.block_bytes;
    gml_list_remove(&placement->live);
    if (!place->view) {
        clear_bits(reservation->taken, place->slots);
        gml_placement_release(stitch, placement);
        return;
    }
    for (size_t i = 0; i < placement->run_count; i++) {
        clear_bits(reservation->taken, place->of_view[i]);
    }
    gml_stream_cache_flush(stitch, reservation->cache);
    reservation->cached = placement;
    placement->freed = reservation->instant;
    placement->state = GML_PLACEMENT_IDLE;
    gml_list_append(&stitch->idle_views, &placement->idle);
}

/* ---- yielding -------------------------------------------------------------------------------- */

/* Makes all that is held free in the stream cache, also where blocks live. */
static void free_extents(gml_reservation *reservation) {
    gml_base_range *range = &reservation->stitch->range;
    gml_extent *extent = gml_base_range_find(range, 0);
    while (extent) {
        if (extent->kind == GML_EXTENT_USED && extent->owner == &reservation->holder) {
            uint64_t offset = extent->offset;
            gml_base_range_unclaim(range, extent, &reservation->cache->set, reservation->instant);
            extent = gml_base_range_find(range, offset);
        }
        extent = extent->next;
    }
}

/* The blocks that live in the reservation claim their bytes themselves. */
static void let_blocks_claim(gml_reservation *reservation) {
    for (gml_link *link = reservation->live.next; link != &reservation->live; link = link->next) {
        gml_placement *placement = gml_placement_of_live(link);
        if (placement->view) {
            gml_idle_view_unindex(reservation->stitch, placement);
        }
        gml_placement_claim(reservation->stitch, placement);
    }
    gml_list_init(&reservation->live);
}

/* So does the view that was given last, unless the stream cache has cached another one since then.
 */
static void keep_cached(gml_reservation *reservation) {
    gml_placement *cached = reservation->cached;
    reservation->cached = NULL;
    if (cached && !reservation->cache->cached) {
        gml_idle_view_remove(reservation->stitch, cached);
        gml_placement_claim(reservation->stitch, cached);
        cached->state = GML_PLACEMENT_CACHED;
        reservation->cache->cached = cached;
    }
}

gml_status gml_reservation_yield(gml_reservation *reservation) {
    if (!reservation->held_bytes) {
        return GML_OK;
    }
    size_t run_count = reservation->cached ? reservation->cached->run_count : 0;
    for (gml_link *link = reservation->live.next; link != &reservation->live; link = link->next) {
        run_count += gml_placement_of_live(link)->run_count;
    }
    gml_status status = gml_base_range_prepare(&reservation->stitch->range, 2 * run_count);
    if (status != GML_OK) {
        return status;
    }
    free_extents(reservation);
    let_blocks_claim(reservation);
    keep_cached(reservation);
    if (reservation->taken) { /* else the host had no memory for slots, and no place is known */
        memset(reservation->taken, 0xff,
               (reservation->end_count / WORD_BITS + 1) * sizeof *reservation->taken);
    }
    reservation->held_bytes = reservation->live_bytes = 0;
    return GML_OK;
}
