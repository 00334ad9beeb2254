/* The driver table: everything gmlake asks of a device, and the only door to it.
 *
 * A backend fills a gml_driver_ops and embeds gml_driver as its first member. Callers use the
 * gml_driver_*() functions below, never the table: they count each call, account its time and keep
 * the reason of a failure.
 *
 * Contract of every entry: it returns GML_OK or leaves the world as it was before the call; it
 * writes *out only on GML_OK; on failure it has put one line into driver->reason with
 * gml_driver_fail(). The rules that `sim` and `host` enforce, and that the core may rely on, are in
 * docs/driver.md.
 *
 * A driver belongs to one lake. Its calls are made under the lake's lock, which also guards the
 * counters here; backends whose streams are advanced by a test from outside keep a lock of their
 * own.
 */
#ifndef GML_DRIVER_DRIVER_H
#define GML_DRIVER_DRIVER_H

#include "base/map.h"
#include "driver/device.h"
#include "driver/gone.h"
#include "gmlake.h"
#include "gmlake_share.h"

#include <stdarg.h>

typedef uint64_t gml_handle; /* physical memory; 0: none */
typedef uint64_t gml_event;  /* a point in a stream; 0: none */

typedef struct gml_streams gml_streams; /* streams.h */

/* The calls of the table, one line for each of GML_DRIVER_CALLS: PLAIN, or HOLDS for those that
 * change the memory held, or where it lies. Each line has the parameters, the arguments to pass on
 * to `driver`, and the bytes that the cost depends on. All code that treats calls alike is
 * generated from this list.
 *
 * create, release: physical memory, in multiples of driver->info.granularity_bytes.
 *
 * reserve, unreserve: address space. `alignment_bytes` is a power of two or 0 for the granularity.
 * unreserve takes exactly one earlier reservation, with nothing mapped in it.
 *
 * map: a whole handle at `address`, inside one reservation, where nothing is mapped. The range
 * cannot be touched before set_access. One handle may be mapped at several addresses. unmap takes a
 * range of whole mappings.
 *
 * malloc, free: plain device memory, as cudaMalloc gives it.
 *
 * event_record_all: the event covers all that was queued by now on any stream of the device, those
 * included that gmlake has never seen. GML_UNSUPPORTED where the device has no such call, as before
 * CUDA 12.5; GML_MISUSE while a stream captures, as far as that is known: a capture that was begun
 * behind PyTorch's back is broken by it.
 *
 * event_query answers GML_NOT_READY while work before the event runs.
 *
 * host_malloc, host_free: page-locked host memory, copied at full speed; freed by its requested
 * size.
 * copy_out, copy_in: queued on the stream; both ends stay valid until it is done. A device without
 * bytes copies none. */
/* clang-format off */
#define GML_DRIVER_TABLE(PLAIN, HOLDS)                                                             \
    HOLDS(CREATE, create, (gml_driver *self, uint64_t size_bytes, gml_handle *out),                \
          (driver, size_bytes, out), size_bytes)                                                   \
    HOLDS(RELEASE, release, (gml_driver *self, gml_handle handle), (driver, handle), 0)            \
    PLAIN(RESERVE, reserve,                                                                        \
          (gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes, gml_address *out),     \
          (driver, size_bytes, alignment_bytes, out), size_bytes)                                  \
    PLAIN(UNRESERVE, unreserve, (gml_driver *self, gml_address address, uint64_t size_bytes),      \
          (driver, address, size_bytes), size_bytes)                                               \
    PLAIN(MAP, map,                                                                                \
          (gml_driver *self, gml_address address, uint64_t size_bytes, gml_handle handle),         \
          (driver, address, size_bytes, handle), size_bytes)                                       \
    HOLDS(UNMAP, unmap, (gml_driver *self, gml_address address, uint64_t size_bytes),              \
          (driver, address, size_bytes), size_bytes)                                               \
    PLAIN(SET_ACCESS, set_access, (gml_driver *self, gml_address address, uint64_t size_bytes),    \
          (driver, address, size_bytes), size_bytes)                                               \
    HOLDS(MALLOC, malloc, (gml_driver *self, uint64_t size_bytes, gml_address *out),               \
          (driver, size_bytes, out), size_bytes)                                                   \
    HOLDS(FREE, free, (gml_driver *self, gml_address address), (driver, address), 0)               \
    HOLDS(MEMORY_INFO, memory_info,                                                                \
          (gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes),                         \
          (driver, free_bytes, total_bytes), 0)                                                    \
    GML_DRIVER_STREAM_TABLE(PLAIN, gml_driver)                                                     \
    PLAIN(HOST_MALLOC, host_malloc, (gml_driver *self, uint64_t size_bytes, void **out),           \
          (driver, size_bytes, out), size_bytes)                                                   \
    PLAIN(HOST_FREE, host_free, (gml_driver *self, void *memory, uint64_t size_bytes),             \
          (driver, memory, size_bytes), 0)                                                         \
    PLAIN(COPY_OUT, copy_out,                                                                      \
          (gml_driver *self, void *to, gml_address from, uint64_t size_bytes, gml_stream stream),  \
          (driver, to, from, size_bytes, stream), size_bytes)                                      \
    PLAIN(COPY_IN, copy_in,                                                                        \
          (gml_driver *self, gml_address to, const void *from, uint64_t size_bytes,                \
           gml_stream stream),                                                                     \
          (driver, to, from, size_bytes, stream), size_bytes)

/* The part of it about streams, of which `self` points to an OBJECT. */
#define GML_DRIVER_STREAM_TABLE(X, OBJECT)                                                         \
    X(EVENT_CREATE, event_create, (OBJECT * self, gml_event *out), (driver, out), 0)               \
    X(EVENT_DESTROY, event_destroy, (OBJECT * self, gml_event event), (driver, event), 0)          \
    X(EVENT_RECORD, event_record, (OBJECT * self, gml_event event, gml_stream stream),             \
      (driver, event, stream), 0)                                                                  \
    X(EVENT_RECORD_ALL, event_record_all, (OBJECT * self, gml_event event), (driver, event), 0)    \
    X(EVENT_QUERY, event_query, (OBJECT * self, gml_event event), (driver, event), 0)              \
    X(EVENT_SYNCHRONIZE, event_synchronize, (OBJECT * self, gml_event event), (driver, event), 0)  \
    X(STREAM_WAIT, stream_wait, (OBJECT * self, gml_stream stream, gml_event event),               \
      (driver, stream, event), 0)                                                                  \
    X(STREAM_SYNCHRONIZE, stream_synchronize, (OBJECT * self, gml_stream stream),                  \
      (driver, stream), 0)                                                                         \
    X(STREAM_CAPTURING, stream_capturing, (OBJECT * self, gml_stream stream, bool *out),           \
      (driver, stream, out), 0)                                                                    \
    X(DEVICE_SYNCHRONIZE, device_synchronize, (OBJECT * self), (driver), 0)

/* What not every backend has, and what is said of one without it. Not counted.
 *
 * bytes: a host pointer to device memory that is mapped and accessible over the whole range.
 *
 * expect_malloc: makes the next malloc of `size_bytes` return `address`.
 *
 * grant: gives another device access to all memory accessible now or later; GML_OK if that device
 * cannot reach this one.
 *
 * record_elsewhere: records an event of its own on a stream of another device; it is queried,
 * waited for and destroyed as any other.
 *
 * share: physical memory created from now on can be exported as the given kind of handle, a
 * CUmemAllocationHandleType.
 *
 * export_file: a file descriptor by which another process maps a handle. is_kept: the same each
 * time, closed by the driver when the handle is released; else a new one, owned by the caller.
 *
 * behind_malloc: the handle behind a malloc, if that is mapped memory.
 *
 * take_host: as create, of page-locked memory of the host, which the device reaches over its link;
 * map, set_access, unmap and release take it like any other. Called by gml_driver_create_on_host().
 *
 * open_files: maps memory that another process exported, side by side. The caller keeps the files
 * and that process the memory: it does not count as held here. close_files ends that mapping after
 * the device has finished all its work. After a failure it remains. */
#define GML_DRIVER_OPTIONAL(X)                                                                     \
    X(bytes, (gml_driver *self, gml_address address, uint64_t size_bytes, void **out),             \
      (driver, address, size_bytes, out), "has no bytes on the host; open the driver 'host'")      \
    X(expect_malloc, (gml_driver *self, gml_address address, uint64_t size_bytes),                 \
      (driver, address, size_bytes), "cannot choose addresses; open the driver 'sim'")             \
    X(grant, (gml_driver *self, int peer), (driver, peer), "knows no other devices")               \
    X(record_elsewhere,                                                                            \
      (gml_driver *self, int device, gml_stream stream, gml_event *out),                           \
      (driver, device, stream, out), "has no other device")                                        \
    X(share, (gml_driver *self, unsigned handle_type), (driver, handle_type),                      \
      "cannot export memory")                                                                      \
    X(export_file, (gml_driver *self, gml_handle handle, bool is_kept, int *out),                  \
      (driver, handle, is_kept, out), "cannot export memory")                                      \
    X(behind_malloc, (gml_driver *self, gml_address address, gml_handle *out),                     \
      (driver, address, out), "has no handle for what it allocates")                               \
    X(take_host, (gml_driver *self, uint64_t size_bytes, gml_handle *out),                         \
      (driver, size_bytes, out), "cannot map memory of the host")                                  \
    X(open_files,                                                                                  \
      (gml_driver *self, const gml_shared_piece *pieces, size_t count, gml_address *out),          \
      (driver, pieces, count, out), "cannot export memory")                                        \
    X(close_files, (gml_driver *self, gml_address address, uint64_t size_bytes),                   \
      (driver, address, size_bytes), "cannot export memory")
/* clang-format on */

typedef struct gml_driver_ops {
    const char *name;

    void (*destroy)(gml_driver *self); /* frees the driver object; everything it lent is gone */

#define GML_DRIVER_ENTRY(upper, lower, parameters, arguments, cost_bytes)                          \
    gml_status(*lower) parameters;
    GML_DRIVER_TABLE(GML_DRIVER_ENTRY, GML_DRIVER_ENTRY)
#undef GML_DRIVER_ENTRY

    /* NULL where a backend has no such thing, those of the second list included. */

#define GML_DRIVER_OPTION(lower, parameters, arguments, absent) gml_status(*lower) parameters;
    GML_DRIVER_OPTIONAL(GML_DRIVER_OPTION)
#undef GML_DRIVER_OPTION

    /* The modelled cost of the call on a device; NULL: calls are timed. */
    uint64_t (*cost_ns)(const gml_driver *self, gml_driver_call call, uint64_t size_bytes);
    /* The memory that create() has without taking it from the device; NULL: none. */
    uint64_t (*spare_bytes)(const gml_driver *self);
    /* The handle by which the lake's driver knows the memory behind a handle; NULL: the same. */
    gml_handle (*handle_below)(gml_driver *self, gml_handle handle);
    /* Whether to tell of the memory behind a handle here: of several drivers that map it, one does.
     * NULL: always. */
    bool (*stands_for)(gml_driver *self, gml_handle handle);
} gml_driver_ops;

enum { GML_REASON_BYTES = 480 };

struct gml_driver {
    const gml_driver_ops *ops;
    gml_device_info info;         /* fixed after opening, except free_bytes */
    gml_stream per_thread_stream; /* the handle that is another stream in every thread; 0: none */
    gml_streams *streams; /* the queues behind a backend without a device; NULL: there is one */
    uint64_t calls[GML_CALL_COUNT];   /* made, failed ones included */
    uint64_t call_ns[GML_CALL_COUNT]; /* their times together, modelled or measured */
    gml_map sizes;                    /* of memory held: handle or address of malloc -> bytes */
    uint64_t held_bytes;              /* created or malloc'ed and not freed */
    uint64_t host_bytes;              /* created on the host: not of the device's */
    uint64_t held_when_told;          /* held_bytes when info.free_bytes was asked last */
    uint64_t margin_bytes;            /* create and malloc leave this much of the device free */
    struct gml_handed *outgoing; /* where release() puts large chunks, as files; NULL: nowhere */
    /* Ends what is mapped elsewhere of the chunks at these addresses, and no more in use; see
     * gml_driver_end_aliases(). NULL: nothing is. */
    gml_status (*end_aliases)(void *context, gml_address address, uint64_t size_bytes);
    void *alias_context;
    gml_device *device; /* state shared with other lakes */
    gml_device own;     /* without shared state `device` points here, or to a wrapped driver's */
    gml_gone *gone;     /* `own_gone`, or that of a wrapped driver */
    gml_gone own_gone;
    bool may_take_host; /* the request being served may take memory of the host */
    bool can_sleep;     /* the calls for a chunk come again, see remap.h */
    bool
        has_own_account; /* tells the device itself of the memory it holds, see remap.h, common.h */
    gml_address arena;   /* start of all created memory, see arena.h, */
    uint64_t arena_bytes;          /* and its size; 0: anywhere */
    char reason[GML_REASON_BYTES]; /* of the last failure that was not one of undoing */
    unsigned undo_depth;           /* see gml_driver_begin_undo() */
    uint64_t tried;                /* for the request being served, as bits by gml_tried */
};

static inline void gml_driver_note(gml_driver *driver, gml_tried step) {
    driver->tried |= UINT64_C(1) << step;
}

/* Opens a backend by name. `capacity_bytes` bounds `sim` and `host` (0: 80 GiB for `sim`, 1 GiB for
 * `host`) and is ignored by `cuda`. `reason` receives one line on failure. */
gml_status gml_driver_open(const char *name, int device, uint64_t capacity_bytes, gml_driver **out,
                           char *reason, size_t reason_bytes);

/* NULL is allowed. */
void gml_driver_close(gml_driver *driver);

/* Keeps a printf-style reason, in which the one before may be quoted, and returns `status`. */
gml_status gml_driver_fail(gml_driver *driver, gml_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
gml_status gml_driver_vfail(gml_driver *driver, gml_status status, const char *format,
                            va_list arguments) __attribute__((format(printf, 3, 0)));

/* Keeps the reason that another driver has. */
void gml_driver_take_reason(gml_driver *driver, const gml_driver *from);

/* Between these two, failures leave driver->reason unchanged: undoing a failed call may fail too,
 * but callers need the first reason. They nest. */
static inline void gml_driver_begin_undo(gml_driver *driver) {
    driver->undo_depth++;
}

static inline void gml_driver_end_undo(gml_driver *driver) {
    driver->undo_depth--;
}

/* Whether a graph is being captured on the device. */
static inline bool gml_driver_is_frozen(const gml_driver *driver) {
    return gml_device_is_frozen(driver->device);
}

/* create and release of the driver behind what can sleep: not counted as calls, but as held on the
 * device while it is awake. */
gml_status gml_driver_take_behind(gml_driver *driver, uint64_t size_bytes, gml_handle *out);
gml_status gml_driver_give_behind(gml_driver *driver, uint64_t size_bytes, gml_handle handle);

/* Estimate of the device memory left above the margin: the last reported value, less what was taken
 * since. */
uint64_t gml_driver_left(const gml_driver *driver);

/* The size of physical memory that is held; 0 for another number. */
uint64_t gml_driver_size(const gml_driver *driver, gml_handle handle);

/* create(), of memory of the host, see take_host: counted as a call, not as held on the device. */
gml_status gml_driver_create_on_host(gml_driver *driver, uint64_t size_bytes, gml_handle *out);

/* Whether physical memory that is held is the host's. */
bool gml_driver_is_on_host(const gml_driver *driver, gml_handle handle);

/* The counted calls: one function per table entry, with the contract above. */
#define GML_DRIVER_COUNTED(upper, lower, parameters, arguments, cost_bytes)                        \
    gml_status gml_driver_##lower parameters;
GML_DRIVER_TABLE(GML_DRIVER_COUNTED, GML_DRIVER_COUNTED)
#undef GML_DRIVER_COUNTED

/* The optional ones: GML_UNSUPPORTED where the backend has no such thing. */
#define GML_DRIVER_OPTION(lower, parameters, arguments, absent)                                    \
    gml_status gml_driver_##lower parameters;
GML_DRIVER_OPTIONAL(GML_DRIVER_OPTION)
#undef GML_DRIVER_OPTION

/* The time of all calls together. */
static inline uint64_t gml_driver_time_ns(const gml_driver *driver) {
    uint64_t sum_ns = 0;
    for (int call = 0; call < GML_CALL_COUNT; call++) {
        sum_ns += driver->call_ns[call];
    }
    return sum_ns;
}

/* Before whoever holds the chunks at [address, address + size_bytes) lets them go: who mapped them
 * at other addresses too, and kept that when it freed them, ends it, since memory lives as long as
 * any mapping of it. pre: no work uses the chunks. After a failure they must stay. */
static inline gml_status gml_driver_end_aliases(gml_driver *driver, gml_address address,
                                                uint64_t size_bytes) {
    return driver->end_aliases ? driver->end_aliases(driver->alias_context, address, size_bytes)
                               : GML_OK;
}

/* See spare_bytes(). */
static inline uint64_t gml_driver_spare(const gml_driver *driver) {
    return driver->ops->spare_bytes ? driver->ops->spare_bytes(driver) : 0;
}

/* See handle_below(). */
static inline gml_handle gml_driver_handle_below(gml_driver *driver, gml_handle handle) {
    return driver->ops->handle_below ? driver->ops->handle_below(driver, handle) : handle;
}

/* See stands_for(). */
static inline bool gml_driver_stands_for(gml_driver *driver, gml_handle handle) {
    return !driver->ops->stands_for || driver->ops->stands_for(driver, handle);
}

/* The total size of the pieces. */
static inline uint64_t gml_shared_bytes(const gml_shared_piece *pieces, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += pieces[i].size_bytes;
    }
    return sum;
}

#endif
