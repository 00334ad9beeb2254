/* Memory of other streams, by the rules of GLake's multi-stream reuse (Ant Group, 2023):
 *
 *   1. what was released earliest is taken first, so that the wait is short;
 *   2. a side stream does not stitch its main stream's memory: one range serves a request, or none;
 *   3. it does not take a range that exceeds the request by more than a slack;
 *   4. it does not split one: it takes ranges whole;
 *   5. how many ranges of others one request gathers is limited;
 *   6. a side stream takes over no view of its main stream.
 *
 * Rules 2, 3, 4 and 6 keep the blocks of the main stream whole, where a small buffer of a side
 * stream that lives long would pin pieces of them. Streams of like size lend each other without
 * them, or two equal trainings could not share.
 *
 * What moves is whole chunks, so that no chunk is divided among streams for long, and what comes
 * back is whole again.
 */
#include "policy/stitch/stitch.h"

/* Where streams may not be made to wait, only an event recorded now can tell later what is complete
 * by then. */
static void
mark(gml_stitch *stitch, gml_timeline *timeline)
{
    bool is_marked;
    if (stitch->fences.rules.is_opportunistic && !stitch->fences.rules.may_wait) {
        (void)gml_fence_mark(&stitch->fences, timeline, &is_marked);
    }
}

void
gml_share_look(gml_stitch *stitch, const gml_pond *pond)
{
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_timeline *timeline = &gml_pond_of_link(link)->timeline;
        if (timeline != &pond->timeline) {
            mark(stitch, timeline);
            gml_fence_poll(&stitch->fences, timeline);
        }
    }
}

void
gml_share_poll(gml_stitch *stitch)
{
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_fence_poll(&stitch->fences, &gml_pond_of_link(link)->timeline);
    }
}

bool
gml_share_is_side(const gml_stitch *stitch, const gml_pond *pond, const gml_pond *owner)
{
    uint64_t ratio = stitch->share.ratio;
    /* A stream that is gone needs its blocks whole no more. */
    return ratio && owner->stream != GML_NO_STREAM &&
           owner->peak_held_bytes / ratio > pond->asked_bytes;
}

bool
gml_share_reach_any(gml_stitch *stitch, gml_pond *pond, const gml_extent *extent, gml_effort effort)
{
    gml_pond *owner = gml_pond_of_set(extent->set);
    bool is_passed = false;
    gml_status status = gml_fence_pass(&stitch->fences, &pond->timeline, &owner->timeline,
                                       extent->instant, effort, &is_passed);
    return status == GML_OK && is_passed;
}

bool
gml_share_reach(gml_stitch *stitch, gml_pond *pond, const gml_extent *extent, gml_effort effort)
{
    return gml_share_is_open(stitch) &&
           !gml_share_is_side(stitch, pond, gml_pond_of_set(extent->set)) &&
           gml_share_reach_any(stitch, pond, extent, effort);
}

/* Moves a range that is free in another pond, and in reach. pre: as gml_home_move(). */
static gml_extent *
move_in(gml_stitch *stitch, gml_pond *pond, const gml_extent *extent, uint64_t offset,
        uint64_t size_bytes)
{
    const gml_pond *owner = gml_pond_of_set(extent->set);
    gml_fence_count(&stitch->fences, &pond->timeline, &owner->timeline, size_bytes);
    /* A third stream must come after the owner's work too. It does when it comes after this stream
     * from now on, which has waited for it; where that work is complete, everybody does. */
    bool is_complete = owner->timeline.completed >= extent->instant;
    uint64_t instant = is_complete ? 0 : gml_fence_now(&stitch->fences, &pond->timeline);
    return gml_home_move(&stitch->home, offset, size_bytes, &pond->set, instant);
}

gml_status
gml_share_take(gml_stitch *stitch, gml_pond *pond, uint64_t offset, uint64_t size_bytes)
{
    gml_status status = gml_home_prepare(&stitch->home, 2);
    if (status == GML_OK) {
        (void)move_in(stitch, pond, gml_home_find(&stitch->home, offset), offset, size_bytes);
    }
    return status;
}

/* What another pond has of just that size, where `pond` may take it over; or NULL. */
static gml_class *
class_of_other(const gml_stitch *stitch, const gml_pond *pond, const gml_pond *owner,
               uint64_t size_bytes)
{
    bool may = owner != pond && !gml_share_is_side(stitch, pond, owner);
    return may ? gml_map_find(&owner->classes, size_bytes) : NULL;
}

/* The one of these whose oldest placement was released earliest; NULL: there is none. */
static gml_class *
earliest_class(const gml_stitch *stitch, const gml_pond *pond, uint64_t size_bytes)
{
    gml_class *earliest = NULL;
    uint64_t least = UINT64_MAX;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_class *from = class_of_other(stitch, pond, gml_pond_of_link(link), size_bytes);
        uint64_t freed = from ? gml_class_first_freed(from) : UINT64_MAX;
        if (freed < least) {
            least = freed;
            earliest = from;
        }
    }
    return earliest;
}

static gml_status
adopt_any(gml_stitch *stitch, gml_class *class, gml_effort effort, gml_placement **out)
{
    const gml_pond *pond = class->pond;
    gml_class *first = earliest_class(stitch, pond, class->size_bytes);
    gml_status status = first ? gml_placement_adopt(stitch, first, class, effort, out) : GML_OK;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds && status == GML_OK && !*out;
         link = link->next) {
        gml_class *from = class_of_other(stitch, pond, gml_pond_of_link(link), class->size_bytes);
        if (from && from != first) {
            status = gml_placement_adopt(stitch, from, class, effort, out);
        }
    }
    return status;
}

gml_status
gml_share_adopt(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_effort effort,
                gml_placement **out)
{
    if (!stitch->share.lends_views) {
        return GML_OK;
    }
    gml_class *class = gml_class_find(stitch, pond, size_bytes);
    if (!class) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = adopt_any(stitch, class, effort, out);
    gml_class_drop_if_empty(stitch, class);
    return status;
}

/* The class of that size whose first ready placement is the oldest, among the ponds that `pond` is
 * no side stream to, its own included; NULL: none has one. */
static gml_class *
oldest_class(gml_stitch *stitch, const gml_pond *pond, uint64_t size_bytes)
{
    gml_class *oldest = NULL;
    uint64_t least = UINT64_MAX;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *owner = gml_pond_of_link(link);
        gml_class *from = gml_map_find(&owner->classes, size_bytes);
        bool is_lent = stitch->share.lends_views && !gml_share_is_side(stitch, pond, owner);
        if (!from || (owner != pond && !is_lent)) {
            continue;
        }
        gml_class_refresh(stitch, from);
        uint64_t number = gml_class_first_number(from);
        if (number < least) {
            least = number;
            oldest = from;
        }
    }
    return oldest;
}

/* How many placements are looked at for one request: far more than stand in each other's way, and a
 * bound on the time. */
enum { MAX_OLDEST_TRIED = 512 };

gml_status
gml_share_oldest(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, gml_effort effort,
                 gml_placement **out)
{
    gml_class *class = gml_class_find(stitch, pond, size_bytes);
    if (!class) {
        return GML_NO_HOST_MEMORY;
    }
    /* What another stream could not reach may well be in reach here. */
    gml_watch_retry_stranded(class);
    gml_status status = GML_OK;
    gml_class *from = oldest_class(stitch, pond, size_bytes);
    for (int tried = 0; from && tried < MAX_OLDEST_TRIED && status == GML_OK; tried++) {
        status = gml_placement_take_first(stitch, from, class, effort, out);
        from = *out ? NULL : oldest_class(stitch, pond, size_bytes);
    }
    gml_class_drop_if_empty(stitch, class);
    return status;
}

void
gml_share_note_made(gml_stitch *stitch)
{
    if (!gml_share_is_open(stitch)) {
        return;
    }
    stitch->shared_made++;
    bool is_first = stitch->share_turn == GML_TURN_OWN_FIRST;
    uint64_t most =
        is_first ? GML_VIEWS_UNTIL_OLDEST : GML_VIEWS_UNTIL_OWN + stitch->shared_served / 2;
    if (stitch->shared_made > most && stitch->share_turn != GML_TURN_OWN_AGAIN) {
        stitch->share_turn = is_first ? GML_TURN_OLDEST_FIRST : GML_TURN_OWN_AGAIN;
        stitch->shared_made = 0;
        stitch->shared_served = 0;
    }
}

gml_status
gml_share_order(gml_policy *self, gml_stream later, gml_stream earlier)
{
    gml_stitch *stitch = gml_stitch_of(self);
    const gml_pond *one = gml_map_find(&stitch->pond_by_stream, later + 1);
    const gml_pond *other = gml_map_find(&stitch->pond_by_stream, earlier + 1);
    bool is_news = one && other && one != other;
    return is_news ? gml_fence_tell(&stitch->fences, &one->timeline, &other->timeline) : GML_OK;
}

void
gml_share_pairs(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
                void *context)
{
    gml_fences *fences = &gml_stitch_of(self)->fences;
    for (gml_link *link = fences->all_pairs.next; link != &fences->all_pairs; link = link->next) {
        const gml_pair *pair = gml_pair_of_link(link);
        const gml_stream_pair told = {
            .owner = pair->owner,
            .borrower = pair->borrower,
            .borrowed_bytes = pair->borrowed_bytes,
            .borrows = pair->borrows,
            .waits = pair->waits,
            .refused_waits = pair->refused_waits,
        };
        see(context, &told);
    }
}

/* ---- the last resort ---------------------------------------------------------------------------
 */

/* Whether `pond` comes after all that every other one has freed. */
static bool
pass_all(gml_stitch *stitch, gml_pond *pond)
{
    bool is_passed = true;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds && is_passed;
         link = link->next) {
        gml_pond *owner = gml_pond_of_link(link);
        if (owner != pond && owner->set.free_bytes) {
            gml_status status = gml_fence_pass(&stitch->fences, &pond->timeline, &owner->timeline,
                                               owner->timeline.last, GML_URGENT, &is_passed);
            is_passed &= status == GML_OK;
        }
    }
    return is_passed;
}

gml_status
gml_share_take_all(gml_stitch *stitch, gml_pond *pond, bool *is_any)
{
    *is_any = false;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *other = gml_pond_of_link(link);
        gml_pond_unpark(stitch, other);
        *is_any |= other != pond && other->set.free_bytes != 0;
    }
    gml_share_poll(stitch);
    gml_status status = GML_OK;
    if (*is_any && !pass_all(stitch, pond)) {
        status = gml_stitch_synchronize(stitch, pond, is_any);
    }
    if (status != GML_OK || !*is_any) {
        *is_any = false;
        return status;
    }
    for (gml_extent *extent = gml_home_find(&stitch->home, 0); extent; extent = extent->next) {
        if (extent->kind == GML_EXTENT_FREE && extent->set != &pond->set) {
            extent = move_in(stitch, pond, extent, extent->offset, extent->size_bytes);
        }
    }
    return GML_OK;
}
