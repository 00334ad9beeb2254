/* Drivers by name, and the counted calls: each goes through the table, is counted, and adds to the
 * driver's time. */
#include "base/clock.h"
#include "base/size.h"
#include "driver/backends.h"
#include "driver/handed.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const call_names[GML_CALL_COUNT] = {
#define GML_DRIVER_CALL_TEXT(upper, lower) #lower,
    GML_DRIVER_CALLS(GML_DRIVER_CALL_TEXT)
#undef GML_DRIVER_CALL_TEXT
};

const char *gml_driver_call_name(gml_driver_call call) {
    return (unsigned)call < GML_CALL_COUNT ? call_names[call] : "unknown";
}

gml_status gml_driver_vfail(gml_driver *driver, gml_status status, const char *format,
                            va_list arguments) {
    if (!driver->undo_depth) {
        char text[GML_REASON_BYTES]; /* the reason before may be an argument */
        (void)vsnprintf(text, sizeof text, format, arguments);
        memcpy(driver->reason, text, sizeof text);
    }
    return status;
}

gml_status gml_driver_fail(gml_driver *driver, gml_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    (void)gml_driver_vfail(driver, status, format, arguments);
    va_end(arguments);
    return status;
}

void gml_driver_take_reason(gml_driver *driver, const gml_driver *from) {
    if (!driver->undo_depth) {
        memcpy(driver->reason, from->reason, sizeof driver->reason);
    }
}

/* ---- opening by name ------------------------------------------------------------------------- */

gml_status gml_driver_open(const char *name, int device, uint64_t capacity_bytes, gml_driver **out,
                           char *reason, size_t reason_bytes) {
    const char *wanted = name ? name : "";
    reason_bytes = reason ? reason_bytes : 0;
    bool is_sim = strcmp(wanted, "sim") == 0;
    if (strcmp(wanted, "cuda") == 0) {
        return gml_cuda_driver_open(device, out, reason, reason_bytes);
    }
    if (!is_sim && strcmp(wanted, "host") != 0) {
        (void)snprintf(reason, reason_bytes,
                       "driver '%.32s' is unknown; choose one of: cuda, host, sim", wanted);
        return GML_INVALID_ARGUMENT;
    }
    if (device < 0) {
        (void)snprintf(reason, reason_bytes, "device %d is negative; devices count from 0", device);
        return GML_INVALID_ARGUMENT;
    }
    return gml_model_driver_open(is_sim ? GML_MODEL_SIM : GML_MODEL_HOST, capacity_bytes, 0, out,
                                 reason, reason_bytes);
}

gml_status gml_device_describe(const char *driver, int device, gml_device_info *out, char *reason,
                               size_t reason_bytes) {
    gml_driver *opened;
    gml_status status = gml_driver_open(driver, device, 0, &opened, reason, reason_bytes);
    if (status != GML_OK) {
        return status;
    }
    uint64_t free_bytes;
    uint64_t total_bytes;
    status = gml_driver_memory_info(opened, &free_bytes, &total_bytes);
    if (status == GML_OK) {
        *out = opened->info;
    } else {
        (void)snprintf(reason, reason ? reason_bytes : 0, "%s", opened->reason);
    }
    gml_driver_close(opened);
    return status;
}

void gml_driver_close(gml_driver *driver) {
    if (driver) {
        gml_map_clear(&driver->sizes);
        gml_gone_clear(&driver->own_gone);
        driver->ops->destroy(driver);
    }
}

/* ---- accounts -------------------------------------------------------------------------------- */

/* The clock before a call; 0 where the backend models its costs. */
static uint64_t clock_of(const gml_driver *driver) {
    return driver->ops->cost_ns ? 0 : gml_clock_ns();
}

#define BIT(call) (UINT64_C(1) << (call))

/* The calls that an arena serves without the driver. */
static const uint64_t VIRTUAL = BIT(GML_CALL_CREATE) | BIT(GML_CALL_RELEASE) |
                                BIT(GML_CALL_RESERVE) | BIT(GML_CALL_UNRESERVE) |
                                BIT(GML_CALL_MAP) | BIT(GML_CALL_UNMAP) | BIT(GML_CALL_SET_ACCESS);

/* Counts a call of the device that began at `start_ns` and passes its status on. */
static gml_status account(gml_driver *driver, gml_driver_call call, uint64_t size_bytes,
                          uint64_t start_ns, gml_status status) {
    if (driver->arena_bytes && BIT(call) & VIRTUAL) {
        return status;
    }
    driver->calls[call]++;
    driver->call_ns[call] += driver->ops->cost_ns ? driver->ops->cost_ns(driver, call, size_bytes)
                                                  : gml_clock_ns() - start_ns;
    return status;
}

/* ---- what is held ---------------------------------------------------------------------------- */

/* Device addresses end below this bit, so that they share a map with handles. */
#define ADDRESS_BIT (UINT64_C(1) << 63)

uint64_t gml_driver_left(const gml_driver *driver) {
    uint64_t had_bytes = driver->info.free_bytes + driver->held_when_told;
    uint64_t gone_bytes = driver->held_bytes + driver->margin_bytes;
    return had_bytes > gone_bytes ? had_bytes - gone_bytes : 0;
}

/* In a size that is recorded: the memory is the host's. Sizes are even. */
enum { ON_HOST = 1 };

static uint64_t recorded(const gml_driver *driver, gml_handle handle) {
    return (uint64_t)(uintptr_t)gml_map_find(&driver->sizes, handle);
}

uint64_t gml_driver_size(const gml_driver *driver, gml_handle handle) {
    return recorded(driver, handle) & ~(uint64_t)ON_HOST;
}

bool gml_driver_is_on_host(const gml_driver *driver, gml_handle handle) {
    return recorded(driver, handle) & ON_HOST;
}

/* Whether the device would have the margin left. It is asked each time: others take memory too. */
static gml_status keep_margin(gml_driver *driver, gml_driver_call call, uint64_t size_bytes) {
    uint64_t free_bytes = 0, total_bytes = 0;
    gml_status status = gml_driver_memory_info(driver, &free_bytes, &total_bytes);
    if (status != GML_OK) {
        return status;
    }
    free_bytes += gml_handed_bytes(gml_handed_to(driver->device));
    return free_bytes >= size_bytes && free_bytes - size_bytes >= driver->margin_bytes
               ? GML_OK
               : gml_driver_fail(
                     driver, GML_OUT_OF_MEMORY,
                     "%s: of %s that are free, %s more would leave less than the margin "
                     "of %s",
                     gml_driver_call_name(call), gml_size_of(free_bytes).text,
                     gml_size_of(size_bytes).text, gml_size_of(driver->margin_bytes).text);
}

/* Counts `size_bytes` more as held on the device, or GML_OUT_OF_MEMORY where the limit forbids
 * it. */
static gml_status take(gml_driver *driver, gml_driver_call call, uint64_t size_bytes) {
    gml_driver_note(driver, GML_TRIED_DRIVER);
    return gml_device_take(driver->device, size_bytes)
               ? GML_OK
               : gml_driver_fail(driver, GML_OUT_OF_MEMORY,
                                 "%s: %s more would exceed the limit of %s, of which %s are held",
                                 gml_driver_call_name(call), gml_size_of(size_bytes).text,
                                 gml_size_of(GML_DEVICE_READ(driver->device, limit_bytes)).text,
                                 gml_size_of(GML_DEVICE_READ(driver->device, held_bytes)).text);
}

gml_status gml_driver_take_behind(gml_driver *driver, uint64_t size_bytes, gml_handle *out) {
    gml_status status = take(driver, GML_CALL_CREATE, size_bytes);
    if (status == GML_OK) {
        status = driver->ops->create(driver, size_bytes, out);
        if (status != GML_OK) {
            gml_device_give(driver->device, size_bytes);
        }
    }
    driver->gone->changes += status == GML_OK;
    return status;
}

gml_status gml_driver_give_behind(gml_driver *driver, uint64_t size_bytes, gml_handle handle) {
    gml_status status = driver->ops->release(driver, handle);
    if (status == GML_OK) {
        gml_device_give(driver->device, size_bytes);
        driver->gone->changes++;
    }
    return status;
}

static void give(gml_driver *driver, uint64_t size_bytes) {
    if (!driver->has_own_account) {
        gml_device_give(driver->device, size_bytes);
    }
}

/* Checks that `size_bytes` more may be held, and reserves room in the map, so that nothing can fail
 * once the backend has allocated them. */
static gml_status admit(gml_driver *driver, gml_driver_call call, uint64_t size_bytes) {
    gml_status status = driver->margin_bytes ? keep_margin(driver, call, size_bytes) : GML_OK;
    if (status == GML_OK && gml_map_reserve(&driver->sizes, 1) != GML_OK) {
        status =
            gml_driver_fail(driver, GML_NO_HOST_MEMORY, "%s: no host memory for the record of it",
                            gml_driver_call_name(call));
    }
    return status == GML_OK && !driver->has_own_account ? take(driver, call, size_bytes) : status;
}

/* Records an allocation under `key`, or revokes its admission. pre: admitted. */
static gml_status hold(gml_driver *driver, gml_status status, uint64_t key, uint64_t size_bytes) {
    if (status != GML_OK) {
        give(driver, size_bytes);
        return status;
    }
    (void)gml_map_insert(&driver->sizes, key, (void *)(uintptr_t)size_bytes);
    driver->held_bytes += size_bytes;
    driver->gone->changes++;
    return GML_OK;
}

static void let_go(gml_driver *driver, uint64_t key) {
    uint64_t size_bytes = (uint64_t)(uintptr_t)gml_map_take(&driver->sizes, key);
    driver->gone->changes++;
    if (size_bytes & ON_HOST) {
        driver->host_bytes -= size_bytes - ON_HOST;
        return;
    }
    driver->held_bytes -= size_bytes;
    give(driver, size_bytes);
}

/* Calls that would break a capture or release its memory. */
static const uint64_t FREEZING =
    BIT(GML_CALL_RELEASE) | BIT(GML_CALL_UNMAP) | BIT(GML_CALL_FREE) | BIT(GML_CALL_EVENT_RECORD) |
    BIT(GML_CALL_EVENT_RECORD_ALL) | BIT(GML_CALL_EVENT_QUERY) | BIT(GML_CALL_EVENT_SYNCHRONIZE) |
    BIT(GML_CALL_STREAM_WAIT) | BIT(GML_CALL_STREAM_SYNCHRONIZE) |
    BIT(GML_CALL_DEVICE_SYNCHRONIZE) | BIT(GML_CALL_COPY_OUT) | BIT(GML_CALL_COPY_IN);

/* GML_UNSUPPORTED for one of them during a capture. No graph can use what a call that is undone has
 * just created: kept, it would be of no use until the graphs are gone. */
static inline gml_status check_thawed(gml_driver *driver, gml_driver_call call) {
    bool is_unused = call == GML_CALL_RELEASE && driver->undo_depth;
    if (!gml_driver_is_frozen(driver) || !(FREEZING & BIT(call)) || is_unused) {
        return GML_OK;
    }
    return gml_driver_fail(driver, GML_UNSUPPORTED, "%s: not while a graph is being captured",
                           gml_driver_call_name(call));
}

/* ---- the counted calls ----------------------------------------------------------------------- */

#define COUNTED(upper, lower, parameters, arguments, cost_bytes)                                   \
    gml_status gml_driver_##lower parameters {                                                     \
        gml_driver *driver = self;                                                                 \
        gml_status status = check_thawed(driver, GML_CALL_##upper);                                \
        if (status != GML_OK) {                                                                    \
            return status;                                                                         \
        }                                                                                          \
        uint64_t start_ns = clock_of(driver);                                                      \
        status = driver->ops->lower arguments;                                                     \
        return account(driver, GML_CALL_##upper, cost_bytes, start_ns, status);                    \
    }
#define BY_HAND(upper, lower, parameters, arguments, cost_bytes)
GML_DRIVER_TABLE(COUNTED, BY_HAND)
#undef COUNTED
#undef BY_HAND

gml_status gml_driver_create(gml_driver *driver, uint64_t size_bytes, gml_handle *out) {
    gml_status status = admit(driver, GML_CALL_CREATE, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    uint64_t start_ns = clock_of(driver);
    status = driver->ops->create(driver, size_bytes, out);
    status = hold(driver, status, status == GML_OK ? *out : 0, size_bytes);
    return account(driver, GML_CALL_CREATE, size_bytes, start_ns, status);
}

gml_status gml_driver_create_on_host(gml_driver *driver, uint64_t size_bytes, gml_handle *out) {
    if (gml_map_reserve(&driver->sizes, 1) != GML_OK) {
        return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "create: no host memory for the record");
    }
    uint64_t start_ns = clock_of(driver);
    gml_status status = gml_driver_take_host(driver, size_bytes, out);
    if (status == GML_OK) {
        (void)gml_map_insert(&driver->sizes, *out, (void *)(uintptr_t)(size_bytes | ON_HOST));
        driver->host_bytes += size_bytes;
        driver->gone->changes++;
    }
    return account(driver, GML_CALL_CREATE, size_bytes, start_ns, status);
}

/* A chunk that is about to be released, as a file: another process gets it. */
static gml_shared_piece export_outgoing(gml_driver *driver, gml_handle handle) {
    gml_shared_piece piece = {-1, gml_driver_size(driver, handle)};
    if (driver->outgoing && !gml_driver_is_on_host(driver, handle) &&
        piece.size_bytes >= GML_HANDED_LEAST_BYTES && gml_kept_files_room() > 0) {
        gml_driver_begin_undo(driver); /* what cannot be exported is released alone */
        if (gml_driver_export_file(driver, handle, false, &piece.file) != GML_OK) {
            piece.file = -1;
        }
        gml_driver_end_undo(driver);
    }
    return piece;
}

gml_status gml_driver_release(gml_driver *driver, gml_handle handle) {
    gml_status status = check_thawed(driver, GML_CALL_RELEASE);
    if (status != GML_OK) {
        return status;
    }
    uint64_t start_ns = clock_of(driver);
    gml_shared_piece piece = export_outgoing(driver, handle);
    status = driver->ops->release(driver, handle);
    if (status == GML_OK) {
        let_go(driver, handle);
    }
    if (piece.file >= 0 && status == GML_OK) {
        gml_handed_add(driver->outgoing, piece);
    } else if (piece.file >= 0) {
        (void)close(piece.file);
    }
    return account(driver, GML_CALL_RELEASE, 0, start_ns, status);
}

gml_status gml_driver_malloc(gml_driver *driver, uint64_t size_bytes, gml_address *out) {
    gml_status status = admit(driver, GML_CALL_MALLOC, size_bytes);
    if (status != GML_OK) {
        return status;
    }
    uint64_t start_ns = clock_of(driver);
    status = driver->ops->malloc(driver, size_bytes, out);
    status = hold(driver, status, status == GML_OK ? *out | ADDRESS_BIT : 0, size_bytes);
    return account(driver, GML_CALL_MALLOC, size_bytes, start_ns, status);
}

gml_status gml_driver_free(gml_driver *driver, gml_address address) {
    gml_status status = check_thawed(driver, GML_CALL_FREE);
    if (status != GML_OK) {
        return status;
    }
    uint64_t start_ns = clock_of(driver);
    status = driver->ops->free(driver, address);
    if (status == GML_OK) {
        gml_gone_add(driver->gone, address, gml_driver_size(driver, address | ADDRESS_BIT));
        let_go(driver, address | ADDRESS_BIT);
    }
    return account(driver, GML_CALL_FREE, 0, start_ns, status);
}

gml_status gml_driver_unmap(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    gml_status status = check_thawed(driver, GML_CALL_UNMAP);
    if (status != GML_OK) {
        return status;
    }
    uint64_t start_ns = clock_of(driver);
    status = driver->ops->unmap(driver, address, size_bytes);
    if (status == GML_OK) {
        gml_gone_add(driver->gone, address, size_bytes);
    }
    return account(driver, GML_CALL_UNMAP, size_bytes, start_ns, status);
}

gml_status gml_driver_memory_info(gml_driver *driver, uint64_t *free_bytes, uint64_t *total_bytes) {
    uint64_t start_ns = clock_of(driver);
    gml_status status = driver->ops->memory_info(driver, free_bytes, total_bytes);
    if (status == GML_OK) {
        driver->info.free_bytes = *free_bytes;
        driver->held_when_told = driver->held_bytes;
    }
    return account(driver, GML_CALL_MEMORY_INFO, 0, start_ns, status);
}

/* ---- what not every backend has -------------------------------------------------------------- */

#define OPTION(lower, parameters, arguments, absent)                                               \
    gml_status gml_driver_##lower parameters {                                                     \
        gml_driver *driver = self;                                                                 \
        return driver->ops->lower ? driver->ops->lower arguments                                   \
                                  : gml_driver_fail(driver, GML_UNSUPPORTED,                       \
                                                    "driver '%s' " absent, driver->ops->name);     \
    }
GML_DRIVER_OPTIONAL(OPTION)
#undef OPTION
