/* The watching driver: book-keeping around calls that go through unchanged. */
#include "support/shadow.h"

#include "base/map.h"
#include "base/tree.h"
#include "support/shadow_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A mapping, a plain block or a reservation, ordered by address. */
typedef struct shadow_range {
    gml_tree_node node; /* its size_bytes is the address */
    uint64_t size_bytes;
    shadow_memory *memory; /* NULL: a reservation */
    shadow_clock uses;     /* the last use through this address, by stream */
} shadow_range;

typedef struct shadow {
    gml_driver base;
    gml_driver *inner;
    gml_streams *streams;
    gml_map memories; /* by handle */
    gml_tree mappings, plain_blocks, reservations;
    gml_map events; /* to shadow_clock */
    shadow_counts counts;
    gml_stream names[SHADOW_STREAMS];
    size_t stream_count;
    shadow_clock clocks[SHADOW_STREAMS]; /* what each stream's next operation knows */
    shadow_clock host;
    bool forgets_waits;
    char breach[GML_REASON_BYTES];
} shadow;

static shadow *shadow_of(gml_driver *driver) {
    return (shadow *)(void *)driver;
}

static bool complain(shadow *self, const char *what, gml_address address, gml_stream stream) {
    if (!self->breach[0]) {
        snprintf(self->breach, sizeof self->breach, "%s: address 0x%" PRIx64 ", stream %" PRIu64,
                 what, address, stream);
    }
    return false;
}

/* Passes a failure's reason on. */
static gml_status passed(shadow *self, gml_status status) {
    if (status != GML_OK && status != GML_NOT_READY) {
        memcpy(self->base.reason, self->inner->reason, sizeof self->base.reason);
    }
    return status;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static void learn(shadow_clock *into, const shadow_clock *from) {
    for (size_t i = 0; i < SHADOW_STREAMS; i++) {
        into->at[i] = into->at[i] > from->at[i] ? into->at[i] : from->at[i];
    }
}

static size_t index_of(shadow *self, gml_stream stream) {
    for (size_t i = 0; i < self->stream_count; i++) {
        if (self->names[i] == stream) {
            return i;
        }
    }
    if (self->stream_count == SHADOW_STREAMS) {
        (void)complain(self, "the shadow cannot follow so many streams", 0, stream);
        return 0;
    }
    self->names[self->stream_count] = stream;
    return self->stream_count++;
}

/* The clock of an operation that is queued on the stream now. */
static shadow_clock *queue_on(shadow *self, gml_stream stream) {
    shadow_clock *clock = &self->clocks[index_of(self, stream)];
    learn(clock, &self->host);
    return clock;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static shadow_range *range_at(const gml_tree *tree, gml_address address) {
    gml_tree_node *above = gml_tree_at_least(tree, address + 1, 0);
    gml_tree_node *node = above ? gml_tree_previous(above) : gml_tree_last(tree);
    shadow_range *found = (shadow_range *)(void *)node;
    return found && address - node->size_bytes < found->size_bytes ? found : NULL;
}

static void add_range(gml_tree *tree, gml_address address, uint64_t size_bytes,
                      shadow_memory *memory) {
    shadow_range *added = calloc(1, sizeof *added);
    added->node.size_bytes = address;
    added->size_bytes = size_bytes;
    added->memory = memory;
    gml_tree_insert(tree, &added->node);
}

static void remove_range(gml_tree *tree, shadow_range *range) {
    gml_tree_remove(tree, &range->node);
    free(range);
}

/* ---- uses of memory -------------------------------------------------------------------------- */

/* Marks a use of the part of [address, end) that lies in `range`; returns where that part ends. */
static gml_address use_range(shadow_range *range, gml_address address, gml_address end,
                             shadow_access *use) {
    gml_address range_end = range->node.size_bytes + range->size_bytes;
    gml_address stop = end < range_end ? end : range_end;
    shadow_memory_access(range->memory, address - range->node.size_bytes, stop - address, use);
    range->uses.at[use->stream] = use->knows->at[use->stream];
    return stop;
}

static void no_work(void *context) {
    (void)context;
}

static bool use_block(gml_driver *driver, gml_address address, uint64_t size_bytes,
                      gml_stream stream, shadow_kind kind) {
    shadow *self = shadow_of(driver);
    shadow_clock *knows = queue_on(self, stream);
    shadow_access use = {kind, index_of(self, stream), knows, NULL};
    knows->at[use.stream]++;
    if (self->streams && gml_streams_enqueue(self->streams, stream, no_work, NULL) != GML_OK) {
        return complain(self, "work could not be queued", address, stream);
    }
    gml_address end = address + size_bytes;
    for (gml_address at = address; at < end;) {
        shadow_range *range = range_at(&self->mappings, at);
        range = range ? range : range_at(&self->plain_blocks, at);
        if (!range) {
            return complain(self, "a live block is not mapped", at, stream);
        }
        at = use_range(range, at, end, &use);
    }
    return use.fault ? complain(self, use.fault, address, stream) : true;
}

bool shadow_begin(gml_driver *driver, gml_address address, uint64_t size_bytes, gml_stream stream) {
    return use_block(driver, address, size_bytes, stream, SHADOW_BEGIN);
}

bool shadow_use(gml_driver *driver, gml_address address, uint64_t size_bytes, gml_stream stream) {
    return use_block(driver, address, size_bytes, stream, SHADOW_AGAIN);
}

bool shadow_end(gml_driver *driver, gml_address address, uint64_t size_bytes, gml_stream stream) {
    return use_block(driver, address, size_bytes, stream, SHADOW_END);
}

/* Whatever used the memory through this address has to be known to the host. */
static void check_idle(shadow *self, const shadow_range *range) {
    for (size_t i = 0; i < self->stream_count; i++) {
        if (range->uses.at[i] > self->host.at[i]) {
            (void)complain(self, "a mapping was removed while work may use it",
                           range->node.size_bytes, self->names[i]);
        }
    }
}

/* ---- the calls ------------------------------------------------------------------------------- */

static gml_status shadow_create(gml_driver *driver, uint64_t size_bytes, gml_handle *out) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_create(self->inner, size_bytes, out);
    if (status == GML_OK) {
        status = gml_map_insert(&self->memories, *out, shadow_memory_new(size_bytes));
        self->counts.handles++;
        self->counts.held_bytes += size_bytes;
    }
    return passed(self, status);
}

static gml_status shadow_release(gml_driver *driver, gml_handle handle) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_release(self->inner, handle);
    if (status == GML_OK) {
        shadow_memory *memory = gml_map_take(&self->memories, handle);
        self->counts.handles--;
        self->counts.held_bytes -= memory->size_bytes;
        memory->is_held = false;
        if (!memory->mappings) {
            shadow_memory_free(memory);
        }
    }
    return passed(self, status);
}

static gml_status shadow_reserve(gml_driver *driver, uint64_t size_bytes, uint64_t alignment_bytes,
                                 gml_address *out) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_reserve(self->inner, size_bytes, alignment_bytes, out);
    if (status == GML_OK) {
        add_range(&self->reservations, *out, size_bytes, NULL);
    }
    return passed(self, status);
}

static gml_status shadow_unreserve(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_unreserve(self->inner, address, size_bytes);
    if (status == GML_OK) {
        remove_range(&self->reservations, range_at(&self->reservations, address));
    }
    return passed(self, status);
}

static gml_status shadow_map(gml_driver *driver, gml_address address, uint64_t size_bytes,
                             gml_handle handle) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_map(self->inner, address, size_bytes, handle);
    if (status == GML_OK) {
        shadow_memory *memory = gml_map_find(&self->memories, handle);
        memory->mappings++;
        add_range(&self->mappings, address, size_bytes, memory);
    }
    return passed(self, status);
}

static gml_status shadow_unmap(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_unmap(self->inner, address, size_bytes);
    for (gml_address at = address; status == GML_OK && at < address + size_bytes;) {
        shadow_range *range = range_at(&self->mappings, at);
        shadow_memory *memory = range->memory;
        at += range->size_bytes;
        check_idle(self, range);
        remove_range(&self->mappings, range);
        if (!--memory->mappings && !memory->is_held) {
            shadow_memory_free(memory);
        }
    }
    return passed(self, status);
}

static gml_status shadow_set_access(gml_driver *driver, gml_address address, uint64_t size_bytes) {
    shadow *self = shadow_of(driver);
    return passed(self, gml_driver_set_access(self->inner, address, size_bytes));
}

static gml_status shadow_malloc(gml_driver *driver, uint64_t size_bytes, gml_address *out) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_malloc(self->inner, size_bytes, out);
    if (status == GML_OK) {
        add_range(&self->plain_blocks, *out, size_bytes, shadow_memory_new(size_bytes));
        self->counts.held_bytes += size_bytes;
    }
    return passed(self, status);
}

/* The host now knows everything that was queued anywhere. */
static void learn_all(shadow *self) {
    for (size_t i = 0; i < self->stream_count; i++) {
        learn(&self->host, &self->clocks[i]);
    }
}

/* cuMemFree waits for the device by itself. */
static gml_status shadow_free(gml_driver *driver, gml_address address) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_free(self->inner, address);
    if (status == GML_OK) {
        shadow_range *range = range_at(&self->plain_blocks, address);
        self->counts.held_bytes -= range->size_bytes;
        shadow_memory_free(range->memory);
        remove_range(&self->plain_blocks, range);
        learn_all(self);
    }
    return passed(self, status);
}

static gml_status shadow_memory_info(gml_driver *driver, uint64_t *free_bytes,
                                     uint64_t *total_bytes) {
    shadow *self = shadow_of(driver);
    return passed(self, gml_driver_memory_info(self->inner, free_bytes, total_bytes));
}

static gml_status shadow_event_create(gml_driver *driver, gml_event *out) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_event_create(self->inner, out);
    if (status == GML_OK) {
        status = gml_map_insert(&self->events, *out, calloc(1, sizeof(shadow_clock)));
    }
    return passed(self, status);
}

static gml_status shadow_event_destroy(gml_driver *driver, gml_event event) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_event_destroy(self->inner, event);
    if (status == GML_OK) {
        free(gml_map_take(&self->events, event));
    }
    return passed(self, status);
}

static gml_status shadow_event_record(gml_driver *driver, gml_event event, gml_stream stream) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_event_record(self->inner, event, stream);
    if (status == GML_OK) {
        *(shadow_clock *)gml_map_find(&self->events, event) = *queue_on(self, stream);
    }
    return passed(self, status);
}

static gml_status shadow_event_record_all(gml_driver *driver, gml_event event) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_event_record_all(self->inner, event);
    if (status == GML_OK) {
        shadow_clock *covers = gml_map_find(&self->events, event);
        *covers = self->host;
        for (size_t i = 0; i < self->stream_count; i++) {
            learn(covers, &self->clocks[i]);
        }
    }
    return passed(self, status);
}

static gml_status shadow_event_query(gml_driver *driver, gml_event event) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_event_query(self->inner, event);
    if (status == GML_OK) {
        learn(&self->host, gml_map_find(&self->events, event));
    }
    return passed(self, status);
}

static gml_status shadow_event_synchronize(gml_driver *driver, gml_event event) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_event_synchronize(self->inner, event);
    if (status == GML_OK) {
        learn(&self->host, gml_map_find(&self->events, event));
    }
    return passed(self, status);
}

static gml_status shadow_stream_wait(gml_driver *driver, gml_stream stream, gml_event event) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_stream_wait(self->inner, stream, event);
    if (status == GML_OK && !self->forgets_waits) {
        learn(queue_on(self, stream), gml_map_find(&self->events, event));
        self->counts.waits++;
    }
    return passed(self, status);
}

static gml_status shadow_stream_synchronize(gml_driver *driver, gml_stream stream) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_stream_synchronize(self->inner, stream);
    if (status == GML_OK) {
        learn(&self->host, &self->clocks[index_of(self, stream)]);
    }
    return passed(self, status);
}

static gml_status shadow_stream_capturing(gml_driver *driver, gml_stream stream, bool *out) {
    shadow *self = shadow_of(driver);
    return passed(self, gml_driver_stream_capturing(self->inner, stream, out));
}

static gml_status shadow_device_synchronize(gml_driver *driver) {
    shadow *self = shadow_of(driver);
    gml_status status = gml_driver_device_synchronize(self->inner);
    if (status == GML_OK) {
        learn_all(self);
    }
    return passed(self, status);
}

static gml_status shadow_bytes(gml_driver *driver, gml_address address, uint64_t size_bytes,
                               void **out) {
    shadow *self = shadow_of(driver);
    return passed(self, gml_driver_bytes(self->inner, address, size_bytes, out));
}

/* ---- the object ------------------------------------------------------------------------------ */

static void clear_tree(gml_tree *tree, bool owns_memory) {
    while (tree->root) {
        shadow_range *range = (shadow_range *)(void *)tree->root;
        if (owns_memory) {
            shadow_memory_free(range->memory);
        }
        remove_range(tree, range);
    }
}

/* Mappings first: the last one of released memory frees it. */
static void clear_mappings(gml_tree *tree) {
    while (tree->root) {
        shadow_range *range = (shadow_range *)(void *)tree->root;
        if (!--range->memory->mappings && !range->memory->is_held) {
            shadow_memory_free(range->memory);
        }
        remove_range(tree, range);
    }
}

static void shadow_destroy(gml_driver *driver) {
    shadow *self = shadow_of(driver);
    clear_mappings(&self->mappings);
    clear_tree(&self->plain_blocks, true);
    clear_tree(&self->reservations, false);
    for (size_t i = 0; i < self->memories.capacity; i++) {
        if (self->memories.slots[i].key) {
            shadow_memory_free(self->memories.slots[i].value);
        }
    }
    for (size_t i = 0; i < self->events.capacity; i++) {
        free(self->events.slots[i].value);
    }
    gml_map_clear(&self->memories);
    gml_map_clear(&self->events);
    gml_driver_close(self->inner);
    free(self);
}

static const gml_driver_ops shadow_ops = {
    .name = "shadow",
    .destroy = shadow_destroy,
    .create = shadow_create,
    .release = shadow_release,
    .reserve = shadow_reserve,
    .unreserve = shadow_unreserve,
    .map = shadow_map,
    .unmap = shadow_unmap,
    .set_access = shadow_set_access,
    .malloc = shadow_malloc,
    .free = shadow_free,
    .memory_info = shadow_memory_info,
    .event_create = shadow_event_create,
    .event_destroy = shadow_event_destroy,
    .event_record = shadow_event_record,
    .event_record_all = shadow_event_record_all,
    .event_query = shadow_event_query,
    .event_synchronize = shadow_event_synchronize,
    .stream_wait = shadow_stream_wait,
    .stream_synchronize = shadow_stream_synchronize,
    .stream_capturing = shadow_stream_capturing,
    .device_synchronize = shadow_device_synchronize,
    .bytes = shadow_bytes,
};

gml_driver *shadow_open(gml_driver *inner) {
    shadow *self = calloc(1, sizeof *self);
    if (!self) {
        return NULL;
    }
    self->base.ops = &shadow_ops;
    self->base.info = inner->info;
    self->base.device = inner->device;
    self->base.gone = inner->gone;
    self->base.arena = inner->arena;
    self->base.arena_bytes = inner->arena_bytes;
    self->inner = inner;
    self->streams = gml_driver_streams(inner);
    return &self->base;
}

shadow_counts shadow_count(const gml_driver *driver) {
    const shadow *self = (const shadow *)(const void *)driver;
    shadow_counts counts = self->counts;
    counts.mappings = self->mappings.count;
    counts.reservations = self->reservations.count;
    counts.plain_blocks = self->plain_blocks.count;
    return counts;
}

const char *shadow_breach(const gml_driver *driver) {
    return ((const shadow *)(const void *)driver)->breach;
}

void shadow_forget_waits(gml_driver *driver) {
    shadow_of(driver)->forgets_waits = true;
}

gml_streams *shadow_streams(const gml_driver *driver) {
    return ((const shadow *)(const void *)driver)->streams;
}
