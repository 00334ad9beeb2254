/* The policies: those built in, and one that lab/ registers. */
#include "policy/policy.h"

#include <string.h>

static const gml_policy_ops *const built_in[] = {&gml_caching_policy, &gml_expandable_policy,
                                                 &gml_stitch_policy, &gml_steps_policy};
static const gml_policy_ops *registered; /* NULL: none */

void gml_policy_register(const gml_policy_ops *ops) {
    registered = ops;
}

static const gml_policy_ops *policy_at(size_t index) {
    size_t count = sizeof built_in / sizeof *built_in;
    return index < count ? built_in[index] : index == count ? registered : NULL;
}

const char *gml_policy_name(size_t index) {
    const gml_policy_ops *policy = policy_at(index);
    return policy ? policy->name : NULL;
}

const char *gml_policy_help(size_t index) {
    const gml_policy_ops *policy = policy_at(index);
    return policy ? policy->help : NULL;
}

const char *gml_policy_settings(size_t index) {
    const gml_policy_ops *policy = policy_at(index);
    return !policy ? NULL : policy->settings_of ? policy->settings_of : "";
}

const gml_policy_ops *gml_policy_find(const char *name) {
    size_t i = 0;
    while (policy_at(i) && strcmp(policy_at(i)->name, name) != 0) {
        i++;
    }
    return policy_at(i);
}
