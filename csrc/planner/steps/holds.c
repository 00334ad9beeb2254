/* The holds of all streams. */
#include "base/status.h"
#include "planner/steps/planned.h"

gml_status
gml_planned_yield(gml_planned *planned)
{
    gml_status status = GML_OK;
    for (gml_hold *hold = planned->holds; hold; hold = hold->next) {
        status = gml_first_failure(status, gml_hold_yield(hold));
    }
    return status;
}

gml_hold *
gml_planned_hold(gml_planned *planned, gml_stream stream)
{
    gml_hold *hold = planned->holds;
    gml_stream_cache *cache;
    while (hold && hold->cache->stream != stream) {
        hold = hold->next;
    }
    if (hold || gml_stream_cache_find(planned->stitch, stream, &cache) != GML_OK) {
        return hold;
    }
    hold = gml_hold_open(planned->stitch, cache);
    if (hold) {
        hold->next = planned->holds;
        planned->holds = hold;
    }
    return hold;
}

void
gml_planned_close_holds(gml_planned *planned)
{
    for (gml_hold *hold = planned->holds, *next; hold; hold = next) {
        next = hold->next;
        gml_hold_close(hold);
    }
    planned->holds = NULL;
}
