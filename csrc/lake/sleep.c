/* Putting a lake to sleep and waking it: in which order memory goes and comes, and what is undone.
 */
#include "base/clock.h"
#include "lake/nap.h"

#include <stdlib.h>
#include <string.h>

/* Memory goes back in parts, each while the next is copied: so many, or more of this size. */
enum { PARTS = 8 };
static const uint64_t LARGEST_PART_BYTES = UINT64_C(256) << 20;

/* ---- copies, while memory goes and comes ----------------------------------------------------- */

/* What is saved, and goes while the rest is being saved. */
typedef struct saving {
    gml_lake *lake;
    gml_nap *nap;
    gml_event event; /* after the part that is being copied */
    size_t safe;     /* the blocks before this one are saved */
    gml_sleep_report *report;
} saving;

/* Waits for the copies so far, which are those of the blocks before `end`, and gives back what lies
 * below the next block. */
static gml_status
give_part(saving *of, size_t end)
{
    gml_lake *lake = of->lake;
    gml_status status = gml_driver_event_synchronize(lake->driver, of->event);
    if (status != GML_OK || end == of->nap->count) {
        of->safe = status == GML_OK ? end : of->safe;
        return status;
    }
    of->safe = end;
    return gml_sleeper_sleep(lake->sleeper, lake->driver, of->nap->blocks[end].address, false,
                             &of->report->released_bytes, &of->report->kept_bytes);
}

/* Queues the copies of one part from `begin` on, and an event behind them; *end: the block after.
 */
static gml_status
queue_part(saving *of, size_t begin, size_t *end)
{
    uint64_t bytes = 0;
    uint64_t part_bytes = of->nap->room_bytes / PARTS;
    part_bytes = part_bytes < LARGEST_PART_BYTES ? part_bytes : LARGEST_PART_BYTES;
    gml_status status = GML_OK;
    size_t block = begin;
    for (; block < of->nap->count && bytes <= part_bytes && status == GML_OK; block++) {
        status = gml_nap_copy(of->lake, of->nap, block, true);
        bytes += of->nap->blocks[block].size_bytes;
    }
    *end = block;
    return status;
}

/* Copies all blocks out in address order. One part is copied while the one before it goes. */
static gml_status
save_and_give(saving *of)
{
    gml_driver *driver = of->lake->driver;
    gml_status status = gml_driver_event_create(driver, &of->event);
    if (status != GML_OK) {
        return status;
    }
    size_t end = 0;
    status = queue_part(of, 0, &end);
    while (status == GML_OK && of->safe < of->nap->count) {
        size_t copied = end;
        status = gml_driver_event_record(driver, of->event, gml_nap_stream(of->lake));
        if (status == GML_OK) {
            status = queue_part(of, copied, &end);
        }
        if (status == GML_OK) {
            status = give_part(of, copied);
        }
    }
    char reason[GML_REASON_BYTES];
    memcpy(reason, driver->reason, sizeof reason);
    if (status != GML_OK) {
        (void)gml_driver_stream_synchronize(driver, gml_nap_stream(of->lake)); /* what is queued */
    }
    gml_status ended = gml_driver_event_destroy(driver, of->event);
    if (status != GML_OK) {
        memcpy(driver->reason, reason, sizeof reason);
    }
    return status == GML_OK ? ended : status;
}

/* Copies back what lies in memory that is there again. */
typedef struct restoring {
    gml_lake *lake;
    const gml_nap *nap;
    size_t next; /* the first block that is not being copied yet */
    size_t end;
} restoring;

static gml_status
restore_below(void *context, gml_address below)
{
    restoring *of = context;
    gml_status status = GML_OK;
    while (status == GML_OK && of->next < of->end &&
           of->nap->blocks[of->next].address + of->nap->blocks[of->next].size_bytes <= below) {
        status = gml_nap_copy(of->lake, of->nap, of->next++, false);
    }
    return status;
}

/* ---- sleeping and waking --------------------------------------------------------------------- */

/* Everything as before, after a failure: what is gone is taken again, and the blocks before `safe`,
 * which alone can have gone, are copied back. Where even that is impossible, it is asleep, and what
 * is not saved is where it was. */
static void
undo_sleep(gml_lake *lake, gml_nap *nap, size_t safe)
{
    char reason[GML_REASON_BYTES];
    memcpy(reason, lake->driver->reason, sizeof reason);
    restoring of = {lake, nap, 0, safe};
    const gml_sleeper_watch watch = {restore_below, &of};
    if (gml_sleeper_wake(lake->sleeper, lake->driver, safe ? &watch : NULL) == GML_OK && safe) {
        (void)gml_driver_stream_synchronize(lake->driver, gml_nap_stream(lake));
    }
    if (gml_sleeper_is_asleep(lake->sleeper)) {
        nap->count = safe;
    } else {
        gml_nap_forget(nap);
    }
    memcpy(lake->driver->reason, reason, sizeof reason);
}

/* Saves on the host and gives back what is saved. */
static gml_status
sleep_on_host(gml_lake *lake, gml_nap *nap, gml_sleep_report *out)
{
    saving of = {.lake = lake, .nap = nap, .report = out};
    gml_status status = gml_nap_have_memory(lake, nap, nap->room_bytes);
    if (status == GML_OK && nap->count) {
        status = save_and_give(&of);
    }
    if (status == GML_OK) {
        status = gml_sleeper_sleep(lake->sleeper, lake->driver, UINT64_MAX, false,
                                   &out->released_bytes, &out->kept_bytes);
    }
    if (status != GML_OK) {
        undo_sleep(lake, nap, of.safe);
    }
    return status;
}

static gml_status
sleep_otherwise(gml_lake *lake, gml_nap *nap, const char *folder, gml_sleep_report *out)
{
    gml_status status = GML_OK;
    if (nap->backup == GML_BACKUP_DISK) {
        status = gml_nap_open_file(lake, nap, folder);
        if (status == GML_OK) {
            status = gml_nap_move_all(lake, nap, true);
        }
        if (status != GML_OK) {
            gml_nap_forget(nap);
            return status;
        }
    }
    status = gml_sleeper_sleep(lake->sleeper, lake->driver, UINT64_MAX, true, &out->released_bytes,
                               &out->kept_bytes);
    if (status != GML_OK) {
        undo_sleep(lake, nap, 0);
    }
    return status;
}

static gml_status
sleep_locked(gml_lake *lake, gml_backup backup, const char *folder, gml_sleep_report *out)
{
    gml_driver *driver = lake->driver;
    uint64_t idle_bytes = 0;
    if (gml_sleeper_is_exported(lake->sleeper)) {
        return gml_driver_fail(driver, GML_UNSUPPORTED,
                               "memory that was shared with another process cannot sleep");
    }
    if (!lake->nap) {
        lake->nap = calloc(1, sizeof *lake->nap);
        if (!lake->nap) {
            return gml_driver_fail(driver, GML_NO_HOST_MEMORY, "no host memory for sleeping");
        }
        lake->nap->file = GML_NO_FILE;
    }
    gml_nap *nap = lake->nap;
    gml_nap_forget(nap);
    nap->backup = backup;
    gml_status status = gml_driver_device_synchronize(driver);
    if (status == GML_OK) {
        status = gml_lake_trim_locked(lake, &idle_bytes);
    }
    if (status == GML_OK && backup != GML_BACKUP_NONE) {
        status = gml_nap_list(lake, nap);
    }
    if (status == GML_OK) {
        out->saved_bytes = gml_nap_bytes(nap);
        status = backup == GML_BACKUP_HOST ? sleep_on_host(lake, nap, out)
                                           : sleep_otherwise(lake, nap, folder, out);
        out->released_bytes += idle_bytes;
    }
    return status;
}

static gml_status
wake_locked(gml_lake *lake, gml_sleep_report *out)
{
    gml_nap *nap = lake->nap;
    gml_nap_drop_freed(lake, nap);
    restoring of = {lake, nap, 0, nap->backup == GML_BACKUP_HOST ? nap->count : 0};
    const gml_sleeper_watch watch = {restore_below, &of};
    gml_status status = gml_sleeper_wake(lake->sleeper, lake->driver, &watch);
    if (status != GML_OK) {
        return status;
    }
    status = nap->backup == GML_BACKUP_DISK
                 ? gml_nap_move_all(lake, nap, false)
                 : gml_driver_stream_synchronize(lake->driver, gml_nap_stream(lake));
    if (status != GML_OK) {
        char reason[GML_REASON_BYTES];
        uint64_t released_bytes = 0, kept_bytes = 0;
        memcpy(reason, lake->driver->reason, sizeof reason);
        /* What was saved still is. */
        (void)gml_driver_device_synchronize(lake->driver);
        (void)gml_sleeper_sleep(lake->sleeper, lake->driver, UINT64_MAX, true, &released_bytes,
                                &kept_bytes);
        memcpy(lake->driver->reason, reason, sizeof reason);
        return status;
    }
    out->saved_bytes = gml_nap_bytes(nap);
    out->released_bytes = lake->driver->held_bytes;
    if (nap->backup != GML_BACKUP_HOST) {
        gml_nap_forget(nap);
    }
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
        const gml_saved *at = &nap->blocks[i];
        if (address >= at->address && address - at->address <= at->size_bytes &&
            size_bytes <= at->size_bytes - (address - at->address) && gml_nap_is_live(lake, at)) {
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
    if (lake->nap && !gml_sleeper_is_asleep(lake->sleeper)) {
        status = gml_nap_give_memory(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}
