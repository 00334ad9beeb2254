/* The whole lake, read only: its invariants, and everything it holds. */
#include "base/status.h"
#include "lake/lake.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- invariants ------------------------------------------------------------------------------ */

/* Passes a policy's answer on, with the reason where the lake's callers look. */
static gml_status
check_policy(gml_lake *lake, gml_policy *policy)
{
    gml_status status = policy->ops->check(policy);
    if (status != GML_OK && policy->driver != lake->driver) {
        memcpy(lake->driver->reason, policy->driver->reason, sizeof lake->driver->reason);
    }
    return status;
}

typedef struct pools_check {
    gml_lake *lake;
    gml_status status;
} pools_check;

static void
check_pool(void *context, gml_pool_id id, gml_policy *policy)
{
    pools_check *checked = context;
    (void)id;
    if (checked->status == GML_OK) {
        checked->status = check_policy(checked->lake, policy);
    }
}

static gml_status
check_policies(gml_lake *lake)
{
    pools_check checked = {lake, check_policy(lake, lake->policy)};
    if (checked.status == GML_OK && lake->guest) {
        checked.status = check_policy(lake, gml_guest_policy(lake->guest));
    }
    gml_pools_each(&lake->pools, check_pool, &checked);
    return checked.status;
}

static gml_status
check_counts(gml_lake *lake)
{
    uint64_t known_blocks = lake->blocks.count + lake->uses.pending_count;
    if (known_blocks != lake->stats.live_blocks) {
        return gml_driver_fail(lake->driver, GML_CORRUPT,
                               "%" PRIu64 " live blocks in the tables, %" PRIu64 " counted",
                               known_blocks, lake->stats.live_blocks);
    }
    uint64_t reserved_bytes = gml_lake_reserved(lake);
    if (reserved_bytes != lake->driver->held_bytes) {
        return gml_driver_fail(lake->driver, GML_CORRUPT,
                               "%" PRIu64 " bytes reserved, %" PRIu64 " held from the device",
                               reserved_bytes, lake->driver->held_bytes);
    }
    return GML_OK;
}

gml_status
gml_lake_check(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    gml_status status = check_policies(lake);
    if (status == GML_OK) {
        status = check_counts(lake);
    }
    if (status == GML_OK) {
        status = gml_elastics_check(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

/* ---- a walk, kept ---------------------------------------------------------------------------- */

typedef struct kept_region {
    gml_region_info info;
    size_t first_range, range_count;
    size_t first_piece, piece_count;
} kept_region;

typedef struct walk {
    kept_region *regions;
    gml_range_info *ranges;
    gml_piece_info *pieces;
    size_t region_count, region_room;
    size_t range_count, range_room;
    size_t piece_count, piece_room;
    bool is_short; /* of host memory: the walk is not whole */
} walk;

/* An array with room for one more item; NULL, and the old one stays, without host memory. */
static void *
with_room(void *items, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room) {
        return items;
    }
    size_t wanted = *room ? 2 * *room : 64;
    void *grown = realloc(items, wanted * item_bytes);
    if (grown) {
        *room = wanted;
    }
    return grown;
}

static void
keep_region(void *context, const gml_region_info *region)
{
    walk *kept = context;
    kept_region *grown =
        with_room(kept->regions, kept->region_count, &kept->region_room, sizeof *grown);
    if (!grown) {
        kept->is_short = true;
        return;
    }
    kept->regions = grown;
    kept->regions[kept->region_count++] = (kept_region){
        .info = *region, .first_range = kept->range_count, .first_piece = kept->piece_count};
}

static void
keep_range(void *context, const gml_range_info *range)
{
    walk *kept = context;
    if (kept->is_short) { /* its region may be missing */
        return;
    }
    gml_range_info *grown =
        with_room(kept->ranges, kept->range_count, &kept->range_room, sizeof *grown);
    if (!grown) {
        kept->is_short = true;
        return;
    }
    kept->ranges = grown;
    kept->ranges[kept->range_count++] = *range;
    kept->regions[kept->region_count - 1].range_count++;
}

static void
keep_piece(void *context, const gml_piece_info *piece)
{
    walk *kept = context;
    if (kept->is_short) {
        return;
    }
    gml_piece_info *grown =
        with_room(kept->pieces, kept->piece_count, &kept->piece_room, sizeof *grown);
    if (!grown) {
        kept->is_short = true;
        return;
    }
    kept->pieces = grown;
    kept->pieces[kept->piece_count++] = *piece;
    kept->regions[kept->region_count - 1].piece_count++;
}

static void
take_walk(gml_policy *policy, walk *out)
{
    *out = (walk){0};
    policy->ops->visit(policy, &(gml_visitor){out, keep_region, keep_range, keep_piece});
}

static void
free_walk(walk *kept)
{
    free(kept->regions);
    free(kept->ranges);
    free(kept->pieces);
}

/* ---- the guest's ranges in the place of its segments ----------------------------------------- */

static int
by_address(const void *left, const void *right)
{
    const kept_region *a = left, *b = right;
    return a->info.address < b->info.address ? -1 : a->info.address > b->info.address;
}

/* The guest's segment that a used range of the policy is, or NULL. pre: sorted by address. */
static const kept_region *
segment_of(const walk *guest, const gml_range_info *range)
{
    if (!range->is_used || !guest->region_count) {
        return NULL;
    }
    const kept_region wanted = {.info.address = range->address};
    return bsearch(&wanted, guest->regions, guest->region_count, sizeof wanted, by_address);
}

static void
show_range(const gml_visitor *visitor, const gml_range_info *range)
{
    if (visitor->range) {
        visitor->range(visitor->context, range);
    }
}

/* What the guest has cut the segment into; behind it what the policy could not split off. */
static void
show_segment(const walk *guest, const kept_region *segment, const gml_range_info *range,
             const gml_visitor *visitor)
{
    for (size_t i = 0; i < segment->range_count; i++) {
        show_range(visitor, &guest->ranges[segment->first_range + i]);
    }
    if (range->size_bytes > segment->info.size_bytes) {
        show_range(visitor,
                   &(gml_range_info){.address = range->address + segment->info.size_bytes,
                                     .size_bytes = range->size_bytes - segment->info.size_bytes});
    }
}

static void
show_region(const walk *host, const kept_region *region, const walk *guest,
            const gml_visitor *visitor)
{
    const gml_range_info *ranges = host->ranges + region->first_range;
    gml_region_info info = region->info;
    for (size_t i = 0; i < region->range_count; i++) {
        const kept_region *segment = segment_of(guest, &ranges[i]);
        if (segment) {
            info.used_bytes -= ranges[i].size_bytes - segment->info.used_bytes;
        }
    }
    if (visitor->region) {
        visitor->region(visitor->context, &info);
    }
    for (size_t i = 0; i < region->piece_count && visitor->piece; i++) {
        visitor->piece(visitor->context, &host->pieces[region->first_piece + i]);
    }
    for (size_t i = 0; i < region->range_count; i++) {
        const kept_region *segment = segment_of(guest, &ranges[i]);
        if (segment) {
            show_segment(guest, segment, &ranges[i], visitor);
        } else {
            show_range(visitor, &ranges[i]);
        }
    }
}

static gml_status
visit_with_guest(gml_lake *lake, const gml_visitor *visitor)
{
    walk host, guest;
    take_walk(lake->policy, &host);
    take_walk(gml_guest_policy(lake->guest), &guest);
    gml_status status = GML_OK;
    if (host.is_short || guest.is_short) {
        status = gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                                 "no host memory for a walk over what is held");
    } else if (host.region_count) {
        if (guest.region_count) {
            qsort(guest.regions, guest.region_count, sizeof *guest.regions, by_address);
        }
        for (size_t i = 0; i < host.region_count; i++) {
            show_region(&host, &host.regions[i], &guest, visitor);
        }
    }
    free_walk(&host);
    free_walk(&guest);
    return status;
}

static void
visit_pool(void *context, gml_pool_id id, gml_policy *policy)
{
    (void)id;
    policy->ops->visit(policy, context);
}

const char *
gml_region_kind_name(gml_region_kind kind)
{
    static const char *const names[GML_REGION_KIND_COUNT] = {
        [GML_REGION_SEGMENT] = "segment",
        [GML_REGION_HOME] = "home",
        [GML_REGION_VIEW] = "view",
    };
    return (unsigned)kind < GML_REGION_KIND_COUNT ? names[kind] : "unknown kind";
}

gml_status
gml_lake_visit_locked(gml_lake *lake, const gml_visitor *visitor)
{
    gml_status status = GML_OK;
    if (lake->guest) {
        status = visit_with_guest(lake, visitor);
    } else {
        lake->policy->ops->visit(lake->policy, visitor);
    }
    if (status == GML_OK) {
        gml_visitor copy = *visitor;
        gml_pools_each(&lake->pools, visit_pool, &copy);
    }
    return status;
}

gml_status
gml_lake_visit(gml_lake *lake, const gml_visitor *visitor)
{
    pthread_mutex_lock(&lake->lock);
    gml_status status = gml_lake_visit_locked(lake, visitor);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

void
gml_lake_device(const gml_lake *lake, gml_device_info *out)
{
    *out = lake->driver->info; /* never changes, so no lock */
}
