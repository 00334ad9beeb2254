/* The policies: those built in, and those that lab/ registers. */
#include "policy/policy.h"

#include <string.h>

enum { BUILT_IN = 4, MOST_POLICIES = 8 };

static const gml_policy_ops *policies[MOST_POLICIES] = {&gml_caching_policy, &gml_expandable_policy,
                                                        &gml_stitch_policy, &gml_steps_policy};
static size_t policy_count = BUILT_IN;

void gml_policy_register(const gml_policy_ops *ops) {
    if (policy_count < MOST_POLICIES) {
        policies[policy_count++] = ops;
    }
}

const char *gml_policy_name(size_t index) {
    return index < policy_count ? policies[index]->name : NULL;
}

const char *gml_policy_help(size_t index) {
    return index < policy_count ? policies[index]->help : NULL;
}

const char *gml_policy_settings(size_t index) {
    if (index >= policy_count) {
        return NULL;
    }
    return policies[index]->settings_of ? policies[index]->settings_of : "";
}

const gml_policy_ops *gml_policy_find(const char *name) {
    for (size_t i = 0; i < policy_count; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}
