/* Who is in which region: the entries that are open, of all threads, in one list. A thread looks
 * through it again once it has changed, so an entry can end on any thread, in any order. */
#include "base/list.h"
#include "gmlake_torch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct entry {
    gml_link link; /* must be first */
    const void *owner;
    uint64_t thread; /* that entered */
    gml_region region;
    bool is_everywhere;
} entry;

/* Held for a few instructions, while no other lock is taken. */
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;

/* Guarded by the lock: */
static gml_link entries = {&entries, &entries}; /* the oldest first */
static bool watches_forks;

static _Atomic uint64_t changes; /* of the list; written under the lock */
static _Atomic uint64_t threads; /* that have a number */

/* Per-thread state. */
static _Thread_local struct {
    uint64_t number; /* its own; 0: none yet */
    uint64_t seen;   /* the changes when it last looked */
    gml_region region;
} mine;

static void
lock_entries(void)
{
    pthread_mutex_lock(&entries_lock);
}

static void
unlock_entries(void)
{
    pthread_mutex_unlock(&entries_lock);
}

/* The last entry of this thread counts, else the last of those that hold everywhere. */
static void
look_locked(void)
{
    const entry *found = NULL;
    for (const gml_link *link = entries.previous; link != &entries; link = link->previous) {
        const entry *each = (const entry *)link;
        if (each->thread == mine.number) {
            found = each;
            break;
        }
        found = !found && each->is_everywhere ? each : found;
    }
    mine.region = found ? found->region : (gml_region){0};
    mine.seen = atomic_load_explicit(&changes, memory_order_relaxed);
}

gml_region
gml_torch_region(void)
{
    if (__builtin_expect(mine.seen != atomic_load_explicit(&changes, memory_order_acquire), 0)) {
        lock_entries();
        look_locked();
        unlock_entries();
    }
    return mine.region;
}

gml_status
gml_torch_enter_region(gml_region region, bool is_everywhere, const void *owner)
{
    entry *made = malloc(sizeof *made);
    if (!made) {
        return GML_NO_HOST_MEMORY;
    }
    if (!mine.number) {
        mine.number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    }
    *made = (entry){
        .owner = owner, .thread = mine.number, .region = region, .is_everywhere = is_everywhere};
    lock_entries();
    /* A child inherits a consistent list and an unlocked lock. */
    watches_forks =
        watches_forks || pthread_atfork(lock_entries, unlock_entries, unlock_entries) == 0;
    gml_status status = watches_forks ? GML_OK : GML_NO_HOST_MEMORY;
    if (status == GML_OK) {
        gml_list_append(&entries, &made->link);
        atomic_fetch_add_explicit(&changes, 1, memory_order_release);
    }
    unlock_entries();
    if (status != GML_OK) {
        free(made);
    }
    return status;
}

bool
gml_torch_leave_region(const void *owner)
{
    entry *found = NULL;
    lock_entries();
    for (gml_link *link = entries.previous; link != &entries; link = link->previous) {
        entry *each = (entry *)link;
        bool is_mine = each->thread == mine.number;
        if (each->owner == owner && (is_mine || !found)) {
            found = each;
            if (is_mine) {
                break;
            }
        }
    }
    if (found) {
        gml_list_remove(&found->link);
        atomic_fetch_add_explicit(&changes, 1, memory_order_release);
    }
    unlock_entries();
    free(found);
    return found != NULL;
}

bool
gml_torch_has_entered(void)
{
    lock_entries();
    bool has_entered = !gml_list_is_empty(&entries);
    unlock_entries();
    return has_entered;
}
