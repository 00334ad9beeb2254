/* The driver `sim`: the model, with addresses of its own making. */
#include "driver/backends.h"
#include "driver/modelled.h"
#include "driver/sim_cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t DEFAULT_CAPACITY_BYTES = UINT64_C(80) << 30;
static const uint64_t DEFAULT_GRANULARITY_BYTES = UINT64_C(2) << 20;

enum { LARGE_BLOCK_BYTES = 2 << 20, BLOCK_GRANULE_BYTES = 512 };

/* An address for a later malloc. */
typedef struct expectation {
    struct expectation *next;
    gml_address address;
} expectation;

/* The expectations of one size, oldest first. Stays when empty. */
typedef struct expected_size {
    expectation *first, *last;
} expected_size;

typedef struct sim_driver {
    gml_modelled modelled; /* must be first */
    gml_map expected;      /* expected_size by size */
    gml_pool expected_sizes, expectations;
    const gml_sim_prices *prices;
    uint64_t last_handles;    /* of the last call that took mappings */
    uint64_t last_size_bytes; /* of the memory that the last release or free gave up */
} sim_driver;

static sim_driver *sim_of(gml_driver *self) {
    return (sim_driver *)self;
}

static gml_model *model_of(gml_driver *self) {
    return &sim_of(self)->modelled.model;
}

static void destroy(gml_driver *self) {
    sim_driver *sim = sim_of(self);
    gml_map_clear(&sim->expected);
    gml_pool_clear(&sim->expected_sizes);
    gml_pool_clear(&sim->expectations);
    gml_modelled_clear(&sim->modelled);
    free(sim);
}

static gml_status release(gml_driver *self, gml_handle handle) {
    const gml_physical *physical = gml_model_physical(model_of(self), handle);
    sim_of(self)->last_size_bytes = physical ? physical->size_bytes : 0;
    return gml_model_release(model_of(self), handle);
}

static gml_status reserve(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                          gml_address *out) {
    gml_model *model = model_of(self);
    gml_address address = 0;
    gml_status status = gml_model_check_reserve(model, size_bytes, &alignment_bytes);
    if (status == GML_OK) {
        status = gml_model_find_hole(model, size_bytes, alignment_bytes, &address);
    }
    if (status == GML_OK) {
        status = gml_model_reserve(model, address, size_bytes);
    }
    if (status == GML_OK) {
        *out = address;
    }
    return status;
}

static gml_status reserve_at(gml_driver *self, gml_address address, uint64_t size_bytes) {
    gml_model *model = model_of(self);
    return gml_model_is_hole(model, address, size_bytes)
               ? gml_model_reserve(model, address, size_bytes)
               : gml_driver_fail_taken(self, address, size_bytes);
}

static gml_status unreserve(gml_driver *self, gml_address address, uint64_t size_bytes) {
    return gml_model_unreserve(model_of(self), address, size_bytes);
}

static gml_status map(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle) {
    return gml_model_map(model_of(self), address, size_bytes, handle);
}

static gml_status unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    sim_of(self)->last_handles = 0;
    return gml_model_unmap(model_of(self), address, size_bytes, &sim_of(self)->last_handles);
}

static gml_status set_access(gml_driver *self, gml_address address, uint64_t size_bytes) {
    sim_of(self)->last_handles = 0;
    return gml_model_set_access(model_of(self), address, size_bytes, &sim_of(self)->last_handles);
}

/* Takes the oldest expected address of that size that is free; 0 if none. */
static gml_address take_expected(sim_driver *sim, uint64_t size_bytes) {
    expected_size *expected = gml_map_find(&sim->expected, size_bytes);
    while (expected && expected->first) {
        expectation *taken = expected->first;
        gml_address address = taken->address;
        expected->first = taken->next;
        gml_pool_give(&sim->expectations, taken);
        if (gml_model_is_hole(&sim->modelled.model, address, size_bytes)) {
            return address;
        }
    }
    return 0;
}

static gml_status sim_malloc(gml_driver *self, uint64_t size_bytes, gml_address *out) {
    gml_model *model = model_of(self);
    gml_status status = gml_model_check_malloc(model, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    gml_address address = take_expected(sim_of(self), size_bytes);
    if (!address) {
        uint64_t alignment_bytes =
            size_bytes >= LARGE_BLOCK_BYTES ? LARGE_BLOCK_BYTES : BLOCK_GRANULE_BYTES;
        status = gml_model_find_hole(model, size_bytes, alignment_bytes, &address);
    }
    if (status == GML_OK) {
        status = gml_model_malloc(model, address, size_bytes);
    }
    if (status == GML_OK) {
        *out = address;
    }
    return status;
}

static gml_status sim_free(gml_driver *self, gml_address address) {
    gml_status status =
        gml_model_check_free(model_of(self), address, &sim_of(self)->last_size_bytes);
    return status == GML_OK ? gml_model_free(model_of(self), address) : status;
}

/* The queue for a size, made on first use; NULL when the host has no memory. */
static expected_size *expected_of(sim_driver *sim, uint64_t size_bytes) {
    expected_size *found = gml_map_find(&sim->expected, size_bytes);
    if (found) {
        return found;
    }
    expected_size *added = gml_pool_take(&sim->expected_sizes);
    if (!added || gml_map_insert(&sim->expected, size_bytes, added) != GML_OK) {
        gml_pool_give(&sim->expected_sizes, added);
        return NULL;
    }
    return added;
}

/* There are no bytes, but whether a kernel could touch them is known. */
static gml_status bytes(gml_driver *self, gml_address address, uint64_t size_bytes, void **out) {
    (void)out;
    gml_status status = gml_model_check_touch(model_of(self), address, size_bytes);
    return status == GML_OK ? gml_driver_fail(self, GML_UNSUPPORTED,
                                              "driver 'sim' has no bytes; open the driver 'host'")
                            : status;
}

static gml_status expect_malloc(gml_driver *self, gml_address address, uint64_t size_bytes) {
    if (address == 0 || address % BLOCK_GRANULE_BYTES != 0 || size_bytes == 0 ||
        size_bytes > UINT64_MAX - address) {
        return gml_driver_fail(self, GML_INVALID_ARGUMENT,
                               "expect_malloc: %" PRIu64 " bytes at 0x%" PRIx64
                               " cannot be a block; the address must be a multiple of 512",
                               size_bytes, address);
    }
    sim_driver *sim = sim_of(self);
    expected_size *expected = expected_of(sim, size_bytes);
    expectation *added = expected ? gml_pool_take(&sim->expectations) : NULL;
    if (!added) {
        return gml_driver_fail(self, GML_NO_HOST_MEMORY, "expect_malloc: no host memory left");
    }
    added->address = address;
    if (expected->first) {
        expected->last->next = added;
    } else {
        expected->first = added;
    }
    expected->last = added;
    return GML_OK;
}

static uint64_t cost_ns(const gml_driver *self, gml_driver_call call, uint64_t size_bytes) {
    const sim_driver *sim = (const sim_driver *)self;
    bool has_mappings = call == GML_CALL_UNMAP || call == GML_CALL_SET_ACCESS;
    bool gives_up = call == GML_CALL_RELEASE || call == GML_CALL_FREE;
    return gml_sim_cost_ns(sim->prices, call, gives_up ? sim->last_size_bytes : size_bytes,
                           has_mappings ? sim->last_handles : 1);
}

static const gml_driver_ops sim_ops = {
    .name = "sim",
    .destroy = destroy,
    .create = gml_modelled_create,
    .release = release,
    .reserve = reserve,
    .reserve_at = reserve_at,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .set_access = set_access,
    .malloc = sim_malloc,
    .free = sim_free,
    .memory_info = gml_modelled_memory_info,
    GML_MODELLED_STREAMS,
    .bytes = bytes,
    .expect_malloc = expect_malloc,
    .cost_ns = cost_ns,
};

gml_status gml_sim_driver_open(uint64_t capacity_bytes, uint64_t granularity_bytes,
                               gml_driver **out, char *reason, size_t reason_bytes) {
    sim_driver *sim = calloc(1, sizeof *sim);
    if (!sim) {
        (void)snprintf(reason, reason_bytes, "sim: no host memory left");
        return GML_NO_HOST_MEMORY;
    }
    sim->modelled.base.ops = &sim_ops;
    sim->expected_sizes.object_bytes = sizeof(expected_size);
    sim->expectations.object_bytes = sizeof(expectation);
    uint64_t held_bytes = capacity_bytes ? capacity_bytes : DEFAULT_CAPACITY_BYTES;
    sim->prices = gml_sim_prices_of(held_bytes);
    gml_status status =
        gml_modelled_init(&sim->modelled, held_bytes,
                          granularity_bytes ? granularity_bytes : DEFAULT_GRANULARITY_BYTES);
    if (status != GML_OK) {
        (void)snprintf(reason, reason_bytes, "sim: %s", sim->modelled.base.reason);
        free(sim);
        return status;
    }
    gml_device_info *info = &sim->modelled.base.info;
    (void)snprintf(info->name, sizeof info->name, "simulated %s", gml_sim_prices_name(sim->prices));
    *out = &sim->modelled.base;
    return GML_OK;
}
