/* Claiming the bytes of a placement that holds none of them: what stands in the way, and what other
 * ponds hold of it. */
#include "base/rounding.h"
#include "policy/stitch/stitch.h"

/* What other ponds hold of the placement is out of reach. */
static void
give_up(const gml_claim *claim)
{
    if (claim->is_visit) {
        gml_placement_set_ready(claim->placement);
    } else {
        gml_watch_strand(claim->placement);
    }
}

/* Whether every byte of `run` is free in the pond of `class`, or in another one and, as far as
 * `effort` tells, in reach. If not, the placement now waits for what stands in the way. */
static bool
is_run_free(gml_stitch *stitch, gml_claim *claim, const gml_run *run)
{
    uint64_t end = run->offset + run->size_bytes;
    const gml_extent *extent = gml_home_find(&stitch->home, run->offset);
    for (;;) {
        bool is_free = extent->kind == GML_EXTENT_FREE;
        bool is_foreign = is_free && extent->set != &claim->class->pond->set;
        if (extent->kind == GML_EXTENT_USED) {
            gml_placement *holder = extent->owner;
            if (holder->state == GML_PLACEMENT_LIVE) {
                gml_watch_add(stitch, claim->placement, holder);
                return false;
            }
            gml_placement_scatter(stitch, holder);
            extent = gml_home_find(&stitch->home, run->offset);
            continue;
        }
        if (!is_free || (is_foreign && claim->effort == GML_KNOWN &&
                         !gml_share_reach(stitch, claim->class->pond, extent, GML_KNOWN))) {
            give_up(claim);
            return false;
        }
        claim->is_foreign |= is_foreign;
        if (extent->offset + extent->size_bytes >= end) {
            return true;
        }
        extent = extent->next;
    }
}

/* The first extent of `run` that another pond than `pond` holds free, or NULL. pre: all of it is
 * free. */
static const gml_extent *
first_foreign(const gml_stitch *stitch, const gml_pond *pond, const gml_run *run, uint64_t offset)
{
    uint64_t end = run->offset + run->size_bytes;
    const gml_extent *extent = gml_home_find(&stitch->home, offset);
    while (extent && extent->offset < end && extent->set == &pond->set) {
        extent = extent->next;
    }
    return extent && extent->offset < end ? extent : NULL;
}

/* Whether all that other ponds hold of the run is in reach, with the effort of the claim. */
static bool
reach_run(gml_stitch *stitch, const gml_claim *claim, const gml_run *run)
{
    gml_pond *pond = claim->class->pond;
    const gml_extent *extent = first_foreign(stitch, pond, run, run->offset);
    while (extent && gml_share_reach(stitch, pond, extent, claim->effort)) {
        uint64_t end = extent->offset + extent->size_bytes;
        extent = end < run->offset + run->size_bytes ? first_foreign(stitch, pond, run, end) : NULL;
    }
    return !extent;
}

/* Moves what other ponds hold of the run into that of the class. */
static gml_status
take_run(gml_stitch *stitch, const gml_claim *claim, const gml_run *run)
{
    gml_pond *pond = claim->class->pond;
    /* With what the same extent has of its first and last chunk, so that chunks stay undivided. */
    uint64_t chunk_bytes = stitch->home.chunk_bytes;
    uint64_t run_begin = run->offset / chunk_bytes * chunk_bytes;
    uint64_t run_end = gml_round_up(run->offset + run->size_bytes, chunk_bytes);
    gml_status status = GML_OK;
    const gml_extent *extent = first_foreign(stitch, pond, run, run->offset);
    while (extent && status == GML_OK) {
        uint64_t end = extent->offset + extent->size_bytes;
        uint64_t begin = extent->offset > run_begin ? extent->offset : run_begin;
        status = gml_share_take(stitch, pond, begin, (end < run_end ? end : run_end) - begin);
        extent = first_foreign(stitch, pond, run, run->offset);
    }
    return status;
}

/* Brings what other ponds hold of the placement into that of the class. *is_fetched false: not all
 * of it is in reach, and the placement waits. */
static gml_status
fetch(gml_stitch *stitch, const gml_claim *claim, bool *is_fetched)
{
    const gml_placement *placement = claim->placement;
    *is_fetched = true;
    for (size_t i = 0; i < placement->run_count && *is_fetched; i++) {
        *is_fetched = reach_run(stitch, claim, &placement->runs[i]);
    }
    if (!*is_fetched) {
        give_up(claim);
        return GML_OK;
    }
    gml_status status = GML_OK;
    for (size_t i = 0; i < placement->run_count && status == GML_OK; i++) {
        status = take_run(stitch, claim, &placement->runs[i]);
    }
    return status;
}

void
gml_claim_runs(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_run *run = &placement->runs[i];
        run->extent = gml_home_claim(&stitch->home, run->offset, run->size_bytes, placement);
    }
}

gml_status
gml_claim_try(gml_stitch *stitch, gml_claim *claim, bool *is_claimed)
{
    gml_placement *placement = claim->placement;
    *is_claimed = true;
    for (size_t i = 0; i < placement->run_count && *is_claimed; i++) {
        *is_claimed = is_run_free(stitch, claim, &placement->runs[i]);
    }
    gml_status status = GML_OK;
    if (*is_claimed && claim->is_foreign) {
        status = fetch(stitch, claim, is_claimed);
    }
    if (*is_claimed && status == GML_OK) {
        status = gml_home_prepare(&stitch->home, 2 * placement->run_count);
    }
    if (*is_claimed && status == GML_OK) {
        gml_claim_runs(stitch, placement);
    }
    return status;
}
