/* A stack of idle events. */
#include "core/events.h"

#include "base/room.h"

#include <stdlib.h>

enum { DESTROY_ATTEMPTS = 3 };

void gml_events_init(gml_events *events, gml_driver *driver) {
    *events = (gml_events){.driver = driver};
}

/* There is no later moment to repeat a call in. */
static void destroy_event(const gml_events *events, gml_event event) {
    gml_status status = GML_DRIVER_FAILED;
    for (int i = 0; i < DESTROY_ATTEMPTS && status != GML_OK; i++) {
        status = gml_driver_event_destroy(events->driver, event);
    }
}

void gml_events_close(gml_events *events) {
    while (events->idle_count) {
        destroy_event(events, events->idle[--events->idle_count]);
    }
    free(events->idle);
    gml_events_init(events, events->driver);
}

/* Room for one more event among the idle ones, so that giving one back cannot fail. */
static gml_status reserve_one(gml_events *events) {
    if (!gml_make_room(&events->idle, &events->idle_capacity, events->count + 1,
                       sizeof *events->idle)) {
        return gml_driver_fail(events->driver, GML_NO_HOST_MEMORY,
                               "the table of idle events cannot grow");
    }
    return GML_OK;
}

gml_status gml_events_take(gml_events *events, gml_event *out) {
    if (events->idle_count) {
        *out = events->idle[--events->idle_count];
        return GML_OK;
    }
    gml_status status = reserve_one(events);
    if (status == GML_OK) {
        status = gml_driver_event_create(events->driver, out);
    }
    events->count += status == GML_OK;
    return status;
}

void gml_events_give(gml_events *events, gml_event event) {
    events->idle[events->idle_count++] = event;
}
