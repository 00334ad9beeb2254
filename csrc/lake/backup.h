/* The backup of a sleeping lake: its live blocks and their contents. */
#ifndef GML_LAKE_BACKUP_H
#define GML_LAKE_BACKUP_H

#include "gmlake_sleep.h"
#include "lake/lake.h"

/* A block's content, which is on the device, saved, or both. */
typedef struct gml_saved {
    gml_address address;
    uint64_t size_bytes;
    uint64_t offset_bytes; /* in the memory */
    uint64_t id;           /* the block's: another one may have the address later */
    bool is_pools;         /* memory of a pool, and no block's */
    bool is_saved;         /* the copy has ended; false: gml_remapper_holds() the block */
} gml_saved;

typedef struct gml_backup_store {
    gml_backup kind;
    gml_saved *blocks; /* in address order */
    size_t count;
    uint64_t room_bytes; /* that they take side by side */
    void *memory;        /* page-locked; kept, since to make it takes longer than to fill it */
    uint64_t memory_bytes;
    gml_event event; /* behind the part that is being copied; 0: none was needed yet */
} gml_backup_store;

/* Lists the live blocks. Of a pool whose graphs are replayed behind each other, as those of graph
 * trees are, it lists all memory: which results of a replay are in use, the pool is not told. */
gml_status gml_backup_list(gml_lake *lake, gml_backup_store *store);

/* Whether that block is there still, or that memory of a pool. */
bool gml_backup_is_live(const gml_lake *lake, const gml_saved *saved);

/* What was saved at the block's address is the block's: one that lives again during the sleep. */
void gml_backup_adopt(gml_backup_store *store, const gml_block *block);

/* Whether something that sleeps is to be restored from the store. */
bool gml_backup_is_needed(const gml_lake *lake, const gml_backup_store *store);

/* Drops blocks freed during the sleep: they are not restored, and may not be mapped. */
void gml_backup_drop_freed(const gml_lake *lake, gml_backup_store *store);

/* Whether the block's content is saved, and no longer on the device. */
bool gml_backup_is_away(const gml_lake *lake, const gml_saved *saved);

/* The block of the list that saves the address, or NULL. */
const gml_saved *gml_backup_find(const gml_backup_store *store, gml_address address);

/* The total size of the saved blocks. */
uint64_t gml_backup_bytes(const gml_backup_store *store);

/* Forgets the list; the host's memory stays for the next time. */
void gml_backup_forget(gml_backup_store *store);

/* Clears the list, and frees the host memory. */
gml_status gml_backup_give_memory(gml_lake *lake);

/* Page-locked memory of that size at least. */
gml_status gml_backup_have_memory(gml_lake *lake, gml_backup_store *store, uint64_t size_bytes);

/* The stream of the copies: per thread, so that no other thread's work waits for them. */
gml_stream gml_backup_stream(const gml_lake *lake);

/* Queues the copy of one block to its place in the memory, or back. */
gml_status gml_backup_copy(gml_lake *lake, const gml_backup_store *store, size_t block,
                           bool is_out);

#endif
