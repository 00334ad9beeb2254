/* Blocks that other streams than their own may still use (torch.Tensor.record_stream).
 *
 * Each use is a (block, stream). When such a block is freed, an event is recorded on every stream
 * that uses it, and the block ends when all of them have completed: they are queried, without
 * waiting, before each allocation. While the driver is frozen no event is recorded or queried, and
 * such blocks wait for the end of the capture. Events are kept for reuse.
 *
 * A stream on which no event can be recorded is waited for, and if that fails, the whole device. If
 * that fails as well, or the stream captures a graph that no pool was begun for, the block stays
 * pending and the next poll retries.
 *
 * A stream has to exist until the blocks that it uses were freed, as under PyTorch's allocator.
 */
#ifndef GML_LAKE_USES_H
#define GML_LAKE_USES_H

#include "base/list.h"
#include "base/map.h"
#include "base/pool.h"
#include "core/events.h"
#include "policy/policy.h"

typedef struct gml_use gml_use;

/* Ends a freed block that no stream uses any more. */
typedef void (*gml_uses_finish)(void *context, gml_block *block);

typedef struct gml_uses {
    gml_driver *driver;
    gml_uses_finish finish;
    void *context;
    gml_pool nodes;      /* of gml_use */
    gml_pool queues;     /* of queues, one per stream that any block names */
    gml_map queue_of;    /* stream -> queue; stream 0, which a map cannot hold, as 2^64 - 1 */
    gml_link streams;    /* queues with events that are not known to have completed */
    gml_link recorded;   /* freed blocks with an event on every stream that uses them */
    gml_link unrecorded; /* freed blocks whose events could not be recorded yet */
    gml_events events;
    size_t pending_count; /* freed blocks that have not ended */
    uint64_t pending_bytes;
} gml_uses;

void gml_uses_init(gml_uses *uses, gml_driver *driver, gml_uses_finish finish, void *context);

/* Ends every pending block without waiting, and destroys the events. */
void gml_uses_close(gml_uses *uses);

/* From now on `stream`, of another device or, for -1, of the driver's, uses the live block; a no-op
 * for its own stream or one already recorded. GML_NO_HOST_MEMORY; GML_INVALID_ARGUMENT for the
 * stream 2^64 - 1. */
gml_status gml_uses_add(gml_uses *uses, gml_block *block, int device, gml_stream stream);

/* The block is freed and has uses. Never fails: what cannot be recorded now is tried again. */
void gml_uses_free(gml_uses *uses, gml_block *block);

/* Ends the blocks whose events have completed. Cheap if nothing is pending: at most one query per
 * stream if nothing has completed. */
void gml_uses_poll(gml_uses *uses);

/* Waits for every event and ends every pending block. pre: the driver is not frozen. After a
 * failure, which is returned, the blocks that are concerned are still pending. */
gml_status gml_uses_wait(gml_uses *uses);

/* Calls `see` with each pending block. */
void gml_uses_each(const gml_uses *uses, void (*see)(void *context, gml_block *block),
                   void *context);

/* Calls `see` with each pending block and each stream of which it is not known that it has passed
 * the block's free. */
void gml_uses_each_use(const gml_uses *uses,
                       void (*see)(void *context, const gml_block *block, gml_stream stream),
                       void *context);

#endif
