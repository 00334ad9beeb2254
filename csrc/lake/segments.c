/* What a lake holds from the device, as events: two looks at it, compared. */
#include "lake/lake.h"

#include <stdlib.h>

/* ---- a look ---------------------------------------------------------------------------------- */

typedef struct look {
    gml_held_list *held;
    bool is_short;   /* of host memory: not everything is there */
    bool is_ordered; /* by address, so far */
    bool is_in_home; /* the last one was of a home space, whose regions are cut for other reasons */
} look;

/* The list with room for one more; NULL, and the old one stays, without host memory. */
static gml_held *
with_room(gml_held_list *held)
{
    if (held->count < held->room) {
        return held->list;
    }
    size_t wanted = held->room ? 2 * held->room : 16;
    gml_held *grown = realloc(held->list, wanted * sizeof *grown);
    if (grown) {
        held->room = wanted;
    }
    return grown;
}

static gml_address
end_of(const gml_held *span)
{
    return span->address + span->size_bytes;
}

static void
see_region(void *context, const gml_region_info *region)
{
    look *taken = context;
    if (region->is_view || taken->is_short) {
        return;
    }
    gml_held_list *held = taken->held;
    gml_held *last = held->count ? &held->list[held->count - 1] : NULL;
    bool is_home = region->kind == GML_REGION_HOME;
    bool goes_on = is_home && taken->is_in_home && last && end_of(last) == region->address;
    taken->is_in_home = is_home;
    if (goes_on) {
        last->size_bytes += region->size_bytes;
        return;
    }
    taken->is_ordered &= !last || end_of(last) <= region->address;
    gml_held *grown = with_room(held);
    if (!grown) {
        taken->is_short = true;
        return;
    }
    held->list = grown;
    held->list[held->count++] =
        (gml_held){region->address, region->size_bytes, is_home ? 0 : region->stream};
}

static void
pass_range(void *context, const gml_range_info *range)
{
    (void)context;
    (void)range;
}

static void
see_policy(look *taken, gml_policy *policy)
{
    taken->is_in_home = false;
    policy->ops->visit(policy, &(gml_visitor){taken, see_region, pass_range, NULL});
}

static void
see_pool(void *context, gml_pool_id id, gml_policy *policy)
{
    (void)id;
    see_policy(context, policy);
}

static int
by_address(const void *left, const void *right)
{
    const gml_held *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* Everything that is held; what a guest has is its host's. False without host memory. */
static bool
take_look(gml_lake *lake, gml_held_list *out)
{
    look taken = {.held = out, .is_ordered = true};
    out->count = 0;
    see_policy(&taken, lake->policy);
    gml_pools_each(&lake->pools, see_pool, &taken);
    if (!taken.is_ordered && !taken.is_short) {
        qsort(out->list, out->count, sizeof *out->list, by_address);
    }
    return !taken.is_short;
}

/* ---- the difference -------------------------------------------------------------------------- */

static void
note(gml_history *history, gml_request_kind kind, gml_address address, uint64_t size_bytes,
     gml_stream stream)
{
    if (size_bytes) {
        gml_history_append(history, kind, 0, address, size_bytes, stream);
    }
}

/* Notes what of `held` is not in `others`, and returns how much it is. */
static uint64_t
note_difference(gml_history *history, gml_request_kind kind, const gml_held_list *held,
                const gml_held_list *others)
{
    uint64_t noted_bytes = 0;
    size_t at = 0;
    for (size_t i = 0; i < held->count; i++) {
        const gml_held *span = &held->list[i];
        for (gml_address begin = span->address; begin < end_of(span);) {
            while (at < others->count && end_of(&others->list[at]) <= begin) {
                at++;
            }
            bool is_cut = at < others->count && others->list[at].address < end_of(span);
            gml_address end = is_cut ? others->list[at].address : end_of(span);
            if (begin < end) {
                note(history, kind, begin, end - begin, span->stream);
                noted_bytes += end - begin;
            }
            begin = is_cut ? end_of(&others->list[at]) : end;
        }
    }
    return noted_bytes;
}

static void
clear(gml_held_list *held)
{
    free(held->list);
    *held = (gml_held_list){0};
}

void
gml_lake_end_segments(gml_lake *lake)
{
    clear(&lake->held);
    clear(&lake->seen);
}

void
gml_lake_begin_segments(gml_lake *lake)
{
    gml_lake_end_segments(lake);
    /* What is not seen here is seen, and accounted for, at the next change. */
    if (lake->history.ring && !take_look(lake, &lake->held)) {
        lake->held.count = 0;
    }
}

void
gml_lake_note_segments(gml_lake *lake, uint64_t before_bytes, uint64_t reserved_bytes)
{
    gml_history *history = &lake->history;
    uint64_t freed_bytes = 0, taken_bytes = 0;
    if (take_look(lake, &lake->seen)) {
        freed_bytes = note_difference(history, GML_REQUEST_SEGMENT_FREE, &lake->held, &lake->seen);
        taken_bytes = note_difference(history, GML_REQUEST_SEGMENT_ALLOC, &lake->seen, &lake->held);
        gml_held_list earlier = lake->held;
        lake->held = lake->seen;
        lake->seen = earlier;
    }
    uint64_t expected_bytes = before_bytes + taken_bytes - freed_bytes;
    if (expected_bytes > reserved_bytes) {
        note(history, GML_REQUEST_SEGMENT_FREE, 0, expected_bytes - reserved_bytes, 0);
    } else {
        note(history, GML_REQUEST_SEGMENT_ALLOC, 0, reserved_bytes - expected_bytes, 0);
    }
}
