/* Whole chunks of other streams. */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

#include <stdlib.h>

/* Whole chunks in one extent of another pond. */
struct gml_offer {
    gml_extent *extent;
    uint64_t offset, size_bytes; /* of the chunks */
    uint64_t instant;
};

/* What is asked for. */
typedef struct demand {
    gml_pond *pond;
    uint64_t bytes; /* whole chunks that are missing */
    uint64_t taken_bytes;
    uint64_t pieces; /* that it may still be made of */
    bool is_one_range;
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

/* ---- listing --------------------------------------------------------------------------------- */

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
    size_t count = 0;
    gml_freeset_index(&owner->set);
    gml_tree_node *node = gml_tree_last(&owner->set.wholes);
    for (int looked = 0; node && count < MOST_OFFERS && looked < MOST_LOOKED_AT;
         looked++, node = gml_tree_previous(node)) {
        gml_extent *extent = gml_extent_of_whole(node);
        if (wanted->is_one_range && extent->whole.size_bytes < wanted->bytes) {
            break;
        }
        if (is_for_effort(stitch, wanted, owner, extent)) {
            out[count++] = (gml_offer){extent, extent->whole.address, extent->whole.size_bytes,
                                       extent->instant};
        }
    }
    return count;
}

/* Room for MOST_OFFERS of every pond that is looked at. */
static gml_status
reserve_offers(gml_stitch *stitch)
{
    size_t ponds = stitch->pond_count < GML_MOST_DONORS ? stitch->pond_count : GML_MOST_DONORS;
    size_t room = (ponds + 1) * MOST_OFFERS;
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
    int looked = 0;
    gml_pond *donor = NULL;
    while ((donor = gml_share_next_donor(stitch, wanted->pond, donor, &looked))) {
        count += list_pond(stitch, donor, wanted, &stitch->scratch_offers[count]);
    }
    bool is_by_instant = wanted->effort != GML_KNOWN && stitch->is_earliest_first;
    qsort(stitch->scratch_offers, count, sizeof *stitch->scratch_offers,
          is_by_instant ? by_instant : by_size);
    return count;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* Takes the first chunks of an offer, as many as are missing. */
static gml_status
take_offer(gml_stitch *stitch, demand *wanted, const gml_offer *offer)
{
    if (!gml_share_reach(stitch, wanted->pond, offer->extent, wanted->effort)) {
        return GML_OK;
    }
    uint64_t part_bytes = missing_bytes(wanted);
    if (part_bytes < offer->size_bytes) {
        uint64_t end = gml_home_boundary(&stitch->home, offer->offset + part_bytes);
        part_bytes = end - offer->offset;
    } else {
        part_bytes = offer->size_bytes;
    }
    gml_status status = gml_share_take(stitch, wanted->pond, offer->offset, part_bytes);
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
    if (wanted->effort == GML_KNOWN || !stitch->is_earliest_first) {
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

gml_status
gml_share_borrow(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes, bool is_one_range,
                 gml_effort effort)
{
    demand wanted = {
        .pond = pond,
        .bytes = gml_round_up(size_bytes, stitch->home.grain_bytes),
        .pieces = stitch->most_pieces,
        .is_one_range = is_one_range,
        .effort = effort,
    };
    gml_status status = reserve_offers(stitch);
    if (status != GML_OK) {
        return status;
    }
    return take_offers(stitch, &wanted, list_offers(stitch, &wanted));
}
