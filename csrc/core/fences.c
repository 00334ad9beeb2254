/* The marks of a device, and how far each stream has come behind them. */
#include "core/fences.h"

#include <stddef.h>

/* Marks that are kept. Further ones replace the youngest: the oldest completes first, and the
 * newest covers most. */
enum { MOST_MARKS = 16 };

typedef struct mark {
    gml_link link; /* in fences->marks */
    gml_event event;
    uint64_t instant;
} mark;

static mark *mark_of(gml_link *link) {
    return (mark *)(void *)((char *)link - offsetof(mark, link));
}

gml_pair *gml_pair_of_link(gml_link *link) {
    return (gml_pair *)(void *)((char *)link - offsetof(gml_pair, link));
}

/* Programs never reach their 2^32nd stream. */
static uint64_t key_of(uint64_t borrower_number, uint64_t owner_number) {
    return borrower_number << 32 | (owner_number & UINT32_MAX);
}

void gml_fences_init(gml_fences *fences, gml_driver *driver, const gml_fence_rules *rules) {
    *fences = (gml_fences){.driver = driver, .rules = *rules};
    gml_events_init(&fences->events, driver);
    gml_list_init(&fences->marks);
    gml_list_init(&fences->all_pairs);
    fences->pair_objects.object_bytes = sizeof(gml_pair);
    fences->mark_objects.object_bytes = sizeof(mark);
}

/* ---- marks ----------------------------------------------------------------------------------- */

static void drop_mark(gml_fences *fences, mark *dropped) {
    gml_list_remove(&dropped->link);
    fences->mark_count--;
    gml_events_give(&fences->events, dropped->event);
    gml_pool_give(&fences->mark_objects, dropped);
}

static void drop_marks(gml_fences *fences) {
    while (fences->mark_count) {
        drop_mark(fences, mark_of(fences->marks.next));
    }
}

void gml_fences_close(gml_fences *fences) {
    drop_marks(fences);
    gml_events_close(&fences->events);
    gml_map_clear(&fences->pairs);
    gml_pool_clear(&fences->pair_objects);
    gml_pool_clear(&fences->mark_objects);
}

static void advance(gml_fences *fences, uint64_t instant) {
    if (fences->completed < instant) {
        fences->completed = instant;
    }
    if (fences->marked < instant) {
        fences->marked = instant;
    }
}

void gml_fence_poll(gml_fences *fences) {
    while (fences->mark_count && !gml_driver_is_frozen(fences->driver)) {
        mark *oldest = mark_of(fences->marks.next);
        if (gml_driver_event_query(fences->driver, oldest->event) != GML_OK) {
            return;
        }
        advance(fences, oldest->instant);
        drop_mark(fences, oldest);
    }
}

void gml_fence_complete(gml_fences *fences) {
    drop_marks(fences);
    advance(fences, fences->clock);
}

static gml_status add_mark(gml_fences *fences) {
    gml_event event;
    mark *added = gml_pool_take(&fences->mark_objects);
    if (!added) {
        return gml_driver_fail(fences->driver, GML_NO_HOST_MEMORY, "no host memory for a mark");
    }
    gml_status status = gml_events_take(&fences->events, &event);
    if (status != GML_OK) {
        gml_pool_give(&fences->mark_objects, added);
        return status;
    }
    status = gml_driver_event_record_all(fences->driver, event);
    if (status != GML_OK) {
        gml_events_give(&fences->events, event);
        gml_pool_give(&fences->mark_objects, added);
        return status;
    }
    if (fences->mark_count == MOST_MARKS) {
        drop_mark(fences, mark_of(fences->marks.previous));
    }
    added->event = event;
    added->instant = fences->clock;
    gml_list_append(&fences->marks, &added->link);
    fences->mark_count++;
    fences->marked = fences->clock;
    return GML_OK;
}

gml_status gml_fence_mark(gml_fences *fences) {
    if (fences->marked >= fences->clock || fences->cannot_mark ||
        gml_driver_is_frozen(fences->driver)) {
        return GML_OK;
    }
    gml_status status = add_mark(fences);
    fences->cannot_mark = status == GML_UNSUPPORTED;
    return status == GML_UNSUPPORTED || status == GML_MISUSE ? GML_OK : status;
}

gml_status gml_fence_mark_for(gml_fences *fences, const gml_seeker *asking) {
    bool is_capturing = gml_driver_is_frozen(fences->driver);
    gml_status status = GML_OK;
    if (!is_capturing && fences->marked < fences->clock) {
        status = gml_driver_stream_capturing(fences->driver, asking->stream, &is_capturing);
    }
    return status == GML_OK && !is_capturing ? gml_fence_mark(fences) : status;
}

/* The oldest mark that covers `instant`; NULL: none does. */
static mark *find_mark(gml_fences *fences, uint64_t instant) {
    for (gml_link *link = fences->marks.next; link != &fences->marks; link = link->next) {
        if (mark_of(link)->instant >= instant) {
            return mark_of(link);
        }
    }
    return NULL;
}

/* ---- streams --------------------------------------------------------------------------------- */

void gml_seeker_open(gml_fences *fences, gml_seeker *seeker, gml_stream stream) {
    *seeker = (gml_seeker){.stream = stream, .number = ++fences->next_number};
}

void gml_seeker_close(gml_fences *fences, const gml_seeker *seeker) {
    for (gml_link *link = fences->all_pairs.next, *next; link != &fences->all_pairs; link = next) {
        gml_pair *pair = gml_pair_of_link(link);
        next = link->next;
        if (pair->owner_number == seeker->number || pair->borrower_number == seeker->number) {
            (void)gml_map_take(&fences->pairs, key_of(pair->borrower_number, pair->owner_number));
            gml_list_remove(link);
            gml_pool_give(&fences->pair_objects, pair);
        }
    }
}

/* NULL when the host has no memory. */
static gml_pair *find_pair(gml_fences *fences, const gml_seeker *borrower,
                           const gml_seeker *owner) {
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

void gml_fence_count(gml_fences *fences, const gml_seeker *borrower, const gml_seeker *owner,
                     uint64_t size_bytes) {
    gml_pair *pair = find_pair(fences, borrower, owner);
    fences->borrowed_bytes += size_bytes;
    if (pair) {
        pair->borrows++;
        pair->borrowed_bytes += size_bytes;
    }
}

static bool is_known_to_pass(const gml_fences *fences, const gml_seeker *borrower,
                             const gml_seeker *owner, uint64_t instant) {
    return owner == borrower ||
           (fences->rules.is_opportunistic && gml_fence_is_over(fences, instant)) ||
           (fences->rules.follows_events && borrower->ordered >= instant);
}

/* Whether the limit lets the stream wait once more; counted as refused where it does not. */
static bool may_wait_again(const gml_fences *fences, gml_seeker *borrower, gml_pair *pair) {
    uint64_t window = borrower->requests / GML_WAIT_WINDOW;
    if (borrower->window != window) {
        borrower->window = window;
        borrower->window_waits = 0;
    }
    bool may = borrower->window_waits < fences->rules.most_waits;
    if (!may && pair && borrower->refused_request != borrower->requests + 1) {
        borrower->refused_request = borrower->requests + 1;
        pair->refused_waits++;
    }
    return may;
}

static gml_status wait_for(gml_fences *fences, gml_seeker *borrower, const mark *awaited,
                           gml_pair *pair, bool *is_passed) {
    gml_status status = gml_driver_stream_wait(fences->driver, borrower->stream, awaited->event);
    if (status != GML_OK) {
        return status == GML_MISUSE ? GML_OK : status;
    }
    *is_passed = true;
    borrower->window_waits++;
    fences->waits++;
    if (pair) {
        pair->waits++;
    }
    if (borrower->ordered < awaited->instant) {
        borrower->ordered = awaited->instant;
    }
    return GML_OK;
}

/* A wait on the handle that is another stream in every thread would order one thread's only. */
static bool may_be_waited(const gml_fences *fences, const gml_seeker *borrower) {
    gml_stream per_thread = fences->driver->per_thread_stream;
    return fences->rules.may_wait && !gml_driver_is_frozen(fences->driver) &&
           (!per_thread || borrower->stream != per_thread);
}

gml_status gml_fence_pass(gml_fences *fences, gml_seeker *borrower, const gml_seeker *owner,
                          uint64_t instant, gml_effort effort, bool *is_passed) {
    *is_passed = is_known_to_pass(fences, borrower, owner, instant);
    if (*is_passed || effort == GML_KNOWN || !may_be_waited(fences, borrower)) {
        return GML_OK;
    }
    gml_pair *pair = owner ? find_pair(fences, borrower, owner) : NULL;
    if (effort == GML_WAIT && !may_wait_again(fences, borrower, pair)) {
        return GML_OK;
    }
    gml_status status = find_mark(fences, instant) ? GML_OK : gml_fence_mark_for(fences, borrower);
    if (status != GML_OK) {
        return status;
    }
    if (fences->rules.is_opportunistic) {
        /* To ask is cheaper than to wait; an idle device has passed even an event recorded just
         * now. */
        gml_fence_poll(fences);
    }
    const mark *awaited = find_mark(fences, instant);
    *is_passed = !awaited && gml_fence_is_over(fences, instant);
    return awaited ? wait_for(fences, borrower, awaited, pair, is_passed) : GML_OK;
}
