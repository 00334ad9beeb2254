/* The lakes of a random program: opening them in all their kinds, and their end. */
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "policy/policy.h"
#include "support/policies.h"
#include "support/stress.h"

#include <stdatomic.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

/* The settings that decide where memory comes from: the default first. */
static const struct {
    const char *name;
    uint64_t values[3];
} choices[] = {
    {"frag_limit", {0, 2 * MIB, 8 * MIB}},
    {"optimize_for", {1, 0, 2}},
    {"growth", {0, 4 * MIB, 20 * MIB}},
    {"chunk_size", {0, 2 * MIB, 6 * MIB}},
    {"max_views", {16384, 4, 64}},
    {"max_view_bytes", {UINT64_C(1) << 44, 0, 64 * MIB}},
    {"reuse_follow_event_dependencies", {1, 0, 0}},
    {"reuse_allow_opportunistic", {1, 0, 0}},
    {"reuse_allow_internal_dependencies", {1, 0, 0}},
    {"borrow_waits", {256, 0, 16}},
    {"max_split_size", {UINT64_MAX, 20 * MIB, 32 * MIB}},
    {"max_non_split_rounding", {20 * MIB, 0, 4 * MIB}},
    {"large_segment_size", {20 * MIB, 2 * MIB, 32 * MIB}},
    {"garbage_collection_percent", {0, 60, 90}},
    {"oldest_segment_first", {0, 1, 1}},
    {"roundup_power2_divisions", {0, 1, 4}},
};

enum { CHOICES = sizeof choices / sizeof *choices, SETTINGS = CHOICES + 1 };

/* Those of one device have one limit together. */
static const uint64_t capacities[STRESS_LAKES] = {128 * MIB, 48 * MIB, 128 * MIB, 128 * MIB};
static const int devices[STRESS_LAKES] = {0, 1, 0, 0};

stress_census stress_counts;

void stress_expect(const stress *self, gml_status status) {
    bool is_explained =
        self->shared->per_million && (status == GML_DRIVER_FAILED || status == GML_OUT_OF_MEMORY);
    if (!is_explained) {
        CHECK_OK(status);
    }
}

stress_lake *stress_any_lake(stress *self) {
    return &self->shared->lakes[check_below(&self->random, STRESS_LAKES)];
}

gml_streams *stress_streams(const stress_lake *at) {
    return gml_driver_streams(at->lake->driver);
}

bool stress_is_asleep(const stress_lake *at) {
    return gml_lake_is_asleep(at->lake);
}

bool stress_may_capture(const stress *self, const stress_lake *at) {
    return !self->shared->is_alone ||
           (self->captured_on && self->captured_on->device == at->device);
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool is_policy(const char *name) {
    return strcmp(contract_policy, name) == 0;
}

/* How many there are. Half of the lakes have the defaults. */
static size_t draw_settings(check_random *random, const stress_lake *at, gml_setting *out) {
    size_t count = 0;
    bool is_plain = check_below(random, 2) == 0;
    for (size_t i = 0; i < CHOICES; i++) {
        uint64_t value = choices[i].values[is_plain ? 0 : check_below(random, 3)];
        if (i == 0 && is_policy("gmlake-paper")) {
            value = 2 * MIB; /* its default would keep its stitching out of lakes of this size */
        }
        out[count++] = (gml_setting){choices[i].name, value};
    }
    if (at->is_arena) {
        out[count++] = (gml_setting){"arena", at->capacity_bytes};
    }
    if (at->is_window) {
        out[count++] = (gml_setting){"base", UINT64_C(1) << 45};
    }
    return count;
}

static void open_lake(stress_lake *at, size_t index, check_random *random, stress_lakes *shared) {
    gml_setting settings[SETTINGS];
    bool has_chunks = policy_lends(contract_policy);
    *at = (stress_lake){.capacity_bytes = capacities[index],
                        .device = &shared->devices[devices[index]]};
    CHECK(pthread_rwlock_init(&at->awake, NULL) == 0);
    at->is_arena = index == 1 && gml_policy_find(contract_policy)->can_serve_arena &&
                   check_below(random, 3) == 0;
    bool may_choose = MAY_CHOOSE_ADDRESSES || !lake_is_host();
    at->is_window = may_choose && !at->is_arena &&
                    gml_policy_find(contract_policy)->can_serve_arena &&
                    check_below(random, 3) == 0;
    at->can_sleep = index > 1 || (!at->is_arena && check_below(random, 2));
    at->has_elastic = has_chunks && !at->is_arena;
    at->strikes.random_state = check_next(random);
    gml_lake_config config = lake_config_of(at->capacity_bytes);
    config.device = devices[index];
    config.shared = &shared->devices[devices[index]];
    config.can_sleep = at->can_sleep;
    config.settings = settings;
    config.setting_count = draw_settings(random, at, settings);
    atomic_store(&at->strikes.per_million, 10 * shared->per_million);
    gml_status status = strikes_open(&at->strikes, &config, &at->lake);
    if (status != GML_OK) { /* as it may where calls fail */
        CHECK(shared->per_million && (status == GML_DRIVER_FAILED || status == GML_OUT_OF_MEMORY));
        atomic_store(&at->strikes.per_million, 0);
        CHECK_OK(strikes_open(&at->strikes, &config, &at->lake));
    }
    atomic_store(&at->strikes.per_million, shared->per_million);
}

void stress_open(stress_lakes *shared, uint64_t seed, bool is_alone, bool failing) {
    check_random random = {seed};
    *shared = (stress_lakes){.lock = PTHREAD_MUTEX_INITIALIZER, .is_alone = is_alone};
    shared->repeats = is_alone && seed % 2 == 0;
    shared->is_failing = failing;
    shared->per_million = failing ? UINT64_C(500) << check_below(&random, 5) : 0;
    for (size_t i = 0; i < STRESS_LAKES; i++) {
        open_lake(&shared->lakes[i], i, &random, shared);
        CHECK_OK(gml_streams_set_manual(stress_streams(&shared->lakes[i]), seed % 3 != 0));
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void stress_calm(stress_lakes *shared) {
    shared->per_million = 0;
    for (size_t i = 0; i < STRESS_LAKES; i++) {
        atomic_store(&shared->lakes[i].strikes.per_million, 0);
    }
}

/* Nothing is left, whatever failed before. */
static void close_lake(stress_lake *at, bool is_failing) {
    CHECK_OK(gml_lake_check(at->lake));
    CHECK_OK(gml_lake_trim(at->lake, NULL));
    CHECK_OK(gml_lake_check(at->lake));
    const gml_stats stats = lake_stats_of(at->lake);
    CHECK_EQ(stats.live_blocks, 0);
    CHECK_EQ(stats.reserved_bytes, 0);
    stress_counts.planned += stats.states[GML_STATE_PLAN];
    CHECK_OK(gml_lake_close(at->lake));
    strikes_check_rest(&at->strikes);
    if (!at->can_sleep || !is_failing) { /* plain memory that sleeps keeps what failed to go */
        strikes_check_memory(&at->strikes);
    }
    stress_counts.struck += at->strikes.struck;
    (void)pthread_rwlock_destroy(&at->awake);
}

void stress_close(stress_lakes *shared) {
    for (size_t i = 0; i < STRESS_EXCHANGED; i++) {
        if (shared->exchange[i].at) {
            stress_touch(&shared->exchange[i]);
            CHECK_OK(
                gml_lake_free(shared->exchange[i].at->lake, shared->exchange[i].block.address));
        }
    }
    for (size_t i = 0; i < STRESS_LAKES; i++) {
        close_lake(&shared->lakes[i], shared->is_failing);
    }
}
