/* Physical memory and address ranges of the model. Mappings are in model_mapping.c. */
#include "driver/model.h"

#include "base/size.h"

#include <inttypes.h>
#include <stdlib.h>

#define LOWEST_HOLE (UINT64_C(1) << 47)
#define HIGHEST_HOLE (UINT64_C(1) << 52)

enum { BLOCK_GRANULE_BYTES = 512 };

gml_status gml_model_init(gml_model *model, gml_driver *driver, uint64_t capacity_bytes,
                          uint64_t granularity_bytes) {
    if (granularity_bytes < BLOCK_GRANULE_BYTES ||
        (granularity_bytes & (granularity_bytes - 1)) != 0) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "granularity %" PRIu64 " is not a power of two of 512 or more",
                               granularity_bytes);
    }
    *model = (gml_model){
        .driver = driver,
        .granularity_bytes = granularity_bytes,
        .capacity_bytes = capacity_bytes & ~(uint64_t)(BLOCK_GRANULE_BYTES - 1),
        .next_handle = 1,
        .next_hole = LOWEST_HOLE,
        .physicals = {.object_bytes = sizeof(gml_physical)},
        .range_objects = {.object_bytes = sizeof(gml_range)},
    };
    return GML_OK;
}

void gml_model_clear(gml_model *model) {
    gml_tree_node *node = gml_tree_first(&model->ranges);
    for (; node; node = gml_tree_next(node)) {
        free(((gml_range *)node)->slots);
    }
    gml_map_clear(&model->handles);
    gml_pool_clear(&model->physicals);
    gml_pool_clear(&model->range_objects);
    *model = (gml_model){0};
}

static uint64_t round_up(uint64_t value, uint64_t power_of_two) {
    return (value + power_of_two - 1) & ~(power_of_two - 1);
}

/* Whether `size_bytes` of the capacity are left. */
static gml_status check_room(gml_model *model, const char *call, uint64_t size_bytes) {
    uint64_t free_bytes = model->capacity_bytes - model->used_bytes;
    if (size_bytes > free_bytes) {
        return gml_driver_fail(model->driver, GML_OUT_OF_MEMORY, "%s: %s asked for, %s of %s free",
                               call, gml_size_of(size_bytes).text, gml_size_of(free_bytes).text,
                               gml_size_of(model->capacity_bytes).text);
    }
    return GML_OK;
}

gml_status gml_model_check_aligned(gml_model *model, const char *call, gml_address address,
                                   uint64_t size_bytes) {
    uint64_t mask = model->granularity_bytes - 1;
    if (size_bytes == 0 || (size_bytes & mask) != 0 || (address & mask) != 0) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "%s: address 0x%" PRIx64 " and size %" PRIu64
                               " must be multiples of %" PRIu64 ", the size above 0",
                               call, address, size_bytes, model->granularity_bytes);
    }
    return GML_OK;
}

/* ---- physical memory ------------------------------------------------------------------------- */

gml_status gml_model_create(gml_model *model, uint64_t size_bytes, gml_handle *out) {
    gml_status status = gml_model_check_aligned(model, "create", 0, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    status = check_room(model, "create", size_bytes);
    if (status != GML_OK) {
        return status;
    }
    gml_physical *physical = gml_pool_take(&model->physicals);
    if (!physical || gml_map_insert(&model->handles, model->next_handle, physical) != GML_OK) {
        gml_pool_give(&model->physicals, physical);
        return gml_driver_fail(model->driver, GML_NO_HOST_MEMORY, "create: no host memory left");
    }
    model->used_bytes += size_bytes;
    physical->handle = model->next_handle++;
    physical->size_bytes = size_bytes;
    physical->offset_bytes = model->next_offset_bytes;
    model->next_offset_bytes += size_bytes;
    *out = physical->handle;
    return GML_OK;
}

void gml_model_drop_if_gone(gml_model *model, gml_physical *physical) {
    if (!physical->is_released || physical->mappings > 0) {
        return;
    }
    if (model->on_gone) {
        model->on_gone(model->driver, physical);
    }
    model->used_bytes -= physical->size_bytes;
    gml_pool_give(&model->physicals, physical);
}

gml_status gml_model_release(gml_model *model, gml_handle handle) {
    gml_physical *physical = gml_map_take(&model->handles, handle);
    if (!physical) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "release: handle %" PRIu64 " does not exist or was released before",
                               handle);
    }
    physical->is_released = true;
    gml_model_drop_if_gone(model, physical);
    return GML_OK;
}

const gml_physical *gml_model_physical(const gml_model *model, gml_handle handle) {
    return gml_map_find(&model->handles, handle);
}

/* ---- address ranges -------------------------------------------------------------------------- */

/* The last range that begins at or below `address`, or NULL. */
static gml_range *range_at_or_below(const gml_model *model, gml_address address) {
    gml_tree_node *node = gml_tree_at_least(&model->ranges, 0, address);
    if (!node || node->address != address) {
        node = node ? gml_tree_previous(node) : gml_tree_last(&model->ranges);
    }
    return (gml_range *)node;
}

static bool holds(const gml_range *range, gml_address address) {
    return range && address >= range->node.address &&
           address - range->node.address < range->size_bytes;
}

gml_range *gml_model_range_at(gml_model *model, gml_address address) {
    if (!holds(model->last_range, address)) {
        gml_range *range = range_at_or_below(model, address);
        if (!holds(range, address)) {
            return NULL;
        }
        model->last_range = range;
    }
    return model->last_range;
}

/* A range that overlaps, or NULL. */
static const gml_range *obstacle_in(const gml_model *model, gml_address address,
                                    uint64_t size_bytes) {
    const gml_range *below = range_at_or_below(model, address);
    if (holds(below, address)) {
        return below;
    }
    const gml_tree_node *above = gml_tree_at_least(&model->ranges, 0, address);
    return above && above->address - address < size_bytes ? (const gml_range *)above : NULL;
}

bool gml_model_is_hole(const gml_model *model, gml_address address, uint64_t size_bytes) {
    return address != 0 && size_bytes <= UINT64_MAX - address &&
           !obstacle_in(model, address, size_bytes);
}

gml_status gml_model_find_hole(gml_model *model, uint64_t size_bytes, uint64_t alignment_bytes,
                               gml_address *out) {
    bool is_second_round = false;
    gml_address start = round_up(model->next_hole, alignment_bytes);
    while (size_bytes <= HIGHEST_HOLE - LOWEST_HOLE) {
        if (start > HIGHEST_HOLE - size_bytes) {
            if (is_second_round) {
                break;
            }
            is_second_round = true;
            start = round_up(LOWEST_HOLE, alignment_bytes);
            continue;
        }
        const gml_range *obstacle = obstacle_in(model, start, size_bytes);
        if (!obstacle) {
            model->next_hole = start + size_bytes;
            *out = start;
            return GML_OK;
        }
        start = round_up(obstacle->node.address + obstacle->size_bytes, alignment_bytes);
    }
    return gml_driver_fail(model->driver, GML_OUT_OF_MEMORY,
                           "no contiguous %s of address space left", gml_size_of(size_bytes).text);
}

/* Enters a range; `slot_count` 0 makes it a plain block. */
static gml_status add_range(gml_model *model, const char *call, gml_address address,
                            uint64_t size_bytes, uint64_t slot_count) {
    if (!gml_model_is_hole(model, address, size_bytes)) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "%s: %" PRIu64 " bytes at 0x%" PRIx64 " are not free address space",
                               call, size_bytes, address);
    }
    gml_range *range = gml_pool_take(&model->range_objects);
    gml_model_granule *slots = slot_count ? calloc(slot_count, sizeof *slots) : NULL;
    if (!range || (slot_count && !slots)) {
        gml_pool_give(&model->range_objects, range);
        free(slots);
        return gml_driver_fail(model->driver, GML_NO_HOST_MEMORY, "%s: no host memory left", call);
    }
    range->node.address = address;
    range->size_bytes = size_bytes;
    range->slots = slots;
    gml_tree_insert(&model->ranges, &range->node);
    return GML_OK;
}

static void remove_range(gml_model *model, gml_range *range) {
    gml_tree_remove(&model->ranges, &range->node);
    if (model->last_range == range) {
        model->last_range = NULL;
    }
    free(range->slots);
    gml_pool_give(&model->range_objects, range);
}

gml_status gml_model_check_reserve(gml_model *model, uint64_t size_bytes,
                                   uint64_t *alignment_bytes) {
    if ((*alignment_bytes & (*alignment_bytes - 1)) != 0) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "reserve: alignment %" PRIu64 " is not a power of two",
                               *alignment_bytes);
    }
    if (*alignment_bytes < model->granularity_bytes) {
        *alignment_bytes = model->granularity_bytes;
    }
    return gml_model_check_aligned(model, "reserve", 0, size_bytes);
}

gml_status gml_model_reserve(gml_model *model, gml_address address, uint64_t size_bytes) {
    gml_status status = gml_model_check_aligned(model, "reserve", address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    return add_range(model, "reserve", address, size_bytes, size_bytes / model->granularity_bytes);
}

gml_status gml_model_check_unreserve(gml_model *model, gml_address address, uint64_t size_bytes) {
    const gml_range *range = gml_model_range_at(model, address);
    if (!range || !range->slots || range->node.address != address ||
        range->size_bytes != size_bytes) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "unreserve: %" PRIu64 " bytes at 0x%" PRIx64
                               " are not exactly one reservation",
                               size_bytes, address);
    }
    if (range->mapped_slots) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "unreserve: %" PRIu64 " bytes at 0x%" PRIx64 " are still mapped",
                               range->mapped_slots * model->granularity_bytes, address);
    }
    return GML_OK;
}

gml_status gml_model_unreserve(gml_model *model, gml_address address, uint64_t size_bytes) {
    gml_status status = gml_model_check_unreserve(model, address, size_bytes);
    if (status == GML_OK) {
        remove_range(model, gml_model_range_at(model, address));
    }
    return status;
}

/* ---- plain blocks ---------------------------------------------------------------------------- */

gml_status gml_model_check_malloc(gml_model *model, uint64_t size_bytes) {
    if (size_bytes == 0) {
        return gml_driver_fail(model->driver, GML_MISUSE, "malloc: size 0");
    }
    /* Free memory is a multiple of the granule, so rounding up later changes nothing. */
    return check_room(model, "malloc", size_bytes);
}

gml_status gml_model_malloc(gml_model *model, gml_address address, uint64_t size_bytes) {
    gml_status status = gml_model_check_malloc(model, size_bytes);
    if (status == GML_OK) {
        status = add_range(model, "malloc", address, size_bytes, 0);
    }
    if (status == GML_OK) {
        model->used_bytes += round_up(size_bytes, BLOCK_GRANULE_BYTES);
    }
    return status;
}

gml_status gml_model_check_free(gml_model *model, gml_address address, uint64_t *size_bytes) {
    const gml_range *range = gml_model_range_at(model, address);
    if (!range || range->slots || range->node.address != address) {
        return gml_driver_fail(model->driver, GML_MISUSE,
                               "free: 0x%" PRIx64 " is not the address of a plain block", address);
    }
    if (size_bytes) {
        *size_bytes = range->size_bytes;
    }
    return GML_OK;
}

gml_status gml_model_free(gml_model *model, gml_address address) {
    uint64_t size_bytes = 0;
    gml_status status = gml_model_check_free(model, address, &size_bytes);
    if (status == GML_OK) {
        model->used_bytes -= round_up(size_bytes, BLOCK_GRANULE_BYTES);
        remove_range(model, gml_model_range_at(model, address));
    }
    return status;
}
