/* One mapping per block, kept and given to the next request of its size, whatever its stream. */
#include "support/faulty.h"

#include <stdlib.h>

typedef struct faulty_block {
    gml_block block;
    struct faulty_block *next, *next_idle;
    gml_handle handle;
    gml_event event; /* recorded at the last free */
    bool is_mapped, is_idle;
} faulty_block;

typedef struct faulty_policy {
    gml_policy base;
    faulty_block *blocks, *idle;
    uint64_t served;
} faulty_policy;

static faulty_policy *faulty_of(gml_policy *base) {
    return (faulty_policy *)(void *)base;
}

static gml_status faulty_create(gml_driver *driver, const gml_policy_ops *ops, gml_policy **out) {
    faulty_policy *self = calloc(1, sizeof *self);
    if (!self) {
        return GML_NO_HOST_MEMORY;
    }
    self->base = (gml_policy){.ops = ops, .driver = driver};
    *out = &self->base;
    return GML_OK;
}

static gml_status new_block(faulty_policy *self, uint64_t size_bytes, faulty_block **out) {
    gml_driver *driver = self->base.driver;
    gml_handle handle;
    gml_address address = 0;
    gml_event event = 0;
    gml_status status = gml_driver_create(driver, size_bytes, &handle);
    if (status != GML_OK) {
        return status;
    }
    faulty_block *block = calloc(1, sizeof *block);
    if (!block || gml_driver_reserve(driver, size_bytes, 0, &address) != GML_OK ||
        gml_driver_map(driver, address, size_bytes, handle) != GML_OK ||
        gml_driver_set_access(driver, address, size_bytes) != GML_OK ||
        gml_driver_event_create(driver, &event) != GML_OK) {
        abort(); /* the tests of this policy let no call fail but create */
    }
    block->block = (gml_block){.address = address, .block_bytes = size_bytes};
    block->handle = handle;
    block->event = event;
    block->is_mapped = true;
    block->next = self->blocks;
    self->blocks = block;
    self->base.reserved_bytes += size_bytes;
    *out = block;
    return GML_OK;
}

/* A block that was handed out twice is also freed twice. */
static void add_idle(faulty_policy *self, faulty_block *block) {
    if (!block->is_idle) {
        block->is_idle = true;
        block->next_idle = self->idle;
        self->idle = block;
    }
}

static faulty_block *take_idle(faulty_policy *self, uint64_t size_bytes) {
    for (faulty_block **at = &self->idle; *at; at = &(*at)->next_idle) {
        faulty_block *block = *at;
        if (block->block.block_bytes == size_bytes) {
            *at = block->next_idle;
            block->is_idle = false;
            return block;
        }
    }
    return NULL;
}

static gml_status faulty_allocate(gml_policy *base, uint64_t size_bytes, gml_stream stream,
                                  gml_block **out) {
    faulty_policy *self = faulty_of(base);
    uint64_t granule = base->driver->info.granularity_bytes;
    uint64_t rounded_bytes = (size_bytes + granule - 1) / granule * granule;
    faulty_block *block = take_idle(self, rounded_bytes);
    if (!block) {
        gml_status status = new_block(self, rounded_bytes, &block);
        if (status != GML_OK) {
            return status;
        }
    } else if (block->block.stream != stream && base->ops != &faulty_order) {
        (void)gml_driver_stream_wait(base->driver, stream, block->event);
    }
    block->block.requested_bytes = size_bytes;
    block->block.stream = stream;
    if (base->ops == &faulty_overlap && ++self->served % 50 == 0) {
        add_idle(self, block);
    }
    *out = &block->block;
    return GML_OK;
}

/* Gives a block's memory back; its struct stays until the end. */
static void unmap_block(faulty_policy *self, faulty_block *block) {
    gml_driver *driver = self->base.driver;
    (void)gml_driver_unmap(driver, block->block.address, block->block.block_bytes);
    (void)gml_driver_unreserve(driver, block->block.address, block->block.block_bytes);
    (void)gml_driver_release(driver, block->handle);
    (void)gml_driver_event_destroy(driver, block->event);
    block->is_mapped = false;
    self->base.reserved_bytes -= block->block.block_bytes;
}

static void faulty_free(gml_policy *base, gml_block *freed) {
    faulty_policy *self = faulty_of(base);
    faulty_block *block = (faulty_block *)(void *)freed;
    if (base->ops == &faulty_unmap) {
        unmap_block(self, block);
        return;
    }
    (void)gml_driver_event_record(base->driver, block->event, freed->stream);
    add_idle(self, block);
}

static gml_status faulty_trim(gml_policy *base, uint64_t *released_bytes) {
    faulty_policy *self = faulty_of(base);
    uint64_t held_bytes = base->reserved_bytes;
    (void)gml_driver_device_synchronize(base->driver);
    while (self->idle) {
        unmap_block(self, self->idle);
        self->idle->is_idle = false;
        self->idle = self->idle->next_idle;
    }
    *released_bytes = held_bytes - base->reserved_bytes;
    if (base->ops == &faulty_reserved) {
        base->reserved_bytes = held_bytes;
    }
    return GML_OK;
}

static gml_status faulty_destroy(gml_policy *base) {
    faulty_policy *self = faulty_of(base);
    (void)gml_driver_device_synchronize(base->driver);
    while (self->blocks) {
        faulty_block *block = self->blocks;
        self->blocks = block->next;
        if (block->is_mapped) {
            unmap_block(self, block);
        }
        free(block);
    }
    free(self);
    return GML_OK;
}

static gml_status faulty_check(gml_policy *base) {
    (void)base;
    return GML_OK;
}

#define FAULTY_POLICY(kind)                                                                        \
    static gml_status create_##kind(gml_driver *driver, uint64_t capacity_bytes,                   \
                                    const gml_knobs *knobs, gml_policy **out) {                    \
        (void)capacity_bytes;                                                                      \
        (void)knobs;                                                                               \
        return faulty_create(driver, &faulty_##kind, out);                                         \
    }                                                                                              \
    const gml_policy_ops faulty_##kind = {.name = "faulty-" #kind,                                 \
                                          .create = create_##kind,                                 \
                                          .destroy = faulty_destroy,                               \
                                          .allocate = faulty_allocate,                             \
                                          .free = faulty_free,                                     \
                                          .trim = faulty_trim,                                     \
                                          .check = faulty_check};

FAULTY_POLICY(none)
FAULTY_POLICY(order)
FAULTY_POLICY(overlap)
FAULTY_POLICY(unmap)
FAULTY_POLICY(reserved)
