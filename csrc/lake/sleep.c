/* Putting a lake to sleep and waking it: what is saved, where, and in which order. */
#include "base/clock.h"
#include "gmlake_sleep.h"
#include "lake/lake.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NO_FILE = -1, RING_BUFFERS = 2 };

static const uint64_t RING_BYTES = UINT64_C(32) << 20; /* of each buffer between device and disk */

/* A block's content. */
typedef struct saved {
    gml_address address;
    uint64_t size_bytes;
    uint64_t offset_bytes; /* in the memory or file */
} saved;

/* What a lake keeps for sleeping. */
typedef struct gml_nap {
    gml_backup backup;
    saved *blocks; /* in address order */
    size_t count;
    uint64_t room_bytes; /* that they take side by side */
    void *memory; /* page-locked; kept, since to make it takes longer than to fill it */
    uint64_t memory_bytes;
    int file;
} gml_nap;

/* ---- what is saved --------------------------------------------------------------------------- */

static int
by_address(const void *left, const void *right)
{
    gml_address a = ((const saved *)left)->address, b = ((const saved *)right)->address;
    return (a > b) - (a < b);
}

/* Lists the live blocks, side by side. */
static gml_status
list_blocks(gml_lake *lake, gml_nap *nap)
{
    size_t room = lake->blocks.count;
    saved *blocks = malloc((room ? room : 1) * sizeof *blocks);
    if (!blocks) {
        return gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                               "no host memory for a list of "
                               "what sleeps");
    }
    size_t count = 0;
    for (size_t i = 0; i < lake->blocks.capacity; i++) {
        const gml_block *block = lake->blocks.slots[i].value;
        if (lake->blocks.slots[i].key) {
            blocks[count++] = (saved){block->address, block->requested_bytes, 0};
        }
    }
    qsort(blocks, count, sizeof *blocks, by_address);
    uint64_t offset_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        blocks[i].offset_bytes = offset_bytes;
        offset_bytes += (blocks[i].size_bytes + 511) & ~UINT64_C(511);
    }
    free(nap->blocks);
    nap->blocks = blocks;
    nap->count = count;
    nap->room_bytes = offset_bytes;
    return GML_OK;
}

/* What was freed meanwhile does not come back: it may not be mapped any more. */
static void
drop_freed(const gml_lake *lake, gml_nap *nap)
{
    size_t left = 0;
    for (size_t i = 0; i < nap->count; i++) {
        if (gml_map_find(&lake->blocks, nap->blocks[i].address)) {
            nap->blocks[left++] = nap->blocks[i];
        }
    }
    nap->count = left;
}

static uint64_t
sum_bytes(const gml_nap *nap)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < nap->count; i++) {
        sum += nap->blocks[i].size_bytes;
    }
    return sum;
}

/* ---- the host's memory ----------------------------------------------------------------------- */

static gml_status
have_memory(gml_lake *lake, gml_nap *nap, uint64_t size_bytes)
{
    if (nap->memory && nap->memory_bytes >= size_bytes) {
        return GML_OK;
    }
    if (nap->memory) {
        gml_status status = gml_driver_host_free(lake->driver, nap->memory);
        if (status != GML_OK) {
            return status;
        }
        nap->memory = NULL;
    }
    gml_status status =
        size_bytes ? gml_driver_host_malloc(lake->driver, size_bytes, &nap->memory) : GML_OK;
    nap->memory_bytes = status == GML_OK ? size_bytes : 0;
    return status;
}

/* The stream of the copies: of this thread, so that nobody else's work waits for them. */
static gml_stream
stream_of(const gml_lake *lake)
{
    return lake->driver->per_thread_stream;
}

/* All copies at once, then one wait. */
static gml_status
copy_all(gml_lake *lake, gml_nap *nap, bool is_out)
{
    char *memory = nap->memory;
    gml_driver *driver = lake->driver;
    gml_status status = GML_OK;
    for (size_t i = 0; i < nap->count && status == GML_OK; i++) {
        const saved *at = &nap->blocks[i];
        char *host = memory + at->offset_bytes;
        status =
            is_out ? gml_driver_copy_out(driver, host, at->address, at->size_bytes, stream_of(lake))
                   : gml_driver_copy_in(driver, at->address, host, at->size_bytes, stream_of(lake));
    }
    /* Also after a failure: what is queued still uses both ends. */
    char reason[GML_REASON_BYTES];
    memcpy(reason, driver->reason, sizeof reason);
    gml_status waited = gml_driver_stream_synchronize(driver, stream_of(lake));
    if (status != GML_OK) {
        memcpy(driver->reason, reason, sizeof reason);
        return status;
    }
    return waited;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static gml_status
fail_file(gml_lake *lake, const char *what, const char *where)
{
    return gml_driver_fail(lake->driver, GML_DRIVER_FAILED, "%s %.120s: %s", what, where,
                           strerror(errno));
}

static gml_status
open_file(gml_lake *lake, gml_nap *nap, const char *folder)
{
    const char *temporary = getenv("TMPDIR");
    const char *where = folder ? folder : temporary && temporary[0] ? temporary : "/tmp";
    nap->file = open(where, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return nap->file >= 0 ? GML_OK
                          : fail_file(lake, "what sleeps cannot be saved to a file in", where);
}

static void
close_file(gml_nap *nap)
{
    if (nap->file != NO_FILE) {
        (void)close(nap->file);
        nap->file = NO_FILE;
    }
}

/* Moves all bytes, whatever the system does at once. */
static gml_status
move_file(gml_lake *lake, const gml_nap *nap, bool is_out, char *bytes, uint64_t size_bytes,
          uint64_t offset_bytes)
{
    while (size_bytes) {
        ssize_t moved = is_out ? pwrite(nap->file, bytes, (size_t)size_bytes, (off_t)offset_bytes)
                               : pread(nap->file, bytes, (size_t)size_bytes, (off_t)offset_bytes);
        if (moved <= 0) {
            if (moved < 0 && errno == EINTR) {
                continue;
            }
            errno = moved < 0 ? errno : EIO;
            return fail_file(lake, "what sleeps:", is_out ? "writing" : "reading");
        }
        bytes += moved;
        size_bytes -= (uint64_t)moved;
        offset_bytes += (uint64_t)moved;
    }
    return GML_OK;
}

/* A piece of a block, as large as a buffer at most. */
typedef struct piece {
    size_t block;
    uint64_t begin_bytes; /* in the block */
    uint64_t size_bytes;
} piece;

/* The piece after `at`; false at the end. */
static bool
next_piece(const gml_nap *nap, piece *at)
{
    at->begin_bytes += at->size_bytes;
    while (at->block < nap->count && at->begin_bytes == nap->blocks[at->block].size_bytes) {
        at->block++;
        at->begin_bytes = 0;
    }
    if (at->block == nap->count) {
        return false;
    }
    uint64_t left_bytes = nap->blocks[at->block].size_bytes - at->begin_bytes;
    at->size_bytes = left_bytes < RING_BYTES ? left_bytes : RING_BYTES;
    return true;
}

static gml_status
copy_piece(gml_lake *lake, const gml_nap *nap, bool is_out, const piece *at, char *buffer)
{
    gml_address address = nap->blocks[at->block].address + at->begin_bytes;
    return is_out
               ? gml_driver_copy_out(lake->driver, buffer, address, at->size_bytes, stream_of(lake))
               : gml_driver_copy_in(lake->driver, address, buffer, at->size_bytes, stream_of(lake));
}

/* Between device and file, by two buffers: the device copies one while the file has the other. */
static gml_status
move_all(gml_lake *lake, gml_nap *nap, bool is_out)
{
    char *ring = nap->memory;
    piece at = {0}, before = {0};
    bool has_before = false;
    size_t turn = 0;
    gml_status status = GML_OK;
    while (status == GML_OK && next_piece(nap, &at)) {
        char *buffer = ring + turn * RING_BYTES;
        char *other = ring + (1 - turn) * RING_BYTES;
        uint64_t offset_bytes = nap->blocks[at.block].offset_bytes + at.begin_bytes;
        if (!is_out) {
            status = move_file(lake, nap, false, buffer, at.size_bytes, offset_bytes);
        }
        if (status == GML_OK) {
            status = gml_driver_stream_synchronize(lake->driver, stream_of(lake));
        }
        if (status == GML_OK) {
            status = copy_piece(lake, nap, is_out, &at, buffer);
        }
        if (status == GML_OK && is_out && has_before) {
            status = move_file(lake, nap, true, other, before.size_bytes,
                               nap->blocks[before.block].offset_bytes + before.begin_bytes);
        }
        before = at;
        has_before = true;
        turn = 1 - turn;
    }
    gml_status waited = gml_driver_stream_synchronize(lake->driver, stream_of(lake));
    status = status == GML_OK ? waited : status;
    if (status == GML_OK && is_out && has_before) {
        status = move_file(lake, nap, true, ring + (1 - turn) * RING_BYTES, before.size_bytes,
                           nap->blocks[before.block].offset_bytes + before.begin_bytes);
    }
    return status;
}

/* ---- both ------------------------------------------------------------------------------------ */

static gml_status
save(gml_lake *lake, gml_nap *nap, const char *folder)
{
    if (nap->backup == GML_BACKUP_HOST) {
        gml_status status = have_memory(lake, nap, nap->room_bytes);
        return status == GML_OK ? copy_all(lake, nap, true) : status;
    }
    gml_status status = open_file(lake, nap, folder);
    if (status == GML_OK) {
        status = have_memory(lake, nap, RING_BUFFERS * RING_BYTES);
    }
    return status == GML_OK ? move_all(lake, nap, true) : status;
}

static gml_status
restore(gml_lake *lake, gml_nap *nap)
{
    switch (nap->backup) {
    case GML_BACKUP_HOST:
        return copy_all(lake, nap, false);
    case GML_BACKUP_DISK:
        return move_all(lake, nap, false);
    default:
        return GML_OK;
    }
}

static void
forget_blocks(gml_nap *nap)
{
    free(nap->blocks);
    nap->blocks = NULL;
    nap->count = 0;
    close_file(nap);
}

static gml_status
sleep_locked(gml_lake *lake, gml_backup backup, const char *folder, gml_sleep_report *out)
{
    gml_driver *driver = lake->driver;
    uint64_t idle_bytes = 0;
    if (!lake->nap) {
        lake->nap = calloc(1, sizeof *lake->nap);
        if (!lake->nap) {
            return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for sleeping");
        }
        lake->nap->file = NO_FILE;
    }
    gml_nap *nap = lake->nap;
    forget_blocks(nap);
    nap->backup = backup;
    gml_status status = gml_driver_device_synchronize(driver);
    if (status == GML_OK) {
        status = gml_lake_trim_locked(lake, &idle_bytes);
    }
    if (status == GML_OK && backup != GML_BACKUP_NONE) {
        status = list_blocks(lake, nap);
        uint64_t began_ns = gml_clock_ns();
        if (status == GML_OK) {
            status = save(lake, nap, folder);
        }
        out->copy_ns = gml_clock_ns() - began_ns;
        out->saved_bytes = sum_bytes(nap);
    }
    if (status == GML_OK) {
        status = gml_sleeper_sleep(lake->sleeper, driver, &out->released_bytes, &out->kept_bytes);
        out->released_bytes += idle_bytes;
    }
    if (status != GML_OK && !gml_sleeper_is_asleep(lake->sleeper)) {
        forget_blocks(nap);
    }
    return status;
}

static gml_status
wake_locked(gml_lake *lake, gml_sleep_report *out)
{
    gml_nap *nap = lake->nap;
    gml_status status = gml_sleeper_wake(lake->sleeper, lake->driver);
    if (status != GML_OK) {
        return status;
    }
    drop_freed(lake, nap);
    uint64_t began_ns = gml_clock_ns();
    status = restore(lake, nap);
    out->copy_ns = gml_clock_ns() - began_ns;
    if (status != GML_OK) {
        char reason[GML_REASON_BYTES];
        uint64_t released_bytes, kept_bytes;
        memcpy(reason, lake->driver->reason, sizeof reason);
        /* What was saved still is. */
        (void)gml_sleeper_sleep(lake->sleeper, lake->driver, &released_bytes, &kept_bytes);
        memcpy(lake->driver->reason, reason, sizeof reason);
        return status;
    }
    out->saved_bytes = sum_bytes(nap);
    out->released_bytes = lake->driver->held_bytes;
    forget_blocks(nap);
    return GML_OK;
}

/* Whether the lake can do what is asked while it is in that state. */
static gml_status
check_state(gml_lake *lake, bool wants_awake)
{
    if (!lake->sleeper) {
        return gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                               "this lake cannot sleep: open it with can_sleep");
    }
    if (gml_sleeper_is_asleep(lake->sleeper) == wants_awake) {
        return gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT,
                               wants_awake ? "it is asleep already" : "it is awake already");
    }
    return lake->driver->is_frozen
               ? gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                 "nothing can sleep or wake while a graph is being captured")
               : GML_OK;
}

/* ---- the interface --------------------------------------------------------------------------- */

gml_status
gml_lake_sleep(gml_lake *lake, gml_backup backup, const char *folder, gml_sleep_report *out)
{
    gml_sleep_report report = {0};
    uint64_t began_ns = gml_clock_ns();
    pthread_mutex_lock(&lake->lock);
    gml_status status = check_state(lake, true);
    if (status == GML_OK) {
        status = sleep_locked(lake, backup, folder, &report);
        gml_lake_show(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    report.time_ns = gml_clock_ns() - began_ns;
    if (status == GML_OK) {
        *out = report;
    }
    return status;
}

gml_status
gml_lake_wake(gml_lake *lake, gml_sleep_report *out)
{
    gml_sleep_report report = {0};
    uint64_t began_ns = gml_clock_ns();
    pthread_mutex_lock(&lake->lock);
    gml_status status = check_state(lake, false);
    if (status == GML_OK) {
        status = wake_locked(lake, &report);
        gml_lake_show(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    report.time_ns = gml_clock_ns() - began_ns;
    if (status == GML_OK) {
        *out = report;
    }
    return status;
}

bool
gml_lake_is_asleep(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    bool is_asleep = lake->sleeper && gml_sleeper_is_asleep(lake->sleeper);
    pthread_mutex_unlock(&lake->lock);
    return is_asleep;
}

gml_status
gml_lake_saved(gml_lake *lake, gml_address address, uint64_t size_bytes, const void **out)
{
    gml_status status = GML_UNKNOWN_ADDRESS;
    pthread_mutex_lock(&lake->lock);
    const gml_nap *nap = lake->nap;
    bool is_saved = nap && nap->backup == GML_BACKUP_HOST;
    for (size_t i = 0; is_saved && i < nap->count && status != GML_OK; i++) {
        const saved *at = &nap->blocks[i];
        if (address >= at->address && address - at->address <= at->size_bytes &&
            size_bytes <= at->size_bytes - (address - at->address)) {
            *out = (const char *)nap->memory + at->offset_bytes + (address - at->address);
            status = GML_OK;
        }
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_forget_saved(gml_lake *lake)
{
    gml_status status = GML_OK;
    pthread_mutex_lock(&lake->lock);
    gml_nap *nap = lake->nap;
    if (nap && nap->memory && nap->count == 0) {
        status = gml_driver_host_free(lake->driver, nap->memory);
        nap->memory = status == GML_OK ? NULL : nap->memory;
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

void
gml_nap_end(gml_lake *lake)
{
    gml_nap *nap = lake->nap;
    if (!nap) {
        return;
    }
    forget_blocks(nap);
    if (nap->memory) {
        (void)gml_driver_host_free(lake->driver, nap->memory);
    }
    free(nap);
    lake->nap = NULL;
}
