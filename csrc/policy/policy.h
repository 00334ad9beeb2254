/* The policy interface: which addresses serve a request.
 *
 * A policy owns the memory it takes from the driver. The lake above it owns the lock, the table of
 * live blocks, the counters of live bytes and the handling of bad input, so a policy sees only
 * sizes above 0 and at most 2^48, frees each block exactly once, and is never entered twice at the
 * same time.
 *
 * A policy embeds gml_policy as the first member of its own struct and gml_block as the first
 * member of its own block struct.
 */
#ifndef GML_POLICY_POLICY_H
#define GML_POLICY_POLICY_H

#include "driver/driver.h"
#include "gmlake_replay.h"
#include "policy/knobs.h"

typedef struct gml_policy gml_policy;

/* One live allocation. The lake keeps a pointer to it until free(). */
typedef struct gml_block {
    gml_address address;
    uint64_t requested_bytes;
    uint64_t block_bytes;
    gml_stream stream;
    gml_state state;
    bool is_small; /* served from the policy's pool for requests up to 1 MiB */
    uint64_t note; /* for a policy that wraps the serving one; 0 at first */

    /* The lake's, set when the policy has served: */
    bool is_let_go;       /* no longer counted as allocated, see gml_lake_let_go() */
    bool is_exported;     /* another process may map it */
    bool is_elastic;      /* a chunk of an elastic buffer: no block of a program's */
    uint64_t id;          /* of the allocation, in the history */
    gml_policy *owner;    /* whose free() ends it */
    struct gml_use *uses; /* other streams that may use it, see lake/uses.h */
} gml_block;

/* Current usage of a policy; the lake keeps the peaks. */
typedef struct gml_usage {
    uint64_t reserved_bytes;                     /* taken from the driver and not released */
    uint64_t small_bytes;                        /* of those, held for requests up to 1 MiB */
    uint64_t views, view_bytes;                  /* stitched views mapped now, live or cached */
    uint64_t largest_free_bytes;                 /* filled by usage() only when asked for */
    uint64_t cross_stream_waits, borrowed_bytes; /* as in gml_stats */
    /* For requests of `stream`, which the caller sets: */
    gml_stream stream;
    uint64_t stream_largest_bytes; /* the largest that is served without new memory */
    uint64_t joined_bytes;         /* idle memory that can be joined with new memory; 0: none */
    uint64_t elsewhere_bytes;      /* idle, of other streams, and out of its reach */
} gml_usage;

/* Physical memory as the driver gave it, and where it lies in the base range. */
typedef struct gml_chunk {
    gml_address address;
    uint64_t size_bytes;
    gml_handle handle;
} gml_chunk;

/* The live blocks of a policy at one moment, in one piece of host memory: the policy's own struct
 * begins with this. */
typedef struct gml_checkpoint {
    size_t block_count;
} gml_checkpoint;

/* What going back to saved blocks changes. Each block that lives now is in one of the lists. */
typedef struct gml_restoration {
    gml_block **ended; /* not saved; the memory of both lists is freed with this one */
    size_t ended_count;
    gml_block **kept; /* saved, at the same place: stays as it is */
    size_t kept_count;
} gml_restoration;

typedef struct gml_policy_ops {
    const char *name;
    const char *help; /* one-line description */

    /* `driver` outlives the policy. `capacity_bytes` bounds reserved_bytes; 0: no bound but the
     * device's. On failure driver->reason says why. */
    gml_status (*create)(gml_driver *driver, uint64_t capacity_bytes, const gml_knobs *knobs,
                         gml_policy **out);

    /* Gives everything back to the driver, live blocks included; makes no call where it holds
     * nothing. Goes on after a failure and returns the first. */
    gml_status (*destroy)(gml_policy *self);

    /* `size_bytes` is as requested. A failed call leaves every live block and every promise intact;
     * it may have given idle memory back to the driver. */
    gml_status (*allocate)(gml_policy *self, uint64_t size_bytes, gml_stream stream,
                           gml_block **out);

    /* Never fails: what must be done with the driver is done later. */
    void (*free)(gml_policy *self, gml_block *block);

    /* Gives idle memory back to the driver; makes no call where there is none. */
    gml_status (*trim)(gml_policy *self, uint64_t *released_bytes);

    /* For statistics, not for every request: may be linear in recent frees. `largest_free_bytes` is
     * for the stream that can get most. */
    void (*usage)(gml_policy *self, gml_usage *out);

    /* Checks every invariant: GML_OK, or GML_CORRUPT with a reason in driver->reason. */
    gml_status (*check)(gml_policy *self);

    void (*visit)(gml_policy *self, const gml_visitor *visitor);

    /* Optional, NULL or false where the policy has no such thing. */

    bool can_serve_arena; /* see driver/arena.h */

    const char *settings_of; /* the policy whose settings it takes; NULL: those that name it */

    /* As create(), for a private pool, whose addresses depend on its own requests alone and whose
     * memory streams do not lend each other. NULL: create() makes such ones. */
    gml_status (*create_private)(gml_driver *driver, uint64_t capacity_bytes,
                                 const gml_knobs *knobs, gml_policy **out);

    /* Gives idle memory back to the driver until that is `wanted_bytes`, rounded up to a chunk, but
     * only what no work uses any more: it waits for none. *is_pending: more can be given once work
     * is done that is queued now. pre: the driver is not frozen. */
    gml_status (*give)(gml_policy *self, uint64_t wanted_bytes, uint64_t *released_bytes,
                       bool *is_pending);
    /* What give() could give once all work is done; 0 where graphs use it. With give(). */
    uint64_t (*idle_bytes)(gml_policy *self);
    /* Fills all but allocation, allocated_bytes, requested_bytes, oversize_allocations and
     * num_ooms, which the lake counts. */
    void (*torch_stats)(gml_policy *self, gml_torch_stats *out);
    void (*reset_peaks)(gml_policy *self);
    /* The chunk behind an address of a span of GML_SPAN_BASE, by the handle of the lake's driver;
     * GML_UNSUPPORTED for memory that is no chunk's. */
    gml_status (*chunk)(gml_policy *self, gml_address address, gml_chunk *out);
    /* Serves one whole chunk of the smallest size, to be mapped elsewhere too: the one at `wanted`
     * if free for the stream, else any. `missing_bytes`: of all chunks to be taken now, including
     * this one, so that new memory for them is taken at once or not at all. Free memory in larger
     * chunks does not help, so trim() may resolve GML_OUT_OF_MEMORY. */
    gml_status (*take_chunk)(gml_policy *self, gml_address wanted, uint64_t missing_bytes,
                             gml_stream stream, gml_block **out);
    /* Calls `see` with the handle of each chunk in which a block lives, until it fails; returns
     * that failure. With create_private(): graphs take turns in such pools. */
    gml_status (*live_chunks)(gml_policy *self, gml_status (*see)(void *context, gml_handle handle),
                              void *context);
    /* Memory that streams lent each other, see gml_stream_pair. Calls `see` with each pair. */
    void (*stream_pairs)(gml_policy *self, void (*see)(void *context, const gml_stream_pair *pair),
                         void *context);
    gml_status (*mark)(gml_policy *self); /* see gml_lake_mark() */

    /* Private pools: all three, or none. save() takes what restore_to() goes back to, as long as
     * the policy is_kept without a break from then on. *out is freed with free(). */
    gml_status (*save)(gml_policy *self, gml_checkpoint **out);
    /* Takes all host memory that restore_to() needs. Makes no other change. */
    gml_status (*prepare_restore)(gml_policy *self, const gml_checkpoint *saved,
                                  gml_restoration *out);
    /* Exactly the saved blocks live, at their addresses. `blocks_out` receives them all; their
     * state is GML_STATE_EXACT. Makes no driver call. pre: prepared; those to be ended were freed,
     * and nothing else has happened since. */
    void (*restore_to)(gml_policy *self, const gml_checkpoint *saved, gml_block **blocks_out);
} gml_policy_ops;

struct gml_policy {
    const gml_policy_ops *ops;
    gml_driver *driver;
    uint64_t chunk_bytes;    /* that take_chunk() serves; fixed; 0: serves none */
    uint64_t reserved_bytes; /* always current */
    uint64_t small_bytes;    /* of those, held for requests up to 1 MiB; always current too */

    /* Set by the owner of a private pool. A graph may write to any byte that such a policy holds
     * whenever it is replayed, on a stream that nobody knows. */
    gml_pool_id pool;   /* whose it is; (0, 0): none's */
    bool is_kept;       /* graphs use it: nothing is unmapped or released, and no memory changes
                           streams */
    bool awaits_device; /* graphs did: before the first unmap the device is waited for, and this is
                           cleared */
    bool is_closed;     /* serves from idle memory only */
    bool holds_results; /* what is free in it may be in use: see gml_backup_list() */

    /* Waits for the streams that still use blocks freed by the program, and frees those blocks
     * through ops->free. NULL: not needed. */
    void (*finish_frees)(void *context);
    void *finish_context;
};

/* For a policy whose model waits before it releases idle memory: in allocate() and trim() only,
 * with nothing taken from its structures. */
static inline void gml_policy_finish_frees(const gml_policy *self) {
    if (self->finish_frees) {
        self->finish_frees(self->finish_context);
    }
}

/* One policy more, the only one, for the life of the process; `ops` stays the caller's. pre: its
 * name is new, and no other function of policies is called at the same time: lab/ does so as the
 * program is loaded.
 */
void gml_policy_register(const gml_policy_ops *ops);

/* The policy of that name, or NULL. */
const gml_policy_ops *gml_policy_find(const char *name);

extern const gml_policy_ops gml_caching_policy;
extern const gml_policy_ops gml_expandable_policy;
extern const gml_policy_ops gml_stitch_policy;
extern const gml_policy_ops gml_steps_policy; /* steps/, around stitch */

enum {
    GML_ALIGNMENT = 512,       /* every block address and size is a multiple */
    GML_SMALL_LIMIT = 1 << 20, /* largest request of the small pools */
};

#endif
