/* The policy `stitch`: the structures its files share.
 *
 *   placement  a place where one size was served once: ranges of the home space, and the address
 *              under which they lie side by side. One range needs no mapping of its own; several
 *              are a view.
 *   class      the placements of one size on one stream.
 *   pond       what one stream owns: free extents, classes, slabs.
 *
 * A placement outlives the blocks it serves. A request first takes the oldest placement of its size
 * whose bytes are all free; only when there is none is a new one made. Since which placement is
 * taken depends on nothing but which bytes are live, a program that repeats its requests from the
 * same live state gets the same addresses, and makes no driver call (promise 8).
 *
 * States of a placement:
 *   live       serves a block; holds its extents
 *   parked     serves none, still holds its extents; in the class's ready set. Taking it back costs
 *              the same for one chunk as for thousands
 *   scattered  its extents went back to the pond. It is in the ready set while it may be free, or
 *              waits for one placement that is known to overlap it (watch.c), or is stranded
 * because another pond holds bytes of it
 *
 * What is free in a pond is ordered behind all work of its stream: it serves that stream at once.
 * It moves to another pond when that stream lacks memory and is ordered behind it too (share.c). No
 * other pond's memory is ever used in place.
 */
#ifndef GML_POLICY_STITCH_STITCH_H
#define GML_POLICY_STITCH_STITCH_H

#include "base/list.h"
#include "base/map.h"
#include "core/fences.h"
#include "core/freeset.h"
#include "policy/policy.h"

typedef struct gml_pond gml_pond;
typedef struct gml_class gml_class;
typedef struct gml_slab gml_slab;
typedef struct gml_watch gml_watch;
typedef struct gml_offer gml_offer;

typedef enum gml_placement_state {
    GML_PLACEMENT_LIVE,
    GML_PLACEMENT_PARKED,
    GML_PLACEMENT_SCATTERED
} gml_placement_state;

/* One range of the home space. */
typedef struct gml_run {
    uint64_t offset, size_bytes;
    gml_extent *extent; /* while the placement is live or parked */
} gml_run;

/* In the order of use: what serving and freeing touch lies first. */
typedef struct gml_placement {
    gml_block block; /* what the lake sees while live */
    gml_class *class;
    gml_placement_state state;
    bool is_ready;       /* in class->ready */
    bool is_waiting;     /* `waiting` is in a list */
    bool is_proven;      /* has served more than once */
    gml_tree_node ready; /* in class->ready, by number */
    gml_link idle;       /* not live: in one of the stitch's idle lists, oldest use first */
    gml_link parked;     /* parked: in pond->parked */
    gml_link watches;    /* head: watches of placements that are known to overlap this one */
    gml_run *runs;       /* in view order */
    size_t run_count;
    gml_run only_run;    /* runs points here if there is one */
    gml_address address; /* where its blocks begin */
    gml_address view;    /* start of its own mapping; 0: it lies in the home space */
    uint64_t view_bytes;
    uint64_t mapped_bytes; /* of the view; less where the driver refused a part of the work */
    uint64_t number;       /* order of creation */
    gml_link waiting;      /* in a watch, or in class->stranded */
    gml_watch *watch;      /* the one it waits in, if it does */
    uint64_t freed;        /* parked: when, see fences.h */
    gml_slab *slab;        /* what lives in it, if it serves the pond's small requests */
} gml_placement;

struct gml_class {
    gml_pond *pond;
    uint64_t size_bytes;
    gml_tree ready; /* placements that may be free, by number */
    gml_link woken; /* head: watches of this class whose holder has ended since the last look */
    gml_link
        stranded;    /* head: scattered placements with bytes in another pond, through `waiting` */
    uint64_t looked; /* fences.progress when those were tried last */
    size_t placement_count; /* a class without any ceases to exist */
};

struct gml_pond {
    gml_stream stream; /* GML_NO_STREAM once that is gone: then it only gives */
    gml_timeline timeline;
    uint64_t held_bytes, peak_held_bytes; /* of live placements */
    uint64_t asked_bytes; /* the most that it would have held, had it got all it asked for */
    size_t pin_count;     /* who points to it besides placements and classes */
    gml_freeset set;
    gml_link parked;     /* of placements, oldest first */
    gml_map classes;     /* by size */
    gml_tree small_free; /* free pieces of slabs, by size and address */
    gml_link ponds;      /* in stitch->ponds */
};

/* What new views may cost. A view is an investment: making it takes a driver call per chunk, and it
 * pays when it serves again. Each view made spends one credit, each time one serves again earns
 * one. A program that repeats itself makes its views in the first steps and lives on their return.
 * Whoever runs out of credit comes to the next mode, with new credit; plenty leads back to the
 * first. */
enum { GML_VIEW_CREDIT_FIRST = 512, GML_VIEW_CREDIT_MOST = 4096 };

typedef enum gml_stitch_mode {
    GML_MODE_FINE,    /* sizes as asked for */
    GML_MODE_COARSE,  /* new placements are rounded up as PyTorch rounds its segments, so that the
                         sizes of a program that never repeats one (a growing key-value cache) do
                         repeat, and its views return */
    GML_MODE_RESTLESS /* that did not help: sizes as asked for again, and the home space may grow
                         somewhat instead of stitching */
} gml_stitch_mode;

/* Which placement serves first where streams lend each other memory. A stream's own wait least. But
 * which of them is in reach depends on what is known to be complete, so a program that repeats its
 * steps may find another one each time, and make new views for ever. Which is the oldest of all
 * streams depends on nothing but which bytes are live, as within one stream: steps that repeat come
 * to take the same places in turn. So that comes when many views were made, and goes for good where
 * it does not help. */
typedef enum gml_share_turn {
    GML_TURN_OWN_FIRST,
    GML_TURN_OLDEST_FIRST,
    GML_TURN_OWN_AGAIN
} gml_share_turn;

/* Views made until the order changes: the first time, and back, beyond half of those that served.
 */
enum { GML_VIEWS_UNTIL_OLDEST = 256, GML_VIEWS_UNTIL_OWN = 1024 };

/* The rules of GLake's multi-stream reuse, by the knobs borrow_*. A stream that never asked
 * for a `ratio`th of what another held is a side stream to it, and that one its main stream. */
typedef struct gml_share_rules {
    uint64_t ratio;       /* 0: there are no side streams */
    uint64_t slack_bytes; /* that a side stream may take in excess of a request */
    uint64_t pieces;      /* ranges of others that one request may gather */
    bool is_earliest_first;
    bool lends_views;
} gml_share_rules;

/* What the pond of a stream that is gone is found by: nothing. */
#define GML_NO_STREAM UINT64_MAX

typedef struct gml_stitch {
    gml_policy policy;
    gml_home home;
    uint64_t frag_limit, growth_bytes, max_views, max_view_bytes;
    bool is_bounded; /* serve from what is held, or refuse */
    uint64_t next_number;
    uint64_t views, view_bytes; /* mapped */
    uint64_t idle_fresh_count, idle_proven_count;
    uint64_t fresh_limit, fresh_overflows; /* see placement.c */
    uint64_t view_credit;
    gml_stitch_mode mode;
    uint64_t held_bytes, peak_held_bytes; /* of live placements */
    gml_fences fences;
    gml_share_rules share;
    gml_share_turn share_turn;
    uint64_t shared_made, shared_served; /* views made, or that served again, in that order */
    gml_map pond_by_stream;              /* by stream + 1 */
    gml_pond *last_pond;
    gml_link ponds;
    size_t pond_count, gone_count; /* all of them; those whose streams are gone */
    gml_link idle_views;           /* placements with a mapping */
    gml_link idle_fresh;           /* without, that have served once */
    gml_link idle_proven;          /* without, that have served more than once */
    gml_link doomed;               /* views the driver refused to take back, through `idle` */
    gml_pool placements, classes, watches, pieces, slabs;
    gml_run *scratch; /* of choose(), grown as needed */
    size_t scratch_capacity;
    gml_handle *scratch_handles;
    size_t scratch_handle_capacity;
    gml_offer *scratch_offers; /* of borrow.c */
    size_t scratch_offer_room;
} gml_stitch;

static inline gml_stitch *
gml_stitch_of(gml_policy *policy)
{
    return (gml_stitch *)(void *)policy;
}

/* ---- pond.c ------------------------------------------------------------------------------------
 */

/* The pond of a stream, made if need be. */
gml_status gml_pond_find(gml_stitch *stitch, gml_stream stream, gml_pond **out);

/* The class of a size, made if need be; NULL, with a reason, when the host has no memory. */
gml_class *gml_class_find(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes);

/* Ends a class that has no placement. */
void gml_class_drop_if_empty(gml_stitch *stitch, gml_class *class);

/* Notes that the pond asks for that much more, whether or not it gets it. */
static inline void
gml_pond_ask(gml_pond *pond, uint64_t size_bytes)
{
    if (pond->asked_bytes < pond->held_bytes + size_bytes) {
        pond->asked_bytes = pond->held_bytes + size_bytes;
    }
}

/* Counts bytes of the pond that begin, or end, to serve. */
static inline void
gml_pond_hold(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes)
{
    stitch->held_bytes += size_bytes;
    if (stitch->peak_held_bytes < stitch->held_bytes) {
        stitch->peak_held_bytes = stitch->held_bytes;
    }
    pond->held_bytes += size_bytes;
    if (pond->peak_held_bytes < pond->held_bytes) {
        pond->peak_held_bytes = pond->held_bytes;
    }
}

static inline void
gml_pond_let_go(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes)
{
    stitch->held_bytes -= size_bytes;
    pond->held_bytes -= size_bytes;
}

/* The pond at a link of stitch->ponds, and that of a freeset. */
gml_pond *gml_pond_of_link(gml_link *link);
gml_pond *gml_pond_of_set(gml_freeset *set);

/* See gml_lake_forget_stream() and gml_lake_distrust_stream(). */
gml_status gml_pond_forget(gml_policy *self, gml_stream stream);
gml_status gml_pond_distrust(gml_policy *self, gml_stream stream);

/* Ends the ponds of streams that are gone, as far as nothing lives in them: what they hold free is
 * another's then. */
void gml_pond_sweep(gml_stitch *stitch);

/* Frees all ponds: the last step of closing. */
void gml_ponds_close(gml_stitch *stitch);

/* ---- settle.c: waiting before mappings go -----------------------------------------------------
 */

/* Waits for the device, unless the driver is frozen or the stream of `asking` captures: *is_done is
 * false then, and nothing was done. `asking` is the pond that is being served, or NULL. */
gml_status gml_stitch_synchronize(gml_stitch *stitch, const gml_pond *asking, bool *is_done);

/* Waits for what was freed on any stream: not at all where that is known to be complete, for the
 * streams that may still be at it where they can be called, else for the device. Otherwise as
 * above. */
gml_status gml_stitch_settle(gml_stitch *stitch, const gml_pond *asking, bool *is_done);

/* Whether the work that used an idle placement is known to be complete. */
bool gml_placement_is_settled(const gml_placement *placement);

/* ---- share.c: memory of other streams ---------------------------------------------------------
 */

/* Whether a pond may get memory of another one: there is one, and the rules let it. */
static inline bool
gml_share_is_open(const gml_stitch *stitch)
{
    return stitch->pond_count > 1 && gml_fences_are_open(&stitch->fences);
}

/* Whether `pond` is a side stream to `owner`; what it has asked for so far counts. */
bool gml_share_is_side(const gml_stitch *stitch, const gml_pond *pond, const gml_pond *owner);

/* Looks which streams have completed what they freed; the second as far as `pond` may profit. */
void gml_share_poll(gml_stitch *stitch);
void gml_share_look(gml_stitch *stitch, const gml_pond *pond);

/* Whether `pond` may take a part of `extent`, which is free in another pond; made so where the
 * effort allows. A failure of the driver is no more than memory that is out of reach. */
bool gml_share_reach(gml_stitch *stitch, gml_pond *pond, const gml_extent *extent,
                     gml_effort effort);

/* The same whatever the rules for side streams say. */
bool gml_share_reach_any(gml_stitch *stitch, gml_pond *pond, const gml_extent *extent,
                         gml_effort effort);

/* Moves a range of one free extent of another pond, which is in reach, to `pond`.
 * GML_NO_HOST_MEMORY: nothing was moved. */
gml_status gml_share_take(gml_stitch *stitch, gml_pond *pond, uint64_t offset, uint64_t size_bytes);

/* A placement of just that size that is idle in another pond, from now on of `pond` and live; NULL:
 * none is in reach. */
gml_status gml_share_adopt(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes,
                           gml_effort effort, gml_placement **out);

/* The oldest placement of just that size in any pond, from now on of `pond` and live; NULL: none is
 * in reach with `effort`. */
gml_status gml_share_oldest(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes,
                            gml_effort effort, gml_placement **out);

/* Notes that a view was made, or served again, while streams share: the order may change. */
void gml_share_note_made(gml_stitch *stitch);

static inline void
gml_share_note_served(gml_stitch *stitch)
{
    stitch->shared_served += stitch->share_turn == GML_TURN_OLDEST_FIRST;
}

/* Moves all that other ponds hold free to `pond`: the last resort, for which the host waits if it
 * must. *is_any: whether there was anything. */
gml_status gml_share_take_all(gml_stitch *stitch, gml_pond *pond, bool *is_any);

/* See gml_policy_ops. */
gml_status gml_share_order(gml_policy *self, gml_stream later, gml_stream earlier);
void gml_share_pairs(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
                     void *context);

/* ---- borrow.c ----------------------------------------------------------------------------------
 */

/* Moves up to `count` whole chunks that are free in other ponds to `pond`: with GML_KNOWN those in
 * reach at no cost, else those that must be waited for; in one run if `is_one_run`, or none. What
 * it got is seen in pond->set.whole_bytes. GML_NO_HOST_MEMORY, and what was moved stays. */
gml_status gml_share_borrow(gml_stitch *stitch, gml_pond *pond, uint64_t count, bool is_one_run,
                            gml_effort effort);

/* ---- placement.c: taking, parking, scattering --------------------------------------------------
 */

/* Sets up the object pool, the lists and the limits. */
void gml_placement_init(gml_stitch *stitch);

/* The oldest placement of the class that is free, live from now on; NULL if there is none. Bytes of
 * it that other ponds hold are taken where `effort` reaches them. After GML_NO_HOST_MEMORY nothing
 * lives that did not. */
gml_status gml_placement_take(gml_stitch *stitch, gml_class *class, gml_effort effort,
                              gml_placement **out);

/* The same for a class of another pond: the placement is of `class` from now on. */
gml_status gml_placement_adopt(gml_stitch *stitch, gml_class *from, gml_class *class,
                               gml_effort effort, gml_placement **out);

/* Gives the extents of a parked placement back to its pond. */
void gml_placement_scatter(gml_stitch *stitch, gml_placement *placement);

/* Makes a live placement parked and wakes what watches it. Where too many are idle, one is
 * forgotten, which may be this one. */
void gml_placement_park(gml_stitch *stitch, gml_placement *placement);

/* Gives the extents of every parked placement of the pond back to it. */
void gml_pond_unpark(gml_stitch *stitch, gml_pond *pond);

/* A new live placement over `runs` (of the pond of `class`, all free, in view order; neighbours
 * that touch are one run), mapped as a view if there are several. On failure nothing is claimed. */
gml_status gml_placement_create(gml_stitch *stitch, gml_class *class, const gml_run *runs,
                                size_t run_count, gml_placement **out);

/* The first ready placement of `from`, if it can be had for `class`, which may be the same. If not,
 * it is no longer ready; after a failure it still is. pre: there is one. */
gml_status gml_placement_take_first(gml_stitch *stitch, gml_class *from, gml_class *class,
                                    gml_effort effort, gml_placement **out);

/* When the oldest ready placement of the class was released, and its number; UINT64_MAX: there is
 * none. */
uint64_t gml_class_first_freed(const gml_class *class);
uint64_t gml_class_first_number(const gml_class *class);

/* Makes ready what may be free by now: watched and ended, or out of reach when last looked at. */
void gml_class_refresh(gml_stitch *stitch, gml_class *class);

/* Forgets an idle placement; its view is unmapped. The caller has made sure that no work uses it.
 * On failure it is doomed: out of every list but stitch->doomed. */
gml_status gml_placement_destroy(gml_stitch *stitch, gml_placement *placement);

/* Ends a live placement without a view, whose extents become free in its pond. */
void gml_placement_end(gml_stitch *stitch, gml_placement *placement);

/* Tries again to destroy everything that is doomed; returns the first failure. */
gml_status gml_placement_destroy_doomed(gml_stitch *stitch);

/* Gives the host memory of what is still doomed back: the last step of closing. */
void gml_placement_abandon_doomed(gml_stitch *stitch);

/* Puts a placement that may be free into its class's ready set. */
void gml_placement_set_ready(gml_placement *placement);

gml_placement *gml_placement_of_idle(gml_link *link);

/* ---- claim.c: the bytes of a placement that holds none -----------------------------------------
 */

/* An attempt to have a scattered placement for a class, which is its own or that of another pond.
 */
typedef struct gml_claim {
    gml_placement *placement;
    gml_class *class;
    gml_effort effort;
    bool is_visit;   /* for another class, and no matter of its own: it stays ready */
    bool is_foreign; /* other ponds hold bytes of it free */
} gml_claim;

/* Whether it could be had: it then holds its extents. If not, it waits for what stands in the way,
 * or is ready still. pre: a watch is prepared; the placement is neither ready nor waiting. */
gml_status gml_claim_try(gml_stitch *stitch, gml_claim *claim, bool *is_claimed);

/* Takes the extents of a placement, all of which are free in its pond. pre: two extents are
 * prepared for each run. */
void gml_claim_runs(gml_stitch *stitch, gml_placement *placement);

/* ---- view.c ------------------------------------------------------------------------------------
 */

/* Gives a placement of several runs its own mapping, within the limits: idle views make room. After
 * a failure placement->view is 0, or a range that the driver did not take back. */
gml_status gml_view_map(gml_stitch *stitch, gml_placement *placement, const gml_run *runs,
                        size_t run_count);

/* Takes the mapping away, if there is one. A later call goes on where a failed one stopped. */
gml_status gml_view_unmap(gml_stitch *stitch, gml_placement *placement);

/* ---- watch.c -----------------------------------------------------------------------------------
 */

/* Sets up the object pool. */
void gml_watch_init(gml_stitch *stitch);

/* Room for one gml_watch_add, which then cannot fail. */
gml_status gml_watch_prepare(gml_stitch *stitch);

/* The placement, which is scattered, overlaps `holder`, which lives. */
void gml_watch_add(gml_stitch *stitch, gml_placement *placement, gml_placement *holder);

/* Bytes of the placement are in another pond, out of reach. */
void gml_watch_strand(gml_placement *placement);

/* Makes ready what is stranded in the class. */
void gml_watch_retry_stranded(gml_class *class);

/* The holder has ended: the classes of what waits for it will look. */
void gml_watch_wake(gml_placement *holder);

/* Makes ready what waits for holders that have ended and do not live again. */
void gml_watch_resolve(gml_stitch *stitch, gml_class *class);

/* Ends the placement's own waiting, and that of whatever waits for it. */
void gml_watch_forget(gml_stitch *stitch, gml_placement *placement);

/* No watch on this placement could be missed. For checks. */
bool gml_watch_is_valid(const gml_placement *holder);

/* ---- choose.c: which bytes serve a request ----------------------------------------------------
 */

typedef struct gml_choice {
    gml_run *runs; /* in stitch->scratch; valid until the next choice */
    size_t run_count;
    gml_state state;
} gml_choice;

/* Chooses bytes of the class's pond for its size, and grows the home space if it must. The pond is
 * unparked. `may_stitch` false: one range only. GML_OUT_OF_MEMORY if the driver has no more. */
gml_status gml_choose(gml_stitch *stitch, const gml_class *class, bool may_stitch, gml_choice *out);

/* How many whole chunks that would take from the driver. The pond is unparked. */
uint64_t gml_choose_missing(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes,
                            bool may_stitch);

/* Takes `count` chunks from the driver for the pond, or a growth step if that is more and can be
 * had. */
gml_status gml_stitch_grow(gml_stitch *stitch, gml_pond *pond, uint64_t count);

/* ---- lend.c: whole chunks for somebody else's mappings ----------------------------------------
 */

/* Takes `count` whole free chunks out of the pond, one placement each, in the home space as if they
 * served; what is missing is taken from the driver. On failure, GML_OUT_OF_MEMORY among others,
 * nothing was taken. */
gml_status gml_stitch_lend(gml_stitch *stitch, gml_pond *pond, size_t count, gml_placement **out);

/* The end of a chunk that was lent. The caller has unmapped it, after waiting for what used it. */
void gml_stitch_take_back(gml_stitch *stitch, gml_placement *chunk);

/* The physical memory of a chunk that was lent. */
gml_handle gml_stitch_handle(const gml_stitch *stitch, const gml_placement *chunk);

/* ---- small.c: requests up to 1 MiB ------------------------------------------------------------
 */

/* Sets up the object pools. */
void gml_small_init(gml_stitch *stitch);

gml_status gml_small_allocate(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes,
                              gml_block **out);
void gml_small_free(gml_stitch *stitch, gml_block *block);

/* The pieces of a slab, for snapshots; and their invariants, for checks. */
void gml_slab_visit(const gml_slab *slab, const gml_visitor *visitor);
uint64_t gml_slab_used_bytes(const gml_slab *slab);
bool gml_slab_is_valid(const gml_slab *slab);

/* ---- place.c: serving a size -------------------------------------------------------------------
 */

/* Serves `size_bytes`, a multiple of 512, in a placement of its own. */
gml_status gml_stitch_place(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes,
                            gml_placement **out);

/* ---- trim.c ------------------------------------------------------------------------------------
 */

gml_status gml_stitch_trim(gml_policy *self, uint64_t *released_bytes);

/* ---- inspect.c: the whole structure, read only ------------------------------------------------
 */

gml_status gml_stitch_check(gml_policy *self);
void gml_stitch_visit(gml_policy *self, const gml_visitor *visitor);
void gml_stitch_usage(gml_policy *self, gml_usage *out);

#endif
