/* The policy `plan`: the structures its files share.
 *
 *   inner   the policy `stitch`, which serves whatever no plan serves, and lends its chunks
 *   lane    the pool of one stream (lane.h)
 *   record  a step as it was watched (record.h)
 *   kind    steps that are alike: their last records, and the plans for them
 *   slot    a plan at work: where matching stands, which stream each of its lanes is
 *
 * A plan never decides alone: an address is handed out only if nothing live overlaps it (the guard,
 * plan/occupancy.h). So a wrong plan costs memory, never correctness.
 */
#ifndef GML_PLAN_PLANNED_H
#define GML_PLAN_PLANNED_H

#include "plan/lane.h"
#include "plan/record.h"
#include "plan/steps.h"
#include "planner/matcher.h"

enum {
    GML_KEPT_RECORDS = 4, /* steps of a kind that are remembered */
    GML_KEPT_PLANS = 16,  /* of a kind */
    GML_KEPT_PAST = 64,   /* steps of a kind whose fingerprints are remembered */
};

typedef struct gml_slot {
    gml_plan *plan;
    gml_matcher matcher;
    gml_stream *streams; /* by lane of the plan, once bound */
    bool *is_bound;
    uint64_t last_used; /* number of the step that it served last */
    unsigned step;      /* of the period, that it serves or served last */
    bool is_prepared;   /* what was idle when it began to serve is attached */
    bool is_dropped;    /* to be freed when the open step ends */
} gml_slot;

typedef struct gml_kind {
    struct gml_kind *next;
    uint64_t id;
    uint64_t serial;                       /* of the step begun last, from 1 */
    gml_record *records[GML_KEPT_RECORDS]; /* of steps that have ended, the youngest first */
    size_t record_count;
    gml_slot *slots[GML_KEPT_PLANS];
    size_t slot_count;
    uint64_t past[GML_KEPT_PAST]; /* fingerprints of the last steps, the youngest first */
    size_t past_count;
    gml_slot *latest;              /* served the last step; NULL: none did */
    uint64_t plan_after, patience; /* see auto.c */
} gml_kind;

/* The step that is open. */
typedef struct gml_open_step {
    gml_record *record; /* NULL: no step is open */
    gml_slot *slot;     /* the plan that serves; NULL: none */
    bool is_settled;    /* no other plan comes into question */
    uint32_t phase, scope;
    size_t visit;         /* of the plan, for the scope; SIZE_MAX: none */
    size_t visit_request; /* requests in this visit so far */
    size_t next_visit;    /* behind the visit found last */
    bool is_refused;      /* the last request was refused, and may be asked again: */
    uint64_t refused_bytes;
    gml_stream refused_stream;
    size_t refused_entry;
    uint64_t calls_before;
    gml_step_report report;
} gml_open_step;

typedef struct gml_planned {
    gml_policy policy; /* must be first */
    gml_policy *inner;
    gml_stitch *stitch; /* the same */
    gml_lanes lanes;
    gml_kind *kinds;
    gml_map records; /* all of them, by number */
    uint64_t next_number;
    gml_open_step open;
    gml_plan_stats stats;
    uint64_t profile_steps, budget_ms;
    bool plans_by_itself; /* at marks: the lake was opened with the policy `plan` */
    uint32_t window;
} gml_planned;

static inline gml_planned *
gml_planned_of(gml_policy *policy)
{
    return (gml_planned *)(void *)policy;
}

/* ---- serve.c --------------------------------------------------------------------------------- */

/* Serves a request, in the open step if there is one. */
gml_status gml_planned_allocate(gml_planned *planned, uint64_t size_bytes, gml_stream stream,
                                gml_block **out);

/* ---- auto.c ---------------------------------------------------------------------------------- */

/* gml_policy_ops.mark */
gml_status gml_planned_mark(gml_policy *self, const gml_pause *pause);

/* ---- kind.c: kinds and slots ----------------------------------------------------------------- */

/* The kind of that number; NULL if there is none. */
gml_kind *gml_kind_find(const gml_planned *planned, uint64_t id);

/* The same, made if need be; NULL, with a reason, when the host has no memory. */
gml_kind *gml_kind_make(gml_planned *planned, uint64_t id);

/* Frees all kinds. pre: no step is open. */
void gml_kinds_close(gml_planned *planned);

/* Frees a slot, or has the end of the open step do so. */
void gml_slot_drop(gml_planned *planned, gml_slot *slot);

/* The number of the stream's lane in the plan, which is bound to it if that stream is the one that
 * was watched, or asks for what the plan expects there; UINT32_MAX: none. */
uint32_t gml_slot_lane(gml_slot *slot, gml_stream stream, uint64_t size_bytes);

/* The plan to begin the next step of the kind with; NULL: there is none. */
gml_slot *gml_slot_foresee(const gml_kind *kind);

/* Lets the slot serve the open step, as step `step` of its period. */
void gml_slot_begin(gml_planned *planned, gml_slot *slot, unsigned step);

/* A plan of the kind, and a step of its period, that begins with all requests of the open step;
 * true if another than the one that serves does, which then serves. `count`: the requests so far.
 */
bool gml_planned_switch(gml_planned *planned, size_t count);

/* The program entered the dynamic scope: the plan's visit that this is becomes open->visit, the
 * next of that scope behind the visit found last, around the end. */
void gml_open_visit(gml_open_step *open, uint32_t scope);

/* ---- watch.c: what happens in steps ---------------------------------------------------------- */

/* The block that a note stands for is freed now. */
void gml_planned_note_free(gml_planned *planned, uint64_t note);

/* ---- taken.c: what a plan must leave where it is --------------------------------------------- */

/* A block in a lane is freed now: if an earlier step made it, the open one remembers. */
void gml_planned_note_inherited(gml_planned *planned, const gml_lane_block *block);

/* Fills profile->taken for a plan for `last`. GML_NO_HOST_MEMORY. */
gml_status gml_planned_list_taken(const gml_planned *planned, const gml_record *last,
                                  gml_profile *profile);

/* ---- leave.c --------------------------------------------------------------------------------- */

/* Makes requests of the profile seem endless, so that they are not planned, where what the inner
 * policy has left over of chunks can serve them. */
void gml_planned_leave_small(gml_planned *planned, gml_profile *profile);

#endif
