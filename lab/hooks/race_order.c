/* One clock per stream and event, all with room for every stream. */
#include "hooks/race_order.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 8 };

void gml_order_close(gml_order *order) {
    for (size_t i = 0; i < order->stream_count; i++) {
        free(order->streams[i].clock);
    }
    for (size_t i = 0; i < order->events.capacity; i++) {
        free(order->events.slots[i].value);
    }
    free(order->streams);
    free(order->host);
    gml_map_clear(&order->numbers);
    gml_map_clear(&order->events);
    *order = (gml_order){0};
}

/* ---- room ------------------------------------------------------------------------------------ */

/* Makes *clock longer, with 0 behind its end; it may be NULL. */
static bool lengthen(uint64_t **clock, size_t from, size_t to) {
    uint64_t *longer = realloc(*clock, to * sizeof *longer);
    if (longer) {
        memset(longer + from, 0, (to - from) * sizeof *longer);
        *clock = longer;
    }
    return longer != NULL;
}

static bool lengthen_streams(gml_order *order, size_t room) {
    gml_order_stream *streams = realloc(order->streams, room * sizeof *streams);
    if (!streams) {
        return false;
    }
    order->streams = streams;
    bool is_done = true;
    for (size_t i = 0; i < order->stream_count && is_done; i++) {
        is_done = lengthen(&streams[i].clock, order->room, room);
    }
    return is_done;
}

static bool lengthen_events(gml_order *order, size_t room) {
    bool is_done = true;
    for (size_t i = 0; i < order->events.capacity && is_done; i++) {
        uint64_t *clock = order->events.slots[i].value;
        is_done = !clock || lengthen(&clock, order->room, room);
        order->events.slots[i].value = clock;
    }
    return is_done;
}

/* Makes room for one more stream in every clock. Clocks enlarged before a failure stay so,
 * unused. */
static gml_status grow(gml_order *order) {
    if (order->stream_count < order->room) {
        return GML_OK;
    }
    size_t room = order->room ? order->room * 2 : FIRST_ROOM;
    if (!lengthen_streams(order, room) || !lengthen_events(order, room) ||
        !lengthen(&order->host, order->room, room)) {
        return GML_NO_HOST_MEMORY;
    }
    order->room = room;
    return GML_OK;
}

static gml_status add_stream(gml_order *order, gml_stream stream, size_t *number) {
    gml_status status = grow(order);
    uint64_t *clock = NULL;
    if (status != GML_OK || !lengthen(&clock, 0, order->room)) {
        return GML_NO_HOST_MEMORY;
    }
    size_t added = order->stream_count;
    if (gml_map_insert(&order->numbers, stream + 1, (void *)(uintptr_t)(added + 1)) != GML_OK) {
        free(clock);
        return GML_NO_HOST_MEMORY;
    }
    clock[added] = 1;
    order->streams[added] = (gml_order_stream){stream, clock};
    order->stream_count++;
    *number = added;
    return GML_OK;
}

gml_status gml_order_find(gml_order *order, gml_stream stream, size_t *number) {
    const void *found = gml_map_find(&order->numbers, stream + 1);
    if (stream == UINT64_MAX) {
        return GML_INVALID_ARGUMENT;
    }
    if (!found) {
        return add_stream(order, stream, number);
    }
    *number = (size_t)(uintptr_t)found - 1;
    return GML_OK;
}

gml_status gml_order_prepare(gml_order *order, gml_event event) {
    if (gml_map_find(&order->events, event)) {
        return GML_OK;
    }
    uint64_t *clock = NULL;
    size_t room = order->room ? order->room : FIRST_ROOM;
    if (!lengthen(&clock, 0, room) || gml_map_insert(&order->events, event, clock) != GML_OK) {
        free(clock);
        return GML_NO_HOST_MEMORY;
    }
    return GML_OK;
}

/* ---- what is asked --------------------------------------------------------------------------- */

gml_stamp gml_order_now(const gml_order *order, size_t stream) {
    return (gml_stamp){stream, order->streams[stream].clock[stream]};
}

bool gml_order_is_known(const gml_order *order, gml_stamp earlier) {
    return order->host[earlier.stream] >= earlier.time;
}

bool gml_order_is_before(const gml_order *order, gml_stamp earlier, size_t stream) {
    return order->streams[stream].clock[earlier.stream] >= earlier.time ||
           gml_order_is_known(order, earlier);
}

/* ---- what is told ---------------------------------------------------------------------------- */

static void join(const gml_order *order, uint64_t *clock, const uint64_t *other) {
    for (size_t i = 0; i < order->stream_count; i++) {
        clock[i] = clock[i] < other[i] ? other[i] : clock[i];
    }
}

/* Work queued from now on is later than the noted time. */
static void tick(gml_order *order, size_t stream) {
    order->streams[stream].clock[stream]++;
}

void gml_order_record(gml_order *order, gml_event event, size_t stream) {
    uint64_t *clock = gml_map_find(&order->events, event);
    memcpy(clock, order->streams[stream].clock, order->stream_count * sizeof *clock);
    tick(order, stream);
}

void gml_order_record_all(gml_order *order, gml_event event) {
    uint64_t *clock = gml_map_find(&order->events, event);
    memset(clock, 0, order->stream_count * sizeof *clock);
    for (size_t i = 0; i < order->stream_count; i++) {
        join(order, clock, order->streams[i].clock);
        tick(order, i);
    }
}

void gml_order_wait(gml_order *order, size_t stream, gml_event event) {
    const uint64_t *clock = gml_map_find(&order->events, event);
    if (clock) {
        join(order, order->streams[stream].clock, clock);
    }
}

void gml_order_learn_event(gml_order *order, gml_event event) {
    const uint64_t *clock = gml_map_find(&order->events, event);
    if (clock) {
        join(order, order->host, clock);
    }
}

void gml_order_learn_stream(gml_order *order, size_t stream) {
    join(order, order->host, order->streams[stream].clock);
    tick(order, stream);
}

void gml_order_learn_all(gml_order *order) {
    for (size_t i = 0; i < order->stream_count; i++) {
        gml_order_learn_stream(order, i);
    }
}

void gml_order_forget_event(gml_order *order, gml_event event) {
    free(gml_map_take(&order->events, event));
}
