/* The policy `stitch`: the structures its files share.
 *
 *   placement     where a block lies: runs of the base range, and the address under which they lie
 *                 side by side. One run needs no mapping of its own; several are a view.
 *   stream cache  what one stream owns: free extents, slabs.
 *
 * States of a placement:
 *   live    serves a block; holds its extents
 *   cached  the view that its stream cache freed last: still holds its extents, so that a request
 *           of the same size takes it back at once, however many there are. Any other request
 *           ends that, and so does the end of the last block
 *   idle    a view without its extents. It stays mapped for the next request of its size that finds
 *           its runs free. A placement without a mapping is freed instead
 *   held    serves a block of a policy around this one, out of extents that are held by that
 *   gone    a view without its mapping, or about to lose it
 *
 * Of the idle views whose runs are free the first that was made serves: views made since then
 * change nothing. So a program that repeats its requests from the same state gets the same
 * addresses, and makes no driver call (promise 8), once the base range has stopped growing.
 *
 * Free memory in a stream cache is ordered after all work of its stream: it serves that stream at
 * once. It moves to another stream cache when that stream lacks memory and is ordered behind it too
 * (share.c). No other stream cache's memory is ever used in place.
 */
#ifndef GML_POLICY_STITCH_STITCH_H
#define GML_POLICY_STITCH_STITCH_H

#include "base/list.h"
#include "base/map.h"
#include "core/fences.h"
#include "core/freeset.h"
#include "policy/policy.h"
#include "policy/stitch/cost_model.h"

#include <stddef.h>

typedef struct gml_stream_cache gml_stream_cache;
typedef struct gml_slab gml_slab;

typedef enum gml_placement_state {
    GML_PLACEMENT_LIVE,
    GML_PLACEMENT_CACHED,
    GML_PLACEMENT_HELD,
    GML_PLACEMENT_IDLE,
    GML_PLACEMENT_GONE
} gml_placement_state;

/* One range of the base range. */
typedef struct gml_run {
    uint64_t offset, size_bytes;
    gml_extent *extent; /* while the placement is live or cached */
} gml_run;

/* In the order of use: fields that serving and freeing touch come first. */
typedef struct gml_placement {
    gml_block block;         /* what the lake sees while live; block_bytes is fixed */
    gml_stream_cache *cache; /* that it serves, or served last */
    gml_placement_state state;
    gml_run *runs; /* in the order of addresses */
    size_t run_count;
    gml_run only_run; /* runs points here if run_count is 1 */
    uint64_t freed;   /* cached and idle: when, see fences.h */
    gml_slab *slab;   /* what lives in it, if it serves the stream cache's small requests */
    gml_link live;    /* held: in the reservation's list */
    const struct gml_place *place; /* held: as that policy knows it */
    /* Of views: */
    gml_address view; /* start of its own mapping; 0: it lies in the base range */
    uint64_t view_bytes;
    uint64_t view_chunks;
    uint64_t mapped_bytes; /* less where the driver refused a part of the work */
    gml_tree_node by_age;  /* idle: in stitch->idle, by size and number */
    gml_link idle;    /* idle: in stitch->idle_views; after a refusal in stitch->pending_unmaps */
    size_t pin_count; /* other references: the struct outlives its view until they end */
} gml_placement;

struct gml_stream_cache {
    gml_stream stream;
    gml_seeker seeker;
    size_t user_count; /* placements and others that refer to it */
    gml_freeset set;
    gml_placement *cached;  /* a view, or NULL */
    gml_tree small_free;    /* free pieces of slabs, by size and address */
    gml_stream_cache *host; /* what its blocks on the host hold, see host.c; NULL: it had none */
    bool is_host;           /* it is one of those: no request looks into it */
    uint64_t requests;      /* of its stream while something was free in it */
    gml_link caches;        /* in stitch->caches */
};

typedef struct gml_stitch {
    gml_policy policy;
    gml_base_range range;
    gml_cost_model costs;
    bool is_private; /* see gml_policy_ops.create_private */
    bool is_empty;   /* nothing lives: the next request begins as the first one did */
    uint64_t frag_limit, max_views;
    uint64_t views, view_bytes;           /* mapped */
    uint64_t view_chunks;                 /* the same: mappings of chunks */
    uint64_t made_views;                  /* so far: the next one's number */
    uint64_t live_bytes, peak_live_bytes; /* of placements */
    uint64_t missing_bytes;               /* when it was last asked whether to spend */
    gml_fences fences;
    gml_map cache_by_stream; /* by stream + 1 */
    gml_stream_cache *last_cache;
    gml_link caches;
    size_t cache_count;
    gml_tree idle;           /* idle views, by size and number */
    gml_link idle_views;     /* the same, those used longest ago first */
    gml_link pending_unmaps; /* views the driver refused to take back */
    gml_pool placements, pieces, slabs;
    gml_map slab_at;       /* slabs by their address */
    gml_placement *opened; /* the slab that was opened last; it may be gone */
    gml_run *scratch;      /* of choose.c, grown as needed */
    size_t scratch_capacity;
} gml_stitch;

/* Whether free pieces may be put side by side at other addresses. */
static inline bool gml_stitch_has_views(const gml_stitch *stitch) {
    return !stitch->policy.driver->arena_bytes;
}

/* Whether graphs use its memory, or may still be running: fences know nothing of them. */
static inline bool gml_stitch_has_graphs(const gml_stitch *stitch) {
    return stitch->policy.is_kept || stitch->policy.awaits_device;
}

static inline gml_stitch *gml_stitch_of(gml_policy *policy) {
    return (gml_stitch *)(void *)policy;
}

/* The stream cache at a link of stitch->caches, and that of a freeset; the view at one of
 * idle_views. */
static inline gml_stream_cache *gml_stream_cache_of_link(gml_link *link) {
    return (gml_stream_cache *)(void *)((char *)link - offsetof(gml_stream_cache, caches));
}

static inline gml_stream_cache *gml_stream_cache_of_set(gml_freeset *set) {
    return (gml_stream_cache *)(void *)((char *)set - offsetof(gml_stream_cache, set));
}

static inline gml_placement *gml_view_of_idle(gml_link *link) {
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, idle));
}

static inline gml_placement *gml_placement_of_live(gml_link *link) {
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, live));
}

/* Whether the work that used an idle view is known to be complete. */
static inline bool gml_view_is_unused(const gml_stitch *stitch, const gml_placement *placement) {
    return gml_fence_is_over(&stitch->fences, placement->freed);
}

/* ---- place.c: serving a size ----------------------------------------------------------------- */

/* Serves `size_bytes`, a multiple of 512, in a placement of its own. Where the base range grows for
 * a slab it grows at its end, so that slabs lie side by side. */
gml_status gml_stitch_place(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                            bool is_slab, gml_placement **out);

/* Whether the base range grows by `missing_bytes` for a request that no free extent holds,
 * instead of its being stitched. */
bool gml_stitch_may_spend(const gml_stitch *stitch, uint64_t size_bytes, uint64_t missing_bytes);

/* The block of a placement that has just been made for its stream cache begins to live. */
static inline void gml_placement_serve(gml_stitch *stitch, gml_placement *placement) {
    placement->block.stream = placement->cache->stream;
    stitch->live_bytes += placement->block.block_bytes;
    if (stitch->peak_live_bytes < stitch->live_bytes) {
        stitch->peak_live_bytes = stitch->live_bytes;
    }
}

/* ---- whole.c: chunks for who maps them elsewhere --------------------------------------------- */

gml_status gml_stitch_take_chunk(gml_policy *self, gml_address wanted, uint64_t missing_bytes,
                                 gml_stream stream, gml_block **out);

/* See gml_policy_ops. */
gml_status gml_stitch_live_chunks(gml_policy *self,
                                  gml_status (*see)(void *context, gml_handle handle),
                                  void *context);

/* ---- choose.c: which bytes serve a request --------------------------------------------------- */

typedef struct gml_choice {
    gml_run *runs; /* in stitch->scratch; valid until the next choice */
    size_t run_count;
    gml_state state;
} gml_choice;

/* Whether free pieces of the stream cache add up to the size: if so, *out is the choice. Flushes
 * the stream cache. GML_NO_HOST_MEMORY goes to *status. */
bool gml_choose_stitched(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                         gml_choice *out, gml_status *status);

/* The bytes that would be taken from the driver to stitch the size; 0: none. The stream cache is
 * flushed.
 */
uint64_t gml_choose_missing(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes);

/* The bytes to grow the base range by, at its lowest gap, so that the size fits into one extent. */
uint64_t gml_choose_missing_behind(const gml_stitch *stitch, const gml_stream_cache *cache,
                                   uint64_t size_bytes);

/* Takes `size_bytes` from the driver for the stream cache, or up to the end of a whole chunk if
 * that is more and available. */
gml_status gml_stitch_grow(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                           bool at_end);

/* ---- placement.c: views that serve nothing --------------------------------------------------- */

/* A retired view waits to serve again. */
void gml_idle_view_add(gml_stitch *stitch, gml_placement *placement);
void gml_idle_view_remove(gml_stitch *stitch, gml_placement *placement);

/* The same for a view that is out of the list already: no request finds it any more. */
void gml_idle_view_unindex(gml_stitch *stitch, gml_placement *placement);

/* Of the idle views of that size whose runs are all free in the stream cache, the first that was
 * made; NULL if there is none. Looks at each of them: at most max_views. */
gml_placement *gml_idle_view_find(const gml_stitch *stitch, const gml_stream_cache *cache,
                                  uint64_t size_bytes);

/* ---- placement.c: making, ending, settling --------------------------------------------------- */

/* A new live placement over a free extent of the stream cache, the whole of it or its first bytes.
 * Hot. GML_NO_HOST_MEMORY. */
gml_status gml_placement_fit(gml_stitch *stitch, gml_stream_cache *cache, uint64_t offset,
                             uint64_t size_bytes, gml_placement **out);

/* Ends a live placement. A view is cached, and the previously cached one retired. */
void gml_placement_end(gml_stitch *stitch, gml_placement *placement);

/* Its extents become free in its stream cache; a view becomes idle, any other placement is
 * freed. */
void gml_placement_retire(gml_stitch *stitch, gml_placement *placement);

/* Releases the view that the stream cache keeps. */
static inline void gml_stream_cache_flush(gml_stitch *stitch, gml_stream_cache *cache) {
    if (cache->cached) {
        gml_placement *placement = cache->cached;
        cache->cached = NULL;
        gml_placement_retire(stitch, placement);
    }
}

/* A placement of one run in the stream cache, without a block; NULL without host memory. */
gml_placement *gml_placement_new(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes);

/* Takes the extents of a placement, all of which are free in its stream cache. pre: two extents are
 * prepared for each run. */
void gml_placement_claim(gml_stitch *stitch, gml_placement *placement);

/* Frees the host memory of a placement that is in no list and holds nothing. */
void gml_placement_release(gml_stitch *stitch, gml_placement *placement);

/* ---- view.c: placements with a mapping of their own ------------------------------------------ */

/* A new live placement over the runs of a choice, which are free in the stream cache, mapped as a
 * view if there are several and no idle view serves, over these runs or others. On failure nothing
 * is claimed. */
gml_status gml_placement_create(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                                const gml_choice *choice, gml_placement **out);

/* An idle view is live again, in that stream cache. pre: its runs are free there, and two extents
 * are prepared for each. */
void gml_view_revive(gml_stitch *stitch, gml_stream_cache *cache, gml_placement *placement);

/* Unmaps and forgets an idle view. The caller has made sure that no work uses it. On failure it is
 * pending unmap: out of every list but stitch->pending_unmaps. */
gml_status gml_view_destroy(gml_stitch *stitch, gml_placement *placement);

/* Who has raised its pin_count names it no longer. */
void gml_view_unpin(gml_stitch *stitch, gml_placement *placement);

/* Tries again to unmap every view whose unmapping is pending; returns the first failure. */
gml_status gml_view_unmap_pending(gml_stitch *stitch);

/* Gives the host memory of views whose unmapping is still pending back: the last step of closing.
 */
void gml_view_abandon_pending(gml_stitch *stitch);

/* ---- stream_cache.c -------------------------------------------------------------------------- */

/* The stream cache of a stream, made if need be. */
gml_status gml_stream_cache_find(gml_stitch *stitch, gml_stream stream, gml_stream_cache **out);

/* The stream cache for blocks on the host of the stream of `cache`, made if need be. */
gml_status gml_stream_cache_add_host(gml_stitch *stitch, gml_stream_cache *cache);

/* Ends the stream caches that hold nothing: streams may have been destroyed, and nobody says. */
void gml_stream_cache_sweep(gml_stitch *stitch);

/* Releases the view that each stream cache keeps. */
void gml_stream_caches_flush(gml_stitch *stitch);

/* Frees all stream caches: the last step of closing. */
void gml_stream_caches_close(gml_stitch *stitch);

/* ---- host.c: memory of the host, before a request is refused --------------------------------- */

/* What was freed of the stream's blocks on the host: the device's part is the stream's again, and
 * the host's goes back where the device has room instead. */
gml_status gml_host_settle(gml_stitch *stitch, gml_stream_cache *cache);

/* Around a request that takes memory of the host: what is free of it is the stream's, and after
 * that what is left, and the block, if it lies there, are apart again. */
gml_status gml_host_begin(gml_stitch *stitch, gml_stream_cache *cache);
gml_status gml_host_end(gml_stitch *stitch, gml_stream_cache *cache, gml_placement *placement);

/* Takes that much for the stream: may_divide: what the device still has of it, and the rest of the
 * host. GML_OUT_OF_MEMORY beyond the setting. */
gml_status gml_host_grow(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                         bool may_divide);

/* ---- share.c: waiting before mappings go ----------------------------------------------------- */

/* Waits for the device, unless the driver is frozen or the stream of `asking` captures: *is_done is
 * false then, and nothing was done. `asking`: the stream cache being served, or NULL. */
gml_status gml_stitch_synchronize(gml_stitch *stitch, const gml_stream_cache *asking,
                                  bool *is_done);

/* Waits for the work before all frees, unless that is known to be complete. Otherwise as above. */
gml_status gml_stitch_wait(gml_stitch *stitch, const gml_stream_cache *asking, bool *is_done);

/* ---- share.c: memory of other streams -------------------------------------------------------- */

/* Whether a stream cache may take memory of another: one exists, and the rules allow it. */
static inline bool gml_share_is_open(const gml_stitch *stitch) {
    return stitch->cache_count > 1 && gml_fences_are_open(&stitch->fences);
}

/* How many other streams with free memory one request looks at: a bound on the time. Before memory
 * is refused all are. */
enum { GML_MOST_DONORS = 64 };

/* Updates how far the device has come, by the knob reuse_allow_opportunistic. */
void gml_share_look(gml_stitch *stitch, const gml_stream_cache *cache);

/* The next stream cache after `previous`, or the first if that is NULL, that `cache` may ask; NULL:
 * enough. *count: those so far. */
gml_stream_cache *gml_share_next_donor(gml_stitch *stitch, const gml_stream_cache *cache,
                                       gml_stream_cache *previous, int *count);

/* Whether `cache` may take a part of `extent`, which is free in another stream cache; made so where
 * the effort allows. A driver failure only means that the memory is out of reach. */
bool gml_share_reach(gml_stitch *stitch, gml_stream_cache *cache, const gml_extent *extent,
                     gml_effort effort);

/* Moves a range of one free extent of another stream cache, which is in reach, to `cache`.
 * GML_NO_HOST_MEMORY: nothing was moved. */
gml_status gml_share_take(gml_stitch *stitch, gml_stream_cache *cache, uint64_t offset,
                          uint64_t size_bytes);

/* Moves memory that is free in other stream caches, and in reach with that effort, to `cache`: the
 * smallest range that holds the size; or whole chunks until they reach the size, as far as
 * available. The memory appears in cache->set. GML_NO_HOST_MEMORY; memory moved by then stays. */
gml_status gml_share_take_range(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                                gml_effort effort);
gml_status gml_share_take_chunks(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                                 gml_effort effort);

/* Moves what other stream caches hold free, and whose work is known to be complete, to `cache`. By
 * the knob reuse_allow_opportunistic. */
void gml_share_gather(gml_stitch *stitch, gml_stream_cache *cache);

/* Moves all that other stream caches hold free to `cache`: the last resort, for which the host
 * waits if it must. *is_any: whether there was anything. */
gml_status gml_share_take_all(gml_stitch *stitch, gml_stream_cache *cache, bool *is_any);

/* See gml_policy_ops. */
void gml_share_pairs(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
                     void *context);

/* ---- small.c: requests up to 1 MiB ----------------------------------------------------------- */

/* Sets up the object pools. */
void gml_small_init(gml_stitch *stitch);

gml_status gml_small_allocate(gml_stitch *stitch, gml_stream_cache *cache, uint64_t size_bytes,
                              gml_block **out);

#define GML_SLAB_BYTES (UINT64_C(2) << 20)

/* Slabs in which a small block may lie: it is smaller than one. */
enum { GML_SLABS_TOUCHED = 2 };

/* Returns how many slabs have nothing used in them now: `ended` begins with their placements, for
 * the caller to end. */
size_t gml_small_free(gml_stitch *stitch, gml_block *block,
                      gml_placement *ended[GML_SLABS_TOUCHED]);

/* Makes a live placement of that size a slab, and a row with the slabs beside it.
 * GML_NO_HOST_MEMORY: it stays a plain placement. */
gml_status gml_slab_open(gml_stitch *stitch, gml_placement *placement);

/* Room for so many slabs, and for so many pieces in them that gml_slab_claim() serves. */
gml_status gml_slab_reserve(gml_stitch *stitch, size_t slab_count, size_t piece_count);

/* Of the blocks that begin in a slab the one behind `previous`, or the first if that is NULL; NULL:
 * there is none. */
gml_block *gml_slab_next(const gml_slab *slab, gml_block *previous);

/* The block of just these bytes, which begin in the slab, served now unless it lives. pre: nothing
 * else in them lives, the slab that they reach into is open, and there is room for it. */
gml_block *gml_slab_claim(gml_stitch *stitch, const gml_slab *slab, gml_address address,
                          uint64_t size_bytes);

/* Slabs side by side are a row, of which pieces are told together: whether a slab is the first of
 * its row, and what the row that begins with it has, for snapshots. */
bool gml_slab_begins_row(const gml_slab *slab);
uint64_t gml_slab_row_bytes(const gml_slab *slab);
uint64_t gml_slab_row_used_bytes(const gml_slab *slab);
void gml_slab_visit_row(const gml_slab *slab, const gml_visitor *visitor);

/* For checks. Linear in the row where it begins one. */
bool gml_slab_is_valid(const gml_stitch *stitch, const gml_slab *slab);

/* ---- trim.c ---------------------------------------------------------------------------------- */

/* Forgets the idle views that map a chunk in [floor, ceiling) that is wholly free and used by no
 * work. A view was freed no later than its runs: no work uses it where none uses these. */
gml_status gml_trim_views(gml_stitch *stitch, uint64_t floor, uint64_t ceiling);

gml_status gml_stitch_trim(gml_policy *self, uint64_t *released_bytes);
gml_status gml_stitch_give(gml_policy *self, uint64_t wanted_bytes, uint64_t *released_bytes,
                           bool *is_pending);
uint64_t gml_stitch_idle_bytes(gml_policy *self);

/* ---- checkpoint.c: see gml_policy_ops -------------------------------------------------------- */

gml_status gml_stitch_save(gml_policy *self, gml_checkpoint **out);
gml_status gml_stitch_prepare_restore(gml_policy *self, const gml_checkpoint *saved,
                                      gml_restoration *out);
void gml_stitch_restore_to(gml_policy *self, const gml_checkpoint *saved, gml_block **blocks_out);

/* ---- stitch_inspect.c: the whole structure, read only ---------------------------------------- */

gml_status gml_stitch_check(gml_policy *self);
void gml_stitch_visit(gml_policy *self, const gml_visitor *visitor);
void gml_stitch_usage(gml_policy *self, gml_usage *out);

#endif
