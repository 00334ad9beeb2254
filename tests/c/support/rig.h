/* A policy on its own, over a driver that is watched and may be told to fail: fault(shadow(name)),
 * so that the shadow sees only the calls that reach the device. */
#ifndef GML_TEST_RIG_H
#define GML_TEST_RIG_H

#include "policy/policy.h"
#include "support/shadow.h"

typedef struct rig_config {
    const char *driver; /* "sim" or "host" */
    const gml_policy_ops *policy;
    uint64_t capacity_bytes;
    uint64_t arena_bytes; /* 0: none */
    const gml_setting *settings;
    size_t setting_count;
    uint64_t fail_call, fail_per_million, fail_seed; /* as in gml_test_options */
} rig_config;

typedef struct test_rig {
    gml_driver *shadow, *driver; /* the driver is the shadow, or a fault wrapper around it */
    gml_policy *policy;          /* NULL if it could not be created */
} test_rig;

/* The status of the policy's creation; the drivers are there in any case, or the program ends. */
gml_status rig_open(test_rig *rig, const rig_config *config);

/* Destroys the policy, so that what it left behind can be counted. */
gml_status rig_destroy_policy(test_rig *rig);

void rig_close(test_rig *rig);

/* As gml_lake_mark() does. pre: the policy knows of steps. */
gml_status rig_mark(test_rig *rig);

/* Driver calls made so far, failed ones included. */
uint64_t rig_calls(const test_rig *rig);

/* What the shadow counts but the policy should have given back: 0 after a clean end. */
uint64_t rig_leftovers(const test_rig *rig);

#endif
