/* Ponds: what one stream owns. */
#include "policy/stitch/stitch.h"

#include <stddef.h>
#include <stdlib.h>

static gml_status
add_pond(gml_stitch *stitch, gml_stream stream, gml_pond **out)
{
    gml_pond *pond = calloc(1, sizeof *pond);
    if (!pond || gml_map_insert(&stitch->pond_by_stream, stream + 1, pond) != GML_OK) {
        free(pond);
        return gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                               "no host memory for a stream");
    }
    pond->stream = stream;
    gml_freeset_init(&pond->set, GML_SMALL_LIMIT + GML_ALIGNMENT);
    gml_list_append(&stitch->ponds, &pond->ponds);
    gml_timeline_open(&stitch->fences, &pond->timeline, stream);
    stitch->pond_count++;
    *out = pond;
    return GML_OK;
}

gml_status
gml_pond_find(gml_stitch *stitch, gml_stream stream, gml_pond **out)
{
    if (stitch->last_pond && stitch->last_pond->stream == stream) {
        *out = stitch->last_pond;
        return GML_OK;
    }
    gml_status status = GML_OK;
    *out = gml_map_find(&stitch->pond_by_stream, stream + 1);
    if (!*out) {
        status = add_pond(stitch, stream, out);
    }
    if (status == GML_OK) {
        stitch->last_pond = *out;
    }
    return status;
}

/* ---- streams that end ------------------------------------------------------------------------ */

/* Sweeping walks what is idle, so it is done for several ponds at a time. */
enum { GONE_UNTIL_SWEEP = 16 };

gml_status
gml_pond_forget(gml_policy *self, gml_stream stream)
{
    gml_stitch *stitch = gml_stitch_of(self);
    gml_pond *pond = gml_map_take(&stitch->pond_by_stream, stream + 1);
    if (!pond) {
        return GML_OK;
    }
    stitch->last_pond = NULL;
    gml_fence_forget(&stitch->fences, &pond->timeline);
    pond->stream = GML_NO_STREAM;
    stitch->gone_count++;
    if (stitch->gone_count >= GONE_UNTIL_SWEEP) {
        gml_pond_sweep(stitch);
    }
    return GML_OK;
}

gml_status
gml_pond_distrust(gml_policy *self, gml_stream stream)
{
    gml_pond *pond;
    gml_status status = gml_pond_find(gml_stitch_of(self), stream, &pond);
    if (status == GML_OK) {
        pond->timeline.is_callable = false;
    }
    return status;
}

/* Lets the idle views of streams that are gone be the heir's, once nothing can use them. */
static void
inherit_views(gml_stitch *stitch, gml_pond *heir)
{
    for (gml_link *link = stitch->idle_views.next; link != &stitch->idle_views; link = link->next) {
        gml_placement *placement = gml_view_of_idle(link);
        if (placement->pond->stream == GML_NO_STREAM && gml_view_is_unused(placement)) {
            placement->pond->user_count--;
            placement->pond = heir;
            placement->freed = 0;
            heir->user_count++;
        }
    }
}

/* Gives everything that is free in `gone`, and complete, to `heir`. */
static void
bequeath(gml_stitch *stitch, gml_pond *gone, gml_pond *heir)
{
    gml_extent *extent = gml_base_range_find(&stitch->range, 0);
    while (extent && gone->set.free_bytes) {
        if (extent->kind == GML_EXTENT_FREE && extent->set == &gone->set) {
            extent = gml_base_range_move(&stitch->range, extent->offset, extent->size_bytes,
                                         &heir->set, 0);
        }
        extent = extent->next;
    }
}

static bool
is_deserted(const gml_pond *pond)
{
    return pond->stream == GML_NO_STREAM && pond->user_count == 0 &&
           gml_timeline_is_complete(&pond->timeline);
}

/* A pond that inherits: one whose stream exists, else the youngest. */
static gml_pond *
find_heir(gml_stitch *stitch)
{
    gml_link *link = stitch->ponds.next;
    while (link->next != &stitch->ponds && gml_pond_of_link(link)->stream == GML_NO_STREAM) {
        link = link->next;
    }
    return gml_pond_of_link(link);
}

static void
close_pond(gml_stitch *stitch, gml_pond *pond)
{
    gml_list_remove(&pond->ponds);
    stitch->pond_count--;
    gml_timeline_close(&stitch->fences, &pond->timeline);
    free(pond);
}

void
gml_pond_sweep(gml_stitch *stitch)
{
    if (gml_driver_is_frozen(stitch->policy.driver)) {
        return;
    }
    gml_stitch_poll(stitch);
    gml_pond *heir = find_heir(stitch);
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_pond *pond = gml_pond_of_link(link);
        if (pond->stream == GML_NO_STREAM) {
            gml_pond_settle(stitch, pond);
        }
    }
    inherit_views(stitch, heir);
    for (gml_link *link = stitch->ponds.next, *next; link != &stitch->ponds; link = next) {
        gml_pond *pond = gml_pond_of_link(link);
        next = link->next;
        if (pond != heir && is_deserted(pond)) {
            bequeath(stitch, pond, heir);
            close_pond(stitch, pond);
            stitch->gone_count--;
        }
    }
}

void
gml_ponds_close(gml_stitch *stitch)
{
    while (!gml_list_is_empty(&stitch->ponds)) {
        close_pond(stitch, gml_pond_of_link(stitch->ponds.next));
    }
    gml_map_clear(&stitch->pond_by_stream);
}
