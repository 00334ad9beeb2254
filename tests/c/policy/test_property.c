/* Random programs over every policy: contents, reserved bytes, and order between streams.
 *
 *     test_property [operations [seed]]
 *
 * `operations` is for `stitch`; each other policy gets a tenth. A failure prints the seed. */
#include "driver/streams.h"
#include "support/check.h"
#include "support/faulty.h"
#include "support/harness.h"
#include "support/policies.h"
#include "support/stamp.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

enum {
    THREADS = 4,
    STREAMS = 4,
    STRIDE_BYTES = 4096,
    DEFAULT_OPERATIONS = IS_SANITIZED ? 40000 : 1000000,
};

static uint64_t operations = DEFAULT_OPERATIONS;
static uint64_t base_seed = 20240817;

static const char *policy_name; /* the one under test */

static const gml_setting paper_settings[] = {{"frag_limit", 2 * MIB}};
/* Chunks of several sizes, as soon as some memory is held. */
static const gml_setting lending_settings[] = {{"optimize_for", 0}};

static bool is_lending; /* freely, where streams lend each other memory */

static bool can_lend(const char *policy) {
    return policy_lends(policy);
}

static const gml_setting *settings_of(const char *policy) {
    return can_lend(policy) ? lending_settings : paper_settings;
}

static size_t setting_count_of(const char *policy) {
    return strcmp(policy, "gmlake-paper") == 0 || (is_lending && can_lend(policy));
}

static uint64_t operations_of(const char *policy) {
    return strcmp(policy, "stitch") == 0 ? operations : operations / 10;
}

/* Mostly small, up to 64 MiB. */
static uint64_t draw_size(check_random *random) {
    uint64_t kind = check_below(random, 1000);
    if (kind < 700) {
        return 1 + check_below(random, 8192);
    }
    if (kind < 940) {
        return 1 + check_below(random, MIB);
    }
    if (kind < 997) {
        return MIB + check_below(random, 7 * MIB);
    }
    return 8 * MIB + check_below(random, 56 * MIB + 1);
}

/* ---- contents, over threads and through the public interface --------------------------------- */

enum { MOST_ITEMS = 200, MAILBOXES = 16 };

#define CAPACITY_BYTES (768 * MIB)
#define BUDGET_BYTES (128 * MIB) /* live per thread */

typedef struct live_item {
    gml_address address; /* 0: none */
    void *bytes;
    uint64_t size_bytes, seed;
} live_item;

/* Where threads leave blocks for one another. */
typedef struct post_office {
    pthread_mutex_t lock;
    live_item items[MAILBOXES];
} post_office;

typedef struct worker {
    gml_lake *lake;
    post_office *exchange;
    check_random random;
    uint64_t operations, refused, failures;
    uint64_t live_bytes;
    size_t count;
    live_item items[MOST_ITEMS];
} worker;

static void fail(worker *self, const char *what) {
    if (self->failures++ < 5) {
        fprintf(stderr, "%s\n", what);
    }
}

static void verify(worker *self, const live_item *item) {
    if (!stamp_holds(item->bytes, item->size_bytes, item->seed, STRIDE_BYTES)) {
        fail(self, "a live block lost its contents");
    }
}

static void allocate_one(worker *self) {
    live_item *item = &self->items[self->count];
    item->size_bytes = draw_size(&self->random);
    item->seed = check_next(&self->random);
    gml_stream stream = check_below(&self->random, STREAMS);
    gml_status status = gml_lake_allocate(self->lake, item->size_bytes, stream, &item->address);
    if (status == GML_OUT_OF_MEMORY) {
        self->refused++;
        return;
    }
    if (status != GML_OK || gml_lake_bytes(self->lake, item->address, &item->bytes) != GML_OK) {
        fail(self, "an allocation failed for another reason than lack of memory");
        return;
    }
    stamp_write(item->bytes, item->size_bytes, item->seed, STRIDE_BYTES);
    self->live_bytes += item->size_bytes;
    self->count++;
}

static void free_one(worker *self) {
    size_t at = (size_t)check_below(&self->random, self->count);
    verify(self, &self->items[at]);
    if (gml_lake_free(self->lake, self->items[at].address) != GML_OK) {
        fail(self, "a live block could not be freed");
    }
    self->live_bytes -= self->items[at].size_bytes;
    self->items[at] = self->items[--self->count];
}

/* Swaps one block for what lies in a mailbox, which another thread has left there. */
static void exchange_one(worker *self) {
    size_t at = (size_t)check_below(&self->random, self->count);
    live_item *mailbox = &self->exchange->items[check_below(&self->random, MAILBOXES)];
    pthread_mutex_lock(&self->exchange->lock);
    live_item received = *mailbox;
    *mailbox = self->items[at];
    pthread_mutex_unlock(&self->exchange->lock);
    self->live_bytes -= self->items[at].size_bytes;
    if (received.address) {
        self->items[at] = received;
        self->live_bytes += received.size_bytes;
        verify(self, &received);
    } else {
        self->items[at] = self->items[--self->count];
    }
}

static void check_lake(worker *self) {
    gml_stats stats;
    if (gml_lake_check(self->lake) != GML_OK) {
        char reason[256];
        gml_lake_reason(self->lake, reason, sizeof reason);
        fail(self, reason);
    }
    if (gml_lake_stats(self->lake, &stats) != GML_OK || stats.reserved_bytes > CAPACITY_BYTES ||
        stats.reserved_bytes < stats.live_bytes) {
        fail(self, "reserved bytes are above the capacity or below what lives");
    }
}

static void *work(void *context) {
    worker *self = context;
    for (uint64_t i = 0; i < self->operations; i++) {
        uint64_t kind = check_below(&self->random, 20000);
        if (kind == 0) {
            check_lake(self);
        } else if (kind == 1) {
            (void)gml_lake_trim(self->lake, NULL);
        } else if (kind == 2) {
            (void)gml_lake_mark(self->lake);
        } else if (kind < 1000 && self->count) {
            exchange_one(self);
        } else if (self->count < MOST_ITEMS && self->live_bytes < BUDGET_BYTES &&
                   (kind % 9 < 5 || !self->count)) {
            allocate_one(self);
        } else {
            free_one(self);
        }
    }
    while (self->count) {
        free_one(self);
    }
    return NULL;
}

/* Starts and ends the threads; returns what they and the last look at the lake found wrong. */
static uint64_t run_workers(gml_lake *lake, uint64_t count, uint64_t seed, uint64_t *refused) {
    static post_office exchange;
    exchange = (post_office){.lock = PTHREAD_MUTEX_INITIALIZER};
    worker *workers = calloc(THREADS, sizeof *workers);
    pthread_t threads[THREADS];
    uint64_t failures = 0;
    for (size_t i = 0; workers && i < THREADS; i++) {
        workers[i] = (worker){.lake = lake,
                              .exchange = &exchange,
                              .random = {seed + i * UINT64_C(0x51ed270b9)},
                              .operations = count / THREADS};
        failures += pthread_create(&threads[i], NULL, work, &workers[i]) != 0;
    }
    *refused = 0;
    for (size_t i = 0; workers && i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        failures += workers[i].failures;
        *refused += workers[i].refused;
    }
    for (size_t i = 0; workers && i < MAILBOXES; i++) {
        if (exchange.items[i].address) {
            verify(&workers[0], &exchange.items[i]);
            failures += gml_lake_free(lake, exchange.items[i].address) != GML_OK;
        }
    }
    failures += workers ? workers[0].failures : 1;
    free(workers);
    return failures;
}

TEST(contents_over_threads) {
    const char *policy = policy_name;
    uint64_t seed = base_seed, refused;
    gml_lake_config config = {.driver = "host",
                              .policy = policy,
                              .capacity_bytes = CAPACITY_BYTES,
                              .settings = settings_of(policy),
                              .setting_count = setting_count_of(policy)};
    gml_lake *lake;
    if (!CHECK_OK(gml_lake_open(&config, &lake, NULL, 0))) {
        return;
    }
    bool is_good = CHECK_EQ(run_workers(lake, operations_of(policy), seed, &refused), 0);
    is_good &= CHECK(refused * 20 <= operations_of(policy));
    is_good &= CHECK_OK(gml_lake_check(lake));
    is_good &= CHECK_OK(gml_lake_trim(lake, NULL));
    gml_stats stats;
    CHECK_OK(gml_lake_stats(lake, &stats));
    is_good &= CHECK_EQ(stats.live_blocks, 0);
    is_good &= CHECK_EQ(stats.reserved_bytes, 0);
    is_good &= CHECK_EQ(stats.allocations, stats.frees);
    is_good &= CHECK_OK(gml_lake_close(lake));
    if (!is_good) {
        fprintf(stderr, "%s: contents, seed %" PRIu64 "\n", policy, seed);
    }
}

/* ---- order between streams, and reserved bytes at every step --------------------------------- */

enum { MOST_BLOCKS = 64 };

#define ORDER_CAPACITY_BYTES (256 * MIB)

typedef struct program {
    test_harness harness;
    check_random random;
    gml_block *blocks[MOST_BLOCKS];
    size_t count;
    uint64_t served;   /* blocks as in a step before */
    bool repeats;      /* the open step does, so that it may not give memory back */
    const char *fault; /* NULL while all is well */
} program;

static void begin_block(program *self) {
    gml_policy *policy = self->harness.policy;
    uint64_t size_bytes = draw_size(&self->random);
    gml_stream stream = check_below(&self->random, STREAMS);
    gml_block *block;
    gml_status status = policy->ops->allocate(policy, size_bytes, stream, &block);
    if (status == GML_OK) {
        self->blocks[self->count++] = block;
        self->served += block->state == GML_STATE_PLAN;
        (void)shadow_begin(self->harness.shadow, block->address, size_bytes, stream);
    } else if (status != GML_OUT_OF_MEMORY) {
        self->fault = "an allocation failed for another reason than lack of memory";
    }
}

static void end_block(program *self) {
    size_t at = (size_t)check_below(&self->random, self->count);
    gml_block *block = self->blocks[at];
    self->blocks[at] = self->blocks[--self->count];
    (void)shadow_end(self->harness.shadow, block->address, block->requested_bytes, block->stream);
    self->harness.policy->ops->free(self->harness.policy, block);
}

/* As to another process that asks. */
static void give(program *self) {
    gml_policy *policy = self->harness.policy;
    uint64_t wanted_bytes = check_below(&self->random, 64) * MIB, released_bytes;
    uint64_t before_bytes = policy->reserved_bytes;
    bool is_pending;
    (void)policy->ops->idle_bytes(policy);
    if (policy->ops->give(policy, wanted_bytes, &released_bytes, &is_pending) != GML_OK ||
        before_bytes - policy->reserved_bytes != released_bytes) {
        self->fault = "what was given is not what is missing";
    }
}

static void step(program *self) {
    gml_policy *policy = self->harness.policy;
    uint64_t kind = check_below(&self->random, 2000);
    if (kind == 0 && !self->repeats) {
        uint64_t released_bytes;
        (void)policy->ops->trim(policy, &released_bytes);
    } else if (kind < 3 && !self->repeats && policy->ops->give) {
        give(self);
    } else if (kind < 300 && self->count) {
        gml_block *block = self->blocks[check_below(&self->random, self->count)];
        (void)shadow_use(self->harness.shadow, block->address, block->requested_bytes,
                         block->stream);
    } else if (self->count < MOST_BLOCKS && kind % 2) {
        begin_block(self);
    } else if (self->count) {
        end_block(self);
    }
    (void)gml_streams_advance(shadow_streams(self->harness.shadow),
                              check_below(&self->random, STREAMS), check_below(&self->random, 6),
                              NULL);
}

static void look(program *self, uint64_t at) {
    gml_policy *policy = self->harness.policy;
    if (policy->reserved_bytes != shadow_count(self->harness.shadow).held_bytes) {
        self->fault = "reserved bytes are not what the driver was asked for";
    } else if (at % 512 == 0 && policy->ops->check(policy) != GML_OK) {
        self->fault = self->harness.driver->reason;
    } else if (shadow_breach(self->harness.shadow)[0]) {
        self->fault = shadow_breach(self->harness.shadow);
    }
}

/* Under a policy that knows of steps the program is made of steps. Six of each group are the same,
 * but for some drift, and begin with nothing live and all work done; the others are like them, and
 * begin with blocks of the one before while work is still to be done. Two groups take turns. */
enum {
    STEP_OPERATIONS = 240,
    CARRIED_BLOCKS = 6,
    GROUP_STEPS = 8,
    SAME_STEPS = 6,
    DRIFT_EVERY = 1900,
    LEAST_STEPS = 40
};

static void mark_step(program *self, uint64_t at, uint64_t seed) {
    uint64_t number = at / STEP_OPERATIONS;
    self->repeats = number % GROUP_STEPS < SAME_STEPS;
    while (self->count > (self->repeats ? 0 : CARRIED_BLOCKS)) {
        end_block(self);
    }
    if (self->repeats &&
        gml_streams_synchronize_all(shadow_streams(self->harness.shadow)) != GML_OK) {
        self->fault = "work could not be finished";
    }
    if (harness_mark(&self->harness) != GML_OK) {
        self->fault = "a step could not begin";
    }
    self->random = (check_random){seed + number / GROUP_STEPS % 2};
}

static void step_of_steps(program *self, uint64_t at, uint64_t seed) {
    if (at % STEP_OPERATIONS == 0) {
        mark_step(self, at, seed);
    }
    if (at % DRIFT_EVERY == 0) {
        begin_block(self);
    }
    step(self);
}

static bool has_served(const program *self) {
    return self->served || !self->harness.policy->ops->mark;
}

/* Runs a random program with streams that make progress only now and then. Returns whether all was
 * well; `why` receives the first fault. */
static bool run_program(const gml_policy_ops *ops, uint64_t count, uint64_t seed,
                        bool forgets_waits, char why[GML_REASON_BYTES]) {
    program self = {.random = {seed}};
    CHECK_OK(harness_open(&self.harness,
                          &(harness_config){.driver = "sim",
                                            .policy = ops,
                                            .capacity_bytes = ORDER_CAPACITY_BYTES,
                                            .settings = settings_of(ops->name),
                                            .setting_count = setting_count_of(ops->name)}));
    CHECK_OK(gml_streams_set_manual(shadow_streams(self.harness.shadow), true));
    if (forgets_waits) {
        shadow_forget_waits(self.harness.shadow);
    }
    for (uint64_t i = 0; i < count && !self.fault; i++) {
        if (self.harness.policy->ops->mark) {
            step_of_steps(&self, i, seed);
        } else {
            step(&self);
        }
        look(&self, i);
    }
    if (!self.fault && !has_served(&self)) {
        self.fault = "no step was served as one before";
    }
    if (!self.fault && harness_destroy_policy(&self.harness) != GML_OK) {
        self.fault = "the policy could not be destroyed";
    }
    if (!self.fault && harness_leftovers(&self.harness)) {
        self.fault = "memory or addresses were left behind";
    }
    if (!self.fault && shadow_breach(self.harness.shadow)[0]) {
        self.fault = shadow_breach(self.harness.shadow);
    }
    snprintf(why, GML_REASON_BYTES, "%s", self.fault ? self.fault : "");
    harness_close(&self.harness);
    return !why[0];
}

TEST(order_and_reserved_bytes) {
    const char *policy = policy_name;
    char why[GML_REASON_BYTES];
    uint64_t count = operations_of(policy) / 5;
    count = count < LEAST_STEPS * STEP_OPERATIONS ? LEAST_STEPS * STEP_OPERATIONS : count;
    if (!CHECK(run_program(gml_policy_find(policy), count, base_seed, false, why))) {
        fprintf(stderr, "%s%s: order, seed %" PRIu64 ": %s\n", policy,
                is_lending ? ", lending" : "", base_seed, why);
    }
}

/* ---- the tests see what they are for --------------------------------------------------------- */

TEST(stamps_see_one_wrong_byte) {
    enum { BYTES = 20000 };
    static _Alignas(512) unsigned char bytes[BYTES];
    static const size_t places[] = {0, 511, 4096, BYTES - 512, BYTES - 1};
    for (uint64_t size_bytes = 1; size_bytes < 2000; size_bytes += 37) {
        stamp_write(bytes, size_bytes, size_bytes, STRIDE_BYTES);
        CHECK(stamp_holds(bytes, size_bytes, size_bytes, STRIDE_BYTES));
        for (size_t i = 0; i < size_bytes; i++) {
            bytes[i] ^= 4;
            CHECK(!stamp_holds(bytes, size_bytes, size_bytes, STRIDE_BYTES));
            bytes[i] ^= 4;
        }
    }
    stamp_write(bytes, BYTES, 9, STRIDE_BYTES);
    CHECK(stamp_holds(bytes, BYTES, 9, STRIDE_BYTES));
    CHECK(!stamp_holds(bytes, BYTES, 10, STRIDE_BYTES));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bytes[places[i]] ^= 4;
        CHECK(!stamp_holds(bytes, BYTES, 9, STRIDE_BYTES));
        bytes[places[i]] ^= 4;
    }
}

static void expect_fault(const gml_policy_ops *ops, bool forgets_waits, const char *expected) {
    char why[GML_REASON_BYTES];
    for (uint64_t seed = 1; seed <= 3; seed++) {
        CHECK(!run_program(ops, 20000, seed, forgets_waits, why));
        if (!CHECK(strstr(why, expected) != NULL)) {
            fprintf(stderr, "%s: found \"%s\" where \"%s\" was planted\n", ops->name, why,
                    expected);
        }
    }
}

TEST(planted_faults_are_found) {
    char why[GML_REASON_BYTES];
    CHECK(run_program(&faulty_none, 20000, 1, false, why));
    expect_fault(&faulty_none, true, "without an ordering edge");
    expect_fault(&faulty_order, false, "without an ordering edge");
    expect_fault(&faulty_overlap, false, "two live blocks");
    expect_fault(&faulty_unmap, false, "while work may use it");
    expect_fault(&faulty_reserved, false, "reserved bytes");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        operations = strtoull(argv[1], NULL, 10);
    }
    if (argc > 2) {
        base_seed = strtoull(argv[2], NULL, 10);
    }
    RUN(stamps_see_one_wrong_byte);
    RUN(planted_faults_are_found);
    for (size_t i = 0; gml_policy_name(i); i++) {
        policy_name = gml_policy_name(i);
        for (int turn = 0; turn <= can_lend(policy_name); turn++) {
            is_lending = turn;
            RUN(order_and_reserved_bytes);
        }
        RUN(contents_over_threads);
        is_lending = false;
    }
    return report();
}
