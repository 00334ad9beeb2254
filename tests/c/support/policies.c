#include "support/policies.h"

bool policy_lends(const char *name) {
    const gml_policy_ops *ops = gml_policy_find(name);
    return ops && ops->stream_pairs;
}

const char *lending_policy(size_t index) {
    size_t seen = 0;
    const char *name = NULL;
    for (size_t i = 0; (name = gml_policy_name(i)); i++) {
        if (policy_lends(name) && seen++ == index) {
            break;
        }
    }
    return name;
}

bool policy_has_steps(const char *name) {
    const gml_policy_ops *ops = gml_policy_find(name);
    return ops && ops->mark;
}

const char *policy_with_steps(void) {
    size_t i = 0;
    while (gml_policy_name(i) && !policy_has_steps(gml_policy_name(i))) {
        i++;
    }
    return gml_policy_name(i);
}
