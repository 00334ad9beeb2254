/* Mappings of the model: which granule of a reservation shows which physical memory. */
#include "driver/model.h"

#include <inttypes.h>
#include <string.h>

/* Consecutive granules of one reservation. */
typedef struct span {
    gml_range *range;
    size_t first, end;
} span;

static size_t granules_of(const gml_model *model, const gml_physical *physical) {
    return (size_t)(physical->size_bytes / model->granularity_bytes);
}

/* Finds the granules of an aligned range that lies inside one reservation. */
static gml_status find_span(gml_model *model, const char *call, gml_address address,
                            uint64_t size_bytes, span *out) {
    gml_status status = gml_model_check_aligned(model, call, address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    gml_range *range = gml_model_range_at(model, address);
    uint64_t offset_bytes = range ? address - range->node.address : 0;
    if (!range || !range->slots || size_bytes > range->size_bytes - offset_bytes) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "%s: %" PRIu64 " bytes at 0x%" PRIx64
                               " do not lie inside one reservation",
                               call, size_bytes, address);
    }
    out->range = range;
    out->first = (size_t)(offset_bytes / model->granularity_bytes);
    out->end = out->first + (size_t)(size_bytes / model->granularity_bytes);
    return GML_OK;
}

static gml_address address_of(const gml_model *model, const gml_range *range, size_t slot) {
    return range->node.address + slot * model->granularity_bytes;
}

/* Finds a span that whole mappings cover exactly, and counts them. */
static gml_status find_whole_span(gml_model *model, const char *call, gml_address address,
                                  uint64_t size_bytes, span *out, uint64_t *mappings) {
    gml_status status = find_span(model, call, address, size_bytes, out);
    if (status != GML_OK) {
        return status;
    }
    uint64_t count = 0;
    for (size_t i = out->first; i < out->end; count++) {
        const gml_model_granule *slot = &out->range->slots[i];
        if (!slot->physical) {
            return gml_driver_fail(model->driver, GML_MISUSE, "%s: nothing is mapped at 0x%" PRIx64,
                                   call, address_of(model, out->range, i));
        }
        size_t granules = granules_of(model, slot->physical);
        if (slot->index != 0 || granules > out->end - i) {
            return gml_driver_fail(model->driver, GML_MISUSE,
                                   "%s: the range cuts the mapping at 0x%" PRIx64 " of %" PRIu64
                                   " bytes; mappings are taken whole",
                                   call, address_of(model, out->range, i - slot->index),
                                   slot->physical->size_bytes);
        }
        i += granules;
    }
    if (mappings) {
        *mappings = count;
    }
    return GML_OK;
}

gml_status gml_model_check_whole(gml_model *model, const char *call, gml_address address,
                                 uint64_t size_bytes) {
    span at = {0};
    return find_whole_span(model, call, address, size_bytes, &at, NULL);
}

/* Checks a mapping of `handle` and finds where it goes. */
static gml_status prepare_map(gml_model *model, gml_address address, uint64_t size_bytes,
                              gml_handle handle, span *at, gml_physical **physical) {
    gml_status status = find_span(model, "map", address, size_bytes, at);
    if (status != GML_OK) {
        return status;
    }
    *physical = gml_map_find(&model->handles, handle);
    if (!*physical) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "map: handle %" PRIu64 " does not exist or was released", handle);
    }
    if ((*physical)->size_bytes != size_bytes) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "map: %" PRIu64 " bytes of handle %" PRIu64 " that has %" PRIu64
                               "; a handle is mapped whole",
                               size_bytes, handle, (*physical)->size_bytes);
    }
    for (size_t i = at->first; i < at->end; i++) {
        if (at->range->slots[i].physical) {
            return gml_driver_fail(model->driver, GML_MISUSE,
                                   "map: 0x%" PRIx64 " is mapped already",
                                   address_of(model, at->range, i));
        }
    }
    return GML_OK;
}

gml_status gml_model_check_map(gml_model *model, gml_address address, uint64_t size_bytes,
                               gml_handle handle) {
    span at = {0};
    gml_physical *physical;
    return prepare_map(model, address, size_bytes, handle, &at, &physical);
}

gml_status gml_model_map(gml_model *model, gml_address address, uint64_t size_bytes,
                         gml_handle handle) {
    span at = {0};
    gml_physical *physical = NULL;
    gml_status status = prepare_map(model, address, size_bytes, handle, &at, &physical);
    if (status != GML_OK) {
        return status;
    }
    for (size_t i = at.first; i < at.end; i++) {
        at.range->slots[i] = (gml_model_granule){physical, (uint32_t)(i - at.first), false};
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): set whenever the status is GML_OK */
    at.range->mapped_slots += at.end - at.first;
    physical->mappings++;
    return GML_OK;
}

gml_status gml_model_unmap(gml_model *model, gml_address address, uint64_t size_bytes,
                           uint64_t *mappings) {
    span at = {0};
    gml_status status = find_whole_span(model, "unmap", address, size_bytes, &at, mappings);
    if (status != GML_OK) {
        return status;
    }
    for (size_t i = at.first; i < at.end;) {
        gml_physical *physical = at.range->slots[i].physical;
        size_t granules = granules_of(model, physical);
        memset(&at.range->slots[i], 0, granules * sizeof(gml_model_granule));
        physical->mappings--;
        gml_model_drop_if_gone(model, physical);
        i += granules;
    }
    at.range->mapped_slots -= at.end - at.first;
    return GML_OK;
}

gml_status gml_model_set_access(gml_model *model, gml_address address, uint64_t size_bytes,
                                uint64_t *mappings) {
    span at = {0};
    gml_status status = find_whole_span(model, "set_access", address, size_bytes, &at, mappings);
    if (status != GML_OK) {
        return status;
    }
    for (size_t i = at.first; i < at.end; i++) {
        at.range->slots[i].is_accessible = true;
    }
    return GML_OK;
}

gml_status gml_model_check_touch(gml_model *model, gml_address address, uint64_t size_bytes) {
    const gml_range *range = gml_model_range_at(model, address);
    uint64_t offset_bytes = range ? address - range->node.address : 0;
    if (!range || size_bytes == 0 || size_bytes > range->size_bytes - offset_bytes) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "%" PRIu64 " bytes at 0x%" PRIx64
                               " do not lie inside one reservation or block",
                               size_bytes, address);
    }
    if (!range->slots) {
        return GML_OK;
    }
    size_t first = (size_t)(offset_bytes / model->granularity_bytes);
    size_t last = (size_t)((offset_bytes + size_bytes - 1) / model->granularity_bytes);
    for (size_t i = first; i <= last; i++) {
        if (!range->slots[i].is_accessible) {
            return gml_driver_fail(model->driver, GML_MISUSE, "0x%" PRIx64 " is touched, where %s",
                                   address_of(model, range, i),
                                   range->slots[i].physical ? "access was never set"
                                                            : "nothing is mapped");
        }
    }
    return GML_OK;
}
