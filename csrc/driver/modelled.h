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
} gml_modelled;

/* Initialises a backend without a device. `driver->base.ops` must be set before. On failure nothing
 * is left to clear, and base.reason says why. */
gml_status gml_modelled_init(gml_modelled *driver, uint64_t capacity_bytes,
                             uint64_t granularity_bytes);
void gml_modelled_clear(gml_modelled *driver);

gml_status gml_modelled_create(gml_driver *self, uint64_t size_bytes, gml_handle *out);
gml_status gml_modelled_release(gml_driver *self, gml_handle handle);
gml_status gml_modelled_memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes);

#define GML_MODELLED_CALL(upper, lower, parameters, arguments, cost_bytes)                         \
    gml_status gml_modelled_##lower parameters;
GML_DRIVER_STREAM_TABLE(GML_MODELLED_CALL, gml_driver)
#undef GML_MODELLED_CALL

/* Copies run at once: nothing queued here could precede them. A backend without bytes copies
 * nothing, but checks the arguments. */
gml_status gml_modelled_host_malloc(gml_driver *self, uint64_t size_bytes, void **out);
gml_status gml_modelled_host_free(gml_driver *self, void *memory, uint64_t size_bytes);
gml_status gml_modelled_copy_out(gml_driver *self, void *to, gml_address from, uint64_t size_bytes,
                                 gml_stream stream);
gml_status gml_modelled_copy_in(gml_driver *self, gml_address to, const void *from,
                                uint64_t size_bytes, gml_stream stream);

/* Those about streams and copies, which no backend answers otherwise. */
#define GML_MODELLED_ENTRY(upper, lower, parameters, arguments, cost_bytes)                        \
    .lower = gml_modelled_##lower,
#define GML_MODELLED_STREAMS                                                                       \
    GML_DRIVER_STREAM_TABLE(GML_MODELLED_ENTRY, gml_driver).host_malloc =                          \
        gml_modelled_host_malloc,                                                                  \
                                                .host_free = gml_modelled_host_free,               \
                                                .copy_out = gml_modelled_copy_out,                 \
                                                .copy_in = gml_modelled_copy_in

#endif
