/* Which requests a plan should leave to the inner policy.
 *
 * What lives longer than steps lies where it was first served, among chunks that it fills in part.
 * The pool takes whole chunks only, so the rest of those would serve nobody in a planned step. It
 * is best used by requests up to 1 MiB, for which the inner policy needs no room in one piece.
 */
#include "plan/planned.h"

#include <stdlib.h>

/* What it has to save to be worth it: smaller amounts are lost in the rounding to chunks. */
#define LEAST_SAVED_BYTES (UINT64_C(4) << 20)
enum { LEAST_SAVED_PART = 4096 };

static bool
is_small(const gml_step_request *request, gml_stream stream)
{
    return request->stream == stream && request->size_bytes <= GML_SMALL_LIMIT;
}

/* The most bytes of small requests of the stream that live at a time. `changes` has room for every
 * event, and one more. */
static uint64_t
small_peak(const gml_step *step, gml_stream stream, int64_t *changes)
{
    for (uint64_t i = 0; i <= step->event_count; i++) {
        changes[i] = 0;
    }
    for (size_t i = 0; i < step->request_count; i++) {
        const gml_step_request *request = &step->requests[i];
        if (is_small(request, stream)) {
            bool is_within = request->death_serial == step->serial;
            changes[request->birth] += (int64_t)request->size_bytes;
            changes[is_within ? request->death : step->event_count] -= (int64_t)request->size_bytes;
        }
    }
    int64_t live = 0, peak = 0;
    for (uint64_t i = 0; i <= step->event_count; i++) {
        live += changes[i];
        peak = live > peak ? live : peak;
    }
    return (uint64_t)peak;
}

/* What is free in chunks that the stream's pond does not have as a whole. */
static uint64_t
leftover_bytes(gml_stitch *stitch, gml_pond *pond)
{
    gml_pond_settle(stitch, pond);
    return pond->set.free_bytes - pond->set.whole_bytes;
}

static void
leave_small(gml_step *step, gml_stream stream)
{
    for (size_t i = 0; i < step->request_count; i++) {
        if (is_small(&step->requests[i], stream)) {
            step->requests[i].death = GML_STILL_LIVE;
            step->requests[i].death_serial = GML_STILL_LIVE;
        }
    }
}

void
gml_planned_leave_small(gml_planned *planned, gml_profile *profile)
{
    gml_stitch *stitch = planned->stitch;
    uint64_t least_bytes = planned->inner->reserved_bytes / LEAST_SAVED_PART;
    least_bytes = least_bytes > LEAST_SAVED_BYTES ? least_bytes : LEAST_SAVED_BYTES;
    int64_t *changes = calloc(profile->last.event_count + 1, sizeof *changes);
    for (gml_link *link = stitch->ponds.next; changes && link != &stitch->ponds;
         link = link->next) {
        gml_pond *pond = gml_pond_of_link(link);
        uint64_t saved_bytes = small_peak(&profile->last, pond->stream, changes);
        if (saved_bytes >= least_bytes && leftover_bytes(stitch, pond) >= 2 * saved_bytes) {
            leave_small(&profile->last, pond->stream);
            leave_small(&profile->previous, pond->stream);
        }
    }
    free(changes);
}
