/* Addresses out of one range. It is tiled by pieces, each of them free or one reservation. */
#include "driver/window.h"

#include "base/pool.h"
#include "base/rounding.h"
#include "base/size.h"
#include "base/tree.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct piece {
    gml_tree_node fit; /* free: in window->fit. Its size and address are the piece's */
    struct piece *before, *behind;
    bool is_free;
} piece;

typedef struct window {
    gml_wrapped wrapped; /* must be first */
    gml_address begin;
    gml_tree fit;     /* free pieces */
    gml_map reserved; /* address -> piece */
    gml_pool pieces;
    unsigned place; /* among the windows of the process */
} window;

/* Which places the process's windows have: a bit for each. */
enum { MOST_WINDOWS = 16 };
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned places;

static window *window_of(gml_driver *self) {
    return (window *)(void *)self;
}

/* The lowest place that no window has; MOST_WINDOWS if there is none. */
static unsigned take_place(void) {
    unsigned place = 0;
    (void)pthread_mutex_lock(&places_lock);
    while (place < MOST_WINDOWS && places & 1U << place) {
        place++;
    }
    places |= place < MOST_WINDOWS ? 1U << place : 0;
    (void)pthread_mutex_unlock(&places_lock);
    return place;
}

static void give_place(unsigned place) {
    (void)pthread_mutex_lock(&places_lock);
    places &= ~(1U << place);
    (void)pthread_mutex_unlock(&places_lock);
}

static void free_host_memory(window *self) {
    gml_map_clear(&self->reserved);
    gml_pool_clear(&self->pieces);
    give_place(self->place);
    free(self);
}

static void destroy(gml_driver *self) {
    window *of = window_of(self);
    gml_driver *inner = of->wrapped.inner;
    (void)inner->ops->unreserve(inner, of->begin, self->window_bytes);
    gml_driver_close(inner);
    free_host_memory(of);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static piece *of_fit(gml_tree_node *node) {
    return (piece *)(void *)((char *)node - offsetof(piece, fit));
}

static void make_free(window *of, piece *freed) {
    freed->is_free = true;
    gml_tree_insert(&of->fit, &freed->fit);
}

/* The piece keeps its first bytes; the rest becomes a free piece behind it. pre: it is in no tree,
 * and a piece can be taken from the pool. */
static void cut(window *of, piece *kept, uint64_t size_bytes) {
    piece *rest = gml_pool_take(&of->pieces);
    rest->fit.address = kept->fit.address + size_bytes;
    rest->fit.size_bytes = kept->fit.size_bytes - size_bytes;
    rest->before = kept;
    rest->behind = kept->behind;
    if (rest->behind) {
        rest->behind->before = rest;
    }
    kept->behind = rest;
    kept->fit.size_bytes = size_bytes;
    make_free(of, rest);
}

/* Makes one piece of two neighbours that are in no tree: the first. */
static void join(window *of, piece *first) {
    piece *second = first->behind;
    first->fit.size_bytes += second->fit.size_bytes;
    first->behind = second->behind;
    if (first->behind) {
        first->behind->before = first;
    }
    gml_pool_give(&of->pieces, second);
}

/* Bytes from where a piece begins to the first address of that alignment. */
static uint64_t lead_of(const piece *looked_at, uint64_t alignment_bytes) {
    return gml_round_up(looked_at->fit.address, alignment_bytes) - looked_at->fit.address;
}

/* The smallest free piece that holds so much, the lowest of these; NULL if there is none. */
static piece *find_free(const window *of, uint64_t size_bytes, uint64_t alignment_bytes) {
    gml_tree_node *node = gml_tree_at_least(&of->fit, size_bytes, 0);
    while (node && node->size_bytes - size_bytes < lead_of(of_fit(node), alignment_bytes)) {
        node = gml_tree_next(node);
    }
    return node ? of_fit(node) : NULL;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static gml_status reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                          gml_address *out) {
    window *of = window_of(self);
    uint64_t granule_bytes = self->info.granularity_bytes;
    if (size_bytes == 0 || size_bytes % granule_bytes ||
        (alignment_bytes & (alignment_bytes - 1)) != 0) {
        return gml_driver_fail(self, GML_MISUSE,
                               "reserve: %" PRIu64 " bytes, aligned to %" PRIu64
                               ", are no multiple of %" PRIu64 " or no power of two",
                               size_bytes, alignment_bytes, granule_bytes);
    }
    uint64_t even_bytes = alignment_bytes < granule_bytes ? granule_bytes : alignment_bytes;
    piece *taken = find_free(of, size_bytes, even_bytes);
    if (!taken) {
        return gml_driver_fail(self, GML_OUT_OF_MEMORY,
                               "reserve: the window of %s has no %s of addresses left",
                               gml_size_of(self->window_bytes).text, gml_size_of(size_bytes).text);
    }
    if (!gml_pool_reserve(&of->pieces, 2) || gml_map_reserve(&of->reserved, 1) != GML_OK) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "reserve: no host memory for addresses");
    }
    uint64_t lead_bytes = lead_of(taken, even_bytes);
    gml_tree_remove(&of->fit, &taken->fit);
    if (lead_bytes) {
        piece *lead = taken;
        cut(of, lead, lead_bytes);
        taken = lead->behind;
        gml_tree_remove(&of->fit, &taken->fit);
        make_free(of, lead);
    }
    if (taken->fit.size_bytes > size_bytes) {
        cut(of, taken, size_bytes);
    }
    taken->is_free = false;
    (void)gml_map_insert(&of->reserved, taken->fit.address, taken); /* there is room */
    *out = taken->fit.address;
    return GML_OK;
}

static gml_status unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    window *of = window_of(self);
    piece *freed = gml_map_find(&of->reserved, address);
    if (!freed || freed->fit.size_bytes != size_bytes) {
        return gml_driver_fail(self, GML_MISUSE,
                               "unreserve: %" PRIu64 " bytes at 0x%" PRIx64 " are no reservation",
                               size_bytes, address);
    }
    (void)gml_map_take(&of->reserved, address);
    if (freed->behind && freed->behind->is_free) {
        gml_tree_remove(&of->fit, &freed->behind->fit);
        join(of, freed);
    }
    if (freed->before && freed->before->is_free) {
        freed = freed->before;
        gml_tree_remove(&of->fit, &freed->fit);
        join(of, freed);
    }
    make_free(of, freed);
    return GML_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Enough for many times the device's memory; less of a small device, whose books would be larger
 * than it. */
static uint64_t size_of(const gml_driver *inner) {
    uint64_t granule_bytes = inner->info.granularity_bytes;
    uint64_t wanted_bytes = gml_round_up(inner->info.total_bytes, granule_bytes) * 32;
    return wanted_bytes < GML_WINDOW_BYTES ? wanted_bytes : GML_WINDOW_BYTES;
}

/* Takes the range from the inner driver. */
static gml_status take_range(window *of, gml_address base, uint64_t size_bytes, gml_driver *inner) {
    piece *whole = gml_pool_take(&of->pieces);
    if (!whole) {
        return gml_driver_fail(inner, GML_NO_HOST_MEMORY, "no host memory for a window");
    }
    of->begin = base + of->place * GML_WINDOW_BYTES;
    gml_status status = gml_driver_reserve_at(inner, of->begin, size_bytes);
    if (status != GML_OK) {
        char why[GML_REASON_BYTES];
        (void)snprintf(why, sizeof why, "%s", inner->reason);
        return gml_driver_fail(inner, status, "base=0x%" PRIx64 " is refused: %s", base, why);
    }
    whole->fit.address = of->begin;
    whole->fit.size_bytes = size_bytes;
    make_free(of, whole);
    return GML_OK;
}

gml_status gml_window_driver_open(gml_address base, gml_driver **driver) {
    gml_driver *inner = *driver;
    uint64_t granule_bytes = inner->info.granularity_bytes;
    if (!inner->info.has_virtual_memory) {
        return gml_driver_fail(inner, GML_UNSUPPORTED,
                               "base=0x%" PRIx64 ": this device has no virtual memory management",
                               base);
    }
    if (base % granule_bytes) {
        return gml_driver_fail(inner, GML_INVALID_ARGUMENT,
                               "base=0x%" PRIx64 " is not a multiple of %s, this device's "
                               "granularity",
                               base, gml_exact_size_of(granule_bytes).text);
    }
    window *of = calloc(1, sizeof *of);
    if (!of) {
        return gml_driver_fail(inner, GML_NO_HOST_MEMORY, "no host memory for a window");
    }
    of->pieces.object_bytes = sizeof(piece);
    of->place = take_place();
    uint64_t size_bytes = size_of(inner);
    gml_status status = of->place < MOST_WINDOWS
                            ? take_range(of, base, size_bytes, inner)
                            : gml_driver_fail(inner, GML_UNSUPPORTED,
                                              "base=0x%" PRIx64 ": %d lakes of this process have "
                                              "their places already",
                                              base, MOST_WINDOWS);
    if (status != GML_OK) {
        free_host_memory(of);
        return status;
    }
    gml_wrap(&of->wrapped, inner, destroy);
    of->wrapped.ops.reserve = reserve;
    of->wrapped.ops.unreserve = unreserve;
    of->wrapped.ops.reserve_at = NULL;
    of->wrapped.base.window_bytes = size_bytes;
    *driver = &of->wrapped.base;
    return GML_OK;
}
