/* A lake's history: a ring that overwrites its oldest event, and the site number of each thread. */
#include "lake/history.h"

#include "base/clock.h"
#include "lake/lake.h"

#include <stdlib.h>

enum { READINGS = 3 };

/* See gml_set_site(). Per thread, so without a lock. */
static _Thread_local uint64_t thread_site;

_Static_assert(sizeof(gml_noted) == GML_HISTORY_EVENT_BYTES, "what gmlake.h states");

/* ---- times --------------------------------------------------------------------------------------
 *
 * Reading the clock costs more than the rest of a record, so records store the processor's counter.
 * Reading the events interpolates ticks between two moments at which both clocks were read. A
 * moment is taken then, and at every round of the ring, so two moments are enough.
 */

/* The best of some readings: the thread may lose its core in the midst of one. */
static gml_moment moment_of(const gml_history *history) {
    gml_moment best = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        uint64_t before = gml_ticks(history->has_counter);
        uint64_t time_ns = gml_clock_ns() + history->offset_ns;
        uint64_t taken = gml_ticks(history->has_counter) - before;
        if (taken < least) {
            best = (gml_moment){.ticks = before + taken / 2, .time_ns = time_ns};
            least = taken;
        }
    }
    return best;
}

/* From gml_clock_ns() to the wall clock, rather too little than too much: no event is later than
 * the wall clock at the time it is read. */
static uint64_t clock_offset(void) {
    uint64_t offset_ns = 0, least = UINT64_MAX;
    for (int i = 0; i < READINGS; i++) {
        uint64_t before = gml_clock_ns();
        uint64_t wall_ns = gml_wall_clock_ns();
        uint64_t behind = gml_clock_ns();
        if (behind - before < least) {
            offset_ns = wall_ns - behind;
            least = behind - before;
        }
    }
    return offset_ns;
}

/* Converts ticks of records to times, which are monotonic even if the counter is not. */
static void stretch(gml_noted *first, size_t count, gml_moment from, gml_moment to) {
    double ticks = to.ticks > from.ticks ? (double)(to.ticks - from.ticks) : 1;
    double ns_per_tick = (double)(to.time_ns - from.time_ns) / ticks;
    uint64_t time_ns = from.time_ns;
    for (size_t i = 0; i < count; i++) {
        uint64_t counted = first[i].request.time_ns;
        counted = counted < to.ticks ? counted : to.ticks;
        uint64_t since = counted > from.ticks ? counted - from.ticks : 0;
        uint64_t found_ns = from.time_ns + (uint64_t)((double)since * ns_per_tick);
        found_ns = found_ns < to.time_ns ? found_ns : to.time_ns; /* as rounded */
        time_ns = found_ns > time_ns ? found_ns : time_ns;
        first[i].request.time_ns = time_ns;
    }
}

/* Gives every record its time, once and for all. */
static void date_records(gml_history *history) {
    gml_moment now = moment_of(history);
    size_t stale = history->capacity - history->stale_count;
    stale = stale > history->next ? stale : history->next;
    stretch(history->ring + stale, history->capacity - stale, history->before, history->last);
    stretch(history->ring + history->fresh, history->next - history->fresh, history->last, now);
    history->last = now;
    history->fresh = history->next;
    history->stale_count = 0;
}

/* The next record overwrites the first. */
static void begin_round(gml_history *history) {
    history->before = history->last;
    history->last = moment_of(history);
    history->stale_count = history->capacity - history->fresh;
    history->fresh = 0;
    history->next = 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

gml_status gml_history_keep(gml_history *history, size_t max_events) {
    gml_noted *ring = NULL;
    if (max_events) {
        ring = max_events <= SIZE_MAX / sizeof *ring ? calloc(max_events, sizeof *ring) : NULL;
        if (!ring) {
            return GML_NO_HOST_MEMORY;
        }
    }
    gml_history_close(history);
    *history =
        (gml_history){.ring = ring, .capacity = max_events, .has_counter = gml_has_counter()};
    history->offset_ns = clock_offset();
    history->last = moment_of(history);
    return GML_OK;
}

void gml_history_close(gml_history *history) {
    free(history->ring);
    *history = (gml_history){0};
}

void gml_history_append(gml_history *history, uint32_t kind, uint64_t id, gml_address address,
                        uint64_t size_bytes, gml_stream stream) {
    history->ring[history->next] = (gml_noted){
        .request = {.id = id,
                    .size_bytes = size_bytes,
                    .address = address,
                    .time_ns = gml_ticks(history->has_counter),
                    .stream = stream,
                    .kind = kind},
        .site = thread_site,
    };
    history->total += kind == GML_NOTED_FREES ? 2 : 1;
    if (++history->next == history->capacity) {
        begin_round(history);
    }
}

static size_t kept(const gml_history *history) {
    return history->total < history->capacity ? (size_t)history->total : history->capacity;
}

static void copy_event(const gml_noted *noted, uint32_t kind, size_t at, gml_request *out,
                       uint64_t *sites) {
    out[at] = noted->request;
    out[at].kind = kind;
    if (sites) {
        sites[at] = noted->site;
    }
}

/* Copies the youngest `count` events, beginning with the last. */
static void copy_youngest(const gml_history *history, gml_request *out, uint64_t *sites,
                          size_t count) {
    size_t from = history->next;
    while (count) {
        from = (from ? from : history->capacity) - 1;
        const gml_noted *noted = &history->ring[from];
        uint32_t kind = noted->request.kind;
        if (kind == GML_NOTED_FREES) {
            copy_event(noted, GML_REQUEST_FREE, --count, out, sites);
            kind = GML_REQUEST_FREE_REQUESTED;
        }
        if (count) {
            copy_event(noted, kind, --count, out, sites);
        }
    }
}

size_t gml_history_copy(gml_history *history, gml_request *out, uint64_t *sites, size_t capacity) {
    size_t wanted = kept(history);
    if (out && wanted) {
        date_records(history);
        wanted = wanted < capacity ? wanted : capacity;
        copy_youngest(history, out, sites, wanted);
    }
    return wanted;
}

/* ---- the public functions -------------------------------------------------------------------- */

void gml_set_site(uint64_t site) {
    thread_site = site;
}

uint64_t gml_site(void) {
    return thread_site;
}

gml_status gml_lake_keep_history(gml_lake *lake, size_t max_events) {
    pthread_mutex_lock(&lake->lock);
    gml_lake_note_reserved(lake); /* what came before is not of the events to come */
    gml_status status = gml_history_keep(&lake->history, max_events);
    if (status == GML_OK) {
        gml_lake_begin_segments(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_note_mark(gml_lake *lake, uint64_t number) {
    pthread_mutex_lock(&lake->lock);
    gml_history_add(&lake->history, GML_REQUEST_MARK, number, 0, 0, 0);
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}

gml_status gml_lake_history(gml_lake *lake, gml_request *out, uint64_t *sites, size_t capacity,
                            size_t *count, uint64_t *total) {
    pthread_mutex_lock(&lake->lock);
    *count = gml_history_copy(&lake->history, out, sites, capacity);
    *total = lake->history.total;
    pthread_mutex_unlock(&lake->lock);
    return GML_OK;
}
