/* Segment events: what went from its addresses since the last look, and the difference between that
 * and what the lake holds now. */
#include "base/room.h"
#include "lake/lake.h"

#include <stdlib.h>

/* ---- a look ---------------------------------------------------------------------------------- */

typedef struct look {
    gml_held_list *held;
    gml_pool_id pool; /* of the spans that follow */
    bool is_short;    /* of host memory: not everything is there */
    bool is_ordered;  /* by address, so far */
    bool was_base;    /* the last one was of a base range, whose spans are cut for other
                            reasons */
} look;

static bool has_room(gml_held_list *held) {
    return gml_make_room(&held->list, &held->room, held->count + 1, sizeof *held->list);
}

static gml_address end_of(const gml_held *span) {
    return span->address + span->size_bytes;
}

static void see_span(void *context, const gml_span_info *span) {
    look *taken = context;
    if (span->is_view || taken->is_short) {
        return;
    }
    gml_held_list *held = taken->held;
    gml_held *last = held->count ? &held->list[held->count - 1] : NULL;
    bool is_base = span->kind == GML_SPAN_BASE;
    bool goes_on = is_base && taken->was_base && last && end_of(last) == span->address;
    taken->was_base = is_base;
    if (goes_on) {
        last->size_bytes += span->size_bytes;
        return;
    }
    taken->is_ordered &= !last || end_of(last) <= span->address;
    if (!has_room(held)) {
        taken->is_short = true;
        return;
    }
    held->list[held->count++] =
        (gml_held){span->address, span->size_bytes, is_base ? 0 : span->stream, taken->pool};
}

static void pass_range(void *context, const gml_range_info *range) {
    (void)context;
    (void)range;
}

static void see_policy(look *taken, gml_policy *policy) {
    taken->was_base = false;
    policy->ops->visit(policy, &(gml_visitor){taken, see_span, pass_range, NULL, NULL});
}

static void see_heap(void *context, const gml_heap *heap) {
    ((look *)context)->pool = heap->policy->pool;
    see_policy(context, heap->policy);
}

static int by_address(const void *left, const void *right) {
    const gml_held *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* Everything that is held. False without host memory. */
static bool take_look(gml_lake *lake, gml_held_list *out) {
    look taken = {.held = out, .is_ordered = true};
    out->count = 0;
    if (!gml_lake_sleeps(lake)) {
        see_policy(&taken, lake->policy);
        gml_pools_each_heap(&lake->pools, see_heap, &taken);
    }
    if (!taken.is_ordered && !taken.is_short) {
        qsort(out->list, out->count, sizeof *out->list, by_address);
    }
    return !taken.is_short;
}

/* ---- the difference -------------------------------------------------------------------------- */

static bool are_same(gml_pool_id left, gml_pool_id right) {
    return left.first == right.first && left.second == right.second;
}

/* Tells what of `held` is not in `others`, or is another pool's there, and returns how much it is.
 */
static uint64_t tell_difference(const gml_held_list *held, const gml_held_list *others, bool is_new,
                                gml_tell_held tell, void *context) {
    uint64_t told_bytes = 0;
    size_t at = 0;
    for (size_t i = 0; i < held->count; i++) {
        const gml_held *span = &held->list[i];
        for (gml_address begin = span->address; begin < end_of(span);) {
            while (at < others->count && end_of(&others->list[at]) <= begin) {
                at++;
            }
            const gml_held *other = at < others->count ? &others->list[at] : NULL;
            bool is_inside = other && other->address <= begin;
            gml_address limit = is_inside ? end_of(other) : other ? other->address : UINT64_MAX;
            gml_address end = limit < end_of(span) ? limit : end_of(span);
            if (!is_inside || !are_same(other->pool, span->pool)) {
                tell(context, is_new, &(gml_held){begin, end - begin, span->stream, span->pool});
                told_bytes += end - begin;
            }
            begin = end;
        }
    }
    return told_bytes;
}

/* To tell of changes. */
typedef struct telling {
    gml_looks *looks;
    gml_tell_held tell;
    void *context;
    uint64_t gone_bytes, come_bytes;
} telling;

static void swap(gml_looks *looks) {
    gml_held_list held = looks->held;
    looks->held = looks->seen;
    looks->seen = held;
}

/* [begin, end) of a span went. */
static void tell_part(telling *of, const gml_held *span, gml_address begin, gml_address end) {
    if (begin < end) {
        of->tell(of->context, false, &(gml_held){begin, end - begin, span->stream, span->pool});
        of->gone_bytes += end - begin;
    }
}

/* [begin, end) of a span is still there; without host memory to know that, it went too. */
static void keep_part(telling *of, const gml_held *span, gml_address begin, gml_address end) {
    gml_held_list *kept = &of->looks->seen;
    if (begin < end && has_room(kept)) {
        kept->list[kept->count++] = (gml_held){begin, end - begin, span->stream, span->pool};
    } else {
        tell_part(of, span, begin, end);
    }
}

/* Takes a range that went out of what was held. */
static void take_out(telling *of, const gml_gone_range *gone) {
    const gml_held_list *held = &of->looks->held;
    of->looks->seen.count = 0;
    for (size_t i = 0; i < held->count; i++) {
        const gml_held *span = &held->list[i];
        gml_address begin = span->address, end = end_of(span);
        gml_address first = gone->address < begin ? begin : gone->address;
        gml_address last = gone->end < end ? gone->end : end;
        if (first >= last) {
            keep_part(of, span, begin, end);
        } else {
            keep_part(of, span, begin, first);
            tell_part(of, span, first, last);
            keep_part(of, span, last, end);
        }
    }
    swap(of->looks);
}

/* Tells what went and what came since the last look, and returns the change in bytes. Where this
 * look fails, without host memory, what came is told at the next one. */
static uint64_t tell_changes(gml_lake *lake, gml_looks *looks, gml_looker looker,
                             gml_tell_held tell, void *context) {
    gml_gone *gone = lake->driver->gone;
    gml_gone_list *list = &gone->lists[looker];
    telling of = {.looks = looks, .tell = tell, .context = context};
    for (size_t i = 0; i < list->count && tell; i++) {
        take_out(&of, &list->ranges[i]);
    }
    if (list->widest.end && tell) {
        take_out(&of, &list->widest);
    }
    gml_gone_settle(gone, looker);
    list->is_wanted = true;
    if (!take_look(lake, &looks->seen)) {
        return 0 - of.gone_bytes;
    }
    looks->changes = gone->changes;
    swap(looks);
    if (tell) {
        of.gone_bytes += tell_difference(&looks->seen, &looks->held, false, tell, context);
        of.come_bytes += tell_difference(&looks->held, &looks->seen, true, tell, context);
    }
    return of.come_bytes - of.gone_bytes;
}

void gml_lake_changes(gml_lake *lake, gml_looks **looks, gml_tell_held tell, void *context) {
    pthread_mutex_lock(&lake->lock);
    bool is_first = !*looks;
    *looks = *looks ? *looks : calloc(1, sizeof **looks);
    if (*looks && (is_first || !tell || (*looks)->changes != lake->driver->gone->changes)) {
        (void)tell_changes(lake, *looks, GML_LOOKER_FRAMEWORK, tell, context);
    }
    gml_gone_settle(lake->driver->gone, GML_LOOKER_FRAMEWORK);
    pthread_mutex_unlock(&lake->lock);
}

/* ---- the lake's own history ------------------------------------------------------------------ */

static void clear(gml_held_list *held) {
    free(held->list);
    *held = (gml_held_list){0};
}

void gml_lake_end_segments(gml_lake *lake) {
    clear(&lake->looks.held);
    clear(&lake->looks.seen);
}

void gml_lake_begin_segments(gml_lake *lake) {
    gml_lake_end_segments(lake);
    lake->driver->gone->lists[GML_LOOKER_LAKE].is_wanted = false;
    /* Spans missed here are seen, and accounted for, at the next change. */
    if (lake->history.ring) {
        (void)tell_changes(lake, &lake->looks, GML_LOOKER_LAKE, NULL, NULL);
    }
}

static void note(void *context, bool is_new, const gml_held *span) {
    gml_request_kind kind = is_new ? GML_REQUEST_SEGMENT_ALLOC : GML_REQUEST_SEGMENT_FREE;
    if (span->size_bytes) {
        gml_history_append(context, kind, 0, span->address, span->size_bytes, span->stream);
    }
}

void gml_lake_note_segments(gml_lake *lake, uint64_t before_bytes, uint64_t reserved_bytes) {
    gml_history *history = &lake->history;
    uint64_t expected_bytes =
        before_bytes + tell_changes(lake, &lake->looks, GML_LOOKER_LAKE, note, history);
    if (expected_bytes > reserved_bytes) {
        note(history, false, &(gml_held){.size_bytes = expected_bytes - reserved_bytes});
    } else {
        note(history, true, &(gml_held){.size_bytes = reserved_bytes - expected_bytes});
    }
}
