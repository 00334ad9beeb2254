/* Shared by the drivers without a device: the model for memory, queues for streams.
 *
 * A backend embeds gml_modelled as its first member and puts the functions below into its table.
 */
#ifndef GML_DRIVER_MODELLED_H
#define GML_DRIVER_MODELLED_H

#include "driver/model.h"
#include "driver/streams.h"

typedef struct gml_modelled {
    gml_driver base;
    gml_model model;
    gml_streams *streams;
} gml_modelled;

/* Initialises a backend without a device. `driver->base.ops` must be set before. On failure nothing
 * is left to clear, and base.reason says why. */
gml_status gml_modelled_init(gml_modelled *driver, uint64_t capacity_bytes,
                             uint64_t granularity_bytes);
void gml_modelled_clear(gml_modelled *driver);

gml_status gml_modelled_create(gml_driver *self, uint64_t size_bytes, gml_handle *out);
gml_status gml_modelled_release(gml_driver *self, gml_handle handle);
gml_status gml_modelled_memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes);

gml_status gml_modelled_event_create(gml_driver *self, gml_event *out);
gml_status gml_modelled_event_destroy(gml_driver *self, gml_event event);
gml_status gml_modelled_event_record(gml_driver *self, gml_event event, gml_stream stream);
gml_status gml_modelled_event_record_all(gml_driver *self, gml_event event);
gml_status gml_modelled_event_query(gml_driver *self, gml_event event);
gml_status gml_modelled_event_synchronize(gml_driver *self, gml_event event);
gml_status gml_modelled_stream_wait(gml_driver *self, gml_stream stream, gml_event event);
gml_status gml_modelled_stream_synchronize(gml_driver *self, gml_stream stream);
gml_status gml_modelled_stream_capturing(gml_driver *self, gml_stream stream, bool *out);
gml_status gml_modelled_device_synchronize(gml_driver *self);
gml_streams *gml_modelled_streams(gml_driver *self);

/* Copies run at once: nothing queued here could precede them. A backend without bytes copies
 * nothing, but checks the arguments. */
gml_status gml_modelled_host_malloc(gml_driver *self, uint64_t size_bytes, void **out);
gml_status gml_modelled_host_free(gml_driver *self, void *memory, uint64_t size_bytes);
gml_status gml_modelled_copy_out(gml_driver *self, void *to, gml_address from, uint64_t size_bytes,
                                 gml_stream stream);
gml_status gml_modelled_copy_in(gml_driver *self, gml_address to, const void *from,
                                uint64_t size_bytes, gml_stream stream);

/* Those about streams and copies, which no backend answers otherwise. */
#define GML_MODELLED_STREAMS                                                                       \
    .event_create = gml_modelled_event_create, .event_destroy = gml_modelled_event_destroy,        \
    .event_record = gml_modelled_event_record, .event_record_all = gml_modelled_event_record_all,  \
    .event_query = gml_modelled_event_query, .event_synchronize = gml_modelled_event_synchronize,  \
    .stream_wait = gml_modelled_stream_wait,                                                       \
    .stream_synchronize = gml_modelled_stream_synchronize,                                         \
    .stream_capturing = gml_modelled_stream_capturing,                                             \
    .device_synchronize = gml_modelled_device_synchronize, .streams = gml_modelled_streams,        \
    .host_malloc = gml_modelled_host_malloc, .host_free = gml_modelled_host_free,                  \
    .copy_out = gml_modelled_copy_out, .copy_in = gml_modelled_copy_in

#endif
