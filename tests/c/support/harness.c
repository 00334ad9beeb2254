/* Opening and closing the layers in order. */
#include "support/harness.h"

#include "driver/arena.h"
#include "hooks/race.h"

#include <stdio.h>
#include <stdlib.h>

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "the test cannot run: %s: %s\n", what, why);
    exit(1);
}

gml_status harness_open(test_harness *harness, const harness_config *config) {
    char reason[GML_REASON_BYTES] = "";
    gml_driver *driver;
    *harness = (test_harness){.strikes = calloc(1, sizeof *harness->strikes)};
    if (gml_driver_open(config->driver, 0, config->capacity_bytes, &driver, reason,
                        sizeof reason) != GML_OK) {
        give_up(config->driver, reason);
    }
    if (config->arena_bytes && gml_arena_driver_open(config->arena_bytes, &driver) != GML_OK) {
        give_up("arena", driver->reason);
    }
    if (!harness->strikes || gml_race_driver_open(driver, &driver, &harness->checker) != GML_OK ||
        strikes_wrap(harness->strikes, &driver) != GML_OK) {
        give_up("wrappers", "no host memory");
    }
    harness->strikes->per_million = config->fail_per_million;
    harness->strikes->random_state = config->fail_seed;
    harness->driver = driver;
    gml_knobs knobs;
    gml_knobs_init(&knobs);
    if (gml_knobs_apply(&knobs, config->settings, config->setting_count, reason, sizeof reason) !=
        GML_OK) {
        give_up("settings", reason);
    }
    return config->policy->create(driver, config->capacity_bytes, &knobs, &harness->policy);
}

gml_status harness_destroy_policy(test_harness *harness) {
    gml_policy *policy = harness->policy;
    harness->policy = NULL;
    for (size_t i = 0; i < harness->live.capacity; i++) {
        if (harness->live.slots[i].key) {
            harness->checker->end_use(harness->checker, harness->live.slots[i].key);
        }
    }
    gml_map_clear(&harness->live);
    return policy ? policy->ops->destroy(policy) : GML_OK;
}

void harness_close(test_harness *harness) {
    (void)harness_destroy_policy(harness);
    gml_driver_close(harness->driver);
    free(harness->strikes);
}

static void do_nothing(void *context) {
    (void)context;
}

static bool work(const test_harness *harness, gml_stream stream) {
    return gml_streams_enqueue(harness_streams(harness), stream, do_nothing, NULL) == GML_OK;
}

bool harness_begin(test_harness *harness, const gml_block *block) {
    gml_checker *checker = harness->checker;
    return checker->begin_use(checker, block->address, block->requested_bytes, block->stream) ==
               GML_OK &&
           work(harness, block->stream) &&
           gml_map_insert(&harness->live, block->address, harness) == GML_OK;
}

void harness_end(test_harness *harness, const gml_block *block) {
    (void)work(harness, block->stream);
    (void)gml_map_take(&harness->live, block->address);
    harness->checker->end_use(harness->checker, block->address);
}

gml_streams *harness_streams(const test_harness *harness) {
    return harness->driver->streams;
}

uint64_t harness_calls(const test_harness *harness) {
    uint64_t calls = 0;
    for (size_t i = 0; i < GML_CALL_COUNT; i++) {
        calls += harness->driver->calls[i];
    }
    return calls;
}

uint64_t harness_leftovers(const test_harness *harness) {
    const strikes *of = harness->strikes;
    return of->memory + of->addresses + of->mapped + of->events + harness->driver->held_bytes;
}
