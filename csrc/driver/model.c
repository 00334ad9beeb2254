/* The books of the model: ranges of addresses, and what may be done with them. */
#include "driver/model.h"

#include "base/size.h"

#include <inttypes.h>

gml_status gml_model_check_room(gml_model *model, const char *call, uint64_t size_bytes) {
    uint64_t free_bytes = model->capacity_bytes - model->used_bytes;
    if (size_bytes > free_bytes) {
        return gml_driver_fail(&model->base, GML_OUT_OF_MEMORY, "%s: %s asked for, %s of %s free",
                               call, gml_size_of(size_bytes).text, gml_size_of(free_bytes).text,
                               gml_size_of(model->capacity_bytes).text);
    }
    return GML_OK;
}

gml_status gml_model_check_aligned(gml_model *model, const char *call, gml_address address,
                                   uint64_t size_bytes) {
    uint64_t granule_bytes = model->base.info.granularity_bytes;
    if (size_bytes == 0 || size_bytes % granule_bytes != 0 || address % granule_bytes != 0) {
        return gml_driver_fail(&model->base, GML_MISUSE,
                               "%s: address 0x%" PRIx64 " and size %" PRIu64
                               " must be multiples of %" PRIu64 ", the size above 0",
                               call, address, size_bytes, granule_bytes);
    }
    return GML_OK;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static gml_status take_addresses(gml_model *model, const char *call, const gml_range *wanted,
                                 uint64_t alignment_bytes, gml_address *out) {
    *out = wanted->node.address;
    if (model->page_bytes) {
        return gml_model_host_take(model, call, wanted->size_bytes, alignment_bytes, out);
    }
    if (*out) { /* the caller found it free */
        return GML_OK;
    }
    *out = gml_ranges_find_hole(&model->ranges, wanted->size_bytes, alignment_bytes);
    model->ranges.next = *out + wanted->size_bytes; /* they ascend */
    return *out ? GML_OK
                : gml_driver_fail(&model->base, GML_OUT_OF_MEMORY,
                                  "no contiguous %s of address space left",
                                  gml_size_of(wanted->size_bytes).text);
}

gml_status gml_model_add_range(gml_model *model, const char *call, const gml_range *wanted,
                               uint64_t alignment_bytes, gml_address *out) {
    gml_range *made = gml_pool_take(&model->ranges.objects);
    if (!made) {
        return gml_driver_fail(&model->base, GML_NO_HOST_MEMORY, "%s: no host memory left", call);
    }
    *made = *wanted;
    gml_status status = take_addresses(model, call, wanted, alignment_bytes, &made->node.address);
    if (status != GML_OK) {
        gml_pool_give(&model->ranges.objects, made);
        return status;
    }
    gml_ranges_enter(&model->ranges, made);
    *out = made->node.address;
    return GML_OK;
}

gml_status gml_model_check_unreserve(gml_model *model, gml_address address, uint64_t size_bytes) {
    const gml_range *range = gml_ranges_at(&model->ranges, address);
    if (!range || range->is_plain || range->node.address != address ||
        range->size_bytes != size_bytes) {
        return gml_driver_fail(&model->base, GML_MISUSE,
                               "unreserve: %" PRIu64 " bytes at 0x%" PRIx64
                               " are not exactly one reservation",
                               size_bytes, address);
    }
    const gml_mapping *left = gml_ledger_from(&model->ledger, address);
    if (left && left->node.address - address < size_bytes) {
        return gml_driver_fail(&model->base, GML_MISUSE,
                               "unreserve: memory is still mapped at 0x%" PRIx64,
                               left->node.address);
    }
    return GML_OK;
}

gml_status gml_model_check_free(gml_model *model, gml_address address) {
    const gml_range *range = gml_ranges_at(&model->ranges, address);
    return range && range->is_plain && range->node.address == address
               ? GML_OK
               : gml_driver_fail(&model->base, GML_MISUSE,
                                 "free: 0x%" PRIx64 " is not the address of a plain block",
                                 address);
}

/* ---- mappings -------------------------------------------------------------------------------- */

/* Whether an aligned range lies inside one reservation. */
static gml_status check_inside(gml_model *model, const char *call, gml_address address,
                               uint64_t size_bytes) {
    gml_status status = gml_model_check_aligned(model, call, address, size_bytes);
    const gml_range *range = gml_ranges_at(&model->ranges, address);
    bool is_inside = range && !range->is_plain &&
                     size_bytes <= range->size_bytes - (address - range->node.address);
    return status != GML_OK || is_inside ? status
                                         : gml_driver_fail(&model->base, GML_MISUSE,
                                                           "%s: %" PRIu64 " bytes at 0x%" PRIx64
                                                           " do not lie inside one reservation",
                                                           call, size_bytes, address);
}

gml_status gml_model_check_map(gml_model *model, gml_address address, uint64_t size_bytes) {
    gml_status status = check_inside(model, "map", address, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    const gml_mapping *before = gml_ledger_at(&model->ledger, address);
    const gml_mapping *behind = gml_ledger_from(&model->ledger, address);
    bool is_taken = before || (behind && behind->node.address - address < size_bytes);
    return is_taken
               ? gml_driver_fail(&model->base, GML_MISUSE, "map: 0x%" PRIx64 " is mapped already",
                                 before ? address : behind->node.address)
               : GML_OK;
}

gml_status gml_model_check_whole(gml_model *model, const char *call, gml_address address,
                                 uint64_t size_bytes, uint64_t *mappings) {
    gml_status status = check_inside(model, call, address, size_bytes);
    uint64_t count = 0;
    gml_address end = address + size_bytes;
    const gml_mapping *at = gml_ledger_at(&model->ledger, address);
    while (address < end && status == GML_OK) {
        if (!at || at->node.address > address) {
            status = gml_driver_fail(&model->base, GML_MISUSE,
                                     "%s: nothing is mapped at 0x%" PRIx64, call, address);
        } else if (at->node.address != address || gml_mapping_end(at) > end) {
            status = gml_driver_fail(&model->base, GML_MISUSE,
                                     "%s: the range cuts the mapping at 0x%" PRIx64 " of %" PRIu64
                                     " bytes; mappings are taken whole",
                                     call, at->node.address, at->size_bytes);
        } else {
            address = gml_mapping_end(at);
            at = gml_ledger_next(at);
            count++;
        }
    }
    if (status == GML_OK && mappings) {
        *mappings = count;
    }
    return status;
}

gml_status gml_model_check_touch(gml_model *model, gml_address address, uint64_t size_bytes) {
    const gml_range *range = gml_ranges_at(&model->ranges, address);
    uint64_t offset_bytes = range ? address - range->node.address : 0;
    if (!range || size_bytes == 0 || size_bytes > range->size_bytes - offset_bytes) {
        return gml_driver_fail(&model->base, GML_MISUSE,
                               "%" PRIu64 " bytes at 0x%" PRIx64
                               " do not lie inside one reservation or block",
                               size_bytes, address);
    }
    gml_address end = address + size_bytes;
    while (!range->is_plain && address < end) {
        const gml_mapping *at = gml_ledger_at(&model->ledger, address);
        if (!at || !at->is_open) {
            return gml_driver_fail(&model->base, GML_MISUSE, "0x%" PRIx64 " is touched, where %s",
                                   address, at ? "access was never set" : "nothing is mapped");
        }
        address = gml_mapping_end(at);
    }
    return GML_OK;
}
