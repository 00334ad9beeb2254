/* Requests up to 1 MiB: pieces of slabs.
 *
 * A slab is a placement of 2 MiB, cut into pieces by best fit and returned to the stream cache as
 * soon as nothing is used in it. Slabs of a stream cache that lie side by side in the base range
 * are a row, and have one list of pieces: a piece may begin in one slab and end in the next. So no
 * size leaves a rest in each slab; only where a row ends does it. New memory for slabs is taken
 * from the end of the base range downwards, where no larger block gets in between.
 */
#include "policy/stitch/stitch.h"

#include <stddef.h>

typedef struct gml_slab_piece {
    gml_block block;                        /* what the lake sees while used */
    gml_tree_node fit;                      /* free: in cache->small_free */
    struct gml_slab_piece *previous, *next; /* in the row, in address order */
    gml_slab *slab;                         /* in which it begins */
    gml_address address;
    uint64_t size_bytes;
    bool is_used;
} gml_slab_piece;

struct gml_slab {
    gml_placement *placement;
    gml_slab *previous, *next; /* in the row */
    gml_slab_piece *first;     /* that begins in it; NULL while one piece covers it */
};

void gml_small_init(gml_stitch *stitch) {
    stitch->pieces.object_bytes = sizeof(gml_slab_piece);
    stitch->slabs.object_bytes = sizeof(gml_slab);
}

static gml_address begin_of(const gml_slab *slab) {
    return slab->placement->block.address;
}

static gml_address end_of(const gml_slab *slab) {
    return begin_of(slab) + GML_SLAB_BYTES;
}

static gml_slab_piece *of_fit(gml_tree_node *node) {
    return (gml_slab_piece *)(void *)((char *)node - offsetof(gml_slab_piece, fit));
}

static void add_free(gml_stream_cache *cache, gml_slab_piece *piece) {
    piece->is_used = false;
    piece->fit.size_bytes = piece->size_bytes;
    piece->fit.address = piece->address;
    gml_tree_insert(&cache->small_free, &piece->fit);
}

static gml_status fail_for_host(gml_stitch *stitch) {
    return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                           "no host memory for a small block");
}

/* Takes `piece` out of its slab's sight: the next one that begins there is the first. */
static void unlist(gml_slab_piece *piece) {
    gml_slab *slab = piece->slab;
    if (slab->first == piece) {
        slab->first = piece->next && piece->next->slab == slab ? piece->next : NULL;
    }
}

/* Merges `left` with its next neighbour; neither is in the tree. */
static void absorb(gml_stitch *stitch, gml_slab_piece *left) {
    gml_slab_piece *gone = left->next;
    unlist(gone);
    left->size_bytes += gone->size_bytes;
    left->next = gone->next;
    if (left->next) {
        left->next->previous = left;
    }
    gml_pool_give(&stitch->pieces, gone);
}

/* Merges a piece that is in no tree with its free neighbours, and returns what it is part of. */
static gml_slab_piece *merge(gml_stitch *stitch, gml_slab_piece *piece) {
    gml_stream_cache *cache = piece->slab->placement->cache;
    if (piece->next && !piece->next->is_used) {
        gml_tree_remove(&cache->small_free, &piece->next->fit);
        absorb(stitch, piece);
    }
    if (piece->previous && !piece->previous->is_used) {
        piece = piece->previous;
        gml_tree_remove(&cache->small_free, &piece->fit);
        absorb(stitch, piece);
    }
    return piece;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Whether who looks at one of two slabs side by side may take them for one range. */
static bool may_join(const gml_stitch *stitch, const gml_slab *left, const gml_slab *right) {
    const gml_base_range *range = &stitch->range;
    return left && right && !left->placement->view && !right->placement->view &&
           left->placement->cache == right->placement->cache &&
           gml_base_range_is_told(range, left->placement->runs[0].offset) ==
               gml_base_range_is_told(range, right->placement->runs[0].offset);
}

static gml_slab_piece *last_piece(const gml_slab *slab) {
    while (!slab->first) { /* one that began before covers it */
        slab = slab->previous;
    }
    gml_slab_piece *last = slab->first;
    while (last->next) {
        last = last->next;
    }
    return last;
}

static void join(const gml_stitch *stitch, gml_slab *left, gml_slab *right) {
    if (may_join(stitch, left, right)) {
        gml_slab_piece *last = last_piece(left);
        left->next = right;
        right->previous = left;
        last->next = right->first;
        right->first->previous = last;
    }
}

/* Ends the row between two pieces, of which the second begins a slab. */
static void part(gml_slab_piece *left, gml_slab_piece *right) {
    if (left) {
        left->next = NULL;
    }
    if (right) {
        right->previous = NULL;
    }
}

gml_status gml_slab_open(gml_stitch *stitch, gml_placement *placement) {
    gml_slab *slab = gml_pool_take(&stitch->slabs);
    gml_slab_piece *whole = gml_pool_take(&stitch->pieces);
    gml_address address = placement->block.address;
    if (!slab || !whole || gml_map_insert(&stitch->slab_at, address, slab) != GML_OK) {
        gml_pool_give(&stitch->slabs, slab);
        gml_pool_give(&stitch->pieces, whole);
        return fail_for_host(stitch);
    }
    stitch->policy.small_bytes += GML_SLAB_BYTES;
    stitch->opened = placement;
    placement->slab = slab;
    *slab = (gml_slab){.placement = placement, .first = whole};
    whole->slab = slab;
    whole->address = address;
    whole->size_bytes = GML_SLAB_BYTES;
    join(stitch, gml_map_find(&stitch->slab_at, address - GML_SLAB_BYTES), slab);
    join(stitch, slab, gml_map_find(&stitch->slab_at, address + GML_SLAB_BYTES));
    add_free(placement->cache, merge(stitch, whole));
    return GML_OK;
}

static gml_status add_slab(gml_stitch *stitch, gml_stream_cache *cache) {
    gml_placement *placement;
    gml_status status = gml_stitch_place(stitch, cache, GML_SLAB_BYTES, true, &placement);
    if (status == GML_OK) {
        status = gml_slab_open(stitch, placement);
        if (status != GML_OK) {
            gml_placement_end(stitch, placement);
        }
    }
    return status;
}

/* Cuts a piece that is in no tree down to `size_bytes`, and returns the rest, which is in none. */
static gml_slab_piece *split(gml_stitch *stitch, gml_slab_piece *cut, uint64_t size_bytes) {
    gml_slab_piece *rest = gml_pool_take(&stitch->pieces);
    rest->address = cut->address + size_bytes;
    rest->slab = cut->slab;
    while (end_of(rest->slab) <= rest->address) {
        rest->slab = rest->slab->next;
    }
    if (rest->slab != cut->slab) { /* which covered the beginning of that one */
        rest->slab->first = rest;
    }
    rest->size_bytes = cut->size_bytes - size_bytes;
    rest->previous = cut;
    rest->next = cut->next;
    if (rest->next) {
        rest->next->previous = rest;
    }
    cut->next = rest;
    cut->size_bytes = size_bytes;
    return rest;
}

/* The state of the whole request: that of the slab if it needed a new one. */
static gml_state state_of(bool is_whole, const gml_placement *opened) {
    gml_state slab = opened ? opened->block.state : GML_STATE_EXACT;
    if (slab == GML_STATE_GROW || slab == GML_STATE_STITCH) {
        return slab;
    }
    return is_whole ? GML_STATE_EXACT : GML_STATE_SPLIT;
}

/* Serves a piece that is in no tree. */
static gml_block *serve(gml_slab_piece *served, gml_stream stream, gml_state state) {
    served->is_used = true;
    served->block = (gml_block){
        .address = served->address,
        .block_bytes = served->size_bytes,
        .stream = stream,
        .state = state,
        .is_small = true,
    };
    return &served->block;
}

gml_status gml_small_allocate(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                              gml_block **out) {
    /* One piece for a new slab and one for the rest of a split: once a piece is taken, nothing may
     * fail. */
    gml_status status = gml_pool_reserve(&stitch->pieces, 2) ? GML_OK : fail_for_host(stitch);
    gml_tree_node *node = gml_tree_at_least(&cache->small_free, size_bytes, 0);
    bool opens_slab = status == GML_OK && !node;
    if (opens_slab) {
        status = add_slab(stitch, cache);
        node = gml_tree_at_least(&cache->small_free, size_bytes, 0);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_slab_piece *taken = of_fit(node);
    uint64_t rest_bytes = taken->size_bytes - size_bytes;
    gml_tree_remove(&cache->small_free, &taken->fit);
    if (rest_bytes) { /* its last bytes are served: rows grow downwards */
        gml_slab_piece *rest = taken;
        taken = split(stitch, rest, rest_bytes);
        add_free(cache, rest);
    }
    *out = serve(taken, cache->stream, state_of(!rest_bytes, opens_slab ? stitch->opened : NULL));
    return GML_OK;
}

/* ---- pieces by address ----------------------------------------------------------------------- */

gml_status gml_slab_reserve(gml_stitch *stitch, size_t slab_count, size_t piece_count) {
    /* A slab begins as one piece, and each claim cuts at most two off. */
    bool has_room = gml_pool_reserve(&stitch->slabs, slab_count) &&
                    gml_pool_reserve(&stitch->pieces, slab_count + 2 * piece_count) &&
                    gml_map_reserve(&stitch->slab_at, slab_count) == GML_OK;
    return has_room ? GML_OK : fail_for_host(stitch);
}

gml_block *gml_slab_next(const gml_slab *slab, gml_block *previous) {
    gml_slab_piece *next = previous ? ((gml_slab_piece *)(void *)previous)->next : slab->first;
    while (next && next->slab == slab && !next->is_used) {
        next = next->next;
    }
    return next && next->slab == slab ? &next->block : NULL;
}

/* The piece in which `address` lies, in that slab. */
static gml_slab_piece *find_piece(const gml_slab *slab, gml_address address) {
    while (!slab->first || slab->first->address > address) {
        slab = slab->previous;
    }
    gml_slab_piece *piece = slab->first;
    while (piece->address + piece->size_bytes <= address) {
        piece = piece->next;
    }
    return piece;
}

gml_block *gml_slab_claim(gml_stitch *stitch, const gml_slab *slab, gml_address address,
                          uint64_t size_bytes) {
    gml_stream_cache *cache = slab->placement->cache;
    gml_slab_piece *covering = find_piece(slab, address);
    if (covering->is_used) {
        return &covering->block;
    }
    gml_tree_remove(&cache->small_free, &covering->fit);
    if (covering->address < address) {
        gml_slab_piece *before = covering;
        covering = split(stitch, before, address - before->address);
        add_free(cache, before);
    }
    if (covering->size_bytes > size_bytes) {
        add_free(cache, split(stitch, covering, size_bytes));
    }
    return serve(covering, cache->stream, GML_STATE_EXACT);
}

/* ---- freeing and looking --------------------------------------------------------------------- */

/* Closes the slabs from `first` up to `behind`, which `piece`, in no tree, covers. What it has
 * before and behind them stays free: two pieces at most, and it was merged out of as many. */
static void close_slabs(gml_stitch *stitch, gml_slab_piece *piece, gml_slab *first,
                        gml_slab *behind) {
    gml_stream_cache *cache = first->placement->cache;
    gml_address end = piece->address + piece->size_bytes;
    gml_slab_piece *left = piece->previous, *right = piece->next;
    if (piece->address < begin_of(first)) {
        piece->size_bytes = begin_of(first) - piece->address;
        add_free(cache, piece);
        left = piece;
    } else {
        gml_pool_give(&stitch->pieces, piece);
    }
    if (behind && begin_of(behind) < end) {
        gml_slab_piece *rest = gml_pool_take(&stitch->pieces);
        rest->slab = behind;
        rest->address = begin_of(behind);
        rest->size_bytes = end - rest->address;
        rest->next = right;
        if (right) {
            right->previous = rest;
        }
        behind->first = right = rest;
        add_free(cache, rest);
    }
    part(left, right);
    if (first->previous) {
        first->previous->next = NULL;
    }
    if (behind) {
        behind->previous = NULL;
    }
    for (gml_slab *slab = first, *next; slab != behind; slab = next) {
        next = slab->next;
        stitch->policy.small_bytes -= GML_SLAB_BYTES;
        slab->placement->slab = NULL;
        (void)gml_map_take(&stitch->slab_at, begin_of(slab));
        gml_pool_give(&stitch->slabs, slab);
    }
}

size_t gml_small_free(gml_stitch *stitch, gml_block *block,
                      gml_placement *ended[GML_SLABS_TOUCHED]) {
    gml_slab_piece *freed = (gml_slab_piece *)(void *)block;
    freed->is_used = false;
    freed = merge(stitch, freed);
    gml_slab *first = freed->slab;
    if (begin_of(first) < freed->address) {
        first = first->next;
    }
    size_t count = 0;
    gml_slab *behind = first;
    while (behind && end_of(behind) <= freed->address + freed->size_bytes) {
        ended[count++] = behind->placement;
        behind = behind->next;
    }
    if (count) {
        close_slabs(stitch, freed, first, behind);
    } else {
        add_free(freed->slab->placement->cache, freed);
    }
    return count;
}

bool gml_slab_begins_row(const gml_slab *slab) {
    return !slab->previous;
}

uint64_t gml_slab_row_bytes(const gml_slab *slab) {
    uint64_t row_bytes = 0;
    for (; slab; slab = slab->next) {
        row_bytes += GML_SLAB_BYTES;
    }
    return row_bytes;
}

void gml_slab_visit_row(const gml_slab *slab, const gml_visitor *visitor) {
    for (const gml_slab_piece *piece = slab->first; piece; piece = piece->next) {
        const gml_range_info range = {
            .address = piece->address,
            .size_bytes = piece->size_bytes,
            .requested_bytes = piece->is_used ? piece->block.requested_bytes : 0,
            .is_used = piece->is_used,
        };
        visitor->range(visitor->context, &range);
    }
}

uint64_t gml_slab_row_used_bytes(const gml_slab *slab) {
    uint64_t used_bytes = 0;
    for (const gml_slab_piece *piece = slab->first; piece; piece = piece->next) {
        used_bytes += piece->is_used ? piece->size_bytes : 0;
    }
    return used_bytes;
}

/* Whether a piece of the row is linked, in its slab, and merged. */
static bool is_piece_valid(const gml_slab_piece *piece) {
    const gml_slab_piece *next = piece->next;
    bool is_in_slab =
        begin_of(piece->slab) <= piece->address && piece->address < end_of(piece->slab);
    bool is_first = !piece->previous || piece->previous->slab != piece->slab;
    return piece->size_bytes && is_in_slab && (piece->slab->first == piece) == is_first &&
           !(next && (next->previous != piece || (!piece->is_used && !next->is_used) ||
                      next->address != piece->address + piece->size_bytes));
}

/* Whether nothing in a slab is used: it should be gone. */
static bool is_idle(const gml_slab *slab) {
    const gml_slab_piece *piece = find_piece(slab, begin_of(slab));
    return !piece->is_used && piece->address + piece->size_bytes >= end_of(slab);
}

bool gml_slab_is_valid(const gml_stitch *stitch, const gml_slab *slab) {
    bool is_valid = gml_map_find(&stitch->slab_at, begin_of(slab)) == slab && !is_idle(slab) &&
                    (!slab->next || slab->next->previous == slab);
    const gml_slab_piece *piece = gml_slab_begins_row(slab) ? slab->first : NULL;
    gml_address end = piece ? begin_of(slab) : end_of(slab);
    for (; piece && is_valid; piece = piece->next) {
        is_valid = piece->address == end && is_piece_valid(piece);
        end += piece->size_bytes;
    }
    return is_valid &&
           (!gml_slab_begins_row(slab) || end == begin_of(slab) + gml_slab_row_bytes(slab));
}
