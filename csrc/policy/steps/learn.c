/* From steps to layouts, and which of them serves.
 *
 * A step is identified by its mark, a hash of every request and its address. The marks of the last
 * steps of a kind show whether the inner policy has served a step twice in the same way, and
 * predict the next: if several steps repeat together, because a buffer lives for two or lengths
 * alternate, the history repeats.
 */
#include "base/mix.h"
#include "policy/steps/planned.h"

/* ---- the state ------------------------------------------------------------------------------- */

static uint64_t state_of_run(const gml_run *run) {
    return gml_mix(run->offset ^ gml_mix(run->size_bytes));
}

/* A view that is cached counts as free: it is compared with the first request that ends that.
 *
 * A sum of mixes, so that order does not matter and a change costs as much as what changes. Two
 * different states have the same sum by chance once in 2^64. A step would then be served elsewhere
 * than by the inner policy, and never from memory in use: gml_reservation_take() takes free extents
 * only.
 */
uint64_t gml_planned_state(const gml_planned *planned) {
    const gml_base_range *range = &planned->stitch->range;
    uint64_t state = gml_mix(range->present_bytes);
    for (const gml_extent *extent = gml_base_range_find(range, 0); extent; extent = extent->next) {
        const gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
        if (holder && holder->state == GML_PLACEMENT_LIVE) {
            state += state_of_run(&(gml_run){extent->offset, extent->size_bytes, NULL});
        }
    }
    for (const gml_reservation *reservation = planned->reservations; reservation;
         reservation = reservation->next) {
        const gml_link *link = reservation->live.next;
        for (; link != &reservation->live; link = link->next) {
            const gml_placement *placement = gml_placement_of_live((gml_link *)(uintptr_t)link);
            for (size_t i = 0; i < placement->run_count; i++) {
                state += state_of_run(&placement->runs[i]);
            }
        }
    }
    return state ? state : 1;
}

/* Whether the inner policy would serve a step that begins like `open` as the layout tells. */
static bool is_fit(const gml_layout *layout, const gml_open_step *open) {
    return layout->is_loaded || layout->state == open->state;
}

/* ---- which serves ---------------------------------------------------------------------------- */

/* How many of the last steps were, in the same order, those up to the one `at` steps before. */
static size_t match_length(const gml_kind *kind, size_t at) {
    size_t length = 0;
    while (at + length < kind->past_count &&
           kind->past[length].mark == kind->past[at + length].mark) {
        length++;
    }
    return length;
}

static bool has_layout(const gml_kind *kind, uint64_t mark) {
    size_t i = 0;
    while (i < kind->layout_count && kind->layouts[i]->mark != mark) {
        i++;
    }
    return i < kind->layout_count;
}

/* The mark of the step that followed the last time that steps went as they just did, over the
 * longest stretch; 0: they never did. A stretch that a plan followed counts as one step longer, or
 * a single other step would stop the plan until as many have passed as before it. */
static uint64_t predict_mark(const gml_kind *kind) {
    size_t longest = 0;
    uint64_t mark = 0;
    for (size_t at = 1; at < kind->past_count; at++) {
        size_t length = match_length(kind, at);
        length += length && has_layout(kind, kind->past[at - 1].mark);
        if (length > longest) {
            longest = length;
            mark = kind->past[at - 1].mark;
        }
    }
    return mark;
}

/* Without a prediction, the least recently used layout: of several that follow each other, as those
 * of a file do, that is the next. A predicted layout that is missing is to be learned. */
gml_layout *gml_kind_predict(const gml_open_step *open) {
    const gml_kind *kind = open->kind;
    uint64_t mark = predict_mark(kind);
    gml_layout *best = NULL;
    for (size_t i = 0; i < kind->layout_count; i++) {
        gml_layout *layout = kind->layouts[i];
        if (is_fit(layout, open) &&
            (mark ? layout->mark == mark : !best || layout->last_used < best->last_used)) {
            best = layout;
        }
    }
    return best;
}

static bool is_same(const gml_entry *one, const gml_entry *other) {
    return one->size_bytes == other->size_bytes && one->stream == other->stream &&
           one->ended == other->ended && one->reservation == other->reservation &&
           one->place.view == other->place.view && one->place.run.offset == other->place.run.offset;
}

/* The next request of the layout, if it is that one and comes after the same has ended. */
static const gml_entry *next_entry(const gml_layout *layout, const gml_open_step *open,
                                   uint64_t bytes, gml_stream stream) {
    const gml_entry *entry =
        open->position < layout->entry_count ? &layout->entries[open->position] : NULL;
    bool is_it = entry && entry->size_bytes == bytes && entry->stream == stream &&
                 (entry->ended == open->ended || layout->is_loaded);
    return is_it ? entry : NULL;
}

const gml_entry *gml_step_meet(gml_open_step *open, uint64_t bytes, gml_stream stream) {
    const gml_layout *served = open->layout;
    const gml_entry *entry = next_entry(served, open, bytes, stream);
    for (size_t i = 0; i < open->kind->layout_count && !entry; i++) {
        gml_layout *other = open->kind->layouts[i];
        size_t same = 0;
        entry = is_fit(other, open) ? next_entry(other, open, bytes, stream) : NULL;
        while (entry && same < open->position &&
               is_same(&other->entries[same], &served->entries[same])) {
            same++;
        }
        entry = same == open->position ? entry : NULL;
        open->layout = entry ? other : open->layout;
    }
    return entry;
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Finds the reservations that serve the entries; returns the number of entries served, or 0 without
 * host memory. */
static size_t find_holds(gml_planned *planned, gml_layout *layout) {
    size_t held = 0;
    for (size_t i = 0; i < layout->entry_count; i++) {
        gml_entry *entry = &layout->entries[i];
        bool is_left = !entry->place.view && !entry->place.run.size_bytes;
        entry->reservation = is_left ? NULL : gml_planned_reservation(planned, entry->stream);
        if (!is_left && !entry->reservation) {
            return 0;
        }
        held += !is_left;
    }
    return held;
}

static void push(gml_kind *kind, uint64_t mark, uint64_t fingerprint) {
    kind->past_count += kind->past_count < GML_KEPT_PAST;
    for (size_t i = kind->past_count - 1; i > 0; i--) {
        kind->past[i] = kind->past[i - 1];
    }
    kind->past[0] = (gml_past_step){mark, fingerprint};
}

void gml_kind_note_step(gml_kind *kind, const gml_layout *layout) {
    push(kind, layout ? layout->mark : gml_mix(kind->serial), layout ? layout->fingerprint : 0);
}

/* A plan that can place less than this part of its requests is not worth its while. */
enum { LEAST_HELD_PART = 4 };

const char *gml_kind_learn(gml_planned *planned, gml_kind *kind, gml_layout *seen) {
    uint64_t times = 1;
    bool is_known = false;
    for (size_t i = 0; i < kind->past_count; i++) {
        times += kind->past[i].mark == seen->mark;
        is_known |= kind->past[i].fingerprint == seen->fingerprint;
    }
    gml_kind_note_step(kind, seen);
    const char *why =
        seen->entry_count ? "watched: its requests are new" : "watched: it asked for nothing";
    if (seen->entry_count && times < GML_SERVED_ALIKE && is_known) {
        why = "watched: its requests came before, and lay elsewhere";
    } else if (seen->entry_count && times >= GML_SERVED_ALIKE) {
        why = "watched: the next one like it will be served by a plan";
        if (kind->serial < kind->learn_after) {
            why = "watched: plans for such steps did not last, the next is tried later";
        } else if (find_holds(planned, seen) * LEAST_HELD_PART < seen->entry_count) {
            why = "watched: most of its requests are small";
        } else if (!has_layout(kind, seen->mark) && gml_planned_yield(planned) == GML_OK) {
            seen->last_used = planned->open.number;
            seen->holders++;
            why =
                gml_kind_keep_layout(planned, kind, seen) ? why : "watched: the host has no memory";
        }
    }
    return why;
}

/* ---- giving up ------------------------------------------------------------------------------- */

enum { MOST_FAILURES = 4, LONGEST_BACKOFF = 1024 };

/* The step is learned from as if it had been watched from the beginning, unless the plan is of a
 * file: the inner policy has never served such a beginning. A plan that is left
 * several times in a row is dropped, and the next one learned after a while, each time after twice
 * as many steps until one has served a whole step. */
void gml_planned_leave(gml_planned *planned, const char *why) {
    gml_open_step *open = &planned->open;
    gml_kind *kind = open->kind;
    gml_layout *layout = open->layout;
    open->layout = NULL;
    open->report.why = why;
    open->seen = layout->is_loaded ? NULL : gml_layout_begin_of(planned, layout, open->position);
    /* Without host memory it stays, for another time. */
    if (++layout->failures < MOST_FAILURES || gml_planned_yield(planned) != GML_OK) {
        return;
    }
    gml_layout_drop(planned, kind, layout);
    kind->backoff = kind->backoff ? 2 * kind->backoff : 1;
    kind->backoff = kind->backoff < LONGEST_BACKOFF ? kind->backoff : LONGEST_BACKOFF;
    kind->learn_after = kind->serial + kind->backoff;
}
