/* Sleeping memory: released to the device while its addresses stay reserved.
 *
 * A lake opened with `can_sleep` can release all its physical memory at once, and later allocate it
 * again at the same addresses: every pointer stays valid, also in graphs. The contents of live
 * blocks are saved on the host or discarded. For programs that alternate between
 * training and generation on one device.
 */
#ifndef GMLAKE_SLEEP_H
#define GMLAKE_SLEEP_H

#include "gmlake.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the content of live blocks is while they sleep. */
typedef enum gml_backup {
    GML_BACKUP_NONE, /* nowhere: contents are undefined after waking */
    GML_BACKUP_HOST, /* in page-locked memory of the host, as much as the blocks have */
} gml_backup;

typedef struct gml_sleep_report {
    uint64_t released_bytes; /* released to the device, or taken from it again */
    uint64_t kept_bytes;     /* that the device would not take back */
    uint64_t saved_bytes;    /* of live blocks, copied to or from where they are saved */
    uint64_t time_ns;        /* of the whole call */
} gml_sleep_report;

/* Puts the lake to sleep: waits for the device, releases idle memory, saves the contents of live
 * blocks, and all that private pools hold whose graphs are replayed behind each other, and releases
 * the memory. Using the memory before it is awake is an illegal address. Freeing blocks
 * is allowed; allocating fails with GML_UNSUPPORTED.
 *
 * On failure it is awake and unchanged, with a reason in gml_lake_reason(): GML_INVALID_ARGUMENT if
 * it already sleeps, GML_UNSUPPORTED for a lake without `can_sleep`, while a graph is captured, or
 * if a live block was shared with another process; GML_NO_HOST_MEMORY; GML_DRIVER_FAILED. If the
 * driver keeps failing, so that the lake cannot be woken, it is asleep, and the reason says how
 * much is saved. Nothing is lost: unsaved contents are still in device memory, and gml_lake_wake()
 * resumes. */
GML_API gml_status gml_lake_sleep(gml_lake *lake, gml_backup backup, gml_sleep_report *out);

/* Wakes it: allocates all memory again, maps it at the same addresses and restores the saved
 * contents. On failure it stays asleep: GML_OUT_OF_MEMORY if the device has too little,
 * GML_INVALID_ARGUMENT if it is awake, GML_DRIVER_FAILED. Saved contents stay saved, and memory
 * already taken is released as far as the driver allows; the next call resumes. */
GML_API gml_status gml_lake_wake(gml_lake *lake, gml_sleep_report *out);

/* One of several lakes that sleep or wake together. */
typedef struct gml_sleeping {
    gml_lake *lake;
    gml_backup backup; /* as gml_lake_sleep() takes it; not read for waking */
    const char *title; /* prefix of the reason for refusing allocations while asleep, as in "region
                          'weights' on GPU 0: "; NULL: none */
} gml_sleeping;

/* Puts all of them to sleep, or none: if one fails, those before it are woken again. *out sums the
 * work done; *failed, unless GML_OK, is the index of the lake that has the reason. */
GML_API gml_status gml_lakes_sleep(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                                   size_t *failed);

/* Wakes all of them, or none: where one fails, those before it sleep again as they did. */
GML_API gml_status gml_lakes_wake(const gml_sleeping *each, size_t count, gml_sleep_report *out,
                                  size_t *failed);

/* Whether it sleeps. */
GML_API bool gml_lake_is_asleep(gml_lake *lake);

/* Where `size_bytes` at `address` are saved in the host's memory, as they were when the lake fell
 * asleep: valid until it sleeps again, forgets them or is closed. GML_UNKNOWN_ADDRESS where they
 * are not, or were freed. */
GML_API gml_status gml_lake_saved(gml_lake *lake, gml_address address, uint64_t size_bytes,
                                  const void **out);

/* Frees the host memory kept for the next sleep, with its contents. A no-op while the lake sleeps.
 * gml_lake_trim() does the same if no block is live. */
GML_API gml_status gml_lake_forget_saved(gml_lake *lake);

#ifdef __cplusplus
}
#endif

#endif
