/* The state of a private pool: which blocks live in it, saved and put back. */
#include "base/status.h"
#include "lake/backup.h"

#include <inttypes.h>
#include <stdlib.h>

struct gml_pool_state {
    gml_pool_id id;
    uint64_t life; /* of the pool: what the policy has saved holds as long */
    gml_checkpoint *saved;
};

static gml_status refuse_frozen(gml_lake *lake) {
    return gml_driver_fail(lake->driver, GML_NOT_READY,
                           "other streams use memory of the private pool, and cannot be waited for "
                           "while a graph is being captured");
}

/* ---- blocks that were freed and that other streams may still use ----------------------------- */

typedef struct search {
    const gml_policy *owner;
    bool is_found;
} search;

static void compare_owner(void *context, gml_block *block) {
    search *sought = context;
    sought->is_found |= block->owner == sought->owner;
}

static gml_status end_pending(gml_lake *lake, const gml_policy *owner) {
    gml_uses_poll(&lake->uses);
    search sought = {owner, false};
    gml_uses_each(&lake->uses, compare_owner, &sought);
    if (!sought.is_found) {
        return GML_OK;
    }
    return gml_driver_is_frozen(lake->driver) ? refuse_frozen(lake) : gml_uses_wait(&lake->uses);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static gml_status save_locked(gml_lake *lake, gml_pool_id id, gml_pool_state *state) {
    gml_heap *heap;
    gml_status status = gml_pools_look_up(&lake->pools, id, &heap, &state->life);
    if (status != GML_OK) {
        return status;
    }
    gml_policy *policy = heap->policy;
    if (!policy->ops->save) {
        return gml_driver_fail(lake->driver, GML_UNSUPPORTED,
                               "the private pool (%" PRIu64 ", %" PRIu64 ") is served by %s, "
                               "which cannot be put back into an earlier state",
                               id.first, id.second, policy->ops->name);
    }
    status = end_pending(lake, policy);
    if (status == GML_OK) {
        status = policy->ops->save(policy, &state->saved);
    }
    if (status == GML_OK) {
        gml_pools_keep(&lake->pools, id);
    }
    return status;
}

gml_status gml_lake_save_pool(gml_lake *lake, gml_pool_id id, gml_pool_state **out) {
    gml_pool_state *state = calloc(1, sizeof *state);
    if (!state) {
        return gml_lake_fail(lake, GML_NO_HOST_MEMORY,
                             "the host has no memory for the state of a private pool");
    }
    state->id = id;
    pthread_mutex_lock(&lake->lock);
    gml_status status = save_locked(lake, id, state);
    pthread_mutex_unlock(&lake->lock);
    if (status == GML_OK) {
        *out = state;
    } else {
        free(state);
    }
    return status;
}

void gml_pool_state_free(gml_pool_state *state) {
    if (state) {
        free(state->saved);
        free(state);
    }
}

/* ---- putting back ---------------------------------------------------------------------------- */

typedef struct way_back {
    gml_lake *lake;
    gml_policy *policy;
    const gml_checkpoint *saved;
    gml_restoration changes;
    gml_block **restored; /* as many as are saved */
    void (*see)(void *context, bool is_new, gml_address address);
    void *context;
} way_back;

/* All that may fail, with nothing changed. */
static gml_status prepare(way_back *way) {
    gml_lake *lake = way->lake;
    size_t count = way->saved->block_count;
    gml_status status = end_pending(lake, way->policy);
    if (status != GML_OK) {
        return status;
    }
    way->restored = malloc((count + 1) * sizeof(gml_block *));
    if (!way->restored || gml_map_reserve(&lake->blocks, count) != GML_OK) {
        return gml_driver_fail(lake->driver, GML_NO_HOST_MEMORY,
                               "the table of live blocks cannot grow");
    }
    return way->policy->ops->prepare_restore(way->policy, way->saved, &way->changes);
}

/* Where other streams use blocks that end, waits for the device, so that a broken one is noticed
 * before anything ends. */
static gml_status await_users(const way_back *way) {
    const gml_restoration *changes = &way->changes;
    bool has_users = false;
    for (size_t i = 0; i < changes->ended_count && !has_users; i++) {
        has_users = changes->ended[i]->uses != NULL;
    }
    if (!has_users) {
        return GML_OK;
    }
    return gml_driver_is_frozen(way->lake->driver)
               ? refuse_frozen(way->lake)
               : gml_driver_device_synchronize(way->lake->driver);
}

static gml_status end_blocks(const way_back *way) {
    gml_lake *lake = way->lake;
    const gml_restoration *changes = &way->changes;
    bool has_users = false;
    for (size_t i = 0; i < changes->ended_count; i++) {
        gml_block *block = changes->ended[i];
        has_users |= block->uses != NULL;
        way->see(way->context, false, block->address);
        (void)gml_lake_free_locked(lake, block->address);
    }
    gml_status status = has_users ? gml_uses_wait(&lake->uses) : GML_OK;
    for (size_t i = 0; i < changes->kept_count && status == GML_OK; i++) {
        gml_block *block = changes->kept[i];
        way->see(way->context, false, block->address);
        gml_history_add(&lake->history, GML_NOTED_FREES, block->id, block->address,
                        block->requested_bytes, block->stream);
        gml_lake_count_free(lake, block);
    }
    return status;
}

/* A block that was kept still has its users. What the checker of a test says is told, although all
 * is done. */
static gml_status begin_block(const way_back *way, gml_block *block) {
    gml_lake *lake = way->lake;
    gml_status status = GML_OK;
    bool is_kept = gml_map_find(&lake->blocks, block->address) != NULL;
    bool is_exported = is_kept && block->is_exported;
    if (!is_kept) {
        (void)gml_map_insert(&lake->blocks, block->address, block);
        block->owner = way->policy;
        block->uses = NULL;
        status = gml_lake_begin_use(lake, block);
    }
    block->id = lake->next_id++;
    if (gml_lake_sleeps(lake)) {
        gml_backup_adopt(lake->backup, block);
    }
    gml_lake_count_allocation(lake, block);
    block->is_exported = is_exported;
    gml_history_add(&lake->history, GML_REQUEST_ALLOC, block->id, block->address,
                    block->requested_bytes, block->stream);
    way->see(way->context, true, block->address);
    return status;
}

static gml_status go_back(const way_back *way) {
    gml_status status = end_blocks(way);
    if (status != GML_OK) {
        return status;
    }
    way->policy->ops->restore_to(way->policy, way->saved, way->restored);
    for (size_t i = 0; i < way->saved->block_count; i++) {
        status = gml_first_failure(status, begin_block(way, way->restored[i]));
    }
    return status;
}

static gml_status restore_locked(way_back *way, const gml_pool_state *state) {
    gml_lake *lake = way->lake;
    gml_heap *heap;
    gml_status status = gml_pools_look_up_again(&lake->pools, state->id, state->life, &heap);
    if (status == GML_OK) {
        way->policy = heap->policy;
        status = prepare(way);
    }
    if (status == GML_OK) {
        status = await_users(way);
    }
    if (status == GML_OK) {
        status = go_back(way);
    }
    return status;
}

gml_status gml_lake_restore_pool(gml_lake *lake, const gml_pool_state *state,
                                 void (*see)(void *context, bool is_new, gml_address address),
                                 void *context) {
    way_back way = {.lake = lake, .saved = state->saved, .see = see, .context = context};
    pthread_mutex_lock(&lake->lock);
    gml_status status = restore_locked(&way, state);
    pthread_mutex_unlock(&lake->lock);
    free(way.changes.ended);
    free(way.restored);
    return status;
}
