/* Each call is counted, refused if it is its turn, and handed on; copies are kept. */
#include "support/breaking.h"

#include "driver/wrapped.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COPIES = 256, MOST_EVENTS = 256 };

typedef struct late_copy {
    gml_address device;
    char *host;
    uint64_t size_bytes;
    gml_stream stream;
    bool is_out;
} late_copy;

static struct {
    uint64_t numbers[BREAKING_MOST];
    uint64_t made, struck, faults;
    bool is_refused[GML_CALL_COUNT];
    late_copy copies[MOST_COPIES]; /* the oldest first */
    size_t copy_count;
    uint64_t begun, done; /* copies so far */
    struct {
        gml_event event;
        gml_stream stream;
        uint64_t begun; /* when it was recorded */
    } events[MOST_EVENTS];
} state;

static gml_status strike(gml_driver *self, gml_driver_call call) {
    if (call == GML_CALL_MEMORY_INFO) {
        return GML_OK;
    }
    state.made++;
    bool is_turn = false;
    for (size_t i = 0; i < BREAKING_MOST; i++) {
        is_turn |= state.numbers[i] == state.made;
    }
    state.struck += is_turn;
    if (!is_turn && !state.is_refused[call]) {
        return GML_OK;
    }
    bool takes_memory = call == GML_CALL_CREATE || call == GML_CALL_MAP;
    return gml_driver_fail(self, takes_memory ? GML_OUT_OF_MEMORY : GML_DRIVER_FAILED,
                           "%s: refused as call %" PRIu64, gml_driver_call_name(call), state.made);
}

/* The sample of it. */
static gml_status copy_now(gml_driver *inner, const late_copy *at) {
    gml_status status = GML_OK;
    for (uint64_t i = 0; i < at->size_bytes && status == GML_OK; i += BREAKING_STRIDE_BYTES) {
        status = at->is_out ? inner->ops->copy_out(inner, at->host + i, at->device + i, 1, 0)
                            : inner->ops->copy_in(inner, at->device + i, at->host + i, 1, 0);
    }
    return status;
}

/* The copies that were begun before `begun` have ended. */
static void finish(gml_driver *self, uint64_t begun) {
    while (state.copy_count && state.done < begun) {
        state.faults += copy_now(gml_wrapped_inner(self), &state.copies[0]) != GML_OK;
        memmove(state.copies, state.copies + 1, --state.copy_count * sizeof *state.copies);
        state.done++;
    }
}

/* What is at [address, address + size_bytes) goes, or what is there in the host's memory. */
static void check_quiet(uint64_t address, uint64_t size_bytes, bool is_host) {
    for (size_t i = 0; i < state.copy_count; i++) {
        const late_copy *at = &state.copies[i];
        uint64_t begin = is_host ? (uint64_t)(uintptr_t)at->host : at->device;
        state.faults += begin < address + size_bytes && address < begin + at->size_bytes;
    }
}

static gml_status keep_copy(gml_driver *self, late_copy copy) {
    if (state.copy_count == MOST_COPIES) {
        finish(self, state.begun);
    }
    state.copies[state.copy_count++] = copy;
    state.begun++;
    return GML_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define STRIKE(upper, lower, parameters, arguments, cost_bytes)                                    \
    static gml_status strike_##lower parameters {                                                  \
        gml_driver *driver = gml_wrapped_inner(self);                                              \
        gml_status status = strike(self, GML_CALL_##upper);                                        \
        return status == GML_OK ? gml_wrapped_relay(self, driver->ops->lower arguments) : status;  \
    }
GML_DRIVER_TABLE(STRIKE, STRIKE)
#undef STRIKE

static gml_status late_copy_out(gml_driver *self, void *to, gml_address from, uint64_t size_bytes,
                                gml_stream stream) {
    gml_status status = strike(self, GML_CALL_COPY_OUT);
    return status == GML_OK ? keep_copy(self, (late_copy){from, to, size_bytes, stream, true})
                            : status;
}

static gml_status late_copy_in(gml_driver *self, gml_address to, const void *from,
                               uint64_t size_bytes, gml_stream stream) {
    gml_status status = strike(self, GML_CALL_COPY_IN);
    union {
        const void *from;
        char *bytes;
    } at = {.from = from}; /* which is only read */
    return status == GML_OK ? keep_copy(self, (late_copy){to, at.bytes, size_bytes, stream, false})
                            : status;
}

static gml_status watched_unmap(gml_driver *self, gml_address address, uint64_t size_bytes) {
    check_quiet(address, size_bytes, false);
    return strike_unmap(self, address, size_bytes);
}

static gml_status watched_host_free(gml_driver *self, void *memory, uint64_t size_bytes) {
    check_quiet((uint64_t)(uintptr_t)memory, size_bytes, true);
    return strike_host_free(self, memory, size_bytes);
}

static gml_status noted_record(gml_driver *self, gml_event event, gml_stream stream) {
    gml_status status = strike_event_record(self, event, stream);
    size_t i = 0;
    while (i < MOST_EVENTS - 1 && state.events[i].event && state.events[i].event != event) {
        i++;
    }
    if (status == GML_OK) {
        state.events[i].event = event;
        state.events[i].stream = stream;
        state.events[i].begun = state.begun;
    }
    return status;
}

static gml_status noted_event_synchronize(gml_driver *self, gml_event event) {
    gml_status status = strike_event_synchronize(self, event);
    for (size_t i = 0; i < MOST_EVENTS && status == GML_OK; i++) {
        if (state.events[i].event == event && state.copy_count &&
            state.copies[0].stream == state.events[i].stream) {
            finish(self, state.events[i].begun);
        }
    }
    return status;
}

static gml_status noted_stream_synchronize(gml_driver *self, gml_stream stream) {
    gml_status status = strike_stream_synchronize(self, stream);
    if (status == GML_OK && state.copy_count && state.copies[0].stream == stream) {
        finish(self, state.begun);
    }
    return status;
}

static gml_status noted_device_synchronize(gml_driver *self) {
    gml_status status = strike_device_synchronize(self);
    if (status == GML_OK) {
        finish(self, state.begun);
    }
    return status;
}

static void destroy(gml_driver *self) {
    gml_driver_close(gml_wrapped_inner(self));
    free(self);
}

static gml_status wrap(const gml_lake_hooks *self, gml_hook_layer layer, gml_driver **driver,
                       gml_checker **checker) {
    (void)self;
    (void)checker;
    if (layer == GML_HOOK_ABOVE_SLEEP) {
        return GML_OK;
    }
    gml_wrapped *made = calloc(1, sizeof *made);
    if (!made) {
        return GML_NO_HOST_MEMORY;
    }
    gml_wrap(made, *driver, destroy);
#define ENTRY(upper, lower, parameters, arguments, cost_bytes) made->ops.lower = strike_##lower;
    GML_DRIVER_TABLE(ENTRY, ENTRY)
#undef ENTRY
    made->ops.copy_out = late_copy_out;
    made->ops.copy_in = late_copy_in;
    made->ops.unmap = watched_unmap;
    made->ops.host_free = watched_host_free;
    made->ops.event_record = noted_record;
    made->ops.event_synchronize = noted_event_synchronize;
    made->ops.stream_synchronize = noted_stream_synchronize;
    made->ops.device_synchronize = noted_device_synchronize;
    memset(&state, 0, sizeof state);
    *driver = &made->base;
    return GML_OK;
}

const gml_lake_hooks breaking_hooks = {wrap};

/* ---- what tests ask -------------------------------------------------------------------------- */

void breaking_begin(const uint64_t numbers[BREAKING_MOST]) {
    memcpy(state.numbers, numbers, sizeof state.numbers);
    state.made = state.struck = 0;
}

uint64_t breaking_made(void) {
    return state.made;
}

uint64_t breaking_struck(void) {
    return state.struck;
}

void breaking_refuse(gml_driver_call call, bool is_refused) {
    state.is_refused[call] = is_refused;
}

uint64_t breaking_faults(void) {
    return state.faults;
}
