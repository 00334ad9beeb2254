/* Requests up to 1 MiB: pieces of slabs.
 *
 * A slab is a placement of 2 MiB, cut into pieces by best fit and returned to the stream cache as
 * soon as it is empty.
 */
#include "policy/stitch/stitch.h"

#include <stddef.h>

typedef struct gml_slab_piece {
    gml_block block;                        /* what the lake sees while used */
    gml_tree_node fit;                      /* free: in cache->small_free */
    struct gml_slab_piece *previous, *next; /* in the slab, in address order */
    gml_slab *slab;
    gml_address address;
    uint64_t size_bytes;
    bool is_used;
} gml_slab_piece;

struct gml_slab {
    gml_placement *placement;
    gml_slab_piece *first;
};

void gml_small_init(gml_stitch *stitch) {
    stitch->pieces.object_bytes = sizeof(gml_slab_piece);
    stitch->slabs.object_bytes = sizeof(gml_slab);
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

gml_status gml_slab_open(gml_stitch *stitch, gml_placement *placement) {
    gml_slab *slab = gml_pool_take(&stitch->slabs);
    gml_slab_piece *whole = gml_pool_take(&stitch->pieces);
    if (!slab || !whole) {
        gml_pool_give(&stitch->slabs, slab);
        gml_pool_give(&stitch->pieces, whole);
        return fail_for_host(stitch);
    }
    stitch->policy.small_bytes += GML_SLAB_BYTES;
    placement->slab = slab;
    *slab = (gml_slab){placement, whole};
    whole->slab = slab;
    whole->address = placement->block.address;
    whole->size_bytes = GML_SLAB_BYTES;
    add_free(placement->cache, whole);
    return GML_OK;
}

/* A new slab, which is one free piece. */
static gml_status add_slab(gml_stitch *stitch, gml_stream_cache *cache, gml_slab_piece **out) {
    gml_placement *placement;
    gml_status status = gml_stitch_place(stitch, cache, GML_SLAB_BYTES, &placement);
    if (status == GML_OK) {
        status = gml_slab_open(stitch, placement);
        if (status != GML_OK) {
            gml_placement_end(stitch, placement);
            return status;
        }
        *out = placement->slab->first;
    }
    return status;
}

/* Cuts `piece` down to `size_bytes`; the rest becomes a free piece. */
static void split(gml_stitch *stitch, gml_stream_cache *cache, gml_slab_piece *cut,
                  uint64_t size_bytes) {
    gml_slab_piece *rest = gml_pool_take(&stitch->pieces);
    rest->slab = cut->slab;
    rest->address = cut->address + size_bytes;
    rest->size_bytes = cut->size_bytes - size_bytes;
    rest->previous = cut;
    rest->next = cut->next;
    if (rest->next) {
        rest->next->previous = rest;
    }
    cut->next = rest;
    cut->size_bytes = size_bytes;
    add_free(cache, rest);
}

/* The state of the whole request: that of the slab if it needed a new one. */
static gml_state state_of(bool is_whole, const gml_slab_piece *fresh) {
    gml_state slab = fresh ? fresh->slab->placement->block.state : GML_STATE_EXACT;
    if (slab == GML_STATE_GROW || slab == GML_STATE_STITCH) {
        return slab;
    }
    return is_whole ? GML_STATE_EXACT : GML_STATE_SPLIT;
}

/* Serves the first bytes of a piece that is in no tree. pre: a piece for the rest. */
static gml_block *serve(gml_stitch *stitch, gml_stream_cache *cache, gml_slab_piece *served,
                        uint64_t size_bytes, gml_state state) {
    if (served->size_bytes > size_bytes) {
        split(stitch, cache, served, size_bytes);
    }
    served->is_used = true;
    served->block = (gml_block){
        .address = served->address,
        .block_bytes = size_bytes,
        .stream = cache->stream,
        .state = state,
        .is_small = true,
    };
    return &served->block;
}

gml_status gml_small_allocate(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                              gml_block **out) {
    /* One piece for the rest of a split: once a piece is taken, nothing may fail. */
    gml_status status = gml_pool_reserve(&stitch->pieces, 2) ? GML_OK : fail_for_host(stitch);
    gml_slab_piece *fresh = NULL;
    gml_tree_node *node = gml_tree_at_least(&cache->small_free, size_bytes, 0);
    if (status == GML_OK && !node) {
        status = add_slab(stitch, cache, &fresh);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_slab_piece *taken = node ? of_fit(node) : fresh;
    bool is_whole = taken->size_bytes == size_bytes;
    gml_tree_remove(&cache->small_free, &taken->fit);
    *out = serve(stitch, cache, taken, size_bytes, state_of(is_whole, fresh));
    return GML_OK;
}

/* ---- pieces by address ----------------------------------------------------------------------- */

gml_status gml_slab_reserve(gml_stitch *stitch, size_t slab_count, size_t piece_count) {
    /* A slab begins as one piece, and each claim cuts at most two off. */
    bool has_room = gml_pool_reserve(&stitch->slabs, slab_count) &&
                    gml_pool_reserve(&stitch->pieces, slab_count + 2 * piece_count);
    return has_room ? GML_OK : fail_for_host(stitch);
}

gml_block *gml_slab_next(const gml_slab *slab, gml_block *previous) {
    gml_slab_piece *next = previous ? ((gml_slab_piece *)(void *)previous)->next : slab->first;
    while (next && !next->is_used) {
        next = next->next;
    }
    return next ? &next->block : NULL;
}

gml_block *gml_slab_claim(gml_stitch *stitch, gml_slab *slab, gml_block *previous,
                          gml_address address, uint64_t size_bytes) {
    gml_stream_cache *cache = slab->placement->cache;
    gml_slab_piece *covering = previous ? (gml_slab_piece *)(void *)previous : slab->first;
    while (covering->address + covering->size_bytes <= address) {
        covering = covering->next;
    }
    if (covering->is_used) {
        return &covering->block;
    }
    gml_tree_remove(&cache->small_free, &covering->fit);
    if (covering->address < address) {
        split(stitch, cache, covering, address - covering->address);
        add_free(cache, covering);
        covering = covering->next;
        gml_tree_remove(&cache->small_free, &covering->fit);
    }
    return serve(stitch, cache, covering, size_bytes, GML_STATE_EXACT);
}

/* ---- freeing and looking --------------------------------------------------------------------- */

/* Merges `left` with its next neighbour; neither is in the tree. */
static void absorb(gml_stitch *stitch, gml_slab_piece *left) {
    gml_slab_piece *gone = left->next;
    left->size_bytes += gone->size_bytes;
    left->next = gone->next;
    if (left->next) {
        left->next->previous = left;
    }
    gml_pool_give(&stitch->pieces, gone);
}

gml_placement *gml_small_placement(const gml_block *block) {
    return ((const gml_slab_piece *)(const void *)block)->slab->placement;
}

gml_placement *gml_small_free(gml_stitch *stitch, gml_block *block) {
    gml_slab_piece *freed = (gml_slab_piece *)(void *)block;
    gml_slab *slab = freed->slab;
    gml_placement *placement = slab->placement;
    gml_stream_cache *cache = placement->cache;
    if (freed->next && !freed->next->is_used) {
        gml_tree_remove(&cache->small_free, &freed->next->fit);
        absorb(stitch, freed);
    }
    if (freed->previous && !freed->previous->is_used) {
        freed = freed->previous;
        gml_tree_remove(&cache->small_free, &freed->fit);
        absorb(stitch, freed);
    }
    if (freed->size_bytes < GML_SLAB_BYTES) {
        add_free(cache, freed);
        return NULL;
    }
    stitch->policy.small_bytes -= GML_SLAB_BYTES;
    placement->slab = NULL;
    gml_pool_give(&stitch->pieces, freed);
    gml_pool_give(&stitch->slabs, slab);
    return placement;
}

void gml_slab_visit(const gml_slab *slab, const gml_visitor *visitor) {
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

uint64_t gml_slab_used_bytes(const gml_slab *slab) {
    uint64_t used_bytes = 0;
    for (const gml_slab_piece *piece = slab->first; piece; piece = piece->next) {
        used_bytes += piece->is_used ? piece->size_bytes : 0;
    }
    return used_bytes;
}

bool gml_slab_is_valid(const gml_slab *slab) {
    gml_address address = slab->placement->block.address;
    bool has_used = false;
    for (const gml_slab_piece *piece = slab->first; piece; piece = piece->next) {
        bool merges = piece->next && !piece->is_used && !piece->next->is_used;
        if (piece->address != address || piece->slab != slab || merges ||
            (piece->next && piece->next->previous != piece) || piece->size_bytes == 0) {
            return false;
        }
        has_used |= piece->is_used;
        address += piece->size_bytes;
    }
    return has_used && address == slab->placement->block.address + GML_SLAB_BYTES;
}
