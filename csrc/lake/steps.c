/* Steps: the functions of gmlake_steps.h. */
#include "policy/steps/steps.h"

#include "gmlake_steps.h"
#include "lake/lake.h"

/* ---- watching: a policy around that of the lake ---------------------------------------------- */

/* Makes the policy answerable for blocks that the one inside it has served. */
typedef struct heir {
    gml_policy *before, *policy;
} heir;

static void inherit(void *context, gml_block *block) {
    const heir *to = context;
    if (block->owner == to->before) {
        block->owner = to->policy;
    }
}

static void inherit_blocks(gml_lake *lake, gml_policy *policy) {
    heir to = {lake->policy, policy};
    for (size_t i = 0; i < lake->blocks.capacity; i++) {
        if (lake->blocks.slots[i].key) {
            inherit(&to, lake->blocks.slots[i].value);
        }
    }
    gml_uses_each(&lake->uses, inherit, &to);
    lake->policy = policy;
}

gml_status gml_lake_watch_steps(gml_lake *lake) {
    pthread_mutex_lock(&lake->lock);
    gml_policy *policy = NULL;
    gml_status status =
        gml_steps_are_watched(lake->policy) ? GML_OK : gml_steps_wrap(lake->policy, &policy);
    if (policy) {
        inherit_blocks(lake, policy);
    }
    pthread_mutex_unlock(&lake->lock);
    return status;
}

/* ---- what is done with steps ----------------------------------------------------------------- */

/* Takes the lock. GML_MISUSE where steps are not watched. */
static gml_status enter(gml_lake *lake) {
    pthread_mutex_lock(&lake->lock);
    return gml_steps_are_watched(lake->policy)
               ? GML_OK
               : gml_driver_fail(lake->driver, GML_MISUSE, "steps of this lake are not watched");
}

static gml_status leave(gml_lake *lake, gml_status status) {
    gml_lake_note_reserved(lake);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status gml_lake_begin_step(gml_lake *lake, uint64_t kind) {
    gml_status status = enter(lake);
    return leave(lake, status == GML_OK ? gml_steps_begin(lake->policy, kind) : status);
}

gml_status gml_lake_end_step(gml_lake *lake, gml_step_report *out) {
    gml_status status = enter(lake);
    return leave(lake, status == GML_OK ? gml_steps_end(lake->policy, out) : status);
}

gml_status gml_lake_profile(gml_lake *lake, uint64_t kind, gml_profile **out) {
    gml_status status = enter(lake);
    return leave(lake, status == GML_OK ? gml_steps_profile(lake->policy, kind, out) : status);
}

gml_status gml_lake_add_places(gml_lake *lake, uint64_t kind, const gml_placed_request *requests,
                               size_t count) {
    gml_status status = enter(lake);
    return leave(lake, status == GML_OK ? gml_steps_add_places(lake->policy, kind, requests, count)
                                        : status);
}

gml_status gml_lake_drop_plans(gml_lake *lake, uint64_t kind) {
    gml_status status = enter(lake);
    return leave(lake, status == GML_OK ? gml_steps_drop_plans(lake->policy, kind) : status);
}

gml_status gml_lake_step_stats(gml_lake *lake, gml_step_stats *out) {
    gml_status status = enter(lake);
    if (status == GML_OK) {
        gml_steps_stats(lake->policy, out);
    }
    return leave(lake, status);
}
