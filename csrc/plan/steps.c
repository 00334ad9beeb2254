/* Steps: the functions of gmlake_plan.h that a lake has, under its lock. */
#include "plan/steps.h"

#include "gmlake_plan.h"
#include "lake/lake.h"

/* Makes the policy answerable for blocks that the one inside it has served. */
typedef struct heir {
    gml_policy *before, *policy;
} heir;

static void
inherit(void *context, gml_block *block)
{
    const heir *to = context;
    if (block->owner == to->before) {
        block->owner = to->policy;
    }
}

static void
inherit_blocks(gml_lake *lake, gml_policy *policy)
{
    heir to = {lake->policy, policy};
    for (size_t i = 0; i < lake->blocks.capacity; i++) {
        if (lake->blocks.slots[i].key) {
            inherit(&to, lake->blocks.slots[i].value);
        }
    }
    gml_uses_each(&lake->uses, inherit, &to);
}

static gml_status
watch_locked(gml_lake *lake)
{
    gml_policy *policy;
    if (gml_steps_are_watched(lake->policy)) {
        return GML_OK;
    }
    gml_status status = gml_steps_wrap(lake->policy, &lake->knobs, &policy);
    if (status != GML_OK) {
        return status;
    }
    inherit_blocks(lake, policy);
    lake->policy = policy;
    if (lake->guest) {
        gml_guest_move(lake->guest, policy);
    }
    return GML_OK;
}

gml_status
gml_lake_watch_steps(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    gml_status status = watch_locked(lake);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

/* The lock is held on GML_OK, and the lake's policy watches steps. */
static gml_status
enter(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    if (gml_steps_are_watched(lake->policy)) {
        return GML_OK;
    }
    gml_status status =
        gml_driver_fail(lake->driver, GML_MISUSE, "steps of this lake are not watched");
    pthread_mutex_unlock(&lake->lock);
    return status;
}

static gml_status
leave(gml_lake *lake, gml_status status)
{
    gml_lake_note_reserved(lake);
    gml_lake_show(lake);
    pthread_mutex_unlock(&lake->lock);
    return status;
}

gml_status
gml_lake_begin_step(gml_lake *lake, uint64_t kind)
{
    gml_status status = enter(lake);
    return status == GML_OK ? leave(lake, gml_steps_begin(lake->policy, kind)) : status;
}

static gml_status
end_locked(gml_lake *lake, gml_step_report *out)
{
    gml_status status = gml_steps_end(lake->policy, out);
    if (status == GML_OK && out) {
        out->reserved_bytes = gml_lake_reserved(lake);
    }
    return status;
}

gml_status
gml_lake_end_step(gml_lake *lake, gml_step_report *out)
{
    gml_status status = enter(lake);
    if (status == GML_OK) {
        status = leave(lake, end_locked(lake, out));
    }
    return status;
}

gml_status
gml_lake_profile(gml_lake *lake, uint64_t kind, gml_profile **out)
{
    gml_status status = enter(lake);
    return status == GML_OK ? leave(lake, gml_steps_profile(lake->policy, kind, out)) : status;
}

gml_status
gml_lake_add_plan(gml_lake *lake, uint64_t kind, gml_plan *plan)
{
    gml_status status = enter(lake);
    return status == GML_OK ? leave(lake, gml_steps_add_plan(lake->policy, kind, plan)) : status;
}

gml_status
gml_lake_drop_plans(gml_lake *lake, uint64_t kind)
{
    gml_status status = enter(lake);
    return status == GML_OK ? leave(lake, gml_steps_drop_plans(lake->policy, kind)) : status;
}

gml_status
gml_lake_plan_stats(gml_lake *lake, gml_plan_stats *out)
{
    gml_status status = enter(lake);
    if (status == GML_OK) {
        gml_steps_stats(lake->policy, out);
        status = leave(lake, GML_OK);
    }
    return status;
}
