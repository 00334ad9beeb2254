#include "diagnosis/collect/accesses.h"

#include "base/mix.h"
#include "base/room.h"
#include "diagnosis/collect/patch_image.h"
#include "diagnosis/collect/runs.h"
#include "diagnosis/collect/table.h"
#include "gmlake_diagnose.h"

#include <errno.h>
#include <time.h>

enum {
    MOST_RUNS = 1 << 22, /* in all of a program; a launch gets a part of what is left */
    RUNS_PART = 16,
    MOST_AT_ONCE = 1 << 16, /* bytes of an object */
    WAIT_SECONDS = 30       /* for the launch of another thread */
};

#define MOST_CELL_BYTES (UINT64_C(2) << 30)
#define LEAST_CELL_BYTES (UINT64_C(1) << 20)

/* What could not be found out, each said once. */
enum { NOTE_UNPATCHED, NOTE_LARGE, NOTE_JOINED, NOTE_FAILED, NOTE_WAITED, NOTE_COUNT };
static const char *const NOTES[NOTE_COUNT] = {
    "note: some kernels could not be patched: what they access is guessed from their parameters",
    "note: the marks of all objects take too much memory: how often some are accessed, or where, "
    "is not known; a larger --granule makes room",
    "note: the accesses of some launches are too many to be written down: they are rounded up, "
    "which may hide an inefficiency",
    "note: what some launches access could not be read: it is guessed from their parameters",
    "note: a launch did not end for long: what the others access is guessed from their parameters",
};

/* Memory in one context. */
typedef struct context_memory {
    void *context;
    void *table, *cells;
    uint64_t table_bytes, cell_bytes; /* room */
} context_memory;

/* Launches of one kernel with the same objects. */
typedef struct sample {
    uint64_t count, number; /* launches so far; of the accesses that are repeated, 0: none so far */
} sample;

static struct {
    sanitizer_api api;
    gml_collector *collector;
    gml_access_options options;
    unsigned granule_shift;
    pthread_mutex_t slot; /* held from a launch's beginning to its end; protects what follows */
    context_memory *contexts;
    size_t context_count, context_capacity;
    gml_map unpatched; /* modules */
    uint64_t most_cell_bytes;

    /* the launch at hand */
    context_memory *memory; /* NULL: its accesses are not marked */
    sample *sample;
    gml_table *table; /* as the device's */
    size_t table_room;
    uint32_t *cells; /* a copy of an object's */
    size_t cell_room;
    gml_runs runs;

    gml_map samples;
    uint64_t sample_count;
    uint64_t run_count;
    bool is_noted[NOTE_COUNT]; /* happened, and is to be said */
    bool is_told[NOTE_COUNT];
} all = {.slot = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};

static _Thread_local gml_launch expected; /* the thread's next launch */
static _Thread_local bool holds_slot;

/* pre: the collector's lock is held. */
static void tell(void) {
    for (size_t i = 0; i < NOTE_COUNT; i++) {
        if (all.is_noted[i] && !all.is_told[i]) {
            all.is_told[i] = true;
            (void)gml_log_name(&all.collector->log, NOTES[i]);
        }
    }
}

/* Waits for the launch of another thread. One that does not end, as a kernel may wait for a later
 * one, is not waited for any longer. */
static bool lock_slot(void) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += all.is_noted[NOTE_WAITED] ? 0 : WAIT_SECONDS;
    if (pthread_mutex_timedlock(&all.slot, &until) == 0) {
        return true;
    }
    all.is_noted[NOTE_WAITED] = true;
    return false;
}

/* ---- contexts and modules -------------------------------------------------------------------- */

static context_memory *find_context(void *context) {
    for (size_t i = 0; i < all.context_count; i++) {
        if (all.contexts[i].context == context) {
            return &all.contexts[i];
        }
    }
    return NULL;
}

/* With the patches; NULL where that fails. */
static context_memory *add_context(void *context) {
    context_memory *known = find_context(context);
    if (known ||
        !gml_make_room(&all.contexts, &all.context_capacity, all.context_count + 1,
                       sizeof *all.contexts) ||
        all.api.add_patches(GML_PATCH_IMAGE, context) != SANITIZER_SUCCESS) {
        return known;
    }
    known = &all.contexts[all.context_count++];
    *known = (context_memory){.context = context};
    return known;
}

/* Its memory went with it. */
static void drop_context(void *context) {
    context_memory *memory = find_context(context);
    if (memory) {
        *memory = all.contexts[--all.context_count];
    }
}

static void patch_module(const sanitizer_module_data *loaded) {
    static const struct {
        int kind;
        const char *function;
    } patches[] = {{SANITIZER_GLOBAL_ACCESS, "gml_patch_access"},
                   {SANITIZER_ASYNC_COPY, "gml_patch_async"},
                   {SANITIZER_BULK_READ, "gml_patch_bulk_read"},
                   {SANITIZER_BULK_WRITE, "gml_patch_bulk_write"},
                   {SANITIZER_BULK_REDUCTION, "gml_patch_bulk_reduce"}};
    bool is_patched = add_context(loaded->context) != NULL;
    for (size_t i = 0; is_patched && i < sizeof patches / sizeof *patches; i++) {
        int status =
            all.api.patch_instructions(patches[i].kind, loaded->module, patches[i].function);
        is_patched = status == SANITIZER_SUCCESS || i > 0; /* an older device lacks the others */
    }
    (void)gml_map_take(&all.unpatched,
                       (uintptr_t)loaded->module); /* the handle of an unloaded one */
    if (!is_patched || all.api.patch_module(loaded->module) != SANITIZER_SUCCESS) {
        (void)gml_map_insert(&all.unpatched, (uintptr_t)loaded->module, loaded->module);
    }
}

/* ---- the table of a launch ------------------------------------------------------------------- */

static uint64_t words_of(uint64_t size_bytes) {
    return (size_bytes + GML_MARK_BYTES - 1) / GML_MARK_BYTES;
}

static uint64_t cell_bytes_of(uint64_t size_bytes, unsigned shift) {
    uint64_t counters = shift == GML_NO_COUNTERS ? 0 : ((size_bytes - 1) >> shift) + 1;
    return sizeof(uint32_t) * (2 * words_of(size_bytes) + counters);
}

/* Each object with cells beginning at 0 for the first; returns their bytes. Where they do not fit
 * there are no counters, or no cells. pre: the lock is held, and there is room. */
static uint64_t list_objects(const gml_live *live) {
    uint64_t used = 0;
    all.table->count = live->count;
    for (size_t i = 0; i < live->count; i++) {
        const gml_live_object *object = &live->objects[i];
        uint64_t room = all.options.granule_bytes ? all.most_cell_bytes - used : 0;
        bool is_counted = cell_bytes_of(object->size_bytes, all.granule_shift) <= room;
        unsigned shift = is_counted ? all.granule_shift : GML_NO_COUNTERS;
        uint64_t need = cell_bytes_of(object->size_bytes, shift);
        bool fits = need <= room;
        all.table->objects[i] = (gml_table_object){.begin = object->address,
                                                   .size_bytes = object->size_bytes,
                                                   .cells = fits ? used + 1 : 0,
                                                   .low = UINT64_MAX,
                                                   .granule_shift = shift,
                                                   .serial = object->serial};
        used += fits ? need : 0;
        all.is_noted[NOTE_LARGE] |= all.options.granule_bytes && !is_counted;
    }
    return used;
}

static uint64_t table_bytes(size_t count) {
    return offsetof(gml_table, objects) + count * sizeof(gml_table_object);
}

/* False without host memory. */
static bool lay_out(uint64_t *cell_bytes) {
    bool has_room = false;
    if (gml_collector_enter(all.collector)) {
        const gml_live *live = &all.collector->live;
        has_room = gml_make_room(&all.table, &all.table_room, table_bytes(live->count), 1);
        if (has_room) {
            *cell_bytes = list_objects(live);
        }
        gml_collector_leave(all.collector);
    }
    return has_room;
}

/* Device memory of at least so many bytes, zero. */
static bool reserve(context_memory *memory, void **address, uint64_t *room, uint64_t bytes,
                    void *stream) {
    if (bytes <= *room) {
        return true;
    }
    if (*address) {
        (void)all.api.free(memory->context, *address);
    }
    *address = NULL;
    *room = 0;
    bytes += bytes / 4;
    if (all.api.alloc(memory->context, address, bytes) != SANITIZER_SUCCESS) {
        *address = NULL;
        return false;
    }
    *room = bytes;
    return all.api.set(*address, 0, bytes, stream) == SANITIZER_SUCCESS;
}

/* Fewer cells until the device has the memory. */
static bool reserve_cells(context_memory *memory, void *stream) {
    uint64_t bytes = 0;
    while (lay_out(&bytes)) {
        if (reserve(memory, &memory->cells, &memory->cell_bytes, bytes, stream)) {
            return true;
        }
        all.most_cell_bytes = all.most_cell_bytes > LEAST_CELL_BYTES ? all.most_cell_bytes / 2 : 0;
    }
    return false;
}

static bool send_table(context_memory *memory, void *stream) {
    size_t count = all.table->count;
    for (size_t i = 0; i < count; i++) {
        gml_table_object *object = &all.table->objects[i];
        object->cells = object->cells ? (uintptr_t)memory->cells + object->cells - 1 : 0;
    }
    uint64_t bytes = table_bytes(count);
    return reserve(memory, &memory->table, &memory->table_bytes, bytes, stream) &&
           all.api.copy_in(memory->table, all.table, bytes, stream) == SANITIZER_SUCCESS;
}

/* ---- what the device marked ------------------------------------------------------------------ */

static void add_access(uint32_t flags, uint64_t address, const gml_marked_run *run) {
    gml_log_add(&all.collector->log, &(gml_log_record){.kind = GML_LOG_ACCESS,
                                                       .name = run->weight,
                                                       .flags = flags,
                                                       .address = address + run->offset,
                                                       .size_bytes = run->size_bytes,
                                                       .stride_bytes = run->stride_bytes,
                                                       .repeat = run->repeat});
}

static void add_whole(uint32_t flags, uint64_t address, uint64_t size_bytes) {
    add_access(flags, address, &(gml_marked_run){0, size_bytes, size_bytes, 1, 1});
}

/* Which bytes is not known, so that none is surely written. */
static void add_kinds(const gml_table_object *object) {
    uint32_t flags = object->kinds == GML_MARK_READ ? GML_ACCESS_READS : GML_ACCESS_TOUCHES;
    add_whole(flags, object->begin, object->size_bytes);
}

static void add_runs(const gml_table_object *object, const gml_marks *marks, uint32_t flags) {
    uint64_t most = all.run_count < MOST_RUNS ? (MOST_RUNS - all.run_count) / RUNS_PART + 1 : 1;
    if (!gml_runs_find(&all.runs, marks, most)) {
        add_kinds(object);
        return;
    }
    if (all.runs.is_even) {
        all.is_noted[NOTE_JOINED] = true;
    }
    for (size_t i = 0; i < all.runs.count; i++) {
        add_access(all.runs.is_exact ? flags : GML_ACCESS_TOUCHES, object->begin,
                   &all.runs.items[i]);
    }
    all.run_count += all.runs.count;
}

/* Copies a part of the cells to the host, and clears it. */
static bool fetch(uint64_t from, uint64_t words, uint32_t *to, void *stream) {
    void *address = (void *)(uintptr_t)from; /* NOLINT(performance-no-int-to-ptr) */
    size_t size_bytes = words * sizeof *to;
    return all.api.copy_out(to, address, size_bytes, stream) == SANITIZER_SUCCESS &&
           all.api.set(address, 0, size_bytes, stream) == SANITIZER_SUCCESS;
}

/* The bits and the counters from low to high, one after another, of what was read; those of what
 * was written are the others. */
static bool fetch_marks(const gml_table_object *object, gml_marks *read, void *stream) {
    unsigned shift = object->granule_shift;
    bool is_counted = shift != GML_NO_COUNTERS;
    uint64_t unit = is_counted && shift > 5 ? UINT64_C(1) << shift : GML_MARK_BYTES;
    bool is_whole = object->size_bytes <= MOST_AT_ONCE; /* one copy is then faster than three */
    uint64_t first = is_whole ? 0 : object->low / unit * unit;
    uint64_t end = is_whole ? object->size_bytes : object->high;
    uint64_t words = words_of(end - first);
    uint64_t counters = is_counted ? ((end - first - 1) >> shift) + 1 : 0;
    uint64_t room = 2 * words + counters + GML_MARK_BYTES; /* a whole word of counters at the end */
    uint64_t written = words_of(object->size_bytes) * sizeof(uint32_t);
    uint64_t bits = object->cells + first / GML_MARK_BYTES * sizeof(uint32_t);
    uint64_t counts =
        object->cells + 2 * written + (is_counted ? first >> shift : 0) * sizeof(uint32_t);
    if (!gml_make_room(&all.cells, &all.cell_room, room, sizeof *all.cells) ||
        !(is_whole ? fetch(bits, 2 * words + counters, all.cells, stream)
                   : fetch(bits, words, all.cells, stream) &&
                         fetch(bits + written, words, all.cells + words, stream) &&
                         (!is_counted || fetch(counts, counters, all.cells + 2 * words, stream)))) {
        return false;
    }
    *read = (gml_marks){.bits = all.cells,
                        .others = all.cells + words,
                        .counters = is_counted ? all.cells + 2 * words : NULL,
                        .first = first,
                        .end = end,
                        .granule_shift = all.granule_shift};
    return true;
}

/* pre: the lock is held. */
static void add_object(const gml_table_object *object, void *stream) {
    gml_marks read;
    if (!object->cells || !fetch_marks(object, &read, stream)) {
        add_kinds(object);
        return;
    }
    if (object->kinds & GML_MARK_READ) {
        add_runs(object, &read, GML_ACCESS_READS);
    }
    if (object->kinds & GML_MARK_WRITTEN) {
        gml_marks written = read;
        written.bits = read.others;
        written.others = read.bits;
        written.is_written = true;
        add_runs(object, &written, GML_ACCESS_WRITES);
    }
}

/* Waits until the cells are zero again, also those of an object that another thread has freed
 * meanwhile: the next launch may have another stream. */
static void add_marked(void *stream) {
    for (size_t i = 0; i < all.table->count; i++) {
        const gml_table_object *object = &all.table->objects[i];
        const gml_live_object *live = gml_live_find(&all.collector->live, object->begin);
        gml_marks of_freed;
        if (object->kinds && live && live->serial == object->serial) {
            add_object(object, stream);
        } else if (object->kinds && object->cells) {
            (void)fetch_marks(object, &of_freed, stream);
        }
    }
    (void)all.api.synchronize(stream);
}

/* Copies that a tensor map describes are not patched. The map has the address of its object. */
static void add_mapped(const gml_launch *launch) {
    for (size_t i = 0; launch->found_count != GML_SCAN_UNKNOWN && i < launch->found_count; i++) {
        const gml_live_object *object = &launch->found[i];
        if (object->is_in_a_map && gml_live_find(&all.collector->live, object->address)) {
            add_whole(GML_ACCESS_TOUCHES, object->address, object->size_bytes);
        }
    }
}

/* ---- sampling -------------------------------------------------------------------------------- */

static uint64_t key_of(const gml_launch *launch, void *function) {
    uint64_t key = gml_mix((uintptr_t)function);
    for (size_t i = 0; launch->found_count != GML_SCAN_UNKNOWN && i < launch->found_count; i++) {
        key = gml_mix(key ^ launch->found[i].serial);
    }
    return key ? key : 1;
}

/* NULL: every launch is marked, or the host has no memory. */
static sample *find_sample(const gml_launch *launch, void *function) {
    if (all.options.every <= 1) {
        return NULL;
    }
    uint64_t key = key_of(launch, function);
    sample *found = gml_map_find(&all.samples, key);
    if (found) {
        return found;
    }
    found = calloc(1, sizeof *found);
    if (found && gml_map_insert(&all.samples, key, found) != GML_OK) {
        free(found);
        return NULL;
    }
    return found;
}

/* ---- a launch -------------------------------------------------------------------------------- */

/* False where the thread's launch before never ended, and it has the slot still. */
static bool take_slot(void) {
    if (!holds_slot && !lock_slot()) {
        return false;
    }
    holds_slot = true;
    all.memory = NULL;
    all.sample = NULL;
    return true;
}

/* Prepares the table and its cells. */
static void begin(void *context, void *stream) {
    context_memory *memory = find_context(context);
    if (memory && reserve_cells(memory, stream) && send_table(memory, stream)) {
        all.memory = memory;
    }
}

static void begin_launch(const sanitizer_launch_data *launch) {
    if (!take_slot()) {
        return;
    }
    all.sample = find_sample(&expected, launch->function);
    if (!all.sample || all.sample->count++ % all.options.every == 0) {
        begin(launch->context, launch->stream_handle);
    }
    bool is_patched = !gml_map_find(&all.unpatched, (uintptr_t)launch->module);
    void *table = is_patched && all.memory ? all.memory->table : NULL;
    int status =
        all.api.set_launch_data(launch->launch, launch->function, launch->stream_handle, table);
    all.memory = table && status == SANITIZER_SUCCESS ? all.memory : NULL;
    all.is_noted[NOTE_UNPATCHED] |= !is_patched;
}

/* Waits for the launch. False if it failed, or what it marked cannot be read. */
static bool read_table(void *stream) {
    return all.memory && all.api.synchronize(stream) == SANITIZER_SUCCESS &&
           all.api.copy_out(all.table, all.memory->table, table_bytes(all.table->count), stream) ==
               SANITIZER_SUCCESS;
}

/* pre: the lock is held. */
static void take_down(gml_launch *launch, bool is_read, void *stream) {
    if (all.sample && is_read) {
        launch->repeated_as = all.sample->number = ++all.sample_count;
    } else if (all.sample && !all.memory) {
        launch->repeats = all.sample->number;
    }
    gml_collect_launch(all.collector, launch);
    if (is_read) {
        add_marked(stream);
        add_mapped(launch);
    } else if (!launch->repeats) {
        gml_collect_parameters(all.collector, launch);
    }
    all.is_noted[NOTE_FAILED] |= all.memory && !is_read;
    tell();
}

static void end(void *stream) {
    bool is_ours = holds_slot;
    bool is_read = is_ours && read_table(stream);
    if (gml_collector_enter(all.collector)) {
        if (is_ours) {
            take_down(&expected, is_read, stream);
        } else {
            gml_collect_launch(all.collector, &expected);
            gml_collect_parameters(all.collector, &expected);
        }
        gml_log_end_call(&all.collector->log);
        gml_collector_leave(all.collector);
    }
    expected = (gml_launch){.found_count = GML_SCAN_UNKNOWN};
    if (is_ours) {
        holds_slot = false;
        pthread_mutex_unlock(&all.slot);
    }
}

static void end_launch(const sanitizer_launch_data *launch) {
    expected.name = launch->name ? launch->name : expected.name;
    end(launch->stream_handle);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

static void expect(const gml_launch *launch) {
    expected = *launch;
}

static void hear_resource(uint32_t id, const void *data) {
    bool is_heard = id == SANITIZER_MODULE_LOADED || id == SANITIZER_CONTEXT_DESTROYED;
    if (!is_heard || !lock_slot()) {
        return;
    }
    if (id == SANITIZER_MODULE_LOADED) {
        patch_module(data);
    } else {
        drop_context(((const sanitizer_module_data *)data)->context);
    }
    pthread_mutex_unlock(&all.slot);
}

/* A graph is one launch, which may access anything: its kernels do not mark. */
static void hear_graph(uint32_t id, const void *data) {
    const sanitizer_graph_data *graph = data;
    const sanitizer_node_data *node = data;
    if (id == SANITIZER_GRAPH_LAUNCH_END && !graph->is_upload) {
        end(graph->stream_handle);
    } else if (id == SANITIZER_NODE_LAUNCH_BEGIN && node->type == CUDA_NODE_KERNEL) {
        const sanitizer_launch_data *launch = &node->launch;
        (void)all.api.set_launch_data(launch->launch, launch->function, launch->stream_handle,
                                      NULL);
    }
}

static void hear(void *user, int domain, uint32_t id, const void *data) {
    (void)user;
    int error = errno;
    int cancel_state;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    if (domain == SANITIZER_DOMAIN_DRIVER_API) {
        gml_collect_call(all.collector, CUPTI_DOMAIN_DRIVER_API, id, data);
    } else if (domain == SANITIZER_DOMAIN_RESOURCE) {
        hear_resource(id, data);
    } else if (domain == SANITIZER_DOMAIN_GRAPHS) {
        hear_graph(id, data);
    } else if (domain == SANITIZER_DOMAIN_LAUNCH && id == SANITIZER_LAUNCH_BEGIN) {
        begin_launch(data);
    } else if (domain == SANITIZER_DOMAIN_LAUNCH && id == SANITIZER_LAUNCH_END) {
        end_launch(data);
    }
    (void)pthread_setcancelstate(cancel_state, NULL);
    errno = error;
}

/* ---- the beginning --------------------------------------------------------------------------- */

const char *gml_accesses_start(gml_collector *collector, const sanitizer_api *api,
                               gml_access_options options) {
    static const int domains[] = {SANITIZER_DOMAIN_RESOURCE, SANITIZER_DOMAIN_LAUNCH,
                                  SANITIZER_DOMAIN_GRAPHS};
    void *subscriber = NULL;
    all.api = *api;
    all.collector = collector;
    all.options = options;
    all.most_cell_bytes = MOST_CELL_BYTES;
    while (UINT64_C(2) << all.granule_shift <= options.granule_bytes) {
        all.granule_shift++;
    }
    if (all.api.subscribe(&subscriber, hear, NULL) != SANITIZER_SUCCESS) {
        return "error: the Sanitizer refused to subscribe: another tool may be at work";
    }
    collector->expect = expect;
    expected.found_count = GML_SCAN_UNKNOWN;
    for (size_t i = 0; i < sizeof domains / sizeof *domains; i++) {
        if (all.api.enable_domain(1, subscriber, domains[i]) != SANITIZER_SUCCESS) {
            return "error: the Sanitizer does not tell of launches; it must be of CUDA 12 or later";
        }
    }
    for (size_t i = 0; gml_collected_function(i); i++) {
        (void)all.api.enable_callback(1, subscriber, SANITIZER_DOMAIN_DRIVER_API,
                                      gml_collected_function(i));
    }
    return NULL;
}
