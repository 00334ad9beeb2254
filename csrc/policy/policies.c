/* The policies: those built in, and those that annexes register. */
#include "policy/policy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define BUILT_IN_POLICIES &gml_caching_policy, &gml_expandable_policy, &gml_stitch_policy

enum {
    MOST_POLICIES = 16,
    BUILT_IN = sizeof((const gml_policy_ops *[]){BUILT_IN_POLICIES}) / sizeof(gml_policy_ops *)
};

/* Entries below the count never change, so readers need no lock. */
static const gml_policy_ops *policies[MOST_POLICIES] = {BUILT_IN_POLICIES};
static _Atomic size_t policy_count = BUILT_IN;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

gml_status gml_policy_register(const gml_policy_ops *ops) {
    gml_status status = GML_INVALID_ARGUMENT;
    pthread_mutex_lock(&registering);
    size_t count = policy_count;
    if (count < MOST_POLICIES && !gml_policy_find(ops->name)) {
        policies[count] = ops;
        policy_count = count + 1;
        status = GML_OK;
    }
    pthread_mutex_unlock(&registering);
    return status;
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
    size_t count = policy_count;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            return policies[i];
        }
    }
    return NULL;
}
