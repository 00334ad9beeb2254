/* Chunks on their way from one process to another, as files.
 *
 * A chunk that is released and created again is cleared by the device's driver in between; one that
 * is exported, imported and then released is not, and its device is never short of it. So what a
 * process gives to another goes there as files, and waits until a chunk of its size is created.
 *
 * Small chunks are left to the driver: a file takes longer than clearing them.
 */
#ifndef GML_DRIVER_HANDED_H
#define GML_DRIVER_HANDED_H

#include "gmlake.h"
#include "gmlake_share.h"

/* ---- kept files ---------------------------------------------------------------------------------
 *
 * Open files of chunks: a child of fork() has them, too, and would hold the chunks' memory after
 * this process has released it. It closes them. No lock: any thread may call. */

/* How many more may be added without being needed: half of what the process may open is the
 * program's. */
size_t gml_kept_files_room(void);

/* An open file of a chunk. */
void gml_kept_files_add(int file);

/* Closes a file that was added. */
void gml_kept_files_close(int file);

/* ---- what was handed over -------------------------------------------------------------------- */

/* Files of one message, and of one process at a time. */
enum { GML_HANDED_MOST = 128 };

#define GML_HANDED_LEAST_BYTES (UINT64_C(64) << 20)

/* Owns its files, which are kept files. Zeroed but for the lock. */
typedef struct gml_handed {
    pthread_mutex_t lock; /* guards the rest; taken after any other lock */
    uint64_t bytes;       /* of all pieces; read without the lock */
    size_t count;
    gml_shared_piece pieces[GML_HANDED_MOST];
} gml_handed;

static inline uint64_t gml_handed_bytes(const gml_handed *handed) {
    return handed ? __atomic_load_n(&handed->bytes, __ATOMIC_RELAXED) : 0;
}

/* What other processes handed over for a device and nothing took; NULL: none can. */
static inline gml_handed *gml_handed_to(const gml_device *device) {
    return __atomic_load_n(&device->handed, __ATOMIC_ACQUIRE);
}

/* Takes over the file of the piece, and closes it where there are as many already. */
void gml_handed_add(gml_handed *handed, gml_shared_piece piece);

/* The file of a piece of that size, still a kept file, which is the caller's now; -1: there is
 * none. */
int gml_handed_take(gml_handed *handed, uint64_t size_bytes);

/* Moves pieces until they have `wanted_bytes`; returns how much they have. */
uint64_t gml_handed_move(gml_handed *from, gml_handed *to, uint64_t wanted_bytes);

/* Closes all files, so that their memory goes back to the device; returns how much it is. NULL is
 * allowed. */
uint64_t gml_handed_drop(gml_handed *handed);

/* In a child of fork(), where kept files are closed: it has none. */
void gml_handed_forget(gml_handed *handed);

#endif
