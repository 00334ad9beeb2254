/* From steps to layouts, and which of them serves.
 *
 * A step is known by its mark, a number made of every request and the address that it got. The
 * marks of the last steps of a kind tell both whether the inner policy has served a step twice in
 * the same way, and what comes next: where several steps repeat together, as where a buffer lives
 * for two, or lengths alternate, the history does.
 */
#include "base/mix.h"
#include "plan/planned.h"

/* ---- the state ------------------------------------------------------------------------------- */

static uint64_t
state_of_run(const gml_run *run)
{
    return run->size_bytes > GML_SMALL_LIMIT ? gml_mix(run->offset ^ gml_mix(run->size_bytes)) : 0;
}

uint64_t
gml_planned_state(const gml_planned *planned)
{
    const gml_home *home = &planned->stitch->home;
    uint64_t state = gml_mix(home->present_bytes);
    for (const gml_extent *extent = gml_home_find(home, 0); extent; extent = extent->next) {
        const gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
        if (holder && holder->state != GML_PLACEMENT_HELD && !holder->slab) {
            state += state_of_run(&(gml_run){extent->offset, extent->size_bytes, NULL});
        }
    }
    for (const gml_hold *hold = planned->holds; hold; hold = hold->next) {
        const gml_link *link = hold->live.next;
        for (; link != &hold->live; link = link->next) {
            const gml_placement *placement = gml_placement_of_live((gml_link *)(uintptr_t)link);
            for (size_t i = 0; i < placement->run_count; i++) {
                state += state_of_run(&placement->runs[i]);
            }
        }
    }
    return state ? state : 1;
}

/* ---- which serves ---------------------------------------------------------------------------- */

/* How many of the last steps were, in the same order, those up to the one `at` steps before. */
static size_t
likeness(const gml_kind *kind, size_t at)
{
    size_t length = 0;
    while (at + length < kind->past_count &&
           kind->past[length].mark == kind->past[at + length].mark) {
        length++;
    }
    return length;
}

/* The mark of the step that followed the last time that steps went as they just did, over the
 * longest stretch; 0: they never did. */
static uint64_t
foresee_mark(const gml_kind *kind)
{
    size_t longest = 0;
    uint64_t mark = 0;
    for (size_t at = 1; at < kind->past_count; at++) {
        size_t length = likeness(kind, at);
        if (length > longest) {
            longest = length;
            mark = kind->past[at - 1].mark;
        }
    }
    return mark;
}

/* Where nothing is foreseen, the one used least lately: of several that follow each other, as those
 * of a file do, that is the next. One that is foreseen and not there is to be learned. */
gml_layout *
gml_kind_foresee(const gml_kind *kind, uint64_t state)
{
    uint64_t mark = foresee_mark(kind);
    gml_layout *best = NULL;
    for (size_t i = 0; i < kind->layout_count; i++) {
        gml_layout *layout = kind->layouts[i];
        bool is_fit = layout->is_loaded || layout->state == state;
        if (is_fit &&
            (mark ? layout->mark == mark : !best || layout->last_used < best->last_used)) {
            best = layout;
        }
    }
    return best;
}

static bool
is_same(const gml_entry *one, const gml_entry *other)
{
    return one->size_bytes == other->size_bytes && one->stream == other->stream &&
           one->hold == other->hold && one->place.view == other->place.view &&
           one->place.run.offset == other->place.run.offset;
}

gml_layout *
gml_kind_find_other(const gml_open_step *open, uint64_t bytes, gml_stream stream)
{
    size_t position = open->position;
    for (size_t i = 0; i < open->kind->layout_count; i++) {
        gml_layout *layout = open->kind->layouts[i];
        if (position >= layout->entry_count || layout->entries[position].size_bytes != bytes ||
            layout->entries[position].stream != stream ||
            (layout->state != open->state && !layout->is_loaded)) {
            continue;
        }
        size_t same = 0;
        while (same < position && is_same(&layout->entries[same], &open->layout->entries[same])) {
            same++;
        }
        if (same == position) {
            return layout;
        }
    }
    return NULL;
}

/* ---- learning -------------------------------------------------------------------------------- */

/* Where a slab holds what an earlier step made, its other pieces are no place for a plan: the slab
 * stays, and serves them as it did. */
static bool
is_of_lasting_slab(const gml_planned *planned, const gml_entry *entry)
{
    const gml_extent *extent = gml_home_find(&planned->stitch->home, entry->place.run.offset);
    const gml_placement *holder = extent->kind == GML_EXTENT_USED ? extent->owner : NULL;
    return holder && holder->slab &&
           gml_slab_oldest_note(holder->slab) < planned->open.number << 32;
}

static bool
is_in_home(const gml_planned *planned, const gml_entry *entry)
{
    const gml_home *home = &planned->stitch->home;
    return entry->place.run.offset < home->slots * home->grain_bytes;
}

/* What a file's plan left has none: nobody remembers where it lay. */
static bool
has_place(const gml_entry *entry)
{
    return entry->place.view || entry->place.run.size_bytes;
}

/* Finds out which entries can be served from a hold: so many, or 0 where the host has no memory. */
static size_t
find_holds(gml_planned *planned, gml_layout *layout)
{
    size_t held = 0;
    for (size_t i = 0; i < layout->entry_count; i++) {
        gml_entry *entry = &layout->entries[i];
        bool is_left = !has_place(entry) ||
                       (!entry->place.view &&
                        (!is_in_home(planned, entry) || is_of_lasting_slab(planned, entry)));
        entry->hold = is_left ? NULL : gml_planned_hold(planned, entry->stream);
        if (!is_left && !entry->hold) {
            return 0;
        }
        held += !is_left;
    }
    return held;
}

static void
push(gml_kind *kind, uint64_t mark, uint64_t fingerprint)
{
    kind->past_count += kind->past_count < GML_KEPT_PAST;
    for (size_t i = kind->past_count - 1; i > 0; i--) {
        kind->past[i] = kind->past[i - 1];
    }
    kind->past[0] = (gml_past_step){mark, fingerprint};
}

void
gml_kind_note_step(gml_kind *kind, const gml_layout *layout)
{
    if (layout) {
        push(kind, layout->mark, layout->fingerprint);
    } else {
        push(kind, gml_mix(kind->serial), 0);
    }
}

static bool
has_layout(const gml_kind *kind, uint64_t mark)
{
    size_t i = 0;
    while (i < kind->layout_count && kind->layouts[i]->mark != mark) {
        i++;
    }
    return i < kind->layout_count;
}

/* A plan that can place less than this part of its requests is not worth its while. */
enum { LEAST_HELD_PART = 4 };

const char *
gml_kind_learn(gml_planned *planned, gml_kind *kind, gml_layout *seen)
{
    uint64_t times = 1;
    bool is_known = false;
    for (size_t i = 0; i < kind->past_count; i++) {
        times += kind->past[i].mark == seen->mark;
        is_known |= kind->past[i].fingerprint == seen->fingerprint;
    }
    gml_kind_note_step(kind, seen);
    const char *why =
        seen->entry_count ? "watched: its requests are new" : "watched: it asked for nothing";
    if (seen->entry_count && times < planned->profile_steps && is_known) {
        why = "watched: its requests came before, and lay elsewhere";
    } else if (seen->entry_count && times >= planned->profile_steps) {
        why = "watched: the next one like it will be served by a plan";
        if (kind->serial < kind->learn_after) {
            why = "watched: plans for such steps did not last, the next is tried later";
        } else if (find_holds(planned, seen) * LEAST_HELD_PART < seen->entry_count) {
            why = "watched: most of its requests are small, and lie between what lasts";
        } else if (!has_layout(kind, seen->mark) && gml_planned_yield(planned) == GML_OK) {
            seen->last_used = planned->open.number;
            return gml_kind_keep_layout(planned, kind, seen) ? why
                                                             : "watched: the host has no memory";
        }
    }
    gml_layout_free(planned, seen);
    return why;
}

/* ---- giving up ------------------------------------------------------------------------------- */

enum { MOST_FAILURES = 4, LONGEST_PATIENCE = 1024 };

/* The step is learned from as if it had been watched from the beginning. A plan that is left
 * several times in a row is dropped, and the next one learned after a while, each time after twice
 * as many steps until one has served a whole step. */
void
gml_planned_depart(gml_planned *planned, const char *why)
{
    gml_open_step *open = &planned->open;
    gml_kind *kind = open->kind;
    gml_layout *layout = open->layout;
    open->layout = NULL;
    open->report.why = why;
    open->seen = gml_layout_begin_of(planned, layout, open->position);
    /* Without host memory it stays, for another time. */
    if (++layout->failures < MOST_FAILURES || gml_planned_yield(planned) != GML_OK) {
        return;
    }
    gml_layout_drop(planned, kind, layout);
    kind->patience = kind->patience ? 2 * kind->patience : 1;
    kind->patience = kind->patience < LONGEST_PATIENCE ? kind->patience : LONGEST_PATIENCE;
    kind->learn_after = kind->serial + kind->patience;
}
