/* One queue of recorded events per stream, in the order of recording. */
#include "lake/uses.h"

#include "base/status.h"

#include <stddef.h>

/* The events of one stream complete in order, so only the first of them is asked for. */
typedef struct queue {
    gml_link link;    /* in gml_uses.streams while it has events */
    gml_link waiting; /* of gml_use: with an event */
    int device;       /* of the stream, if that is not the driver's; else -1 */
    gml_stream stream;
    size_t use_count; /* uses that name it; without any it is dropped */
} queue;

struct gml_use {
    gml_use *next; /* of the same block */
    gml_block *block;
    queue *queue;
    gml_link link;   /* in the queue's `waiting`, with an event */
    gml_event event; /* recorded, not known to have completed; 0: none */
    bool is_done;    /* the stream has passed the free */

    /* Of the first use of a freed block: */
    gml_link pending; /* in `recorded` or `unrecorded` */
    size_t remaining; /* uses that are not done; 0 while the block lives */
};

static queue *queue_of_link(gml_link *link) {
    return (queue *)(void *)((char *)link - offsetof(queue, link));
}

static gml_use *use_of_link(gml_link *link) {
    return (gml_use *)(void *)((char *)link - offsetof(gml_use, link));
}

static gml_use *use_of_pending(gml_link *link) {
    return (gml_use *)(void *)((char *)link - offsetof(gml_use, pending));
}

void gml_uses_init(gml_uses *uses, gml_driver *driver, gml_uses_finish finish, void *context) {
    *uses = (gml_uses){.driver = driver, .finish = finish, .context = context};
    gml_events_init(&uses->events, driver);
    uses->nodes.object_bytes = sizeof(gml_use);
    uses->queues.object_bytes = sizeof(queue);
    gml_list_init(&uses->streams);
    gml_list_init(&uses->recorded);
    gml_list_init(&uses->unrecorded);
}

/* ---- queues ---------------------------------------------------------------------------------- */

/* Handles are addresses, or small numbers that each device has: those of another device get its
 * number in a byte that no address reaches. */
static uint64_t key_of(int device, gml_stream stream) {
    uint64_t elsewhere = (uint64_t)(device + 1) << 56;
    return stream | elsewhere ? stream ^ elsewhere : UINT64_MAX;
}

/* The queue of a stream, made on first use; NULL when the host has no memory. */
static queue *find_queue(gml_uses *uses, int device, gml_stream stream) {
    queue *found = gml_map_find(&uses->queue_of, key_of(device, stream));
    if (found) {
        return found;
    }
    queue *added = gml_pool_take(&uses->queues);
    if (!added || gml_map_insert(&uses->queue_of, key_of(device, stream), added) != GML_OK) {
        gml_pool_give(&uses->queues, added);
        return NULL;
    }
    added->device = device;
    added->stream = stream;
    gml_list_init(&added->waiting);
    return added;
}

/* Handles of streams come and go; a queue lasts as long as a block names its stream. */
static void drop_queue(gml_uses *uses, queue *dropped) {
    if (dropped->use_count == 0) {
        (void)gml_map_take(&uses->queue_of, key_of(dropped->device, dropped->stream));
        gml_pool_give(&uses->queues, dropped);
    }
}

static gml_status record_here(gml_uses *uses, gml_stream stream, gml_event *out) {
    gml_status status = gml_events_take(&uses->events, out);
    if (status != GML_OK) {
        return status;
    }
    status = gml_driver_event_record(uses->driver, *out, stream);
    if (status != GML_OK) {
        gml_events_give(&uses->events, *out);
    }
    return status;
}

static gml_status record(gml_uses *uses, gml_use *use) {
    const queue *on = use->queue;
    gml_event event;
    gml_status status =
        on->device < 0 ? record_here(uses, on->stream, &event)
                       : gml_driver_record_elsewhere(uses->driver, on->device, on->stream, &event);
    if (status != GML_OK) {
        return status;
    }
    use->event = event;
    if (gml_list_is_empty(&use->queue->waiting)) {
        gml_list_append(&uses->streams, &use->queue->link);
    }
    gml_list_append(&use->queue->waiting, &use->link);
    return GML_OK;
}

/* Ends a use: removes it from its queue, and the queue from the list once it is empty. */
static void leave_queue(gml_uses *uses, gml_use *use) {
    use->is_done = true;
    if (!use->event) {
        return;
    }
    gml_list_remove(&use->link);
    if (gml_list_is_empty(&use->queue->waiting)) {
        gml_list_remove(&use->queue->link);
    }
    if (use->queue->device < 0) {
        gml_events_give(&uses->events, use->event);
    } else {
        (void)gml_driver_event_destroy(uses->driver, use->event);
    }
    use->event = 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Ends a freed block, regardless of its events. */
static void finish_block(gml_uses *uses, gml_use *first) {
    gml_block *block = first->block;
    gml_list_remove(&first->pending);
    uses->pending_count--;
    uses->pending_bytes -= block->block_bytes;
    block->uses = NULL;
    for (gml_use *use = first, *next; use; use = next) {
        next = use->next;
        if (!use->is_done) {
            leave_queue(uses, use);
        }
        use->queue->use_count--;
        drop_queue(uses, use->queue);
        gml_pool_give(&uses->nodes, use);
    }
    uses->finish(uses->context, block);
}

/* The stream has passed the use's event, or was waited for. */
static void pass(gml_uses *uses, gml_use *use) {
    leave_queue(uses, use);
    use->block->uses->remaining--;
}

static void complete(gml_uses *uses, gml_use *use) {
    gml_use *first = use->block->uses;
    pass(uses, use);
    if (first->remaining == 0) {
        finish_block(uses, first);
    }
}

/* Records the use's event. Where the stream takes none it is waited for: it may be another
 * device's, which waiting for this device would miss. */
static gml_status record_or_wait(gml_uses *uses, gml_use *use) {
    gml_status status = record(uses, use);
    if (status == GML_OK || status == GML_MISUSE) {
        return status;
    }
    status = gml_driver_stream_synchronize(uses->driver, use->queue->stream);
    if (status == GML_OK) {
        pass(uses, use);
    }
    return status;
}

static gml_status record_all(gml_uses *uses, gml_use *first) {
    gml_status status = GML_OK;
    for (gml_use *use = first; use && status == GML_OK; use = use->next) {
        if (!use->event && !use->is_done) {
            status = record_or_wait(uses, use);
        }
    }
    return status;
}

/* Waits for the whole device where that may help: not where a stream captures (GML_MISUSE), whose
 * capture the wait would break. */
static gml_status wait_instead(gml_uses *uses, gml_status status) {
    bool may_help = status != GML_OK && status != GML_MISUSE;
    return may_help && gml_driver_device_synchronize(uses->driver) == GML_OK ? GML_OK : status;
}

/* Records the missing events of a block in `unrecorded`, or else waits for the device and ends it.
 * On failure it stays there. */
static gml_status record_block(gml_uses *uses, gml_use *first) {
    gml_status status = record_all(uses, first);
    if (status == GML_OK && first->remaining == 0) {
        finish_block(uses, first);
        return GML_OK;
    }
    if (status == GML_OK) {
        gml_list_remove(&first->pending);
        gml_list_append(&uses->recorded, &first->pending);
        return GML_OK;
    }
    status = wait_instead(uses, status);
    if (status == GML_OK) {
        finish_block(uses, first);
    }
    return status;
}

/* Stops at the first failure: where neither an event nor waiting works, it will not for the next
 * block either. */
static gml_status record_pending(gml_uses *uses) {
    gml_status status = GML_OK;
    while (status == GML_OK && !gml_list_is_empty(&uses->unrecorded)) {
        status = record_block(uses, use_of_pending(uses->unrecorded.next));
    }
    return status;
}

/* ---- the interface --------------------------------------------------------------------------- */

/* Whether a use of the block waits for what `stream` does anyway, as the block's own stream does.
 */
static bool is_known(const gml_uses *uses, const gml_block *block, int device, gml_stream stream) {
    if (device < 0 && stream == block->stream) {
        return true;
    }
    const queue *named = gml_map_find(&uses->queue_of, key_of(device, stream));
    const gml_use *use = block->uses;
    while (use && use->queue != named) {
        use = use->next;
    }
    return use != NULL;
}

static gml_status no_host_memory(gml_uses *uses) {
    return gml_driver_fail(uses->driver, GML_NO_HOST_MEMORY,
                           "the host has no memory to note that a stream uses a block");
}

gml_status gml_uses_add(gml_uses *uses, gml_block *block, int device, gml_stream stream) {
    if (stream == UINT64_MAX) {
        return gml_driver_fail(uses->driver, GML_INVALID_ARGUMENT,
                               "2^64 - 1 is not a stream handle");
    }
    if (is_known(uses, block, device, stream)) {
        return GML_OK;
    }
    queue *named = find_queue(uses, device, stream);
    if (!named) {
        return no_host_memory(uses);
    }
    gml_use *use = gml_pool_take(&uses->nodes);
    if (!use) {
        drop_queue(uses, named);
        return no_host_memory(uses);
    }
    *use = (gml_use){.next = block->uses, .block = block, .queue = named};
    named->use_count++;
    block->uses = use;
    return GML_OK;
}

void gml_uses_free(gml_uses *uses, gml_block *block) {
    gml_use *first = block->uses;
    first->remaining = 0;
    for (const gml_use *use = first; use; use = use->next) {
        first->remaining++;
    }
    uses->pending_count++;
    uses->pending_bytes += block->block_bytes;
    gml_list_append(&uses->unrecorded, &first->pending);
    if (!gml_driver_is_frozen(uses->driver)) {
        (void)record_block(uses, first);
    }
}

typedef gml_status (*event_call)(gml_driver *driver, gml_event event);

/* Ends what `ask` finds completed, in order, until it answers otherwise. The queue is held, since
 * the last block that names it may end here. */
static gml_status drain(gml_uses *uses, queue *drained, event_call ask) {
    gml_status status = GML_OK;
    drained->use_count++;
    while (status == GML_OK && !gml_list_is_empty(&drained->waiting)) {
        gml_use *use = use_of_link(drained->waiting.next);
        status = ask(uses->driver, use->event);
        if (status == GML_OK) {
            complete(uses, use);
        }
    }
    drained->use_count--;
    drop_queue(uses, drained);
    return status;
}

static gml_status drain_all(gml_uses *uses, event_call ask) {
    gml_status first = GML_OK;
    for (gml_link *link = uses->streams.next, *next; link != &uses->streams; link = next) {
        next = link->next;
        first = gml_first_failure(first, drain(uses, queue_of_link(link), ask));
    }
    return first;
}

static void finish_all_anyway(gml_uses *uses, gml_link *blocks) {
    while (!gml_list_is_empty(blocks)) {
        finish_block(uses, use_of_pending(blocks->next));
    }
}

/* A failure loses nothing: its blocks stay pending until the next poll. */
void gml_uses_poll(gml_uses *uses) {
    if (uses->pending_count && !gml_driver_is_frozen(uses->driver)) {
        (void)record_pending(uses);
        (void)drain_all(uses, gml_driver_event_query);
    }
}

gml_status gml_uses_wait(gml_uses *uses) {
    gml_status status = record_pending(uses);
    status = gml_first_failure(status, drain_all(uses, gml_driver_event_synchronize));
    if (status != GML_OK && wait_instead(uses, status) == GML_OK) {
        finish_all_anyway(uses, &uses->unrecorded);
        finish_all_anyway(uses, &uses->recorded);
        return GML_OK;
    }
    return status;
}

void gml_uses_each(const gml_uses *uses, void (*see)(void *context, gml_block *block),
                   void *context) {
    const gml_link *lists[] = {&uses->recorded, &uses->unrecorded};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (gml_link *link = lists[i]->next; link != lists[i]; link = link->next) {
            see(context, use_of_pending(link)->block);
        }
    }
}

typedef struct use_visitor {
    void (*see)(void *context, const gml_block *block, gml_stream stream);
    void *context;
} use_visitor;

static void see_uses(void *context, gml_block *block) {
    const use_visitor *visitor = context;
    for (const gml_use *use = block->uses; use; use = use->next) {
        if (!use->is_done) {
            visitor->see(visitor->context, block, use->queue->stream);
        }
    }
}

void gml_uses_each_use(const gml_uses *uses,
                       void (*see)(void *context, const gml_block *block, gml_stream stream),
                       void *context) {
    use_visitor visitor = {see, context};
    gml_uses_each(uses, see_uses, &visitor);
}

void gml_uses_close(gml_uses *uses) {
    finish_all_anyway(uses, &uses->unrecorded);
    finish_all_anyway(uses, &uses->recorded);
    gml_events_close(&uses->events);
    gml_map_clear(&uses->queue_of);
    gml_pool_clear(&uses->queues);
    gml_pool_clear(&uses->nodes);
    gml_uses_init(uses, uses->driver, uses->finish, uses->context);
}
