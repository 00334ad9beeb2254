/* Every driver call may fail: a scenario of some hundred driver calls, run once per call with just
 * that call failing, and under failures at random. After each step the policy's structures,
 * its reserved bytes and the contents of live blocks are checked; at the end, that nothing leaked.
 *
 * Under a policy that knows of steps the scenario is made of such that repeat. */
#include "support/contract.h"
#include "support/harness.h"
#include "support/policies.h"
#include "support/stamp.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum {
    FIRST_STEPS = 260,
    MOST_STEPS = 8000,
    PERIOD = 30, /* of steps that repeat */
    MOST_BLOCKS = 24,
    STRIDE_BYTES = 1 << 20,
    LEAST_CALLS = 200,
    RANDOM_SEEDS = 40,
};

/* Where failing every call would take too long, an even sample of this many calls is failed. */
#if HAS_THREAD_SANITIZER
enum { SIM_RUNS = 40, HOST_RUNS = 15 }; /* one thread: nothing to see for this sanitizer */
#elif HAS_ADDRESS_SANITIZER
enum { SIM_RUNS = 250, HOST_RUNS = 60 };
#else
enum { SIM_RUNS = 1 << 20, HOST_RUNS = 300 };
#endif

static const gml_setting paper_settings[] = {{"frag_limit", 2 * MIB}, {"max_views", 16}};
static const gml_setting torch_settings[] = {{"max_split_size", 20 * MIB},
                                             {"garbage_collection_percent", 80}};
static const gml_setting stitch_settings[] = {{"max_views", 16}};

typedef struct held_block {
    gml_block *block;
    void *bytes; /* NULL on `sim` */
    uint64_t seed;
} held_block;

typedef struct scenario {
    test_harness harness;
    uint64_t seed;
    check_random random;
    held_block blocks[MOST_BLOCKS];
    size_t count, steps;
    uint64_t refused, failed; /* calls of the policy that ran out of memory, or failed otherwise */
    uint64_t served;          /* blocks as in a step before */
    bool is_served;           /* any, where the policy knows of steps */
    const char *fault;        /* NULL while all is well */
} scenario;

static gml_status open_scenario(scenario *self, size_t steps, uint64_t capacity_bytes,
                                uint64_t fail_call, uint64_t fail_per_million, uint64_t seed) {
    harness_config config = {.driver = contract_driver,
                             .arena_bytes = contract_is_arena ? capacity_bytes : 0,
                             .policy = gml_policy_find(contract_policy),
                             .capacity_bytes = capacity_bytes,
                             .fail_call = fail_call,
                             .fail_per_million = fail_per_million,
                             .fail_seed = seed};
    if (strcmp(contract_policy, "gmlake-paper") == 0) {
        config.settings = paper_settings;
        config.setting_count = 2;
    } else if (policy_lends(contract_policy)) {
        config.settings = stitch_settings;
        config.setting_count = 1;
    } else {
        config.settings = torch_settings;
        config.setting_count = 2;
    }
    *self = (scenario){.seed = seed, .random = {seed}, .steps = steps};
    return harness_open(&self->harness, &config);
}

static void note(scenario *self, gml_status status) {
    self->refused += status == GML_OUT_OF_MEMORY;
    self->failed += status == GML_DRIVER_FAILED;
    if (status != GML_OK && status != GML_OUT_OF_MEMORY && status != GML_DRIVER_FAILED) {
        self->fault = gml_status_text(status);
    } else if (status != GML_OK && (!self->harness.driver || !self->harness.driver->reason[0])) {
        self->fault = "a failure without a reason";
    }
}

static uint64_t draw_size(check_random *random) {
    uint64_t kind = check_below(random, 10);
    if (kind < 2) {
        return 1 + check_below(random, MIB);
    }
    return kind < 7 ? MIB + 1 + check_below(random, 5 * MIB) : (5 + check_below(random, 8)) * MIB;
}

static void begin_block(scenario *self) {
    gml_policy *policy = self->harness.policy;
    held_block *held = &self->blocks[self->count];
    uint64_t size_bytes = draw_size(&self->random);
    gml_stream stream = check_below(&self->random, 3);
    held->seed = check_next(&self->random);
    gml_status status = policy->ops->allocate(policy, size_bytes, stream, &held->block);
    note(self, status);
    if (status != GML_OK) {
        return;
    }
    self->count++;
    self->served += held->block->state == GML_STATE_PLAN;
    gml_address address = held->block->address;
    (void)shadow_begin(self->harness.shadow, address, size_bytes, stream);
    held->bytes = NULL;
    if (strcmp(contract_driver, "host") != 0) {
        return;
    }
    if (gml_driver_bytes(self->harness.driver, address, size_bytes, &held->bytes) == GML_OK) {
        stamp_write(held->bytes, size_bytes, held->seed, STRIDE_BYTES);
    } else {
        self->fault = "the bytes of a new block cannot be touched";
    }
}

static void end_block(scenario *self) {
    size_t at = (size_t)check_below(&self->random, self->count);
    gml_block *block = self->blocks[at].block;
    self->blocks[at] = self->blocks[--self->count];
    (void)shadow_end(self->harness.shadow, block->address, block->requested_bytes, block->stream);
    self->harness.policy->ops->free(self->harness.policy, block);
}

static void trim(scenario *self) {
    uint64_t released_bytes;
    note(self, self->harness.policy->ops->trim(self->harness.policy, &released_bytes));
}

/* Everything that has to hold after any call, failed or not. */
static void look(scenario *self) {
    gml_policy *policy = self->harness.policy;
    for (size_t i = 0; i < self->count; i++) {
        const held_block *held = &self->blocks[i];
        if (held->bytes &&
            !stamp_holds(held->bytes, held->block->requested_bytes, held->seed, STRIDE_BYTES)) {
            self->fault = "a live block lost its contents";
        }
    }
    if (policy->reserved_bytes != shadow_count(self->harness.shadow).held_bytes) {
        self->fault = "reserved bytes are not what the driver was asked for";
    } else if (policy->ops->check(policy) != GML_OK) {
        self->fault = self->harness.driver->reason;
    } else if (shadow_breach(self->harness.shadow)[0]) {
        self->fault = shadow_breach(self->harness.shadow);
    }
}

/* From here on the scenario repeats itself, with nothing live; for a plan to come of that, memory
 * is given back in some of the periods only. */
static void begin_period(scenario *self) {
    while (self->count && !self->fault) {
        end_block(self);
        look(self);
    }
    note(self, harness_mark(&self->harness));
    self->random = (check_random){self->seed};
}

static void run_steps(scenario *self) {
    for (size_t i = 0; i < self->steps && !self->fault; i++) {
        if (i % PERIOD == 0 && policy_has_steps(contract_policy)) {
            begin_period(self);
        }
        uint64_t kind = check_below(&self->random, 100);
        bool may_trim = !policy_has_steps(contract_policy) || i / PERIOD % 8 == 1;
        if (kind < 6 && may_trim) {
            trim(self);
        } else if (self->count < MOST_BLOCKS && (kind < 58 || !self->count)) {
            begin_block(self);
        } else {
            end_block(self);
        }
        look(self);
    }
    while (self->count && !self->fault) {
        end_block(self);
        look(self);
    }
}

static bool has_served(const scenario *self) {
    return self->served || !policy_has_steps(contract_policy);
}

/* The idle end: everything can be given back, at the second try at the latest. */
static void end_scenario(scenario *self, bool can_still_fail) {
    for (size_t i = 0; i < 2 && !self->fault; i++) {
        trim(self);
        look(self);
    }
    if (!self->fault && !can_still_fail && self->harness.policy->reserved_bytes) {
        self->fault = "trim left memory behind that nobody uses";
    }
    self->is_served = has_served(self);
    gml_status status = self->fault ? GML_OK : harness_destroy_policy(&self->harness);
    note(self, status);
    shadow_counts left = shadow_count(self->harness.shadow);
    if (self->fault) {
        return;
    }
    if (!can_still_fail ? harness_leftovers(&self->harness) != 0
                        : status == GML_OK && left.held_bytes != 0) {
        self->fault = "the policy left memory or addresses behind";
    } else if (shadow_breach(self->harness.shadow)[0]) {
        self->fault = shadow_breach(self->harness.shadow);
    }
}

/* Runs the scenario once; says what went wrong, and where, if anything did. */
static bool run_once(scenario *self, size_t steps, uint64_t capacity_bytes, uint64_t fail_call,
                     uint64_t fail_per_million, uint64_t seed) {
    gml_status status =
        open_scenario(self, steps, capacity_bytes, fail_call, fail_per_million, seed);
    if (status == GML_OK) {
        run_steps(self);
        end_scenario(self, fail_per_million != 0);
    } else {
        note(self, status);
        if (harness_leftovers(&self->harness)) {
            self->fault = "a policy that could not be created left something behind";
        }
    }
    if (self->fault) {
        fprintf(stderr, "call %" PRIu64 " failing, %" PRIu64 " per million, seed %" PRIu64 ": %s\n",
                fail_call, fail_per_million, seed, self->fault);
    }
    return CHECK(!self->fault);
}

/* The number of steps that makes enough driver calls, and of those calls; 0 after a fault. */
static uint64_t measure(uint64_t capacity_bytes, uint64_t seed, bool may_refuse, size_t *steps) {
    uint64_t calls = 0;
    for (*steps = FIRST_STEPS; *steps <= MOST_STEPS && calls < LEAST_CALLS; *steps *= 2) {
        scenario self;
        bool is_good = run_once(&self, *steps, capacity_bytes, 0, 0, seed);
        is_good &= CHECK(may_refuse || !self.refused);
        is_good &= CHECK_EQ(self.failed, 0);
        is_good &= CHECK(may_refuse || self.is_served);
        calls = harness_calls(&self.harness);
        harness_close(&self.harness);
        if (!is_good) {
            return 0;
        }
    }
    *steps /= 2;
    return CHECK(calls >= LEAST_CALLS) ? calls : 0;
}

/* Fails each call in turn, or a sample of them, and stops at the first fault. */
static void fail_each_call(uint64_t capacity_bytes, bool may_refuse) {
    enum { SEED = 31 };
    size_t steps;
    uint64_t calls = measure(capacity_bytes, SEED, may_refuse, &steps);
    uint64_t runs = strcmp(contract_driver, "host") == 0 ? HOST_RUNS : SIM_RUNS;
    uint64_t stride = (calls + runs - 1) / runs;
    bool is_good = calls > 0;
    for (uint64_t call = 1; call <= calls && is_good; call += stride) {
        scenario self;
        is_good = run_once(&self, steps, capacity_bytes, call, 0, SEED);
        /* One call failed, so at most one request may have suffered. */
        is_good &= CHECK(self.failed <= 1);
        is_good &= may_refuse || CHECK(self.failed + self.refused <= 1);
        harness_close(&self.harness);
    }
}

TEST(each_call_with_room) {
    fail_each_call(512 * MIB, false);
}

TEST(each_call_with_little_room) {
    fail_each_call(72 * MIB, true);
}

TEST(calls_at_random) {
    bool is_good = true;
    for (uint64_t seed = 1; seed <= RANDOM_SEEDS && is_good; seed++) {
        scenario self;
        uint64_t capacity_bytes = seed % 2 ? 512 * MIB : 72 * MIB;
        is_good =
            run_once(&self, FIRST_STEPS, capacity_bytes, 0, seed % 4 < 2 ? 5000 : 60000, seed);
        harness_close(&self.harness);
    }
}

int main(void) {
    return contract_main_with_arenas();
}
