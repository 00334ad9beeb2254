/* Each call is struck, or skipped, or handed on. */
#include "hooks/fault.h"

#include "base/mix.h"
#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdlib.h>

static const uint64_t MILLION = 1000000;

#define BIT(call) (UINT64_C(1) << (call))

/* The calls that only create an ordering, so that skipping one shows only when memory is
 * reused. */
static const uint64_t SKIPPABLE = BIT(GML_CALL_EVENT_RECORD) | BIT(GML_CALL_EVENT_RECORD_ALL) |
                                  BIT(GML_CALL_EVENT_QUERY) | BIT(GML_CALL_EVENT_SYNCHRONIZE) |
                                  BIT(GML_CALL_STREAM_WAIT) | BIT(GML_CALL_STREAM_SYNCHRONIZE) |
                                  BIT(GML_CALL_DEVICE_SYNCHRONIZE);

typedef struct fault_driver {
    gml_wrapped wrapped; /* must be first */
    uint64_t made;       /* calls that could have failed, so far */
    uint64_t nth;
    uint64_t per_million;
    uint64_t random_state;
    uint64_t skipped; /* calls that are not made, a bit each */
} fault_driver;

static fault_driver *fault_of(gml_driver *self) {
    return (fault_driver *)(void *)self;
}

/* 0 to 999999. */
static uint64_t draw(fault_driver *fault) {
    return gml_mix_next(&fault->random_state) % MILLION;
}

/* GML_OK, or the status to fail this call with. Calls that cannot fail are not counted. */
static gml_status strike(gml_driver *self, gml_driver_call call) {
    fault_driver *fault = fault_of(self);
    if (call == GML_CALL_MEMORY_INFO) {
        return GML_OK;
    }
    fault->made++;
    bool is_drawn = fault->per_million > 0 && draw(fault) < fault->per_million;
    if (fault->made != fault->nth && !is_drawn) {
        return GML_OK;
    }
    bool takes_memory = call == GML_CALL_CREATE || call == GML_CALL_MALLOC || call == GML_CALL_MAP;
    return gml_driver_fail(self, takes_memory ? GML_OUT_OF_MEMORY : GML_DRIVER_FAILED,
                           "%s: failed on purpose, as call number %" PRIu64,
                           gml_driver_call_name(call), fault->made);
}

static void destroy(gml_driver *self) {
    gml_driver_close(gml_wrapped_inner(self));
    free(fault_of(self));
}

#define STRIKE(upper, lower, parameters, arguments, cost_bytes)                                    \
    static gml_status strike_##lower parameters {                                                  \
        gml_driver *driver = gml_wrapped_inner(self);                                              \
        gml_status status = strike(self, GML_CALL_##upper);                                        \
        if (status != GML_OK || fault_of(self)->skipped & BIT(GML_CALL_##upper)) {                 \
            return status;                                                                         \
        }                                                                                          \
        return gml_wrapped_relay(self, driver->ops->lower arguments);                              \
    }
GML_DRIVER_TABLE(STRIKE, STRIKE)
#undef STRIKE

static gml_status strike_take_host(gml_driver *self, uint64_t size_bytes, gml_handle *out) {
    gml_status status = strike(self, GML_CALL_CREATE);
    return status == GML_OK ? gml_wrapped_relay(self, gml_wrapped_inner(self)->ops->take_host(
                                                          gml_wrapped_inner(self), size_bytes, out))
                            : status;
}

static void fill_table(gml_driver_ops *ops) {
#define ENTRY(upper, lower, parameters, arguments, cost_bytes) ops->lower = strike_##lower;
    GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
    ops->take_host = ops->take_host ? strike_take_host : NULL;
}

gml_status gml_fault_driver_open(gml_driver *inner, uint64_t nth, uint64_t per_million,
                                 uint64_t seed, gml_driver **out) {
    fault_driver *fault = calloc(1, sizeof *fault);
    if (!fault) {
        return GML_NO_HOST_MEMORY;
    }
    gml_wrap(&fault->wrapped, inner, destroy);
    fill_table(&fault->wrapped.ops);
    fault->nth = nth;
    fault->per_million = per_million;
    fault->random_state = seed;
    *out = &fault->wrapped.base;
    return GML_OK;
}

gml_status gml_fault_driver_skip(gml_driver *driver, uint64_t calls) {
    if (calls & ~SKIPPABLE) {
        return gml_driver_fail(driver, GML_INVALID_ARGUMENT,
                               "skip_calls 0x%" PRIx64 " names calls that cannot be skipped: only "
                               "0x%" PRIx64 " can, which record, wait and synchronise",
                               calls, SKIPPABLE);
    }
    fault_of(driver)->skipped = calls;
    return GML_OK;
}
