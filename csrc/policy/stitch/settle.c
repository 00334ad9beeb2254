/* Waiting for work before the mappings that it may use go. */
#include "policy/stitch/stitch.h"

/* The other ponds' streams may be gone, and asking CUDA about one that is gone would be a crash. */
gml_status
gml_stitch_synchronize(gml_stitch *stitch, const gml_pond *asking, bool *is_done)
{
    gml_driver *driver = stitch->policy.driver;
    gml_status status = GML_OK;
    bool is_capturing = gml_driver_is_frozen(driver);
    if (asking && !is_capturing) {
        status = gml_driver_stream_capturing(driver, asking->stream, &is_capturing);
    }
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_device_synchronize(driver);
    }
    *is_done = status == GML_OK && !is_capturing;
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds && *is_done;
         link = link->next) {
        gml_fence_complete(&stitch->fences, &gml_pond_of_link(link)->timeline);
    }
    return status;
}

/* Whether every stream that may still use what it freed can be asked. */
static bool
are_all_callable(const gml_stitch *stitch)
{
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        const gml_timeline *timeline = &gml_pond_of_link(link)->timeline;
        if (timeline->marked < timeline->last && !timeline->is_callable) {
            return false;
        }
    }
    return true;
}

/* Waits for one stream after the other. Where one captures, or fails, *is_done is false. */
static void
settle_each(gml_stitch *stitch, bool *is_done)
{
    gml_link *link = stitch->ponds.next;
    for (; link != &stitch->ponds && *is_done; link = link->next) {
        gml_timeline *timeline = &gml_pond_of_link(link)->timeline;
        gml_status status = gml_fence_settle(&stitch->fences, timeline, is_done);
        *is_done &= status == GML_OK;
    }
}

static bool
is_settled(const gml_stitch *stitch)
{
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        if (!gml_timeline_is_complete(&gml_pond_of_link(link)->timeline)) {
            return false;
        }
    }
    return true;
}

void
gml_stitch_poll(gml_stitch *stitch)
{
    for (gml_link *link = stitch->ponds.next; link != &stitch->ponds; link = link->next) {
        gml_fence_poll(&stitch->fences, &gml_pond_of_link(link)->timeline);
    }
}

gml_status
gml_stitch_wait(gml_stitch *stitch, const gml_pond *asking, bool *is_done)
{
    gml_stitch_poll(stitch);
    *is_done = is_settled(stitch);
    if (*is_done) {
        return GML_OK;
    }
    /* One stream alone is not worth an event. */
    if (stitch->pond_count > 1 && !gml_driver_is_frozen(stitch->policy.driver) &&
        are_all_callable(stitch)) {
        *is_done = true;
        settle_each(stitch, is_done);
    }
    return *is_done ? GML_OK : gml_stitch_synchronize(stitch, asking, is_done);
}
