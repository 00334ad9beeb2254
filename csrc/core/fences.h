/* Fences: when freed memory may serve another stream, or leave the process.
 *
 * A freed block serves its own stream again at once: work on one stream runs in order. Whatever
 * else may still use it was queued before the free, on any stream: a program may have lent a tensor
 * to a stream that never allocates, freed it, and ordered nothing but the tensor's own stream
 * behind that use. So freed memory is passed by the whole device or not at all.
 *
 * Every free is an instant of one clock, which only counts. A free costs no driver call. The first
 * stream that needs the memory of another has ONE event recorded behind everything that the device
 * was given (a mark), which covers every free until then, and waits for it; the wait is remembered,
 * so everything that the mark covers is then free of cost to that stream. Marks are queried when
 * memory is needed, and an instant found complete is complete for all streams.
 *
 *   mark    an event, and the instant up to which it covers the frees
 *   seeker  a stream that asks for memory: up to which instant it runs after the frees
 *   pair    two streams, and what the one took of the other: it is only counted
 *
 * No lock of its own: every caller holds the lake's.
 */
#ifndef GML_CORE_FENCES_H
#define GML_CORE_FENCES_H

#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "core/events.h"

typedef struct gml_seeker {
    gml_stream stream;
    uint64_t number;               /* of the seeker, from 1 */
    uint64_t ordered;              /* it runs after all frees up to this instant */
    uint64_t requests;             /* that it made: what the limit of its waits is counted in */
    uint64_t window, window_waits; /* the current stretch of requests, and the waits in it */
    uint64_t refused_request;      /* counts one refusal per request, however many attempts */
} gml_seeker;

typedef struct gml_pair {
    gml_link link; /* in fences->all_pairs */
    gml_stream owner, borrower;
    uint64_t owner_number, borrower_number;
    uint64_t waits, refused_waits, borrows, borrowed_bytes;
} gml_pair;

/* How far sharing may go: the knobs reuse_* and borrow_waits. */
typedef struct gml_fence_rules {
    bool follows_events;   /* reuses memory that a stream has waited for by now */
    bool is_opportunistic; /* reuses memory whose marks have completed */
    bool may_wait;
    uint64_t most_waits; /* of a stream, per GML_WAIT_WINDOW of its requests */
} gml_fence_rules;

enum { GML_WAIT_WINDOW = 1024 };

typedef struct gml_fences {
    gml_driver *driver;
    gml_fence_rules rules;
    gml_events events;
    uint64_t clock;     /* the latest instant */
    uint64_t marked;    /* instants up to this one are covered by a mark, or complete */
    uint64_t completed; /* instants up to this one are known to be complete */
    gml_link marks;     /* not known to be complete, the oldest first */
    size_t mark_count;
    bool cannot_mark; /* the device has no such event */
    uint64_t next_number;
    gml_map pairs; /* by both numbers */
    gml_link all_pairs;
    gml_pool pair_objects, mark_objects;
    uint64_t waits, borrowed_bytes;
} gml_fences;

/* How hard to try: see gml_fence_pass(). */
typedef enum gml_effort {
    GML_KNOWN, /* no call, no limit touched */
    GML_WAIT,  /* within the limit of waits */
    GML_URGENT /* beyond it: the alternative is to wait for the whole device */
} gml_effort;

void gml_fences_init(gml_fences *fences, gml_driver *driver, const gml_fence_rules *rules);

/* Destroys the events. */
void gml_fences_close(gml_fences *fences);

/* Whether the rules let a stream use any memory of another before the device was waited for. */
static inline bool gml_fences_are_open(const gml_fences *fences) {
    return fences->rules.follows_events || fences->rules.is_opportunistic || fences->rules.may_wait;
}

/* The pair at a link of fences->all_pairs. */
gml_pair *gml_pair_of_link(gml_link *link);

void gml_seeker_open(gml_fences *fences, gml_seeker *seeker, gml_stream stream);
void gml_seeker_close(gml_fences *fences, const gml_seeker *seeker);

/* The instant of a free that happens now; never 0. */
static inline uint64_t gml_fence_now(gml_fences *fences) {
    return ++fences->clock;
}

/* Whether the work before a free at `instant` is known to be complete. */
static inline bool gml_fence_is_over(const gml_fences *fences, uint64_t instant) {
    return fences->completed >= instant;
}

/* Queries the marks, until one is not complete. A failure loses nothing. */
void gml_fence_poll(gml_fences *fences);

/* Has a mark cover all that was freed. Where the device has no such event, and during a capture,
 * fences->marked stays behind. */
gml_status gml_fence_mark(gml_fences *fences);

/* The same for a stream that asks, unless that captures: a mark would break its capture. */
gml_status gml_fence_mark_for(gml_fences *fences, const gml_seeker *asking);

/* Whether `borrower` may use what `owner` freed at `instant`, or anybody, if that is NULL. With an
 * effort above GML_KNOWN it is made so by a wait if it is not; not where the rules, the limit or a
 * capture forbid it. */
gml_status gml_fence_pass(gml_fences *fences, gml_seeker *borrower, const gml_seeker *owner,
                          uint64_t instant, gml_effort effort, bool *is_passed);

/* The host has waited for all that the device was given. */
void gml_fence_complete(gml_fences *fences);

/* `borrower` took `size_bytes` of the owner's memory. GML_NO_HOST_MEMORY counts it in the sum only.
 */
void gml_fence_count(gml_fences *fences, const gml_seeker *borrower, const gml_seeker *owner,
                     uint64_t size_bytes);

#endif
