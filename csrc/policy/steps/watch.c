/* Watching a step: its requests, their frees, and the input of a plan. */
#include "policy/steps/planned.h"

#include <inttypes.h>
#include <stdlib.h>

void gml_planned_watch(gml_planned *planned) {
    gml_open_step *open = &planned->open;
    open->seen = gml_layout_new(open->state);
    if (open->seen && gml_map_reserve(&planned->watched, 1) == GML_OK) {
        open->seen->kind = open->kind;
        open->seen->number = open->number;
        open->seen->serial = open->kind->serial;
        (void)gml_map_insert(&planned->watched, open->number, open->seen);
    }
}

void gml_kind_keep_watched(gml_planned *planned, gml_kind *kind, gml_layout *seen) {
    if (seen->holders == 1) { /* it has not become a plan */
        gml_layout_drop_places(planned, seen);
    }
    if (!seen->number) {
        gml_layout_release(seen);
        return;
    }
    if (kind->watched_count == GML_KEPT_WATCHED) {
        gml_layout *oldest = kind->watched[--kind->watched_count];
        (void)gml_map_take(&planned->watched, oldest->number);
        gml_layout_release(oldest);
    }
    for (size_t i = kind->watched_count++; i > 0; i--) {
        kind->watched[i] = kind->watched[i - 1];
    }
    kind->watched[0] = seen;
}

/* ---- frees ----------------------------------------------------------------------------------- */

/* A free in a step of another kind, or between steps, counts to the end of the kind's last step. */
static void note_outside(const gml_layout *step, gml_entry *entry) {
    const gml_layout *last = step->kind->watched_count ? step->kind->watched[0] : step;
    entry->death = last->event_count;
    entry->death_serial = last->serial;
}

void gml_planned_note_free(gml_planned *planned, uint64_t note) {
    gml_layout *open = planned->open.seen && planned->open.seen->number ? planned->open.seen : NULL;
    uint64_t time = open ? open->event_count++ : 0;
    gml_layout *step = note ? gml_map_find(&planned->watched, note >> 32) : NULL;
    uint64_t index = note & UINT32_MAX;
    if (!step || index >= step->entry_count) {
        return; /* it is remembered no more, or was cut since then */
    }
    gml_entry *entry = &step->entries[index];
    if (!open || open->kind != step->kind) {
        note_outside(step, entry);
        return;
    }
    entry->death = time;
    entry->death_serial = open->serial;
}

/* ---- profiles -------------------------------------------------------------------------------- */

void gml_profile_free(gml_profile *profile) {
    if (profile) {
        free(profile->last.requests);
        free(profile->previous.requests);
        free(profile);
    }
}

static gml_status copy(const gml_layout *step, gml_step *out) {
    gml_step_request *requests = calloc(step->entry_count + 1, sizeof *requests);
    if (!requests) {
        return GML_NO_HOST_MEMORY;
    }
    for (size_t i = 0; i < step->entry_count; i++) {
        const gml_entry *entry = &step->entries[i];
        requests[i] = (gml_step_request){.size_bytes = entry->size_bytes,
                                         .stream = entry->stream,
                                         .birth = entry->birth,
                                         .death = entry->death,
                                         .death_serial = entry->death_serial};
    }
    *out = (gml_step){step->serial, step->event_count, requests, step->entry_count};
    return GML_OK;
}

gml_status gml_steps_profile(gml_policy *policy, uint64_t id, gml_profile **out) {
    gml_planned *planned = gml_planned_of(policy);
    const gml_kind *kind = gml_kind_find(planned, id);
    if (!kind || !kind->watched_count) {
        return gml_driver_fail(policy->driver, GML_MISUSE, "no step of kind %" PRIu64 " has ended",
                               id);
    }
    gml_profile *profile = calloc(1, sizeof *profile);
    gml_status status = profile ? copy(kind->watched[0], &profile->last) : GML_NO_HOST_MEMORY;
    if (status == GML_OK && kind->watched_count > 1) {
        status = copy(kind->watched[1], &profile->previous);
    }
    if (status != GML_OK) {
        gml_profile_free(profile);
        return gml_driver_fail(policy->driver, GML_NO_HOST_MEMORY, "no host memory for a profile");
    }
    *out = profile;
    return GML_OK;
}
