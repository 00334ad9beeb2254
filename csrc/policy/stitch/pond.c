/* Ponds and classes: what a stream owns, and its placements by size. */
#include "policy/stitch/stitch.h"

#include <stddef.h>
#include <stdlib.h>

gml_pond *
gml_pond_of_link(gml_link *link)
{
    return (gml_pond *)(void *)((char *)link - offsetof(gml_pond, ponds));
}

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
    gml_list_init(&pond->parked);
    gml_list_append(&stitch->ponds, &pond->ponds);
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

gml_class *
gml_class_find(gml_stitch *stitch, gml_pond *pond, uint64_t size_bytes)
{
    gml_class *class = gml_map_find(&pond->classes, size_bytes);
    if (class) {
        return class;
    }
    class = gml_pool_take(&stitch->classes);
    if (!class || gml_map_insert(&pond->classes, size_bytes, class) != GML_OK) {
        gml_pool_give(&stitch->classes, class);
        (void)gml_driver_fail(stitch->policy.driver, GML_NO_HOST_MEMORY,
                              "no host memory for a size class");
        return NULL;
    }
    class->pond = pond;
    class->size_bytes = size_bytes;
    gml_list_init(&class->woken);
    return class;
}

void
gml_class_drop_if_empty(gml_stitch *stitch, gml_class *class)
{
    if (class->placement_count == 0) {
        (void)gml_map_take(&class->pond->classes, class->size_bytes);
        gml_pool_give(&stitch->classes, class);
    }
}

gml_status
gml_stitch_synchronize(gml_stitch *stitch, const gml_pond *asking, bool *is_done)
{
    gml_driver *driver = stitch->policy.driver;
    gml_status status = GML_OK;
    bool is_capturing = driver->is_frozen;
    if (asking && !is_capturing) {
        status = gml_driver_stream_capturing(driver, asking->stream, &is_capturing);
    }
    if (status == GML_OK && !is_capturing) {
        status = gml_driver_device_synchronize(driver);
    }
    *is_done = status == GML_OK && !is_capturing;
    return status;
}
