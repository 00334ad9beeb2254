/* Each call is struck, or handed on and counted. */
#include "support/strikes.h"

#include "base/mix.h"
#include "driver/streams.h"
#include "driver/wrapped.h"
#include "hooks/race.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>

/* What is tried three times at the end of something succeeds then, so that nothing may be left. */
enum { MOST_IN_A_ROW = 2, BETWEEN_ROWS = 4 };

static const uint64_t MILLION = 1000000;

typedef struct striking_driver {
    gml_wrapped wrapped; /* must be first */
    strikes *by;
} striking_driver;

static striking_driver *striking_of(gml_driver *self) {
    return (striking_driver *)(void *)self;
}

/* ---- calls that fail ------------------------------------------------------------------------- */

#define BIT(upper) (UINT64_C(1) << GML_CALL_##upper)

/* No capture survives these. */
static const uint64_t BREAKING =
    BIT(UNMAP) | BIT(FREE) | BIT(EVENT_RECORD) | BIT(EVENT_RECORD_ALL) | BIT(EVENT_QUERY) |
    BIT(EVENT_SYNCHRONIZE) | BIT(STREAM_WAIT) | BIT(STREAM_SYNCHRONIZE) | BIT(DEVICE_SYNCHRONIZE);

static bool is_planned(strikes_plan *plan) {
    bool is_turn = false;
    plan->made++;
    for (size_t i = 0; i < STRIKES_NUMBERS; i++) {
        is_turn |= plan->numbers[i] == plan->made;
    }
    return is_turn;
}

static bool is_struck(strikes *by) {
    uint64_t per_million = atomic_load(&by->per_million);
    if (by->plan && is_planned(by->plan)) {
        by->struck++;
        return true;
    }
    if (by->rest) {
        by->rest--;
        return false;
    }
    if (!by->row && gml_mix_next(&by->random_state) % MILLION < per_million) {
        by->row = 1 + gml_mix_next(&by->random_state) % MOST_IN_A_ROW;
    }
    if (!by->row || !per_million) {
        return false;
    }
    by->rest = --by->row ? 0 : BETWEEN_ROWS;
    by->struck++;
    return true;
}

static void note_fault(strikes *by, gml_driver_call call, const char *why) {
    if (!by->fault[0]) {
        snprintf(by->fault, sizeof by->fault, "%s %s", gml_driver_call_name(call), why);
    }
}

static gml_status strike(gml_driver *self, gml_driver_call call) {
    strikes *by = striking_of(self)->by;
    if (gml_driver_is_frozen(self) && BREAKING >> call & 1) {
        note_fault(by, call, "while a graph is captured");
    }
    if (by->is_old && call == GML_CALL_EVENT_RECORD_ALL) {
        return gml_driver_fail(self, GML_UNSUPPORTED, "an old driver");
    }
    if (call == GML_CALL_MEMORY_INFO || !is_struck(by)) {
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
        bool is_left_out = striking_of(self)->by->skips & BIT(upper);                              \
        return status != GML_OK || is_left_out                                                     \
                   ? status                                                                        \
                   : gml_wrapped_relay(self, driver->ops->lower arguments);                        \
    }
GML_DRIVER_TABLE(STRIKE, STRIKE)
#undef STRIKE

/* ---- streams that are gone ------------------------------------------------------------------- */

void strikes_end_stream(strikes *of, gml_stream stream) {
    if (of->gone_count < STRIKES_GONE) {
        of->gone[of->gone_count++] = stream;
    }
}

void strikes_begin_stream(strikes *of, gml_stream stream) {
    size_t kept = 0;
    for (size_t i = 0; i < of->gone_count; i++) {
        if (of->gone[i] != stream) {
            of->gone[kept++] = of->gone[i];
        }
    }
    of->gone_count = kept;
}

#define NAMING(upper, lower, parameters, arguments)                                                \
    static gml_status naming_##lower parameters {                                                  \
        strikes *by = striking_of(self)->by;                                                       \
        for (size_t i = 0; i < by->gone_count; i++) {                                              \
            if (by->gone[i] == stream) {                                                           \
                note_fault(by, GML_CALL_##upper, "on a stream that is gone");                      \
            }                                                                                      \
        }                                                                                          \
        return strike_##lower arguments;                                                           \
    }
NAMING(EVENT_RECORD, event_record, (gml_driver * self, gml_event event, gml_stream stream),
       (self, event, stream))
NAMING(STREAM_WAIT, stream_wait, (gml_driver * self, gml_stream stream, gml_event event),
       (self, stream, event))
NAMING(STREAM_SYNCHRONIZE, stream_synchronize, (gml_driver * self, gml_stream stream),
       (self, stream))
NAMING(STREAM_CAPTURING, stream_capturing, (gml_driver * self, gml_stream stream, bool *out),
       (self, stream, out))
#undef NAMING

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

/* A device waits before it takes plain memory back, which `host` does not. */
static gml_status count_free(gml_driver *self, gml_address address) {
    strikes *by = striking_of(self)->by;
    gml_status status = strike(self, GML_CALL_FREE);
    if (status == GML_OK) {
        gml_driver *inner = gml_wrapped_inner(self);
        (void)gml_streams_device_synchronize(inner->streams);
        status = gml_wrapped_relay(self, inner->ops->free(inner, address));
    }
    by->memory -= status == GML_OK;
    return status;
}

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

gml_status strikes_wrap(strikes *by, gml_driver **driver) {
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
    ops->event_record = naming_event_record;
    ops->stream_wait = naming_stream_wait;
    ops->stream_synchronize = naming_stream_synchronize;
    ops->stream_capturing = naming_stream_capturing;
    opened->by = by;
    *driver = &opened->wrapped.base;
    return GML_OK;
}

typedef struct striking_hooks {
    gml_lake_hooks hooks;
    strikes *of;
} striking_hooks;

/* The check of the order of streams lies below, and sees no call that fails or is left out; above
 * what sleeps it sees them. */
static gml_status wrap(const gml_lake_hooks *hooks, gml_hook_layer layer, gml_driver **driver,
                       gml_checker **checker) {
    const striking_hooks *self = (const striking_hooks *)hooks;
    gml_status status = GML_OK;
    if (layer != GML_HOOK_BELOW_SLEEP && !self->of->is_unchecked) {
        status = gml_race_driver_open(*driver, driver, checker);
    }
    bool is_below = layer != GML_HOOK_ABOVE_SLEEP;
    return status == GML_OK && is_below ? strikes_wrap(self->of, driver) : status;
}

gml_status strikes_open(strikes *of, const gml_lake_config *config, gml_lake **out) {
    const striking_hooks hooks = {{wrap}, of};
    gml_lake_config striking = *config;
    striking.hooks = &hooks.hooks;
    return gml_lake_open(&striking, out, NULL, 0);
}
