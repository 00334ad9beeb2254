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
#include "base/seam.h"
#include "driver/device.h"
#include "gmlake.h"
#include "gmlake_share.h"

#include <stdarg.h>

typedef uint64_t gml_handle; /* physical memory; 0 is none */
typedef uint64_t gml_event;  /* a point in a stream; 0 is none */

typedef struct gml_streams gml_streams; /* streams.h */

/* The calls of the table, one line for each of GML_DRIVER_CALLS: PLAIN, or HOLDS for those that
 * change what is held. With a call go what it takes, what is handed on where `driver` is the one
 * that is asked, and the bytes that its cost depends on. Everything that treats all calls alike is
 * made from this list.
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
 * event_query answers GML_NOT_READY while work before the event runs.
 *
 * host_malloc, host_free: memory of the host that a device copies to and from at its full speed; it
 * goes back by the size that was asked for.
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
    PLAIN(UNMAP, unmap, (gml_driver *self, gml_address address, uint64_t size_bytes),              \
          (driver, address, size_bytes), size_bytes)                                               \
    PLAIN(SET_ACCESS, set_access, (gml_driver *self, gml_address address, uint64_t size_bytes),    \
          (driver, address, size_bytes), size_bytes)                                               \
    HOLDS(MALLOC, malloc, (gml_driver *self, uint64_t size_bytes, gml_address *out),               \
          (driver, size_bytes, out), size_bytes)                                                   \
    HOLDS(FREE, free, (gml_driver *self, gml_address address), (driver, address), 0)               \
    HOLDS(MEMORY_INFO, memory_info,                                                                \
          (gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes),                         \
          (driver, free_bytes, total_bytes), 0)                                                    \
    PLAIN(EVENT_CREATE, event_create, (gml_driver *self, gml_event *out), (driver, out), 0)        \
    PLAIN(EVENT_DESTROY, event_destroy, (gml_driver *self, gml_event event), (driver, event), 0)   \
    PLAIN(EVENT_RECORD, event_record, (gml_driver *self, gml_event event, gml_stream stream),      \
          (driver, event, stream), 0)                                                              \
    PLAIN(EVENT_QUERY, event_query, (gml_driver *self, gml_event event), (driver, event), 0)       \
    PLAIN(EVENT_SYNCHRONIZE, event_synchronize, (gml_driver *self, gml_event event),               \
          (driver, event), 0)                                                                      \
    PLAIN(STREAM_WAIT, stream_wait, (gml_driver *self, gml_stream stream, gml_event event),        \
          (driver, stream, event), 0)                                                              \
    PLAIN(STREAM_SYNCHRONIZE, stream_synchronize, (gml_driver *self, gml_stream stream),           \
          (driver, stream), 0)                                                                     \
    PLAIN(STREAM_CAPTURING, stream_capturing, (gml_driver *self, gml_stream stream, bool *out),    \
          (driver, stream, out), 0)                                                                \
    PLAIN(DEVICE_SYNCHRONIZE, device_synchronize, (gml_driver *self), (driver), 0)                 \
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
/* clang-format on */

typedef struct gml_driver_ops {
    const char *name;

    void (*destroy)(gml_driver *self); /* frees the driver object; everything it lent is gone */

#define GML_DRIVER_ENTRY(upper, lower, parameters, arguments, cost_bytes)                          \
    gml_status(*lower) parameters;
    GML_DRIVER_TABLE(GML_DRIVER_ENTRY, GML_DRIVER_ENTRY)
#undef GML_DRIVER_ENTRY

    /* Optional, not counted; NULL where a backend has no such thing. */

    /* A host pointer to device memory that is mapped and accessible over the whole range. */
    gml_status (*bytes)(gml_driver *self, gml_address address, uint64_t size_bytes, void **out);
    /* The next malloc of `size_bytes` shall return `address`. */
    gml_status (*expect_malloc)(gml_driver *self, gml_address address, uint64_t size_bytes);
    /* What the call would cost on a device; NULL: the time of the call is measured. */
    uint64_t (*cost_ns)(const gml_driver *self, gml_driver_call call, uint64_t size_bytes);
    /* Opens everything that is accessible now, and what will be, to another device; GML_OK where
     * that device cannot reach this one. */
    gml_status (*grant)(gml_driver *self, int peer);
    /* Physical memory created from now on can be exported as the given kind of handle, a
     * CUmemAllocationHandleType. */
    gml_status (*share)(gml_driver *self, unsigned handle_type);
    /* What another process maps a handle by: a file descriptor. is_kept: the same each time, which
     * the driver closes when the handle is released; else a new one, the caller's. */
    gml_status (*export_file)(gml_driver *self, gml_handle handle, bool is_kept, int *out);
    /* The handle behind what malloc gave, where that is mapped memory. */
    gml_status (*behind_malloc)(gml_driver *self, gml_address address, gml_handle *out);
    /* Maps what another process exported, side by side. The files stay the caller's, and the memory
     * that process's: it counts as held by nobody here. */
    gml_status (*open_files)(gml_driver *self, const gml_shared_piece *pieces, size_t count,
                             gml_address *out);
    /* Ends that mapping, when the device has done all its work. After a failure it is there. */
    gml_status (*close_files)(gml_driver *self, gml_address address, uint64_t size_bytes);
    /* The queues behind the streams of a backend without a device. */
    gml_streams *(*streams)(gml_driver *self);
} gml_driver_ops;

enum { GML_REASON_BYTES = 240 };

struct gml_driver {
    const gml_driver_ops *ops;
    gml_device_info info;           /* fixed after opening, but for free_bytes */
    gml_stream per_thread_stream;   /* the handle that is another stream in every thread; 0: none */
    uint64_t calls[GML_CALL_COUNT]; /* made, failed ones included */
    uint64_t time_ns;               /* sum of modelled or measured costs */
    gml_map sizes;                  /* of what is held: handle or address of malloc -> bytes */
    uint64_t held_bytes;            /* created or malloc'ed and not given back */
    uint64_t given_count;           /* pieces that were created or malloc'ed so far */
    uint64_t held_when_told;        /* held_bytes when info.free_bytes was asked last */
    uint64_t margin_bytes;          /* create and malloc leave so much of the device to others */
    gml_device *device;             /* what this driver's lake has in common with others */
    gml_device own;       /* where it has none: `device` points here, or to a wrapped one's */
    bool can_sleep;       /* the calls for a chunk come again, see remap.h */
    gml_address arena;    /* where all memory lies that is created, see arena.h, */
    uint64_t arena_bytes; /* and what there is of it; 0: anywhere */
    char reason[GML_REASON_BYTES]; /* of the last failure that was not one of undoing */
    unsigned undo_depth;           /* see gml_driver_begin_undo() */
};

/* Opens a backend by name. `capacity_bytes` bounds `sim` and `host` (0: 80 GiB for `sim`, 1 GiB for
 * `host`) and is ignored by `cuda`. `reason` receives one line on failure. */
gml_status gml_driver_open(const char *name, int device, uint64_t capacity_bytes, gml_driver **out,
                           char *reason, size_t reason_bytes);

/* NULL is allowed. */
void gml_driver_close(gml_driver *driver);

/* Keeps a printf-style reason, in which the one before may be quoted, and returns `status`. */
GML_SEAM gml_status gml_driver_fail(gml_driver *driver, gml_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
gml_status gml_driver_vfail(gml_driver *driver, gml_status status, const char *format,
                            va_list arguments) __attribute__((format(printf, 3, 0)));

/* Keeps the reason that another driver has. */
void gml_driver_take_reason(gml_driver *driver, const gml_driver *from);

/* Between these two, failures leave driver->reason as it is: undoing what has failed may fail too,
 * and callers ask why the first call failed. They nest. */
static inline void
gml_driver_begin_undo(gml_driver *driver)
{
    driver->undo_depth++;
}

static inline void
gml_driver_end_undo(gml_driver *driver)
{
    driver->undo_depth--;
}

/* Whether a graph is being captured on the device. */
static inline bool
gml_driver_is_frozen(const gml_driver *driver)
{
    return gml_device_is_frozen(driver->device);
}

/* create and release of the driver behind what can sleep: not counted as calls, but as held on the
 * device while it is awake. */
gml_status gml_driver_take_behind(gml_driver *driver, uint64_t size_bytes, gml_handle *out);
gml_status gml_driver_give_behind(gml_driver *driver, uint64_t size_bytes, gml_handle handle);

/* What the device may have left above the margin: what it said last, less what was taken since. */
uint64_t gml_driver_left(const gml_driver *driver);

/* The size of physical memory that is held; 0 for another number. */
uint64_t gml_driver_size(const gml_driver *driver, gml_handle handle);

/* The counted calls: one function per table entry, with the contract above. */
#define GML_DRIVER_COUNTED(upper, lower, parameters, arguments, cost_bytes)                        \
    gml_status gml_driver_##lower parameters;
GML_DRIVER_TABLE(GML_DRIVER_COUNTED, GML_DRIVER_COUNTED)
#undef GML_DRIVER_COUNTED

/* GML_UNSUPPORTED where the backend has no such thing. Not counted. */
gml_status gml_driver_bytes(gml_driver *driver, gml_address address, uint64_t size_bytes,
                            void **out);
gml_status gml_driver_expect_malloc(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_driver_grant(gml_driver *driver, int peer);
gml_status gml_driver_share(gml_driver *driver, unsigned handle_type);
gml_status gml_driver_export_file(gml_driver *driver, gml_handle handle, bool is_kept, int *out);
gml_status gml_driver_behind_malloc(gml_driver *driver, gml_address address, gml_handle *out);
gml_status gml_driver_open_files(gml_driver *driver, const gml_shared_piece *pieces, size_t count,
                                 gml_address *out);
gml_status gml_driver_close_files(gml_driver *driver, gml_address address, uint64_t size_bytes);

/* What the pieces are, side by side. */
static inline uint64_t
gml_shared_bytes(const gml_shared_piece *pieces, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += pieces[i].size_bytes;
    }
    return sum;
}

#endif
