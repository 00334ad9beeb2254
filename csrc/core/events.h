/* Events of one driver, kept for reuse: creating one costs more than recording it. */
#ifndef GML_CORE_EVENTS_H
#define GML_CORE_EVENTS_H

#include "driver/driver.h"

typedef struct gml_events {
    gml_driver *driver;
    gml_event *idle;
    size_t idle_count, idle_capacity;
    size_t count; /* created, idle or not; never above idle_capacity */
} gml_events;

void gml_events_init(gml_events *events, gml_driver *driver);

/* Destroys the idle events. pre: all are idle. */
void gml_events_close(gml_events *events);

/* An unused event. GML_NO_HOST_MEMORY, or the driver's status. */
gml_status gml_events_take(gml_events *events, gml_event *out);

/* Cannot fail. */
void gml_events_give(gml_events *events, gml_event event);

#endif
