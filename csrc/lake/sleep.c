/* Putting a lake to sleep and waking it: in which order memory goes and comes.
 *
 * Why no failure loses the content of a live block, however many calls fail in a row. The content
 * is on the device as long as gml_remapper_holds() it, and is saved once its copy was waited for
 * (gml_saved.is_saved). At every moment at least one of the two is true:
 *
 * - Going to sleep releases memory up to the first unsaved block, no further; with GML_BACKUP_NONE,
 *   which discards contents, memory is released once nothing can fail any more.
 * - A wake, also the one that ends a failed sleep, releases only memory that it has taken itself.
 *   Contents it restored stay saved until the wake has succeeded.
 *
 * A lake is awake only when all its memory is mapped, accessible and restored (remap.c), so no
 * block is used or handed out while memory or content is missing. Otherwise it is asleep, and the
 * next wake resumes.
 */
#include "base/clock.h"
#include "base/size.h"
#include "lake/backup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Memory is released in parts, each while the next is copied: so many, or more of this size. */
enum { PARTS = 8 };
static const uint64_t LARGEST_PART_BYTES = UINT64_C(256) << 20;

/* ---- copies, while memory goes and comes ----------------------------------------------------- */

/* Waits for the copies so far, those of the blocks in [*saved, end), and releases the memory below
 * the next block. */
static gml_status give_part(gml_lake *lake, gml_backup_store *store, size_t *saved, size_t end,
                            gml_sleep_report *report) {
    gml_status status = gml_driver_event_synchronize(lake->driver, store->event);
    if (status != GML_OK) {
        return status;
    }
    while (*saved < end) {
        store->blocks[(*saved)++].is_saved = true;
    }
    return end == store->count
               ? GML_OK
               : gml_remapper_sleep(lake->remapper, lake->driver, store->blocks[end].address, false,
                                    &report->released_bytes, &report->kept_bytes);
}

/* Queues the copies of one part from *end on; *end: the block after. */
static gml_status queue_part(gml_lake *lake, const gml_backup_store *store, size_t *end) {
    uint64_t bytes = 0;
    uint64_t part_bytes = store->room_bytes / PARTS;
    part_bytes = part_bytes < LARGEST_PART_BYTES ? part_bytes : LARGEST_PART_BYTES;
    gml_status status = GML_OK;
    for (; *end < store->count && bytes <= part_bytes && status == GML_OK; ++*end) {
        status = gml_backup_copy(lake, store, *end, true);
        bytes += store->blocks[*end].size_bytes;
    }
    return status;
}

/* Copies all blocks out in address order. One part is copied while the one before it goes. */
static gml_status save_and_give(gml_lake *lake, gml_backup_store *store, gml_sleep_report *report) {
    size_t saved = 0, end = 0;
    gml_status status = gml_backup_have_memory(lake, store, store->room_bytes);
    if (status == GML_OK && store->count && !store->event) {
        status = gml_driver_event_create(lake->driver, &store->event);
    }
    if (status == GML_OK) {
        status = queue_part(lake, store, &end);
    }
    while (status == GML_OK && saved < store->count) {
        size_t copied = end;
        status = gml_driver_event_record(lake->driver, store->event, gml_backup_stream(lake));
        if (status == GML_OK) {
            status = queue_part(lake, store, &end);
        }
        if (status == GML_OK) {
            status = give_part(lake, store, &saved, copied, report);
        }
    }
    return status;
}

/* Restores the saved blocks whose memory is mapped again, and waits at the end. */
typedef struct restoring {
    gml_lake *lake;
    size_t next; /* the first block that was not looked at yet */
} restoring;

static gml_status restore_below(void *context, gml_address below) {
    restoring *of = context;
    gml_backup_store *store = of->lake->backup;
    gml_status status = GML_OK;
    for (; status == GML_OK && of->next < store->count; of->next++) {
        const gml_saved *at = &store->blocks[of->next];
        if (at->address + at->size_bytes > below) {
            break;
        }
        status = gml_backup_is_away(of->lake, at)
                     ? gml_backup_copy(of->lake, store, of->next, false)
                     : GML_OK;
    }
    return status == GML_OK && below == UINT64_MAX
               ? gml_driver_stream_synchronize(of->lake->driver, gml_backup_stream(of->lake))
               : status;
}

/* ---- sleeping and waking --------------------------------------------------------------------- */

/* From wherever a sleep or a wake has got to. */
static gml_status wake_locked(gml_lake *lake) {
    gml_backup_drop_freed(lake, lake->backup);
    restoring of = {lake, 0};
    const gml_remapper_watch watch = {restore_below, &of};
    return gml_remapper_wake(lake->remapper, lake->driver, &watch);
}

/* Everything as before, after a failure; where even that is impossible, it is asleep. */
static void undo_sleep(gml_lake *lake, gml_backup_store *store) {
    gml_driver *driver = lake->driver;
    gml_driver_begin_undo(driver);
    gml_status status = wake_locked(lake);
    gml_driver_end_undo(driver);
    if (status != GML_OK) {
        (void)gml_driver_fail(driver, GML_DRIVER_FAILED,
                              "%.120s; nor can it be undone now, so it is asleep, with %" PRIu64
                              " bytes saved and the rest in its memory: wake it",
                              driver->reason, gml_backup_bytes(store));
        return;
    }
    gml_backup_forget(store);
}

/* Memory that other processes may map cannot sleep, until its block is freed: see
 * gmlake_share.h. */
static gml_status check_shared(gml_lake *lake) {
    uint64_t count = 0, bytes = 0;
    for (size_t i = 0; i < lake->blocks.capacity; i++) {
        const gml_block *block = lake->blocks.slots[i].value;
        if (lake->blocks.slots[i].key && block->is_exported) {
            count++;
            bytes += block->requested_bytes;
        }
    }
    return count ? gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                   "memory that was shared with another process cannot sleep: "
                                   "%" PRIu64 " blocks of %s in all are live",
                                   count, gml_size_of(bytes).text)
                 : GML_OK;
}

static gml_status have_store(gml_lake *lake) {
    if (!lake->backup) {
        lake->backup = calloc(1, sizeof *lake->backup);
        if (!lake->backup) {
            return gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY, "no host memory for sleeping");
        }
    }
    return GML_OK;
}

static gml_status sleep_locked(gml_lake *lake, gml_backup backup, gml_sleep_report *out) {
    uint64_t idle_bytes = 0;
    gml_status status = have_store(lake);
    gml_backup_store *store = lake->backup;
    if (status == GML_OK) {
        status = gml_driver_device_synchronize(lake->driver);
    }
    if (status == GML_OK) {
        status = gml_lake_trim_locked(lake, &idle_bytes);
    }
    if (status == GML_OK) {
        status = check_shared(lake);
    }
    if (status != GML_OK) {
        return status;
    }
    gml_backup_forget(store);
    store->kind = backup;
    status = backup == GML_BACKUP_HOST ? gml_backup_list(lake, store) : GML_OK;
    if (status == GML_OK) { /* the first step: copies come before memory goes */
        status = gml_remapper_sleep(lake->remapper, lake->driver, 0, false, &out->released_bytes,
                                    &out->kept_bytes);
    }
    if (status == GML_OK && backup == GML_BACKUP_HOST) {
        status = save_and_give(lake, store, out);
    }
    if (status == GML_OK) {
        status =
            gml_remapper_sleep(lake->remapper, lake->driver, UINT64_MAX, backup != GML_BACKUP_HOST,
                               &out->released_bytes, &out->kept_bytes);
    }
    if (status != GML_OK) {
        undo_sleep(lake, store);
    }
    out->released_bytes += idle_bytes;
    out->saved_bytes = gml_backup_bytes(store);
    return status;
}

static gml_status wake_whole(gml_lake *lake, gml_sleep_report *out) {
    gml_status status = wake_locked(lake);
    if (status == GML_OUT_OF_MEMORY) {
        gml_lake_explain_waking(lake);
    }
    if (status == GML_OK) {
        out->saved_bytes = gml_backup_bytes(lake->backup);
        out->released_bytes = lake->driver->held_bytes;
        if (lake->backup->kind != GML_BACKUP_HOST) {
            gml_backup_forget(lake->backup);
        }
    }
    return status;
}

/* Whether the lake's state allows the operation. */
static gml_status check_state(gml_lake *lake, bool wants_awake) {
    if (!lake->remapper) {
        return gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                               "this lake cannot sleep: open it with can_sleep");
    }
    if (gml_remapper_is_asleep(lake->remapper) == wants_awake) {
        return gml_driver_fail(lake->driver, GML_INVALID_ARGUMENT,
                               wants_awake ? "it is asleep already" : "it is awake already");
    }
    return gml_driver_is_frozen(lake->driver)
               ? gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                                 "nothing can sleep or wake while a graph is being captured")
               : GML_OK;
}

/* ---- the interface --------------------------------------------------------------------------- */

/* Sleeps in that way, or wakes where `how` is NULL. */
static gml_status change(gml_lake *lake, const gml_sleeping *how, gml_sleep_report *out) {
    gml_sleep_report report = {0};
    uint64_t began_ns = gml_clock_ns();
    gml_device_end_failed_captures(lake->driver->device);
    pthread_mutex_lock(&lake->lock);
    gml_status status = check_state(lake, how != NULL);
    if (status == GML_OK) {
        status = how ? sleep_locked(lake, how->backup, &report) : wake_whole(lake, &report);
        gml_lake_note_reserved(lake);
    }
    if (status == GML_OK && how) {
        (void)snprintf(lake->title, sizeof lake->title, "%s", how->title ? how->title : "");
    }
    pthread_mutex_unlock(&lake->lock);
    gml_lake_tell(lake);
    report.time_ns = gml_clock_ns() - began_ns;
    if (status == GML_OK) {
        *out = report;
    }
    return status;
}

gml_status gml_lake_sleep(gml_lake *lake, gml_backup backup, gml_sleep_report *out) {
    return change(lake, &(gml_sleeping){lake, backup, NULL}, out);
}

gml_status gml_lake_wake(gml_lake *lake, gml_sleep_report *out) {
    return change(lake, NULL, out);
}

bool gml_lake_is_asleep(gml_lake *lake) {
    pthread_mutex_lock(&lake->lock);
    bool is_asleep = gml_lake_sleeps(lake);
    pthread_mutex_unlock(&lake->lock);
    return is_asleep;
}

gml_status gml_lake_saved(gml_lake *lake, gml_address address, uint64_t size_bytes,
                          const void **out) {
    gml_status status = GML_UNKNOWN_ADDRESS;
    pthread_mutex_lock(&lake->lock);
    const gml_backup_store *store = lake->backup;
    const gml_saved *at =
        store && store->kind == GML_BACKUP_HOST ? gml_backup_find(store, address) : NULL;
    if (at && !at->is_pools && at->is_saved && address - at->address <= at->size_bytes &&
        size_bytes <= at->size_bytes - (address - at->address) && gml_backup_is_live(lake, at)) {
        *out = (const char *)store->memory + at->offset_bytes + (address - at->address);
        status = GML_OK;
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_forget_saved(gml_lake *lake) {
    gml_status status = GML_OK;
    pthread_mutex_lock(&lake->lock);
    if (lake->backup && !gml_remapper_is_asleep(lake->remapper)) {
        status = gml_backup_give_memory(lake);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

/* ---- several lakes that sleep or wake together: all of them, or none ------------------------- */

/* As it slept last, which its backup store knows. */
static gml_status sleep_again(const gml_sleeping *one, gml_sleep_report *out) {
    pthread_mutex_lock(&one->lake->lock);
    gml_backup backup = one->lake->backup->kind;
    pthread_mutex_unlock(&one->lake->lock);
    return change(one->lake, &(gml_sleeping){one->lake, backup, one->title}, out);
}

static gml_status all_or_none(const gml_sleeping *each, size_t count, bool sleeps,
                              gml_sleep_report *out, size_t *failed) {
    gml_sleep_report sum = {0}, report = {0};
    for (size_t i = 0; i < count; i++) {
        const gml_sleeping *one = &each[i];
        gml_status status =
            sleeps ? change(one->lake, one, &report) : gml_lake_wake(one->lake, &report);
        if (status != GML_OK) {
            *failed = i;
            while (i-- > 0) {
                (void)(sleeps ? gml_lake_wake(each[i].lake, &report)
                              : sleep_again(&each[i], &report));
            }
            return status;
        }
        sum.released_bytes += report.released_bytes;
        sum.kept_bytes += report.kept_bytes;
        sum.saved_bytes += report.saved_bytes;
        sum.time_ns += report.time_ns;
    }
    *out = sum;
    return GML_OK;
}

gml_status gml_lakes_sleep(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                           size_t *failed) {
    return all_or_none(each, count, true, out, failed);
}

gml_status gml_lakes_wake(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                          size_t *failed) {
    return all_or_none(each, count, false, out, failed);
}
