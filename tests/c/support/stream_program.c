/* The model behind the program: what lives where, what is queued, which streams there are. */
#include "support/stream_program.h"

#include "driver/streams.h"
#include "gmlake_plan.h"
#include "lake/lake.h"
#include "support/call_watch.h"
#include "support/check.h"
#include "support/stamp.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum {
    MOST_STREAMS = 16,
    MOST_BLOCKS = 96,
    MOST_JOBS = 2048,
    MOST_OLD = 8,
    CARRIED_BLOCKS = 5,
    STRIDE_BYTES = 1 << 20,
    CHECK_EVERY = 256,
    LAST_TRIMS = 200
};

typedef struct stream_slot {
    gml_stream handle;
    bool is_capturing, is_distrusted;
    bool is_user; /* blocks of others were recorded on it, so it must exist until they are freed */
} stream_slot;

typedef struct model_block {
    gml_address address;
    void *bytes; /* NULL without bytes */
    uint64_t size_bytes, seed;
    gml_stream stream;
    bool is_orphan; /* its stream is gone */
    bool is_stamped;
} model_block;

/* Work in a queue: it carries what it needs, since its block may be freed before it runs. */
typedef struct job {
    stream_program *program;
    struct job *next; /* idle */
    void *bytes;
    uint64_t size_bytes, seed;
} job;

struct stream_program {
    stream_program_config config;
    gml_lake *lake;
    gml_streams *queues;
    check_random random; /* what may repeat itself */
    check_random noise;  /* what does not */
    stream_slot streams[MOST_STREAMS];
    size_t stream_count;
    gml_stream old_streams[MOST_OLD]; /* gone, with work that is still queued */
    size_t old_count;
    gml_stream next_handle;
    model_block blocks[MOST_BLOCKS];
    size_t block_count;
    uint64_t live_bytes;
    job jobs[MOST_JOBS];
    job *idle_jobs;
    stream_slot *capturing; /* NULL: none */
    gml_pool_id graph;
    bool has_graph_pool; /* for what `capturing` captures */
    uint64_t frozen_event_calls;
    stream_program_sums sums;
    char fault[320];
};

static void
find_fault(stream_program *self, const char *what)
{
    if (!self->fault[0]) {
        snprintf(self->fault, sizeof self->fault, "operation %" PRIu64 ": %s",
                 self->sums.operations, what);
    }
}

static void
find_lake_fault(stream_program *self, const char *what, gml_status status)
{
    char reason[160], text[280];
    gml_lake_reason(self->lake, reason, sizeof reason);
    snprintf(text, sizeof text, "%s: %s: %s", what, gml_status_text(status), reason);
    find_fault(self, text);
}

/* Notes the answer of a lake; whether it is GML_OK. */
static bool
accept(stream_program *self, const char *what, gml_status status)
{
    bool is_captured = self->capturing && !self->has_graph_pool;
    if (status == GML_DRIVER_FAILED && self->config.may_fail) {
        self->sums.failed++;
    } else if (status == GML_OUT_OF_MEMORY) {
        self->sums.refused++;
    } else if (status != GML_OK && !(status == GML_MISUSE && is_captured)) {
        find_lake_fault(self, what, status);
    }
    return status == GML_OK;
}

/* ---- queues ------------------------------------------------------------------------------------
 */

static void
end_job(job *done)
{
    done->next = done->program->idle_jobs;
    done->program->idle_jobs = done;
}

static void
write_stamp(void *context)
{
    job *self = context;
    if (self->bytes) {
        stamp_write(self->bytes, self->size_bytes, self->seed, STRIDE_BYTES);
    }
    end_job(self);
}

static void
look_for_stamp(void *context)
{
    job *self = context;
    if (self->bytes) {
        self->program->sums.checks++;
        if (!stamp_holds(self->bytes, self->size_bytes, self->seed, STRIDE_BYTES)) {
            find_fault(self->program, "a stream found the bytes of another in its block");
        }
    }
    end_job(self);
}

static void
run_queues(stream_program *self)
{
    (void)gml_streams_set_manual(self->queues, false);
    (void)gml_streams_set_manual(self->queues, true);
}

static void
queue_job(stream_program *self, const model_block *block, gml_stream stream, gml_stream_work work)
{
    if (!self->idle_jobs) {
        run_queues(self);
    }
    job *added = self->idle_jobs;
    self->idle_jobs = added->next;
    *added = (job){.program = self,
                   .bytes = block->bytes,
                   .size_bytes = block->size_bytes,
                   .seed = block->seed};
    if (gml_streams_enqueue(self->queues, stream, work, added) != GML_OK) {
        find_fault(self, "the program could not queue work");
        end_job(added);
    }
}

/* ---- streams -----------------------------------------------------------------------------------
 */

static stream_slot *
pick_stream(stream_program *self)
{
    return &self->streams[check_below(&self->random, self->stream_count)];
}

/* A stream that does not capture; NULL if the one drawn does. */
static stream_slot *
pick_free_stream(stream_program *self)
{
    stream_slot *slot = pick_stream(self);
    return slot->is_capturing ? NULL : slot;
}

static bool
is_capturing(const stream_program *self, gml_stream stream)
{
    return self->capturing && self->capturing->handle == stream;
}

/* Handles below this one name no stream that could be destroyed. */
enum { PER_THREAD_STREAM = 2, FIRST_HANDLE = 16 };

static void
open_stream(stream_program *self, stream_slot *slot)
{
    *slot = (stream_slot){.handle = self->next_handle++};
}

static bool
is_built_in(const stream_slot *slot)
{
    return slot->handle < FIRST_HANDLE;
}

/* The stream of the slot is gone, and another comes in its place: sometimes of the same handle. */
static void
replace_stream(stream_program *self, stream_slot *slot, bool may_be_same)
{
    gml_stream handle = slot->handle;
    for (size_t i = 0; i < self->block_count; i++) {
        self->blocks[i].is_orphan |= self->blocks[i].stream == handle;
    }
    if (may_be_same && check_below(&self->noise, 3) == 0) {
        *slot = (stream_slot){.handle = handle};
        return;
    }
    self->old_streams[self->old_count++ % MOST_OLD] = handle;
    call_watch_end_stream(handle);
    open_stream(self, slot);
}

static void
forget_stream(stream_program *self)
{
    stream_slot *slot = pick_free_stream(self);
    if (slot && !slot->is_distrusted && !is_built_in(slot)) {
        (void)accept(self, "forget_stream", gml_lake_forget_stream(self->lake, slot->handle));
        replace_stream(self, slot, true);
    }
}

/* Either a word of warning, or, where there was one before, the end. */
static void
distrust_stream(stream_program *self)
{
    stream_slot *slot = pick_free_stream(self);
    if (!slot || is_built_in(slot) || slot->is_user) {
        return;
    }
    if (slot->is_distrusted) {
        replace_stream(self, slot, false);
    } else {
        (void)accept(self, "distrust_stream", gml_lake_distrust_stream(self->lake, slot->handle));
        slot->is_distrusted = true;
    }
}

static void
add_stream(stream_program *self)
{
    if (self->stream_count < MOST_STREAMS) {
        open_stream(self, &self->streams[self->stream_count++]);
    }
}

static bool
make_wait(stream_program *self, gml_stream later, gml_stream earlier)
{
    gml_driver *driver = self->lake->driver;
    gml_event event = 0;
    if (gml_driver_event_create(driver, &event) != GML_OK) {
        return false;
    }
    bool is_done = gml_driver_event_record(driver, event, earlier) == GML_OK &&
                   gml_driver_stream_wait(driver, later, event) == GML_OK;
    for (int i = 0; i < 100 && gml_driver_event_destroy(driver, event) != GML_OK; i++) {
        /* The program's own call failed on purpose; it is not under test. */
    }
    return is_done;
}

/* The program orders two streams by itself, and says so. While a graph is captured the lake's
 * driver takes no such calls. */
static void
order_streams(stream_program *self)
{
    const stream_slot *later = pick_free_stream(self);
    const stream_slot *earlier = pick_free_stream(self);
    if (later && earlier && later != earlier && !self->lake->driver->is_frozen &&
        make_wait(self, later->handle, earlier->handle)) {
        (void)accept(self, "order_streams",
                     gml_lake_order_streams(self->lake, later->handle, earlier->handle));
    }
}

static void
advance(stream_program *self)
{
    gml_stream stream = self->streams[check_below(&self->noise, self->stream_count)].handle;
    if (self->old_count && check_below(&self->noise, 8) == 0) {
        size_t known = self->old_count < MOST_OLD ? self->old_count : MOST_OLD;
        stream = self->old_streams[check_below(&self->noise, known)];
    }
    uint64_t count = check_below(&self->noise, 16) ? check_below(&self->noise, 8) : UINT64_MAX;
    (void)gml_streams_advance(self->queues, stream, count, NULL);
}

/* ---- captures ----------------------------------------------------------------------------------
 */

static void
begin_capture(stream_program *self)
{
    stream_slot *slot = pick_stream(self);
    if (slot->is_distrusted) {
        return;
    }
    self->capturing = slot;
    slot->is_capturing = true;
    (void)gml_streams_set_capturing(self->queues, slot->handle, true);
    self->has_graph_pool = check_below(&self->noise, 4) != 0;
    if (self->has_graph_pool) {
        self->graph = (gml_pool_id){1, 1 + check_below(&self->noise, 4)};
        (void)accept(self, "begin_pool", gml_lake_begin_pool(self->lake, self->graph));
        self->frozen_event_calls = call_watch_event_calls(self->lake);
    }
}

static void
end_capture(stream_program *self)
{
    if (self->has_graph_pool) {
        if (call_watch_event_calls(self->lake) != self->frozen_event_calls) {
            find_fault(self, "an event call was made while a graph was captured");
        }
        (void)accept(self, "end_pool", gml_lake_end_pool(self->lake, self->graph));
        (void)accept(self, "release_pool", gml_lake_release_pool(self->lake, self->graph));
    }
    (void)gml_streams_set_capturing(self->queues, self->capturing->handle, false);
    self->capturing->is_capturing = false;
    self->capturing = NULL;
    self->has_graph_pool = false;
}

/* ---- blocks ------------------------------------------------------------------------------------
 */

/* 512 B and up, mostly below 1 MiB; often one of a few sizes, which is what programs do. */
static uint64_t
draw_size(stream_program *self)
{
    static const uint64_t usual[] = {MIB / 2,  2 * MIB,  3 * MIB + 512,   8 * MIB,
                                     10 * MIB, 16 * MIB, 21 * MIB + 4096, 32 * MIB};
    uint64_t kind = check_below(&self->random, 100);
    uint64_t size_bytes = 0;
    if (kind < 25) {
        size_bytes = 1 + check_below(&self->random, 16384);
    } else if (kind < 45) {
        size_bytes = 1 + check_below(&self->random, MIB);
    } else if (kind < 80) {
        size_bytes = usual[check_below(&self->random, sizeof usual / sizeof *usual)];
    } else {
        size_bytes = MIB + check_below(&self->random, kind < 95 ? 8 * MIB : 63 * MIB);
    }
    return size_bytes < self->config.largest_bytes ? size_bytes : self->config.largest_bytes;
}

static void
check_apart(stream_program *self, const model_block *added)
{
    for (size_t i = 0; i < self->block_count; i++) {
        const model_block *other = &self->blocks[i];
        if (added->address < other->address + other->size_bytes &&
            other->address < added->address + added->size_bytes) {
            find_fault(self, "two live blocks share addresses");
        }
    }
}

static void
allocate(stream_program *self)
{
    model_block added = {.size_bytes = draw_size(self), .seed = check_next(&self->noise)};
    added.stream = pick_stream(self)->handle;
    if (self->live_bytes + added.size_bytes > self->config.live_bytes) {
        return;
    }
    self->sums.allocations++;
    gml_status status =
        gml_lake_allocate(self->lake, added.size_bytes, added.stream, &added.address);
    if (!accept(self, "allocate", status)) {
        return;
    }
    if (strcmp(self->config.lake->driver, "host") == 0) {
        (void)accept(self, "bytes", gml_lake_bytes(self->lake, added.address, &added.bytes));
    }
    check_apart(self, &added);
    self->live_bytes += added.size_bytes;
    self->blocks[self->block_count++] = added;
}

/* The first work on a block stamps it, all further work looks for the stamp. */
static void
work_on(stream_program *self, model_block *block)
{
    if (block->is_orphan || is_capturing(self, block->stream)) {
        return;
    }
    queue_job(self, block, block->stream, block->is_stamped ? look_for_stamp : write_stamp);
    block->is_stamped = true;
}

static model_block *
pick_block(stream_program *self)
{
    return &self->blocks[check_below(&self->random, self->block_count)];
}

/* Another stream uses the block, after the work that is queued on the block's own by now. The
 * order is the program's own affair: the lake's driver does not see it. */
static void
use_elsewhere(stream_program *self)
{
    const model_block *block = pick_block(self);
    stream_slot *user = pick_free_stream(self);
    gml_event event = 0;
    if (!user || user->is_distrusted || user->handle == block->stream || block->is_orphan ||
        !block->is_stamped || is_capturing(self, block->stream) ||
        gml_streams_event_create(self->queues, &event) != GML_OK) {
        return;
    }
    if (gml_streams_event_record(self->queues, event, block->stream) != GML_OK ||
        gml_streams_wait(self->queues, user->handle, event) != GML_OK) {
        find_fault(self, "the program could not order its own streams");
    }
    (void)gml_streams_event_destroy(self->queues, event);
    queue_job(self, block, user->handle, look_for_stamp);
    user->is_user = true;
    (void)accept(self, "record_stream",
                 gml_lake_record_stream(self->lake, block->address, user->handle));
}

static void
release(stream_program *self, size_t at)
{
    model_block *block = &self->blocks[at];
    if (check_below(&self->random, 2)) {
        work_on(self, block);
    }
    gml_address address = block->address;
    self->live_bytes -= block->size_bytes;
    *block = self->blocks[--self->block_count];
    gml_status status = gml_lake_free(self->lake, address);
    if (status != GML_OK) {
        find_lake_fault(self, "free", status);
    }
}

/* ---- operations --------------------------------------------------------------------------------
 */

static void
set_limit(stream_program *self)
{
    uint64_t capacity_bytes = self->config.lake->capacity_bytes;
    uint64_t limit_bytes =
        check_below(&self->noise, 3) ? 0 : capacity_bytes / (1 + check_below(&self->noise, 4));
    (void)accept(self, "set_limit", gml_lake_set_limit(self->lake, limit_bytes));
}

/* What happens seldom, and at another place in each repetition. */
static void
disturb(stream_program *self)
{
    switch (check_below(&self->noise, 10)) {
    case 0:
        (void)accept(self, "trim", gml_lake_trim(self->lake, NULL));
        break;
    case 1:
    case 2:
        forget_stream(self);
        break;
    case 3:
        distrust_stream(self);
        break;
    case 4:
        add_stream(self);
        break;
    case 5:
        set_limit(self);
        break;
    case 6:
    case 7:
        if (self->config.has_captures && !self->capturing) {
            begin_capture(self);
        }
        break;
    case 8:
        run_queues(self);
        break;
    default:
        order_streams(self);
        break;
    }
}

static void
begin_step(stream_program *self)
{
    while (self->block_count > CARRIED_BLOCKS) {
        release(self, self->block_count - 1);
    }
    (void)accept(self, "mark", gml_lake_mark(self->lake));
    self->random = (check_random){self->config.seed};
}

static void
operate(stream_program *self)
{
    uint64_t steps_of = self->config.steps_of;
    if (steps_of && self->sums.operations % steps_of == 0) {
        begin_step(self);
    }
    if (check_below(&self->noise, steps_of ? 300 : 60) == 0) {
        disturb(self);
    }
    if (self->capturing && check_below(&self->noise, 40) == 0) {
        end_capture(self);
    }
    uint64_t kind = check_below(&self->random, 100);
    if (!self->block_count || (kind < 42 && self->block_count < MOST_BLOCKS)) {
        allocate(self);
    } else if (kind < 62) {
        work_on(self, pick_block(self));
    } else if (kind < 68) {
        use_elsewhere(self);
    } else {
        release(self, (size_t)check_below(&self->random, self->block_count));
    }
    advance(self);
}

/* Everything that has to hold after any operation. */
static void
look(stream_program *self)
{
    if (self->lake->driver->held_bytes > self->config.lake->capacity_bytes) {
        find_fault(self, "more is held than the capacity");
    }
    if (call_watch_fault()[0]) {
        find_fault(self, call_watch_fault());
    }
    if (self->sums.operations % CHECK_EVERY) {
        return;
    }
    gml_status status = gml_lake_check(self->lake);
    if (status != GML_OK) {
        find_lake_fault(self, "check", status);
    }
    gml_stats stats;
    (void)accept(self, "stats", gml_lake_stats(self->lake, &stats));
    if (stats.reserved_bytes != self->lake->driver->held_bytes ||
        stats.requested_bytes < self->live_bytes || stats.reserved_bytes < stats.live_bytes) {
        find_fault(self, "the counters contradict what is held and lives");
    }
}

void
stream_program_run(stream_program *self, uint64_t operations)
{
    for (uint64_t i = 0; i < operations && !self->fault[0]; i++) {
        operate(self);
        look(self);
        self->sums.operations++;
    }
}

/* ---- beginning and end -------------------------------------------------------------------------
 */

/* The default stream, often the one of each thread, and streams that come and go. */
static void
open_first_streams(stream_program *self)
{
    self->next_handle = FIRST_HANDLE;
    self->stream_count = 1;
    if (self->config.streams > 2 && check_below(&self->noise, 3) == 0) {
        self->lake->driver->per_thread_stream = PER_THREAD_STREAM;
        self->streams[self->stream_count++].handle = PER_THREAD_STREAM;
    }
    while (self->stream_count < self->config.streams) {
        add_stream(self);
    }
}

gml_status
stream_program_open(const stream_program_config *config, stream_program **out)
{
    stream_program *self = calloc(1, sizeof *self);
    if (!self) {
        return GML_NO_HOST_MEMORY;
    }
    gml_status status = gml_lake_open(config->lake, &self->lake, NULL, 0);
    if (status != GML_OK) {
        free(self);
        return status;
    }
    self->config = *config;
    self->queues = gml_driver_streams(self->lake->driver);
    (void)gml_streams_set_manual(self->queues, true);
    self->random = (check_random){config->seed};
    self->noise = (check_random){config->seed + UINT64_C(0x51ed270b9)};
    for (size_t i = 0; i < MOST_JOBS; i++) {
        self->jobs[i].program = self;
        end_job(&self->jobs[i]);
    }
    open_first_streams(self);
    call_watch_begin(self->lake);
    *out = self;
    return GML_OK;
}

/* What is idle can be given back: at once, or after some tries where calls fail. */
static void
give_back(stream_program *self)
{
    uint64_t tries = self->config.may_fail ? LAST_TRIMS : 1;
    for (uint64_t i = 0; i < tries && !self->fault[0]; i++) {
        (void)accept(self, "the last trim", gml_lake_trim(self->lake, NULL));
        if (self->lake->driver->held_bytes == 0) {
            break;
        }
    }
    if (self->lake->driver->held_bytes) {
        find_fault(self, "memory that nobody uses does not go back");
    }
    gml_status status = gml_lake_check(self->lake);
    if (status != GML_OK) {
        find_lake_fault(self, "the last check", status);
    }
}

static void
count_last(stream_program *self)
{
    gml_stats stats;
    if (gml_lake_stats(self->lake, &stats) == GML_OK) {
        self->sums.waits = stats.cross_stream_waits;
        self->sums.borrowed_bytes = stats.borrowed_bytes;
        self->sums.planned = stats.states[GML_STATE_PLAN];
    }
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        self->sums.driver_calls += self->lake->driver->calls[i];
    }
}

/* After a fault, work that is still queued may name memory that is not there any more. */
static void
disarm_jobs(stream_program *self)
{
    for (size_t i = 0; i < MOST_JOBS; i++) {
        self->jobs[i].bytes = NULL;
    }
}

void
stream_program_close(stream_program *self)
{
    if (self->capturing) {
        end_capture(self);
    }
    while (self->block_count) {
        release(self, self->block_count - 1);
    }
    if (self->fault[0]) {
        disarm_jobs(self);
    } else {
        run_queues(self);
        give_back(self);
    }
    count_last(self);
    gml_status status = gml_lake_close(self->lake);
    if (status != GML_OK && !self->config.may_fail) {
        find_fault(self, "the lake did not close well");
    }
    self->lake = NULL;
    if (status == GML_OK && !self->fault[0] && call_watch_leftovers()) {
        find_fault(self, "handles, mappings or events were left behind");
    }
}

const char *
stream_program_fault(const stream_program *self)
{
    return self->fault;
}

stream_program_sums
stream_program_count(const stream_program *self)
{
    return self->sums;
}

void
stream_program_free(stream_program *self)
{
    free(self);
}
