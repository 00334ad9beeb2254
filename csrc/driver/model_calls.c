/* The table of the backend without a device, and its kinds: `sim`, `host`, and `host` without
 * bytes. */
#include "base/rounding.h"
#include "base/size.h"
#include "driver/model.h"
#include "driver/streams.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Addresses that are counted, which no recorded user-space address can meet. */
#define LOWEST_ADDRESS (UINT64_C(1) << 47)
#define HIGHEST_ADDRESS (UINT64_C(1) << 52)

static const uint64_t LARGE_BLOCK_BYTES = UINT64_C(2) << 20;

/* An address for a later malloc. */
typedef struct expectation {
    gml_link link; /* must be first */
    gml_address address;
    uint64_t size_bytes;
} expectation;

static gml_model *model_of(gml_driver *self) {
    return (gml_model *)(void *)self;
}

/* ---- physical memory ------------------------------------------------------------------------- */

static gml_status model_create(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_aligned(model, "create", 0, size_bytes);
    if (status == GML_OK) {
        status = gml_model_check_room(model, "create", size_bytes);
    }
    return status == GML_OK ? gml_ledger_create(&model->ledger, size_bytes, out) : status;
}

static gml_status model_take_host(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_aligned(model, "create", 0, size_bytes);
    if (status == GML_OK) {
        model->takes_host = true;
        status = gml_ledger_create(&model->ledger, size_bytes, out);
        model->takes_host = false;
    }
    return status;
}

static gml_status take_physical(gml_driver *self, gml_physical *chunk) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_host_grow(model, chunk->size_bytes);
    if (status == GML_OK) {
        gml_model_chunk *made = (gml_model_chunk *)(void *)chunk;
        made->offset_bytes = model->next_offset_bytes;
        made->is_on_host = model->takes_host;
        model->next_offset_bytes += chunk->size_bytes;
        model->used_bytes += made->is_on_host ? 0 : chunk->size_bytes;
    }
    return status;
}

static gml_status give_physical(gml_driver *self, gml_physical *chunk) {
    const gml_model_chunk *given = (gml_model_chunk *)(void *)chunk;
    gml_model_host_shrink(model_of(self), given);
    model_of(self)->used_bytes -= given->is_on_host ? 0 : chunk->size_bytes;
    return GML_OK;
}

static gml_status model_release(gml_driver *self, gml_handle handle) {
    gml_model *model = model_of(self);
    const gml_physical *released = gml_ledger_find(&model->ledger, handle);
    model->last_size_bytes = released ? released->size_bytes : 0;
    return gml_ledger_release(&model->ledger, handle);
}

static gml_status model_memory_info(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes) {
    const gml_model *model = model_of(self);
    *free_bytes = model->capacity_bytes - model->used_bytes;
    *total_bytes = model->capacity_bytes;
    return GML_OK;
}

/* ---- address space --------------------------------------------------------------------------- */

static gml_status model_reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                                gml_address *out) {
    uint64_t granule_bytes = self->info.granularity_bytes;
    if ((alignment_bytes & (alignment_bytes - 1)) != 0) {
        return gml_driver_fail(self, GML_MISUSE,
                               "reserve: alignment %" PRIu64 " is not a power of two",
                               alignment_bytes);
    }
    const gml_range range = {.size_bytes = size_bytes};
    gml_status status = gml_model_check_aligned(model_of(self), "reserve", 0, size_bytes);
    uint64_t even_bytes = alignment_bytes < granule_bytes ? granule_bytes : alignment_bytes;
    return status == GML_OK
               ? gml_model_add_range(model_of(self), "reserve", &range, even_bytes, out)
               : status;
}

static gml_status model_unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_unreserve(model, address, size_bytes);
    if (status == GML_OK) {
        status = gml_model_host_give(model, "unreserve", address, size_bytes);
    }
    if (status == GML_OK) {
        gml_ranges_remove(&model->ranges, gml_ranges_at(&model->ranges, address));
    }
    return status;
}

/* ---- mappings -------------------------------------------------------------------------------- */

static gml_status model_map(gml_driver *self, gml_address address, uint64_t size_bytes,
                            gml_handle handle) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_map(model, address, size_bytes);
    return status == GML_OK ? gml_ledger_map(&model->ledger, address, size_bytes, handle) : status;
}

static gml_status map_physical(gml_driver *self, gml_address address, gml_physical *chunk) {
    return gml_model_host_map(model_of(self), address, (gml_model_chunk *)(void *)chunk);
}

static gml_status model_unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_model *model = model_of(self);
    model->last_mappings = 0;
    gml_status status =
        gml_model_check_whole(model, "unmap", address, size_bytes, &model->last_mappings);
    return status == GML_OK ? gml_ledger_unmap(&model->ledger, address, size_bytes) : status;
}

static gml_status unmap_physical(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_model_host_unmap(model_of(self), address, size_bytes);
}

static gml_status model_set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_model *model = model_of(self);
    model->last_mappings = 0;
    gml_status status =
        gml_model_check_whole(model, "set_access", address, size_bytes, &model->last_mappings);
    if (status == GML_OK) {
        status = gml_model_host_allow(model, "set_access", address, size_bytes);
    }
    if (status == GML_OK) {
        gml_ledger_open(&model->ledger, address, size_bytes);
    }
    return status;
}

/* ---- plain memory ---------------------------------------------------------------------------- */

/* Takes the oldest expected address of that size that is free; 0 if none. */
static gml_address take_expected(gml_model *model, uint64_t size_bytes) {
    gml_address found = 0;
    for (gml_link *link = model->expected.next, *next; link != &model->expected && !found;
         link = next) {
        expectation *at = (expectation *)(void *)link;
        next = link->next;
        if (at->size_bytes == size_bytes) {
            found = gml_ranges_is_hole(&model->ranges, at->address, size_bytes) ? at->address : 0;
            gml_list_remove(link);
            gml_pool_give(&model->expectations, at);
        }
    }
    return found;
}

static gml_status model_free(gml_driver *self, gml_address address) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_free(model, address);
    gml_range *freed = status == GML_OK ? gml_ranges_at(&model->ranges, address) : NULL;
    model->last_size_bytes = freed ? freed->size_bytes : 0;
    if (!freed) {
        return status;
    }
    status = gml_model_host_give(model, "free", address, freed->size_bytes);
    if (status == GML_OK) {
        model->used_bytes -= gml_round_up(freed->size_bytes, GML_PLAIN_GRANULE_BYTES);
        gml_ranges_remove(&model->ranges, freed);
    }
    return status;
}

/* A plain block; its memory counts in multiples of 512. */
static gml_status model_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    gml_model *model = model_of(self);
    if (size_bytes == 0) {
        return gml_driver_fail(self, GML_MISUSE, "malloc: size 0");
    }
    /* Free memory is a multiple of the granule, so rounding up later changes nothing. */
    gml_status status = gml_model_check_room(model, "malloc", size_bytes);
    if (status != GML_OK) {
        return status;
    }
    gml_range range = {.node.address = take_expected(model, size_bytes),
                       .size_bytes = size_bytes,
                       .is_plain = true};
    uint64_t small_bytes = model->page_bytes ? model->page_bytes : GML_PLAIN_GRANULE_BYTES;
    gml_address address = 0;
    status = gml_model_add_range(model, "malloc", &range,
                                 size_bytes >= LARGE_BLOCK_BYTES ? LARGE_BLOCK_BYTES : small_bytes,
                                 &address);
    if (status != GML_OK) {
        return status;
    }
    model->used_bytes += gml_round_up(size_bytes, GML_PLAIN_GRANULE_BYTES);
    status = gml_model_host_allow(model, "malloc", address, size_bytes);
    if (status != GML_OK) {
        gml_driver_begin_undo(self);
        (void)model_free(self, address);
        gml_driver_end_undo(self);
        return status;
    }
    *out = address;
    return GML_OK;
}

static gml_status expect_malloc(gml_driver *self, gml_address address, uint64_t size_bytes) {
    if (address == 0 || address % GML_PLAIN_GRANULE_BYTES != 0 || size_bytes == 0 ||
        size_bytes > UINT64_MAX - address) {
        return gml_driver_fail(self, GML_INVALID_ARGUMENT,
                               "expect_malloc: %" PRIu64 " bytes at 0x%" PRIx64
                               " cannot be a block; the address must be a multiple of 512",
                               size_bytes, address);
    }
    expectation *added = gml_pool_take(&model_of(self)->expectations);
    if (!added) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "expect_malloc: no host memory left");
    }
    added->address = address;
    added->size_bytes = size_bytes;
    gml_list_append(&model_of(self)->expected, &added->link);
    return GML_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Gives a status of the queues its reason. */
static gml_status explain(gml_driver *self, gml_status status, const char *call) {
    switch (status) {
    case GML_OK:
    case GML_NOT_READY:
        return status;
    case GML_INVALID_ARGUMENT:
        return gml_driver_fail(self, GML_MISUSE, "%s: this event does not exist", call);
    case GML_MISUSE:
        return gml_driver_fail(self, status, "%s: forbidden while a stream captures a graph", call);
    default:
        return gml_driver_fail(self, status, "%s: no host memory left", call);
    }
}

#define ASK(upper, lower, parameters, arguments, cost_bytes)                                       \
    static gml_status model_##lower parameters {                                                   \
        gml_streams *driver = self->streams;                                                       \
        return explain(self, gml_streams_##lower arguments, #lower);                               \
    }
GML_DRIVER_STREAM_TABLE(ASK, gml_driver)
#undef ASK

/* ---- bytes, and the host --------------------------------------------------------------------- */

/* There may be no bytes, but whether a kernel could touch them is known. */
static gml_status bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out) {
    gml_status status = gml_model_check_touch(model_of(self), address, size_bytes);
    if (status == GML_OK && model_of(self)->memory < 0) {
        return gml_driver_fail(self, GML_UNSUPPORTED,
                               "this device has no bytes; open the driver 'host'");
    }
    if (status == GML_OK) {
        *out = (void *)(uintptr_t)address;
    }
    return status;
}

static gml_status model_host_malloc(gml_driver *self, uint64_t size_bytes, void **out) {
    void *memory = malloc((size_t)size_bytes);
    if (!memory) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "host_malloc: no %s left",
                               gml_size_of(size_bytes).text);
    }
    *out = memory;
    return GML_OK;
}

static gml_status model_host_free(gml_driver *self, void *memory, uint64_t size_bytes) {
    (void)self;
    (void)size_bytes;
    free(memory);
    return GML_OK;
}

/* Copies run at once: nothing queued here could precede them. Without bytes nothing is copied. */
static gml_status model_copy_out(gml_driver *self, void *to, gml_address from, uint64_t size_bytes,
                                 gml_stream stream) {
    (void)stream;
    void *found = NULL;
    gml_status status = bytes(self, from, size_bytes, &found);
    if (status == GML_OK && found) {
        memcpy(to, found, (size_t)size_bytes);
    }
    return status == GML_UNSUPPORTED ? GML_OK : status;
}

static gml_status model_copy_in(gml_driver *self, gml_address to, const void *from,
                                uint64_t size_bytes, gml_stream stream) {
    (void)stream;
    void *found = NULL;
    gml_status status = bytes(self, to, size_bytes, &found);
    if (status == GML_OK && found) {
        memcpy(found, from, (size_t)size_bytes);
    }
    return status == GML_UNSUPPORTED ? GML_OK : status;
}

bool gml_model_place(gml_driver *driver, gml_handle handle, int *file, uint64_t *offset_bytes) {
    const gml_model *model = model_of(driver);
    const gml_model_chunk *physical = gml_ledger_find(&model->ledger, handle);
    if (!physical || model->memory < 0) {
        return false;
    }
    *file = model->memory;
    *offset_bytes = physical->offset_bytes;
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

static uint64_t cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes) {
    const gml_model *model = (const gml_model *)(const void *)self;
    bool has_mappings = call == GML_CALL_UNMAP || call == GML_CALL_SET_ACCESS;
    bool gives_up = call == GML_CALL_RELEASE || call == GML_CALL_FREE;
    return gml_sim_cost_ns(model->prices, call, gives_up ? model->last_size_bytes : size_bytes,
                           has_mappings ? model->last_mappings : 1);
}

static void destroy(gml_driver *self) {
    gml_model *model = model_of(self);
    gml_model_host_close(model);
    gml_streams_close(self->streams);
    gml_ledger_clear(&model->ledger);
    gml_ranges_clear(&model->ranges);
    gml_pool_clear(&model->expectations);
    free(model);
}

#define ENTRY(upper, lower, parameters, arguments, cost_bytes) .lower = model_##lower,

static const gml_driver_ops host_ops = {
    GML_DRIVER_TABLE(ENTRY, ENTRY).name = "host",
    .destroy = destroy,
    .bytes = bytes,
    .take_host = model_take_host,
};

static const gml_driver_ops sim_ops = {
    GML_DRIVER_TABLE(ENTRY, ENTRY).name = "sim",
    .destroy = destroy,
    .bytes = bytes,
    .take_host = model_take_host,
    .expect_malloc = expect_malloc,
    .cost_ns = cost_ns,
};
#undef ENTRY

static const gml_ledger_user books = {take_physical,           map_physical,
                                      unmap_physical,          give_physical,
                                      sizeof(gml_model_chunk), sizeof(gml_mapping)};

static gml_status start(gml_model *model, gml_model_kind kind) {
    gml_driver *base = &model->base;
    gml_device_info *info = &base->info;
    uint64_t granule_bytes = info->granularity_bytes;
    if (granule_bytes < GML_PLAIN_GRANULE_BYTES || (granule_bytes & (granule_bytes - 1)) != 0) {
        return gml_driver_fail(base, GML_INVALID_ARGUMENT,
                               "granularity %" PRIu64 " is not a power of two of 512 or more",
                               granule_bytes);
    }
    gml_status status =
        kind == GML_MODEL_SIM ? GML_OK : gml_model_host_open(model, kind == GML_MODEL_HOST);
    if (status != GML_OK) {
        return status;
    }
    if (gml_streams_open(&base->streams) != GML_OK) {
        return gml_driver_fail(base, GML_NO_HOST_MEMORY, "open: no host memory left");
    }
    info->total_bytes = info->free_bytes = model->capacity_bytes;
    info->has_virtual_memory = true;
    (void)snprintf(info->name, sizeof info->name, "%s%s", model->prices ? "simulated " : "",
                   model->prices ? gml_sim_prices_name(model->prices) : base->ops->name);
    return GML_OK;
}

gml_status gml_model_driver_open(gml_model_kind kind, uint64_t capacity_bytes,
                                 uint64_t granularity_bytes, gml_driver **out, char *reason,
                                 size_t reason_bytes) {
    bool is_sim = kind == GML_MODEL_SIM;
    const gml_driver_ops *ops = is_sim ? &sim_ops : &host_ops;
    gml_model *model = calloc(1, sizeof *model);
    if (!model) {
        (void)snprintf(reason, reason_bytes, "%s: no host memory left", ops->name);
        return GML_NO_HOST_MEMORY;
    }
    uint64_t default_bytes = UINT64_C(1) << 30;
    uint64_t held_bytes = capacity_bytes ? capacity_bytes
                          : is_sim       ? 80 * default_bytes
                                         : default_bytes;
    model->base.ops = ops;
    model->base.device = &model->base.own;
    model->base.gone = &model->base.own_gone;
    model->base.info.granularity_bytes = granularity_bytes ? granularity_bytes : UINT64_C(2) << 20;
    model->capacity_bytes = held_bytes & ~(uint64_t)(GML_PLAIN_GRANULE_BYTES - 1);
    model->memory = -1;
    model->prices = is_sim ? gml_sim_prices_of(held_bytes) : NULL;
    gml_ranges_init(&model->ranges, LOWEST_ADDRESS, HIGHEST_ADDRESS);
    model->expectations.object_bytes = sizeof(expectation);
    gml_list_init(&model->expected);
    gml_ledger_init(&model->ledger, &model->base, &books);
    gml_status status = start(model, kind);
    if (status != GML_OK) {
        (void)snprintf(reason, reason_bytes, "%s: %s", ops->name, model->base.reason);
        destroy(&model->base);
        return status;
    }
    *out = &model->base;
    return GML_OK;
}
