/* Step boundaries, for policies that know of such. */
#include "gmlake_plan.h"
#include "lake/lake.h"

gml_status
gml_lake_mark(gml_lake *lake)
{
    pthread_mutex_lock(&lake->lock);
    const gml_policy_ops *ops = lake->policy->ops;
    gml_status status = ops->mark ? ops->mark(lake->policy) : GML_OK;
    gml_lake_note_reserved(lake);
    gml_lake_show(lake);
    pthread_mutex_unlock(&lake->lock);
    return status;
}
