/* Timelines with their marks, and what pairs of them know of each other. */
#include "core/fences.h"

#include <stddef.h>

/* Marks kept per timeline. Further ones replace the youngest: the oldest completes first, and the
 * newest covers most. */
enum { MOST_MARKS = 16 };

typedef struct mark {
    gml_link link; /* in timeline->marks */
    gml_event event;
    uint64_t instant;
} mark;

static mark *
mark_of(gml_link *link)
{
    return (mark *)(void *)((char *)link - offsetof(mark, link));
}

gml_pair *
gml_pair_of_link(gml_link *link)
{
    return (gml_pair *)(void *)((char *)link - offsetof(gml_pair, link));
}

/* Programs never reach their 2^32nd stream. */
static uint64_t
key_of(uint64_t borrower_number, uint64_t owner_number)
{
    return borrower_number << 32 | (owner_number & UINT32_MAX);
}

void
gml_fences_init(gml_fences *fences, gml_driver *driver, const gml_fence_rules *rules)
{
    *fences = (gml_fences){.driver = driver, .rules = *rules};
    gml_events_init(&fences->events, driver);
    gml_list_init(&fences->all_pairs);
    fences->pair_objects.object_bytes = sizeof(gml_pair);
    fences->marks.object_bytes = sizeof(mark);
}

void
gml_fences_close(gml_fences *fences)
{
    gml_events_close(&fences->events);
    gml_map_clear(&fences->pairs);
    gml_pool_clear(&fences->pair_objects);
    gml_pool_clear(&fences->marks);
}

/* ---- timelines and marks --------------------------------------------------------------------- */

/* Whether the handle means the same stream in every thread. */
static bool
is_nameable(const gml_fences *fences, gml_stream stream)
{
    return !stream || stream != fences->driver->per_thread_stream;
}

void
gml_timeline_open(gml_fences *fences, gml_timeline *timeline, gml_stream stream)
{
    *timeline = (gml_timeline){
        .stream = stream,
        .number = ++fences->next_number,
        .is_callable = is_nameable(fences, stream),
    };
    gml_list_init(&timeline->marks);
}

static void
drop_mark(gml_fences *fences, gml_timeline *timeline, mark *dropped)
{
    gml_list_remove(&dropped->link);
    timeline->mark_count--;
    gml_events_give(&fences->events, dropped->event);
    gml_pool_give(&fences->marks, dropped);
}

static void
drop_marks(gml_fences *fences, gml_timeline *timeline)
{
    while (timeline->mark_count) {
        drop_mark(fences, timeline, mark_of(timeline->marks.next));
    }
}

void
gml_timeline_close(gml_fences *fences, gml_timeline *timeline)
{
    drop_marks(fences, timeline);
    for (gml_link *link = fences->all_pairs.next, *next; link != &fences->all_pairs; link = next) {
        gml_pair *pair = gml_pair_of_link(link);
        next = link->next;
        if (pair->owner_number == timeline->number || pair->borrower_number == timeline->number) {
            (void)gml_map_take(&fences->pairs, key_of(pair->borrower_number, pair->owner_number));
            gml_list_remove(link);
            gml_pool_give(&fences->pair_objects, pair);
        }
    }
}

static void
advance(gml_timeline *timeline, uint64_t instant)
{
    if (timeline->completed < instant) {
        timeline->completed = instant;
    }
    if (timeline->marked < instant) {
        timeline->marked = instant;
    }
}

void
gml_fence_poll(gml_fences *fences, gml_timeline *timeline)
{
    while (timeline->mark_count && !gml_driver_is_frozen(fences->driver)) {
        mark *oldest = mark_of(timeline->marks.next);
        if (gml_driver_event_query(fences->driver, oldest->event) != GML_OK) {
            return;
        }
        advance(timeline, oldest->instant);
        drop_mark(fences, timeline, oldest);
    }
}

void
gml_fence_complete(gml_fences *fences, gml_timeline *timeline)
{
    drop_marks(fences, timeline);
    advance(timeline, timeline->last);
}

/* Records `event` on the timeline; *is_recorded false: its stream captures. */
static gml_status
record(gml_fences *fences, const gml_timeline *timeline, gml_event event, bool *is_recorded)
{
    gml_status status = gml_driver_event_record(fences->driver, event, timeline->stream);
    *is_recorded = status == GML_OK;
    return status == GML_MISUSE ? GML_OK : status;
}

static gml_status
add_mark(gml_fences *fences, gml_timeline *timeline, bool *is_marked)
{
    gml_event event;
    mark *added = gml_pool_take(&fences->marks);
    if (!added) {
        return gml_driver_fail(fences->driver, GML_NO_HOST_MEMORY, "no host memory for a mark");
    }
    gml_status status = gml_events_take(&fences->events, &event);
    if (status == GML_OK) {
        status = record(fences, timeline, event, is_marked);
        if (!*is_marked) {
            gml_events_give(&fences->events, event);
        }
    }
    if (!*is_marked) {
        gml_pool_give(&fences->marks, added);
        return status;
    }
    if (timeline->mark_count == MOST_MARKS) {
        drop_mark(fences, timeline, mark_of(timeline->marks.previous));
    }
    added->event = event;
    added->instant = timeline->last;
    gml_list_append(&timeline->marks, &added->link);
    timeline->mark_count++;
    timeline->marked = timeline->last;
    return GML_OK;
}

gml_status
gml_fence_mark(gml_fences *fences, gml_timeline *timeline, bool *is_marked)
{
    *is_marked = timeline->marked >= timeline->last;
    if (*is_marked || !timeline->is_callable || gml_driver_is_frozen(fences->driver)) {
        return GML_OK;
    }
    return add_mark(fences, timeline, is_marked);
}

gml_status
gml_fence_wait(gml_fences *fences, gml_timeline *timeline, bool *is_done)
{
    gml_fence_poll(fences, timeline);
    *is_done = gml_timeline_is_complete(timeline);
    if (*is_done || gml_driver_is_frozen(fences->driver)) {
        return GML_OK;
    }
    bool is_marked = false;
    gml_status status = gml_fence_mark(fences, timeline, &is_marked);
    if (status != GML_OK || !is_marked) {
        return status;
    }
    status = gml_driver_event_synchronize(fences->driver, mark_of(timeline->marks.previous)->event);
    if (status == GML_OK) {
        gml_fence_complete(fences, timeline);
        *is_done = true;
    }
    return status;
}

void
gml_fence_forget(gml_fences *fences, gml_timeline *timeline)
{
    /* The stream still exists now, even if it is marked as external. */
    timeline->is_callable = is_nameable(fences, timeline->stream);
    /* An instant behind every free, so that blocks which are still live have a fence too. */
    (void)gml_fence_now(fences, timeline);
    bool is_marked = false;
    timeline->is_ended = gml_fence_mark(fences, timeline, &is_marked) == GML_OK && is_marked;
    timeline->is_callable = false;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* NULL when the host has no memory. */
static gml_pair *
find_pair(gml_fences *fences, const gml_timeline *borrower, const gml_timeline *owner)
{
    uint64_t key = key_of(borrower->number, owner->number);
    gml_pair *pair = gml_map_find(&fences->pairs, key);
    if (pair) {
        return pair;
    }
    pair = gml_pool_take(&fences->pair_objects);
    if (!pair || gml_map_insert(&fences->pairs, key, pair) != GML_OK) {
        gml_pool_give(&fences->pair_objects, pair);
        return NULL;
    }
    pair->owner = owner->stream;
    pair->borrower = borrower->stream;
    pair->owner_number = owner->number;
    pair->borrower_number = borrower->number;
    gml_list_append(&fences->all_pairs, &pair->link);
    return pair;
}

void
gml_fence_count(gml_fences *fences, const gml_timeline *borrower, const gml_timeline *owner,
                uint64_t size_bytes)
{
    gml_pair *pair = find_pair(fences, borrower, owner);
    fences->borrowed_bytes += size_bytes;
    if (pair) {
        pair->borrows++;
        pair->borrowed_bytes += size_bytes;
    }
}

gml_status
gml_fence_tell(gml_fences *fences, const gml_timeline *later, const gml_timeline *earlier)
{
    gml_pair *pair = find_pair(fences, later, earlier);
    if (!pair) {
        return gml_driver_fail(fences->driver, GML_NO_HOST_MEMORY,
                               "no host memory for an ordering of streams");
    }
    pair->ordered = earlier->last;
    return GML_OK;
}

static bool
is_known_to_pass(const gml_fences *fences, const gml_timeline *borrower, const gml_timeline *owner,
                 uint64_t instant)
{
    if (owner == borrower || (fences->rules.is_opportunistic && owner->completed >= instant)) {
        return true;
    }
    if (!fences->rules.follows_events) {
        return false;
    }
    const gml_pair *pair = gml_map_find(&fences->pairs, key_of(borrower->number, owner->number));
    return pair && pair->ordered >= instant;
}

/* Whether the limit lets the pair wait once more; counted as refused where it does not. */
static bool
may_wait_again(const gml_fences *fences, gml_pair *pair, const gml_timeline *borrower)
{
    uint64_t window = borrower->requests / GML_WAIT_WINDOW;
    if (pair->window != window) {
        pair->window = window;
        pair->window_waits = 0;
    }
    bool may = pair->window_waits < fences->rules.most_waits;
    if (!may && pair->refused_request != borrower->requests + 1) {
        pair->refused_request = borrower->requests + 1;
        pair->refused_waits++;
    }
    return may;
}

/* The oldest mark that covers `instant`; NULL: none does. */
static mark *
find_mark(gml_timeline *owner, uint64_t instant)
{
    for (gml_link *link = owner->marks.next; link != &owner->marks; link = link->next) {
        if (mark_of(link)->instant >= instant) {
            return mark_of(link);
        }
    }
    return NULL;
}

static gml_status
wait_for(gml_fences *fences, const gml_timeline *borrower, const mark *awaited, gml_pair *pair,
         bool *is_passed)
{
    gml_status status = gml_driver_stream_wait(fences->driver, borrower->stream, awaited->event);
    if (status != GML_OK) {
        return status == GML_MISUSE ? GML_OK : status;
    }
    *is_passed = true;
    pair->waits++;
    pair->window_waits++;
    fences->waits++;
    if (pair->ordered < awaited->instant) {
        pair->ordered = awaited->instant;
    }
    return GML_OK;
}

gml_status
gml_fence_pass(gml_fences *fences, gml_timeline *borrower, gml_timeline *owner, uint64_t instant,
               gml_effort effort, bool *is_passed)
{
    *is_passed = is_known_to_pass(fences, borrower, owner, instant);
    if (*is_passed || effort == GML_KNOWN || !fences->rules.may_wait || !borrower->is_callable ||
        gml_driver_is_frozen(fences->driver)) {
        return GML_OK;
    }
    gml_pair *pair = find_pair(fences, borrower, owner);
    if (!pair || (effort == GML_WAIT && !may_wait_again(fences, pair, borrower))) {
        return GML_OK;
    }
    if (!find_mark(owner, instant)) {
        bool is_marked;
        gml_status status = gml_fence_mark(fences, owner, &is_marked);
        if (status != GML_OK || !is_marked) {
            return status;
        }
    }
    if (fences->rules.is_opportunistic) {
        /* To ask is cheaper than to wait; an idle stream has passed even an event recorded just
         * now. */
        gml_fence_poll(fences, owner);
        *is_passed = is_known_to_pass(fences, borrower, owner, instant);
    }
    const mark *awaited = find_mark(owner, instant);
    if (*is_passed || !awaited) {
        *is_passed = *is_passed || owner->completed >= instant;
        return GML_OK;
    }
    return wait_for(fences, borrower, awaited, pair, is_passed);
}
