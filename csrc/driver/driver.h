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
#include "gmlake.h"

typedef uint64_t gml_handle; /* physical memory; 0 is none */
typedef uint64_t gml_event;  /* a point in a stream; 0 is none */

typedef struct gml_driver gml_driver;
typedef struct gml_streams gml_streams; /* streams.h */

typedef struct gml_driver_ops {
    const char *name;

    void (*destroy)(gml_driver *self); /* frees the driver object; everything it lent is gone */

    /* Physical memory. Sizes are multiples of driver->info.granularity_bytes. */
    gml_status (*create)(gml_driver *self, uint64_t size_bytes, gml_handle *out);
    gml_status (*release)(gml_driver *self, gml_handle handle);

    /* Address space. `alignment_bytes` is a power of two or 0 for the granularity. unreserve takes
     * exactly one earlier reservation, with nothing mapped in it. */
    gml_status (*reserve)(gml_driver *self, uint64_t size_bytes, uint64_t alignment_bytes,
                          gml_address *out);
    gml_status (*unreserve)(gml_driver *self, gml_address address, uint64_t size_bytes);

    /* Maps a whole handle at `address`, inside one reservation, where nothing is mapped. The range
     * cannot be touched before set_access. One handle may be mapped at several addresses. unmap
     * takes a range of whole mappings. */
    gml_status (*map)(gml_driver *self, gml_address address, uint64_t size_bytes,
                      gml_handle handle);
    gml_status (*unmap)(gml_driver *self, gml_address address, uint64_t size_bytes);
    gml_status (*set_access)(gml_driver *self, gml_address address, uint64_t size_bytes);

    /* Plain device memory, as cudaMalloc gives it. */
    gml_status (*malloc)(gml_driver *self, uint64_t size_bytes, gml_address *out);
    gml_status (*free)(gml_driver *self, gml_address address);

    gml_status (*memory_info)(gml_driver *self, uint64_t *free_bytes, uint64_t *total_bytes);

    /* Streams and events. event_query answers GML_NOT_READY while work before the event runs. */
    gml_status (*event_create)(gml_driver *self, gml_event *out);
    gml_status (*event_destroy)(gml_driver *self, gml_event event);
    gml_status (*event_record)(gml_driver *self, gml_event event, gml_stream stream);
    gml_status (*event_query)(gml_driver *self, gml_event event);
    gml_status (*event_synchronize)(gml_driver *self, gml_event event);
    gml_status (*stream_wait)(gml_driver *self, gml_stream stream, gml_event event);
    gml_status (*stream_synchronize)(gml_driver *self, gml_stream stream);
    gml_status (*stream_capturing)(gml_driver *self, gml_stream stream, bool *out);
    gml_status (*device_synchronize)(gml_driver *self);

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
    /* Work of `stream` may touch the range from here on; GML_CORRUPT where earlier uses of the same
     * physical memory are not ordered before it. NULL, as the four below: nobody checks (race.h).
     */
    gml_status (*begin_use)(gml_driver *self, gml_address address, uint64_t size_bytes,
                            gml_stream stream);
    /* Work of `stream` may touch the range, too, whose use began at `address`. */
    gml_status (*join_use)(gml_driver *self, gml_address address, gml_stream stream);
    /* Work queued by now on the streams of the use that began at `address` was the last of it. */
    void (*end_use)(gml_driver *self, gml_address address);
    /* The program says: what is queued on `later` from now on comes after all that is on `earlier`
     * by now. */
    void (*order)(gml_driver *self, gml_stream later, gml_stream earlier);
    /* The program says: no more work comes to `stream`. Who waits for, or uses memory under the
     * same handle after this is another stream. */
    void (*forget)(gml_driver *self, gml_stream stream);
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
    uint64_t limit_bytes;           /* create and malloc refuse to hold more; 0: no limit */

    /* A graph is being captured: calls that a capture would not survive (events, waiting) and those
     * that would take memory from under it (release, unmap, free) are refused with
     * GML_UNSUPPORTED before the backend sees them. */
    bool is_frozen;
    char reason[GML_REASON_BYTES]; /* of the last failure */
};

/* Opens a backend by name. `capacity_bytes` bounds `sim` and `host` (0: 80 GiB for `sim`, 1 GiB for
 * `host`) and is ignored by `cuda`. `reason` receives one line on failure. */
gml_status gml_driver_open(const char *name, int device, uint64_t capacity_bytes, gml_driver **out,
                           char *reason, size_t reason_bytes);

/* Wraps `inner`, which it then owns; on failure `inner` stays the caller's. Fails the call number
 * `nth` (from 1, 0: none), and every call with a probability of `per_million`, drawn from `seed`.
 * create, malloc and map fail with GML_OUT_OF_MEMORY, the others with GML_DRIVER_FAILED, before
 * `inner` sees the call. event_query may also be failed. memory_info, destroy and the optional
 * entries never fail, and are not counted. */
gml_status gml_fault_driver_open(gml_driver *inner, uint64_t nth, uint64_t per_million,
                                 uint64_t seed, gml_driver **out);

/* From now on the calls of that wrapper whose bit (1 << gml_driver_call) is set answer GML_OK and
 * are not made, to see what comes of a missing ordering. GML_INVALID_ARGUMENT, and nothing changes,
 * for others than event_record, event_query, stream_wait and those that synchronise.
 * pre: `driver` is of gml_fault_driver_open(). */
gml_status gml_fault_driver_skip(gml_driver *driver, uint64_t calls);

/* NULL is allowed. */
void gml_driver_close(gml_driver *driver);

/* Keeps a printf-style reason and returns `status`. */
gml_status gml_driver_fail(gml_driver *driver, gml_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* How many bytes more may be held by the limit; UINT64_MAX without one. */
uint64_t gml_driver_room(const gml_driver *driver);

/* What the device may have left: what it said last, less what was taken since. */
uint64_t gml_driver_left(const gml_driver *driver);

/* The size of physical memory that is held; 0 for another number. */
uint64_t gml_driver_size(const gml_driver *driver, gml_handle handle);

/* The counted calls: one function per table entry, with the contract above. */
gml_status gml_driver_create(gml_driver *driver, uint64_t size_bytes, gml_handle *out);
gml_status gml_driver_release(gml_driver *driver, gml_handle handle);
gml_status gml_driver_reserve(gml_driver *driver, uint64_t size_bytes, uint64_t alignment_bytes,
                              gml_address *out);
gml_status gml_driver_unreserve(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_driver_map(gml_driver *driver, gml_address address, uint64_t size_bytes,
                          gml_handle handle);
gml_status gml_driver_unmap(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_driver_set_access(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_driver_malloc(gml_driver *driver, uint64_t size_bytes, gml_address *out);
gml_status gml_driver_free(gml_driver *driver, gml_address address);
gml_status gml_driver_memory_info(gml_driver *driver, uint64_t *free_bytes, uint64_t *total_bytes);
gml_status gml_driver_event_create(gml_driver *driver, gml_event *out);
gml_status gml_driver_event_destroy(gml_driver *driver, gml_event event);
gml_status gml_driver_event_record(gml_driver *driver, gml_event event, gml_stream stream);
gml_status gml_driver_event_query(gml_driver *driver, gml_event event);
gml_status gml_driver_event_synchronize(gml_driver *driver, gml_event event);
gml_status gml_driver_stream_wait(gml_driver *driver, gml_stream stream, gml_event event);
gml_status gml_driver_stream_synchronize(gml_driver *driver, gml_stream stream);
gml_status gml_driver_stream_capturing(gml_driver *driver, gml_stream stream, bool *out);
gml_status gml_driver_device_synchronize(gml_driver *driver);

/* GML_UNSUPPORTED where the backend has no such thing. Not counted. */
gml_status gml_driver_bytes(gml_driver *driver, gml_address address, uint64_t size_bytes,
                            void **out);
gml_status gml_driver_expect_malloc(gml_driver *driver, gml_address address, uint64_t size_bytes);
gml_status gml_driver_grant(gml_driver *driver, int peer);
gml_status gml_driver_share(gml_driver *driver, unsigned handle_type);

/* For whoever watches the order of streams. One branch where nobody does; not counted. */

static inline gml_status
gml_driver_begin_use(gml_driver *driver, gml_address address, uint64_t size_bytes,
                     gml_stream stream)
{
    return driver->ops->begin_use ? driver->ops->begin_use(driver, address, size_bytes, stream)
                                  : GML_OK;
}

static inline gml_status
gml_driver_join_use(gml_driver *driver, gml_address address, gml_stream stream)
{
    return driver->ops->join_use ? driver->ops->join_use(driver, address, stream) : GML_OK;
}

static inline void
gml_driver_end_use(gml_driver *driver, gml_address address)
{
    if (driver->ops->end_use) {
        driver->ops->end_use(driver, address);
    }
}

static inline void
gml_driver_order(gml_driver *driver, gml_stream later, gml_stream earlier)
{
    if (driver->ops->order) {
        driver->ops->order(driver, later, earlier);
    }
}

static inline void
gml_driver_forget(gml_driver *driver, gml_stream stream)
{
    if (driver->ops->forget) {
        driver->ops->forget(driver, stream);
    }
}

#endif
