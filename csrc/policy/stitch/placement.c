/* The life of a placement: made, taken, parked, scattered, forgotten. */
#include "base/status.h"
#include "policy/stitch/stitch.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* How many idle placements without a mapping are kept; they hold no driver resource, only some 500
 * bytes of the host each, and cache lines. Of those that have served only once, the newest goes
 * when there are too many, so that a step with more placements than this keeps the same part of
 * them each time and proves it, instead of forgetting in turn what it is about to need; every
 * FRESH_TURNOVER-th time it is the oldest, so that what a program no longer does goes too. Each
 * that goes lowers the limit by one and each that serves again raises it, so that a program whose
 * sizes never repeat does not drag a long memory along. */
enum {
    LEAST_IDLE_FRESH = 1 << 14,
    MOST_IDLE_FRESH = 1 << 16,
    FRESH_TURNOVER = 16,
    MOST_IDLE_PROVEN = 1 << 18
};

/* How many placements that other ponds stand in the way of are looked at for one request: a bound
 * on the time where streams keep taking each other's memory. */
enum { MAX_STRANDED_TRIED = 32, MAX_ADOPTED_TRIED = 8 };

void
gml_placement_init(gml_stitch *stitch)
{
    stitch->placements.object_bytes = sizeof(gml_placement);
    stitch->fresh_limit = MOST_IDLE_FRESH;
    gml_list_init(&stitch->idle_views);
    gml_list_init(&stitch->idle_fresh);
    gml_list_init(&stitch->idle_proven);
    gml_list_init(&stitch->doomed);
}

static gml_placement *
of_ready(gml_tree_node *node)
{
    return (gml_placement *)(void *)((char *)node - offsetof(gml_placement, ready));
}

static gml_placement *
of_parked(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, parked));
}

gml_placement *
gml_placement_of_idle(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, idle));
}

void
gml_placement_set_ready(gml_placement *placement)
{
    placement->ready.size_bytes = placement->number;
    placement->ready.address = 0;
    gml_tree_insert(&placement->class->ready, &placement->ready);
    placement->is_ready = true;
}

static void
unset_ready(gml_placement *placement)
{
    gml_tree_remove(&placement->class->ready, &placement->ready);
    placement->is_ready = false;
}

void
gml_placement_scatter(gml_stitch *stitch, gml_placement *placement)
{
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_home_unclaim(&stitch->home, placement->runs[i].extent, &placement->class->pond->set,
                         placement->freed);
        placement->runs[i].extent = NULL;
    }
    gml_list_remove(&placement->parked);
    placement->state = GML_PLACEMENT_SCATTERED;
}

void
gml_pond_unpark(gml_stitch *stitch, gml_pond *pond)
{
    while (!gml_list_is_empty(&pond->parked)) {
        gml_placement_scatter(stitch, of_parked(pond->parked.next));
    }
}

static void
leave_idle(gml_stitch *stitch, gml_placement *placement)
{
    gml_list_remove(&placement->idle);
    if (!placement->view) {
        *(placement->is_proven ? &stitch->idle_proven_count : &stitch->idle_fresh_count) -= 1;
    }
}

/* Takes a parked placement with the extents that it holds. */
static void
unpark(gml_placement *placement)
{
    gml_list_remove(&placement->parked);
    unset_ready(placement);
}

/* Whether a ready placement could be had for the class of the claim; if not, it waits, or is out of
 * reach for that class. After a failure it is ready as before. */
static gml_status
try_ready(gml_stitch *stitch, gml_claim *claim, bool *is_claimed)
{
    gml_placement *placement = claim->placement;
    bool is_parked = placement->state == GML_PLACEMENT_PARKED;
    if (is_parked && placement->class == claim->class) {
        unpark(placement);
        *is_claimed = true;
        return GML_OK;
    }
    gml_status status = gml_watch_prepare(stitch);
    if (status != GML_OK) {
        return status;
    }
    if (is_parked) {
        gml_placement_scatter(stitch, placement);
    }
    unset_ready(placement);
    status = gml_claim_try(stitch, claim, is_claimed);
    if (status != GML_OK) {
        gml_placement_set_ready(placement);
    }
    return status;
}

/* An idle placement that holds its extents begins to live. */
static void
revive(gml_stitch *stitch, gml_placement *placement)
{
    leave_idle(stitch, placement);
    if (!placement->is_proven) {
        placement->is_proven = true;
        stitch->fresh_limit += stitch->fresh_limit < MOST_IDLE_FRESH;
    }
    placement->state = GML_PLACEMENT_LIVE;
}

/* The oldest placement of `from` that can be had for `class`, with its extents; NULL: none of the
 * first `most` that other ponds stand in the way of, and of all before them. */
static gml_status
find_ready(gml_stitch *stitch, gml_class *from, gml_class *class, gml_effort effort, int most,
           gml_placement **out)
{
    *out = NULL;
    for (gml_tree_node *node = gml_tree_first(&from->ready), *next; node && most; node = next) {
        next = gml_tree_next(node);
        gml_claim claim = {of_ready(node), class, effort, from != class, false};
        bool is_claimed = false;
        gml_status status = try_ready(stitch, &claim, &is_claimed);
        if (status != GML_OK || is_claimed) {
            *out = is_claimed && status == GML_OK ? claim.placement : NULL;
            return status;
        }
        most -= claim.placement->watch == NULL;
    }
    return GML_OK;
}

void
gml_class_refresh(gml_stitch *stitch, gml_class *class)
{
    if (!gml_list_is_empty(&class->woken)) {
        gml_watch_resolve(stitch, class);
    }
    if (class->looked != stitch->fences.progress) {
        class->looked = stitch->fences.progress;
        gml_watch_retry_stranded(class);
    }
}

gml_status
gml_placement_take(gml_stitch *stitch, gml_class *class, gml_effort effort, gml_placement **out)
{
    gml_class_refresh(stitch, class);
    if (effort != GML_KNOWN) {
        gml_watch_retry_stranded(class);
    }
    /* What most requests come to: the first one still holds its extents. */
    gml_tree_node *node = gml_tree_first(&class->ready);
    if (node && of_ready(node)->state == GML_PLACEMENT_PARKED) {
        *out = of_ready(node);
        unpark(*out);
        revive(stitch, *out);
        return GML_OK;
    }
    gml_status status = find_ready(stitch, class, class, effort, MAX_STRANDED_TRIED, out);
    if (*out) {
        revive(stitch, *out);
    }
    return status;
}

uint64_t
gml_class_first_freed(const gml_class *class)
{
    gml_tree_node *node = gml_tree_first(&class->ready);
    return node ? of_ready(node)->freed : UINT64_MAX;
}

uint64_t
gml_class_first_number(const gml_class *class)
{
    gml_tree_node *node = gml_tree_first(&class->ready);
    return node ? of_ready(node)->number : UINT64_MAX;
}

/* Lets a live placement of `from`, which may be the same, be of `class`. */
static void
move_to_class(gml_stitch *stitch, gml_placement *placement, gml_class *class)
{
    gml_class *from = placement->class;
    placement->class = class;
    class->placement_count++;
    from->placement_count--;
    gml_class_drop_if_empty(stitch, from);
}

gml_status
gml_placement_adopt(gml_stitch *stitch, gml_class *from, gml_class *class, gml_effort effort,
                    gml_placement **out)
{
    gml_watch_resolve(stitch, from);
    gml_status status = find_ready(stitch, from, class, effort, MAX_ADOPTED_TRIED, out);
    if (*out) {
        revive(stitch, *out);
        move_to_class(stitch, *out, class);
    }
    return status;
}

gml_status
gml_placement_take_first(gml_stitch *stitch, gml_class *from, gml_class *class, gml_effort effort,
                         gml_placement **out)
{
    gml_claim claim = {of_ready(gml_tree_first(&from->ready)), class, effort, false, false};
    bool is_claimed = false;
    gml_status status = try_ready(stitch, &claim, &is_claimed);
    *out = is_claimed && status == GML_OK ? claim.placement : NULL;
    if (*out) {
        revive(stitch, *out);
        move_to_class(stitch, *out, class);
    }
    return status;
}

/* Takes an idle placement out of every list and gives its host memory back. */
static void
forget(gml_stitch *stitch, gml_placement *placement)
{
    if (placement->is_ready) {
        unset_ready(placement);
    }
    gml_watch_forget(stitch, placement);
    if (placement->state == GML_PLACEMENT_PARKED) {
        gml_placement_scatter(stitch, placement);
    }
    leave_idle(stitch, placement);
}

/* Gives back the host memory of a placement. Its class may be empty then. */
static void
release_host(gml_stitch *stitch, gml_placement *placement)
{
    placement->class->placement_count--;
    if (placement->runs != &placement->only_run) {
        free(placement->runs);
    }
    gml_pool_give(&stitch->placements, placement);
}

gml_status
gml_placement_destroy(gml_stitch *stitch, gml_placement *placement)
{
    /* The analyzer does not see that a link in an idle list lies inside a placement. */
    /* NOLINTNEXTLINE(clang-analyzer-security.ArrayBound) */
    gml_class *class = placement->class;
    forget(stitch, placement);
    gml_status status = gml_view_unmap(stitch, placement);
    if (status != GML_OK) {
        gml_list_append(&stitch->doomed, &placement->idle);
        return status;
    }
    release_host(stitch, placement);
    gml_class_drop_if_empty(stitch, class);
    return GML_OK;
}

void
gml_placement_end(gml_stitch *stitch, gml_placement *placement)
{
    gml_class *class = placement->class;
    gml_watch_forget(stitch, placement);
    gml_pond_let_go(stitch, class->pond, placement->block.block_bytes);
    uint64_t instant = gml_fence_now(&stitch->fences, &class->pond->timeline);
    for (size_t i = 0; i < placement->run_count; i++) {
        gml_home_unclaim(&stitch->home, placement->runs[i].extent, &class->pond->set, instant);
    }
    release_host(stitch, placement);
    gml_class_drop_if_empty(stitch, class);
}

gml_status
gml_placement_destroy_doomed(gml_stitch *stitch)
{
    gml_status first = GML_OK;
    for (gml_link *link = stitch->doomed.next; link != &stitch->doomed;) {
        gml_placement *placement = gml_placement_of_idle(link);
        gml_class *class = placement->class;
        link = link->next;
        gml_status status = gml_view_unmap(stitch, placement);
        if (status == GML_OK) {
            gml_list_remove(&placement->idle);
            release_host(stitch, placement);
            gml_class_drop_if_empty(stitch, class);
        }
        first = gml_first_failure(first, status);
    }
    return first;
}

void
gml_placement_abandon_doomed(gml_stitch *stitch)
{
    for (gml_link *link = stitch->doomed.next; link != &stitch->doomed;) {
        gml_placement *placement = gml_placement_of_idle(link);
        link = link->next;
        release_host(stitch, placement);
    }
    gml_list_init(&stitch->doomed);
}

static void
enter_idle(gml_stitch *stitch, gml_placement *placement)
{
    gml_link *list = &stitch->idle_views;
    if (!placement->view) {
        list = placement->is_proven ? &stitch->idle_proven : &stitch->idle_fresh;
        *(placement->is_proven ? &stitch->idle_proven_count : &stitch->idle_fresh_count) += 1;
    }
    gml_list_append(list, &placement->idle);
}

/* Forgets some of what is idle beyond the limits: never many at a time. */
static void
forget_surplus(gml_stitch *stitch)
{
    if (stitch->idle_proven_count > MOST_IDLE_PROVEN) {
        (void)gml_placement_destroy(stitch, gml_placement_of_idle(stitch->idle_proven.next));
    }
    if (stitch->idle_fresh_count <= stitch->fresh_limit) {
        return;
    }
    stitch->fresh_limit -= stitch->fresh_limit > LEAST_IDLE_FRESH;
    for (int i = 0; i < 2 && stitch->idle_fresh_count > stitch->fresh_limit; i++) {
        bool is_turn = ++stitch->fresh_overflows % FRESH_TURNOVER == 0;
        gml_link *link = is_turn ? stitch->idle_fresh.next : stitch->idle_fresh.previous;
        (void)gml_placement_destroy(stitch, gml_placement_of_idle(link));
    }
}

void
gml_placement_park(gml_stitch *stitch, gml_placement *placement)
{
    gml_pond *pond = placement->class->pond;
    placement->state = GML_PLACEMENT_PARKED;
    placement->freed = gml_fence_now(&stitch->fences, &pond->timeline);
    gml_pond_let_go(stitch, pond, placement->block.block_bytes);
    gml_list_append(&pond->parked, &placement->parked);
    gml_placement_set_ready(placement);
    gml_watch_wake(placement);
    enter_idle(stitch, placement);
    forget_surplus(stitch);
}

static gml_status
copy_runs(gml_stitch *stitch, gml_placement *placement, const gml_run *runs, size_t run_count)
{
    placement->runs = &placement->only_run;
    gml_run *several = run_count > 1 ? malloc(run_count * sizeof *runs) : NULL;
    if (run_count > 1 && !several) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a view of %zu runs", run_count);
    }
    if (several) {
        placement->runs = several;
    }
    placement->run_count = run_count;
    memcpy(placement->runs, runs, run_count * sizeof *runs);
    return GML_OK;
}

/* A choice that does not add up must not become a block: it would reach into another one. */
static gml_status
check_runs(gml_stitch *stitch, const gml_class *class, const gml_run *runs, size_t run_count)
{
    uint64_t sum_bytes = 0;
    for (size_t i = 0; i < run_count; i++) {
        sum_bytes += runs[i].size_bytes;
    }
    if (sum_bytes == class->size_bytes) {
        return GML_OK;
    }
    return gml_driver_fail(stitch->policy.driver, GML_CORRUPT,
                           "%" PRIu64 " bytes were chosen for a request of %" PRIu64, sum_bytes,
                           class->size_bytes);
}

gml_status
gml_placement_create(gml_stitch *stitch, gml_class *class, const gml_run *runs, size_t run_count,
                     gml_placement **out)
{
    gml_status status = check_runs(stitch, class, runs, run_count);
    if (status == GML_OK) {
        status = gml_home_prepare(&stitch->home, 2 * run_count);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_placement *placement = gml_pool_take(&stitch->placements);
    if (!placement) {
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a placement");
    }
    placement->class = class;
    class->placement_count++;
    status = copy_runs(stitch, placement, runs, run_count);
    if (status == GML_OK && run_count > 1) {
        status = gml_view_map(stitch, placement, runs, run_count);
    }
    if (status != GML_OK) {
        if (placement->view) {
            gml_list_append(&stitch->doomed, &placement->idle);
        } else {
            release_host(stitch, placement);
        }
        return status;
    }
    if (run_count == 1) {
        placement->address = stitch->home.base + runs[0].offset;
    }
    placement->number = stitch->next_number++;
    placement->state = GML_PLACEMENT_LIVE;
    gml_list_init(&placement->watches);
    gml_claim_runs(stitch, placement);
    *out = placement;
    return GML_OK;
}
