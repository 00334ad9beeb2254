/* The lakes of a random program: opening them in all their kinds, and their end. */
#include "gmlake_sleep.h"
#include "lake/lake.h"
#include "policy/policy.h"
#include "support/policies.h"
#include "support/stress.h"

#include <stdatomic.h>

#define MIB (UINT64_C(1) << 20)

/* The settings that decide where memory comes from: the default first. */
static const struct {
    const char *name;
    uint64_t values[3];
} choices[] = {
    {"frag_limit", {0, 2 * MIB, 8 * MIB}},
    {"optimize_for", {1, 0, 2}},
    {"chunk_size", {0, 2 * MIB, 6 * MIB}},
    {"max_views", {16384, 4, 64}},
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

/* By kind. Those of one device have one limit together. */
static const uint64_t capacities[STRESS_LAKES] = {128 * MIB, 48 * MIB, 128 * MIB, 128 * MIB};
static const int devices[STRESS_LAKES] = {0, 1, 0, 0};

stress_census stress_counts;

static void arm_nothing(bool is_armed) {
    (void)is_armed;
}

void (*stress_arm)(bool is_armed) = arm_nothing;

bool stress_is_explained(const stress_lakes *shared, gml_status status) {
    bool lacks_host_memory = shared->fault == STRESS_PIECE || shared->fault == STRESS_PIECES;
    return shared->fault != STRESS_NONE &&
           (status == GML_OUT_OF_MEMORY ||
            status == (lacks_host_memory ? GML_NO_HOST_MEMORY : GML_DRIVER_FAILED));
}

void stress_expect(const stress *self, gml_status status) {
    if (!stress_is_explained(self->shared, status)) {
        CHECK_OK(status);
    } else if (status != GML_OUT_OF_MEMORY && self->shared->is_alone) {
        self->shared->explained++;
    }
}

stress_lake *stress_any_lake(stress *self) {
    return &self->shared->lakes[check_below(&self->random, self->shared->lake_count)];
}

gml_streams *stress_streams(const stress_lake *at) {
    return at->lake->driver->streams;
}

bool stress_is_asleep(const stress_lake *at) {
    return gml_lake_is_asleep(at->lake);
}

bool stress_may_capture(const stress *self, const stress_lake *at) {
    return !self->shared->is_alone ||
           (self->captured_on && self->captured_on->device == at->device);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* How many there are. Half of the lakes have the defaults. */
static size_t draw_settings(check_random *random, const stress_lake *at, gml_setting *out) {
    size_t count = 0;
    bool is_plain = check_below(random, 2) == 0;
    for (size_t i = 0; i < CHOICES; i++) {
        uint64_t value = choices[i].values[is_plain ? 0 : check_below(random, 3)];
        out[count++] = (gml_setting){choices[i].name, value};
    }
    if (at->is_arena) {
        out[count++] = (gml_setting){"arena", at->capacity_bytes};
    }
    return count;
}

/* It may not open where something fails: nothing is left then, and the next try succeeds. */
static void open_until(stress_lake *at, const gml_lake_config *config, stress_lakes *shared) {
    enum { TRIES = 3 }; /* as many calls may fail one by one */
    gml_status status = ASK(strikes_open(&at->strikes, config, &at->lake));
    for (int i = 0; i < TRIES && status != GML_OK; i++) {
        CHECK(stress_is_explained(shared, status));
        strikes_check_memory(&at->strikes);
        strikes_check_rest(&at->strikes);
        atomic_store(&at->strikes.per_million, 0);
        status = strikes_open(&at->strikes, config, &at->lake);
    }
    CHECK_OK(status);
}

static void open_lake(stress_lake *at, size_t kind, check_random *random, stress_lakes *shared,
                      uint64_t skips) {
    gml_setting settings[SETTINGS];
    const gml_policy_ops *policy = gml_policy_find(contract_policy);
    *at = (stress_lake){.capacity_bytes = capacities[kind],
                        .device = &shared->devices[devices[kind]]};
    CHECK(pthread_rwlock_init(&at->awake, NULL) == 0);
    at->is_arena = kind == 1 && policy->can_serve_arena && check_below(random, 3) == 0;
    at->can_sleep = kind > 1 || (!at->is_arena && check_below(random, 2));
    at->has_elastic = policy_lends(contract_policy) && !at->is_arena;
    at->strikes.random_state = check_next(random);
    at->strikes.plan = shared->is_alone ? &shared->plan : NULL;
    at->strikes.is_old = check_below(random, 8) == 0;
    at->strikes.skips = skips;
    at->strikes.is_unchecked = shared->fault >= STRESS_PIECE;
    gml_lake_config config = lake_config_of(at->capacity_bytes);
    config.device = devices[kind];
    config.shared = at->device;
    config.can_sleep = at->can_sleep;
    config.settings = settings;
    config.setting_count = draw_settings(random, at, settings);
    atomic_store(&at->strikes.per_million, 10 * shared->per_million);
    open_until(at, &config, shared);
    atomic_store(&at->strikes.per_million, shared->per_million);
}

void stress_open(stress_lakes *shared, uint64_t seed, uint64_t skips) {
    check_random random = {seed};
    (void)pthread_mutex_init(&shared->lock, NULL);
    shared->repeats = shared->is_alone && check_below(&random, 2);
    shared->is_manual = check_below(&random, 3);
    shared->is_plain = check_below(&random, 3) == 0;
    uint64_t per_million = UINT64_C(500) << check_below(&random, 5);
    shared->per_million = shared->fault == STRESS_RANDOM ? per_million : 0;
    uint64_t first = check_below(&random, STRESS_LAKES);
    shared->lake_count = (size_t)1 + check_below(&random, STRESS_LAKES);
    for (size_t i = 0; i < shared->lake_count; i++) {
        stress_lake *at = &shared->lakes[i];
        open_lake(at, (i + first) % STRESS_LAKES, &random, shared, skips);
        if (at->lake) {
            stress_begin_streams(at, &random);
            CHECK_OK(gml_streams_set_manual(stress_streams(at), shared->is_manual));
        }
    }
}

/* ---- the end --------------------------------------------------------------------------------- */

void stress_calm(stress_lakes *shared) {
    shared->per_million = 0;
    for (size_t i = 0; i < shared->lake_count; i++) {
        atomic_store(&shared->lakes[i].strikes.per_million, 0);
    }
}

/* Everything goes back: at once, or as soon as no call fails. */
static void give_back(stress_lake *at, stress_lakes *shared) {
    uint64_t struck = 0;
    do {
        struck = at->strikes.struck;
        gml_status status = ASK(gml_lake_trim(at->lake, NULL));
        CHECK(status == GML_OK || stress_is_explained(shared, status));
    } while (struck != at->strikes.struck);
    CHECK_OK(gml_lake_check(at->lake));
    const gml_stats stats = lake_stats_of(at->lake);
    CHECK_EQ(stats.live_blocks, 0);
    CHECK(stats.reserved_bytes == 0 || shared->fault >= STRESS_PIECE);
    stress_counts.planned += stats.states[GML_STATE_PLAN];
    stress_counts.waits += stats.cross_stream_waits;
}

static void add_uses(void *context, const gml_pool_info *pool) {
    *(size_t *)context += pool->use_count;
}

/* Nothing is left, whatever failed before; whether that had to be so. */
static bool close_lake(stress_lake *at, stress_lakes *shared) {
    CHECK_OK(gml_lake_check(at->lake));
    for (size_t i = 0; i < STRESS_OWN; i++) {
        stress_pay(at, at->slots[i].handle);
    }
    CHECK_OK(gml_streams_set_manual(stress_streams(at), false));
    size_t uses = 0;
    gml_lake_pools(at->lake, add_uses, &uses);
    CHECK_EQ(uses, 0);
    give_back(at, shared);
    uint64_t struck = at->strikes.struck;
    gml_status status = ASK(gml_lake_close(at->lake));
    at->lake = NULL;
    bool is_sure = struck == at->strikes.struck;
    if (is_sure) {
        CHECK_OK(status);
        strikes_check_rest(&at->strikes);
    }
    is_sure &= !at->can_sleep || !at->strikes.struck; /* plain memory that sleeps may stay */
    if (is_sure) {
        strikes_check_memory(&at->strikes);
    }
    if (!CHECK(!at->strikes.fault[0])) {
        fprintf(stderr, "%s\n", at->strikes.fault);
    }
    stress_counts.struck += at->strikes.struck;
    (void)pthread_rwlock_destroy(&at->awake);
    return is_sure;
}

void stress_close(stress_lakes *shared) {
    for (size_t i = 0; i < STRESS_EXCHANGED; i++) {
        stress_block *held = &shared->exchange[i];
        if (held->at) {
            stress_touch(held);
            CHECK_OK(ASK(gml_lake_free(held->at->lake, held->block.address)));
        }
    }
    bool is_sure = true;
    for (size_t i = 0; i < shared->lake_count; i++) {
        is_sure &= close_lake(&shared->lakes[i], shared);
    }
    for (size_t i = 0; i < STRESS_DEVICES && is_sure; i++) {
        CHECK_EQ(shared->devices[i].held_bytes, 0);
        CHECK_EQ(shared->devices[i].captures, 0);
    }
    (void)pthread_mutex_destroy(&shared->lock);
}
