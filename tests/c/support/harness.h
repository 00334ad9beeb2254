/* A policy on its own, over a driver that checks the order of streams, may be told to fail, and
 * counts what the policy took and did not give back. */
#ifndef GML_TEST_HARNESS_H
#define GML_TEST_HARNESS_H

#include "driver/streams.h"
#include "lake/hooks.h"
#include "policy/policy.h"
#include "support/strikes.h"

typedef struct harness_config {
    const char *driver; /* "sim" or "host" */
    const gml_policy_ops *policy;
    uint64_t capacity_bytes;
    uint64_t arena_bytes; /* 0: none */
    const gml_setting *settings;
    size_t setting_count;
    uint64_t fail_per_million, fail_seed; /* see strikes.per_million */
} harness_config;

typedef struct test_harness {
    gml_driver *driver;
    gml_policy *policy; /* NULL if it could not be created */
    gml_checker *checker;
    strikes *strikes;
    gml_map live; /* addresses of blocks that have begun and not ended */
} test_harness;

/* The status of the policy's creation; the driver is there in any case, or the program ends. */
gml_status harness_open(test_harness *harness, const harness_config *config);

/* Destroys the policy, so that what it left behind can be counted. */
gml_status harness_destroy_policy(test_harness *harness);

void harness_close(test_harness *harness);

/* A live block begins, or ends: work on its stream uses it, and is pending until the stream is
 * advanced if streams are advanced by hand. Whether what used the memory before is ordered before
 * that. */
bool harness_begin(test_harness *harness, const gml_block *block);
void harness_end(test_harness *harness, const gml_block *block);

gml_streams *harness_streams(const test_harness *harness);

/* Driver calls made so far, failed ones included. */
uint64_t harness_calls(const test_harness *harness);

/* What was counted but the policy should have given back: 0 after a clean end. */
uint64_t harness_leftovers(const test_harness *harness);

#endif
