/* The list of policies. */
#include "policy/policy.h"

#include <string.h>

static const gml_policy_ops *const policies[] = {
    &gml_caching_policy, &gml_expandable_policy, &gml_paper_policy, &gml_stitch_policy,
#ifdef GMLAKE_HAS_PLAN /* a room above this one, which a build may leave out */
    &gml_plan_policy,
#endif
};

enum { POLICY_COUNT = sizeof policies / sizeof *policies };

const char *
gml_policy_name(size_t index)
{
    return index < POLICY_COUNT ? policies[index]->name : NULL;
}

const char *
gml_policy_help(size_t index)
{
    return index < POLICY_COUNT ? policies[index]->help : NULL;
}

const gml_policy_ops *
gml_policy_find(const char *name)
{
    for (size_t i = 0; i < POLICY_COUNT; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}
