/* Kinds of steps and their layouts: their history, and how they cut reservations into slots. */
#include "base/mix.h"
#include "base/rounding.h"
#include "policy/steps/planned.h"

#include <stdlib.h>

/* ---- kinds ----------------------------------------------------------------------------------- */

gml_kind *gml_kind_find(const gml_planned *planned, uint64_t id) {
    gml_kind *kind = planned->kinds;
    while (kind && kind->id != id) {
        kind = kind->next;
    }
    return kind;
}

gml_kind *gml_kind_make(gml_planned *planned, uint64_t id) {
    gml_kind *kind = gml_kind_find(planned, id);
    if (kind) {
        return kind;
    }
    kind = calloc(1, sizeof *kind);
    if (!kind) {
        (void)gml_driver_fail(planned->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a kind of step");
        return NULL;
    }
    kind->id = id;
    kind->next = planned->kinds;
    planned->kinds = kind;
    return kind;
}

void gml_kind_drop_layouts(gml_planned *planned, gml_kind *kind) {
    while (kind->layout_count) {
        gml_layout_free(planned, kind->layouts[--kind->layout_count]);
    }
    while (kind->loaded_count) {
        gml_layout_free(planned, kind->loaded[--kind->loaded_count]);
    }
}

void gml_kinds_close(gml_planned *planned) {
    for (gml_kind *kind = planned->kinds, *next; kind; kind = next) {
        next = kind->next;
        gml_kind_drop_layouts(planned, kind);
        for (size_t i = 0; i < kind->watched_count; i++) {
            gml_layout_release(kind->watched[i]);
        }
        free(kind);
    }
    planned->kinds = NULL;
}

/* ---- layouts --------------------------------------------------------------------------------- */

#define FINGERPRINT_SEED UINT64_C(0x9e3779b97f4a7c15)

gml_layout *gml_layout_new(uint64_t state) {
    gml_layout *layout = calloc(1, sizeof *layout);
    if (layout) {
        layout->state = layout->mark = state;
        layout->fingerprint = FINGERPRINT_SEED;
        layout->has_places = true;
        layout->holders = 1;
    }
    return layout;
}

void gml_layout_drop_places(const gml_planned *planned, gml_layout *layout) {
    for (size_t i = 0; i < layout->entry_count; i++) {
        gml_entry *entry = &layout->entries[i];
        free(entry->place.of_view);
        if (entry->place.view) {
            gml_view_unpin(planned->stitch, entry->place.view);
        }
        entry->place = (gml_place){0};
        entry->reservation = NULL;
    }
    layout->has_places = false;
}

void gml_layout_cut(const gml_planned *planned, gml_layout *layout) {
    gml_layout_drop_places(planned, layout);
    free(layout->entries);
    layout->entries = NULL;
    layout->entry_count = layout->entry_room = 0;
    layout->is_cut = true;
}

void gml_layout_release(gml_layout *layout) {
    if (layout && --layout->holders == 0) {
        free(layout->entries);
        free(layout);
    }
}

void gml_layout_free(const gml_planned *planned, gml_layout *layout) {
    if (layout) {
        gml_layout_drop_places(planned, layout);
        gml_layout_release(layout);
    }
}

static bool has_room(gml_layout *layout) {
    if (layout->entry_count < layout->entry_room) {
        return true;
    }
    size_t room = layout->entry_room ? 2 * layout->entry_room : 256;
    bool may_grow = room <= GML_MOST_REQUESTS && !layout->is_cut;
    gml_entry *grown = may_grow ? realloc(layout->entries, room * sizeof *grown) : NULL;
    if (grown) {
        layout->entries = grown;
        layout->entry_room = room;
    }
    return grown != NULL;
}

bool gml_layout_push(gml_layout *layout, const gml_entry *entry) {
    const gml_place *place = &entry->place;
    uint64_t where =
        place->view ? place->view->block.address : place->run.offset + place->run.size_bytes;
    if (!has_room(layout)) {
        return false;
    }
    layout->entries[layout->entry_count++] = *entry;
    layout->fingerprint = gml_mix(layout->fingerprint ^ (entry->size_bytes + entry->stream));
    layout->mark =
        gml_mix(layout->mark ^ (entry->size_bytes + entry->stream)) + gml_mix(where ^ entry->ended);
    return true;
}

bool gml_layout_add(gml_layout *layout, const gml_stitch *stitch, const gml_block *block,
                    bool opens_slab, uint64_t ended) {
    gml_placement *placement = block->is_small ? stitch->opened : (gml_placement *)(void *)block;
    gml_entry entry = {.size_bytes = gml_round_up(block->requested_bytes, GML_ALIGNMENT),
                       .stream = block->stream,
                       .ended = ended,
                       .birth = layout->event_count++,
                       .death = GML_STILL_LIVE,
                       .death_serial = GML_STILL_LIVE};
    bool has_place = layout->has_places && (opens_slab || !block->is_small);
    if (has_place && placement->view) {
        entry.place.view = placement;
        entry.place.missing_bytes = stitch->missing_bytes;
    } else if (has_place) {
        entry.place.run = (gml_run){.offset = placement->block.address - stitch->range.base,
                                    .size_bytes = placement->block.block_bytes};
    }
    bool is_added = gml_layout_push(layout, &entry);
    if (is_added && entry.place.view) {
        placement->pin_count++;
    }
    return is_added;
}

gml_layout *gml_layout_begin_of(const gml_planned *planned, const gml_layout *layout,
                                size_t count) {
    gml_layout *begin = gml_layout_new(planned->open.state);
    for (size_t i = 0; i < count && begin; i++) {
        gml_entry entry = layout->entries[i];
        entry.place.of_view = NULL;
        if (!gml_layout_push(begin, &entry)) {
            gml_layout_free(planned, begin);
            begin = NULL;
        } else if (entry.place.view) {
            entry.place.view->pin_count++;
        }
    }
    return begin;
}

void gml_layout_drop(gml_planned *planned, gml_kind *kind, gml_layout *layout) {
    size_t at = 0;
    while (kind->layouts[at] != layout) {
        at++;
    }
    kind->layout_count--;
    for (; at < kind->layout_count; at++) {
        kind->layouts[at] = kind->layouts[at + 1];
    }
    gml_layout_free(planned, layout);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Calls `see` with every run that a place of `reservation` has, in the layouts of all kinds. */
static void each_run(const gml_planned *planned, const gml_reservation *reservation,
                     void (*see)(void *context, const gml_run *run, gml_slots *slots),
                     void *context) {
    for (gml_kind *kind = planned->kinds; kind; kind = kind->next) {
        for (size_t i = 0; i < kind->layout_count; i++) {
            for (size_t j = 0; j < kind->layouts[i]->entry_count; j++) {
                gml_entry *entry = &kind->layouts[i]->entries[j];
                gml_place *place = &entry->place;
                size_t run_count = place->view ? place->view->run_count : 1;
                for (size_t k = 0; k < run_count && entry->reservation == reservation; k++) {
                    see(context, place->view ? &place->view->runs[k] : &place->run,
                        place->view ? &place->of_view[k] : &place->slots);
                }
            }
        }
    }
}

/* The ends of runs, as many as there is room for. */
typedef struct end_list {
    uint64_t *ends;
    size_t count, room;
} end_list;

static void add_ends(void *context, const gml_run *run, gml_slots *slots) {
    end_list *list = context;
    (void)slots;
    if (list->count + 2 <= list->room) {
        list->ends[list->count] = run->offset;
        list->ends[list->count + 1] = run->offset + run->size_bytes;
    }
    list->count += 2;
}

static void find_slots(void *context, const gml_run *run, gml_slots *slots) {
    *slots = gml_reservation_slots(context, run->offset, run->size_bytes);
}

/* Cuts the addresses of a reservation at the places of all layouts. */
static bool cut(const gml_planned *planned, gml_reservation *reservation) {
    end_list list = {0};
    each_run(planned, reservation, add_ends, &list);
    list = (end_list){.ends = calloc(list.count + 1, sizeof *list.ends), .room = list.count};
    if (!list.ends) {
        return false;
    }
    each_run(planned, reservation, add_ends, &list);
    if (gml_reservation_cut(reservation, list.ends, list.count) != GML_OK) {
        return false;
    }
    each_run(planned, reservation, find_slots, reservation);
    return true;
}

static bool make_room_for_slots(const gml_layout *layout) {
    bool is_made = true;
    for (size_t i = 0; i < layout->entry_count && is_made; i++) {
        gml_place *place = &layout->entries[i].place;
        if (place->view) {
            place->of_view = calloc(place->view->run_count, sizeof *place->of_view);
            is_made = place->of_view != NULL;
        }
    }
    return is_made;
}

bool gml_kind_keep_layout(gml_planned *planned, gml_kind *kind, gml_layout *layout) {
    if (!make_room_for_slots(layout)) {
        gml_layout_free(planned, layout);
        return false;
    }
    gml_layout *oldest = kind->layouts[0];
    for (size_t i = 0; i < kind->layout_count; i++) {
        oldest = kind->layouts[i]->last_used < oldest->last_used ? kind->layouts[i] : oldest;
    }
    if (kind->layout_count == GML_KEPT_PLANS) {
        gml_layout_drop(planned, kind, oldest);
    }
    kind->layouts[kind->layout_count++] = layout;
    bool is_cut = true;
    for (gml_reservation *reservation = planned->reservations; reservation && is_cut;
         reservation = reservation->next) {
        is_cut = cut(planned, reservation);
    }
    if (!is_cut) { /* slots that were known do not fit the reservation any more */
        for (gml_kind *each = planned->kinds; each; each = each->next) {
            gml_kind_drop_layouts(planned, each);
        }
        return false;
    }
    planned->stats.plans_made++;
    return true;
}
