/* The policy `plan`: the structures its files share.
 *
 *   inner        the policy `stitch`, which serves all that no plan serves
 *   layout       a step, and the places of its requests: watched, or an active plan
 *   kind         similar steps: those watched last, and the layouts that serve
 *   reservation  bytes that serve layouts cheaply (reservation.h)
 *
 * A step that the inner policy has served twice in exactly the same way becomes a plan: the next
 * step with the same requests gets the same places, without a search. Placement depends on the
 * blocks live when the step began, and on all requests and frees since. The plan compares these: at
 * the first deviating request or free the inner policy takes over, and finds its memory as if it
 * had served the step from the beginning. So a plan never takes memory, or makes a driver call,
 * that the inner policy alone would not.
 *
 * Small requests are served by the inner policy, in slabs; a plan places the slabs.
 *
 * The only other plans are those of a file. Their pool is taken from the driver in one piece,
 * before the first step.
 */
#ifndef GML_STEPS_PLANNED_H
#define GML_STEPS_PLANNED_H

#include "policy/steps/reservation.h"
#include "policy/steps/steps.h"

enum {
    GML_SERVED_ALIKE = 2, /* steps of a kind, before a plan serves the next one like them */
    GML_KEPT_WATCHED = 2, /* steps of a kind, whose requests and frees are remembered */
    GML_KEPT_PLANS = 16,  /* of a kind */
    GML_KEPT_PAST = 64,   /* steps of a kind of which is remembered how they were served */
};

/* The most requests of a step, so that a step that never ends does not exhaust host memory. */
enum { GML_MOST_REQUESTS = 1 << 22 };

/* One request of a layout. */
typedef struct gml_entry {
    uint64_t size_bytes; /* a multiple of 512 */
    gml_stream stream;
    uint64_t ended;               /* gml_open_step.ended at the request */
    gml_reservation *reservation; /* NULL: left to the inner policy */
    gml_place place; /* of a small request: of the slab that is opened for it, if one is */
    uint64_t birth, death, death_serial; /* where it is watched, see gml_step_request */
} gml_entry;

typedef struct gml_layout {
    gml_entry *entries; /* in request order */
    size_t entry_count, entry_room;
    uint64_t state;       /* of the memory when such a step begins, see learn.c */
    uint64_t mark;        /* of that and all entries: what tells layouts apart */
    uint64_t fingerprint; /* of the requests alone */
    uint64_t last_used;   /* number of the step that it served last */
    unsigned failures;    /* since it last served a whole step */
    bool is_loaded;       /* from a file: requests it leaves out are long-lived */
    bool has_places;      /* false: they are known no more, and nothing can be learned from it */
    bool is_cut;          /* too long, or the host had no memory: no request is known */
    unsigned holders;     /* of the open step, of what was watched, of what serves */
    /* of a watched step: */
    struct gml_kind *kind;
    uint64_t number; /* over all kinds, from 1; 0: it is not watched */
    uint64_t serial, event_count;
} gml_layout;

/* A step that has ended. */
typedef struct gml_past_step {
    uint64_t mark, fingerprint;
} gml_past_step;

typedef struct gml_kind {
    struct gml_kind *next;
    uint64_t id;
    uint64_t serial;                       /* of the step begun last, from 1 */
    gml_layout *watched[GML_KEPT_WATCHED]; /* steps that have ended, the youngest first */
    size_t watched_count;
    gml_layout *layouts[GML_KEPT_PLANS];
    size_t layout_count;
    gml_layout *loaded[GML_KEPT_PLANS]; /* in a pool that is yet to be taken */
    size_t loaded_count;
    gml_past_step past[GML_KEPT_PAST]; /* the youngest first */
    size_t past_count;
    uint64_t learn_after, backoff; /* serial; steps: see learn.c */
} gml_kind;

/* The step that is open. */
typedef struct gml_open_step {
    gml_kind *kind;     /* NULL: no step is open */
    gml_layout *layout; /* the plan that serves; NULL: none, or none any more */
    size_t position;    /* in it */
    gml_layout *seen;   /* the step as it was served so far, to learn from; NULL: a plan serves */
    uint64_t state;
    uint64_t ended;  /* an order-independent hash of the placements that ended in it */
    uint64_t number; /* over all kinds */
    uint64_t calls_before;
    gml_step_report report;
} gml_open_step;

typedef struct gml_planned {
    gml_policy policy; /* must be first */
    gml_policy *inner;
    gml_stitch *stitch; /* the same */
    gml_reservation *reservations;
    gml_kind *kinds;
    gml_map watched; /* steps, by number */
    uint64_t next_number;
    gml_open_step open;
    gml_step_stats stats;
    bool plans_by_itself; /* at marks: the lake was opened with the policy `plan` */
    bool has_loaded;      /* of some kind */
} gml_planned;

static inline gml_planned *gml_planned_of(gml_policy *policy) {
    return (gml_planned *)(void *)policy;
}

/* ---- planned.c ------------------------------------------------------------------------------- */

/* Gives all that is held back to the inner policy. GML_NO_HOST_MEMORY. */
gml_status gml_planned_yield(gml_planned *planned);

/* The reservation of a stream, opened if need be; NULL when the host has no memory. */
gml_reservation *gml_planned_reservation(gml_planned *planned, gml_stream stream);

/* ---- layout.c: kinds and layouts ------------------------------------------------------------- */

/* The kind of that number; NULL if unknown. */
gml_kind *gml_kind_find(const gml_planned *planned, uint64_t id);

/* The same, made if need be; NULL, with a reason, when the host has no memory. */
gml_kind *gml_kind_make(gml_planned *planned, uint64_t id);

/* Forgets its layouts. pre: all reservations have yielded, none of them serves. */
void gml_kind_drop_layouts(gml_planned *planned, gml_kind *kind);

/* Frees all kinds. pre: no step is open. */
void gml_kinds_close(gml_planned *planned);

/* An empty layout; NULL when the host has no memory. */
gml_layout *gml_layout_new(uint64_t state);

/* A layout with the first entries of another. NULL, as there. */
gml_layout *gml_layout_begin_of(const gml_planned *planned, const gml_layout *layout, size_t count);

/* Adds a request. false: the host has no memory. */
bool gml_layout_push(gml_layout *layout, const gml_entry *entry);

/* Adds the request that `block` serves, in a slab that was opened for it or not, when so much had
 * ended. false: it was cut, or the host has no memory. */
bool gml_layout_add(gml_layout *layout, const gml_stitch *stitch, const gml_block *block,
                    bool opens_slab, uint64_t ended);

/* Forgets its places, and unpins its views. pre: all reservations have yielded. */
void gml_layout_drop_places(const gml_planned *planned, gml_layout *layout);

/* Forgets all that happened in it, for good. pre: as there. */
void gml_layout_cut(const gml_planned *planned, gml_layout *layout);

/* One holder less. NULL is allowed. pre: the last has dropped the places. */
void gml_layout_release(gml_layout *layout);

/* Both. pre: as there. */
void gml_layout_free(const gml_planned *planned, gml_layout *layout);

/* Takes a layout out of its kind and frees it. pre: as there. */
void gml_layout_drop(gml_planned *planned, gml_kind *kind, gml_layout *layout);

/* Adds a layout to a kind, instead of the one used least lately where there are too many. pre: all
 * holds have yielded. On failure, without host memory, it is freed. */
bool gml_kind_keep_layout(gml_planned *planned, gml_kind *kind, gml_layout *layout);

/* ---- learn.c: from steps to layouts, and which serves ---------------------------------------- */

/* A hash of all live placements, except those in slabs, and of the memory size: if it is the same
 * when a step begins, the inner policy serves the step in the same way. */
uint64_t gml_planned_state(const gml_planned *planned);

/* The layout to begin the open step with; NULL: the step is to be watched. */
gml_layout *gml_kind_predict(const gml_open_step *open);

/* The entry for a request of the open step, in the serving plan or in another with the same
 * beginning, which then serves; NULL: none. */
const gml_entry *gml_step_meet(gml_open_step *open, uint64_t bytes, gml_stream stream);

/* Remembers how a step was served, and makes it a plan if that was so before. Returns what there is
 * to say about it. */
const char *gml_kind_learn(gml_planned *planned, gml_kind *kind, gml_layout *seen);

/* Records a step that a layout has served; NULL: an unknown step. */
void gml_kind_note_step(gml_kind *kind, const gml_layout *layout);

/* No plan serves the rest of the open step. */
void gml_planned_leave(gml_planned *planned, const char *why);

/* ---- loaded.c -------------------------------------------------------------------------------- */

/* Takes a pool for what was loaded, which then serves. */
void gml_planned_place_loaded(gml_planned *planned);

/* ---- watch.c: what happens in steps ---------------------------------------------------------- */

/* Begins to watch the open step. Without host memory it is not watched. */
void gml_planned_watch(gml_planned *planned);

/* The step that was seen has ended: it comes before those of its kind. */
void gml_kind_keep_watched(gml_planned *planned, gml_kind *kind, gml_layout *seen);

/* The block that a note stands for is freed now. */
void gml_planned_note_free(gml_planned *planned, uint64_t note);

/* ---- serve.c --------------------------------------------------------------------------------- */

/* Serves a request, in the open step if there is one. */
gml_status gml_planned_allocate(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                                gml_block **out);

/* ---- open_plan.c ----------------------------------------------------------------------------- */

/* gml_policy_ops.mark */
gml_status gml_planned_mark(gml_policy *self);

#endif
