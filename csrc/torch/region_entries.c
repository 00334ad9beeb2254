/* Who is in which region, and whose graphs take which turns: the entries that are open, of all
 * threads, in one list. A thread looks through it again once it has changed, so an entry can end on
 * any thread, in any order. */
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
    uint64_t turn; /* 0: this entry is one into the region */
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
    uint64_t turn;
} mine;

static void lock_entries(void) {
    pthread_mutex_lock(&entries_lock);
}

static void unlock_entries(void) {
    pthread_mutex_unlock(&entries_lock);
}

/* The last entry of this thread counts, else, of those into regions, the last of those that hold
 * everywhere. */
static void look_locked(void) {
    const entry *own = NULL, *shared = NULL;
    mine.turn = 0;
    for (const gml_link *link = entries.next; link != &entries; link = link->next) {
        const entry *each = (const entry *)link;
        bool is_own = each->thread == mine.number;
        if (each->turn) {
            mine.turn = is_own ? each->turn : mine.turn;
        } else {
            own = is_own ? each : own;
            shared = each->is_everywhere ? each : shared;
        }
    }
    own = own ? own : shared;
    mine.region = own ? own->region : (gml_region){0};
    mine.seen = atomic_load_explicit(&changes, memory_order_relaxed);
}

static void look(void) {
    if (__builtin_expect(mine.seen != atomic_load_explicit(&changes, memory_order_acquire), 0)) {
        lock_entries();
        look_locked();
        unlock_entries();
    }
}

gml_region gml_torch_region(void) {
    look();
    return mine.region;
}

uint64_t gml_torch_turn(void) {
    look();
    return mine.turn;
}

static gml_status enter(entry wanted) {
    entry *made = malloc(sizeof *made);
    if (!made) {
        return GML_NO_HOST_MEMORY;
    }
    if (!mine.number) {
        mine.number = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
    }
    *made = wanted;
    made->thread = mine.number;
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

gml_status gml_torch_enter_region(gml_region region, bool is_everywhere, const void *owner) {
    return enter((entry){.owner = owner, .region = region, .is_everywhere = is_everywhere});
}

gml_status gml_torch_enter_turn(uint64_t turn, const void *owner) {
    return enter((entry){.owner = owner, .turn = turn});
}

bool gml_torch_leave_region(const void *owner) {
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

bool gml_torch_has_entered(void) {
    bool has_entered = false;
    lock_entries();
    for (const gml_link *link = entries.next; link != &entries; link = link->next) {
        has_entered |= !((const entry *)link)->turn;
    }
    unlock_entries();
    return has_entered;
}
