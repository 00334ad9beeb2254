/* Step boundaries, for policies that know of such. */
#include "gmlake_plan.h"
#include "lake/lake.h"

static void
leave(void *context)
{
    gml_lake *lake = context;
    gml_lake_note_reserved(lake);
    gml_lake_show(lake);
    pthread_mutex_unlock(&lake->lock);
}

static void
enter(void *context)
{
    gml_lake *lake = context;
    pthread_mutex_lock(&lake->lock);
}

gml_status
gml_lake_mark(gml_lake *lake)
{
    enter(lake);
    const gml_pause pause = {.begin = leave, .end = enter, .context = lake};
    const gml_policy_ops *ops = lake->policy->ops;
    gml_status status = ops->mark ? ops->mark(lake->policy, &pause) : GML_OK;
    leave(lake);
    return status;
}
