/* Reclaiming idle memory, for the driver or for another policy. */
#include "base/status.h"
#include "driver/handed.h"
#include "lake/backup.h"

/* Waits for the streams that still use freed blocks, if any do. */
static gml_status wait_for_uses(gml_lake *lake) {
    if (!lake->uses.pending_count) {
        return GML_OK;
    }
    gml_driver_note(lake->driver, GML_TRIED_DEVICE);
    return gml_uses_wait(&lake->uses);
}

void gml_lake_finish_pending(void *context) {
    gml_lake *lake = context;
    if (!gml_driver_is_frozen(lake->driver)) {
        /* Blocks that fail here stay pending and are retried later. */
        (void)wait_for_uses(lake);
    }
}

static gml_status trim_policy(gml_lake *lake) {
    uint64_t released_bytes = 0;
    gml_status status = lake->policy->ops->trim(lake->policy, &released_bytes);
    return gml_first_failure(status, gml_elastics_end_closed(lake));
}

gml_status gml_lake_trim_locked(gml_lake *lake, uint64_t *released_bytes) {
    *released_bytes = 0;
    if (gml_driver_is_frozen(lake->driver)) {
        return GML_OK;
    }
    uint64_t before_bytes = lake->driver->held_bytes;
    gml_status first = wait_for_uses(lake);
    first = gml_first_failure(first, gml_pools_trim(&lake->pools, false));
    first = gml_first_failure(first, trim_policy(lake));
    if (first == GML_OK && lake->backup && lake->blocks.count == 0 &&
        !gml_backup_is_needed(lake, lake->backup)) {
        first = gml_backup_give_memory(lake); /* no copy into it is in progress */
    }
    *released_bytes = before_bytes - lake->driver->held_bytes;
    gml_lake_note_reserved(lake);
    return first;
}

/* Whether memory of the lake may go to somebody else now. */
static bool may_give(const gml_lake *lake) {
    return !gml_driver_is_frozen(lake->driver) && !gml_lake_sleeps(lake) && lake->policy->ops->give;
}

/* waits: for all work, and then gives all that is idle if that is still too little. */
static gml_status give_locked(gml_lake *lake, uint64_t wanted_bytes, gml_handed *to, bool waits,
                              uint64_t *released_bytes, bool *is_pending) {
    gml_policy *policy = lake->policy;
    uint64_t more_bytes = 0;
    gml_uses_poll(&lake->uses);
    gml_status status = waits ? wait_for_uses(lake) : GML_OK;
    lake->driver->outgoing = to;
    if (status == GML_OK) {
        status = policy->ops->give(policy, wanted_bytes, released_bytes, is_pending);
    }
    if (status == GML_OK && waits && *released_bytes < wanted_bytes) {
        status = gml_lake_trim_locked(lake, &more_bytes);
        *released_bytes += more_bytes;
    }
    lake->driver->outgoing = NULL;
    gml_lake_note_reserved(lake);
    return status;
}

gml_status gml_lake_give(gml_lake *lake, uint64_t wanted_bytes, gml_handed *to, bool waits,
                         uint64_t *released_bytes, bool *is_pending) {
    gml_status status = GML_OK;
    *released_bytes = 0;
    *is_pending = false;
    gml_device_end_failed_captures(lake->driver->device);
    pthread_mutex_lock(&lake->lock);
    if (may_give(lake)) {
        status = give_locked(lake, wanted_bytes, to, waits, released_bytes, is_pending);
    }
    if (*released_bytes) {
        gml_history_add(&lake->history, GML_REQUEST_TRIM, 0, 0, *released_bytes, 0);
    }
    pthread_mutex_unlock(&lake->lock);
    gml_lake_tell(lake);
    return status;
}

uint64_t gml_lake_idle_bytes(gml_lake *lake) {
    uint64_t idle_bytes = 0;
    pthread_mutex_lock(&lake->lock);
    if (may_give(lake)) {
        gml_uses_poll(&lake->uses);
        idle_bytes = lake->policy->ops->idle_bytes(lake->policy) + gml_pools_idle(&lake->pools);
    }
    pthread_mutex_unlock(&lake->lock);
    return idle_bytes;
}

/* Releases the idle memory of the policies other than `policy`. */
static gml_status trim_others(gml_lake *lake, const gml_policy *policy) {
    if (gml_pools_reserved(&lake->pools)) {
        gml_driver_note(lake->driver, GML_TRIED_POOLS);
    }
    gml_status status = gml_pools_trim(&lake->pools, true);
    return status == GML_OK && policy != lake->policy ? trim_policy(lake) : status;
}

gml_status gml_lake_make_room(gml_lake *lake, const gml_policy *policy, bool *is_any) {
    bool is_frozen = gml_driver_is_frozen(lake->driver);
    size_t pending_before = lake->uses.pending_count;
    uint64_t held_before_bytes = lake->driver->held_bytes;
    gml_status status = is_frozen ? GML_OK : wait_for_uses(lake);
    if (status == GML_OK && !is_frozen) {
        status = trim_others(lake, policy);
    }
    *is_any =
        lake->uses.pending_count < pending_before || lake->driver->held_bytes < held_before_bytes;
    gml_lake_note_reserved(lake);
    return status;
}
