/* Each call is struck, or handed on and counted. */
#include "support/strikes.h"

#include "base/mix.h"
#include "driver/wrapped.h"
#include "hooks/race.h"
#include "hooks/test_hooks.h"
#include "support/check.h"

#include <stdlib.h>

enum { MOST_IN_A_ROW = 3 };

static const uint64_t MILLION = 1000000;

typedef struct striking_driver {
    gml_wrapped wrapped; /* must be first */
    strikes *by;
} striking_driver;

static striking_driver *striking_of(gml_driver *self) {
    return (striking_driver *)(void *)self;
}

/* ---- calls that fail ------------------------------------------------------------------------- */

static bool is_struck(strikes *by) {
    uint64_t per_million = atomic_load(&by->per_million);
    if (!by->row && gml_mix_next(&by->random_state) % MILLION < per_million) {
        by->row = 1 + gml_mix_next(&by->random_state) % MOST_IN_A_ROW;
    }
    if (!by->row || !per_million) {
        return false;
    }
    by->row--;
    by->struck++;
    return true;
}

static gml_status strike(gml_driver *self, gml_driver_call call) {
    if (call == GML_CALL_MEMORY_INFO || !is_struck(striking_of(self)->by)) {
        return GML_OK;
    }
    bool takes_memory = call == GML_CALL_CREATE || call == GML_CALL_MALLOC || call == GML_CALL_MAP;
    return gml_driver_fail(self, takes_memory ? GML_OUT_OF_MEMORY : GML_DRIVER_FAILED, "%s: struck",
                           gml_driver_call_name(call));
}

#define STRIKE(upper, lower, parameters, arguments, cost_bytes)                                    \
    static gml_status strike_##lower parameters {                                                  \
        gml_driver *driver = gml_wrapped_inner(self);                                              \
        gml_status status = strike(self, GML_CALL_##upper);                                        \
        return status == GML_OK ? gml_wrapped_relay(self, driver->ops->lower arguments) : status;  \
    }
GML_DRIVER_TABLE(STRIKE, STRIKE)
#undef STRIKE

/* ---- what is taken --------------------------------------------------------------------------- */

#define COUNTED(lower, parameters, arguments, count)                                               \
    static gml_status count_##lower parameters {                                                   \
        strikes *by = striking_of(self)->by;                                                       \
        gml_status status = strike_##lower arguments;                                              \
        if (status == GML_OK) {                                                                    \
            by->count;                                                                             \
        }                                                                                          \
        return status;                                                                             \
    }
COUNTED(create, (gml_driver * self, uint64_t size_bytes, gml_handle *out), (self, size_bytes, out),
        memory++)
COUNTED(release, (gml_driver * self, gml_handle handle), (self, handle), memory--)
COUNTED(malloc, (gml_driver * self, uint64_t size_bytes, gml_address *out), (self, size_bytes, out),
        memory++)
COUNTED(free, (gml_driver * self, gml_address address), (self, address), memory--)
COUNTED(reserve, (gml_driver * self, uint64_t size_bytes, uint64_t alignment, gml_address *out),
        (self, size_bytes, alignment, out), addresses += size_bytes)
COUNTED(unreserve, (gml_driver * self, gml_address address, uint64_t size_bytes),
        (self, address, size_bytes), addresses -= size_bytes)
COUNTED(map, (gml_driver * self, gml_address address, uint64_t size_bytes, gml_handle handle),
        (self, address, size_bytes, handle), mapped += size_bytes)
COUNTED(unmap, (gml_driver * self, gml_address address, uint64_t size_bytes),
        (self, address, size_bytes), mapped -= size_bytes)
COUNTED(event_create, (gml_driver * self, gml_event *out), (self, out), events++)
COUNTED(event_destroy, (gml_driver * self, gml_event event), (self, event), events--)
COUNTED(host_malloc, (gml_driver * self, uint64_t size_bytes, void **out), (self, size_bytes, out),
        host += size_bytes)
COUNTED(host_free, (gml_driver * self, void *memory, uint64_t size_bytes),
        (self, memory, size_bytes), host -= size_bytes)
#undef COUNTED

void strikes_check_memory(const strikes *of) {
    CHECK_EQ(of->memory, 0);
    CHECK_EQ(of->addresses, 0);
    CHECK_EQ(of->mapped, 0);
}

void strikes_check_rest(const strikes *of) {
    CHECK_EQ(of->host, 0);
    CHECK_EQ(of->events, 0);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void destroy(gml_driver *self) {
    gml_driver_close(gml_wrapped_inner(self));
    free(striking_of(self));
}

static gml_status open_driver(strikes *by, gml_driver **driver) {
    striking_driver *opened = calloc(1, sizeof *opened);
    if (!opened) {
        return GML_NO_HOST_MEMORY;
    }
    gml_wrap(&opened->wrapped, *driver, destroy);
    gml_driver_ops *ops = &opened->wrapped.ops;
#define ENTRY(upper, lower, parameters, arguments, cost_bytes) ops->lower = strike_##lower;
    GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
    ops->create = count_create;
    ops->release = count_release;
    ops->malloc = count_malloc;
    ops->free = count_free;
    ops->reserve = count_reserve;
    ops->unreserve = count_unreserve;
    ops->map = count_map;
    ops->unmap = count_unmap;
    ops->event_create = count_event_create;
    ops->event_destroy = count_event_destroy;
    ops->host_malloc = count_host_malloc;
    ops->host_free = count_host_free;
    opened->by = by;
    *driver = &opened->wrapped.base;
    return GML_OK;
}

typedef struct striking_hooks {
    gml_lake_hooks hooks;
    strikes *of;
    bool check_order;
} striking_hooks;

/* In the order of gml_test_hooks(). */
static gml_status wrap(const gml_lake_hooks *hooks, gml_hook_layer layer, gml_driver **driver,
                       gml_checker **checker) {
    const striking_hooks *self = (const striking_hooks *)hooks;
    gml_status status = GML_OK;
    if (self->check_order && layer != GML_HOOK_BELOW_SLEEP) {
        status = gml_race_driver_open(*driver, driver, checker);
    }
    bool is_below = layer != GML_HOOK_ABOVE_SLEEP;
    return status == GML_OK && is_below ? open_driver(self->of, driver) : status;
}

gml_status strikes_open(strikes *of, const gml_lake_config *config, gml_lake **out) {
    const striking_hooks hooks = {{wrap}, of, gml_test_options_of(config->hooks).check_order};
    gml_lake_config striking = *config;
    striking.hooks = &hooks.hooks;
    return gml_lake_open(&striking, out, NULL, 0);
}
