/* Opening and closing the layers in order. */
#include "support/harness.h"

#include "driver/arena.h"
#include "hooks/fault.h"

#include <stdio.h>
#include <stdlib.h>

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "the test cannot run: %s: %s\n", what, why);
    exit(1);
}

gml_status harness_open(test_harness *harness, const harness_config *config) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *inner;
    if (gml_driver_open(config->driver, 0, config->capacity_bytes, &inner, reason, sizeof reason) !=
        GML_OK) {
        give_up(config->driver, reason);
    }
    if (config->arena_bytes && gml_arena_driver_open(config->arena_bytes, &inner) != GML_OK) {
        give_up("arena", inner->reason);
    }
    harness->shadow = shadow_open(inner);
    harness->driver = harness->shadow;
    harness->policy = NULL;
    if (!harness->shadow) {
        give_up("shadow", "no host memory");
    }
    if ((config->fail_call || config->fail_per_million) &&
        gml_fault_driver_open(harness->shadow, config->fail_call, config->fail_per_million,
                              config->fail_seed, &harness->driver) != GML_OK) {
        give_up("fault", "no host memory");
    }
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    if (gml_knobs_apply(&knobs, config->settings, config->setting_count, reason, sizeof reason) !=
        GML_OK) {
        give_up("settings", reason);
    }
    return config->policy->create(harness->driver, config->capacity_bytes, &knobs,
                                  &harness->policy);
}

gml_status harness_destroy_policy(test_harness *harness) {
    gml_policy *policy = harness->policy;
    harness->policy = NULL;
    return policy ? policy->ops->destroy(policy) : GML_OK;
}

void harness_close(test_harness *harness) {
    (void)harness_destroy_policy(harness);
    gml_driver_close(harness->driver);
}

gml_status harness_mark(test_harness *harness) {
    return harness->policy->ops->mark(harness->policy);
}

uint64_t harness_calls(const test_harness *harness) {
    uint64_t calls = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        calls += harness->driver->calls[i];
    }
    return calls;
}

uint64_t harness_leftovers(const test_harness *harness) {
    shadow_counts counts = shadow_count(harness->shadow);
    return counts.handles + counts.reservations + counts.mappings + counts.plain_blocks +
           counts.held_bytes;
}
