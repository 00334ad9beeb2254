/* A policy on its own, over a driver that is watched and may be told to fail: fault(shadow(name)),
 * so that the shadow sees only the calls that reach the device. */
#ifndef GML_TEST_HARNESS_H
#define GML_TEST_HARNESS_H

#include "policy/policy.h"
#include "support/shadow.h"

typedef struct harness_config {
    const char *driver; /* "sim" or "host" */
    const gml_policy_ops *policy;
    uint64_t capacity_bytes;
    uint64_t arena_bytes; /* 0: none */
    const gml_setting *settings;
    size_t setting_count;
    uint64_t fail_call, fail_per_million, fail_seed; /* as in gml_test_options */
} harness_config;

typedef struct test_harness {
    gml_driver *shadow, *driver; /* the driver is the shadow, or a fault wrapper around it */
    gml_policy *policy;          /* NULL if it could not be created */
} test_harness;

/* The status of the policy's creation; the drivers are there in any case, or the program ends. */
gml_status harness_open(test_harness *harness, const harness_config *config);

/* Destroys the policy, so that what it left behind can be counted. */
gml_status harness_destroy_policy(test_harness *harness);

void harness_close(test_harness *harness);

/* As gml_lake_mark() does. pre: the policy knows of steps. */
gml_status harness_mark(test_harness *harness);

/* Driver calls made so far, failed ones included. */
uint64_t harness_calls(const test_harness *harness);

/* What the shadow counts but the policy should have given back: 0 after a clean end. */
uint64_t harness_leftovers(const test_harness *harness);

#endif
