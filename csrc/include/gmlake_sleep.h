/* Memory that sleeps: the device has it back, and addresses stay.
 *
 * A lake that was opened with `can_sleep` gives all its physical memory back at once, and takes as
 * much again later, mapped where it was: every pointer stays valid, those in graphs too. What live
 * blocks hold is saved on the host or on disk meanwhile, or is lost where nobody asks for it. For
 * programs that train and generate in turns on one device.
 */
#ifndef GMLAKE_SLEEP_H
#define GMLAKE_SLEEP_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the content of live blocks is while they sleep. */
typedef enum gml_backup {
    GML_BACKUP_NONE, /* nowhere: after waking they hold anything */
    GML_BACKUP_HOST, /* in page-locked memory of the host, as much as the blocks have */
    GML_BACKUP_DISK, /* in a file without a name */
} gml_backup;

typedef struct gml_sleep_report {
    uint64_t released_bytes; /* given back to the device, or taken from it again */
    uint64_t kept_bytes;     /* that the device would not take back */
    uint64_t saved_bytes;    /* of live blocks, copied to or from where they are saved */
    uint64_t time_ns;        /* of the whole call */
} gml_sleep_report;

/* Puts the lake to sleep: waits for the device, gives idle memory back, saves what live blocks
 * hold, and gives the rest back. `folder`: where the file lies for GML_BACKUP_DISK, NULL for /tmp.
 * Nothing may use the memory until it is awake: that would be an illegal address. Freeing blocks is
 * allowed; allocating fails with GML_UNSUPPORTED.
 *
 * On failure it is awake and everything as before, with a reason in gml_lake_reason():
 * GML_INVALID_ARGUMENT where it sleeps already, GML_UNSUPPORTED for a lake without `can_sleep`,
 * while a graph is captured, or where a live block was shared with another process;
 * GML_NO_HOST_MEMORY; GML_DRIVER_FAILED, also for the file. Where the driver goes on failing, so
 * that this cannot be reached, it is asleep, and the reason says how much is saved. Nothing is lost
 * then: what is not saved is where it was, and gml_lake_wake() does what is missing. */
GML_API gml_status gml_lake_sleep(gml_lake *lake, gml_backup backup, const char *folder,
                                  gml_sleep_report *out);

/* Wakes it: all memory is taken again and mapped where it was, then what was saved is copied back.
 * On failure it sleeps as before: GML_OUT_OF_MEMORY where the device has not enough,
 * GML_INVALID_ARGUMENT where it is awake, GML_DRIVER_FAILED. What is saved stays saved, and what
 * was taken goes back as far as the driver lets it; the next call goes on from there. */
GML_API gml_status gml_lake_wake(gml_lake *lake, gml_sleep_report *out);

/* One of several lakes that sleep or wake together. */
typedef struct gml_sleeping {
    gml_lake *lake;
    gml_backup backup;  /* as gml_lake_sleep() takes it; not read for waking */
    const char *folder; /* as gml_lake_sleep() takes it; for waking, where that is undone */
    const char *title;  /* begins the reason why it allocates nothing while asleep, as in "region
                           'weights' on GPU 0: "; NULL: nothing does */
} gml_sleeping;

/* Puts all of them to sleep, or none: where one fails, those before it are woken again. *out is the
 * sum of what was done; *failed, where not GML_OK, which of them has the reason. */
GML_API gml_status gml_lakes_sleep(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                                   size_t *failed);

/* Wakes all of them, or none: where one fails, those before it sleep again as they did. */
GML_API gml_status gml_lakes_wake(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                                  size_t *failed);

/* Whether it sleeps. */
GML_API bool gml_lake_is_asleep(gml_lake *lake);

/* Where `size_bytes` at `address` are saved in the host's memory, as they were when the lake fell
 * asleep: valid until it sleeps again, forgets them or is closed. GML_UNKNOWN_ADDRESS where they
 * are not, are saved on disk, or were freed. */
GML_API gml_status gml_lake_saved(gml_lake *lake, gml_address address, uint64_t size_bytes,
                                  const void **out);

/* Gives the host's memory back that is kept for the next sleep, with what is saved there. Nothing
 * while the lake sleeps. gml_lake_trim() does it, too, where no block is live. */
GML_API gml_status gml_lake_forget_saved(gml_lake *lake);

#ifdef __cplusplus
}
#endif

#endif
