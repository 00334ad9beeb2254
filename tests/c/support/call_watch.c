/* A table of calls that goes in front of the driver's own. */
#include "support/call_watch.h"

#include "lake/lake.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_GONE = 4096 };

static struct {
    const gml_driver_ops *inner;
    gml_driver_ops outer;
    uint64_t handles, events, plain_blocks, mapped_bytes;
    uint64_t stubborn; /* of the events: the driver refused to destroy them until all gave up */
    gml_event refused; /* the last one */
    gml_stream gone[MOST_GONE];
    size_t gone_count;
    char fault[96];
} watch;

static void check_there(const char *call, gml_stream stream) {
    for (size_t i = 0; i < watch.gone_count; i++) {
        if (watch.gone[i] == stream && !watch.fault[0]) {
            snprintf(watch.fault, sizeof watch.fault, "%s on stream %" PRIu64 ", which is gone",
                     call, stream);
        }
    }
}

static gml_status counted(gml_status status, uint64_t *count, uint64_t change) {
    *count += status == GML_OK ? change : 0;
    return status;
}

static gml_status create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    return counted(watch.inner->create(self, size_bytes, out), &watch.handles, 1);
}

static gml_status release(gml_driver *self, gml_handle handle) {
    return counted(watch.inner->release(self, handle), &watch.handles, UINT64_MAX);
}

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    return counted(watch.inner->map(self, address, size_bytes, handle), &watch.mapped_bytes,
                   size_bytes);
}

static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return counted(watch.inner->unmap(self, address, size_bytes), &watch.mapped_bytes,
                   0 - size_bytes);
}

static gml_status plain_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    return counted(watch.inner->malloc(self, size_bytes, out), &watch.plain_blocks, 1);
}

static gml_status plain_free(gml_driver *self, gml_address address) {
    return counted(watch.inner->free(self, address), &watch.plain_blocks, UINT64_MAX);
}

static gml_status event_create(gml_driver *self, gml_event *out) {
    return counted(watch.inner->event_create(self, out), &watch.events, 1);
}

static gml_status event_destroy(gml_driver *self, gml_event event) {
    gml_status status = watch.inner->event_destroy(self, event);
    if (status == GML_OK) {
        watch.stubborn -= event == watch.refused;
        watch.refused = 0;
    } else {
        watch.stubborn += event != watch.refused;
        watch.refused = event;
    }
    return counted(status, &watch.events, UINT64_MAX);
}

static gml_status event_record(gml_driver *self, gml_event event, gml_stream stream) {
    check_there("event_record", stream);
    return watch.inner->event_record(self, event, stream);
}

static gml_status stream_wait(gml_driver *self, gml_stream stream, gml_event event) {
    check_there("stream_wait", stream);
    return watch.inner->stream_wait(self, stream, event);
}

static gml_status stream_synchronize(gml_driver *self, gml_stream stream) {
    check_there("stream_synchronize", stream);
    return watch.inner->stream_synchronize(self, stream);
}

static gml_status stream_capturing(gml_driver *self, gml_stream stream, bool *out) {
    check_there("stream_capturing", stream);
    return watch.inner->stream_capturing(self, stream, out);
}

void call_watch_begin(gml_lake *lake) {
    watch.inner = lake->driver->ops;
    watch.outer = *watch.inner;
    watch.outer.create = create;
    watch.outer.release = release;
    watch.outer.map = map;
    watch.outer.unmap = unmap;
    watch.outer.malloc = plain_malloc;
    watch.outer.free = plain_free;
    watch.outer.event_create = event_create;
    watch.outer.event_destroy = event_destroy;
    watch.outer.event_record = event_record;
    watch.outer.stream_wait = stream_wait;
    watch.outer.stream_synchronize = stream_synchronize;
    watch.outer.stream_capturing = stream_capturing;
    watch.handles = watch.events = watch.plain_blocks = watch.mapped_bytes = 0;
    watch.stubborn = watch.refused = 0;
    watch.gone_count = 0;
    watch.fault[0] = '\0';
    lake->driver->ops = &watch.outer;
}

void call_watch_end_stream(gml_stream stream) {
    if (watch.gone_count < MOST_GONE) {
        watch.gone[watch.gone_count++] = stream;
    }
}

const char *call_watch_fault(void) {
    return watch.fault;
}

uint64_t call_watch_leftovers(void) {
    return watch.handles + watch.events - watch.stubborn + watch.plain_blocks + watch.mapped_bytes;
}

uint64_t call_watch_event_calls(gml_lake *lake) {
    static const gml_driver_call counted_calls[] = {
        GML_CALL_EVENT_CREATE,     GML_CALL_EVENT_DESTROY, GML_CALL_EVENT_RECORD,
        GML_CALL_EVENT_RECORD_ALL, GML_CALL_EVENT_QUERY,   GML_CALL_EVENT_SYNCHRONIZE,
        GML_CALL_STREAM_WAIT,
    };
    uint64_t calls = 0;
    for (size_t i = 0; i < sizeof counted_calls / sizeof *counted_calls; i++) {
        calls += lake->driver->calls[counted_calls[i]];
    }
    return calls;
}
