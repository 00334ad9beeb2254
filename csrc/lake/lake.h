/* One device: a driver, a policy, the table of live blocks, the counters, one lock.
 *
 * Lock: `lock` guards every field but itself, everything below the policy, and the driver. It is
 * the only lock of the library that is held while the driver is called, and nothing is called back
 * under it but the functions of a gml_visitor. Under Python the GIL is released before it is taken.
 * Where captures change, those of all lakes of a device are held: see driver/device.h.
 *
 * The configured policy serves every request that no private pool serves; those have policies of
 * their own, on the same driver (pools.h).
 */
#ifndef GML_LAKE_LAKE_H
#define GML_LAKE_LAKE_H

#include "base/map.h"
#include "driver/remap.h"
#include "lake/history.h"
#include "lake/hooks.h"
#include "lake/pools.h"
#include "lake/situation.h"
#include "lake/uses.h"
#include "policy/policy.h"

#include <pthread.h>

#define GML_LARGEST_REQUEST (UINT64_C(1) << 48) /* more than any device's address space */

/* Blocks of which the program let go and that other streams still use, in [all, small, large]: they
 * are active and no longer allocated. The peaks are of all that is active, and are kept only while
 * there are such blocks: without any, active and allocated are the same. */
typedef struct gml_lingering {
    uint64_t count[GML_POOL_COUNT], bytes[GML_POOL_COUNT];
    uint64_t peak_active[GML_POOL_COUNT], peak_active_bytes[GML_POOL_COUNT];
} gml_lingering;

/* Physical memory at one place. */
typedef struct gml_held {
    gml_address address;
    uint64_t size_bytes;
    gml_stream stream;
    gml_pool_id pool; /* (0, 0): none */
} gml_held;

/* In address order, without overlaps. */
typedef struct gml_held_list {
    gml_held *list;
    size_t count, room;
} gml_held_list;

/* The spans held at the last look, and room for the next one. Zeroed: none. */
typedef struct gml_looks {
    gml_held_list held, seen;
    uint64_t changes; /* of driver->gone, at that look */
} gml_looks;

struct gml_lake {
    pthread_mutex_t lock;
    gml_sharer sharer; /* of the driver's device */
    gml_driver *driver;
    gml_checker *checker; /* a part of the driver, closed with it; NULL: the order is not checked */
    gml_remapper *remapper;          /* likewise; NULL: cannot sleep */
    char title[96];                  /* gml_sleeping's, of the last sleep */
    struct gml_backup_store *backup; /* see sleep.c; NULL until it first sleeps */
    gml_policy *policy;
    gml_pools pools;
    gml_uses uses;
    gml_history history;
    gml_looks looks;       /* while events are kept */
    gml_map imports;       /* see export.c */
    size_t over_imports;   /* of them: whose users are done */
    gml_map elastics;      /* see elastic.c: address -> buffer */
    gml_link elastic_list; /* the same: first those that were closed and are still mapped */
    gml_map blocks;        /* live: address -> gml_block */
    gml_stats stats;       /* except those kept in gml_policy and gml_driver */
    gml_torch_stats torch; /* the counters that policies leave to the lake, and substitutes for
                              those a policy does not keep */
    gml_lingering lingering;
    uint64_t noted_small_bytes; /* of the policy, when last looked at */
    uint64_t next_id;           /* of the next allocation */
    gml_knobs knobs;            /* as configured */
    uint64_t capacity_bytes;    /* as configured; 0: the device's */
    int device;
};

/* ---- lake.c ---------------------------------------------------------------------------------- */

/* The heap of the pool that serves `stream` now: the named one, or that of its capture. *out is
 * NULL where none does. pre: the lock is held. */
gml_status gml_lake_find_heap(gml_lake *lake, const gml_pool_id *named, gml_stream stream,
                              gml_heap **out);

/* ---- inspect.c ------------------------------------------------------------------------------- */

/* gml_lake_visit() for a caller that holds the lock. */
void gml_lake_visit_locked(gml_lake *lake, const gml_visitor *visitor);

/* ---- access.c: for the rooms above, which know nothing of what a lake is made of ------------- */

/* Calls `action` with the lake's policy under the lock, then updates the counters. Reasons go to
 * policy->driver. */
typedef gml_status (*gml_policy_action)(gml_policy *policy, void *context);
gml_status gml_lake_with_policy(gml_lake *lake, gml_policy_action action, void *context);

/* Keeps a printf-style reason for gml_lake_reason() and returns `status`. */
gml_status gml_lake_fail(gml_lake *lake, gml_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Waits for a stream, or for the device where `stream` is NULL. GML_NOT_READY while a graph is
 * captured. */
gml_status gml_lake_wait(gml_lake *lake, const gml_stream *stream);

/* The device's memory when the lake was opened. */
uint64_t gml_lake_total_bytes(const gml_lake *lake);

/* ---- export.c -------------------------------------------------------------------------------- */

/* Before the driver is closed. Returns the first failure. */
gml_status gml_lake_end_imports(gml_lake *lake);

/* ---- elastic.c ------------------------------------------------------------------------------- */

/* gml_driver.end_aliases, with a lake as its context: unmaps idle mappings. */
gml_status gml_elastics_end_aliases(void *context, gml_address address, uint64_t size_bytes);

/* Destroys the closed buffers that could not be destroyed before. Continues after a failure and
 * returns the first. pre: the driver is not frozen. */
gml_status gml_elastics_end_closed(gml_lake *lake);

/* Before the policy and the driver are closed. Returns the first failure. */
gml_status gml_elastics_end(gml_lake *lake);

/* Every chunk in use is a live block and lies in its place, and whatever else is mapped is a chunk
 * that the policy holds: GML_OK, or GML_CORRUPT. */
gml_status gml_elastics_check(gml_lake *lake);

/* Counts the chunks in use, and their bytes. */
void gml_elastics_measure(const gml_lake *lake, uint64_t *out_chunks, uint64_t *out_bytes);

/* ---- sleep.c --------------------------------------------------------------------------------- */

/* Frees the backup. Before the driver is closed. */
void gml_backup_end(gml_lake *lake);

/* ---- lake.c ---------------------------------------------------------------------------------- */

/* gml_lake_allocate() for a caller that may find the memory elsewhere: GML_OUT_OF_MEMORY is no
 * refusal yet, so it is neither counted nor kept in the history, and has no reason. */
gml_status gml_lake_try(gml_lake *lake, uint64_t size_bytes, gml_stream stream, gml_address *out);

/* The same, with memory of the host where the setting `host` allows it and nothing else serves. */
gml_status gml_lake_try_host(gml_lake *lake, uint64_t size_bytes, gml_stream stream,
                             gml_address *out);

/* gml_lake_try() for gml_lake_allocate_in(). */
gml_status gml_lake_try_in(gml_lake *lake, gml_pool_id id, uint64_t size_bytes, gml_stream stream,
                           gml_address *out);

/* gml_lake_record_stream() for a stream of any device. */
gml_status gml_lake_record_stream_of(gml_lake *lake, gml_address address, int device,
                                     gml_stream stream);

/* After such a request: the program is told that there is no memory. Counts that, and gives the
 * reason: the verdict of the account of it. */
void gml_lake_refuse(gml_lake *lake, const gml_situation *seen);

/* Whether the policy makes heaps of its own kind for private pools, which can be put back into an
 * earlier state; pools have PyTorch's caching algorithm otherwise. */
bool gml_lake_has_private_heaps(gml_lake *lake);

/* gml_lake_free() for a caller that holds the lock. */
gml_status gml_lake_free_locked(gml_lake *lake, gml_address address);

/* The end of a freed block: no stream uses it any more. Counts, and hands it to its owner. */
void gml_lake_finish_free(gml_lake *lake, gml_block *block);

/* Whether its memory is asleep. pre: the lock is held. */
static inline bool gml_lake_sleeps(const gml_lake *lake) {
    return lake->remapper && gml_remapper_is_asleep(lake->remapper);
}

/* The memory that the policy and the pools hold from the device. */
static inline uint64_t gml_lake_reserved(const gml_lake *lake) {
    return lake->policy->reserved_bytes + gml_pools_reserved(&lake->pools);
}

/* Passes a status of the checker on, with its reason. */
static inline gml_status gml_lake_checked(gml_lake *lake, gml_status status) {
    return status == GML_OK ? GML_OK
                            : gml_driver_fail(lake->driver, status, "%s", lake->checker->reason);
}

/* The uses of a block, for the checker: one branch without a checker. */
static inline gml_status gml_lake_begin_use(gml_lake *lake, const gml_block *block) {
    gml_checker *checker = lake->checker;
    return !checker ? GML_OK
                    : gml_lake_checked(lake, checker->begin_use(checker, block->address,
                                                                block->block_bytes, block->stream));
}

static inline void gml_lake_end_use(gml_lake *lake, gml_address address) {
    if (lake->checker) {
        lake->checker->end_use(lake->checker, address);
    }
}

/* ---- segments.c ------------------------------------------------------------------------------ */

/* Told of memory that came (`is_new`) or went. */
typedef void (*gml_tell_held)(void *context, bool is_new, const gml_held *span);

/* Compares what the lake holds with the last look and calls `tell` with each released or new span:
 * both where other memory lies at the same addresses now. A lake that sleeps holds nothing. A NULL
 * `tell` only looks. `*looks`, NULL before the first look, is guarded by the lock and never freed.
 * Without host memory it reports nothing, and the next look catches up. Linear in what is held, and
 * free of cost where no call changed anything. `tell` is called under the lock and may call no lake
 * of the device. */
void gml_lake_changes(gml_lake *lake, gml_looks **looks, gml_tell_held tell, void *context);

/* Takes the first look at what the lake holds; a no-op unless events are kept. */
void gml_lake_begin_segments(gml_lake *lake);

/* Records SEGMENT_FREE and SEGMENT_ALLOC events, in this order, for spans released and added since
 * the last look. Their sizes add up to the change from `before_bytes` to `reserved_bytes`: memory
 * without a span (left over from a failed call, or missed for lack of host memory) becomes one more
 * event at address 0. Linear in what is held, so only for changes of reserved memory. pre: events
 * are kept.
 */
void gml_lake_note_segments(gml_lake *lake, uint64_t before_bytes, uint64_t reserved_bytes);

/* Forgets the looks. */
void gml_lake_end_segments(gml_lake *lake);

/* Has whoever watches the device look at what changed. pre: no lock is held. */
static inline void gml_lake_tell(const gml_lake *lake) {
    void (*changed)(void) = GML_DEVICE_READ(lake->driver->device, changed);
    if (changed) {
        changed();
    }
}

/* ---- reclaim.c ------------------------------------------------------------------------------- */

/* Releases idle memory of every policy, waiting for the device where it must; a no-op while the
 * driver is frozen. *released_bytes: released to the device. Continues after a failure and returns
 * the first. */
gml_status gml_lake_trim_locked(gml_lake *lake, uint64_t *released_bytes);

/* Releases idle memory for somebody else, `wanted_bytes` of it or a chunk more; what the policy can
 * choose, and the device export, goes into `to` as files, if that is not NULL. waits: for all work
 * first, and then what private pools hold idle follows where the rest is too little; otherwise it
 * waits for no work, and *is_pending: more can be released once work is done that is queued now. A
 * no-op while the driver is frozen and while the lake sleeps. */
gml_status gml_lake_give(gml_lake *lake, uint64_t wanted_bytes, struct gml_handed *to, bool waits,
                         uint64_t *released_bytes, bool *is_pending);

/* What gml_lake_give() could release if it waits. */
uint64_t gml_lake_idle_bytes(gml_lake *lake);

/* Makes room for `policy`, which has refused a request: waits for streams that still use freed
 * blocks, and releases the idle memory of the other policies. *is_any: whether it may have helped;
 * false while the driver is frozen. */
gml_status gml_lake_make_room(gml_lake *lake, const gml_policy *policy, bool *is_any);

/* gml_policy.finish_frees, with a lake as its context: waits for streams that still use freed
 * blocks. */
void gml_lake_finish_pending(void *context);

/* ---- counters.c ------------------------------------------------------------------------------ */

/* Counts a block that was served, and one that ends. pre: the lock is held. */
void gml_lake_count_allocation(gml_lake *lake, gml_block *block);
void gml_lake_count_free(gml_lake *lake, gml_block *block);

/* Counts a live block as active only, no longer as allocated; a second call has no effect. */
void gml_lake_count_let_go(gml_lake *lake, gml_block *block);

/* The program let go of the live block at `address`, which other streams may still use: PyTorch
 * counts it as active from here on until it is freed, no longer as allocated. A no-op if no live
 * block begins there, or on a second call. For replays, whose traces tell when the use ends. */
void gml_lake_let_go(gml_lake *lake, gml_address address);

/* The active bytes of a pool: allocated, or freed and still in use. */
static inline uint64_t gml_lake_active_blocks(const gml_lake *lake, int pool) {
    return lake->torch.allocation[pool].current + lake->lingering.count[pool];
}

static inline uint64_t gml_lake_active_bytes(const gml_lake *lake, int pool) {
    return lake->torch.allocated_bytes[pool].current + lake->lingering.bytes[pool];
}

/* Updates the counters of reserved memory. */
void gml_lake_follow_reserved(gml_lake *lake);

/* The same where it has changed; call after anything that may have changed it. */
static inline void gml_lake_note_reserved(gml_lake *lake) {
    if (gml_lake_reserved(lake) != lake->torch.reserved_bytes[GML_POOL_ALL].current ||
        lake->policy->small_bytes != lake->noted_small_bytes ||
        (lake->history.ring && lake->driver->gone->changes != lake->looks.changes)) {
        gml_lake_follow_reserved(lake);
    } else {
        gml_gone_settle(lake->driver->gone, GML_LOOKER_LAKE);
    }
}

/* Notes the peaks so far where they are the highest. */
void gml_lake_raise_highest(gml_stats *stats);
/* gml_lake_stats() for a caller that holds the lock. */
gml_stats gml_lake_complete_stats(gml_lake *lake);

/* ---- situation.c ----------------------------------------------------------------------------- */

/* gml_lake_refuse() for a caller that holds the lock. */
void gml_lake_count_refusal(gml_lake *lake, const gml_situation *seen);

/* The same for a refusal whose account, see gml_last_refusal(), is yet to be taken. pool: that was
 * to serve; NULL: none, or that of a capture. */
void gml_lake_refuse_locked(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes,
                            gml_stream stream);

/* Takes the account of a request that is about to be refused; what the thread has tried goes into
 * it, and is forgotten. For rooms above. The reason of the last failure stays. */
void gml_lake_look(gml_lake *lake, const gml_pool_id *pool, uint64_t size_bytes, gml_stream stream,
                   gml_situation *out);

/* What is free in the lake, and what it holds asleep. For rooms above. */
void gml_lake_idle(gml_lake *lake, uint64_t *idle_bytes, uint64_t *asleep_bytes);

/* The device's memory now; *total_bytes 0: it did not say. The reason of the last failure stays. */
void gml_lake_memory_info(gml_lake *lake, uint64_t *free_bytes, uint64_t *total_bytes);

/* The reason of a wake that ran out of memory. pre: the lock is held. */
void gml_lake_explain_waking(gml_lake *lake);

#endif
