/* The live blocks at one moment, and going back to them.
 *
 * Bytes of a kept policy stay mapped, views too, and free memory stays with its stream cache. So a
 * saved placement is known by where it begins and, if it is a view, by its struct. To go back, what
 * lives now and was not saved is ended, and what does not live is claimed out of free memory.
 * Cached views are retired at both ends: what serves the next request depends on live bytes alone.
 */
#include "policy/stitch/stitch.h"

#include <stdlib.h>

typedef struct saved_piece {
    gml_address address;
    uint64_t size_bytes, requested_bytes;
} saved_piece;

typedef struct saved_place {
    uint64_t offset; /* of its first run */
    uint64_t size_bytes, requested_bytes;
    gml_placement *view; /* NULL: it lies in the base range */
    gml_stream_cache *cache;
    bool is_slab;
    size_t first_piece, piece_count; /* in saved_blocks.pieces: what begins in it */
} saved_place;

typedef struct saved_blocks {
    gml_checkpoint saved; /* must be first */
    size_t place_count, piece_count;
    saved_piece *pieces;  /* behind the places; of each slab, by address */
    saved_place places[]; /* by offset */
} saved_blocks;

static const saved_blocks *of_saved(const gml_checkpoint *saved) {
    return (const saved_blocks *)(const void *)saved;
}

/* The next live placement whose first run is *at or behind it, which moves on; NULL: none. */
static gml_placement *next_live(const gml_extent **at) {
    while (*at) {
        const gml_extent *extent = *at;
        gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
        *at = extent->next;
        if (holder && holder->state == GML_PLACEMENT_LIVE && holder->runs[0].extent == extent) {
            return holder;
        }
    }
    return NULL;
}

static size_t count_pieces(const gml_placement *placement) {
    size_t count = 0;
    gml_block *piece = placement->slab ? gml_slab_next(placement->slab, NULL) : NULL;
    for (; piece; piece = gml_slab_next(placement->slab, piece)) {
        count++;
    }
    return count;
}

typedef struct live_count {
    size_t places, slabs, pieces;
} live_count;

static live_count count_live(const gml_stitch *stitch) {
    live_count count = {0};
    const gml_extent *at = gml_base_range_find(&stitch->range, 0);
    const gml_placement *placement;
    while ((placement = next_live(&at))) {
        count.places++;
        count.slabs += placement->slab != NULL;
        count.pieces += count_pieces(placement);
    }
    return count;
}

static size_t blocks_of(const live_count *count) {
    return count->places - count->slabs + count->pieces;
}

/* ---- saving ---------------------------------------------------------------------------------- */

static void save_pieces(saved_blocks *to, saved_place *place, const gml_slab *slab) {
    for (gml_block *piece = gml_slab_next(slab, NULL); piece; piece = gml_slab_next(slab, piece)) {
        to->pieces[to->piece_count++] =
            (saved_piece){piece->address, piece->block_bytes, piece->requested_bytes};
        place->piece_count++;
    }
}

static void save_place(saved_blocks *to, gml_placement *placement) {
    saved_place *place = &to->places[to->place_count++];
    *place = (saved_place){
        .offset = placement->runs[0].offset,
        .size_bytes = placement->block.block_bytes,
        .requested_bytes = placement->block.requested_bytes,
        .view = placement->view ? placement : NULL,
        .cache = placement->cache,
        .is_slab = placement->slab != NULL,
        .first_piece = to->piece_count,
    };
    if (placement->slab) {
        save_pieces(to, place, placement->slab);
    }
}

gml_status gml_stitch_save(gml_policy *self, gml_checkpoint **out) {
    gml_stitch *stitch = gml_stitch_of(self);
    live_count count = count_live(stitch);
    size_t places_bytes = count.places * sizeof(saved_place);
    saved_blocks *made = malloc(sizeof *made + places_bytes + count.pieces * sizeof(saved_piece));
    if (!made) {
        return gml_driver_fail(self->driver, GML_NO_HOST_MEMORY,
                               "no host memory to note %zu live blocks", blocks_of(&count));
    }
    *made = (saved_blocks){.saved = {blocks_of(&count)}};
    made->pieces = (saved_piece *)(void *)&made->places[count.places];
    const gml_extent *at = gml_base_range_find(&stitch->range, 0);
    gml_placement *placement;
    while ((placement = next_live(&at))) {
        save_place(made, placement);
    }
    gml_stream_caches_flush(stitch);
    *out = &made->saved;
    return GML_OK;
}

/* ---- what going back changes ----------------------------------------------------------------- */

/* Whether the live placement is the saved one. */
static bool is_saved(const gml_placement *placement, const saved_place *place) {
    bool is_at_place = place->view ? placement == place->view : !placement->view;
    return is_at_place && placement->runs[0].offset == place->offset &&
           placement->block.block_bytes == place->size_bytes &&
           (placement->slab != NULL) == place->is_slab;
}

/* Sorts live blocks into those that end, from the front, and those that are kept, from the back of
 * one array. pre: there is room between them. */
static void sort_in(gml_restoration *out, gml_block *block, bool is_kept) {
    if (is_kept) {
        *--out->kept = block;
        out->kept_count++;
    } else {
        /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound): as many as count_live() counted */
        out->ended[out->ended_count++] = block;
    }
}

/* `place`: the same slab as saved, or NULL. */
static void sort_pieces(const saved_blocks *saved, const saved_place *place, const gml_slab *slab,
                        gml_restoration *out) {
    const saved_piece *next = place ? &saved->pieces[place->first_piece] : NULL;
    const saved_piece *end = place ? next + place->piece_count : NULL;
    for (gml_block *piece = gml_slab_next(slab, NULL); piece; piece = gml_slab_next(slab, piece)) {
        while (next != end && next->address < piece->address) {
            next++;
        }
        sort_in(out, piece,
                next != end && next->address == piece->address &&
                    next->size_bytes == piece->block_bytes);
    }
}

/* Both the placements and the saved places come in the order of their first runs. */
static void sort_live(const gml_stitch *stitch, const saved_blocks *saved, gml_restoration *out) {
    const saved_place *next = saved->places, *end = next + saved->place_count;
    const gml_extent *at = gml_base_range_find(&stitch->range, 0);
    gml_placement *placement;
    while ((placement = next_live(&at))) {
        while (next != end && next->offset < placement->runs[0].offset) {
            next++;
        }
        bool is_same = next != end && is_saved(placement, next);
        if (placement->slab) {
            sort_pieces(saved, is_same ? next : NULL, placement->slab, out);
        } else {
            sort_in(out, &placement->block, is_same);
        }
    }
}

static gml_status reserve(gml_stitch *stitch, const saved_blocks *saved) {
    size_t run_count = 0, slab_count = 0;
    for (size_t i = 0; i < saved->place_count; i++) {
        const saved_place *place = &saved->places[i];
        run_count += place->view ? place->view->run_count : 1;
        slab_count += place->is_slab;
    }
    gml_status status = gml_base_range_prepare(&stitch->range, 2 * run_count);
    if (status == GML_OK) {
        status = gml_slab_reserve(stitch, slab_count, saved->piece_count);
    }
    if (status == GML_OK && !gml_pool_reserve(&stitch->placements, saved->place_count)) {
        status = gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                                 "no host memory for %zu placements", saved->place_count);
    }
    return status;
}

gml_status gml_stitch_prepare_restore(gml_policy *self, const gml_checkpoint *saved,
                                      gml_restoration *out) {
    gml_stitch *stitch = gml_stitch_of(self);
    gml_status status = reserve(stitch, of_saved(saved));
    if (status != GML_OK) {
        return status;
    }
    live_count count = count_live(stitch);
    size_t block_count = blocks_of(&count);
    gml_block **blocks = malloc((block_count + 1) * sizeof(gml_block *));
    if (!blocks) {
        return gml_driver_fail(self->driver, GML_NO_HOST_MEMORY,
                               "no host memory to list %zu live blocks", block_count);
    }
    *out = (gml_restoration){.ended = blocks, .kept = blocks + block_count};
    sort_live(stitch, of_saved(saved), out);
    return GML_OK;
}

/* ---- going back ------------------------------------------------------------------------------ */

/* The placement if it lives. */
static gml_placement *find_live(const gml_stitch *stitch, const saved_place *place) {
    const gml_extent *extent = gml_base_range_find(&stitch->range, place->offset);
    gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
    return holder && is_saved(holder, place) ? holder : NULL;
}

/* Cannot fail: there is room for all that it takes. */
static void claim(gml_stitch *stitch, const saved_place *place) {
    gml_placement *placement = place->view;
    if (placement) {
        gml_view_revive(stitch, place->cache, placement);
    } else {
        (void)gml_placement_fit(stitch, place->cache, place->offset, place->size_bytes, &placement);
        placement->block.state = GML_STATE_EXACT;
    }
    gml_placement_serve(stitch, placement);
    if (place->is_slab) {
        (void)gml_slab_open(stitch, placement);
    }
}

static void describe(gml_block *block, const saved_place *place, uint64_t requested_bytes) {
    block->requested_bytes = requested_bytes;
    block->stream = place->cache->stream;
}

void gml_stitch_restore_to(gml_policy *self, const gml_checkpoint *saved, gml_block **blocks_out) {
    gml_stitch *stitch = gml_stitch_of(self);
    const saved_blocks *from = of_saved(saved);
    gml_stream_caches_flush(stitch);
    for (size_t i = 0; i < from->place_count; i++) {
        if (!find_live(stitch, &from->places[i])) {
            claim(stitch, &from->places[i]);
        }
    }
    /* Once all slabs are open: a piece may reach into the next one. */
    for (size_t i = 0; i < from->place_count; i++) {
        const saved_place *place = &from->places[i];
        gml_placement *placement = find_live(stitch, place);
        for (size_t j = 0; j < place->piece_count; j++) {
            const saved_piece *piece = &from->pieces[place->first_piece + j];
            gml_block *block =
                gml_slab_claim(stitch, placement->slab, piece->address, piece->size_bytes);
            describe(block, place, piece->requested_bytes);
            *blocks_out++ = block;
        }
        if (!place->is_slab) {
            describe(&placement->block, place, place->requested_bytes);
            *blocks_out++ = &placement->block;
        }
    }
}
