/* Fences: which work must have run before freed memory may serve another stream.
 *
 * Every free is an instant of one clock, which only counts. A fence is (timeline, instant): the
 * memory may be reused by others after the work that was queued on that stream at that instant. A
 * free costs no driver call: the first stream that needs the memory records ONE event on the owner,
 * which covers every free of the owner until then, and waits for it; the wait is remembered, so
 * everything the event covers is then free of cost to that stream. Events are queried when memory
 * is needed, and an instant found complete is complete for all streams.
 *
 *   timeline  one stream: its last free, its marks, up to where it is complete
 *   mark      an event, and the instant up to which it covers its stream's frees
 *   pair      the order of two streams: up to which instant one runs after the other
 *
 * No lock of its own: every caller holds the lake's.
 */
#ifndef GML_CORE_FENCES_H
#define GML_CORE_FENCES_H

#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "core/events.h"

typedef struct gml_timeline {
    gml_stream stream;
    uint64_t number;    /* of the timeline, from 1 */
    uint64_t last;      /* instant of its last free; 0: none */
    uint64_t marked;    /* instants up to this one are covered by a mark, or complete */
    uint64_t completed; /* instants up to this one are known to be complete */
    bool is_callable;   /* calls may be made on the stream: it exists */
    bool is_ended;      /* no work is queued behind `last` any more */
    gml_link marks;     /* not known to be complete, the oldest first */
    size_t mark_count;
    uint64_t requests; /* made by the stream: what the limits of its pairs are counted in */
} gml_timeline;

typedef struct gml_pair {
    gml_link link; /* in fences->all_pairs */
    gml_stream owner, borrower;
    uint64_t owner_number, borrower_number;
    uint64_t ordered; /* the borrower comes after the owner's frees up to this instant */
    uint64_t waits, refused_waits;
    uint64_t refused_request; /* of the borrower: counts one refusal per request, however many
                                 attempts */
    uint64_t borrows, borrowed_bytes;
    uint64_t window, window_waits; /* the borrower's current stretch of requests, waits in it */
} gml_pair;

/* How far sharing may go: the knobs reuse_* and borrow_waits. */
typedef struct gml_fence_rules {
    bool follows_events;   /* reuses a known ordering */
    bool is_opportunistic; /* reuses memory whose events have completed */
    bool may_wait;
    uint64_t most_waits; /* of a pair, per GML_WAIT_WINDOW requests of the borrower */
} gml_fence_rules;

enum { GML_WAIT_WINDOW = 1024 };

typedef struct gml_fences {
    gml_driver *driver;
    gml_fence_rules rules;
    gml_events events;
    uint64_t clock; /* the latest instant */
    uint64_t next_number;
    gml_map pairs; /* by both numbers */
    gml_link all_pairs;
    gml_pool pair_objects, marks;
    uint64_t waits, borrowed_bytes;
} gml_fences;

/* How hard to try: see gml_fence_pass(). */
typedef enum gml_effort {
    GML_KNOWN, /* no call, no limit touched */
    GML_WAIT,  /* within the limit of waits */
    GML_URGENT /* beyond it: the alternative is to wait for the whole device */
} gml_effort;

void gml_fences_init(gml_fences *fences, gml_driver *driver, const gml_fence_rules *rules);

/* Destroys the events. pre: every timeline is closed. */
void gml_fences_close(gml_fences *fences);

/* Whether the rules let a stream use any memory of another before the device was waited for. */
static inline bool
gml_fences_are_open(const gml_fences *fences)
{
    return fences->rules.follows_events || fences->rules.is_opportunistic || fences->rules.may_wait;
}

/* The pair at a link of fences->all_pairs. */
gml_pair *gml_pair_of_link(gml_link *link);

void gml_timeline_open(gml_fences *fences, gml_timeline *timeline, gml_stream stream);
void gml_timeline_close(gml_fences *fences, gml_timeline *timeline);

/* The instant of a free on the stream that happens now; never 0. */
static inline uint64_t
gml_fence_now(gml_fences *fences, gml_timeline *timeline)
{
    if (!timeline->is_ended) {
        timeline->last = ++fences->clock;
    }
    return timeline->last;
}

/* Whether all that the timeline freed is known to be complete. */
static inline bool
gml_timeline_is_complete(const gml_timeline *timeline)
{
    return timeline->completed >= timeline->last;
}

/* Queries the timeline's marks, until one is not complete. A failure loses nothing. */
void gml_fence_poll(gml_fences *fences, gml_timeline *timeline);

/* Has a mark cover all that the timeline freed, where calls may be made on it: otherwise, and while
 * it captures or the driver is frozen, *is_marked is false. */
gml_status gml_fence_mark(gml_fences *fences, gml_timeline *timeline, bool *is_marked);

/* Whether `borrower` may use what `owner` freed at `instant`. With an effort above GML_KNOWN it is
 * made so by a wait if it is not; not where the rules, the limit or a capture forbid it. */
gml_status gml_fence_pass(gml_fences *fences, gml_timeline *borrower, gml_timeline *owner,
                          uint64_t instant, gml_effort effort, bool *is_passed);

/* The host has waited for all that the timeline's stream was given. */
void gml_fence_complete(gml_fences *fences, gml_timeline *timeline);

/* Waits for all work before the timeline's frees. *is_done false: no call may be made on the
 * stream, and nothing was done. */
gml_status gml_fence_wait(gml_fences *fences, gml_timeline *timeline, bool *is_done);

/* The program has made `later` wait for `earlier`. GML_NO_HOST_MEMORY. */
gml_status gml_fence_tell(gml_fences *fences, const gml_timeline *later,
                          const gml_timeline *earlier);

/* The stream will be destroyed: the last mark is made, if it can be, and no call after it. */
void gml_fence_forget(gml_fences *fences, gml_timeline *timeline);

/* `borrower` took `size_bytes` of the owner's memory. GML_NO_HOST_MEMORY counts it in the sum only.
 */
void gml_fence_count(gml_fences *fences, const gml_timeline *borrower, const gml_timeline *owner,
                     uint64_t size_bytes);

#endif
