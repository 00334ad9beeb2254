/* Whole chunks of other streams, chosen by the rules told in share.h. */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

#include <stdlib.h>

/* Whole chunks in one extent of another pond. */
struct gml_offer {
    gml_extent *extent;
    uint64_t offset, size_bytes; /* of the chunks */
    uint64_t instant;
    bool is_side; /* of a main stream: taken whole or not at all */
};

/* What is asked for. */
typedef struct demand {
    gml_pond *pond;
    uint64_t bytes; /* whole chunks that are missing */
    uint64_t taken_bytes;
    uint64_t pieces; /* that it may still be made of */
    bool is_one_run;
    gml_effort effort;
} demand;

/* Offers taken into account per pond, the largest of it, and free extents looked at for them:
 * bounds on the time. */
enum { MOST_OFFERS = 256, MOST_LOOKED_AT = 4 * MOST_OFFERS };

static uint64_t
missing_bytes(const demand *wanted)
{
    return wanted->bytes > wanted->taken_bytes ? wanted->bytes - wanted->taken_bytes : 0;
}

/* ---- listing -----------------------------------------------------------------------------------
 */

static bool
may_offer(const gml_stitch *stitch, const gml_extent *extent, bool is_side, const demand *wanted)
{
    bool holds_all = extent->whole.size_bytes >= wanted->bytes;
    if (is_side) {
        return holds_all && extent->size_bytes - wanted->bytes <= stitch->share.slack_bytes;
    }
    return holds_all || !wanted->is_one_run;
}

/* Whether the extent is for this effort: in reach as it is, or else only with a wait. */
static bool
is_for_effort(gml_stitch *stitch, const demand *wanted, gml_pond *owner, const gml_extent *extent)
{
    bool is_known = false;
    (void)gml_fence_pass(&stitch->fences, &wanted->pond->timeline, &owner->timeline,
                         extent->instant, GML_KNOWN, &is_known);
    return is_known == (wanted->effort == GML_KNOWN);
}

/* What one pond offers; returns how many there are. */
static size_t
list_pond(gml_stitch *stitch, gml_pond *owner, const demand *wanted, gml_offer *out)
{
    bool is_side = gml_share_is_side(stitch, wanted->pond, owner);
    size_t count = 0;
    gml_freeset_index(&owner->set);
    gml_tree_node *node = gml_tree_last(&owner->set.wholes);
    for (int looked = 0; node && count < MOST_OFFERS && looked < MOST_LOOKED_AT;
         looked++, node = gml_tree_previous(node)) {
        gml_extent *extent = gml_extent_of_whole(node);
        if (may_offer(stitch, extent, is_side, wanted) &&
            is_for_effort(stitch, wanted, owner, extent)) {
            out[count++] = (gml_offer){extent, extent->whole.address, extent->whole.size_bytes,
                                       extent->instant, is_side};
        }
    }
    return count;
}

/* Room for MOST_OFFERS of every pond. */
static gml_status
reserve_offers(gml_stitch *stitch)
{
    size_t room = stitch->pond_count * MOST_OFFERS;
    if (room <= stitch->scratch_offer_room) {
        return GML_OK;
    }
    gml_offer *grown = realloc(stitch->scratch_offers, room * sizeof *grown);
    if (!grown) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory to look at what other streams hold free");
    }
    stitch->scratch_offers = grown;
    stitch->scratch_offer_room = room;
    return GML_OK;
}

static int
compare(uint64_t left, uint64_t right)
{
    return (left > right) - (left < right);
}

static int
by_size(const void *left, const void *right)
{
    const gml_offer *one = left, *other = right;
    int order = compare(one->size_bytes, other->size_bytes);
    return order ? order : compare(one->offset, other->offset);
}

/* What was released earliest comes last, where taking begins. */
static int
by_instant(const void *left, const void *right)
{
    const gml_offer *one = left, *other = right;
    int order = compare(other->instant, one->instant);
    return order ? order : by_size(left, right);
}

/* All offers, those to be taken first at the end. */
static size_t
list_offers(gml_stitch *stitch, const demand *wanted)
{
    size_t count = 0;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *owner = gml_pond_of_link(link);
        if (owner != wanted->pond) {
            gml_pond_unpark(stitch, owner);
            count += list_pond(stitch, owner, wanted, &stitch->scratch_offers[count]);
        }
    }
    bool is_by_instant = wanted->effort != GML_KNOWN && stitch->share.is_earliest_first;
    qsort(stitch->scratch_offers, count, sizeof *stitch->scratch_offers,
          is_by_instant ? by_instant : by_size);
    return count;
}

/* ---- taking ------------------------------------------------------------------------------------
 */

static gml_status
take_offer(gml_stitch *stitch, demand *wanted, const gml_offer *offer)
{
    if ((offer->is_side && wanted->taken_bytes) ||
        !gml_share_reach_any(stitch, wanted->pond, offer->extent, wanted->effort)) {
        return GML_OK;
    }
    uint64_t part_bytes = missing_bytes(wanted);
    part_bytes = part_bytes < offer->size_bytes ? part_bytes : offer->size_bytes;
    gml_status status =
        offer->is_side
            ? gml_share_take(stitch, wanted->pond, offer->extent->offset, offer->extent->size_bytes)
            : gml_share_take(stitch, wanted->pond, offer->offset, part_bytes);
    if (status == GML_OK) {
        wanted->taken_bytes += part_bytes;
        wanted->pieces--;
    }
    return status;
}

/* The smallest offer that holds all; `count` if none does. pre: sorted by size. */
static size_t
find_fitting(const gml_offer *offers, size_t count, uint64_t bytes)
{
    size_t index = 0;
    while (index < count && offers[index].size_bytes < bytes) {
        index++;
    }
    return index;
}

static gml_status
take_offers(gml_stitch *stitch, demand *wanted, size_t count)
{
    const gml_offer *offers = stitch->scratch_offers;
    gml_status status = GML_OK;
    if (wanted->effort == GML_KNOWN || !stitch->share.is_earliest_first) {
        size_t fitting = find_fitting(offers, count, wanted->bytes);
        if (fitting < count) {
            status = take_offer(stitch, wanted, &offers[fitting]);
            count = fitting;
        }
    }
    while (count && status == GML_OK && missing_bytes(wanted) && wanted->pieces) {
        status = take_offer(stitch, wanted, &offers[--count]);
    }
    return status;
}

/* ---- chunks whose parts lie in several ponds ---------------------------------------------------
 */

/* Whether every byte of the chunk at `offset` is free, and what other ponds hold of it in reach. */
static bool
can_join(gml_stitch *stitch, const demand *wanted, uint64_t offset)
{
    uint64_t end = offset + stitch->home.chunk_bytes;
    bool can = true;
    const gml_extent *extent = gml_home_find(&stitch->home, offset);
    for (; extent && extent->offset < end && can; extent = extent->next) {
        bool is_own = extent->set == &wanted->pond->set;
        can = extent->kind == GML_EXTENT_FREE &&
              (is_own || gml_share_reach(stitch, wanted->pond, extent, GML_KNOWN) ||
               wanted->effort != GML_KNOWN);
    }
    extent = gml_home_find(&stitch->home, offset);
    for (; extent && extent->offset < end && can; extent = extent->next) {
        can = extent->set == &wanted->pond->set ||
              gml_share_reach(stitch, wanted->pond, extent, wanted->effort);
    }
    return can;
}

/* Takes what other ponds hold of the chunk at `offset`. */
static gml_status
join(gml_stitch *stitch, demand *wanted, uint64_t offset)
{
    uint64_t end = offset + stitch->home.chunk_bytes;
    gml_status status = GML_OK;
    for (uint64_t at = offset; at < end && status == GML_OK;) {
        const gml_extent *extent = gml_home_find(&stitch->home, at);
        uint64_t extent_end = extent->offset + extent->size_bytes;
        uint64_t part_end = extent_end < end ? extent_end : end;
        if (extent->set != &wanted->pond->set) {
            status = gml_share_take(stitch, wanted->pond, at, part_end - at);
        }
        at = part_end;
    }
    if (status == GML_OK) {
        wanted->taken_bytes += stitch->home.chunk_bytes;
        wanted->pieces--;
    }
    return status;
}

/* Lists the chunks of which `owner` holds the start free, and another pond what follows; returns
 * how many there are. */
static size_t
list_divided(gml_stitch *stitch, gml_pond *owner, gml_offer *out)
{
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    size_t count = 0;
    gml_freeset_index(&owner->set);
    const gml_tree_node *node = gml_tree_last(&owner->set.tails);
    for (int looked = 0; node && count < MOST_OFFERS && looked < MOST_LOOKED_AT; looked++) {
        const gml_extent *next = gml_home_find(&stitch->home, node->address + node->size_bytes);
        if (next->kind == GML_EXTENT_FREE) {
            out[count++] = (gml_offer){.offset = node->address, .size_bytes = chunk_bytes};
        }
        node = gml_tree_previous(node);
    }
    return count;
}

/* A chunk that lies free in several ponds begins with what is a tail in one of them. */
static gml_status
take_divided(gml_stitch *stitch, demand *wanted)
{
    size_t count = 0;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *owner = gml_pond_of_link(link);
        count += list_divided(stitch, owner, &stitch->scratch_offers[count]);
    }
    qsort(stitch->scratch_offers, count, sizeof *stitch->scratch_offers, by_size);
    gml_status status = GML_OK;
    for (size_t i = 0; i < count && status == GML_OK && missing_bytes(wanted) && wanted->pieces;
         i++) {
        uint64_t offset = stitch->scratch_offers[i].offset;
        if (can_join(stitch, wanted, offset)) {
            status = join(stitch, wanted, offset);
        }
    }
    return status;
}

gml_status
gml_share_borrow(gml_stitch *stitch, gml_pond *pond, uint64_t count, bool is_one_run,
                 gml_effort effort)
{
    demand wanted = {
        .pond = pond,
        .bytes = count * stitch->home.chunk_bytes,
        .pieces = stitch->share.pieces,
        .is_one_run = is_one_run,
        .effort = effort,
    };
    gml_status status = reserve_offers(stitch);
    if (status != GML_OK) {
        return status;
    }
    status = take_offers(stitch, &wanted, list_offers(stitch, &wanted));
    if (status == GML_OK && !is_one_run && missing_bytes(&wanted)) {
        status = take_divided(stitch, &wanted);
    }
    return status;
}
