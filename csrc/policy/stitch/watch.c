/* Who waits for whom: placements that cannot serve now, and what stands in their way.
 *
 * A watch groups the placements of one class that are known to overlap one other placement, its
 * holder. That they overlap is a fact for ever, so as long as the holder lives none of them needs a
 * look, however many there are and however often the holder came and went in between.
 */
#include "policy/stitch/stitch.h"

#include <stddef.h>

struct gml_watch {
    gml_class *class;
    gml_placement *holder;
    gml_link members;   /* head: placements, through `waiting`; never empty */
    gml_link of_holder; /* in holder->watches */
    gml_link woken;     /* in class->woken, if is_woken */
    bool is_woken;      /* the holder ended since the class last looked */
};

void
gml_watch_init(gml_stitch *stitch)
{
    stitch->watches.object_bytes = sizeof(gml_watch);
}

static gml_watch *
of_holder(gml_link *link)
{
    return (gml_watch *)(void *)((char *)link - offsetof(gml_watch, of_holder));
}

static gml_watch *
of_woken(gml_link *link)
{
    return (gml_watch *)(void *)((char *)link - offsetof(gml_watch, woken));
}

static gml_placement *
of_waiting(gml_link *link)
{
    return (gml_placement *)(void *)((char *)link - offsetof(gml_placement, waiting));
}

gml_status
gml_watch_prepare(gml_stitch *stitch)
{
    if (gml_pool_reserve(&stitch->watches, 1)) {
        return GML_OK;
    }
    return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY, "no host memory for a watch");
}

static void
wait_in(gml_placement *placement, gml_link *list, gml_watch *watch)
{
    gml_list_append(list, &placement->waiting);
    placement->is_waiting = true;
    placement->watch = watch;
}

void
gml_watch_strand(gml_placement *placement)
{
    wait_in(placement, &placement->class->stranded, NULL);
}

/* The watch of `class` on `holder`, made if need be. pre: prepared. */
static gml_watch *
find_watch(gml_stitch *stitch, gml_placement *holder, gml_class *class)
{
    for (gml_link *link = holder->watches.next; link != &holder->watches; link = link->next) {
        if (of_holder(link)->class == class) {
            return of_holder(link);
        }
    }
    gml_watch *watch = gml_pool_take(&stitch->watches);
    watch->class = class;
    watch->holder = holder;
    gml_list_init(&watch->members);
    gml_list_append(&holder->watches, &watch->of_holder);
    return watch;
}

void
gml_watch_add(gml_stitch *stitch, gml_placement *placement, gml_placement *holder)
{
    gml_watch *watch = find_watch(stitch, holder, placement->class);
    wait_in(placement, &watch->members, watch);
}

void
gml_watch_wake(gml_placement *holder)
{
    for (gml_link *link = holder->watches.next; link != &holder->watches; link = link->next) {
        gml_watch *watch = of_holder(link);
        if (!watch->is_woken) {
            watch->is_woken = true;
            gml_list_append(&watch->class->woken, &watch->woken);
        }
    }
}

/* Lets every placement that waits in `list` be tried again. */
static void
set_all_ready(gml_link *list)
{
    while (!gml_list_is_empty(list)) {
        gml_placement *placement = of_waiting(list->next);
        gml_list_remove(&placement->waiting);
        placement->is_waiting = false;
        placement->watch = NULL;
        gml_placement_set_ready(placement);
    }
}

/* Takes a watch out of its lists. */
static void
release(gml_stitch *stitch, gml_watch *watch)
{
    if (watch->is_woken) {
        gml_list_remove(&watch->woken);
    }
    gml_list_remove(&watch->of_holder);
    gml_pool_give(&stitch->watches, watch);
}

void
gml_watch_resolve(gml_stitch *stitch, gml_class *class)
{
    while (!gml_list_is_empty(&class->woken)) {
        gml_watch *watch = of_woken(class->woken.next);
        if (watch->holder->state == GML_PLACEMENT_LIVE) {
            gml_list_remove(&watch->woken);
            watch->is_woken = false;
        } else {
            set_all_ready(&watch->members);
            release(stitch, watch);
        }
    }
}

void
gml_watch_retry_stranded(gml_class *class)
{
    set_all_ready(&class->stranded);
}

void
gml_watch_forget(gml_stitch *stitch, gml_placement *placement)
{
    if (placement->is_waiting) {
        gml_watch *watch = placement->watch;
        gml_list_remove(&placement->waiting);
        placement->is_waiting = false;
        if (watch && gml_list_is_empty(&watch->members)) {
            release(stitch, watch);
        }
    }
    while (!gml_list_is_empty(&placement->watches)) {
        gml_watch *watch = of_holder(placement->watches.next);
        set_all_ready(&watch->members);
        release(stitch, watch);
    }
}

bool
gml_watch_is_valid(const gml_placement *holder)
{
    bool is_valid = true;
    for (gml_link *link = holder->watches.next; link != &holder->watches; link = link->next) {
        const gml_watch *watch = of_holder(link);
        bool may_be_missed = holder->state != GML_PLACEMENT_LIVE && !watch->is_woken;
        is_valid &=
            watch->holder == holder && !gml_list_is_empty(&watch->members) && !may_be_missed;
    }
    return is_valid;
}
