/* gmlake: a GPU memory allocator that defragments by remapping. The public C interface.
 *
 * The words used throughout:
 *   chunk    a fixed-size piece of physical device memory; one driver handle
 *   extent   a range of addresses with one state, free or used
 *   view     an address range mapped onto whole chunks that lie elsewhere ("stitched")
 *   lake     everything gmlake holds on one device: a driver, a policy, one lock
 *   policy   the rule that decides which addresses serve a request
 *   stream   a device queue; work in one stream runs in order
 *
 * Sizes are unsigned and in bytes. Every function that can fail returns a gml_status and writes its
 * results only on GML_OK. Functions on one lake may be called from any thread. After fork() the
 * child must leave the lakes of its parent alone: their locks and devices belong to the parent.
 */
#ifndef GMLAKE_H
#define GMLAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GML_API __attribute__((visibility("default")))
#else
#define GML_API
#endif

typedef uint64_t gml_address; /* device virtual address; 0 is "no memory" */
typedef uint64_t gml_stream;  /* stream handle as an integer; 0 is the default stream */

typedef enum gml_status {
    GML_OK = 0,
    GML_OUT_OF_MEMORY,    /* the device, or the configured capacity, has no memory left */
    GML_NO_HOST_MEMORY,   /* malloc failed on the host */
    GML_INVALID_ARGUMENT, /* a value outside its documented range */
    GML_UNKNOWN_ADDRESS, /* not the address of a live block of this lake: foreign, or freed twice */
    GML_UNSUPPORTED,     /* this driver, device or policy cannot do that */
    GML_DRIVER_FAILED,   /* a driver call failed for a reason other than lack of memory */
    GML_DRIVER_ABSENT,   /* no usable driver library or device */
    GML_MISUSE,          /* a rule of the driver was broken; not every driver can tell */
    GML_NOT_READY,       /* the event has not completed */
    GML_CORRUPT,         /* an input file or an internal structure contradicts itself */
    GML_STATUS_COUNT
} gml_status;

/* A short English phrase for a status; never NULL. */
GML_API const char *gml_status_text(gml_status status);

/* "major.minor.patch" of the library. */
GML_API const char *gml_version(void);

/* ---- how one allocation was served: GMLake's states S1 to S5, and a sixth -------------------- */

typedef enum gml_state {
    GML_STATE_EXACT = 0, /* a free extent or a cached view of just that size */
    GML_STATE_SPLIT,     /* cut from a larger free extent */
    GML_STATE_STITCH,    /* a new view over free chunks */
    GML_STATE_GROW,      /* new physical memory, alone or stitched with free chunks */
    GML_STATE_OOM,       /* refused */
    GML_STATE_PLAN,      /* planned: repeats the placement of an earlier step, without a search */
    GML_STATE_COUNT
} gml_state;

/* What is tried for a request before it is refused, in this order. Who tries notes it. */
typedef enum gml_tried {
    GML_TRIED_IDLE,      /* idle memory */
    GML_TRIED_STREAMS,   /* of other streams */
    GML_TRIED_DRIVER,    /* new memory */
    GML_TRIED_DEVICE,    /* a wait for work that still uses freed memory */
    GML_TRIED_POOLS,     /* idle memory of released private pools */
    GML_TRIED_PROCESSES, /* of other processes */
    GML_TRIED_NATIVE,    /* what PyTorch's own allocator caches */
    GML_TRIED_LAKES,     /* idle memory of other regions */
    GML_TRIED_GIVERS,    /* elastic tensors that can shrink */
    GML_TRIED_HOST,      /* memory of the host */
    GML_TRIED_COUNT
} gml_tried;

/* "exact", ...; never NULL. */
GML_API const char *gml_state_name(gml_state state);

/* ---- the driver calls, as counted ------------------------------------------------------------ */

#define GML_DRIVER_CALLS(X)                                                                        \
    X(CREATE, create)                         /* physical memory: cuMemCreate */                   \
    X(RELEASE, release)                       /* cuMemRelease */                                   \
    X(RESERVE, reserve)                       /* address range: cuMemAddressReserve */             \
    X(UNRESERVE, unreserve)                   /* cuMemAddressFree */                               \
    X(MAP, map)                               /* cuMemMap */                                       \
    X(UNMAP, unmap)                           /* cuMemUnmap */                                     \
    X(SET_ACCESS, set_access)                 /* cuMemSetAccess */                                 \
    X(MALLOC, malloc)                         /* cuMemAlloc */                                     \
    X(FREE, free)                             /* cuMemFree */                                      \
    X(MEMORY_INFO, memory_info)               /* cuMemGetInfo */                                   \
    X(EVENT_CREATE, event_create)             /* cuEventCreate, without timing */                  \
    X(EVENT_DESTROY, event_destroy)           /* cuEventDestroy */                                 \
    X(EVENT_RECORD, event_record)             /* cuEventRecord */                                  \
    X(EVENT_RECORD_ALL, event_record_all)     /* cuCtxRecordEvent */                               \
    X(EVENT_QUERY, event_query)               /* cuEventQuery */                                   \
    X(EVENT_SYNCHRONIZE, event_synchronize)   /* cuEventSynchronize */                             \
    X(STREAM_WAIT, stream_wait)               /* cuStreamWaitEvent */                              \
    X(STREAM_SYNCHRONIZE, stream_synchronize) /* cuStreamSynchronize */                            \
    X(STREAM_CAPTURING, stream_capturing)     /* cuStreamIsCapturing */                            \
    X(DEVICE_SYNCHRONIZE, device_synchronize) /* cuCtxSynchronize */                               \
    X(HOST_MALLOC, host_malloc)               /* page-locked: cuMemHostRegister */                 \
    X(HOST_FREE, host_free)                   /* cuMemHostUnregister */                            \
    X(COPY_OUT, copy_out)                     /* cuMemcpyDtoHAsync */                              \
    X(COPY_IN, copy_in)                       /* cuMemcpyHtoDAsync */

typedef enum gml_driver_call {
#define GML_DRIVER_CALL_ENUM(upper, lower) GML_CALL_##upper,
    GML_DRIVER_CALLS(GML_DRIVER_CALL_ENUM)
#undef GML_DRIVER_CALL_ENUM
        GML_CALL_COUNT
} gml_driver_call;

/* The lower-case name used in reports: "create", "set_access", ... */
GML_API const char *gml_driver_call_name(gml_driver_call call);

/* ---- configuration --------------------------------------------------------------------------- */

typedef struct gml_lake gml_lake;

/* One named setting, as written after --set: {"frag_limit", 1048576}. The names, ranges and
 * defaults are in gml_knob_describe(). */
typedef struct gml_setting {
    const char *name;
    uint64_t value;
} gml_setting;

typedef struct gml_knob_info {
    const char *name;
    const char *help;     /* one sentence, with the unit */
    const char *policies; /* comma-separated names of the policies that read it */
    uint64_t default_value;
    uint64_t minimum;
    uint64_t maximum;
    const char *words; /* names of the values from 0 on, separated by spaces; NULL: a number */
    bool is_size;      /* a number of bytes */
} gml_knob_info;

/* The knob at `index`, counting from 0; GML_INVALID_ARGUMENT past the last. */
GML_API gml_status gml_knob_describe(size_t index, gml_knob_info *out);

/* Whether a lake can be opened with these settings on a device whose chunks are multiples of
 * granularity_bytes: GML_INVALID_ARGUMENT, with one line in `reason`, for an unknown name or a
 * value out of range. */
GML_API gml_status gml_knobs_check(const gml_setting *settings, size_t count,
                                   uint64_t granularity_bytes, char *reason, size_t reason_bytes);

/* The name of the policy at `index`, counting from 0; NULL past the last. */
GML_API const char *gml_policy_name(size_t index);

/* A one-line description of that policy; NULL past the last. */
GML_API const char *gml_policy_help(size_t index);

/* The other policy whose knobs it also reads, "" if none; NULL past the last. */
GML_API const char *gml_policy_settings(size_t index);

typedef struct gml_driver gml_driver;
typedef struct gml_checker gml_checker;
typedef struct gml_lake_hooks gml_lake_hooks;

/* State shared by the lakes of one device; all zero at first, and again in a child of fork().
 * Threads access the numbers with atomic operations. */
typedef struct gml_device {
    pthread_mutex_t lock;       /* taken before any lake's; guards changes to the next two */
    struct gml_sharer *sharers; /* the open lakes */
    uint64_t captures; /* graph captures in progress: while there are any, all lakes refuse calls
                          that would break one or release its memory. Changes only while no call is
                          running on any of them */
    void (*end_failed_captures)(void); /* ends captures that failed silently; NULL: none can */
    uint64_t held_bytes;               /* by all lakes, without sleeping memory */
    uint64_t highest_bytes;            /* that held_bytes ever was */
    uint64_t limit_bytes;              /* for all lakes together; 0: no limit */
    uint64_t spare_bytes; /* that lakes leave free while memory can be had elsewhere: of processes
                             that share the device; 0: none does */
    uint64_t spending;    /* requests that have looked everywhere, and may take that, too */
    struct gml_handed *handed; /* memory that other processes handed over; NULL: none can */
    const uint64_t *divisions; /* PyTorch's roundup_power2_divisions, 16; NULL: none */
    void (*changed)(void); /* called without locks after what lies behind addresses of a lake may
                              have changed, other than by its requests; NULL: nobody watches */
} gml_device;

typedef struct gml_lake_config {
    const char *driver;   /* "sim", "host" or "cuda" */
    const char *policy;   /* a name from gml_policy_name() */
    int device;           /* ordinal, from 0 */
    unsigned handle_type; /* the CUmemAllocationHandleType that physical memory must be exportable
                             as; 0: as a file, where the device can */
    uint64_t capacity_bytes;     /* most memory to hold; 0: all the device has */
    const gml_setting *settings; /* may be NULL when setting_count is 0 */
    size_t setting_count;
    bool can_sleep;              /* see gmlake_sleep.h */
    gml_device *shared;          /* with the device's other lakes; NULL: not shared */
    const gml_lake_hooks *hooks; /* NULL but in tests: csrc/lake/hooks.h */
} gml_lake_config;

/* ---- a lake ---------------------------------------------------------------------------------- */

/* Opens a lake. On failure *out is untouched and `reason`, if not NULL, holds one line (at most
 * reason_bytes, always terminated) that says what, where and what to do. */
GML_API gml_status gml_lake_open(const gml_lake_config *config, gml_lake **out, char *reason,
                                 size_t reason_bytes);

/* Returns everything to the driver and frees the lake. NULL is allowed. Live blocks become invalid.
 * No other thread may be inside a call on this lake. Returns the first driver failure, if any; the
 * lake is gone in any case. */
GML_API gml_status gml_lake_close(gml_lake *lake);

/* Serves `size_bytes` for use on `stream`. Size 0 succeeds with address 0 and holds nothing. The
 * address is a multiple of 512. Errors: GML_OUT_OF_MEMORY after every rung of the policy's ladder
 * failed; GML_DRIVER_FAILED; GML_NO_HOST_MEMORY; GML_INVALID_ARGUMENT for a size above 2^48 or the
 * stream 2^64 - 1. A failed call changes no live block. */
GML_API gml_status gml_lake_allocate(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                                     gml_address *out);

/* Ends the life of the block at `address`, which may be called on any thread. Work already queued
 * on the block's own stream may still use it. Address 0 is allowed. GML_UNKNOWN_ADDRESS if no live
 * block begins there; nothing changes then. */
GML_API gml_status gml_lake_free(gml_lake *lake, gml_address address);

/* Releases unused cached memory to the driver (torch.cuda.empty_cache). Waits for the device where
 * the policy needs it. `released_bytes` may be NULL. */
GML_API gml_status gml_lake_trim(gml_lake *lake, uint64_t *released_bytes);

/* A step boundary, for policies that plan by steps: ends the current step and begins the next. A
 * no-op on any other policy. */
GML_API gml_status gml_lake_mark(gml_lake *lake);

/* A private pool; (0, 0) is none. */
typedef struct gml_pool_id {
    uint64_t first, second; /* PyTorch's MempoolId_t */
} gml_pool_id;

typedef struct gml_block_info {
    gml_address address;
    uint64_t requested_bytes; /* as asked for */
    uint64_t block_bytes;     /* as held for it: rounded, plus slack that could not be split off */
    gml_stream stream;
    gml_state state; /* how it was served */
    gml_pool_id pool;
    uint64_t id;    /* no other block of the lake has it */
    bool has_users; /* other streams, see gml_lake_record_stream() */
} gml_block_info;

/* Work queued on `stream` by now may use the live block at `address` until it has run
 * (torch.Tensor.record_stream). Once freed, its memory is not reused before the work that was
 * queued there at the free has run. A no-op for the block's own stream. GML_UNKNOWN_ADDRESS if no
 * live block begins there; GML_NO_HOST_MEMORY; GML_INVALID_ARGUMENT for the stream 2^64 - 1. */
GML_API gml_status gml_lake_record_stream(gml_lake *lake, gml_address address, gml_stream stream);

/* ---- streams that lend each other memory --------------------------------------------------------
 *
 * Memory that one stream freed is reused on another only behind everything that the device was
 * given by then, on any stream: once that has completed, where the second stream has waited for it
 * already, or after a wait inserted into the second. No call is ever made on a stream but the one
 * that asks, and those of gml_lake_record_stream(), which have to exist until their block was freed
 * and nobody uses it. See docs/streams.md.
 */

/* Memory lent between two streams. */
typedef struct gml_stream_pair {
    gml_stream owner, borrower;
    uint64_t borrowed_bytes;      /* of the owner's free memory that the borrower took, in all */
    uint64_t borrows;             /* how often */
    uint64_t waits;               /* that the lake inserted: borrower waits for owner */
    uint64_t refused_waits;       /* not made, because of the limit borrow_waits */
    uint64_t deferred_free_bytes; /* now: the owner's blocks that the program freed and the borrower
                                     may still use; see gml_lake_record_stream() */
} gml_stream_pair;

/* Describes every pair, in no order. *out is to be given to free(), NULL on failure:
 * GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_stream_pairs(gml_lake *lake, gml_stream_pair **out, size_t *count);

/* Describes the live block that begins at `address`; GML_UNKNOWN_ADDRESS otherwise. */
GML_API gml_status gml_lake_block(gml_lake *lake, gml_address address, gml_block_info *out);

/* Whether that block has ended: neither does it live, nor does it wait for streams that use it. */
GML_API bool gml_lake_block_is_over(gml_lake *lake, gml_address address, uint64_t id);

/* Calls `see`, under the lake's lock, with each block that is freed and waits for streams. */
GML_API void gml_lake_pending(gml_lake *lake,
                              void (*see)(void *context, const gml_block_info *block),
                              void *context);

/* A host pointer to the bytes of the live block at `address`, valid until the block is freed.
 * GML_UNSUPPORTED unless the driver is `host`. */
GML_API gml_status gml_lake_bytes(gml_lake *lake, gml_address address, void **out);

/* Limits the bytes held from the device from now on; 0: the configured capacity. Memory held beyond
 * it stays until it is freed and trimmed. */
GML_API gml_status gml_lake_set_limit(gml_lake *lake, uint64_t limit_bytes);

/* Keeps `margin_bytes` of the device free for others whenever the lake grows; waking ignores it. */
GML_API gml_status gml_lake_set_margin(gml_lake *lake, uint64_t margin_bytes);

/* Gives device `peer` (an ordinal) access to all memory held now and later. GML_OK also if that
 * device cannot reach this one; GML_UNSUPPORTED if the driver has no peer access. */
GML_API gml_status gml_lake_grant(gml_lake *lake, int peer);

/* ---- private pools ------------------------------------------------------------------------------
 *
 * A private pool serves graphs that are captured in it, and requests that name it. It shares no
 * physical memory with anything else, but for graphs that take turns. Once a graph was captured in
 * it, its addresses stay valid and keep their memory until its last use ends, live blocks until
 * they are freed. While a capture is begun, no event is recorded, queried or waited for, and
 * nothing is released to the driver.
 */

typedef enum gml_pool_flag {
    GML_POOL_IS_WHOLE = 1, /* blocks are not split; before the first request */
    GML_POOL_HELPS = 2,    /* its idle memory serves other requests before they are refused */
} gml_pool_flag;

typedef struct gml_pool_info {
    gml_pool_id id;
    uint64_t reserved_bytes;
    size_t use_count;
    unsigned flags; /* of gml_pool_flag */
    bool is_kept;   /* graphs were captured in it, or states of it were saved, since it was last
                       without uses */
} gml_pool_info;

/* One use more of the pool, which is created if necessary. GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_hold_pool(gml_lake *lake, gml_pool_id id);

/* A hold, and a capture: from here on until the matching end the pool serves requests of capturing
 * streams that name none. Of several begun captures, the one that the same thread began last
 * serves, else the one begun last. Like the end, it waits for the calls in progress on all lakes of
 * the device. GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_begin_pool(gml_lake *lake, gml_pool_id id);

/* The same for a graph that takes turns with all others of that number, which is not 0, whatever
 * their pools: no two of them run at the same time, and what one leaves in its temporary memory is
 * nothing to another. This memory, in which nothing lives when the capture ends, is physically the
 * same for all of them, under addresses of each graph's own: as much as the largest needs.
 *
 * Such graphs are captured one after the other: GML_UNSUPPORTED while any capture is in progress on
 * the device. A plain begin where the policy does not stitch, in a pool with GML_POOL_IS_WHOLE, and
 * in one that was entered, or saved, since it was last without uses. */
GML_API gml_status gml_lake_begin_pool_in_turn(gml_lake *lake, gml_pool_id id, uint64_t turn);

/* A hold, and this thread is in the pool until the matching end: its idle memory is spared by
 * gml_lake_trim(). GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_enter_pool(gml_lake *lake, gml_pool_id id);

/* The number of the graph that takes turns whose capture this thread ended last; no other graph of
 * the process has it. 0: none, or that capture took no turn, failed, or asked for no memory. */
GML_API uint64_t gml_last_graph(void);

/* Overwrites the temporary memory of such a graph with bytes of 0xFF, which are no number to
 * floating point, as work of `stream`: so a program can show, before a replay, that it expects
 * nothing of it. GML_UNKNOWN_ADDRESS where the graph is not of this lake, or is gone;
 * GML_UNSUPPORTED during a capture, and while the lake sleeps; GML_DRIVER_FAILED. */
GML_API gml_status gml_lake_spoil_graph(gml_lake *lake, uint64_t graph, gml_stream stream);

/* Ends the latest begin, or the latest entering, of the pool by this thread, else by any. The use
 * goes on. GML_INVALID_ARGUMENT for a pool that is not begun.
 *
 * A capture that takes turns gets memory of its own for what lives now. GML_OUT_OF_MEMORY or
 * another failure of the driver, or GML_UNSUPPORTED where another capture was begun meanwhile,
 * means that it is ended as by gml_lake_abandon_pool(): its graph must not run. */
GML_API gml_status gml_lake_end_pool(gml_lake *lake, gml_pool_id id);

/* The same for a capture that failed, which ends its use too: no graph needs its memory. */
GML_API gml_status gml_lake_abandon_pool(gml_lake *lake, gml_pool_id id);

/* Ends one use. After the last, unused memory of the pool is released to the driver, at once or by
 * a later trim. GML_INVALID_ARGUMENT for a pool without uses. */
GML_API gml_status gml_lake_release_pool(gml_lake *lake, gml_pool_id id);

/* Sets or clears a flag of a pool in use. GML_INVALID_ARGUMENT for any other, and for a change of
 * GML_POOL_IS_WHOLE after the first request. */
GML_API gml_status gml_lake_set_pool(gml_lake *lake, gml_pool_id id, gml_pool_flag flag,
                                     bool is_set);

/* gml_lake_allocate() from a pool in use, whatever the stream. GML_INVALID_ARGUMENT for any other
 * pool. */
GML_API gml_status gml_lake_allocate_in(gml_lake *lake, gml_pool_id id, uint64_t size_bytes,
                                        gml_stream stream, gml_address *out);

/* Calls `see` with each pool, the oldest first; it may call no lake. */
GML_API void gml_lake_pools(gml_lake *lake, void (*see)(void *context, const gml_pool_info *info),
                            void *context);

/* The live blocks of a private pool at one moment. Belongs to the caller, and outlives pool and
 * lake. */
typedef struct gml_pool_state gml_pool_state;

/* Saves the live blocks of a pool in use. Waits for blocks of it that were freed and that other
 * streams may still use; GML_NOT_READY where a capture forbids that. From here on the pool is as if
 * a graph had been captured in it. GML_INVALID_ARGUMENT for a pool that is not in use;
 * GML_UNSUPPORTED where the policy does not stitch; GML_NO_HOST_MEMORY. */
GML_API gml_status gml_lake_save_pool(gml_lake *lake, gml_pool_id id, gml_pool_state **out);

/* Puts the pool back: every live block of it is freed, and exactly those of the state live, at the
 * same addresses, with the same sizes. What such a block holds is what its memory holds; blocks
 * that live before and after keep their contents. Calls `see` with each block that is freed, then,
 * with `is_new`, with each block that lives; blocks of which both is true are told twice. It may
 * call no lake. Events and counters are those of frees and allocations.
 *
 * Waits for other streams that may still use the memory of blocks that are freed, before or here,
 * and for streams of saved blocks that were destroyed; GML_NOT_READY where a capture forbids that.
 * GML_INVALID_ARGUMENT if the last use of the pool has ended since; GML_NO_HOST_MEMORY;
 * GML_DRIVER_FAILED. Nothing changes then, and `see` is not called. While the lake sleeps, it is
 * as while it is awake: the contents come with waking. One exception: should the driver refuse to
 * tell that other streams are done, after it has waited for the whole device, the blocks told to
 * `see` are freed, and the others live. */
GML_API gml_status gml_lake_restore_pool(gml_lake *lake, const gml_pool_state *state,
                                         void (*see)(void *context, bool is_new,
                                                     gml_address address),
                                         void *context);

/* NULL is allowed. */
GML_API void gml_pool_state_free(gml_pool_state *state);

/* A counter with its history, as in torch.cuda.memory_stats(). */
typedef struct gml_stat {
    uint64_t current, peak, allocated, freed;
} gml_stat;

enum { GML_POOL_ALL = 0, GML_POOL_SMALL, GML_POOL_LARGE, GML_POOL_COUNT };

/* torch.cuda.memory_stats(), by the same names. [all, small_pool, large_pool] each. */
typedef struct gml_torch_stats {
    gml_stat allocation[GML_POOL_COUNT];
    gml_stat segment[GML_POOL_COUNT];
    gml_stat active[GML_POOL_COUNT];
    gml_stat inactive_split[GML_POOL_COUNT];
    gml_stat allocated_bytes[GML_POOL_COUNT];
    gml_stat reserved_bytes[GML_POOL_COUNT];
    gml_stat active_bytes[GML_POOL_COUNT];
    gml_stat inactive_split_bytes[GML_POOL_COUNT];
    gml_stat requested_bytes[GML_POOL_COUNT];
    gml_stat oversize_allocations, oversize_segments;
    uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
    int64_t max_split_size; /* -1: unlimited */
} gml_torch_stats;

typedef struct gml_stats {
    uint64_t live_blocks, peak_live_blocks;
    uint64_t requested_bytes, peak_requested_bytes;      /* live, as asked for */
    uint64_t live_bytes, peak_live_bytes;                /* live, each rounded up to 512 */
    uint64_t reserved_bytes, peak_reserved_bytes;        /* held from the driver */
    uint64_t highest_live_bytes, highest_reserved_bytes; /* peaks since the lake was opened */
    uint64_t highest_shared_bytes; /* the most that all lakes of the device held at once, awake */
    uint64_t host_bytes, highest_host_bytes; /* held beside, on the host; the setting `host` */
    uint64_t allocations, frees;             /* calls that succeeded, size 0 not counted */
    uint64_t states[GML_STATE_COUNT];        /* by gml_state */
    uint64_t views, view_bytes;              /* stitched views mapped now */
    uint64_t largest_free_bytes;             /* largest request served without new memory */
    uint64_t cross_stream_waits;           /* inserted into one stream to reuse memory of another */
    uint64_t borrowed_bytes;               /* free memory that streams took from others, in total */
    uint64_t deferred_free_bytes;          /* now: freed, but other streams may still use it */
    uint64_t driver_calls[GML_CALL_COUNT]; /* by gml_driver_call */
    uint64_t driver_call_ns[GML_CALL_COUNT]; /* the time of each kind of call, all together */
    uint64_t driver_time_ns;                 /* of all of them; modelled by `sim`, else measured */
} gml_stats;

/* A consistent snapshot of all counters. */
GML_API gml_status gml_lake_stats(gml_lake *lake, gml_stats *out);

/* Counts as PyTorch does if the policy models PyTorch and serves alone. Otherwise:
 *   active                as there: from the allocation to the end of the last use
 *   reserved_bytes        held from the device; small_pool: by what serves requests up to 1 MiB
 *   segment               pieces of physical memory held, all of them counted as large_pool's
 *   inactive_split_bytes  reserved and not active; its peak is the highest that a call of this
 *                         function saw since the peaks were reset
 *   inactive_split, oversize_segments   0
 *   num_device_alloc, num_device_free   driver calls that take or give physical memory
 *   num_sync_all_streams                waits for the whole device
 *   num_alloc_retries                   requests asked again after others had made room */
GML_API gml_status gml_lake_torch_stats(gml_lake *lake, gml_torch_stats *out);

/* Resets peaks to the current values; counters continue. */
GML_API gml_status gml_lake_reset_peaks(gml_lake *lake);

/* Copies the reason of the last failure on this lake, "" if none. Always terminated. */
GML_API void gml_lake_reason(gml_lake *lake, char *out, size_t out_bytes);

/* Checks every invariant of the lake's structures, in time linear in them: GML_OK or GML_CORRUPT,
 * with the reason in gml_lake_reason(). For tests and bug reports. */
GML_API gml_status gml_lake_check(gml_lake *lake);

typedef enum gml_span_kind {
    GML_SPAN_SEGMENT = 0, /* memory with its own address, as in PyTorch's allocator */
    GML_SPAN_BASE,        /* physical memory that views may map */
    GML_SPAN_VIEW,        /* pieces of base memory, mapped side by side */
    GML_SPAN_KIND_COUNT
} gml_span_kind;

/* "segment", "base", "view". */
GML_API const char *gml_span_kind_name(gml_span_kind kind);

/* One contiguous piece of address space that a policy holds. */
typedef struct gml_span_info {
    gml_address address;
    uint64_t size_bytes;
    uint64_t used_bytes;
    gml_stream stream;
    bool is_small; /* serves requests up to 1 MiB */
    bool is_view;  /* its physical memory is also counted in another span */
    gml_span_kind kind;
} gml_span_info;

/* One range inside a span. Blocks tile their span in address order. */
typedef struct gml_range_info {
    gml_address address;
    uint64_t size_bytes;
    uint64_t requested_bytes; /* 0 unless used */
    bool is_used;
} gml_range_info;

/* Bytes of a span with is_view, and their location in the base range. Pieces tile their span in
 * address order. */
typedef struct gml_piece_info {
    gml_address address;      /* in the view */
    gml_address base_address; /* in a span of GML_SPAN_BASE */
    uint64_t size_bytes;
} gml_piece_info;

typedef struct gml_visitor {
    void *context;
    void (*span)(void *context, const gml_span_info *span);
    void (*range)(void *context, const gml_range_info *range); /* of the last span */
    void (*piece)(void *context, const gml_piece_info *piece); /* likewise; may be NULL */
    void (*pool)(void *context, gml_pool_id id); /* whose spans follow, after those that are no
                                                    private pool's; may be NULL */
} gml_visitor;

/* Walks everything held, under the lake's lock: a visitor must not call any lake of the device. */
GML_API gml_status gml_lake_visit(gml_lake *lake, const gml_visitor *visitor);

/* ---- what a device can do -------------------------------------------------------------------- */

typedef struct gml_device_info {
    uint64_t granularity_bytes; /* smallest physical chunk */
    uint64_t total_bytes;
    uint64_t free_bytes;
    bool has_virtual_memory; /* can map physical memory at chosen addresses */
    char name[128];
} gml_device_info;

/* The device of a lake. The lake's driver-call times are measured on it; `sim` names the device
 * whose costs it models. */
GML_API void gml_lake_device(const gml_lake *lake, gml_device_info *out);

/* Describes a device without opening a lake on it. */
GML_API gml_status gml_device_describe(const char *driver, int device, gml_device_info *out,
                                       char *reason, size_t reason_bytes);

/* ---- events: of a trace, or as they happen --------------------------------------------------- */

typedef enum gml_request_kind {
    GML_REQUEST_ALLOC = 1,
    GML_REQUEST_FREE = 2,           /* the memory may be reused from here on */
    GML_REQUEST_FREE_REQUESTED = 3, /* freed by the program; counts in gml_torch_stats only */
    GML_REQUEST_SEGMENT_ALLOC = 4,  /* from PyTorch or a lake's history; not replayed */
    GML_REQUEST_SEGMENT_FREE = 5,
    GML_REQUEST_TRIM = 6, /* torch.cuda.empty_cache(); with a pool: its last use has ended */
    GML_REQUEST_OOM = 7,  /* PyTorch refused `size_bytes`; kept, not replayed */
    GML_REQUEST_MARK = 8, /* a step boundary */
    GML_REQUEST_KIND_COUNT
} gml_request_kind;

/* One event of a trace, 48 bytes, little endian in files. */
typedef struct gml_request {
    uint64_t id;         /* dense number of the allocation, the same in its alloc and its free */
    uint64_t size_bytes; /* as requested; of the segment for SEGMENT_* */
    uint64_t address;    /* as recorded; 0 if unknown */
    uint64_t time_ns;    /* as recorded; 0 if unknown */
    uint64_t stream;
    uint32_t kind; /* gml_request_kind */
    uint32_t pool; /* of ALLOC, OOM, SEGMENT_* and TRIM: the number of the private pool, from 1 on,
                      or 0 for none. Of FREE: 0, or GML_REQUEST_LATE */
} gml_request;

/* In `pool` of a FREE: other streams used the memory until the next allocation ran out of
 * memory and waited for them. Policies without such a wait free it after that allocation. */
enum { GML_REQUEST_LATE = 1 };

/* Keeps the last `max_events` events of the lake from now on, and discards earlier ones; 0 stops
 * and frees the memory. It allocates sizeof(gml_request) per event up front, plus at most 96
 * bytes for each separate piece of memory held. Kinds: ALLOC, FREE_REQUESTED and FREE (together,
 * with the same time, unless other streams still use the memory), TRIM, OOM, and SEGMENT_ALLOC and
 * SEGMENT_FREE when reserved memory changes (address 0: no address of its own). time_ns is
 * CLOCK_REALTIME as of the start of the history: later steps of that clock do not affect it. An id
 * identifies one allocation within the lake. Blocks that are live now and freed later have no
 * ALLOC. GML_NO_HOST_MEMORY; nothing changes then. */
GML_API gml_status gml_lake_keep_history(gml_lake *lake, size_t max_events);

/* Copies the newest `capacity` events at most, oldest first. *count is the number copied, *total
 * the number recorded since the history began. With `out` NULL nothing is copied, and *count is the
 * number available. */
GML_API gml_status gml_lake_history(gml_lake *lake, gml_request *out, size_t capacity,
                                    size_t *count, uint64_t *total);

#ifdef __cplusplus
}
#endif

#endif
