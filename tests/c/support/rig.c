/* Opening and closing the layers in order. */
#include "support/rig.h"

#include "driver/arena.h"
#include "hooks/fault.h"

#include <stdio.h>
#include <stdlib.h>

static void
give_up(const char *what, const char *why)
{
    fprintf(stderr, "the test cannot run: %s: %s\n", what, why);
    exit(1);
}

gml_status
rig_open(test_rig *rig, const rig_config *config)
{
    char reason[GML_REASON_BYTES] = "";
    gml_driver *inner;
    if (gml_driver_open(config->driver, 0, config->capacity_bytes, &inner, reason, sizeof reason) !=
        GML_OK) {
        give_up(config->driver, reason);
    }
    if (config->arena_bytes && gml_arena_driver_open(config->arena_bytes, &inner) != GML_OK) {
        give_up("arena", inner->reason);
    }
    rig->shadow = shadow_open(inner);
    rig->driver = rig->shadow;
    rig->policy = NULL;
    if (!rig->shadow) {
        give_up("shadow", "no host memory");
    }
    if ((config->fail_call || config->fail_per_million) &&
        gml_fault_driver_open(rig->shadow, config->fail_call, config->fail_per_million,
                              config->fail_seed, &rig->driver) != GML_OK) {
        give_up("fault", "no host memory");
    }
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    if (gml_knobs_apply(&knobs, config->settings, config->setting_count, reason, sizeof reason) !=
        GML_OK) {
        give_up("settings", reason);
    }
    return config->policy->create(rig->driver, config->capacity_bytes, &knobs, &rig->policy);
}

gml_status
rig_destroy_policy(test_rig *rig)
{
    gml_policy *policy = rig->policy;
    rig->policy = NULL;
    return policy ? policy->ops->destroy(policy) : GML_OK;
}

void
rig_close(test_rig *rig)
{
    (void)rig_destroy_policy(rig);
    gml_driver_close(rig->driver);
}

gml_status
rig_mark(test_rig *rig)
{
    return rig->policy->ops->mark(rig->policy);
}

uint64_t
rig_calls(const test_rig *rig)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        calls += rig->driver->calls[i];
    }
    return calls;
}

uint64_t
rig_leftovers(const test_rig *rig)
{
    shadow_counts counts = shadow_count(rig->shadow);
    return counts.handles + counts.reservations + counts.mappings + counts.plain_blocks +
           counts.held_bytes;
}
